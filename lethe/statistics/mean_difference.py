"""Differences between two means of scores in [0, 1], by what is recorded of how the two sides were drawn.

The method follows from facts fixed before any score is seen (`Draws`), never from the narrower of two results:

- "any": nothing is known of the dependence. A difference is refuted where no common mean is left: for each mean m, "a's mean
  is m" and "b's mean is m" are four one-sided tests, of which one is false with probability at most 4 times its level. A side
  that a rule could stop early has bounds that hold at the stop.
- "apart": the sides are independent. The product of the two p-values is refuted by Fisher's combination: if P and Q are
  independent p-values, P(P Q <= t) <= t (1 - ln t). Where one side has over `LARGEST_RATIO` times the answers of the other,
  the four bounds of "any" are narrower, and they are taken.
- "pairs": both sides share one stream per answer, so the pairs of j-th answers are independent over j, and the paired
  differences are bet on.

`mean_of_differences` averages over these questions: each side's average, pairs of answers, or one answer to each question.
`population_difference` takes the questions as a sample of questions like them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Literal

import numpy as np

from lethe.errors import BadValue
from lethe.statistics import betting, many_prompts
from lethe.statistics.bound import Assumes, Bound, Covers, Interval, both_ends
from lethe.statistics.bounds import binary_upper, pooled_lower, pooled_upper
from lethe.statistics.checks import check, check_alpha, check_scores
from lethe.statistics.sequential import METHOD as AT_THE_STOP
from lethe.statistics.sequential import StoppedSamples, stopped_average
from lethe.statistics.two_sample import CELLS, combined_low, largest_combination, product_threshold

Draws = Literal["any", "apart", "pairs"]
NEITHER = (False, False)  # of the two sides, which ones a rule could stop
LOOKS = "a stopping rule that looks only at its own side"
WITHIN = "independent draws within each question and model, in sampling order"
ASSUMES: dict[Draws, str] = {
    "any": f"{WITHIN}; any dependence between the two models",
    "apart": f"{WITHIN}; two models with seeds of their own",
    "pairs": f"{WITHIN}; two models with one seed, whose j-th answers share random numbers with each other only",
}
LARGEST_RATIO = (
    16  # of the numbers of answers, up to which combined sides are narrower than four bounds
)
STEPS = 45  # bisection steps: down to 2^-45 of the unit interval
CLOPPER_PEARSON, FISHER, PAIRED = (
    "Clopper-Pearson",
    "Fisher's combination",
    "betting on paired differences",
)


@dataclass(frozen=True)
class Difference:
    """b's mean minus a's: estimates over the judged scores, a two-sided interval, and the p-value of "no difference".

    The interval fails by itself with probability at most ``alpha``, each end at half of it, and excludes 0 exactly if
    ``p_value`` is at most ``alpha``, up to rounding. The estimates are NaN if no score was judged.
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
        """The lower and the upper end, which hold together at alpha; ``covers``: what the difference is about."""
        return both_ends(self.low, self.high, self.alpha, covers, self.assumes, self.method)

    @property
    def difference(self) -> float:
        return self.b - self.a

    def p_above(self) -> float:
        """The p-value of "b's mean is at most a's"; `p_below`: at least."""
        return self.p_value / 2 if self.difference > 0 else 1.0

    def p_below(self) -> float:
        return self.p_value / 2 if self.difference < 0 else 1.0


def difference(
    a: np.ndarray,
    b: np.ndarray,
    alpha: float,
    binary: bool = False,
    stopped: tuple[bool, bool] = NEITHER,
    draws: Draws = "any",
) -> Difference:
    """Compare the means of two samples of scores in [0, 1] in sampling order; NaN counts as 0 in a lower bound, 1 in an
    upper.

    Bounds of one side: Clopper-Pearson for scores of 0 and 1 (``binary``, a property of the scorer and not of these values),
    betting for others, `sequential.StoppedSamples` for a side that a rule could stop by its scores (``stopped``, of a and
    b). ``draws`` is what is recorded of the dependence; stopped sides are compared as "any", and of pairs the first
    min(n, m) count.

    >>> a, b = np.zeros(200), np.repeat([1.0, 0.0], [60, 140])
    >>> change = difference(a, b, alpha=0.05, binary=True)
    >>> round(change.low, 3), round(change.high, 3), change.p_value < 1e-6
    (0.208, 0.378, True)
    """
    check_alpha(alpha)
    a, b = check_scores(a, "worst")[0], check_scores(b, "worst")[0]
    if binary and not all(np.isin(own[~np.isnan(own)], (0.0, 1.0)).all() for own in (a, b)):
        raise BadValue("scores", "numbers between 0 and 1", "0 or 1 if binary is set")
    if any(stopped) or (
        draws == "apart" and not 1 / LARGEST_RATIO <= len(a) / len(b) <= LARGEST_RATIO
    ):
        draws = "any"
    if draws == "pairs":  # estimates and interval are of the same answers
        size = min(len(a), len(b))
        a, b = a[:size], b[:size]
    method, rises, falls = _evidence(a, b, alpha, binary, stopped, draws)
    first, second = (
        float(np.nanmean(own)) if not np.isnan(own).all() else math.nan for own in (a, b)
    )
    p = (rises if second >= first else falls).p_value()
    low, high = rises.low(alpha / 2), -falls.low(alpha / 2)
    return Difference(
        first, second, low, high, min(1.0, 2 * p), alpha, method, assumptions(draws, stopped)
    )


def _evidence(
    a: np.ndarray,
    b: np.ndarray,
    alpha: float,
    binary: bool,
    stopped: tuple[bool, bool],
    draws: Draws,
) -> tuple[str, Rise, Rise]:
    if draws == "pairs":
        (low_a, high_a), (low_b, high_b) = _ends_of(a), _ends_of(b)
        return PAIRED, _PairedBets(high_a, low_b, alpha / 2), _PairedBets(high_b, low_a, alpha / 2)
    stakes = math.sqrt(product_threshold(alpha / 2)) if draws == "apart" else alpha / 4
    first, second = (
        _sides(own, stakes, binary, rule) for own, rule in zip((a, b), stopped, strict=True)
    )
    fixed = CLOPPER_PEARSON if binary else "betting"
    if draws == "apart":
        return f"{fixed}, {FISHER}", _TwoSides(first[0], second[1]), _TwoSides(second[0], first[1])
    rises, falls = _FourBounds(first[0], second[1]), _FourBounds(second[0], first[1])
    return methods(fixed, AT_THE_STOP, stopped), rises, falls


def methods(fixed: str, at_the_stop: str, stopped: tuple[bool, bool]) -> str:
    """The method of both sides, or that of each where only one was stopped."""
    if stopped[0] == stopped[1]:
        return at_the_stop if stopped[0] else fixed
    return "; ".join(
        f"{name}: {at_the_stop if rule else fixed}"
        for name, rule in zip("AB", stopped, strict=True)
    )


def assumptions(draws: Draws, stopped: tuple[bool, bool], more: str = "") -> str:
    return ASSUMES[draws] + (f"; {LOOKS}" if any(stopped) else "") + more


class _Upper:
    """The one-sided upper bound of a sample's mean, and the p-values that it inverts; stakes are sized for ``level``."""

    def __init__(self, values: np.ndarray, level: float, binary: bool, stopped: bool = False):
        self.values, self.level, self.n, self.binary = values, level, len(values), binary
        self.stopped = StoppedSamples([values]) if stopped else None

    def bound(self) -> float:
        if self.stopped:
            return float(self.stopped.uppers(self.level)[0])
        if self.binary:
            return float(binary_upper(self.values.sum(), self.n, self.level))
        return float(betting.mean_upper(self.values[None], self.level, recomputed=False)[0])

    def p_values(self, means: np.ndarray) -> np.ndarray:
        """The p-values of "the mean is at least ``means``": small where they are large."""
        if self.stopped:
            return np.array([float(self.stopped.p_values(np.array([mean]))[0]) for mean in means])
        if self.binary:
            return many_prompts.binary_p_value(self.values.sum(), self.n, means)
        return betting.p_value(
            np.broadcast_to(self.values, (len(means), self.n)), means, self.level
        )

    def bounds(self, levels: np.ndarray) -> np.ndarray:
        """Upper bounds at descending confidence; those by betting are rounded up to a grid."""
        if self.binary:
            return np.array(
                [float(binary_upper(self.values.sum(), self.n, level)) for level in levels]
            )
        grid, p = self._grid
        places = np.searchsorted(
            -p, -levels, side="left"
        )  # the first mean whose p-value is at most the level
        return np.append(grid, 1.0)[places]

    @cached_property
    def _grid(self) -> tuple[np.ndarray, np.ndarray]:
        error = self.values.std() / math.sqrt(self.n) + 1 / self.n
        near = self.values.mean() + error * np.linspace(-1, 6, 4 * CELLS)
        grid = np.unique(np.clip(np.concatenate([np.linspace(0, 1, CELLS), near]), 0, 1))
        return grid, np.minimum.accumulate(self.p_values(grid))


def _ends_of(scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
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
        return (
            1 - self.b.bound()
        ) - self.a.bound()  # whose stakes are sized for half of this level

    def p_value(self) -> float:
        """Twice the largest p-value over common means of "a's mean is at least m or b's at most m", rounded up."""

        def at_least(mean: float) -> float:
            return self.a.p_values(np.array([mean]))[0]

        def at_most(mean: float) -> float:
            return self.b.p_values(1 - np.array([mean]))[0]

        low, high = 0.0, 1.0
        for _ in range(STEPS):
            middle = (low + high) / 2
            low, high = (middle, high) if at_most(middle) < at_least(middle) else (low, middle)
        return 2 * float(min(at_most(high), at_least(low)))


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
    """Pairs of scores in [0, 1], a missing one as the worst for "b is larger": bets on (1 + b - a) / 2."""

    def __init__(self, a: np.ndarray, b: np.ndarray, level: float):
        self.level, self.halves = level, (1 + b - a)[None] / 2

    def low(self, level: float) -> float:
        return 2 * float(betting.mean_lower(self.halves, level, recomputed=False)[0]) - 1

    def p_value(self) -> float:
        return float(betting.p_value(1 - self.halves, 0.5, self.level)[0])


Rise = (
    _FourBounds | _TwoSides | _PairedBets
)  # the evidence that the second of two means is the larger one


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
    """Compare two sides by their means, averaged over questions; ``groups`` names each question's model (one by default).

    The other parameters are those of `difference`. None if the questions of one side of one model have different numbers of
    answers: then no interval of the average is proven, except for a stopped side. None too for one answer to each question
    of several models.

    Each side is `many_prompts.share_interval` (scores of 0 and 1) or `mean_interval`: at alpha / 2 (any dependence),
    or joined by Fisher's combination (seeded apart). Of pairs, scores of 0 and 1 are replaced by "1 in a only" and "1 in b
    only", whose means have the same difference; other scores by their paired differences, with one interval at alpha. The
    questions must be independent too. Models sampled with one seed share random numbers: each of M models has bounds at a
    level M times smaller, and their average, weighted by the numbers of questions, holds under any dependence (Bonferroni).
    A stopped side is `sequential.stopped_average`. The p-value is found by bisection over alpha.

    With one answer of 0 or 1 to each question, the p-value is that of the exact sign test: under "no question is likelier
    to score higher in b", the rises among the questions that differ are at most binomial with 1/2; the interval is a
    separate claim. Other scores have bets at fixed stakes: the expected capital, a product over questions of factors that
    are linear in their means, is at most that of equal questions, so it is at most 1 if the average is as claimed.
    """
    check_alpha(alpha)
    check(
        len(a) == len(b) > 0,
        "questions",
        (len(a), len(b)),
        "the same number on both sides, at least one",
    )
    names = groups if groups is not None else [""] * len(a)
    check(len(names) == len(a), "groups", len(names), f"one for each of the {len(a)} questions")
    sizes = {len(own) for own in (*a, *b)}
    if sizes == {1} and len(set(names)) == 1 and len(a) > 1 and not any(stopped):
        return _over_questions(np.concatenate(a), np.concatenate(b), alpha, binary)
    if any(stopped) or (draws == "pairs" and len(sizes) > 1):
        draws = "any"
    fixed_interval = many_prompts.share_interval if binary else many_prompts.mean_interval
    parts = [
        _Part(_of(model, a, names), _of(model, b, names), fixed_interval)
        for model in dict.fromkeys(names)
    ]
    if not all(part.has_interval(stopped) for part in parts):
        return None
    weights = np.array([len(part.a) for part in parts]) / len(a)

    def ends(level: float) -> tuple[float, float]:
        low, high = weights @ np.array(
            [part.interval(level / len(parts), stopped, draws) for part in parts]
        )
        return float(low), float(high)

    low, high = ends(alpha)
    first, second = weights @ np.array([(_mean(part.a), _mean(part.b)) for part in parts])
    fixed = "Clopper-Pearson on the pooled counts" if binary else "Bernstein, variance bounded"
    method = methods(fixed, f"{AT_THE_STOP}, Bonferroni over the questions", stopped)
    method += {"any": "", "apart": f", {FISHER}", "pairs": " of pairs that differ"}[draws]
    several = len(parts) > 1
    steps = 16 if any(stopped) else 20 if draws == "apart" else 40
    p = _smallest_level(lambda level: (both := ends(level))[0] > 0 or both[1] < 0, steps)
    method += ", Bonferroni over the models" if several else ""
    assumes = assumptions(
        draws, stopped, "; independent questions" + (" within each model" if several else "")
    )
    return Difference(float(first), float(second), low, high, p, alpha, method, assumes)


@dataclass(frozen=True)
class _Part:
    """The questions of one model on both sides."""

    a: Sequence[np.ndarray]
    b: Sequence[np.ndarray]
    fixed: Callable[[Sequence[np.ndarray], float], Interval]

    def has_interval(self, stopped: tuple[bool, bool]) -> bool:
        """Whether both intervals are proven: equally many answers per question, at least two, not all missing."""
        for side in (
            side for side, rule in zip((self.a, self.b), stopped, strict=True) if not rule
        ):
            least, most = min(map(len, side)), max(map(len, side))
            if (
                not 2 <= least == most
                or least * len(side) < 4
                or np.isnan(np.concatenate(side)).all()
            ):
                return False
        return True

    def interval(
        self, level: float, stopped: tuple[bool, bool], draws: Draws
    ) -> tuple[float, float]:
        if draws == "apart":
            return self._low(self.a, self.b, level / 2), -self._low(self.b, self.a, level / 2)
        if draws == "pairs" and self.fixed is many_prompts.mean_interval:
            halves = [
                (1 + second - first) / 2 for first, second in zip(self.a, self.b, strict=True)
            ]
            half = many_prompts.mean_interval(halves, level)
            return 2 * half.lower - 1, 2 * half.upper - 1
        sides = (
            (_only(self.a, self.b), _only(self.b, self.a)) if draws == "pairs" else (self.a, self.b)
        )
        how = [stopped_average if rule else self.fixed for rule in stopped]
        first, second = (
            interval(side, level / 2) for interval, side in zip(how, sides, strict=True)
        )
        return second.lower - first.upper, second.upper - first.lower

    def _low(self, a: Sequence[np.ndarray], b: Sequence[np.ndarray], level: float) -> float:
        def ends(side: Sequence[np.ndarray], end: str, levels: np.ndarray) -> np.ndarray:
            return np.array([getattr(self.fixed(side, 2 * float(share)), end) for share in levels])

        sides = partial(ends, a, "upper"), partial(ends, b, "lower")
        return combined_low(level, *sides, many_prompts.LARGEST_POOLED_ALPHA, rounds=1)


def _of(model: str, side: Sequence[np.ndarray], names: Sequence[str]) -> list[np.ndarray]:
    return [own for own, name in zip(side, names, strict=True) if name == model]


def _only(a: Sequence[np.ndarray], b: Sequence[np.ndarray]) -> list[np.ndarray]:
    """1 where the first score is 1 and the second 0, NaN where one is missing."""
    pairs = zip(a, b, strict=True)
    return [
        np.where(np.isnan(first) | np.isnan(second), np.nan, first > second)
        for first, second in pairs
    ]


def _mean(side: Sequence[np.ndarray]) -> float:
    """The mean over questions of their means over the scores present."""
    if len({len(own) for own in side}) == 1:
        side = [np.concatenate(side)]
    judged = [float(np.nanmean(own)) for own in side if not np.isnan(own).all()]
    return float(np.mean(judged)) if judged else math.nan


def population_difference(
    a: Sequence[np.ndarray], b: Sequence[np.ndarray], alpha: float, binary: bool = False
) -> Difference | None:
    """Compare two sides by their expected scores on a question like these; None for fewer than two questions.

    The questions are the sample: each gives one pair of mean scores, which may depend on each other in any way. The bets are
    on the paired differences, in an order fixed beforehand. With one score of 0 or 1 for each question, the p-value is that
    of the exact sign test (McNemar 1947), and the interval a separate claim.
    """
    check_alpha(alpha)
    if len(a) < 2:
        return None
    (low_a, high_a), (low_b, high_b) = (
        [
            many_prompts.in_order(np.array([own.mean() for own in side]))
            for side in zip(*map(_ends_of, sides), strict=True)
        ]
        for sides in (a, b)
    )
    rises, falls = _PairedBets(high_a, low_b, alpha / 2), _PairedBets(high_b, low_a, alpha / 2)
    first, second, method = _mean(a), _mean(b), PAIRED
    if binary and {len(own) for own in (*a, *b)} == {1}:
        p, method = _sign_test(np.concatenate(a), np.concatenate(b))[-1], SIGN_TEST + PAIRED
    else:
        p = min(1.0, 2 * (rises if second >= first else falls).p_value())
    low, high = rises.low(alpha / 2), -falls.low(alpha / 2)
    return Difference(first, second, low, high, p, alpha, method, str(Assumes.QUESTIONS))


def _sign_test(a: np.ndarray, b: np.ndarray) -> tuple[int, int, int, float]:
    """The rises, the falls, the pairs without a score, and the two-sided p-value; NaN counts against the estimate."""
    rises, falls, none = (
        int((b > a).sum()),
        int((a > b).sum()),
        int((np.isnan(a) | np.isnan(b)).sum()),
    )
    differ = rises + falls + none
    most = rises if _mean([b]) >= _mean([a]) else falls
    p = float(many_prompts.binary_p_value(differ - most, differ, 0.5)) if differ else 1.0
    return rises, falls, none, min(1.0, 2 * p)


def _over_questions(a: np.ndarray, b: np.ndarray, alpha: float, binary: bool) -> Difference:
    first, second = _mean([a]), _mean([b])
    if binary:
        up, down, none, p = _sign_test(a, b)
        count, method = len(a), f"{SIGN_TEST}Clopper-Pearson on the questions that differ"
        share = min(alpha / 4, many_prompts.LARGEST_POOLED_ALPHA)
        low = pooled_lower(up, count, share) - pooled_upper(down + none, count, share)
        high = pooled_upper(up + none, count, share) - pooled_lower(down, count, share)
    else:
        (low_a, high_a), (low_b, high_b) = _ends_of(a), _ends_of(b)
        rises, falls = (
            StoppedSamples([own]) for own in ((1 + high_a - low_b) / 2, (1 + high_b - low_a) / 2)
        )
        low, high = (
            1 - 2 * float(rises.uppers(alpha / 2)[0]),
            2 * float(falls.uppers(alpha / 2)[0]) - 1,
        )
        p = 2 * float((rises if first <= second else falls).p_values(np.array([0.5]))[0])
        method = AT_FIXED_STAKES
    assumes = assumptions("any", NEITHER, ONE_EACH)
    return Difference(first, second, low, high, min(1.0, p), alpha, method, assumes)


def _smallest_level(excludes: Callable[[float], bool], steps: int, largest: float = 0.5) -> float:
    """The smallest level at which an interval excludes 0, rounded up after ``steps`` halvings; 1 if there is none."""
    if not excludes(largest):
        return 1.0
    low, high = -220.0, float(np.log(largest))  # logarithms; the intervals exist down to 1e-100
    for _ in range(steps):
        middle = (low + high) / 2
        low, high = (low, middle) if excludes(float(np.exp(middle))) else (middle, high)
    return float(np.exp(high))
