"""Leakage by attack budget: a band over the whole curve, the half-life, and the excess over a reference.

A point of the curve is the mean score of N independent answers, n per question and model. The answers of a point are
not identically distributed, so for 0/1 scores `pooled_upper` bounds the pooled share, and for other scores in [0, 1]
Hoeffding's inequality bounds the mean. In a band over K points each side takes alpha / (2 K), so all points hold together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from lethe.errors import BadValue
from lethe.statistics.bound import Assumes, Bound, Covers, Side
from lethe.statistics.bounds import pooled_lower, pooled_upper
from lethe.statistics.checks import check_alpha


@dataclass(frozen=True)
class Counted:
    """The answers after one budget: the sum of their scores, their number, and whether all scores are 0 or 1.

    ``total`` counts a missing score as 0 and ``most`` as 1.
    """

    budget: float
    total: float
    most: float
    n: int
    binary: bool


@dataclass(frozen=True)
class Point:
    """The mean leakage after one budget, with both sides of the band."""

    budget: float
    mean: float
    lower: Bound
    upper: Bound


@dataclass(frozen=True)
class HalfLife:
    """The smallest budget that restores half of the reference leakage; None if no budget of the curve does.

    ``estimate`` compares the estimates. ``earliest`` is the first budget that the band does not exclude, and ``latest`` the
    first budget that the band proves.
    """

    estimate: float | None
    earliest: float | None
    latest: float | None


@dataclass(frozen=True)
class Excess:
    """The difference between a curve and a reference curve at one budget; all sides at all budgets hold together."""

    budget: float
    estimate: float
    lower: Bound
    upper: Bound


def band(counts: Sequence[Counted], alpha: float) -> list[Point]:
    """The curve with a band that covers the true means of all points together with probability 1 - ``alpha``.

    Raises
    ------
    BadValue
        If alpha lies outside its range, there are no points, or a point has no answers.

    Examples
    --------
    >>> curve = band([Counted(0, 2, 2, 100, True), Counted(8, 60, 60, 100, True)], 0.05)
    >>> [round(point.mean, 2) for point in curve], curve[1].lower.number()
    ([0.02, 0.6], '0.483')
    """
    check_alpha(alpha)
    if not counts or any(one.n < 1 for one in counts):
        raise BadValue("answers", [one.n for one in counts], "at least one per point, and at least one point")
    return [_point(one, alpha / (2 * len(counts)), alpha) for one in counts]


def half_life(curve: Sequence[Point], reference: Point) -> HalfLife:
    """The budget that restores half of the leakage of ``reference``, the unattacked model before unlearning.

    ``earliest`` and ``latest`` hold together if both bands hold.
    """

    def first(values: Sequence[float], goal: float) -> float | None:
        return next((point.budget for point, value in zip(curve, values, strict=True) if value >= goal), None)

    return HalfLife(
        first([point.mean for point in curve], reference.mean / 2),
        first([point.upper.value for point in curve], reference.lower.value / 2),
        first([point.lower.value for point in curve], reference.upper.value / 2),
    )


def excess(counts: Sequence[Counted], reference: Sequence[Counted], alpha: float) -> list[Excess]:
    """The excess leakage over the reference under the same attack, at the budgets that both curves have.

    The band of each curve takes half of alpha.
    """
    curve, other = band(counts, alpha / 2), {point.budget: point for point in band(reference, alpha / 2)}
    found = []
    for point in curve:
        if (same := other.get(point.budget)) is not None:
            method = "difference of two bands"
            lower = _bound(point.lower.value - same.upper.value, "lower", alpha, point.lower.n, method)
            upper = _bound(point.upper.value - same.lower.value, "upper", alpha, point.upper.n, method)
            found.append(Excess(point.budget, point.mean - same.mean, lower, upper))
    return found


def _point(one: Counted, share: float, alpha: float) -> Point:
    if one.binary:
        low, high = pooled_lower(one.total, one.n, share), pooled_upper(one.most, one.n, share)
        method = "Clopper-Pearson, all budgets at once"
    else:
        width = math.sqrt(math.log(1 / share) / (2 * one.n))
        low, high = max(0.0, one.total / one.n - width), min(1.0, one.most / one.n + width)
        method = "Hoeffding, all budgets at once"
    lower, upper = (_bound(low, "lower", alpha, one.n, method), _bound(high, "upper", alpha, one.n, method))
    return Point(one.budget, one.total / one.n, lower, upper)


def _bound(value: float, side: Side, alpha: float, n: int | None, method: str) -> Bound:
    return Bound(value, side, alpha, Covers.AVERAGE, Assumes.DRAWS_WITHIN, method, n)
