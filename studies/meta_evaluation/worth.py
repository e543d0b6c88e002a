"""What every number about forgetting is worth: how well it tells models apart, survives attacks, predicts, and costs.

Sources: Dorna et al., "OpenUnlearning" (2025), section 4 (pools, faithfulness as AUC, R and Q); Lee, Kim and Jo (2026) for
the symmetric forms, and their public code for the filters on unlearned models. Intervals, Holm's correction and
prediction are this project's.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from studies.meta_evaluation import robustness as attacks
from studies.meta_evaluation.estimates import (
    Estimate,
    PairTest,
    auc_estimate,
    compare_aucs,
    compare_rank_correlations,
    holm_adjusted,
    mean_auc_over_questions,
    nothing,
    rank_correlation,
)
from studies.meta_evaluation.numbers import Cost, Number
from studies.meta_evaluation.robustness import Robustness

if TYPE_CHECKING:
    from studies.meta_evaluation.settings import MetaEvaluation

Target = Literal["leaks", "mean"]  # what comes back: the share of answers that leak, the mean score
TARGETS: tuple[Target, ...] = ("leaks", "mean")

Verdict = Literal["supported", "contradicted", "not decided", "mixed"]
AUC = "AUC"
TWO = 2  # models of a side without which no AUC is tested


@dataclass(frozen=True)
class PoolMember:
    """One model with known knowledge: the questions that it learned (none for a model that lacks), and its numbers.

    ``utility`` is the mean greedy score on retain questions.
    """

    name: str
    kind: str
    learned: frozenset[str]
    utility: float
    numbers: Mapping[str, Number]

    @property
    def knows(self) -> bool:
        return bool(self.learned)


@dataclass(frozen=True)
class UnlearnedMember:
    """One unlearned model before and after both attacks, and the leakage that a short relearning brings back by target.

    ``relearned`` and ``quantised`` are empty where the utility is too small to count in R and Q.
    """

    name: str
    method: str
    utility: float
    before: Mapping[str, Number]
    relearned: Mapping[str, Number]
    quantised: Mapping[str, Number]
    comes_back: Mapping[Target, float]


@dataclass(frozen=True)
class RetrainMember:
    """Retrain before and after relearning; ``utility`` is that of the model before unlearning."""

    before: Mapping[str, Number]
    relearned: Mapping[str, Number]
    utility: float


@dataclass(frozen=True)
class Worth:
    name: str
    larger: bool
    auc: Estimate
    auc_each: Estimate
    one_sided: Robustness
    symmetric: Robustness
    kept: int
    prediction: Estimate
    prediction_mean: Estimate
    cost: Cost
    missing: int


@dataclass(frozen=True)
class Quality:
    """The utility of one kind of pool models, and how many are left out because theirs is too small."""

    kind: str
    knows: bool
    models: int
    left_out: int
    least: float
    mean: float


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

    ``quality`` has the utility of the pools, ``utility_auc`` the AUC of utility alone on the models that count: an interval
    without 0.5 means that the pools differ by more than the forget set.
    """

    alpha: float
    knows: Mapping[str, int]
    lacks: Mapping[str, int]
    unlearned: Mapping[str, int]
    useful: int
    quality: tuple[Quality, ...]
    utility_auc: Estimate
    questions: int
    worth: tuple[Worth, ...]
    pairs: tuple[PairTest, ...]
    claims: tuple[ClaimOutcome, ...]
    unpaired: tuple[str, ...]

    def as_json(self) -> dict[str, object]:
        """Plain values; `lethe.io.json_files.write_json` writes what is not finite as null."""
        return asdict(self)


def meta_result(
    pool: Sequence[PoolMember],
    unlearned: Sequence[UnlearnedMember],
    retrain: RetrainMember,
    costs: Mapping[str, Cost],
    rules: MetaEvaluation,
) -> MetaResult:
    """Evaluate every number on models whose truth is known.

    A number of one model takes part for all: where a model lacks the number, it is missing and counted. Intervals of the AUC
    assume that the models of a pool are independent draws; they hold for the questions and the data of this run. Intervals
    over unlearned models draw whole methods.
    """
    names = list(dict.fromkeys(name for member in pool for name in member.numbers))
    everyone, least = pool, rules.pool.utility * retrain.utility
    pool = [one for one in everyone if one.utility >= least]
    useful = [one for one in unlearned if one.utility >= rules.unlearned.utility * retrain.utility]
    worth = [_worth(name, pool, unlearned, useful, retrain, costs, rules) for name in names]
    ordered = sorted(
        worth,
        key=lambda one: (*(-auc.value if auc.known else math.inf for auc in (one.auc, one.auc_each)), one.name),
    )
    pairs, unpaired = _pairs(pool, rules)
    return MetaResult(
        alpha=rules.alpha,
        knows=_counts([one.kind for one in pool if one.knows]),
        lacks=_counts([one.kind for one in pool if not one.knows]),
        unlearned=_counts([one.method for one in unlearned]),
        useful=len(useful),
        quality=tuple(_quality(everyone, least)),
        utility_auc=_auc(
            [one.utility for one in pool if one.knows],
            [one.utility for one in pool if not one.knows],
            rules.alpha,
        ),
        questions=len({key for one in pool for key in one.learned}),
        worth=tuple(ordered),
        pairs=pairs,
        claims=_claims(pool, unlearned, rules),
        unpaired=unpaired,
    )


def _counts(kinds: Sequence[str]) -> dict[str, int]:
    return {kind: kinds.count(kind) for kind in dict.fromkeys(kinds)}


def _value(numbers: Mapping[str, Number], name: str) -> float:
    return numbers[name].knows if name in numbers else math.nan


def _quality(pool: Sequence[PoolMember], least: float) -> Iterator[Quality]:
    kinds = dict.fromkeys((one.knows, one.kind) for one in pool)
    for knows, kind in kinds:
        own = np.array([one.utility for one in pool if (one.knows, one.kind) == (knows, kind)])
        left_out = len(own) - int((own >= least).sum())
        yield Quality(kind, knows, len(own), left_out, float(own.min()), float(own.mean()))


def _sides(pool: Sequence[PoolMember], name: str) -> list[np.ndarray]:
    """The values of the models that know and of those that lack; NaN where a model has none."""
    return [
        np.array([_value(one.numbers, name) for one in pool if one.knows == side], dtype=np.float64)
        for side in (True, False)
    ]


def _auc(own: Sequence[float], other: Sequence[float], alpha: float) -> Estimate:
    return auc_estimate(own, other, alpha) if len(own) and len(other) else nothing(alpha)


def _worth(
    name: str,
    pool: Sequence[PoolMember],
    unlearned: Sequence[UnlearnedMember],
    useful: Sequence[UnlearnedMember],
    retrain: RetrainMember,
    costs: Mapping[str, Cost],
    rules: MetaEvaluation,
) -> Worth:
    own, other = (side[~np.isnan(side)] for side in _sides(pool, name))
    auc = _auc(own, other, rules.alpha)
    threshold = attacks.best_threshold(own, other) if auc.known else math.nan
    # OpenUnlearning averages over the models that the number calls unlearned.
    kept = [one for one in useful if _value(one.before, name) < threshold]
    before, relearned, quantised = (
        np.array([_value(getattr(one, state), name) for one in kept], dtype=np.float64)
        for state in ("before", "relearned", "quantised")
    )
    first, last = _value(retrain.before, name), _value(retrain.relearned, name)
    draws = (rules.alpha, rules.bootstrap, rules.seed, _clusters(kept))
    r, q = attacks.relearning(before, relearned, first, last), attacks.quantisation(before, quantised)
    with np.errstate(invalid="ignore"):
        changes = attacks.symmetric(relearned - before, np.full(len(kept), last - first))
    values = [_value(one.before, name) for one in unlearned]
    leaks, mean = (
        rank_correlation(values, _back(unlearned, target), rules.alpha, _clusters(unlearned), *draws[1:3])
        for target in TARGETS
    )
    return Worth(
        name=name,
        larger=next(member.numbers[name].larger for member in pool if name in member.numbers),
        auc=auc,
        auc_each=_per_question(name, pool, rules),
        one_sided=attacks.robustness(r, q, *draws),
        symmetric=attacks.robustness(changes, attacks.symmetric(before, quantised), *draws),
        kept=len(kept),
        prediction=leaks,
        prediction_mean=mean,
        cost=_cost(name, pool, costs),
        missing=len(pool) - len(own) - len(other),
    )


def _clusters(models: Sequence[UnlearnedMember]) -> list[str]:
    """The models of one method are alike: strengths and seeds of one method are drawn together."""
    alone = len({one.method for one in models}) < 2  # given checkpoints have no method
    return [one.name if alone else one.method for one in models]


def _per_question(name: str, pool: Sequence[PoolMember], rules: MetaEvaluation) -> Estimate:
    each = [member.numbers[name].each if name in member.numbers else {} for member in pool]
    asked = list(dict.fromkeys(key for own in each for key in own))
    if not asked:
        return nothing(rules.alpha)
    values = np.array([[own.get(key, math.nan) for key in asked] for own in each], dtype=np.float64)
    learned = np.array([[key in member.learned for key in asked] for member in pool])
    groups = ["knows" if member.knows else "lacks" for member in pool]
    return mean_auc_over_questions(values, learned, groups, rules.alpha, rules.bootstrap, rules.seed)


def _cost(name: str, pool: Sequence[PoolMember], costs: Mapping[str, Cost]) -> Cost:
    parts = next(member.numbers[name].parts for member in pool if name in member.numbers)
    found = [costs[part] for part in parts if part in costs]
    if len(found) < len(parts) or not found:
        return Cost(math.nan, math.nan)
    return Cost(sum(one.seconds for one in found), sum(one.rows for one in found))


def _pairs(pool: Sequence[PoolMember], rules: MetaEvaluation) -> tuple[tuple[PairTest, ...], tuple[str, ...]]:
    """The tests of the headline's pairs, and the names of the headline that some model lacks."""
    sides = {name: _sides(pool, name) for name in rules.headline}
    whole = [name for name, (own, other) in sides.items() if not (np.isnan(own).any() or np.isnan(other).any())]
    unpaired = tuple(name for name in rules.headline if name not in whole)
    if len(whole) < 2:
        return (), unpaired
    own, other = (np.array([sides[name][side] for name in whole]) for side in (0, 1))
    return compare_aucs(whole, own, other, rules.alpha), unpaired


def _back(unlearned: Sequence[UnlearnedMember], target: Target) -> list[float]:
    return [one.comes_back.get(target, math.nan) for one in unlearned]


def _claims(
    pool: Sequence[PoolMember], unlearned: Sequence[UnlearnedMember], rules: MetaEvaluation
) -> tuple[ClaimOutcome, ...]:
    """Test every claim by AUC and by prediction of each target, with Holm's correction over all these tests."""
    groups, tests = _clusters(unlearned), []
    for claim in rules.claims:
        own = [_by_auc(*(_sides(pool, name) for name in (claim.better, claim.than)))]
        better, than = ([_value(one.before, name) for one in unlearned] for name in (claim.better, claim.than))
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
    (test,) = compare_aucs(("better", "than"), own, other, 0.5)
    return ClaimTest(AUC, test.difference, test.p_value)


def _decided(test: ClaimTest, adjusted: float, alpha: float) -> ClaimTest:
    verdict: Verdict = "not decided"
    if adjusted <= alpha:
        verdict = "supported" if test.difference > 0 else "contradicted"
    return replace(test, adjusted=adjusted, verdict=verdict)
