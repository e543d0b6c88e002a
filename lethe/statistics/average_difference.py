"""Differences averaged over questions: each side's average, pairs of answers, or one answer to each question."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from lethe.errors import BadValue
from lethe.statistics.bounds import pooled_lower, pooled_upper
from lethe.statistics.checks import check_alpha
from lethe.statistics.comparison import Interval, empirical_width, mean_interval, share_interval
from lethe.statistics.many_prompts import LARGEST_POOLED_ALPHA, binary_p_value
from lethe.statistics.mean_difference import (
    FISHER,
    NEITHER,
    Difference,
    Draws,
    assumptions,
    combined_low,
    methods,
)
from lethe.statistics.sequential import METHOD as AT_THE_STOP
from lethe.statistics.sequential import stopped_average

SIGN_TEST = "exact sign test over the questions; interval: "
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
    """Compare two sides by their means, averaged over questions.

    Parameters
    ----------
    a, b : sequences of arrays
        The scores of each question, for the same number of questions on both sides.
    alpha : float
        Error probability of the interval; at most 1/2.
    binary, stopped, draws
        As in `mean_difference.difference`.
    groups : sequence of str, optional
        The model of each question; by default one model has all questions.

    Returns
    -------
    Difference or None
        None if the questions of one side of one model have different numbers of answers. Then no interval of the average is
        proven, except for a stopped side. None too for one answer to each question of several models.

    Notes
    -----
    Each side is `comparison.share_interval` (scores of 0 and 1) or `comparison.mean_interval`: at alpha / 2 (any dependence),
    or joined by Fisher's combination (seeded apart). Of pairs, scores of 0 and 1 are replaced by "1 in a only" and "1 in b
    only", whose means have the same difference; other scores by their paired differences, with one interval at alpha. The
    questions must be independent too. Models sampled with one seed share random numbers, so their counts are not pooled:
    each of M models has bounds at a level M times smaller, and the average of these bounds, weighted by the numbers of
    questions, holds under any dependence between models (Bonferroni). A stopped side is `sequential.stopped_average`,
    Bonferroni over its questions. The p-value is found by bisection over alpha.

    With one answer to each question, the p-value is that of the exact sign test: under "no question is likelier to score
    higher in b", the rises among the questions that differ are at most binomial with 1/2. The interval is a separate claim.
    """
    check_alpha(alpha)
    if not a or len(a) != len(b):
        raise BadValue("questions", (len(a), len(b)), "the same number on both sides, at least one")
    names = groups if groups is not None else [""] * len(a)
    if len(names) != len(a):
        raise BadValue("groups", len(names), f"one for each of the {len(a)} questions")
    sizes = {len(own) for own in (*a, *b)}
    if sizes == {1} and len(set(names)) == 1 and len(a) > 1 and not any(stopped):
        return _over_questions(np.concatenate(a), np.concatenate(b), alpha, binary)
    if any(stopped) or (draws == "pairs" and len(sizes) > 1):
        draws = "any"
    parts = [_Part(_of(model, a, names), _of(model, b, names), binary) for model in dict.fromkeys(names)]
    if not all(part.has_interval(stopped) for part in parts):
        return None
    weights = np.array([len(part.a) for part in parts]) / len(a)

    def ends(level: float) -> tuple[float, float]:
        low, high = weights @ np.array([part.interval(level / len(parts), stopped, draws) for part in parts])
        return float(low), float(high)

    low, high = ends(alpha)
    first, second = weights @ np.array([(_mean(part.a), _mean(part.b)) for part in parts])
    fixed = "Clopper-Pearson on the pooled counts" if binary else "Bernstein, variance bounded"
    method = methods(fixed, f"{AT_THE_STOP}, Bonferroni over the questions", stopped)
    method += {"any": "", "apart": f", {FISHER}", "pairs": " of pairs that differ"}[draws]
    several = len(parts) > 1
    steps = 16 if any(stopped) else 20 if draws == "apart" else 40
    p = _smallest_level(lambda level: (found := ends(level))[0] > 0 or found[1] < 0, steps)
    return Difference(
        float(first),
        float(second),
        low,
        high,
        p,
        alpha,
        method + (", Bonferroni over the models" if several else ""),
        assumptions(draws, stopped, "; independent questions" + (" within each model" if several else "")),
    )


class _Part:
    """The questions of one model on both sides."""

    def __init__(self, a: Sequence[np.ndarray], b: Sequence[np.ndarray], binary: bool):
        self.a, self.b, self.binary = a, b, binary
        self.fixed = share_interval if binary else mean_interval

    def has_interval(self, stopped: tuple[bool, bool]) -> bool:
        """Whether an interval of the average is proven for each side."""
        return all(rule or _has_interval(side) for side, rule in zip((self.a, self.b), stopped, strict=True))

    def interval(self, level: float, stopped: tuple[bool, bool], draws: Draws) -> tuple[float, float]:
        """The ends of the difference, together at ``level``."""
        if draws == "apart":
            return self._low(self.a, self.b, level / 2), -self._low(self.b, self.a, level / 2)
        if draws == "pairs" and not self.binary:
            halves = [(1 + second - first) / 2 for first, second in zip(self.a, self.b, strict=True)]
            found = mean_interval(halves, level)
            return 2 * found.lower - 1, 2 * found.upper - 1
        pairs = draws == "pairs"
        sides = (_only(self.a, self.b), _only(self.b, self.a)) if pairs else (self.a, self.b)
        first, second = (
            (stopped_average if rule else self.fixed)(side, level / 2)
            for side, rule in zip(sides, stopped, strict=True)
        )
        return second.lower - first.upper, second.upper - first.lower

    def _low(self, a: Sequence[np.ndarray], b: Sequence[np.ndarray], level: float) -> float:
        def of(side: Sequence[np.ndarray]) -> Callable[[float], Interval]:
            return lambda share: self.fixed(side, 2 * share)

        def upper(levels: np.ndarray) -> np.ndarray:
            return np.array([of(a)(float(share)).upper for share in levels])

        def lower(levels: np.ndarray) -> np.ndarray:
            return np.array([of(b)(float(share)).lower for share in levels])

        return combined_low(level, upper, lower, lambda high, low: low - high, LARGEST_POOLED_ALPHA, rounds=1)


def _of(model: str, side: Sequence[np.ndarray], names: Sequence[str]) -> list[np.ndarray]:
    return [own for own, name in zip(side, names, strict=True) if name == model]


def _only(a: Sequence[np.ndarray], b: Sequence[np.ndarray]) -> list[np.ndarray]:
    """1 where the first score is 1 and the second 0, NaN where one is missing."""
    return [
        np.where(np.isnan(first) | np.isnan(second), np.nan, first > second)
        for first, second in zip(a, b, strict=True)
    ]


def _mean(side: Sequence[np.ndarray]) -> float:
    """The mean over questions of their means over the scores present."""
    if len({len(own) for own in side}) == 1:
        return float(np.nanmean(np.array(side)))
    judged = [float(np.nanmean(own)) for own in side if not np.isnan(own).all()]
    return float(np.mean(judged)) if judged else float("nan")


def _over_questions(a: np.ndarray, b: np.ndarray, alpha: float, binary: bool) -> Difference:
    """One answer to each question on both sides."""
    missing = np.isnan(a) | np.isnan(b)
    rises, falls, none = int((b > a).sum()), int((a > b).sum()), int(missing.sum())
    differ = rises + falls + none
    first, second = (float(np.nanmean(own)) if not np.isnan(own).all() else float("nan") for own in (a, b))
    # A missing pair counts against the direction of the estimate.
    most = rises if second >= first else falls
    p = float(binary_p_value(differ - most, differ, 0.5)) if differ else 1.0
    if binary:
        count, method = len(a), "Clopper-Pearson on the questions that differ"
        share = min(alpha / 4, LARGEST_POOLED_ALPHA)
        low = pooled_lower(rises, count, share) - pooled_upper(falls + none, count, share)
        high = pooled_upper(rises + none, count, share) - pooled_lower(falls, count, share)
    else:
        worst = (1 + np.nan_to_num(b, nan=0.0) - np.nan_to_num(a, nan=1.0)) / 2
        best = (1 + np.nan_to_num(b, nan=1.0) - np.nan_to_num(a, nan=0.0)) / 2
        method = "empirical Bernstein"
        low = 2 * max(0.0, float(worst.mean()) - empirical_width(worst, alpha / 2)) - 1
        high = 2 * min(1.0, float(best.mean()) + empirical_width(best, alpha / 2)) - 1
    assumes = assumptions("any", NEITHER, ONE_EACH)
    return Difference(first, second, low, high, min(1.0, 2 * p), alpha, SIGN_TEST + method, assumes)


def _has_interval(side: Sequence[np.ndarray]) -> bool:
    """Whether an interval of the average is proven: equally many answers per question, at least two, not all missing."""
    sizes = {len(own) for own in side}
    enough = len(sizes) == 1 and min(sizes) >= 2 and min(sizes) * len(side) >= 4
    return enough and not np.isnan(np.concatenate(list(side))).all()


def _smallest_level(excludes: Callable[[float], bool], steps: int, largest: float = 0.5) -> float:
    """The smallest level at which an interval excludes 0, rounded up after ``steps`` halvings; 1 if there is none."""
    if not excludes(largest):
        return 1.0
    low, high = -220.0, float(np.log(largest))  # logarithms; the intervals exist down to 1e-100
    for _ in range(steps):
        middle = (low + high) / 2
        low, high = (low, middle) if excludes(float(np.exp(middle))) else (middle, high)
    return float(np.exp(high))
