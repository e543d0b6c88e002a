"""Bounds of leak@k: of each prompt, of the worst prompt, and of the mean over the prompts.

`lethe.statistics.leak_at_k` computes the numbers; this module attaches the guarantees. The band is the result: the estimate
has no guarantee, and lies above the band for k close to the number of answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from lethe.statistics.bound import Bound, Covers
from lethe.statistics.leak_at_k import QUERIES, LeakAtK, leak_at_k, mean_over_questions, worst_question

if TYPE_CHECKING:
    from lethe.evaluation.prompts import PromptMeasure
    from lethe.results.quantities import Scope
    from lethe.results.table import Rows

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

    def bounds(self) -> dict[str, Bound]:
        """The band of the worst prompt at `TOLD_QUERIES` queries, under its flat keys."""
        point = at(self.worst)
        return {f"leak_at_{point.k}_worst": point.upper, f"leak_at_{point.k}_worst_lower": point.lower}

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
    """Leak@k of each prompt by itself; None for a prompt whose scores are not all 0 or 1.

    Each side holds at ``alpha`` by itself, for all k at once; at k = 1 the two sides are ``m_bin_lower`` and ``m_bin``.
    """
    if not prompts:
        return []
    leaks, n, missing = leak_counts(prompts)
    found = leak_at_k(leaks, n, alpha, QUERIES, missing)
    return [
        None if np.isnan(leaks[place]) else as_points(found, Covers.ONE_PROMPT, size, place)
        for place, size in enumerate(n.tolist())
    ]


def leak_at_k_over(prompts: Sequence[PromptMeasure], alpha: float) -> OverPrompts | None:
    """Leak@k of the worst prompt with 0/1 scores, and of the mean over these prompts; None if there is no such prompt."""
    judged = [prompt for prompt in prompts if prompt.leaking is not None]
    if not judged:
        return None
    leaks, n, missing = leak_counts(judged)
    common = int(n[0]) if (n == n[0]).all() else None
    worst = worst_question(leaks, n, alpha, QUERIES, missing)[1]
    mean = mean_over_questions(leaks, n, alpha, QUERIES, missing)
    return OverPrompts(as_points(worst, Covers.WORST_PROMPT, common), as_points(mean, Covers.AVERAGE, common))


def at(points: Sequence[LeakPoint], k: int = TOLD_QUERIES) -> LeakPoint:
    """The point at ``k`` queries."""
    return next(point for point in points if point.k == k)


def leak_counts(prompts: Sequence[PromptMeasure]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Per prompt: leaking answers (NaN unless the scores are all 0 or 1), answers, and answers without a 0/1 score."""
    judged = [prompt.leaking is not None for prompt in prompts]
    leaking = np.array([np.nan if p.leaking is None else p.leaking for p in prompts], dtype=np.float64)
    missing = np.where(judged, [prompt.leaks_missing for prompt in prompts], 0)
    return leaking - missing, np.array([prompt.n for prompt in prompts]), missing


def as_points(found: LeakAtK, covers: Covers, n: int | None, row: int | None = None) -> Points:
    """Convert a result, or one row of its tables, to bounds with their guarantees."""
    tables = (found.estimate, found.lower, found.upper)
    estimate, lower, upper = (table if row is None else table[row] for table in tables)
    rest = (found.alpha, covers, found.assumes, found.method, n)
    return tuple(
        LeakPoint(k, guess, Bound(low, "lower", *rest), Bound(high, "upper", *rest))
        for k, guess, low, high in zip(
            found.k.tolist(), estimate.tolist(), lower.tolist(), upper.tolist(), strict=True
        )
    )
