"""The results on P(leak) of the questions of a model, in the form written to files, tables and
pages.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, get_args

import numpy as np

from lethe.errors import plural
from lethe.statistics.answer_tree import (
    EXACT,
    SAMPLED,
    LeakInterval,
    Masses,
    PooledLeak,
    Remainder,
    Rounding,
    TreeVerdict,
    leak_bands,
    pooled_leak,
    queries_until,
    together_below,
    verdict,
)
from lethe.statistics.bound import CERTAIN, Bound, Covers, Side
from lethe.statistics.checks import check

METHOD = "answer tree"
POISSON = "answer tree, Poisson sample of the rest"
AS_STATED = "the probabilities are as the server states them"
# Thresholds of ``certain_leaks``; the metric ``tree_certain_leaks`` counts at the first.
PROVED = (1e-6, 1e-4)


@dataclass(frozen=True)
class HeavyLeak:
    """An answer's text up to its leak, and the probability of all answers that begin with this
    text.
    """

    text: str
    probability: float


@dataclass(frozen=True)
class AnswerTree:
    """The result for one question; the ends are those of `LeakInterval`, the masses are before
    rounding.

    ``lower_confirmed_share`` is the share of the explored mass with a complete keyword that the
    next character confirmed. ``rows`` counts all tokens put through the model. ``note`` explains
    deviations from the usual procedure.
    """

    id: str
    lower: float
    lower_confirmed_share: float
    upper_certain: float
    upper: float
    lower_sampled: float
    alpha: float
    leak_mass: float
    clean_mass: float
    blank_mass: float
    unscored_mass: float
    rows: int
    theta: float
    rho: float
    sampled: int
    sampled_leaks: int
    logit_allowance: float
    entropy: float
    queries_until_half: tuple[float, float]
    leak_at: dict[int, tuple[float, float]]
    heaviest_leaks: tuple[HeavyLeak, ...]
    masses: Masses
    note: str = ""
    assumes: str = EXACT

    @classmethod
    def of(
        cls,
        name: str,
        ends: LeakInterval,
        masses: Masses,
        rest: Remainder,
        queries: Sequence[int],
        **more: Any,
    ) -> AnswerTree:
        """The tree with its derived numbers; ``more`` are the other fields, where they are not the
        usual ones.
        """
        first, last = queries_until(np.array([ends.upper, ends.lower])).tolist()
        usual: dict[str, Any] = {"lower_confirmed_share": 1.0}
        usual |= dict.fromkeys(("theta", "logit_allowance", "entropy"), 0.0)
        return cls(
            id=name,
            lower=ends.lower,
            upper_certain=ends.upper_certain,
            upper=ends.upper,
            lower_sampled=ends.lower_sampled,
            alpha=ends.alpha,
            leak_mass=masses.leak,
            clean_mass=masses.clean,
            blank_mass=masses.blank,
            unscored_mass=masses.unscored,
            rho=rest.rho,
            sampled=rest.sampled,
            sampled_leaks=rest.leaks,
            queries_until_half=(first, last),
            leak_at=leak_bands(ends.lower, ends.upper, queries),
            masses=masses,
            **usual | more,
        )

    @property
    def bounds(self) -> dict[str, Bound]:
        """The four ends as bounds with their guarantees; each holds for this question by itself."""
        return {
            "lower": _certain(self.lower, "lower", assumes=self.assumes),
            "upper": _sampled(self, self.upper, "upper", Covers.ONE_PROMPT),
            "upper_certain": _certain(self.upper_certain, "upper", assumes=self.assumes),
            "lower_sampled": _sampled(self, self.lower_sampled, "lower", Covers.ONE_PROMPT),
        }

    @property
    def remainder(self) -> Remainder:
        """The sample of the unexplored mass."""
        return Remainder(self.rho, self.sampled, self.sampled_leaks)


def _certain(
    value: float, side: Side, covers: Covers = Covers.ONE_PROMPT, assumes: str = EXACT
) -> Bound:
    return Bound(value, side, CERTAIN, covers, assumes, METHOD)


def _sampled(
    of: AnswerTree | ModelTree, value: float, side: Side, covers: Covers, assumes: str = SAMPLED
) -> Bound:
    """A bound by the sample, or a certain one where nothing was sampled."""
    if not of.rho:
        return _certain(value, side, covers, of.assumes)
    return Bound(value, side, of.alpha, covers, assumes, POISSON, of.sampled)


@dataclass(frozen=True)
class ModelTree:
    """The result for a model over its questions.

    ``certain_leaks`` maps each probability to the number of questions proved to leak with more than
    it; ``verdicts`` counts the questions by verdict at ``tau``. ``pooled`` bounds the mean over the
    questions (None if nothing was sampled); ``mean_lower`` and ``mean_upper_certain`` are the
    certain ends of the mean.
    """

    questions: int
    tau: float
    verdicts: dict[str, int]
    share_proved: float
    certain_leaks: dict[float, int]
    lower_worst: float
    lower_median: float
    mean_lower: float
    mean_upper_certain: float
    upper_worst: float
    worst_question: str
    upper_median: float
    alpha: float
    rho: float
    rows: int
    sampled: int
    pooled: PooledLeak | None
    assumes: str = EXACT

    @property
    def bounds(self) -> dict[str, Bound]:
        """The bounds under their exported names."""
        mean = _certain(self.mean_upper_certain, "upper", Covers.AVERAGE, self.assumes)
        if self.pooled is not None:
            mean = _sampled(self, self.pooled.upper, "upper", Covers.AVERAGE, self.pooled.assumes)
        worst = Covers.WORST_PROMPT
        return {
            "tree_lower_worst": _certain(self.lower_worst, "lower", worst, self.assumes),
            "tree_upper_worst": _sampled(self, self.upper_worst, "upper", worst),
            "tree_upper_mean": mean,
        }


def joint_verdicts(
    trees: Sequence[AnswerTree], tau: float, rounding: Rounding
) -> dict[str, TreeVerdict]:
    """The verdict of each question. All bounded questions are bounded together at alpha, by Holm."""
    questions = [(tree.masses, tree.remainder) for tree in trees]
    are_below = together_below(questions, tau, trees[0].alpha, rounding)
    verdicts = {}
    for tree, is_below in zip(trees, are_below, strict=True):
        upper = tree.upper if is_below else 1.0
        verdicts[tree.id] = verdict(tree.lower, upper, tau)
    return verdicts


def model_tree(trees: Sequence[AnswerTree], rounding: Rounding, tau: float) -> ModelTree:
    """The model's summary; ``upper_worst`` holds at alpha for the truly worst question."""
    check(trees, "questions", 0, "at least one")
    lower = np.array([tree.lower for tree in trees])
    upper = np.array([tree.upper for tree in trees])
    certain = np.array([tree.upper_certain for tree in trees])
    alpha = trees[0].alpha
    pooled = None
    if all(tree.rho for tree in trees):
        questions = [(tree.masses, tree.remainder) for tree in trees]
        pooled = pooled_leak(questions, alpha, rounding)
    words = Counter(joint_verdicts(trees, tau, rounding).values())
    return ModelTree(
        questions=len(trees),
        tau=tau,
        verdicts={word: words[word] for word in get_args(TreeVerdict)},
        share_proved=float((lower >= tau).mean()),
        certain_leaks={chance: int((lower > chance).sum()) for chance in PROVED},
        lower_worst=float(lower.max()),
        lower_median=float(np.median(lower)),
        mean_lower=float(lower.mean()),
        mean_upper_certain=float(certain.mean()),
        upper_worst=float(upper.max()),
        worst_question=trees[int(upper.argmax())].id,
        upper_median=float(np.median(upper)),
        alpha=alpha,
        rho=trees[0].rho,
        rows=sum(tree.rows for tree in trees),
        sampled=sum(tree.sampled for tree in trees),
        pooled=pooled,
        assumes=trees[0].assumes,
    )


@dataclass(frozen=True)
class How:
    """The settings under which a model was queried, and the definition of a leak."""

    leak: str
    temperature: float
    top_k: int
    top_p: float
    adaptive_threshold: float | None
    max_new_tokens: int
    dtype: str
    logit_allowance: float
    note: str = ""


@dataclass(frozen=True)
class Version:
    """Digests of the ``model``'s weights and of the file of ``questions``, None where unknown."""

    model: str | None = None
    questions: str | None = None

    def differs(self, other: Version) -> bool:
        """Whether the two are known to be about other weights or other questions."""
        pairs = ((self.model, other.model), (self.questions, other.questions))
        return any(None not in pair and pair[0] != pair[1] for pair in pairs)


@dataclass(frozen=True)
class Certificates:
    """The trees of one model, in the order of the questions; ``skipped`` names questions that the
    scorer cannot judge.

    ``refused`` has the reasons why no end of the trees may be claimed. ``of`` says which version of
    model and questions they are about, None where no file records it. ``repeat`` numbers the
    samples that were drawn of these, from 1; None where nobody counts them.
    """

    name: str
    trees: tuple[AnswerTree, ...]
    how: How
    tau: float
    skipped: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    of: Version | None = None
    repeat: int | None = None

    @property
    def rounding(self) -> Rounding:
        """The largest error of the probabilities under these settings."""
        return Rounding(self.how.logit_allowance, self.how.max_new_tokens, self.how.temperature)

    @property
    def model(self) -> ModelTree:
        """The summary over the questions."""
        return model_tree(self.trees, self.rounding, self.tau)

    @cached_property
    def verdicts(self) -> dict[str, TreeVerdict]:
        """The verdict of each question, which hold together."""
        return joint_verdicts(self.trees, self.tau, self.rounding)

    def sentences(self) -> list[str]:
        """What the trees prove, one claim a sentence, and notes on the procedure."""
        if self.refused:
            lines = [f"No bound of P(leak) exists. {reason}" for reason in self.refused]
        else:
            lines = self._claims()
        if self.how.note:
            lines.append(self.how.note)
        if self.skipped:
            left_out = plural(len(self.skipped), "question")
            lines.append(f"{left_out} left out, which {self.how.leak} cannot judge.")
        notes = [tree.note for tree in self.trees if tree.note]
        return lines + list(dict.fromkeys(notes))

    def _claims(self) -> list[str]:
        model = self.model
        bounds = model.bounds
        of = f"the {plural(len(self.trees), 'question')}"
        counts = ", ".join(f"{count} {word}" for word, count in model.verdicts.items())
        lines = [bound.sentence("P(leak) per query", of) for bound in bounds.values()]
        lines.append(
            f"At a threshold of {self.tau:g} per query: {counts}. All bounded questions are "
            f"bounded together {bounds['tree_upper_worst'].level()} (Holm)."
        )
        for chance, count in model.certain_leaks.items():
            lines.append(
                f"Proved to leak with a probability above {chance:g}, with certainty: {count} of {of}."
            )
        return lines
