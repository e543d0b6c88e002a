"""Claims on two numbers, tested on models whose truth is known: one family of tests, corrected together."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from studies.meta_evaluation.auc import compare_aucs, holm_adjusted
from studies.meta_evaluation.prediction import compare_rank_correlations

if TYPE_CHECKING:
    from studies.meta_evaluation.settings import Claim, MetaEvaluation

Verdict = Literal["supported", "contradicted", "not decided", "mixed"]
AUC = "AUC"
TWO = 2  # models of a side without which no AUC is tested


@dataclass(frozen=True)
class ClaimTest:
    """One test of a claim: ``difference`` is the value of the better number minus that of the other.

    ``by`` is AUC, or the target of a prediction (leaks, mean). ``adjusted`` is Holm's p-value over all tests of all claims.
    """

    by: str
    difference: float
    p_value: float
    adjusted: float = math.nan
    verdict: Verdict = "not decided"


@dataclass(frozen=True)
class ClaimOutcome:
    """A claim with its tests."""

    text: str
    better: str
    than: str
    tests: tuple[ClaimTest, ...]

    @property
    def verdict(self) -> Verdict:
        """The verdict of the tests that decide; mixed where two of them contradict each other."""
        decided = {test.verdict for test in self.tests} - {"not decided"}
        return "mixed" if len(decided) > 1 else decided.pop() if decided else "not decided"


def claim_outcomes(
    rules: MetaEvaluation,
    sides: Mapping[str, tuple[np.ndarray, np.ndarray]],
    before: Mapping[str, Sequence[float]],
    comes_back: Mapping[str, Sequence[float]],
    groups: Sequence[str],
) -> tuple[ClaimOutcome, ...]:
    """Test every claim by AUC and by prediction of each target, with Holm's correction over all these tests."""
    tests = [list(_tests(claim, rules, sides, before, comes_back, groups)) for claim in rules.claims]
    flat = [test for own in tests for test in own]
    adjusted = iter(holm_adjusted([test.p_value for test in flat]).tolist() if flat else [])
    return tuple(
        ClaimOutcome(
            claim.text,
            claim.better,
            claim.than,
            tuple(_decided(test, next(adjusted), rules.alpha) for test in own),
        )
        for claim, own in zip(rules.claims, tests, strict=True)
    )


def _tests(
    claim: Claim,
    rules: MetaEvaluation,
    sides: Mapping[str, tuple[np.ndarray, np.ndarray]],
    before: Mapping[str, Sequence[float]],
    comes_back: Mapping[str, Sequence[float]],
    groups: Sequence[str],
) -> Sequence[ClaimTest]:
    found = [_by_auc(sides[claim.better], sides[claim.than])]
    for target, values in comes_back.items():
        gain = compare_rank_correlations(before[claim.better], before[claim.than], values, groups, seed=rules.seed)
        found.append(ClaimTest(target, *gain))
    return found


def _by_auc(better: tuple[np.ndarray, np.ndarray], than: tuple[np.ndarray, np.ndarray]) -> ClaimTest:
    """DeLong's paired test on the models that have both numbers."""
    pairs = [np.array(pair) for pair in zip(better, than, strict=True)]
    own, other = (pair[:, ~np.isnan(pair).any(axis=0)] for pair in pairs)
    if min(own.shape[1], other.shape[1]) < TWO:
        return ClaimTest(AUC, math.nan, 1.0)
    (test,) = compare_aucs(("better", "than"), own, other, 0.5)
    return ClaimTest(AUC, test.difference, test.p_value)


def _decided(test: ClaimTest, adjusted: float, alpha: float) -> ClaimTest:
    verdict: Verdict = "not decided"
    if adjusted <= alpha:
        verdict = "supported" if test.difference > 0 else "contradicted"
    return replace(test, adjusted=adjusted, verdict=verdict)
