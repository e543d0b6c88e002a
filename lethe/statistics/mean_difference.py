"""Differences between two means of scores in [0, 1], by what is recorded of how the two sides were
drawn.

The method follows from facts fixed before any score is seen (`Draws`), never from the narrower of
two results:

- "any": nothing is known of the dependence. A difference is refuted where no common mean is left:
  for each mean m, "a's mean is m" and "b's mean is m" are four one-sided tests, of which one is
  false with probability at most 4 times its level. A side that a rule could stop early has bounds
  that hold at the stop.
- "apart": the sides are independent. The product of the two p-values is refuted by Fisher's
  combination: if P and Q are independent p-values, P(P Q <= t) <= t (1 - ln t). Where one side has
  over `LARGEST_RATIO` times the answers of the other, the four bounds of "any" are narrower, and
  they are taken.
- "pairs": both sides share one stream per answer, so the pairs of j-th answers are independent over
  j, and the paired differences are bet on.

`mean_of_differences` averages over these questions: each side's average, pairs of answers, or one
answer to each question. `population_difference` takes the questions as a sample of questions like
them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Literal, Protocol

import numpy as np

from lethe.errors import BadValue
from lethe.statistics import betting, many_prompts
from lethe.statistics.bound import Assumes, Bound, Covers, Interval, both_ends
from lethe.statistics.bounds import binary_upper, pooled_lower, pooled_upper
from lethe.statistics.checks import check, check_alpha, check_scores
from lethe.statistics.search import halved
from lethe.statistics.sequential import METHOD as AT_THE_STOP
from lethe.statistics.sequential import StoppedSamples, stopped_average
from lethe.statistics.two_sample import CELLS, combined_low, largest_combination, product_threshold

Draws = Literal["any", "apart", "pairs"]
NEITHER = (False, False)  # of the two sides, which ones a rule could stop
LOOKS = "a stopping rule that looks only at its own side"
WITHIN = "independent draws within each question and model, in sampling order"
ASSUMES: dict[Draws, str] = {
    "any": f"{WITHIN}; any dependence between the two models",
    "apart": f"{WITHIN}; two models with random numbers of their own",
    "pairs": f"{WITHIN}; two models with one seed, whose j-th answers share random numbers with each other only",
}
# Up to this ratio of the numbers of answers, combined sides are narrower than four bounds.
LARGEST_RATIO = 16
STEPS = 45  # bisection steps: down to 2^-45 of the unit interval
CLOPPER_PEARSON = "Clopper-Pearson"
FISHER = "Fisher's combination"
PAIRED = "betting on paired differences"


@dataclass(frozen=True)
class Difference:
    """b's mean minus a's: estimates over the judged scores, a two-sided interval, and the p-value
    of "no difference".

    The interval fails by itself with probability at most ``alpha``, each end at half of it, and
    excludes 0 exactly if ``p_value`` is at most ``alpha``, up to rounding. The estimates are NaN if
    no score was judged.
    """

    a: float
    b: float
    low: float
    high: float
    p_value: float
    alpha: float
    method: str
    assumes: str = ASSUMES["any"]

    def bounds(self, covers: Covers = Covers.ONE_PROMPT) -> tuple[Bound, Bound]:
        """The lower and the upper end, which hold together at alpha; ``covers``: what the
        difference is about.
        """
        return both_ends(self.low, self.high, self.alpha, covers, self.assumes, self.method)

    @property
    def difference(self) -> float:
        return self.b - self.a

    def p_above(self) -> float:
        """The p-value of "b's mean is at most a's"; 1 unless the estimate of b's is larger."""
        if self.difference > 0:
            return self.p_value / 2
        return 1.0

    def p_below(self) -> float:
        """The p-value of "b's mean is at least a's"; 1 unless the estimate of b's is smaller."""
        if self.difference < 0:
            return self.p_value / 2
        return 1.0


def difference(
    a: np.ndarray,
    b: np.ndarray,
    alpha: float,
    binary: bool = False,
    stopped: tuple[bool, bool] = NEITHER,
    draws: Draws = "any",
) -> Difference:
    """Compare the means of two samples, (n,) and (m,) scores in [0, 1] in sampling order.

    A missing score is NaN, and counts as 0 in a lower bound, as 1 in an upper. Bounds of one side:
    Clopper-Pearson for scores of 0 and 1 (``binary``, a property of the scorer and not of these
    values), betting for others, `sequential.StoppedSamples` for a side that a rule could stop by
    its scores (``stopped``, of a and b). ``draws`` is what is recorded of the dependence; stopped
    sides are compared as "any", and of pairs the first min(n, m) count.

    Parameters
    ----------
    a, b
        (n,) and (m,) scores in [0, 1] in sampling order, NaN where missing.
    alpha
        Level of the two-sided interval, at most 1/2; each end takes half.
    binary
        Whether the scorer gives only 0 and 1: a property of the scorer, not of these values.
    stopped
        Whether a rule could stop a, and b, by its scores.
    draws
        What is recorded of the dependence; see `Draws`.

    Raises
    ------
    BadValue
        If a score is outside [0, 1], there is none, or one is neither 0 nor 1 though ``binary``.

    >>> a, b = np.zeros(200), np.repeat([1.0, 0.0], [60, 140])
    >>> change = difference(a, b, alpha=0.05, binary=True)
    >>> round(change.low, 3), round(change.high, 3), change.p_value < 1e-6
    (0.208, 0.378, True)
    """
    check_alpha(alpha)
    a = check_scores(a, "worst")[0]
    b = check_scores(b, "worst")[0]
    if binary and not (_is_binary(a) and _is_binary(b)):
        raise BadValue("scores", "numbers between 0 and 1", "0 or 1 if binary is set")
    balanced = 1 / LARGEST_RATIO <= len(a) / len(b) <= LARGEST_RATIO
    if any(stopped) or (draws == "apart" and not balanced):
        draws = "any"
    if draws == "pairs":  # estimates and interval are of the same answers
        size = min(len(a), len(b))
        a, b = a[:size], b[:size]

    method, evidence = _evidence(a, b, alpha, binary, stopped, draws)
    first, second = _mean([a]), _mean([b])
    low, high = evidence.interval(alpha)
    p = evidence.p_value(first, second)
    return Difference(first, second, low, high, p, alpha, method, assumptions(draws, stopped))


def _is_binary(scores: np.ndarray) -> bool:
    """Whether every score that is not missing is 0 or 1."""
    judged = scores[~np.isnan(scores)]
    return bool(np.isin(judged, (0.0, 1.0)).all())


@dataclass(frozen=True)
class _Evidence:
    """The evidence that b's mean is the larger one (``rises``), and that a's is (``falls``)."""

    rises: Rise
    falls: Rise

    @classmethod
    def of_pairs(cls, a: np.ndarray, b: np.ndarray, level: float) -> _Evidence:
        return cls.of_ends(_ends_of(a), _ends_of(b), level)

    @classmethod
    def of_ends(cls, a: Ends, b: Ends, level: float) -> _Evidence:
        """Bets on paired differences, where a missing score is the worst for the claim that is bet
        on.
        """
        (low_a, high_a), (low_b, high_b) = a, b
        return cls(_PairedBets(high_a, low_b, level), _PairedBets(high_b, low_a, level))

    def interval(self, alpha: float) -> tuple[float, float]:
        """Both ends of b's mean minus a's, each at half of ``alpha``."""
        return self.rises.low(alpha / 2), -self.falls.low(alpha / 2)

    def p_value(self, first: float, second: float) -> float:
        """The two-sided p-value at the estimates ``first`` and ``second`` of both means."""
        side = self.rises if second >= first else self.falls
        return min(1.0, 2 * side.p_value())


def _evidence(
    a: np.ndarray,
    b: np.ndarray,
    alpha: float,
    binary: bool,
    stopped: tuple[bool, bool],
    draws: Draws,
) -> tuple[str, _Evidence]:
    """The method that `Draws` decides, and its evidence."""
    if draws == "pairs":
        return PAIRED, _Evidence.of_pairs(a, b, alpha / 2)

    level = alpha / 4
    if draws == "apart":
        level = math.sqrt(product_threshold(alpha / 2))
    above_a, below_a = _sides(a, level, binary, stopped[0])
    above_b, below_b = _sides(b, level, binary, stopped[1])
    fixed = CLOPPER_PEARSON if binary else "betting"
    if draws == "apart":
        evidence = _Evidence(_TwoSides(above_a, below_b), _TwoSides(above_b, below_a))
        return f"{fixed}, {FISHER}", evidence
    evidence = _Evidence(_FourBounds(above_a, below_b), _FourBounds(above_b, below_a))
    return methods(fixed, AT_THE_STOP, stopped), evidence


def methods(fixed: str, at_the_stop: str, stopped: tuple[bool, bool]) -> str:
    """The method of both sides, or that of each where only one was stopped."""
    if stopped == (True, True):
        return at_the_stop
    if stopped == (True, False):
        return f"A: {at_the_stop}; B: {fixed}"
    if stopped == (False, True):
        return f"A: {fixed}; B: {at_the_stop}"
    return fixed


def assumptions(draws: Draws, stopped: tuple[bool, bool], more: str = "") -> str:
    """What the interval assumes of the draws, of the stopping rules, and ``more``."""
    if any(stopped):
        return f"{ASSUMES[draws]}; {LOOKS}{more}"
    return ASSUMES[draws] + more


class _Upper:
    """The one-sided upper bound of a sample's mean, and the p-values that it inverts; stakes are
    sized for ``level``.
    """

    def __init__(self, values: np.ndarray, level: float, binary: bool, stopped: bool):
        self.values = values
        self.level = level
        self.n = len(values)
        self.binary = binary
        self.stopped = StoppedSamples([values]) if stopped else None

    def bound(self) -> float:
        if self.stopped:
            return float(self.stopped.uppers(self.level)[0])
        if self.binary:
            return self._clopper_pearson(self.level)
        return float(betting.mean_upper(self.values[None], self.level, recomputed=False)[0])

    def p_values(self, means: np.ndarray) -> np.ndarray:
        """The p-values of "the mean is at least ``means``": small where they are large."""
        if self.stopped:
            return np.concatenate([self.stopped.p_values(mean) for mean in means[:, None]])
        if self.binary:
            return many_prompts.binary_p_value(self.values.sum(), self.n, means)
        rows = np.broadcast_to(self.values, (len(means), self.n))
        return betting.p_value(rows, means, self.level)

    def bounds(self, levels: np.ndarray) -> np.ndarray:
        """Upper bounds at descending confidence; those by betting are rounded up to a grid."""
        if self.binary:
            return np.array([self._clopper_pearson(level) for level in levels])
        grid, p = self._grid
        first_at_most = np.searchsorted(-p, -levels, side="left")
        return np.append(grid, 1.0)[first_at_most]

    def _clopper_pearson(self, level: float) -> float:
        return float(binary_upper(self.values.sum(), self.n, level))

    @cached_property
    def _grid(self) -> tuple[np.ndarray, np.ndarray]:
        """Means, ascending and denser near the sample's, and the smallest p-value up to each."""
        error = self.values.std() / math.sqrt(self.n) + 1 / self.n
        near = self.values.mean() + error * np.linspace(-1, 6, 4 * CELLS)
        means = np.concatenate([np.linspace(0, 1, CELLS), near])
        grid = np.unique(np.clip(means, 0, 1))
        return grid, np.minimum.accumulate(self.p_values(grid))


Ends = tuple[np.ndarray, np.ndarray]  # scores with the missing ones as 0, and as 1


def _ends_of(scores: np.ndarray) -> Ends:
    """The scores with the missing ones as 0, and as 1."""
    return np.nan_to_num(scores, nan=0.0), np.nan_to_num(scores, nan=1.0)


def _sides(scores: np.ndarray, level: float, binary: bool, stopped: bool) -> tuple[_Upper, _Upper]:
    """The upper bounds of the scores' mean, and of the mean of 1 minus the scores."""
    low, high = _ends_of(scores)
    return _Upper(high, level, binary, stopped), _Upper(1 - low, level, binary, stopped)


@dataclass(frozen=True)
class _FourBounds:
    """Any dependence: bounds of a's mean and of the mean of 1 minus b, each at half of the level."""

    a: _Upper
    b: _Upper

    def low(self, level: float) -> float:
        """The stakes of both bounds are sized for half of ``level``."""
        least_b = 1 - self.b.bound()
        return least_b - self.a.bound()

    def p_value(self) -> float:
        """Twice the largest p-value over common means of "a's mean is at least m or b's at most m",
        rounded up.
        """

        def is_past_the_largest(mean: float) -> bool:
            return self._at_most(mean) >= self._at_least(mean)

        low, high = halved(is_past_the_largest, 0.0, 1.0, STEPS)
        return 2 * min(self._at_most(high), self._at_least(low))

    def _at_least(self, mean: float) -> float:
        return float(self.a.p_values(np.array([mean]))[0])

    def _at_most(self, mean: float) -> float:
        return float(self.b.p_values(1 - np.array([mean]))[0])


@dataclass(frozen=True)
class _TwoSides:
    """Independent sides: Fisher's combination of their p-values."""

    a: _Upper
    b: _Upper

    def low(self, level: float) -> float:
        return combined_low(level, self.a.bounds, lambda levels: 1 - self.b.bounds(levels))

    def p_value(self) -> float:
        return largest_combination(self.a.p_values, lambda means: self.b.p_values(1 - means))


class _PairedBets:
    """Pairs of scores in [0, 1], a missing one as the worst for "b is larger": bets on (1 + b - a)
    / 2.
    """

    def __init__(self, a: np.ndarray, b: np.ndarray, level: float):
        self.level = level
        self.halves = (1 + b - a)[None] / 2

    def low(self, level: float) -> float:
        half = float(betting.mean_lower(self.halves, level, recomputed=False)[0])
        return 2 * half - 1

    def p_value(self) -> float:
        return float(betting.p_value(1 - self.halves, 0.5, self.level)[0])


# The evidence that the second of two means is the larger one.
Rise = _FourBounds | _TwoSides | _PairedBets


SIGN_TEST = "exact sign test over the questions; interval: "
AT_FIXED_STAKES = "bets at fixed stakes on paired differences"
ONE_EACH = "; one answer to each question, independent over the questions"


def mean_of_differences(
    a: Sequence[np.ndarray],
    b: Sequence[np.ndarray],
    alpha: float,
    binary: bool = False,
    groups: Sequence[str] | None = None,
    stopped: tuple[bool, bool] = NEITHER,
    draws: Draws = "any",
) -> Difference | None:
    """Compare two sides by their means, averaged over questions; ``groups`` names each question's
    model (one by default).

    The other parameters are those of `difference`. None if the questions of one side of one model
    have different numbers of answers: then no interval of the average is proven, except for a
    stopped side. None too for one answer to each question of several models.

    Each side is `many_prompts.share_interval` (scores of 0 and 1) or `mean_interval`: at alpha / 2
    (any dependence), or joined by Fisher's combination (seeded apart). Of pairs, scores of 0 and 1
    are replaced by "1 in a only" and "1 in b only", whose means have the same difference; other
    scores by their paired differences, with one interval at alpha. The questions must be
    independent too. Models sampled with one seed share random numbers: each of M models has bounds
    at a level M times smaller, and their average, weighted by the numbers of questions, holds under
    any dependence (Bonferroni). A stopped side is `sequential.stopped_average`. The p-value is
    found by bisection over alpha.

    With one answer of 0 or 1 to each question, the p-value is that of the exact sign test: under
    "no question is likelier to score higher in b", the rises among the questions that differ are at
    most binomial with 1/2; the interval is a separate claim. Other scores have bets at fixed
    stakes: the expected capital, a product over questions of factors that are linear in their
    means, is at most that of equal questions, so it is at most 1 if the average is as claimed.

    Parameters
    ----------
    a, b
        One array of scores in [0, 1] for each question, in sampling order, NaN where missing.
    alpha
        Level of the two-sided interval, at most 1/2.
    binary, stopped, draws
        As in `difference`.
    groups
        The name of the model that answered each question.

    Raises
    ------
    BadValue
        If the sides, or ``groups``, name different numbers of questions, or none.
    """
    check_alpha(alpha)
    lengths = (len(a), len(b))
    check(len(a) == len(b) > 0, "questions", lengths, "the same number on both sides, at least one")
    names = [""] * len(a) if groups is None else groups
    check(len(names) == len(a), "groups", len(names), f"one for each of the {len(a)} questions")

    sizes = {len(scores) for scores in (*a, *b)}
    if sizes == {1} and len(set(names)) == 1 and len(a) > 1 and not any(stopped):
        return _over_questions(np.concatenate(a), np.concatenate(b), alpha, binary)
    if any(stopped) or (draws == "pairs" and len(sizes) > 1):
        draws = "any"
    parts = []
    for model in dict.fromkeys(names):
        of_model = [question for question, name in enumerate(names) if name == model]
        first_side = [a[question] for question in of_model]
        second_side = [b[question] for question in of_model]
        parts.append(_Part(first_side, second_side, binary, stopped, draws))
    if not all(part.has_interval() for part in parts):
        return None
    weights = np.array([len(part.a) for part in parts]) / len(a)

    def ends(level: float) -> tuple[float, float]:
        low, high = weights @ np.array([part.interval(level / len(parts)) for part in parts])
        return float(low), float(high)

    def excludes_zero(level: float) -> bool:
        low, high = ends(level)
        return low > 0 or high < 0

    low, high = ends(alpha)
    first, second = weights @ np.array([(_mean(part.a), _mean(part.b)) for part in parts])
    p = _smallest_level(excludes_zero, _steps(stopped, draws))

    fixed = "Clopper-Pearson on the pooled counts" if binary else "Bernstein, variance bounded"
    method = methods(fixed, f"{AT_THE_STOP}, Bonferroni over the questions", stopped)
    method += {"any": "", "apart": f", {FISHER}", "pairs": " of pairs that differ"}[draws]
    independent = "; independent questions"
    if len(parts) > 1:
        method += ", Bonferroni over the models"
        independent += " within each model"
    assumes = assumptions(draws, stopped, independent)
    return Difference(float(first), float(second), low, high, p, alpha, method, assumes)


def _steps(stopped: tuple[bool, bool], draws: Draws) -> int:
    """The halvings of a search for a p-value: fewer where an interval takes long."""
    if any(stopped):
        return 16
    if draws == "apart":
        return 20
    return 40


class _Ends(Protocol):
    """An average whose interval is known at every level."""

    def interval(self, alpha: float, /) -> Interval: ...

    def uppers(self, levels: np.ndarray, /) -> np.ndarray:
        """The upper ends (k,) of the intervals at twice these one-sided levels (k,)."""

    def lowers(self, levels: np.ndarray, /) -> np.ndarray: ...


@dataclass(frozen=True)
class _EndsByLevel:
    """The ends of an interval that is computed level by level."""

    interval: Callable[[float], Interval]

    def uppers(self, levels: np.ndarray) -> np.ndarray:
        return np.array([self.interval(2 * float(level)).upper for level in levels])

    def lowers(self, levels: np.ndarray) -> np.ndarray:
        return np.array([self.interval(2 * float(level)).lower for level in levels])


@dataclass(frozen=True)
class _Part:
    """The questions of one model on both sides."""

    a: Sequence[np.ndarray]
    b: Sequence[np.ndarray]
    binary: bool
    stopped: tuple[bool, bool]
    draws: Draws

    def has_interval(self) -> bool:
        """Whether both intervals are proven: equally many answers per question, at least two, not
        all missing.
        """
        for side, stopped in zip((self.a, self.b), self.stopped, strict=True):
            if stopped:
                continue
            sizes = {len(scores) for scores in side}
            n = min(sizes)
            if len(sizes) > 1 or n < 2 or n * len(side) < 4:
                return False
            if np.isnan(np.concatenate(side)).all():
                return False
        return True

    def interval(self, level: float) -> tuple[float, float]:
        """Both ends of the average of b minus that of a, together at ``level``."""
        if self.draws == "pairs" and not self.binary:
            half = self._halves.interval(level)
            return 2 * half.lower - 1, 2 * half.upper - 1
        a, b = self._averages
        if self.draws == "apart":
            return _low(a, b, level / 2), -_low(b, a, level / 2)

        first, second = a.interval(level / 2), b.interval(level / 2)
        return second.lower - first.upper, second.upper - first.lower

    @cached_property
    def _halves(self) -> many_prompts.Means:
        halves = [(1 + second - first) / 2 for first, second in zip(self.a, self.b, strict=True)]
        return many_prompts.Means(halves)

    @cached_property
    def _averages(self) -> tuple[_Ends, _Ends]:
        """The average of a and that of b, summed once; of pairs, those of "1 in this side only"."""
        a, b = self.a, self.b
        if self.draws == "pairs":
            a, b = _only(self.a, self.b), _only(self.b, self.a)
        return self._average(a, self.stopped[0]), self._average(b, self.stopped[1])

    def _average(self, side: Sequence[np.ndarray], stopped: bool) -> _Ends:
        if stopped:
            return _EndsByLevel(partial(stopped_average, side))
        if self.binary:
            return many_prompts.Shares(side)
        return _EndsByLevel(many_prompts.Means(side).interval)


def _low(a: _Ends, b: _Ends, level: float) -> float:
    """Fisher's lower end of the average of ``b`` minus that of ``a``, at ``level``."""
    largest = many_prompts.LARGEST_POOLED_ALPHA
    return combined_low(level, a.uppers, b.lowers, largest, rounds=1)


def _only(a: Sequence[np.ndarray], b: Sequence[np.ndarray]) -> list[np.ndarray]:
    """1 where the first score is 1 and the second 0, NaN where one is missing."""
    pairs = []
    for first, second in zip(a, b, strict=True):
        missing = np.isnan(first) | np.isnan(second)
        pairs.append(np.where(missing, np.nan, first > second))
    return pairs


def _mean(side: Sequence[np.ndarray]) -> float:
    """The mean over questions of their means over the scores present; NaN where all are missing."""
    if len({len(scores) for scores in side}) == 1:
        side = [np.concatenate(side)]
    judged = [float(np.nanmean(scores)) for scores in side if not np.isnan(scores).all()]
    if not judged:
        return math.nan
    return float(np.mean(judged))


def population_difference(
    a: Sequence[np.ndarray], b: Sequence[np.ndarray], alpha: float, binary: bool = False
) -> Difference | None:
    """Compare two sides by their expected scores on a question like these; None for fewer than two
    questions.

    The questions are the sample: each gives one pair of mean scores, which may depend on each other
    in any way. The bets are on the paired differences, in an order fixed beforehand. With one score
    of 0 or 1 for each question, the p-value is that of the exact sign test (McNemar 1947), and the
    interval a separate claim.

    Parameters
    ----------
    a, b
        One array of scores in [0, 1] for each question, NaN where missing.
    alpha
        Level of the two-sided interval, at most 1/2.
    binary
        Whether the scorer gives only 0 and 1.
    """
    check_alpha(alpha)
    if len(a) < 2:
        return None
    evidence = _Evidence.of_ends(_means_in_order(a), _means_in_order(b), alpha / 2)
    first, second = _mean(a), _mean(b)
    if binary and {len(scores) for scores in (*a, *b)} == {1}:
        p = _sign_test(np.concatenate(a), np.concatenate(b)).p_value
        method = SIGN_TEST + PAIRED
    else:
        p = evidence.p_value(first, second)
        method = PAIRED
    low, high = evidence.interval(alpha)
    return Difference(first, second, low, high, p, alpha, method, str(Assumes.QUESTIONS))


def _means_in_order(side: Sequence[np.ndarray]) -> Ends:
    """(questions,) mean scores with missing ones as 0, and as 1, in the order in which they are bet
    on.
    """
    lows, highs = [], []
    for scores in side:
        low, high = _ends_of(scores)
        lows.append(low.mean())
        highs.append(high.mean())
    return many_prompts.in_order(np.array(lows)), many_prompts.in_order(np.array(highs))


@dataclass(frozen=True)
class _SignTest:
    """The numbers of rises, of falls and of pairs without a score, and the two-sided p-value."""

    rises: int
    falls: int
    missing: int
    p_value: float


def _sign_test(a: np.ndarray, b: np.ndarray) -> _SignTest:
    """The exact sign test of pairs (n,) of scores of 0 or 1; NaN counts against the estimate."""
    rises = int((b > a).sum())
    falls = int((a > b).sum())
    missing = int((np.isnan(a) | np.isnan(b)).sum())
    differ = rises + falls + missing
    if not differ:
        return _SignTest(rises, falls, missing, 1.0)
    most = rises if _mean([b]) >= _mean([a]) else falls
    p = float(many_prompts.binary_p_value(differ - most, differ, 0.5))
    return _SignTest(rises, falls, missing, min(1.0, 2 * p))


def _over_questions(a: np.ndarray, b: np.ndarray, alpha: float, binary: bool) -> Difference:
    """Compare one answer to each question, (questions,) on each side."""
    first, second = _mean([a]), _mean([b])
    if binary:
        test = _sign_test(a, b)
        p = test.p_value
        method = f"{SIGN_TEST}Clopper-Pearson on the questions that differ"
        n = len(a)
        level = min(alpha / 4, many_prompts.LARGEST_POOLED_ALPHA)
        most_rises = pooled_upper(test.rises + test.missing, n, level)
        most_falls = pooled_upper(test.falls + test.missing, n, level)
        low = pooled_lower(test.rises, n, level) - most_falls
        high = most_rises - pooled_lower(test.falls, n, level)
    else:
        (low_a, high_a), (low_b, high_b) = _ends_of(a), _ends_of(b)
        rises = StoppedSamples([(1 + high_a - low_b) / 2])
        falls = StoppedSamples([(1 + high_b - low_a) / 2])
        low = 1 - 2 * float(rises.uppers(alpha / 2)[0])
        high = 2 * float(falls.uppers(alpha / 2)[0]) - 1
        side = rises if first <= second else falls
        p = min(1.0, 2 * float(side.p_values(np.array([0.5]))[0]))
        method = AT_FIXED_STAKES
    assumes = assumptions("any", NEITHER, ONE_EACH)
    return Difference(first, second, low, high, p, alpha, method, assumes)


def _smallest_level(excludes: Callable[[float], bool], steps: int) -> float:
    """The smallest level at which an interval excludes 0, rounded up after ``steps`` halvings; 1 if
    there is none.
    """
    largest = 0.5
    if not excludes(largest):
        return 1.0
    # In logarithms; the intervals exist down to 1e-100.
    _, high = halved(
        lambda log_level: excludes(float(np.exp(log_level))), -220.0, float(np.log(largest)), steps
    )
    return float(np.exp(high))
