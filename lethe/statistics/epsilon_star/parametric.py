"""Epsilon* from Gaussians (or mixtures) fitted to the transformed losses: the exact supremum over all thresholds."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from lethe.statistics.epsilon_star.gaussian import Fit, Mixture, Scale, fit_mixture, goodness_of_fit
from lethe.statistics.epsilon_star.ratios import (
    INSTANCE,
    RATIOS,
    EpsilonStar,
    checked_cut,
    checked_delta,
    checked_losses,
)

KS_SAMPLES = 1000  # the largest number of losses per side that are set aside for the goodness-of-fit test
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
    """Epsilon* of the distributions fitted to the transformed losses (Negoescu et al. 2024, section 3.1 and appendix B).

    Parameters
    ----------
    train, population, delta
        As in `split_lower_bound`.
    cut : float, optional
        Restricts FPR and FNR to [cut, 1 - cut], in (0, 0.5). The paper cuts at delta, which caps the value near
        ln(1 / delta). Without a cut the supremum is exact; with delta = 0 it is infinite unless both fits agree.
    components : int
        Gaussians per side; the paper fits one.
    seed : int
        Affects only the p-values of the goodness-of-fit test.

    Returns
    -------
    EpsilonStar
        An estimate without a guarantee, and the fit behind it.

    Raises
    ------
    BadValue
        If an argument lies outside its range.

    Notes
    -----
    Assumes that the transformed losses of each side follow the fitted distribution.
    """
    train, population = checked_losses(train, "train"), checked_losses(population, "population")
    delta, cut = checked_delta(delta), checked_cut(cut)
    scale = Scale.of(train, population)
    phi = {"train": scale.phi(train), "population": scale.phi(population)}
    rng = np.random.default_rng(seed)
    fits = {side: fit_mixture(values, components) for side, values in phi.items()}
    p_values = {
        side: goodness_of_fit(values, components, min(KS_SAMPLES, len(values) // 2), rng)
        for side, values in phi.items()
    }
    # phi falls as the loss rises; the rule "loss at most tau" needs a rising scale, so mirror.
    value, place, ratio = supremum(fits["train"].mirrored(), fits["population"].mirrored(), delta, cut)
    return EpsilonStar(
        value=value,
        delta=delta,
        cut=cut,
        n_train=len(train),
        n_population=len(population),
        threshold=None if place is None else scale.loss(-place),
        ratio=ratio,
        method="parametric" if components == 1 else f"parametric, mixtures of {components}",
        assumes=NORMAL,
        fit=Fit(fits["train"], fits["population"], p_values["train"], p_values["population"]),
        note=_note(value, delta, cut, p_values),
    )


def supremum(
    train: Mixture, population: Mixture, delta: float, cut: float | None = None
) -> tuple[float, float | None, str | None]:
    """The supremum over all thresholds q of the largest of the four log-ratios, at least 0, for the rule "x <= q: member".

    Returns the value (NaN if the cut leaves no threshold), the threshold that attains the value (None if none does, or only
    in the limit), and the name of the ratio. Mirroring turns shares above a threshold into shares below one.

    Parameters
    ----------
    train, population
        The fitted distributions of the losses.
    delta
        The delta of Epsilon*, in [0, 1).
    cut
        Only thresholds whose FPR and FNR lie in [cut, 1 - cut] count; None for all.
    """
    best: tuple[float, float | None, str | None] = (0.0, None, None)
    window = (-np.inf, np.inf)
    if cut is not None:
        sides = (train, population)
        if any(side.point is not None for side in sides):  # its FNR or FPR is 0 or 1 everywhere
            return float("nan"), None, None
        lowest = max(side.quantile(cut) for side in sides)
        highest = -max(side.mirrored().quantile(cut) for side in sides)
        if not lowest <= highest:
            return float("nan"), None, None
        window = (lowest, highest)
    for ratio in RATIOS:
        top, bottom = (train, population) if ratio.numerator == "train" else (population, train)
        if ratio.below:
            value, place = _sup_lower_tail(top, bottom, delta, *window)
        else:
            value, place = _sup_lower_tail(top.mirrored(), bottom.mirrored(), delta, -window[1], -window[0])
            place = None if place is None else -place
        if value > best[0]:
            best = (value, place, ratio.name)
    return best


def _sup_lower_tail(
    top: Mixture, bottom: Mixture, delta: float, low: float, high: float
) -> tuple[float, float | None]:
    """The supremum over low <= q <= high of ln((F_top(q) - delta) / F_bottom(q)), and the q that attains it.

    The derivative has the sign of f_top / (F_top - delta) - f_bottom / F_bottom. For two Gaussians the sign changes at most
    once from plus to minus, so a grid brackets the maximum and bisection finds it. For mixtures the best grid point is
    refined.
    """
    if top.point is not None or bottom.point is not None:
        return _sup_with_point(top, bottom, delta)
    if delta == 0 and low == -np.inf:
        return (0.0 if _same(top, bottom) else np.inf), None
    start = low if delta == 0 else max(low, top.quantile(delta))
    end = min(high, max(float((side.means + 10 * side.sds).max()) for side in (top, bottom)))
    if not start < end:
        return -np.inf, None
    log_delta = np.log(delta) if delta > 0 else -np.inf

    def log_top(q: np.ndarray | np.float64) -> np.ndarray:
        """ln(F_top - delta) without a subtraction, so that no digits of the tail are lost."""
        log_f = top.log_cdf(q)
        with np.errstate(divide="ignore", invalid="ignore"):
            return log_f + np.where(
                log_f > log_delta, np.log1p(-np.exp(np.minimum(log_delta - log_f, 0))), -np.inf
            )

    def rising(q: np.float64) -> np.bool:
        return top.log_pdf(q) - log_top(q) > bottom.log_pdf(q) - bottom.log_cdf(q)

    grid = _grid(top, bottom, start, end)
    heights = log_top(grid) - bottom.log_cdf(grid)
    peak = int(np.argmax(heights))
    left, right = float(grid[max(peak - 1, 0)]), float(grid[min(peak + 1, len(grid) - 1)])
    while left < (middle := 0.5 * (left + right)) < right:
        left, right = (middle, right) if rising(np.float64(middle)) else (left, middle)
    candidates = np.array([grid[peak], left, right])
    values = log_top(candidates) - bottom.log_cdf(candidates)
    found = int(np.argmax(values))
    return float(values[found]), float(candidates[found])


def _grid(top: Mixture, bottom: Mixture, start: float, end: float) -> np.ndarray:
    """Points from ``start`` to ``end``, evenly spaced on the scale of every component, and denser towards ``start``."""
    width = end - start
    places = [start + width * np.linspace(0, 1, GRID), start + width * np.logspace(-16, 0, GRID)]
    for side in (top, bottom):
        places += [mean + sd * np.linspace(-45, 10, GRID) for mean, sd in zip(side.means, side.sds, strict=True)]
    return np.unique(np.clip(np.concatenate(places), start, end))


def _sup_with_point(top: Mixture, bottom: Mixture, delta: float) -> tuple[float, float | None]:
    """The same supremum if a side is a point mass, whose distribution function is a step."""
    if bottom.point is not None:
        # Just below the step the denominator is 0.
        below = (
            top.point < bottom.point
            if top.point is not None
            else top.log_cdf(np.float64(bottom.point)) > _log(delta)
        )
        return (np.inf, None) if below else (float(np.log1p(-delta)), None)
    place = float(top.means[0])  # top is the point mass: one of the two sides is one
    return float(np.log1p(-delta) - bottom.log_cdf(np.float64(place))), place


def _log(x: float) -> float:
    return float(np.log(x)) if x > 0 else -np.inf


def _same(a: Mixture, b: Mixture) -> bool:
    return a.weights.shape == b.weights.shape and all(
        np.allclose(getattr(a, name), getattr(b, name), rtol=SAME_FIT, atol=0)
        for name in ("weights", "means", "sds")
    )


def rejected_sides(p_values: Mapping[str, float | None]) -> list[str]:
    """The sides whose fit is rejected. An estimate from a rejected fit is meaningless."""
    return [side for side, p in p_values.items() if p is not None and p < FIT_REJECTED]


def rejected_fit(value: float | None, p_values: Mapping[str, float | None] | None) -> str | None:
    """The words that replace a meaningless estimate; None for an estimate that may be shown.

    An estimate is meaningless if the fit is rejected (``p_values`` of the goodness-of-fit test, by side), or if no threshold
    lies inside the cut (``value`` is NaN).
    """
    if rejected_sides(p_values or {}):
        return "none: fit rejected"
    return "undefined" if value is not None and np.isnan(value) else None


def _note(value: float, delta: float, cut: float | None, p_values: dict[str, float]) -> str | None:
    if np.isnan(value) and cut is not None:
        return f"no threshold has FPR and FNR inside ({cut:g}, {1 - cut:g}): lower the cut or omit it"
    notes = []
    if np.isinf(value):
        notes.append(
            "with delta = 0, two different fits always give infinity: choose a delta above 0"
            if delta == 0
            else "one side's transformed losses are all equal, which no Gaussian describes: see the empirical value"
        )
    rejected = rejected_sides(p_values)
    if rejected:
        notes.append(f"the fit is rejected at 5 % for {' and '.join(rejected)}: do not rely on the value")
    return "; ".join(notes) or None
