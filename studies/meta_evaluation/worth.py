"""What every number about forgetting is worth: how well it tells models apart, what it predicts, and its cost.

Sources: Dorna et al., "OpenUnlearning" (2025), section 4 (pools, faithfulness as AUC), and the public code of Lee, Kim and Jo
(2026) for the filter on utility. Intervals, Holm's correction and prediction are this project's.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from studies.meta_evaluation.estimates import (
    Estimate,
    auc_estimate,
    compare_aucs,
    compare_rank_correlations,
    holm_adjusted,
    mean_auc_over_questions,
    nothing,
    rank_correlation,
)
from studies.meta_evaluation.numbers import Cost, Number

if TYPE_CHECKING:
    from studies.meta_evaluation.settings import MetaEvaluation
    from studies.meta_evaluation.workshop import Role

Target = Literal["leaks", "mean"]  # what comes back: the share of answers that leak, the mean score
TARGETS: tuple[Target, ...] = ("leaks", "mean")

Verdict = Literal["supported", "contradicted", "not decided", "mixed"]
AUC = "AUC"
TWO = 2  # models of a side without which no AUC is tested


@dataclass(frozen=True)
class Member:
    """One model: the questions that it learned (none if it lacks them), its numbers, and what each observation cost.

    ``utility`` is the mean greedy score on retain questions. ``comes_back`` is the leakage that a short relearning brings
    back, by target, of an unlearned model.
    """

    name: str
    role: Role
    kind: str
    learned: frozenset[str]
    utility: float
    numbers: Mapping[str, Number]
    costs: Mapping[str, Cost] = field(default_factory=dict)
    comes_back: Mapping[Target, float] = field(default_factory=dict)

    @property
    def knows(self) -> bool:
        return bool(self.learned)


@dataclass(frozen=True)
class Worth:
    name: str
    larger: bool
    auc: Estimate
    auc_each: Estimate
    prediction: Estimate
    prediction_mean: Estimate
    cost: Cost
    missing: int


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
    text: str
    better: str
    than: str
    tests: tuple[ClaimTest, ...]

    @property
    def verdict(self) -> Verdict:
        """The verdict of the tests that decide; mixed where two of them contradict each other."""
        decided = {test.verdict for test in self.tests} - {"not decided"}
        return "mixed" if len(decided) > 1 else decided.pop() if decided else "not decided"


@dataclass(frozen=True)
class MetaResult:
    """A whole meta-evaluation, the numbers sorted by AUC, equal ones by AUC per question.

    ``left_out`` counts the pool models whose utility is too small. ``utility_auc`` is the AUC of utility alone on the others:
    an interval without 0.5 means that the pools differ by more than the forget set.
    """

    alpha: float
    knows: Mapping[str, int]
    lacks: Mapping[str, int]
    unlearned: Mapping[str, int]
    left_out: int
    utility_auc: Estimate
    questions: int
    worth: tuple[Worth, ...]
    claims: tuple[ClaimOutcome, ...]


def meta_result(members: Sequence[Member], rules: MetaEvaluation) -> MetaResult:
    """Evaluate every number on models whose truth is known.

    A number of one model takes part for all: where a model lacks the number, it is missing and counted. Intervals of the AUC
    assume that the models of a pool are independent draws; they hold for the questions and the data of this run. Intervals
    over unlearned models draw whole methods.
    """
    whole = [one for one in members if one.role in ("knows", "lacks")]
    unlearned = [one for one in members if one.role == "unlearned"]
    base = next(one for one in whole if one.role == "knows")
    pool = [one for one in whole if one.utility >= rules.pool.utility * base.utility]
    names = list(dict.fromkeys(name for member in whole for name in member.numbers))
    costs = _costs(whole)
    worth = [_worth(name, pool, unlearned, costs, rules) for name in names]
    ordered = sorted(
        worth,
        key=lambda one: (*(-auc.value if auc.known else math.inf for auc in (one.auc, one.auc_each)), one.name),
    )
    own, other = ([one.utility for one in pool if one.knows == side] for side in (True, False))
    return MetaResult(
        alpha=rules.alpha,
        knows=_counts([one.kind for one in pool if one.knows]),
        lacks=_counts([one.kind for one in pool if not one.knows]),
        unlearned=_counts([one.kind for one in unlearned]),
        left_out=len(whole) - len(pool),
        utility_auc=_auc(own, other, rules.alpha),
        questions=len({key for one in pool for key in one.learned}),
        worth=tuple(ordered),
        claims=_claims(pool, unlearned, rules),
    )


def _costs(pool: Sequence[Member]) -> dict[str, Cost]:
    """The mean cost of each observation over the models that have it."""
    means = {}
    for part in dict.fromkeys(part for one in pool for part in one.costs):
        costs = [one.costs[part] for one in pool if part in one.costs]
        means[part] = Cost(
            float(np.mean([cost.seconds for cost in costs])), float(np.mean([cost.rows for cost in costs]))
        )
    return means


def _counts(kinds: Sequence[str]) -> dict[str, int]:
    return {kind: kinds.count(kind) for kind in dict.fromkeys(kinds)}


def _value(numbers: Mapping[str, Number], name: str) -> float:
    return numbers[name].knows if name in numbers else math.nan


def _sides(pool: Sequence[Member], name: str) -> list[np.ndarray]:
    """The values of the models that know and of those that lack; NaN where a model has none."""
    return [
        np.array([_value(one.numbers, name) for one in pool if one.knows == side], dtype=np.float64)
        for side in (True, False)
    ]


def _auc(own: Sequence[float], other: Sequence[float], alpha: float) -> Estimate:
    return auc_estimate(own, other, alpha) if len(own) and len(other) else nothing(alpha)


def _worth(
    name: str,
    pool: Sequence[Member],
    unlearned: Sequence[Member],
    costs: Mapping[str, Cost],
    rules: MetaEvaluation,
) -> Worth:
    own, other = (side[~np.isnan(side)] for side in _sides(pool, name))
    values = [_value(one.numbers, name) for one in unlearned]
    draws = (rules.alpha, _clusters(unlearned), rules.bootstrap, rules.seed)
    leaks, mean = (rank_correlation(values, _back(unlearned, target), *draws) for target in TARGETS)
    return Worth(
        name=name,
        larger=next(member.numbers[name].larger for member in pool if name in member.numbers),
        auc=_auc(own, other, rules.alpha),
        auc_each=_per_question(name, pool, rules),
        prediction=leaks,
        prediction_mean=mean,
        cost=_cost(name, pool, costs),
        missing=len(pool) - len(own) - len(other),
    )


def _clusters(models: Sequence[Member]) -> list[str]:
    """The models of one method are alike: strengths and seeds of one method are drawn together."""
    alone = len({one.kind for one in models}) < 2  # given checkpoints have no method
    return [one.name if alone else one.kind for one in models]


def _per_question(name: str, pool: Sequence[Member], rules: MetaEvaluation) -> Estimate:
    each = [member.numbers[name].each if name in member.numbers else {} for member in pool]
    asked = list(dict.fromkeys(key for own in each for key in own))
    if not asked:
        return nothing(rules.alpha)
    values = np.array([[own.get(key, math.nan) for key in asked] for own in each], dtype=np.float64)
    learned = np.array([[key in member.learned for key in asked] for member in pool])
    groups = ["knows" if member.knows else "lacks" for member in pool]
    return mean_auc_over_questions(values, learned, groups, rules.alpha, rules.bootstrap, rules.seed)


def _cost(name: str, pool: Sequence[Member], costs: Mapping[str, Cost]) -> Cost:
    parts = next(member.numbers[name].parts for member in pool if name in member.numbers)
    found = [costs[part] for part in parts if part in costs]
    if len(found) < len(parts) or not found:
        return Cost(math.nan, math.nan)
    return Cost(sum(one.seconds for one in found), sum(one.rows for one in found))


def _back(unlearned: Sequence[Member], target: Target) -> list[float]:
    return [one.comes_back.get(target, math.nan) for one in unlearned]


def _claims(
    pool: Sequence[Member], unlearned: Sequence[Member], rules: MetaEvaluation
) -> tuple[ClaimOutcome, ...]:
    """Test every claim by AUC and by prediction of each target, with Holm's correction over all these tests."""
    groups, tests = _clusters(unlearned), []
    for claim in rules.claims:
        own = [_by_auc(*(_sides(pool, name) for name in (claim.better, claim.than)))]
        better, than = ([_value(one.numbers, name) for one in unlearned] for name in (claim.better, claim.than))
        for target in TARGETS:
            back = _back(unlearned, target)
            own.append(ClaimTest(target, *compare_rank_correlations(better, than, back, groups, seed=rules.seed)))
        tests.append(own)
    adjusted = iter(holm_adjusted([test.p_value for own in tests for test in own]).tolist())
    return tuple(
        ClaimOutcome(
            claim.text,
            claim.better,
            claim.than,
            tuple(_decided(test, next(adjusted), rules.alpha) for test in own),
        )
        for claim, own in zip(rules.claims, tests, strict=True)
    )


def _by_auc(better: Sequence[np.ndarray], than: Sequence[np.ndarray]) -> ClaimTest:
    """DeLong's paired test on the models that have both numbers."""
    pairs = [np.array(pair) for pair in zip(better, than, strict=True)]
    own, other = (pair[:, ~np.isnan(pair).any(axis=0)] for pair in pairs)
    if min(own.shape[1], other.shape[1]) < TWO:
        return ClaimTest(AUC, math.nan, 1.0)
    return ClaimTest(AUC, *compare_aucs(own, other))


def _decided(test: ClaimTest, adjusted: float, alpha: float) -> ClaimTest:
    verdict: Verdict = "not decided"
    if adjusted <= alpha:
        verdict = "supported" if test.difference > 0 else "contradicted"
    return replace(test, adjusted=adjusted, verdict=verdict)
