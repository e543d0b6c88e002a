"""Gaussians and Gaussian mixtures on transformed losses: fit, tail-exact distribution functions, goodness of fit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln, log_ndtr, ndtri

from lethe.errors import BadValue

EM_STEPS = 500
EM_TOLERANCE = 1e-7  # a fit has converged when the gain in mean log-likelihood is below this
FLOOR = 1e-3  # a component is never narrower than this share of the whole sample's standard deviation
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
        """The normal distribution with this mean and standard deviation."""
        return cls(np.ones(1), np.array([mean], float), np.array([sd], float))

    @property
    def point(self) -> float | None:
        """The location of a point mass, or None."""
        return float(self.means[0]) if self.sds[0] == 0 else None

    def mirrored(self) -> Mixture:
        """The distribution of -X: its lower tail is the upper tail of X."""
        return Mixture(self.weights, -self.means, self.sds)

    def log_cdf(self, x: np.ndarray | np.float64) -> np.ndarray:
        """ln P(X <= x), accurate in the lower tail, for any shape of ``x``."""
        return self._sum(log_ndtr(self._z(x)))

    def log_pdf(self, x: np.ndarray | np.float64) -> np.ndarray:
        """The logarithm of the density, for any shape of ``x``."""
        logs = -0.5 * self._z(x) ** 2 - LOG_ROOT_TAU - np.log(self.sds)
        return self._sum(logs)

    def quantile(self, p: float) -> float:
        """The x with P(X <= x) = p, 0 < p < 1, computed in logarithms: exact for p as small as 1e-300."""
        places = self.means + self.sds * ndtri(p)
        low, high = float(places.min()), float(places.max())
        while low < (middle := 0.5 * (low + high)) < high:
            low, high = (middle, high) if self.log_cdf(np.float64(middle)) < np.log(p) else (low, middle)
        return high

    def sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Draw ``n`` values."""
        component = rng.choice(len(self.weights), size=n, p=self.weights)
        return rng.normal(self.means[component], self.sds[component])

    def _sum(self, logs: np.ndarray) -> np.ndarray:
        """ln sum_j weights_j e^(logs_j) over the last axis; one component needs no log-sum."""
        return (
            logs[..., 0] if len(self.weights) == 1 else np.logaddexp.reduce(logs + np.log(self.weights), axis=-1)
        )

    def _z(self, x: np.ndarray | np.float64) -> np.ndarray:
        return (np.asarray(x, float)[..., None] - self.means) / self.sds


@dataclass(frozen=True)
class Fit:
    """The distributions fitted to each side's transformed losses; p-values of `goodness_of_fit` (NaN: too few losses)."""

    train: Mixture
    population: Mixture
    ks_train: float
    ks_population: float


@dataclass(frozen=True)
class Scale:
    """The paper's transform (appendix B): u = (loss - low) / (high - low), phi = -ln(e^(1 + u) - 1).

    phi is the logit of exp(-(1 + u)) and falls as the loss rises. ``low`` and ``high`` are the extremes of both sides
    together, so one outlier moves every value.
    """

    low: float
    high: float

    @classmethod
    def of(cls, train: np.ndarray, population: np.ndarray) -> Scale:
        """The scale of the losses of both sides."""
        return cls(float(min(train.min(), population.min())), float(max(train.max(), population.max())))

    def phi(self, losses: np.ndarray) -> np.ndarray:
        """Transform losses."""
        width = self.high / 2 - self.low / 2  # halves: the difference of two huge losses must not overflow
        u = (losses / 2 - self.low / 2) / width if width > 0 else np.zeros_like(losses)
        return logit(u)

    def loss(self, phi: float) -> float:
        """The loss whose transform is ``phi``; it may lie beyond the observed ones."""
        return self.low + float(np.logaddexp(0, -phi) - 1) * (self.high - self.low)


def logit(u: np.ndarray) -> np.ndarray:
    """logit(exp(-(1 + u))) of normalised losses u."""
    return -np.log(np.expm1(1 + np.asarray(u, float)))


def fit_mixture(values: np.ndarray, components: int = 1) -> Mixture:
    """Fit by maximum likelihood: expectation-maximisation that starts from slices of the sorted values (no randomness).

    A single component has the sample's mean and standard deviation (divisor n). A sample of equal values gives a point
    mass.
    """
    values = np.asarray(values, float)
    if components < 1 or components > len(values):
        raise BadValue("components", components, f"from 1 to the number of losses ({len(values)})")
    spread = float(values.std())
    if components == 1 or spread == 0 or values.min() == values.max():
        return Mixture.normal(values.mean(), 0.0 if values.min() == values.max() else spread)
    slices = np.array_split(np.sort(values), components)
    means = np.array([part.mean() for part in slices])
    sds = np.maximum([part.std() for part in slices], FLOOR * spread)
    weights = np.array([len(part) for part in slices]) / len(values)
    before = -np.inf
    for _ in range(EM_STEPS):
        logs = (
            -0.5 * ((values[:, None] - means) / sds) ** 2 - LOG_ROOT_TAU - np.log(sds) + np.log(weights)
        )  # (n, K)
        top = logs.max(axis=1, keepdims=True)
        shares = np.exp(logs - top)
        total = shares.sum(axis=1, keepdims=True)
        after = float((top + np.log(total)).mean())
        shares /= total
        mass = np.maximum(shares.sum(axis=0), 1e-10 * len(values))
        weights = mass / mass.sum()
        means = shares.T @ values / mass
        variances = (shares * (values[:, None] - means) ** 2).sum(axis=0) / mass
        sds = np.maximum(np.sqrt(variances), FLOOR * spread)
        if after - before < EM_TOLERANCE:
            break
        before = after
    return Mixture(weights, means, sds)


def goodness_of_fit(values: np.ndarray, components: int, n_samples: int, rng: np.random.Generator) -> float:
    """p-value of the paper's test of fit (section 8.2); NaN for too few values.

    A mixture is fitted to the values that are not set aside. The two-sample Kolmogorov-Smirnov test then compares the
    values set aside with as many draws from the mixture. Assumes independent values.

    Parameters
    ----------
    values
        Transformed losses, shape (n,).
    components
        The number of components of the mixture.
    n_samples
        How many values are set aside at random.
    rng
        The source of the choice and of the draws.
    """
    values = np.asarray(values, float)
    if n_samples < 1 or len(values) - n_samples < components:
        return float("nan")
    mixed = rng.permutation(values)
    mixture = fit_mixture(mixed[n_samples:], components)
    return ks_p_value(mixed[:n_samples], mixture.sample(n_samples, rng))


def ks_p_value(a: np.ndarray, b: np.ndarray) -> float:
    """Exact p-value of the two-sided Kolmogorov-Smirnov test of two samples of equal size (n,).

    If h is n times the largest distance between the empirical distribution functions, the p-value is
    2 sum_{j >= 1} (-1)^(j - 1) C(2n, n - jh) / C(2n, n) (Gnedenko and Korolyuk 1951). Ties make it conservative.
    """
    a, b = np.sort(a), np.sort(b)
    n = len(a)
    if len(b) != n or not n:
        raise BadValue("samples", f"{len(a)} and {len(b)}", "two of equal size, not empty")
    both = np.concatenate([a, b])
    h = int(np.abs(np.searchsorted(a, both, side="right") - np.searchsorted(b, both, side="right")).max())
    if h == 0:
        return 1.0
    j = np.arange(1, n // h + 1)
    terms = np.exp(2 * gammaln(n + 1) - gammaln(n - j * h + 1) - gammaln(n + j * h + 1))
    return float(np.clip(2 * np.sum(terms * np.where(j % 2, 1, -1)), 0, 1))
