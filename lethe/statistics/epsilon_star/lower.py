"""Lower bounds that hold with probability 1 - alpha: of a model's Epsilon*, and of a training mechanism's from several
models.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from lethe.errors import BadValue
from lethe.statistics.bands import LARGEST_BERK_JONES, berk_jones, berk_jones_eta, dkw
from lethe.statistics.bounds import binary_lower
from lethe.statistics.checks import check_share
from lethe.statistics.epsilon_star.ratios import (
    INSTANCE,
    RATIOS,
    LowerBound,
    checked_delta,
    checked_losses,
    counts,
    empirical_epsilon_star,
    largest,
    log_ratios,
    shares,
)

COMPLETE = (
    "the training losses are those of the whole training set, so that its shares are known and not estimated; "
    "the population's losses are independent draws; the statement is about this one model"
)


def split_lower_bound(
    train: np.ndarray,
    population: np.ndarray,
    delta: float,
    alpha: float = 0.05,
    train_complete: bool = False,
    seed: int = 0,
) -> LowerBound:
    """Choose a threshold and a ratio on one half of the losses, and certify them on the other half; ``seed`` splits them.

    The losses of members and of non-members, at least two each and all finite, are independent on each side. The
    certificate is two Clopper-Pearson bounds at alpha / 2 each. With ``train_complete``, where ``train`` holds the losses
    of the whole training set, its shares are exact: they are not split, and the remaining bound takes alpha. The choice
    maximises the same bound in Wilson's approximation; a poor choice loosens the bound but keeps it valid.
    """
    train, population = checked_losses(train, "train"), checked_losses(population, "population")
    delta = checked_delta(delta)
    check_share("alpha", alpha)
    level = alpha if train_complete else alpha / 2
    rng = np.random.default_rng(seed)
    choose_train, certify_train = (train, train) if train_complete else _halves(train, rng)
    choose_population, certify_population = _halves(population, rng)

    thresholds, below_train, below_population = counts(choose_train, choose_population)
    chosen_train = (
        _known(below_train, len(choose_train))
        if train_complete
        else _wilson(below_train, len(choose_train), level)
    )
    logs = _log_bounds(chosen_train, _wilson(below_population, len(choose_population), level), delta)
    _, row, column = largest(logs)
    threshold = float(thresholds[column])

    k_train, k_population = (np.array([(side <= threshold).sum()]) for side in (certify_train, certify_population))
    side_train = (
        _known(k_train, len(certify_train))
        if train_complete
        else _clopper_pearson(k_train, len(certify_train), level)
    )
    side_population = _clopper_pearson(k_population, len(certify_population), level)
    value = max(0.0, float(_log_bounds(side_train, side_population, delta)[row, 0]))
    assumes = COMPLETE if train_complete else INSTANCE
    method, sizes = "split, Clopper-Pearson", (len(train), len(population))
    return LowerBound(
        value, alpha, delta, *sizes, threshold, RATIOS[row].name, method, train_complete, assumes=assumes
    )


def band_lower_bound(
    train: np.ndarray,
    population: np.ndarray,
    delta: float,
    alpha: float = 0.05,
    train_complete: bool = False,
    band: str = "auto",
) -> LowerBound:
    """Bound the largest ratio over all thresholds from below, by simultaneous bands on both distribution functions.

    Assumes independent losses on each side. The bands hold at all thresholds at once, two-sided at alpha / 2 each. The
    threshold may therefore be chosen on the same losses, and no loss is set aside. With ``train_complete`` the remaining
    band takes alpha. ``band`` is "dkw", of one width everywhere, "berk-jones", far narrower in the tails, where the ratios
    are large, or "auto": Berk-Jones if its level is solved in seconds (each side has at most `LARGEST_BERK_JONES` losses),
    else DKW. The other parameters are those of `split_lower_bound`.
    """
    train, population = checked_losses(train, "train"), checked_losses(population, "population")
    delta = checked_delta(delta)
    check_share("alpha", alpha)
    if band not in ("auto", *BANDS):
        raise BadValue("band", band, f"one of auto, {', '.join(BANDS)}")
    if band == "auto":
        estimated = [population] if train_complete else [train, population]
        band = "berk-jones" if max(map(len, estimated)) <= LARGEST_BERK_JONES else "dkw"
    name, bounds = BANDS[band]
    level = alpha if train_complete else alpha / 2
    thresholds, k_train, k_population = counts(train, population)
    side_train = _known(k_train, len(train)) if train_complete else bounds(k_train, len(train), level)
    side_population = bounds(k_population, len(population), level)
    value, row, column = largest(_log_bounds(side_train, side_population, delta))
    assumes = COMPLETE if train_complete else INSTANCE
    threshold, ratio = (float(thresholds[column]), RATIOS[row].name) if value > 0 else (None, None)
    sizes, method = (len(train), len(population)), f"band, {name}"
    return LowerBound(value, alpha, delta, *sizes, threshold, ratio, method, train_complete, assumes=assumes)


# Bounds of shares, arrays (k,): (lower bounds (at or under, above), upper bounds (at or under, above)).
Bounds = tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]


def _log_bounds(train: Bounds, population: Bounds, delta: float) -> np.ndarray:
    """`log_ratios` of lower bounds of the numerators and upper bounds of the denominators."""
    return log_ratios(train[0], population[0], delta, denominators=(train[1], population[1]))


def _halves(losses: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    mixed = rng.permutation(losses)
    return mixed[: len(mixed) // 2], mixed[len(mixed) // 2 :]


def _known(k: np.ndarray, n: int) -> Bounds:
    return shares(k, n), shares(k, n)


def _clopper_pearson(k: np.ndarray, n: int, level: float) -> Bounds:
    """One-sided bounds, each at ``level``, of the shares at or under a threshold and above it; k of n lie at or under."""
    below, above = binary_lower(k, n, level), binary_lower(n - k, n, level)
    return (below, above), (1 - above, 1 - below)


def _wilson(k: np.ndarray, n: int, level: float) -> Bounds:
    """Wilson's score bounds: close to Clopper-Pearson, and fast enough for millions of thresholds."""
    z = -ndtri(level)
    centre = (k + z * z / 2) / (n + z * z)
    reach = z / (n + z * z) * np.sqrt(k * (n - k) / n + z * z / 4)
    lower, upper = np.maximum(centre - reach, 0.0), np.minimum(centre + reach, 1.0)
    return (lower, 1 - upper), (upper, 1 - lower)


def _dkw(k: np.ndarray, n: int, level: float) -> Bounds:
    """The two-sided Dvoretzky-Kiefer-Wolfowitz band at ``level``, at every threshold at once."""
    e = dkw(n, level, sides=2)
    below, above = shares(k, n)
    return (np.maximum(below - e, 0), np.maximum(above - e, 0)), (
        np.minimum(below + e, 1),
        np.minimum(above + e, 1),
    )


def _berk_jones(k: np.ndarray, n: int, level: float) -> Bounds:
    """The Berk-Jones band: a one-sided band at ``level`` / 2 for the shares under thresholds, and one for those above."""
    least = np.concatenate([[0.0], berk_jones(n, berk_jones_eta(n, level / 2))])
    return (least[k], least[n - k]), (1 - least[n - k], 1 - least[k])


BANDS = {"berk-jones": ("Berk-Jones", _berk_jones), "dkw": ("DKW", _dkw)}

QUANTILES = 1000  # the largest number of compared FPRs
INDEPENDENT = (
    "training sets, training and populations of the instances are independent; records are exchanged one for one"
)


@dataclass(frozen=True)
class Mechanism:
    """``value`` estimates eps-bar (eq. 19); ``jensen_upper`` estimates ln E[e^(Epsilon*)], an upper bound of eps-bar.

    Neither bounds the mechanism's epsilon from below.
    """

    value: float
    jensen_upper: float
    delta: float
    instances: int
    fpr: float | None
    ratio: str | None
    method: str = "mean FNR at equal FPR"
    assumes: str = INDEPENDENT


def mechanism_epsilon(instances: Sequence[tuple[np.ndarray, np.ndarray]], delta: float) -> Mechanism:
    """Compute eps-bar: Epsilon* at the FNR averaged over independently trained instances at equal FPR.

    Source: Negoescu et al. (2024), appendix A, eq. 19. An instance is a model's training losses and population losses.
    """
    checked = [(checked_losses(a, "train"), checked_losses(b, "population")) for a, b in instances]
    delta = checked_delta(delta)
    if not checked:
        raise BadValue("instances", 0, "at least one")
    fpr, fnr = rates(checked)
    mean_fpr, mean_fnr = fpr.mean(axis=0), fnr.mean(axis=0)
    value, row, column = largest(log_ratios((1 - mean_fnr, mean_fnr), (mean_fpr, 1 - mean_fpr), delta))
    singles = np.array([empirical_epsilon_star(*losses, delta).value for losses in checked])
    return Mechanism(
        value=value,
        jensen_upper=float(np.logaddexp.reduce(singles) - math.log(len(singles))),
        delta=delta,
        instances=len(checked),
        fpr=float(mean_fpr[column]) if value > 0 else None,
        ratio=RATIOS[row].name if value > 0 else None,
    )


def rates(instances: Sequence[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """(FPR, FNR) of each instance at equal quantiles of its population, arrays (instances, quantiles)."""
    points = min(QUANTILES, *(len(population) for _, population in instances))
    levels = np.arange(1, points + 1) / points
    fpr, fnr = [], []
    for train, population in instances:
        ordered = np.sort(population)
        thresholds = ordered[np.ceil(levels * len(population) - 1e-9).astype(int) - 1]
        fpr.append(np.searchsorted(ordered, thresholds, side="right") / len(population))
        fnr.append(1 - np.searchsorted(np.sort(train), thresholds, side="right") / len(train))
    return np.array(fpr), np.array(fnr)
