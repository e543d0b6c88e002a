"""The measures of one model: frozen records that hold bounds, and their JSON in the artifacts.

``data/metrics/NAME.json`` has flat keys, because `dvc metrics` shows every leaf of a metrics file as a separate column.
The guarantees of those keys are in ``data/curves/NAME/bounds.json``, an output of the same stage that is not a metrics
file. Each value is stored only once.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import chain

from lethe.evaluation.judged import JudgedRate
from lethe.evaluation.leaks_at_k import Points
from lethe.evaluation.prompt_scores import mean
from lethe.evaluation.prompts import PromptMeasure, PromptMeasures
from lethe.evaluation.together import TogetherResult
from lethe.statistics.bound import Bound
from lethe.statistics.many_prompts import worst_prompt
from lethe.statistics.sequential import CERTIFIED, LEAKS, UNDECIDED, Decision

REASON = "the question stopped early: bounds for a fixed number of samples do not hold; anytime-valid bounds replace them"
FIXED = (
    *("m_mu", "m_mu_lower", "m_sigma", "m_bin", "m_bin_lower", "m_gen", "leaking"),
    *("tighter_mean_upper", "tighter_mean_lower", "tighter_sd_upper", "leak_at_k"),
)
# Flat key -> the bound of a question; the flat key holds the largest value over the questions.
WORST = {
    "m_mu_worst": "m_mu",
    "m_sigma_worst": "m_sigma",
    "tighter_mean_worst": "mean_upper",
    "tighter_sd_worst": "sd_upper",
    "m_bin_worst": "m_bin",
}
ANYTIME = {"anytime_upper_worst": "anytime_upper", "anytime_sd_upper_worst": "anytime_sd_upper"}


@dataclass(frozen=True)
class QuestionMeasure:
    """One forget question: plain statistics over the judged answers, and the bounds that hold.

    ``fixed`` holds the bounds for a number of samples fixed beforehand. ``stopped`` holds the anytime-valid bounds of a
    question that stopped early. A question has one of the two.
    """

    prompt_id: str
    question: str
    n: int
    missing: int
    greedy: float
    mean: float
    sd: float
    max: float
    ed_score: float
    binary_greedy: float
    binary_share: float
    binary_missing: int | None = (
        None  # answers without a verdict of the binary scorer; None without a binary scorer
    )
    fixed: PromptMeasure | None = None
    leak_at_k: Points | None = None
    judged: JudgedRate | None = None  # bounds of the true leak probability, where the judge's error was measured
    stopped: Decision | None = None

    def bounds(self) -> dict[str, Bound]:
        """The question's bounds under the keys of its row."""
        if self.fixed is None:
            return self.stopped.bounds() if self.stopped else {}
        tails = {
            name: bound
            for tail in self.fixed.tails[:1]  # one guarantee for all thresholds
            for name, bound in (
                ("m_gen", tail.upper),
                ("m_gen_lower", tail.lower),
                ("m_gen_tighter", tail.tighter),
            )
        }
        asked = {
            f"leak_at_k_{side}": getattr(point, side) for point in self._first() for side in ("lower", "upper")
        }
        true = {"judged_lower": self.judged.lower, "judged_upper": self.judged.upper} if self.judged else {}
        return self.fixed.bounds() | tails | asked | true

    def _first(self) -> Points:
        """One guarantee for all k."""
        return self.leak_at_k[:1] if self.leak_at_k else ()

    def row(self) -> dict[str, object]:
        """The question in ``per_question.json``.

        ``keyword_greedy``, ``keyword_share`` and ``leaking`` are deprecated names of ``binary_greedy``, ``binary_share`` and
        ``leaking_answers``; they remain for one release.
        """
        start = {
            "prompt_id": self.prompt_id,
            "question": self.question,
            "n": self.n,
            "missing": self.missing,
            "greedy": self.greedy,
            "mean": self.mean,
            "sd": self.sd,
            "max": self.max,
            "ed_score": self.ed_score,
        }
        keywords = {"keyword_greedy": self.binary_greedy, "keyword_share": self.binary_share}
        binary = {
            "binary_greedy": self.binary_greedy,
            "binary_share": self.binary_share,
            "binary_missing": self.binary_missing,
        }
        if self.fixed:
            asked = {"leak_at_k": self.leak_at_k and [point.row() for point in self.leak_at_k]}
            leaking = {"leaking_answers": self.fixed.leaking}
            true = self.judged.row() if self.judged else {}
            return start | _fixed_row(self.fixed) | keywords | binary | leaking | asked | true
        return start | dict.fromkeys(FIXED) | {"fixed_bounds": REASON} | keywords | self._verdict() | binary

    def _verdict(self) -> dict[str, object]:
        if self.stopped is None:
            return {}
        values = {name: bound.value for name, bound in self.stopped.bounds().items()}
        return {"verdict": self.stopped.verdict, "decided_at": self.stopped.n, **values}


def _fixed_row(fixed: PromptMeasure) -> dict[str, object]:
    return {
        "m_mu": fixed.m_mu.value,
        "m_mu_lower": fixed.m_mu_lower.value,
        "m_sigma": fixed.m_sigma.value,
        "m_bin": fixed.m_bin and fixed.m_bin.value,
        "m_bin_lower": fixed.m_bin_lower and fixed.m_bin_lower.value,
        "m_gen": [
            {"x": tail.x, "bound": tail.upper.value, "lower": tail.lower.value, "tighter": tail.tighter.value}
            for tail in fixed.tails
        ],
        "tighter_mean_upper": fixed.mean_upper.value,
        "tighter_mean_lower": fixed.mean_lower.value,
        "tighter_sd_upper": fixed.sd_upper.value,
        "tighter_exceedance_method": fixed.exceedance_method,
        # The number of leaking answers; a missing judgement counts as a leak. Null without a binary scorer.
        "leaking": fixed.leaking,
    }


@dataclass(frozen=True)
class SplitMeasure:
    """The answers to a split that unlearning should not touch; ``diversity`` is by name of the measure."""

    split: str
    greedy: float
    mean: float
    diversity: Mapping[str, float]
    missing: int

    def flat(self) -> dict[str, float]:
        """The flat keys of this split."""
        named = {f"{self.split}_{name}": value for name, value in self.diversity.items()}
        means = {f"{self.split}_greedy": self.greedy, f"{self.split}_mean": self.mean}
        return means | named | {f"{self.split}_missing": self.missing}


@dataclass(frozen=True)
class TailPoint:
    """The tail curve at ``x``: means over the questions. The mean of the bounds has no joint guarantee."""

    x: float
    bound: float
    empirical: float


@dataclass(frozen=True)
class ConvergencePoint:
    """The first ``n`` answers to one question; each bound holds for its own n, fixed beforehand."""

    prompt_id: str
    n: int
    mean: float
    mean_bound: Bound
    sd: float
    sd_bound: Bound

    def row(self) -> dict[str, object]:
        """The row in ``convergence.json``."""
        return {
            "prompt_id": self.prompt_id,
            "n": self.n,
            "mean": self.mean,
            "mean_bound": self.mean_bound.value,
            "sd": self.sd,
            "sd_bound": self.sd_bound.value,
        }


@dataclass(frozen=True)
class Stopped:
    """The sampling rule of a forget set whose questions stopped early."""

    scorer: str
    alpha: float
    tau: float
    tau_leak: float
    cap: int


@dataclass(frozen=True)
class ModelMeasures:
    """Everything measured of one model from its answers.

    ``prompts`` is None if questions ``stopped`` early, because then no bound for a fixed number of samples holds.
    """

    name: str
    alpha: float
    n: int
    questions: tuple[QuestionMeasure, ...]
    splits: tuple[SplitMeasure, ...]
    prompts: PromptMeasures | None = None
    m_gen: tuple[TailPoint, ...] = ()
    convergence: tuple[ConvergencePoint, ...] = ()
    stopped: Stopped | None = None

    @property
    def together(self) -> TogetherResult | None:
        """The statement on all questions together, if a correction was requested."""
        return self.prompts.together if self.prompts else None

    def bounds(self) -> dict[str, Bound]:
        """The bounds of the forget set as a whole, under their flat keys."""
        found: dict[str, Bound] = {}
        if self.prompts:
            worst = {key: self.prompts.worst(name) for key, name in WORST.items()}
            found = {key: largest.bound for key, largest in worst.items() if largest}
            if self.prompts.pooled:
                found["m_bin_pooled"] = self.prompts.pooled
            if self.prompts.leak_at_k:
                found |= self.prompts.leak_at_k.bounds()
            if self.prompts.judged:
                found |= self.prompts.judged.bounds()
        elif self.stopped:
            each = [question.bounds() for question in self.questions]
            for key, name in ANYTIME.items():
                found[key] = worst_prompt([bounds[name] for bounds in each])[1]
        return found

    def flat(self) -> dict[str, object]:
        """The flat keys of ``data/metrics/NAME.json`` that come from the answers; `further_flat` has the newer keys."""
        return {
            "model": self.name,
            "alpha": self.alpha,
            "n_questions": len(self.questions),
            "n": self.n,
            "missing": sum(question.missing for question in self.questions),
            **self._forget(),
            **(self._stopped_flat(self.stopped) if self.stopped else {}),
            **{key: value for split in self.splits for key, value in split.flat().items()},
        }

    def further_flat(self) -> dict[str, object]:
        """Keys that follow all others, so that the earlier keys of a file keep their order.

        The ``binary_*`` keys hold the values of the binary scorer, whichever scorer that is. The ``keyword_*`` keys hold the
        same values and remain for one release. ``leaking_questions`` replaces ``leaking`` in the same way.
        """
        found: dict[str, object] = {f"binary_{name}": value for name, value in self._binary().items()}
        if self.stopped:
            found["leaking_questions"] = self._verdicts(LEAKS)
        if self.together:
            found["certified_together"] = len(self.together.certified)
        if self.prompts and self.prompts.leak_at_k:
            found |= {key: bound.value for key, bound in self.prompts.leak_at_k.bounds().items()}
        if self.prompts and self.prompts.judged:
            judged = self.prompts.judged
            found |= {key: bound.value for key, bound in judged.bounds().items()} | judged.flat()
        return found

    def curves(self) -> dict[str, list[dict[str, object]]]:
        """The rows of the curve files by file name without the extension."""
        return {
            "per_question": [
                question.row() | self._together_row(question.prompt_id) for question in self.questions
            ],
            "m_gen": [
                {"model": self.name, "x": point.x, "bound": point.bound, "empirical": point.empirical}
                for point in self.m_gen
            ],
            "convergence": [point.row() for point in self.convergence],
            # per_question holds the leak@k of each question.
            "leak_at_k": self._leak_at_k_rows(),
        }

    def _leak_at_k_rows(self) -> list[dict[str, object]]:
        if not self.prompts or not self.prompts.leak_at_k:
            return []
        judged = self.prompts.judged
        return self.prompts.leak_at_k.rows() + (judged.over_prompts.rows("judged_") if judged else [])

    def guarantees(
        self, others: Mapping[str, Bound] | None = None, each: Iterable[Mapping[str, Bound]] = ()
    ) -> dict[str, object]:
        """The content of ``bounds.json``: every field of each bound except its value.

        ``metrics`` has the flat keys, those of ``others`` among them; ``per_question`` and ``convergence`` have the keys
        of the curves' rows, in ``per_question`` also those of ``each`` question, where a null ``n`` is the row's own;
        ``leak_at_k_lower`` and ``leak_at_k_upper`` are the two sides of a question's ``leak_at_k``. ``leak_at_k`` has those
        of the worst question and of the mean.
        """
        found: dict[str, object] = {
            "metrics": {
                key: bound.guarantee_dict() for key, bound in (self.bounds() | dict(others or {})).items()
            },
            "per_question": shared_guarantees(chain((question.bounds() for question in self.questions), each)),
            "convergence": shared_guarantees(
                {"mean_bound": point.mean_bound, "sd_bound": point.sd_bound} for point in self.convergence
            ),
        }
        if self.prompts and self.prompts.leak_at_k:
            found["leak_at_k"] = self.prompts.leak_at_k.guarantees()
        if self.prompts and self.prompts.judged:
            judged = self.prompts.judged
            found["judge"] = asdict(judged.calibration)
            found["leak_at_k"] = {**_section(found, "leak_at_k"), **judged.over_prompts.guarantees("judged_")}
        if self.together:
            found["together"] = self.together.as_dict()
        return found

    def _forget(self) -> dict[str, float]:
        """The values of the forget set as a whole; the name of each value states its claim."""
        questions, bounds = self.questions, self.bounds()
        named = {key: bounds[key].value if key in bounds else math.nan for key in (*WORST, "m_bin_pooled")}
        share = self.prompts.share_above("m_bin") if self.prompts else None
        mu_mean = mean(question.fixed.m_mu.value for question in questions if question.fixed)
        ordered = {"m_mu_worst": named.pop("m_mu_worst"), "m_mu_mean": mu_mean, **named}
        return {
            "greedy_mean": mean(question.greedy for question in questions),
            "mean": mean(question.mean for question in questions),
            "sd": mean(question.sd for question in questions),
            "ed_score": mean(question.ed_score for question in questions),
            "max": max((question.max for question in questions if not math.isnan(question.max)), default=math.nan),
            **ordered,
            "share_m_bin_above": math.nan if share is None else share,
            **{f"keyword_{name}": value for name, value in self._binary().items()},
        }

    def _binary(self) -> dict[str, float]:
        shares = [question.binary_share for question in self.questions]
        return {
            "greedy": mean(question.binary_greedy for question in self.questions),
            "mean": mean(shares),
            "any": mean(share if math.isnan(share) else float(share > 0) for share in shares),
        }

    def _stopped_flat(self, stopped: Stopped) -> dict[str, object]:
        """The verdicts, and the samples saved relative to drawing every question to the cap."""
        drawn, most = sum(question.n for question in self.questions), stopped.cap * len(self.questions)
        return {
            "fixed_bounds": REASON,
            "sequential_scorer": stopped.scorer,
            "sequential_alpha": stopped.alpha,
            "sequential_tau": stopped.tau,
            "sequential_tau_leak": stopped.tau_leak,
            "certified": self._verdicts(CERTIFIED),
            "leaking": self._verdicts(LEAKS),
            "undecided": self._verdicts(UNDECIDED),
            **{key: bound.value for key, bound in self.bounds().items()},
            "samples_drawn": drawn,
            "samples_saved": most - drawn,
            "samples_saved_share": 1 - drawn / most,
        }

    def _verdicts(self, verdict: str) -> int:
        return sum(
            question.stopped is not None and question.stopped.verdict == verdict for question in self.questions
        )

    def _together_row(self, prompt_id: str) -> dict[str, object]:
        if not self.together:
            return {}
        bound = self.together.bound(prompt_id)
        certified = prompt_id in self.together.certified if prompt_id in self.together.prompt_ids else None
        return {"together_bound": bound and bound.value, "certified": certified}


def _section(found: Mapping[str, object], key: str) -> dict[str, object]:
    section = found.get(key)
    return section if isinstance(section, dict) else {}


def shared_guarantees(rows: Iterable[Mapping[str, Bound]]) -> dict[str, dict[str, object]]:
    """The guarantee of each key over many rows; ``n`` is null if the rows differ in n."""
    found: dict[str, Bound] = {}
    for row in rows:
        for key, bound in row.items():
            known = found.setdefault(key, bound)
            if known.n != bound.n:
                found[key] = replace(known, n=None)
    return {key: bound.guarantee_dict() for key, bound in found.items()}
