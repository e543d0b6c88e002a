"""The settings of a measurement, rows of unequal lengths, and statements on all prompts together.

These are Bonferroni's bounds, and the list of prompts certified under a threshold.

The quantity is fixed beforehand: the probability of a leak by Clopper-Pearson if the scores are 0 or 1, otherwise the mean
score by betting.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np

from lethe.config.evaluating import METRICS
from lethe.errors import BadValue, plural
from lethe.evaluation.prompt_scores import Missing
from lethe.progress import progress
from lethe.statistics import betting
from lethe.statistics.bound import Assumes, Bound, Covers
from lethe.statistics.bounds import leak_bounds
from lethe.statistics.checks import check_alpha
from lethe.statistics.judge_error import Calibration
from lethe.statistics.many_prompts import (
    Together,
    binary_p_value,
    bonferroni,
    check_together,
    every_prompt_under,
    holm,
)

if TYPE_CHECKING:
    from lethe.results.table import Rows

REASON = "the question stopped early: bounds for a fixed number of samples do not hold; anytime-valid bounds replace them"


@dataclass(frozen=True)
class MeasureSettings:
    """The settings of `measure_prompts`."""

    alpha: float = METRICS.alpha
    thresholds: Sequence[float] = METRICS.thresholds
    rho: float = METRICS.rho
    share_above: float = METRICS.share_above
    missing: Missing | None = None
    together: Together = "none"
    calibration: Calibration | None = None

    def __post_init__(self) -> None:
        check_alpha(self.alpha)
        check_together(self.together)
        for threshold in self.thresholds:
            if not 0 <= threshold <= 1:
                raise BadValue("threshold", threshold, "a number in [0, 1]")
        if self.missing not in (None, "worst", "drop"):
            raise BadValue("missing", self.missing, "worst or drop")


VALUES = 1 << 18  # of one matrix: a function that makes ten arrays of its size then needs 20 MiB
MANY = 100  # matrices; with more, the work takes seconds
T = TypeVar("T")


def by_length(rows: Sequence[np.ndarray], function: Callable[[np.ndarray], Sequence[T]]) -> list[T]:
    """Apply ``function`` to matrices of equally long rows; return the results in the order of ``rows``.

    A matrix has at most `VALUES` values, or one row, so memory does not grow with the number of rows. The function must
    treat each row by itself.
    """
    results: dict[int, T] = {}
    matrices = list(_matrices(np.array([len(row) for row in rows])))
    for places in progress(matrices, "measure", "parts") if len(matrices) > MANY else matrices:
        matrix = np.stack([rows[place] for place in places])
        results |= zip(places.tolist(), function(matrix), strict=True)
    return [results[place] for place in range(len(rows))]


def _matrices(sizes: np.ndarray) -> Iterator[np.ndarray]:
    """The places of the rows of each matrix."""
    order = np.argsort(sizes, kind="stable")
    for places in np.split(order, np.flatnonzero(np.diff(sizes[order])) + 1) if len(sizes) else []:
        most = max(1, VALUES // max(1, int(sizes[places[0]])))
        for start in range(0, len(places), most):
            yield places[start : start + most]


Metric = Literal["m_bin", "mean_upper"]
QUANTITY = {"m_bin": "the probability of a leak", "m_mu": "the mean score", "mean_upper": "the mean score"}


@dataclass(frozen=True)
class TogetherResult:
    """A statement that covers several prompts at once.

    ``bounds`` (Bonferroni) are upper bounds of ``prompt_ids`` that hold together. ``certified`` names the prompts whose
    quantity is certified to be at most ``claim.value``; ``claim`` covers the whole list. ``every`` is True if the largest of
    the prompts' own bounds is under that threshold, which certifies every prompt without a correction.
    """

    correction: Together
    metric: Metric
    prompt_ids: tuple[str, ...]
    bounds: tuple[Bound, ...]
    certified: tuple[str, ...]
    claim: Bound
    every: bool

    def bound(self, prompt_id: str) -> Bound | None:
        """The bound of one prompt, which holds together with all others; None for Holm, and for an unknown prompt."""
        if not self.bounds or prompt_id not in self.prompt_ids:
            return None
        return self.bounds[self.prompt_ids.index(prompt_id)]

    def to_rows(self, rows: Rows, prompt_ids: Sequence[str]) -> None:
        """Add the claim, and for each of ``prompt_ids`` its bound and whether it is certified."""
        rows.add("model", "certified_together", "sampled", len(self.certified), split="forget")
        facts = {"correction": self.correction, "metric": self.metric, "every": self.every}
        rows.add("model", "together", "sampled", None, None, self.claim, evidence=facts, split="forget")
        for name in prompt_ids:
            place: dict[str, Any] = {"item": name, "split": "forget"}
            if bound := self.bound(name):
                rows.add("question", "leak_together", "sampled", None, None, bound, **place)
            if name in self.prompt_ids:
                rows.add("question", "certified_together", "sampled", name in self.certified, **place)

    def as_dict(self) -> dict[str, object]:
        """Plain values for JSON."""
        claim = self.claim.guarantee_dict()
        return {
            "correction": self.correction,
            "metric": self.metric,
            "alpha": self.claim.alpha,
            "threshold": self.claim.value,
            "every_prompt_under": self.every,
            "certified": list(self.certified),
            "bounds": [
                {"prompt_id": name, "bound": bound.value}
                for name, bound in zip(self.prompt_ids, self.bounds, strict=False)
            ],
            **{key: claim[key] for key in ("covers", "assumes", "method")},
        }

    def sentences(self, of: str = "the prompts") -> list[str]:
        """The statements on all prompts together, each with its guarantee."""
        lines: list[str] = []
        quantity = QUANTITY[self.metric]
        if self.bounds:
            largest = max(self.bounds, key=lambda bound: bound.value)
            lines.append(
                f"Bounds for every prompt, all true together: {largest.guarantee(of)} ({largest.method})."
            )
        lines.append(
            f"Certified: {len(self.certified)} of {plural(len(self.prompt_ids), 'prompt')}. "
            f"{self.claim.sentence(quantity, of)}"
        )
        return lines


@dataclass(frozen=True)
class Basis:
    """The prompts of a joint statement; ``counts`` are their leaking answers, for ``m_bin``."""

    metric: Metric
    prompt_ids: Sequence[str]
    scores: Sequence[np.ndarray]
    counts: np.ndarray

    @property
    def sizes(self) -> np.ndarray:
        """The number of answers to each prompt."""
        return np.array([len(own) for own in self.scores])

    def bounds(self, alpha: float) -> list[Bound]:
        """Each prompt's own bound at ``alpha``; a missing score counts as 1."""
        if self.metric == "m_bin":
            return leak_bounds(self.counts, self.sizes, alpha)
        values = by_length(self.scores, lambda rows: betting.mean_upper(_worst(rows), alpha).tolist())
        return [
            Bound(value, "upper", alpha, Covers.ONE_PROMPT, Assumes.DRAWS_IN_ORDER, "betting", n)
            for value, n in zip(values, self.sizes.tolist(), strict=True)
        ]

    def p_values(self, tau: float, alpha: float) -> np.ndarray:
        """The p-values of the hypotheses "the quantity of this prompt is at least ``tau``"."""
        if self.metric == "m_bin":
            return binary_p_value(self.counts, self.sizes, tau)
        found = by_length(self.scores, lambda rows: betting.p_value(_worst(rows), tau, alpha).tolist())
        return np.array(found)


def hold_together(basis: Basis, tau: float, alpha: float, correction: Together) -> TogetherResult:
    """Return the statement on all prompts of ``basis`` together."""
    names = tuple(basis.prompt_ids)
    every, all_at_once = every_prompt_under(basis.bounds(alpha), tau)
    if correction == "bonferroni":
        bounds = tuple(bonferroni(basis.bounds, len(names), alpha))
        passed, method = [bound.value <= tau for bound in bounds], bounds[0].method
    else:
        bounds = ()
        passed, method = holm(basis.p_values(tau, alpha), tau, alpha)[0].tolist(), "Holm"
    claim = replace(all_at_once, covers=Covers.CERTIFIED, method=method, n=None)
    certified = tuple(name for name, one in zip(names, passed, strict=True) if one)
    return TogetherResult(correction, basis.metric, names, bounds, certified, claim, every)


def _worst(rows: np.ndarray) -> np.ndarray:
    return np.where(np.isnan(rows), 1.0, rows)
