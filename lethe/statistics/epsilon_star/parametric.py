"""Epsilon* from Gaussians (or mixtures) fitted to the transformed losses: the exact supremum over
all thresholds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy.special import log_ndtr, ndtri

from lethe.errors import BadValue
from lethe.statistics.epsilon_star.ratios import (
    INSTANCE,
    NO_THRESHOLD,
    RATIOS,
    EpsilonStar,
    Fit,
    checked,
)
from lethe.statistics.search import halved
from lethe.statistics.two_sample import ks_test

EM_STEPS = 500
EM_TOLERANCE = 1e-7  # a fit has converged when the gain in mean log-likelihood is below this
# A component is never narrower than this share of the whole sample's standard deviation.
FLOOR = 1e-3
LOG_ROOT_TAU = 0.5 * np.log(2 * np.pi)


@dataclass(frozen=True)
class Mixture:
    """sum_j weights_j N(means_j, sds_j^2); arrays (K,). One component is the paper's Gaussian.

    A standard deviation of 0 (only for K = 1) represents a sample whose values are all equal.
    """

    weights: np.ndarray
    means: np.ndarray
    sds: np.ndarray

    @classmethod
    def normal(cls, mean: float, sd: float) -> Mixture:
        """One Gaussian."""
        return cls(np.ones(1), np.array([mean], float), np.array([sd], float))

    @property
    def point(self) -> float | None:
        """The location of a point mass; None for another distribution."""
        if self.sds[0] > 0:
            return None
        return float(self.means[0])

    def mirrored(self) -> Mixture:
        """The distribution of -X: its lower tail is the upper tail of X."""
        return Mixture(self.weights, -self.means, self.sds)

    def log_cdf(self, x: np.ndarray | np.float64) -> np.ndarray:
        """ln P(X <= x), accurate in the lower tail, for any shape of ``x``."""
        return self._sum(log_ndtr(self._z(x)))

    def log_pdf(self, x: np.ndarray | np.float64) -> np.ndarray:
        """ln of the density at ``x``, of any shape."""
        logs = -0.5 * self._z(x) ** 2 - LOG_ROOT_TAU - np.log(self.sds)
        return self._sum(logs)

    def quantile(self, p: float) -> float:
        """The x with P(X <= x) = p, 0 < p < 1, computed in logarithms: exact for p as small as
        1e-300.

        The quantiles of the components bracket it, and a bisection ends at neighbouring doubles.
        """
        places = self.means + self.sds * ndtri(p)
        log_p = np.log(p)

        def is_reached(x: float) -> bool:
            return bool(self.log_cdf(np.float64(x)) >= log_p)

        _, high = halved(is_reached, float(places.min()), float(places.max()))
        return high

    def sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """(n,) independent draws."""
        component = rng.choice(len(self.weights), size=n, p=self.weights)
        return rng.normal(self.means[component], self.sds[component])

    def _sum(self, logs: np.ndarray) -> np.ndarray:
        """ln sum_j weights_j e^(logs_j) over the last axis; one component needs no log-sum."""
        if len(self.weights) == 1:
            return logs[..., 0]
        return np.logaddexp.reduce(logs + np.log(self.weights), axis=-1)

    def _z(self, x: np.ndarray | np.float64) -> np.ndarray:
        """(..., K) the distance of ``x`` from each mean, in standard deviations."""
        return (np.asarray(x, float)[..., None] - self.means) / self.sds


@dataclass(frozen=True)
class Scale:
    """The paper's transform (appendix B): u = (loss - low) / (high - low), phi = -ln(e^(1 + u) -
    1), which falls as the loss rises; ``low`` and ``high`` are the extremes of both sides together.
    """

    low: float
    high: float

    @classmethod
    def of(cls, train: np.ndarray, population: np.ndarray) -> Scale:
        """The scale of the losses of both sides, (n,) each."""
        low = float(min(train.min(), population.min()))
        high = float(max(train.max(), population.max()))
        return cls(low, high)

    def phi(self, losses: np.ndarray) -> np.ndarray:
        """The transforms of the ``losses``, of any shape."""
        # Halves: the difference of two huge losses must not overflow.
        width = self.high / 2 - self.low / 2
        u = np.zeros_like(losses)
        if width > 0:
            u = (losses / 2 - self.low / 2) / width
        return -np.log(np.expm1(1 + u))

    def loss(self, phi: float) -> float:
        """The loss whose transform is ``phi``; it may lie beyond the observed ones."""
        u = float(np.logaddexp(0, -phi) - 1)
        return self.low + u * (self.high - self.low)


def fit_mixture(values: np.ndarray, components: int = 1) -> Mixture:
    """Fit by maximum likelihood: expectation-maximisation that starts from slices of the sorted
    values (no randomness).

    Parameters
    ----------
    values
        (n,) finite numbers.
    components
        From 1 to n.

    Raises
    ------
    BadValue
        For another number of components.
    """
    values = np.asarray(values, float)
    if components < 1 or components > len(values):
        raise BadValue("components", components, f"from 1 to the number of losses ({len(values)})")
    spread = float(values.std())
    if values.min() == values.max():
        return Mixture.normal(values.mean(), 0.0)
    if components == 1 or spread == 0:
        return Mixture.normal(values.mean(), spread)

    # (K,) the start
    slices = np.array_split(np.sort(values), components)
    means = np.array([part.mean() for part in slices])
    sds = np.maximum([part.std() for part in slices], FLOOR * spread)
    weights = np.array([len(part) for part in slices]) / len(values)
    before = -np.inf
    for _ in range(EM_STEPS):
        # (n, K) the expectation: the share of each component in each value.
        distances = (values[:, None] - means) / sds
        logs = -0.5 * distances**2 - LOG_ROOT_TAU - np.log(sds) + np.log(weights)
        top = logs.max(axis=1, keepdims=True)
        shares = np.exp(logs - top)
        total = shares.sum(axis=1, keepdims=True)
        after = float((top + np.log(total)).mean())
        shares /= total

        # The maximisation, with floors against a component that shrinks to a value.
        mass = np.maximum(shares.sum(axis=0), 1e-10 * len(values))
        weights = mass / mass.sum()
        means = shares.T @ values / mass
        variances = (shares * (values[:, None] - means) ** 2).sum(axis=0) / mass
        sds = np.maximum(np.sqrt(variances), FLOOR * spread)

        if after - before < EM_TOLERANCE:
            break
        before = after
    return Mixture(weights, means, sds)


def goodness_of_fit(
    values: np.ndarray, components: int, n_samples: int, rng: np.random.Generator
) -> float:
    """p-value of the paper's test of fit (section 8.2): the Kolmogorov-Smirnov test compares
    ``n_samples`` independent values with as many draws from a mixture fitted to the others; NaN for
    too few values.

    Parameters
    ----------
    values
        (n,) finite numbers.
    components
        Gaussians of the fit.
    n_samples
        Values that are set aside for the test.
    rng
        Draws the split and the sample.
    """
    values = np.asarray(values, float)
    if n_samples < 1 or len(values) - n_samples < components:
        return float("nan")
    mixed = rng.permutation(values)
    mixture = fit_mixture(mixed[n_samples:], components)
    return ks_test(mixed[:n_samples], mixture.sample(n_samples, rng)).p_value


# The largest number of losses per side that are set aside for the goodness-of-fit test.
KS_SAMPLES = 1000
GRID = 2000  # points per component, to bracket the maximum
NORMAL = f"the transformed losses of either side follow the fitted distribution; {INSTANCE}"
FIT_REJECTED = 0.05  # the fit of a side is rejected if its KS p-value is below this
SAME_FIT = 1e-12  # two fits count as equal if their relative difference is below this


def parametric_epsilon_star(
    train: np.ndarray,
    population: np.ndarray,
    delta: float,
    cut: float | None = None,
    components: int = 1,
    seed: int = 0,
) -> EpsilonStar:
    """Epsilon* of the distributions fitted to the transformed losses (Negoescu et al. 2024, section
    3.1 and appendix B).

    An estimate without a guarantee, which assumes that the transformed losses of each side follow
    the fitted distribution. With delta = 0 and no cut it is infinite unless both fits agree.

    Parameters
    ----------
    train, population
        (n,) the losses of the rows that the model was trained on, and of others.
    delta
        In [0, 1).
    cut
        In (0, 0.5): restricts FPR and FNR to [cut, 1 - cut]. The paper cuts at delta, which caps
        the value near ln(1 / delta). None cuts nothing.
    components
        The Gaussians per side; one in the paper.
    seed
        Affects only the p-values of the test of fit.
    """
    train, population, delta = checked(train, population, delta, cut)
    scale = Scale.of(train, population)
    phi = {"train": scale.phi(train), "population": scale.phi(population)}
    fits = {side: fit_mixture(values, components) for side, values in phi.items()}
    rng = np.random.default_rng(seed)
    p_values = {}
    for side, values in phi.items():
        set_aside = min(KS_SAMPLES, len(values) // 2)
        p_values[side] = goodness_of_fit(values, components, set_aside, rng)

    # phi falls as the loss rises; the rule "loss at most tau" needs a rising scale, so mirror.
    members, others = fits["train"].mirrored(), fits["population"].mirrored()
    value, place, ratio = supremum(members, others, delta, cut)
    method = "parametric"
    if components > 1:
        method = f"parametric, mixtures of {components}"
    return EpsilonStar(
        value=value,
        delta=delta,
        cut=cut,
        n_train=len(train),
        n_population=len(population),
        threshold=None if place is None else scale.loss(-place),
        ratio=ratio,
        method=method,
        assumes=NORMAL,
        fit=Fit(
            weights={side: fit.weights.tolist() for side, fit in fits.items()},
            means={side: fit.means.tolist() for side, fit in fits.items()},
            sds={side: fit.sds.tolist() for side, fit in fits.items()},
            ks_p_values=p_values,
        ),
        note=_note(value, delta, cut, p_values),
    )


def supremum(
    train: Mixture, population: Mixture, delta: float, cut: float | None = None
) -> tuple[float, float | None, str | None]:
    """The supremum over all thresholds q of the largest of the four log-ratios, at least 0, for the
    rule "x <= q: member": its value (NaN if the cut leaves no threshold), the threshold that
    attains it (None if none does), and the ratio's name.
    """
    best: tuple[float, float | None, str | None] = (0.0, None, None)

    # Where both rates lie within the cut.
    low, high = -np.inf, np.inf
    if cut is not None:
        if train.point is not None or population.point is not None:
            return float("nan"), None, None  # an FNR or FPR is 0 or 1 everywhere
        low = max(train.quantile(cut), population.quantile(cut))
        high = -max(train.mirrored().quantile(cut), population.mirrored().quantile(cut))
        if not low <= high:
            return float("nan"), None, None

    # The mirror image turns an upper tail into a lower one.
    for ratio in RATIOS:
        top, bottom = train, population
        if ratio.numerator == "population":
            top, bottom = population, train
        if ratio.below:
            value, place = _sup_lower_tail(top, bottom, delta, low, high)
        else:
            value, place = _sup_lower_tail(top.mirrored(), bottom.mirrored(), delta, -high, -low)
            if place is not None:
                place = -place
        if value > best[0]:
            best = (value, place, ratio.name)
    return best


def _sup_lower_tail(
    top: Mixture, bottom: Mixture, delta: float, low: float, high: float
) -> tuple[float, float | None]:
    """The supremum over low <= q <= high of ln((F_top(q) - delta) / F_bottom(q)), and the q that
    attains it.

    The derivative has the sign of f_top / (F_top - delta) - f_bottom / F_bottom. For two Gaussians
    the sign changes at most once from plus to minus, so a grid brackets the maximum and bisection
    finds it. For mixtures the best grid point is refined.
    """
    if top.point is not None or bottom.point is not None:
        return _sup_with_point(top, bottom, delta)
    if delta == 0 and low == -np.inf:
        return (0.0 if _same(top, bottom) else np.inf), None
    start = low
    log_delta = -np.inf
    if delta > 0:
        start = max(low, top.quantile(delta))
        log_delta = np.log(delta)
    end = min(high, max(_far_right(top), _far_right(bottom)))
    if not start < end:
        return -np.inf, None

    def log_top(q: np.ndarray | np.float64) -> np.ndarray:
        """ln(F_top - delta) without a subtraction, so that no digits of the tail are lost."""
        log_f = top.log_cdf(q)
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.log1p(-np.exp(np.minimum(log_delta - log_f, 0)))
            return log_f + np.where(log_f > log_delta, share, -np.inf)

    def is_past_the_peak(place: float) -> bool:
        """Whether the ratio does not rise."""
        q = np.float64(place)
        return not top.log_pdf(q) - log_top(q) > bottom.log_pdf(q) - bottom.log_cdf(q)

    grid = _grid(top, bottom, start, end)
    heights = log_top(grid) - bottom.log_cdf(grid)
    peak = int(np.argmax(heights))

    left, right = float(grid[max(peak - 1, 0)]), float(grid[min(peak + 1, len(grid) - 1)])
    left, right = halved(is_past_the_peak, left, right)
    candidates = np.array([grid[peak], left, right])
    values = log_top(candidates) - bottom.log_cdf(candidates)
    best = int(np.argmax(values))
    return float(values[best]), float(candidates[best])


def _far_right(side: Mixture) -> float:
    """A place beyond which no mass matters."""
    return float((side.means + 10 * side.sds).max())


def _grid(top: Mixture, bottom: Mixture, start: float, end: float) -> np.ndarray:
    """Points from ``start`` to ``end``, evenly spaced on the scale of every component, and denser
    towards ``start``.
    """
    width = end - start
    places = [start + width * np.linspace(0, 1, GRID), start + width * np.logspace(-16, 0, GRID)]
    deviations = np.linspace(-45, 10, GRID)
    for side in (top, bottom):
        for mean, sd in zip(side.means, side.sds, strict=True):
            places.append(mean + sd * deviations)
    return np.unique(np.clip(np.concatenate(places), start, end))


def _sup_with_point(top: Mixture, bottom: Mixture, delta: float) -> tuple[float, float | None]:
    """The same supremum if a side is a point mass, whose distribution function is a step."""
    if bottom.point is not None:
        if top.point is None:  # just below the step the denominator is 0
            log_delta = np.log(delta) if delta > 0 else -np.inf
            below = bool(top.log_cdf(np.float64(bottom.point)) > log_delta)
        else:
            below = top.point < bottom.point
        return (np.inf, None) if below else (float(np.log1p(-delta)), None)
    place = float(top.means[0])  # top is the point mass: one of the two sides is one
    return float(np.log1p(-delta) - bottom.log_cdf(np.float64(place))), place


def _same(a: Mixture, b: Mixture) -> bool:
    """Whether two fits are equal, up to rounding."""
    if a.weights.shape != b.weights.shape:
        return False
    for first, second in ((a.weights, b.weights), (a.means, b.means), (a.sds, b.sds)):
        if not np.allclose(first, second, rtol=SAME_FIT, atol=0):
            return False
    return True


def rejected_sides(p_values: Mapping[str, float | None]) -> list[str]:
    """The sides whose fit the test of fit rejects at `FIT_REJECTED`."""
    return [side for side, p in p_values.items() if p is not None and p < FIT_REJECTED]


def rejected_fit(value: float | None, p_values: Mapping[str, float | None] | None) -> str | None:
    """The words that replace an estimate whose fit is rejected, or for which no threshold lies
    inside the cut (NaN).
    """
    if rejected_sides(p_values or {}):
        return "none: fit rejected"
    if value is not None and np.isnan(value):
        return "undefined"
    return None


def _note(value: float, delta: float, cut: float | None, p_values: dict[str, float]) -> str | None:
    """What the reader of an estimate must know; None if nothing."""
    if np.isnan(value) and cut is not None:
        return NO_THRESHOLD.format(low=cut, high=1 - cut)
    notes = []
    if np.isinf(value) and delta == 0:
        notes.append(
            "with delta = 0, two different fits always give infinity: choose a delta above 0"
        )
    elif np.isinf(value):
        notes.append(
            "one side's transformed losses are all equal, which no Gaussian describes: see the "
            "empirical value"
        )
    rejected = " and ".join(rejected_sides(p_values))
    if rejected:
        notes.append(f"the fit is rejected at 5 % for {rejected}: do not rely on the value")
    return "; ".join(notes) or None
