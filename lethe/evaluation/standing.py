"""Two words per model, one on forgetting and one on utility. Only this module defines the rules.

Each word follows from intervals. If the intervals do not decide, the word is "open". All intervals share one alpha
(Bonferroni), and are those of the findings if more comparisons share alpha there. ``MEANING`` states the rules for readers.

Forgetting, against a model that never saw the forget set (Retrain), by the share of answers that leak; the interval of a
model is that of its samples, or that of its exact bounds where these are sharper (`lethe.evaluation.leak_share`):
    leaks      the model's interval lies above Retrain's;
    forgot     the model leaks in at most `LEAK_MARGIN` more of its answers than Retrain (the model's upper end minus
               Retrain's lower end), and its worst question in at most ``metrics.share_above`` of its answers;
    open       neither.
Without Retrain, a model leaks if some answer leaked, and Retrain's share counts as 0. Without a 0/1 scorer, the mean score
replaces the share, with `SCORE_MARGIN`; then the word is open without Retrain, because any answer has some score.

If questions stopped early, each word is wrong with probability at most ``sample.sequential.alpha``, by itself:
    forgot     all questions are certified. The word is wrong if a question leaks more than tau; that question is certified
               with probability at most alpha.
    leaks      more questions were detected than chance explains if none leaks more than tau_leak. Then each of the m tests
               detects with probability at most alpha, so some test does with probability up to m alpha. The word therefore
               needs a binomial tail of at most alpha (`lethe.statistics.many_prompts.chance_of_rejections`).

Utility, relative to the model before unlearning (Base), by the mean score of sampled answers to the retain questions (to
the world facts if there are no retain questions):
    destroyed  the model keeps less than `LOST` of Base's score (its upper end / Base's lower end);
    intact     the model keeps at least `KEPT` of Base's score (its lower end / Base's upper end);
    damaged    the model's interval lies below Base's, and it is not intact;
    open       none of these, or no Base.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from lethe.evaluation.findings import Findings, judged_by
from lethe.evaluation.judged import WORST as TRUE_WORST
from lethe.evaluation.labelled import LEAKS
from lethe.evaluation.labelled import WORST as BY_LABELS
from lethe.evaluation.quantities import Quantity, mean_score
from lethe.evaluation.recorded import StoppedEarly
from lethe.evaluation.run import Model, Role, Run
from lethe.statistics.bounds import binary_upper
from lethe.statistics.comparison import Interval, compare
from lethe.statistics.leak_share import METHOD, silent_upper
from lethe.statistics.many_prompts import chance_of_rejections

LEAK_MARGIN = 0.002  # of the answers
SCORE_MARGIN = 0.05  # of the mean score, if there is no 0/1 scorer
KEPT = 0.9  # of Base's score
LOST = 0.5
USEFUL = ("retain", "world")  # the splits that a model should still answer

Forgetting = Literal["leaks", "forgot", "open", "reference"]
Utility = Literal["intact", "damaged", "destroyed", "open", "reference"]
Tone = Literal["bad", "good", "open", "reference"]

TONE: dict[str, Tone] = {
    "leaks": "bad",
    "forgot": "good",
    "intact": "good",
    "damaged": "bad",
    "destroyed": "bad",
    "open": "open",
    "reference": "reference",
}
MEANING = {
    "leaks": "more of the model’s answers leak than chance explains: more than those of the model that never saw the forget "
    "set, or any where there is no such model.",
    "forgot": f"at most {1000 * LEAK_MARGIN:g} in 1,000 answers leak beyond chance, and no question leaks often. The "
    "model may still know what other questions, or an attack on its weights, would bring out.",
    "intact": f"the model keeps at least {100 * KEPT:g}% of its score on questions that it should still answer.",
    "damaged": f"the model’s score on those questions fell, and is not shown to stay at {100 * KEPT:g}%.",
    "destroyed": f"the model keeps less than {100 * LOST:g}% of that score. Such a model says little about anything, and its "
    "silence on the forget set is no success of unlearning.",
    "open": "the answers do not decide the question, usually because they are too few.",
}

ALONE = {  # without Retrain
    "leaks": "some answer leaked. Without a model trained without the forget set a hit by chance counts as well.",
    "forgot": MEANING["forgot"].replace(" beyond chance", ""),
}


@dataclass(frozen=True)
class Aspect:
    """One word with the intervals behind it. ``few``: with so few answers, even a model that never leaked would be open."""

    word: str
    quantity: Quantity | None = None
    own: Interval | None = None
    reference: Interval | None = None
    few: bool = False

    @property
    def tone(self) -> Tone:
        """The tone in which the page shows the word."""
        return TONE[self.word]

    def as_dict(self) -> dict[str, object]:
        """Word and intervals for JSON; each end is a bound with its guarantee."""
        return {
            "word": self.word,
            "quantity": self.quantity and self.quantity.words,
            "interval": self.own and [bound.as_dict() for bound in self.own.bounds()],
            "reference": self.reference and [bound.as_dict() for bound in self.reference.bounds()],
        }


@dataclass(frozen=True)
class Standing:
    """The two words on one model."""

    model: str
    forgetting: Aspect
    utility: Aspect

    @property
    def words(self) -> str:
        """Both words as text."""
        return ", ".join(dict.fromkeys((self.forgetting.word, self.utility.word)))


def standings(run: Run, findings: Findings) -> list[Standing]:
    """The two words on each model of the run, in the order of the run.

    All intervals, two per model, hold together with probability 1 - ``metrics.alpha``. If more comparisons share alpha in
    the findings, the intervals are those of the findings, so the words agree with the findings.
    """
    level = min(findings.level, run.params.metrics.alpha / (2 * len(run.models)))
    against = _References(run, level)
    return [Standing(model.name, _forgetting(model, against), _utility(model, against)) for model in run.models]


@dataclass(frozen=True)
class _References:
    """The intervals with which every model of a run is compared; each is computed once, at ``level``."""

    run: Run
    level: float

    @cached_property
    def judged_by(self) -> tuple[Quantity, bool]:
        return judged_by(self.run)

    @cached_property
    def chance(self) -> Interval | None:
        """The interval of Retrain's leakage, which is leakage by chance."""
        retrain = self.run.role("retrain")
        return self.judged_by[0].measure(retrain, self.level) if retrain else None

    @cached_property
    def before(self) -> dict[str, Interval | None]:
        """The utility of Base on each split."""
        base = self.run.role("base")
        return {split: self.useful(split).measure(base, self.level) if base else None for split in USEFUL}

    def useful(self, split: str) -> Quantity:
        return mean_score(split, self.run.params.metrics.kept)


def _forgetting(model: Model, against: _References) -> Aspect:
    run = against.run
    if model.stopped is not None:
        return Aspect(_stopped_early(model.role, model.stopped))
    quantity, binary = against.judged_by
    own, retrain = quantity.measure(model, against.level), run.role("retrain")
    if model.role != "subject":
        return Aspect("reference", quantity, own)
    chance = against.chance
    few = binary and _few(model, run, own)  # with so few answers no model can earn the word "forgot"
    word: Forgetting = "open"
    if own is None or (retrain and chance is None) or not (retrain or binary):
        word = "open"
    elif (chance and compare(own, chance) == "higher") or (chance is None and _leaked(model, own)):
        word = "leaks"
    elif own.upper - (chance.lower if chance else 0.0) <= (LEAK_MARGIN if binary else SCORE_MARGIN) and (
        not binary or _worst(model) <= run.params.metrics.share_above
    ):
        word = "forgot"
    return Aspect(word, quantity, own, chance, few)


def _stopped_early(role: Role, stopped: StoppedEarly) -> Forgetting:
    if role != "subject":
        return "reference"
    if chance_of_rejections(stopped.leaking, stopped.questions, stopped.alpha) <= stopped.alpha:
        return "leaks"
    return "forgot" if stopped.certified == stopped.questions else "open"


def _leaked(model: Model, own: Interval) -> bool:
    """Whether some answer leaked: one leak seen, by a person where there are labels; or, where a judge who errs said so, a
    true share above 0.
    """
    if (seen := model.value(LEAKS)) is not None:
        return seen > 0
    if model.value("judge_labelled"):
        return own.lower > 0
    return bool(model.value("binary_any"))


def _worst(model: Model) -> float:
    """The bound of the worst question that requires the least trust in a judge."""
    bounds = (model.bounds.get(key) for key in (BY_LABELS, TRUE_WORST, "m_bin_worst"))
    bound = next(filter(None, bounds), None)
    return bound.value if bound else 1.0


def _few(model: Model, run: Run, own: Interval | None) -> bool:
    """Whether the model would be open even if no answer had leaked."""
    metrics, n = run.params.metrics, model.value("n")
    if own is None or not n:
        return False
    if own.method == METHOD and model.exact:
        silent = silent_upper(model.exact.trees[0].rho, len(model.exact.trees), own.alpha / 2)
    else:
        silent = float(binary_upper(0, own.n, own.alpha / 2))
    return silent > LEAK_MARGIN or float(binary_upper(0, int(n), metrics.alpha)) > metrics.share_above


def _utility(model: Model, against: _References) -> Aspect:
    for split in USEFUL:
        quantity, before = against.useful(split), against.before[split]
        own = quantity.measure(model, against.level)
        if own:
            break
    if model.role != "subject":
        return Aspect("reference", quantity, own)
    word: Utility = "open"
    if own and before:
        if own.upper < LOST * before.lower:
            word = "destroyed"
        elif own.lower >= KEPT * before.upper:
            word = "intact"
        elif compare(own, before) == "lower":
            word = "damaged"
    return Aspect(word, quantity if own else None, own, before)
