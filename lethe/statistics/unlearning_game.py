"""The unlearning sample inference game: splits, advantage, unlearning quality and its bounds.

A data set D is split into a retain set, a forget set and a test set. The defender trains a model on
the retain and forget sets, unlearns the forget set, and hands the model to an adversary. The
adversary sees one point of the forget or the test set and accepts (says "forget") or rejects. The
adversary's signed advantage on one split is the mean acceptance on the forget set minus the mean
acceptance on the test set. The SWAP test plays the split a second time with the forget and test
sets exchanged, and averages the two signed advantages **before** taking the absolute value.
Knowledge of the points alone, rather than of the model, therefore cancels.

Source: "Towards Reliable Empirical Machine Unlearning Evaluation: A Game-Theoretic View",
Definitions 3.2, 3.7 and 3.11, section 3.3 (SWAP test), Theorems 3.4 and 3.6.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import ClassVar

import numpy as np
from scipy.special import stdtrit

from lethe.errors import BadValue
from lethe.statistics.bound import CERTAIN, Bound, Covers, both_ends, coverage
from lethe.statistics.checks import check, check_count, check_share

ROUNDING = 1e-12  # of a mean of probabilities


@dataclass(frozen=True)
class Split:
    """A split of the points 0..n-1: three disjoint index arrays; forget and test have the same
    size, because unlearning few or many points changes the whole model, which would tell the sets
    apart (paper, appendix A.2).
    """

    retain: np.ndarray
    forget: np.ndarray
    test: np.ndarray

    def __post_init__(self) -> None:
        _equal_sizes(len(self.forget), len(self.test))
        everything = np.concatenate([self.retain, self.forget, self.test])
        if len(np.unique(everything)) != len(everything):
            legal = "retain, forget and test set with no point in common"
            raise BadValue("split", "sets that overlap", legal)

    def swapped(self) -> Split:
        """The split with the forget set and the test set exchanged."""
        return Split(self.retain, self.test, self.forget)

    @property
    def learned(self) -> np.ndarray:
        """The points that the model learns before unlearning: the retain and forget sets, in
        ascending order.
        """
        return np.sort(np.concatenate([self.retain, self.forget]))


def forget_size(n: int, portion: float) -> int:
    """|F| = |T| = floor(n a / (1 + a)), with a = |F| / |R u F| the unlearning portion, 0 < a < 1,
    read as a decimal: the binary number .3 lies below three tenths, and the floor could be off by
    one.
    """
    check_share("portion", portion)
    a = Fraction(repr(float(portion)))
    size = math.floor(n * a / (1 + a))
    if size < 1 or n - 2 * size < 1:
        legal = f"enough points to forget one and retain one at least, at portion {portion}"
        raise BadValue("n", n, legal)
    return size


def draw_split(n: int, portion: float, rng: np.random.Generator) -> Split:
    """Draw one split of n points uniformly among all those that the unlearning portion allows."""
    size = forget_size(n, portion)
    order = rng.permutation(n)
    forget = np.sort(order[:size])
    test = np.sort(order[size : 2 * size])
    return Split(np.sort(order[2 * size :]), forget, test)


def signed_advantage(
    forget: np.ndarray,
    test: np.ndarray,
    forget_weights: np.ndarray | None = None,
    test_weights: np.ndarray | None = None,
) -> float:
    """a_s(A) = E over forget of P[accept] - E over test of P[accept] (Definition 3.11), in [-1, 1];
    without a guarantee.

    The weights are the sensitivity distribution, normalised within each set, and uniform by
    default.

    Parameters
    ----------
    forget, test
        (n,) probabilities of acceptance, of equally many points.
    forget_weights, test_weights
        (n,) finite, at least 0, not all 0.

    Raises
    ------
    BadValue
        If the sets differ in size, or a value is out of its range.
    """
    _equal_sizes(len(forget), len(test))
    on_forget = _mean_acceptance("forget", forget, forget_weights)
    on_test = _mean_acceptance("test", test, test_weights)
    return on_forget - on_test


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A value with its interval over pairs of splits and seeds; the ends are None if a single model,
    or models with one value, give no interval.
    """

    value: float
    ci_low: float | None
    ci_high: float | None
    n_pairs: int
    n_seeds: int
    alpha: float
    method: str
    assumes: str
    side: str = "two-sided"
    COVERS: ClassVar[Covers]

    def bounds(self) -> tuple[Bound, Bound] | None:
        """The lower and the upper end, which hold together at alpha; None where a single model
        gives no interval.
        """
        return self.interval(self.ci_low, self.ci_high, self.alpha, self.assumes, self.method)

    def ends(self) -> dict[str, Bound]:
        """The same by the names of the ends in tables and headlines; empty without an interval."""
        bounds = self.bounds()
        if bounds is None:
            return {}
        lower, upper = bounds
        return {"ci_low": lower, "ci_high": upper}

    @classmethod
    def interval(
        cls,
        low: float | None,
        high: float | None,
        alpha: float,
        assumes: str = "",
        method: str = "",
    ) -> tuple[Bound, Bound] | None:
        """The same from the ends alone, as a headline holds them."""
        if low is None or high is None:
            return None
        return both_ends(low, high, alpha, cls.COVERS, assumes, method)

    @property
    def coverage(self) -> str:
        return coverage(self.alpha)


@dataclass(frozen=True, kw_only=True)
class Advantage(Measured):
    """|mean of the signed advantages| of one adversary."""

    a_original: float
    a_swapped: float
    COVERS = Covers.ATTACK


@dataclass(frozen=True, kw_only=True)
class Quality(Measured):
    """Q = 1 - the largest advantage; the interval holds for all adversaries at once."""

    advantage: float
    attack: str
    by_attack: dict[str, Advantage]
    COVERS = Covers.STRONGEST_ATTACK


def swap_advantage(
    original: np.ndarray, swapped: np.ndarray, *, paired: bool = True, alpha: float = 0.05
) -> Advantage:
    """Adv of the SWAP test from the signed advantages of both halves: |mean over pairs of (a_s +
    a_s') / 2|.

    There is one signed advantage per model, (pairs, seeds); a vector is a single pair of splits.
    The interval is Student's t over the pairs, because the seeds of a pair share its split; of a
    single pair it is over the seeds. It covers the expectation of the signed mean, and hence its
    absolute value. Assumes about normal, independent means. ``paired`` forms one value of the i-th
    seeds of both halves, valid for equal and for independent seeds. Otherwise (one pair only) the
    halves are two independent samples (Welch).

    Parameters
    ----------
    original, swapped
        (pairs, seeds) signed advantages in [-1, 1].
    paired
        Whether the i-th seeds of both halves belong together.
    alpha
        Level of the two-sided interval.

    Raises
    ------
    BadValue
        If paired halves differ in shape.
    """
    original = np.atleast_2d(np.asarray(original, float))
    swapped = np.atleast_2d(np.asarray(swapped, float))
    if paired and original.shape != swapped.shape:
        legal = f"the shape of original, {original.shape} (pairs, seeds)"
        raise BadValue("swapped", swapped.shape, legal)

    if not paired:
        unit = "the seeds of either half"
        half_width = _welch(original.ravel(), swapped.ravel(), alpha)
    elif len(original) > 1:
        unit = "pairs of splits"
        half_width = _student(((original + swapped) / 2).mean(axis=1), alpha)
    else:
        unit = "seeds"
        half_width = _student((original + swapped)[0] / 2, alpha)

    a_original, a_swapped = float(original.mean()), float(swapped.mean())
    value = abs((a_original + a_swapped) / 2)
    low = high = None
    if half_width is not None:
        low, high = max(0.0, value - half_width), min(1.0, value + half_width)
    return Advantage(
        value=value,
        a_original=a_original,
        a_swapped=a_swapped,
        ci_low=low,
        ci_high=high,
        n_pairs=len(original),
        n_seeds=min(original.shape[1], swapped.shape[1]),
        alpha=alpha,
        method="Student t" if paired else "Welch t",
        assumes=f"means over {unit} are about normal and independent",
    )


def unlearning_quality(
    original: Mapping[str, np.ndarray],
    swapped: Mapping[str, np.ndarray],
    *,
    paired: bool = True,
    alpha: float = 0.05,
) -> Quality:
    """Q(U) = 1 - max over the given adversaries of Adv (Definition 3.7) from each adversary's
    signed advantages.

    The interval takes alpha / (number of adversaries) for each (Bonferroni): the strongest is
    chosen on the same numbers.
    """
    if not original or set(original) != set(swapped):
        legal = f"the adversaries of the original half, {sorted(original)}"
        raise BadValue("swapped", sorted(swapped), legal)

    def advantages(level: float) -> dict[str, Advantage]:
        measured = {}
        for name, signed in original.items():
            measured[name] = swap_advantage(signed, swapped[name], paired=paired, alpha=level)
        return measured

    by_attack = advantages(alpha)
    shared = advantages(alpha / len(original))
    attack = max(by_attack, key=lambda name: by_attack[name].value)
    strongest = by_attack[attack]

    low = high = None
    intervals = [advantage.bounds() for advantage in shared.values()]
    ends = [interval for interval in intervals if interval is not None]
    if len(ends) == len(shared):
        low = 1 - max(upper.value for _, upper in ends)
        high = 1 - max(lower.value for lower, _ in ends)
    return Quality(
        value=1 - strongest.value,
        advantage=strongest.value,
        attack=attack,
        by_attack=by_attack,
        ci_low=low,
        ci_high=high,
        n_pairs=strongest.n_pairs,
        n_seeds=strongest.n_seeds,
        alpha=alpha,
        method=f"{strongest.method}, Bonferroni over {len(shared)} adversaries",
        assumes=strongest.assumes,
    )


def _equal_sizes(forget: int, test: int) -> None:
    if forget != test or forget == 0:
        sizes = f"{test} points against {forget} to forget"
        legal = "a test set of the forget set's size, not empty"
        raise BadValue("test set", sizes, legal, "Give a point weight 0 to exclude it.")


def _mean_acceptance(name: str, accept: np.ndarray, weights: np.ndarray | None) -> float:
    accept = np.asarray(accept, float)
    wrong = accept[~((accept >= 0) & (accept <= 1))]
    if wrong.size:
        raise BadValue(f"acceptance on the {name} set", wrong[0], "a number in [0, 1]")
    if weights is None:
        return float(accept.mean())

    weights = np.asarray(weights, float)
    title = f"weights of the {name} set"
    legal = f"one weight per point, {accept.shape}"
    check(weights.shape == accept.shape, title, weights.shape, legal)
    broken = weights[~(np.isfinite(weights) & (weights >= 0))]
    if broken.size or not weights.any():
        value = float(broken[0]) if broken.size else 0.0
        raise BadValue(title, value, "finite and not negative, and not all zero")
    weights = weights / weights.max()  # the sum of the weights may overflow
    shares = weights / weights.sum()
    # Divide by the sum once more, so that the mean of ones is 1 and not 1 - 1e-16.
    return float((accept * shares).sum() / shares.sum())


def _student(values: np.ndarray, alpha: float) -> float | None:
    """Student's half-width for the mean of ``values`` (n,); None for fewer than two different ones: equal values, as of
    copies of a seed, say nothing of other seeds.
    """
    n = len(values)
    if np.ptp(values) <= ROUNDING:
        return None
    return float(-stdtrit(n - 1, alpha / 2) * values.std(ddof=1) / math.sqrt(n))


def _welch(original: np.ndarray, swapped: np.ndarray, alpha: float) -> float | None:
    """Welch's half-width for half the sum of two means; None for fewer than two different values of one."""
    if min(np.ptp(original), np.ptp(swapped)) <= ROUNDING:
        return None
    # Squared standard error of each half's contribution to the mean (a_s + a_s') / 2.
    errors = np.array([half.var(ddof=1) / len(half) / 4 for half in (original, swapped)])
    freedom = errors.sum() ** 2 / (errors**2 / [len(original) - 1, len(swapped) - 1]).sum()
    return float(-stdtrit(freedom, alpha / 2) * math.sqrt(errors.sum()))


@dataclass(frozen=True)
class CertifiedBound:
    """The promise of (epsilon, delta)-certified removal: an upper bound on Adv and a lower bound on
    Q.

    ``paper`` is the bound of Theorem 3.6 as printed, ``sharp`` the tight bound. A bound of 1 or
    more is vacuous.
    """

    sharp: float
    paper: float
    quality_lower: float
    quality_lower_paper: float
    epsilon: float
    delta: float
    vacuous: bool
    paper_vacuous: bool
    assumes: str
    method: str = "certified removal"
    side: str = "upper bound on the advantage of any adversary, lower bound on the quality"

    @property
    def advantage(self) -> Bound:
        return Bound(self.sharp, "upper", CERTAIN, Covers.ADVERSARY, self.assumes, self.method)

    @property
    def advantage_paper(self) -> Bound:
        return replace(self.advantage, value=self.paper)

    @property
    def quality(self) -> Bound:
        value = self.quality_lower
        return Bound(value, "lower", CERTAIN, Covers.ADVERSARY, self.assumes, self.method)


def certified_bound(epsilon: float, delta: float = 0.0) -> CertifiedBound:
    """Bounds on the advantage against an (epsilon, delta)-certified removal method (Definition
    3.5).

    As printed (Theorem 3.6): Adv <= 2 (1 - (2 - 2 delta) / (e^epsilon + 1)), vacuous for epsilon >=
    ln 3. Tight: Adv <= 1 - e^-epsilon (1 - 2 delta), hence Q >= e^-epsilon (1 - 2 delta).
    """
    _check_privacy(epsilon, delta)
    # 2 (1 - 2 / (e^x + 1)) = 2 tanh(x / 2): exact for small epsilon, no overflow for a large one.
    paper = 2 * math.tanh(epsilon / 2) + 4 * delta * math.exp(-epsilon) / (1 + math.exp(-epsilon))
    sharp = min(1.0, -math.expm1(-epsilon) + 2 * delta * math.exp(-epsilon))
    return CertifiedBound(
        sharp=sharp,
        paper=paper,
        quality_lower=1 - sharp,
        quality_lower_paper=max(0.0, 1 - paper),
        epsilon=epsilon,
        delta=delta,
        vacuous=sharp >= 1,
        paper_vacuous=paper >= 1,
        assumes="the removal of the whole forget set is (epsilon, delta)-certified",
    )


def group_bound(epsilon: float, delta: float, records: int) -> CertifiedBound:
    """The bounds of `certified_bound` for learning with (epsilon, delta)-DP per record, without
    unlearning.

    A forget set of k ``records`` has group privacy: (k epsilon, delta (e^(k epsilon) - 1) /
    (e^epsilon - 1)), where neighbours add or remove one record. For practical forget sets and
    budgets the bound is vacuous.

    Parameters
    ----------
    epsilon, delta
        Of learning, per record.
    records
        Size of the forget set, at least 1.
    """
    _check_privacy(epsilon, delta)
    check_count("records", records)
    exponents = epsilon * np.arange(records)
    log_growth = float(exponents.max() + np.log(np.exp(exponents - exponents.max()).sum()))
    group_delta = 0.0
    if delta > 0:
        group_delta = math.exp(min(math.log(delta) + log_growth, 0.0))
    group = certified_bound(records * epsilon, group_delta)
    assumes = (
        f"learning is ({epsilon:g}, {delta:g})-DP for adding or removing one record; a forget "
        f"set of {records} is bounded only through group privacy"
    )
    return replace(group, method=f"group privacy over {records} records", assumes=assumes)


def _check_privacy(epsilon: float, delta: float) -> None:
    check(0 <= epsilon < math.inf, "epsilon", epsilon, "a finite number of at least 0")
    check(0 <= delta <= 1, "delta", delta, "a number in [0, 1]")
