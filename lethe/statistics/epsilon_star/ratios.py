"""The four ratios whose largest logarithm is Epsilon*, from rates or counts, and the result objects.

A point is called a member when its loss is at most a threshold. Let F be the share of losses at or under the threshold,
and S = 1 - F the share above it. The ratios of Negoescu et al. (2024), eq. 7, are (F_train - delta) / F_pop,
(S_pop - delta) / S_train, (S_train - delta) / S_pop and (F_pop - delta) / F_train. A ratio whose numerator is not positive
is ignored; a positive numerator over zero is infinite.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from lethe.errors import BadValue

INSTANCE = (
    "the losses of either side are independent draws from its distribution; the statement is about this one model"
)


class Ratio(NamedTuple):
    """(share of ``numerator``'s losses - delta) / share of the other side's losses, below or above the threshold."""

    name: str
    numerator: str  # "train" | "population"
    below: bool  # whether the shares are at or under the threshold, not above it


RATIOS = (
    Ratio("(TPR - delta) / FPR", "train", True),
    Ratio("(TNR - delta) / FNR", "population", False),
    Ratio("(FNR - delta) / TNR", "train", False),
    Ratio("(FPR - delta) / TPR", "population", True),
)


@dataclass(frozen=True)
class Fit:
    """Each side's mixture components on the transformed losses, and the p-value of the test of fit (NaN: too few losses)."""

    weights: dict[str, list[float]]
    means: dict[str, list[float]]
    sds: dict[str, list[float]]
    ks_p_values: dict[str, float]


@dataclass(frozen=True)
class EpsilonStar:
    """An estimate of Epsilon*, without a guarantee; meaningful only with its ``delta`` and ``cut``.

    ``value`` is infinite if some ratio has no finite supremum, and NaN if the cut leaves no threshold. ``threshold`` is the
    loss that attains the value (None if no loss does, or only in the limit).
    """

    value: float
    delta: float
    cut: float | None
    n_train: int
    n_population: int
    threshold: float | None
    ratio: str | None
    method: str
    side: str = "estimate"
    assumes: str = INSTANCE
    fit: Fit | None = None
    note: str | None = None


@dataclass(frozen=True)
class LowerBound:
    """Epsilon* of the model is at least ``value`` with probability 1 - alpha over the sampled losses."""

    value: float
    alpha: float
    delta: float
    n_train: int
    n_population: int
    threshold: float | None
    ratio: str | None
    method: str
    train_complete: bool
    side: str = "lower"
    assumes: str = INSTANCE


def log_ratios(
    train: tuple[np.ndarray, np.ndarray],
    population: tuple[np.ndarray, np.ndarray],
    delta: float,
    denominators: tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]] | None = None,
) -> np.ndarray:
    """Logarithms of the four ratios, shape (4, k), in the order of `RATIOS`; -inf where a ratio is ignored."""
    above = {"train": train, "population": population}
    under = above if denominators is None else dict(zip(("train", "population"), denominators, strict=True))
    rows = []
    for ratio in RATIOS:
        part = 0 if ratio.below else 1
        numerator = np.asarray(above[ratio.numerator][part], float) - delta
        denominator = np.asarray(under["population" if ratio.numerator == "train" else "train"][part], float)
        with np.errstate(divide="ignore", invalid="ignore"):
            rows.append(np.where(numerator > 0, np.log(numerator) - np.log(denominator), -np.inf))
    return np.array(rows)


def largest(logs: np.ndarray) -> tuple[float, int, int]:
    """The largest entry of `log_ratios`, at least 0, with its row (the ratio) and its column (the threshold)."""
    row, column = np.unravel_index(np.argmax(logs), logs.shape)
    return max(0.0, float(logs[row, column])), int(row), int(column)


def checked_losses(losses: np.ndarray, name: str) -> np.ndarray:
    losses = np.asarray(losses, float).ravel()
    if len(losses) < 2:
        raise BadValue(f"{name} losses", f"{len(losses)} of them", "at least 2")
    if not np.isfinite(losses).all():
        raise BadValue(f"{name} losses", float(losses[~np.isfinite(losses)][0]), "finite numbers")
    return losses


def checked_delta(delta: float) -> float:
    if not 0 <= delta < 1:
        raise BadValue(
            "delta", delta, "a number in [0, 1)", "Choose delta well below 1 / n, for example 1 / (n ln n)."
        )
    return float(delta)


def checked_cut(cut: float | None) -> float | None:
    if cut is not None and not 0 < cut < 0.5:
        raise BadValue("cut", cut, "a number in (0, 0.5)", "Omit the cut for the exact value.")
    return cut


def recommended_delta(n: int) -> float:
    """1 / (n ln n), well below 1 / n, for n >= 3 training points; 1 / n for n = 2, where ln n is below 1."""
    return 1 / (n * max(1.0, math.log(n)))


def empirical_epsilon_star(
    train: np.ndarray, population: np.ndarray, delta: float, cut: float | None = None
) -> EpsilonStar:
    """The exact maximum of the ratios over all observed thresholds (Negoescu et al. 2024, eq. 7): an estimate, biased upward.

    ``cut`` keeps only thresholds whose FPR and FNR lie strictly inside (cut, 1 - cut), in (0, 0.5). The paper's cut of .001
    caps the value near ln(1 / cut).
    """
    train, population = checked_losses(train, "train"), checked_losses(population, "population")
    delta, cut = checked_delta(delta), checked_cut(cut)
    thresholds, below_train, below_population = counts(train, population)
    fnr, fpr = 1 - below_train / len(train), below_population / len(population)
    if cut is not None:
        inside = (fpr > cut) & (fpr < 1 - cut) & (fnr > cut) & (fnr < 1 - cut)
        thresholds, below_train, below_population = (
            thresholds[inside],
            below_train[inside],
            below_population[inside],
        )

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
