"""What every number about forgetting is worth: how well it tells models apart, survives attacks, predicts, and costs.

Sources: Dorna et al., "OpenUnlearning" (2025), section 4 (pools, faithfulness as AUC, R and Q); Lee, Kim and Jo (2026) for
the symmetric forms, and their public code for the filters on unlearned models. Intervals, Holm's correction and
prediction are this project's.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from typing import Literal

import numpy as np

from studies.meta_evaluation import estimates
from studies.meta_evaluation.estimates import Estimate, PairTest, Robustness, nothing
from studies.meta_evaluation.numbers import Number
from studies.meta_evaluation.observing import Cost
from studies.meta_evaluation.workshop import MetaEvaluation, Role, State

Target = Literal["leaks", "mean"]  # what comes back: the share of answers that leak, the mean score
TARGETS: tuple[Target, ...] = ("leaks", "mean")
STATES: tuple[State, ...] = ("plain", "relearned", "quantised")

Verdict = Literal["supported", "contradicted", "not decided", "mixed"]
AUC = "AUC"
TWO = 2  # models of a side without which no AUC is tested


@dataclass(frozen=True)
class Member:
    """One model: its numbers in each state and the cost of its observations by name.

    ``learned``: the forget questions that it learned; ``utility``: its mean greedy score on retain questions; ``comes_back``:
    an unlearned model's leakage after relearning a few rows. Retrain and unlearned models of enough utility have attacked
    states.
    """

    name: str
    role: Role
    kind: str
    learned: frozenset[str]
    utility: float
    states: Mapping[State, Mapping[str, Number]]
    costs: Mapping[str, Cost]
    comes_back: Mapping[Target, float] = field(default_factory=dict)

    @property
    def knows(self) -> bool:
        return bool(self.learned)

    @property
    def numbers(self) -> Mapping[str, Number]:
        return self.states["plain"]

    def value(self, name: str, state: State = "plain") -> float:
        own = self.states.get(state, {}).get(name)
        return own.knows if own else math.nan


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
    kind: str
    knows: bool
    models: int
    left_out: int
    least: float
    mean: float


@dataclass(frozen=True)
class ClaimTest:
    """``difference``: of the better number minus the other; ``by``: AUC or a target; ``adjusted``: Holm's over all claims."""

    by: str
    difference: float
    p_value: float
    adjusted: float
    verdict: Verdict


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
    """Numbers sorted by AUC; where ``utility_auc``'s interval lacks 0.5, the pools differ by more than the forget set."""

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


def meta_result(members: Sequence[Member], rules: MetaEvaluation) -> MetaResult:
    """Evaluate every number; one that a model lacks is missing and counted. The first model that knows is unlearned."""
    retrain = next(one for one in members if one.role == "retrain")
    unlearned = [one for one in members if one.role == "unlearned"]
    everyone = [one for one in members if one.role in ("knows", "lacks")]
    before_unlearning = next(one for one in everyone if one.knows).utility
    least = rules.pool.utility * before_unlearning
    pool = [one for one in everyone if one.utility >= least]
    useful = [
        one for one in unlearned if one.utility >= rules.unlearned.utility * before_unlearning
    ]
    costs = _costs([one.costs for one in everyone])
    names = dict.fromkeys(name for member in everyone for name in member.numbers)
    worth = [_worth(name, pool, unlearned, useful, retrain, costs, rules) for name in names]
    ordered = sorted(
        worth,
        key=lambda one: (
            *(-auc.value if auc.defined else math.inf for auc in (one.auc, one.auc_each)),
            one.name,
        ),
    )
    pairs, unpaired = _pairs(pool, rules)
    knows, lacks = ([one for one in pool if one.knows == side] for side in (True, False))
    kinds = [dict(Counter(one.kind for one in models)) for models in (knows, lacks, unlearned)]
    return MetaResult(
        rules.alpha,
        kinds[0],
        kinds[1],
        kinds[2],
        len(useful),
        tuple(_quality(everyone, least)),
        _auc([one.utility for one in knows], [one.utility for one in lacks], rules.alpha),
        len({key for one in pool for key in one.learned}),
        tuple(ordered),
        pairs,
        _claims(pool, unlearned, rules),
        unpaired,
    )


def _costs(observed: Sequence[Mapping[str, Cost]]) -> dict[str, Cost]:
    costs: dict[str, list[tuple]] = {}
    for part, cost in (item for one in observed for item in one.items()):
        costs.setdefault(part, []).append(astuple(cost))
    return {part: Cost(*np.mean(own, axis=0).tolist()) for part, own in costs.items()}


def _quality(pool: Sequence[Member], least: float) -> Iterator[Quality]:
    for knows, kind in dict.fromkeys((one.knows, one.kind) for one in pool):
        own = np.array([one.utility for one in pool if (one.knows, one.kind) == (knows, kind)])
        yield Quality(
            kind, knows, len(own), int((own < least).sum()), float(own.min()), float(own.mean())
        )


def _values(models: Sequence[Member], name: str, state: State = "plain") -> np.ndarray:
    return np.array([one.value(name, state) for one in models], dtype=np.float64)


def _sides(pool: Sequence[Member], name: str) -> list[np.ndarray]:
    return [_values([one for one in pool if one.knows == side], name) for side in (True, False)]


def _auc(own: Sequence[float], other: Sequence[float], alpha: float) -> Estimate:
    return estimates.auc_estimate(own, other, alpha) if len(own) and len(other) else nothing(alpha)


def _worth(
    name: str,
    pool: Sequence[Member],
    unlearned: Sequence[Member],
    useful: Sequence[Member],
    retrain: Member,
    costs: Mapping[str, Cost],
    rules: MetaEvaluation,
) -> Worth:
    own, other = (side[~np.isnan(side)] for side in _sides(pool, name))
    auc = _auc(own, other, rules.alpha)
    threshold = estimates.best_threshold(own, other) if auc.defined else math.nan
    # OpenUnlearning averages over the models that the number calls unlearned.
    counted = [one for one in useful if one.value(name) < threshold]
    before, relearned, quantised = (_values(counted, name, state) for state in STATES)
    first, last = retrain.value(name), retrain.value(name, "relearned")
    draws = (rules.alpha, rules.bootstrap, rules.seed, _clusters(counted))
    r, q = (
        estimates.relearning(before, relearned, first, last),
        estimates.quantisation(before, quantised),
    )
    with np.errstate(invalid="ignore"):
        changes = estimates.symmetric(relearned - before, np.full(len(counted), last - first))
    values, groups = _values(unlearned, name), _clusters(unlearned)
    leaks, mean = (
        estimates.rank_correlation(
            values, _back(unlearned, target), rules.alpha, groups, *draws[1:3]
        )
        for target in TARGETS
    )
    declared = next(member.numbers[name] for member in pool if name in member.numbers)
    return Worth(
        name=name,
        larger=declared.larger,
        auc=auc,
        auc_each=_per_question(name, pool, rules),
        one_sided=estimates.robustness(r, q, *draws),
        symmetric=estimates.robustness(changes, estimates.symmetric(before, quantised), *draws),
        kept=len(counted),
        prediction=leaks,
        prediction_mean=mean,
        cost=_cost([costs[part] for part in declared.parts if part in costs], len(declared.parts)),
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
    return estimates.mean_auc_over_questions(
        values, learned, groups, rules.alpha, rules.bootstrap, rules.seed
    )


def _cost(own: Sequence[Cost], needed: int) -> Cost:
    if not own or len(own) < needed:
        return Cost(math.nan, math.nan)
    return Cost(sum(one.seconds for one in own), sum(one.rows for one in own))


def _pairs(
    pool: Sequence[Member], rules: MetaEvaluation
) -> tuple[tuple[PairTest, ...], tuple[str, ...]]:
    sides = {name: _sides(pool, name) for name in rules.headline}
    whole = [name for name, both in sides.items() if not np.isnan(np.concatenate(both)).any()]
    unpaired = tuple(name for name in rules.headline if name not in whole)
    if len(whole) < 2:
        return (), unpaired
    own, other = (np.array([sides[name][side] for name in whole]) for side in (0, 1))
    return estimates.compare_aucs(whole, own, other, rules.alpha), unpaired


def _back(unlearned: Sequence[Member], target: Target) -> list[float]:
    return [one.comes_back.get(target, math.nan) for one in unlearned]


def _claims(
    pool: Sequence[Member], unlearned: Sequence[Member], rules: MetaEvaluation
) -> tuple[ClaimOutcome, ...]:
    """Test every claim by AUC and by prediction of each target, with Holm's correction over all these tests."""
    groups, tests = _clusters(unlearned), []
    for claim in rules.claims:
        pair = (claim.better, claim.than)
        tests.append((AUC, *_by_auc(*(_sides(pool, name) for name in pair))))
        better, than = (_values(unlearned, name) for name in pair)
        for target in TARGETS:
            back = _back(unlearned, target)
            own = estimates.compare_rank_correlations(better, than, back, groups, seed=rules.seed)
            tests.append((target, *own))
    adjusted = estimates.holm_adjusted([p_value for _, _, p_value in tests]).tolist()
    decided = [_decided(*test, own, rules.alpha) for test, own in zip(tests, adjusted, strict=True)]
    each = 1 + len(TARGETS)
    return tuple(
        ClaimOutcome(
            claim.text, claim.better, claim.than, tuple(decided[each * place : each * (place + 1)])
        )
        for place, claim in enumerate(rules.claims)
    )


def _by_auc(better: Sequence[np.ndarray], than: Sequence[np.ndarray]) -> tuple[float, float]:
    pairs = [np.array(pair) for pair in zip(better, than, strict=True)]
    own, other = (pair[:, ~np.isnan(pair).any(axis=0)] for pair in pairs)
    if min(own.shape[1], other.shape[1]) < TWO:
        return math.nan, 1.0
    (test,) = estimates.compare_aucs(("better", "than"), own, other, 0.5)
    return test.difference, test.p_value


def _decided(
    by: str, difference: float, p_value: float, adjusted: float, alpha: float
) -> ClaimTest:
    verdict: Verdict = "not decided"
    if adjusted <= alpha:
        verdict = "supported" if difference > 0 else "contradicted"
    return ClaimTest(by, difference, p_value, adjusted, verdict)
