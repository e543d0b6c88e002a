"""Epsilon* from the empirical distributions of the losses."""

from __future__ import annotations

import numpy as np

from lethe.statistics.epsilon_star.ratios import (
    RATIOS,
    EpsilonStar,
    checked_cut,
    checked_delta,
    checked_losses,
    largest,
    log_ratios,
)


def empirical_epsilon_star(
    train: np.ndarray, population: np.ndarray, delta: float, cut: float | None = None
) -> EpsilonStar:
    """The exact maximum of the ratios over all observed thresholds (Negoescu et al. 2024, eq. 7).

    Parameters
    ----------
    train, population : arrays of shape (n,) and (m,)
        Losses of members and of non-members: at least two each, all finite.
    delta : float
        The delta of Epsilon*, in [0, 1).
    cut : float, optional
        Keeps only thresholds whose FPR and FNR lie strictly inside (cut, 1 - cut), in (0, 0.5). The paper's cut of .001 caps
        the value near ln(1 / cut).

    Returns
    -------
    EpsilonStar
        An estimate without a guarantee, biased upward; see `split_lower_bound` for a bound.

    Raises
    ------
    BadValue
        If an argument lies outside its range.
    """
    train, population = checked_losses(train, "train"), checked_losses(population, "population")
    delta, cut = checked_delta(delta), checked_cut(cut)
    thresholds, below_train, below_population = counts(train, population)
    fnr, fpr = 1 - below_train / len(train), below_population / len(population)
    if cut is not None:
        kept = (fpr > cut) & (fpr < 1 - cut) & (fnr > cut) & (fnr < 1 - cut)
        thresholds, below_train, below_population = thresholds[kept], below_train[kept], below_population[kept]

    def estimate(value: float, threshold: float | None, ratio: str | None, note: str | None) -> EpsilonStar:
        return EpsilonStar(
            value, delta, cut, len(train), len(population), threshold, ratio, method="empirical", note=note
        )

    if cut is not None and not len(thresholds):
        note = f"no threshold has FPR and FNR inside ({cut:g}, {1 - cut:g}): lower the cut or omit it"
        return estimate(np.nan, None, None, note)
    logs = log_ratios(shares(below_train, len(train)), shares(below_population, len(population)), delta)
    value, row, column = largest(logs)
    note = "a ratio has a zero denominator: beyond some loss, all losses belong to one side"
    if value <= 0:
        return estimate(value, None, None, None)
    return estimate(value, float(thresholds[column]), RATIOS[row].name, note if np.isinf(value) else None)


def counts(train: np.ndarray, population: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return every observed loss as a threshold, ascending, and each side's number of losses at or under the threshold."""
    train, population = np.sort(train), np.sort(population)
    thresholds = np.sort(np.concatenate([train, population]), kind="stable")
    return (
        thresholds,
        np.searchsorted(train, thresholds, side="right"),
        np.searchsorted(population, thresholds, side="right"),
    )


def shares(below: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Convert counts at or under thresholds to the pair of shares that `log_ratios` takes."""
    return below / n, (n - below) / n
