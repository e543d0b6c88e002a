"""Bounds of leak@k: of each prompt, of the worst prompt, and of the mean over the prompts.

`lethe.statistics.leak_rates` computes the numbers. The band is the result: the estimate
has no guarantee, and lies above the band for k close to the number of answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from lethe.statistics.bound import Bound
from lethe.statistics.leak_rates import QUERIES, Band, Rate
from lethe.statistics.pass_hat_k import pass_hat_k

if TYPE_CHECKING:
    from lethe.evaluation.prompts import PromptMeasure
    from lethe.results.quantities import Scope
    from lethe.results.table import Rows
    from lethe.statistics.judge_error import Calibration

BELOW_1 = float(np.nextafter(1, 0))  # no lower bound on a leak promises certainty; 1.0 is a rounding
TOLD_QUERIES = 1000  # the number of queries in sentences and flat keys


@dataclass(frozen=True, slots=True)
class LeakPoint:
    """The probability that at least one of ``k`` answers leaks; ``estimate`` is NaN where k exceeds the answers."""

    k: int
    estimate: float
    lower: Bound
    upper: Bound

    def row(self) -> dict[str, object]:
        """The entry of ``leak_at_k`` in JSON."""
        return {"k": self.k, "estimate": self.estimate, "lower": self.lower.value, "upper": self.upper.value}

    def to_row(self, rows: Rows, scope: Scope, quantity: str, basis: str, item: str | None = None) -> None:
        """Add the row of this band."""
        place: dict[str, Any] = {"item": item, "split": "forget", "at": float(self.k)}
        rows.add(scope, quantity, basis, self.estimate, self.lower, self.upper, **place)


Points = tuple[LeakPoint, ...]


@dataclass(frozen=True)
class OverPrompts:
    """Leak@k of the worst prompt and of the mean over the prompts."""

    worst: Points
    mean: Points

    def to_rows(self, rows: Rows, basis: str) -> None:
        """Add the rows of both bands."""
        for quantity, points in (("leak_at_k_worst", self.worst), ("leak_at_k", self.mean)):
            for point in points:
                point.to_row(rows, "model", quantity, basis)

    def sentences(self, of: str) -> list[str]:
        """The two bands at `TOLD_QUERIES` queries, each with its guarantee; ``of`` names the prompts."""
        lines = []
        for point in (at(self.worst), at(self.mean)):
            least = replace(point.lower, value=min(point.lower.value, BELOW_1))
            band = f"{least.significant()} to {point.upper.significant()}"
            upper = point.upper
            lines.append(
                f"Leak@{point.k:,}, the probability of a leak in {point.k:,} answers, is {band} {upper.on(of)}, each side "
                f"{upper.level()}, assuming {upper.assumes} ({upper.method})."
            )
        return lines


def each_leak_at_k(prompts: Sequence[PromptMeasure], alpha: float) -> list[Points | None]:
    """Leak@k of each prompt by itself; None for a prompt whose scores are not all 0 or 1."""
    if not prompts:
        return []
    band = leak_rate(prompts).each(alpha, QUERIES)
    return [points_of(band, row) or None for row in range(len(prompts))]


def leak_at_k_over(prompts: Sequence[PromptMeasure], alpha: float) -> OverPrompts | None:
    """Leak@k of the worst prompt with 0/1 scores, and of the mean over these prompts; None if there is no such prompt."""
    judged = [prompt for prompt in prompts if prompt.leaking is not None]
    if not judged:
        return None
    rate = leak_rate(judged)
    return OverPrompts(points_of(rate.worst(alpha, QUERIES)), points_of(rate.mean(alpha, QUERIES)))


def passes(prompts: Sequence[PromptMeasure], alpha: float, ks: Sequence[int]) -> Points:
    """pass^k over the prompts, whose scores are all 0 or 1: the probability that k answers all have a score of 1."""
    rate = leak_rate(prompts)
    return points_of(pass_hat_k(rate.leaks, rate.n, rate.missing, alpha, ks))


def at(points: Sequence[LeakPoint], k: int = TOLD_QUERIES) -> LeakPoint:
    """The point at ``k`` queries."""
    return next(point for point in points if point.k == k)


def leak_rate(prompts: Sequence[PromptMeasure], judge: Calibration | None = None) -> Rate:
    """The counted leaks of each prompt; NaN unless its scores are all 0 or 1."""
    judged = [prompt.leaking is not None for prompt in prompts]
    leaking = np.array([np.nan if p.leaking is None else p.leaking for p in prompts], dtype=np.float64)
    missing = np.where(judged, [prompt.leaks_missing for prompt in prompts], 0)
    return Rate(leaking - missing, np.array([prompt.n for prompt in prompts]), missing, judge)


def points_of(band: Band, row: int | None = None) -> Points:
    """The band, or one row of its tables, as bounds with their guarantees; empty where there is none."""
    estimates = band.estimate if row is None else band.estimate[row]
    ends = [band.bounds(row, place) for place in range(len(band.k))]
    return tuple(
        LeakPoint(k, guess, *pair)
        for k, guess, pair in zip(band.k.tolist(), estimates.tolist(), ends, strict=True)
        if pair
    )
