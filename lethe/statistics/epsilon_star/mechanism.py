"""Epsilon* of a training mechanism from several of its models (Negoescu et al. 2024, appendix A)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lethe.errors import BadValue
from lethe.statistics.betting import mean_lower
from lethe.statistics.epsilon_star.ratios import (
    RATIOS,
    checked_alpha,
    checked_delta,
    checked_losses,
    empirical_epsilon_star,
    largest,
    log_ratios,
)

QUANTILES = 1000  # the largest number of compared FPRs
FEWEST = 4  # instances for a lower bound: two for the choice, two for the certificate
MECHANISM = (
    "training sets, training and populations of the instances are independent; records are exchanged one for one"
)

Losses = Sequence[tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class Mechanism:
    """``value`` estimates eps-bar (eq. 19); ``jensen_upper`` estimates ln E[e^(Epsilon*)], an upper bound of eps-bar.

    Neither bounds the mechanism's epsilon from below. ``lower`` does, with probability 1 - alpha; ``lower`` is None, with
    a ``reason``, if no claim is possible.
    """

    value: float
    jensen_upper: float
    lower: float | None
    reason: str | None
    alpha: float
    delta: float
    instances: int
    fpr: float | None
    ratio: str | None
    method: str = "mean FNR at equal FPR"
    assumes: str = MECHANISM


def mechanism_epsilon(
    instances: Losses, delta: float, alpha: float = 0.05, fresh_training_sets: bool = False, seed: int = 0
) -> Mechanism:
    """Compute eps-bar: Epsilon* at the FNR averaged over independently trained instances at equal FPR.

    Parameters
    ----------
    instances : sequence of pairs of arrays
        The training losses and the population losses of each model; at least one model.
    delta : float
        The delta of Epsilon*, in [0, 1).
    alpha : float
        Error probability of the lower bound, strictly between 0 and 1.
    fresh_training_sets : bool
        Whether each model was trained on an independent draw of the training set. Otherwise no claim about the mechanism is
        made.
    seed : int
        Splits the populations: one half sets the thresholds, the other evaluates them.

    Returns
    -------
    Mechanism
        The estimates, and a lower bound or the reason why there is none.

    Raises
    ------
    BadValue
        If an argument lies outside its range.

    Notes
    -----
    Source: Negoescu et al. (2024), appendix A, eq. 19. The lower bound fixes the rate and the ratio on the first half of the
    instances, and bounds both means over the other half by betting, at alpha / 2 each.
    """
    checked = [(checked_losses(a, "train"), checked_losses(b, "population")) for a, b in instances]
    delta, alpha = checked_delta(delta), checked_alpha(alpha)
    if not checked:
        raise BadValue("instances", 0, "at least one")
    fpr, fnr = rates([(train, population, population) for train, population in checked])
    mean_fpr, mean_fnr = fpr.mean(axis=0), fnr.mean(axis=0)
    value, row, column = largest(log_ratios((1 - mean_fnr, mean_fnr), (mean_fpr, 1 - mean_fpr), delta))
    singles = np.array([empirical_epsilon_star(*losses, delta).value for losses in checked])
    lower, reason = None, None
    if not fresh_training_sets:
        reason = (
            "every instance was trained on the same training set, so the effect of the training set is unknown"
        )
    elif len(checked) < FEWEST:
        reason = (
            f"{len(checked)} instances are too few for an interval over instances; at least {FEWEST} are needed"
        )
    else:
        lower = _certify(checked, delta, alpha, np.random.default_rng(seed))
    return Mechanism(
        value=value,
        jensen_upper=float(np.logaddexp.reduce(singles) - math.log(len(singles))),
        lower=lower,
        reason=reason,
        alpha=alpha,
        delta=delta,
        instances=len(checked),
        fpr=float(mean_fpr[column]) if value > 0 else None,
        ratio=RATIOS[row].name if value > 0 else None,
    )


def rates(instances: Sequence[tuple[np.ndarray, np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """(FPR, FNR) of each instance at equal quantiles of the population, arrays (instances, quantiles).

    An instance is (training losses, population losses that set the thresholds, population losses that evaluate them).
    """
    points = min(QUANTILES, *(len(setting) for _, setting, _ in instances))
    levels = np.arange(1, points + 1) / points
    fpr, fnr = [], []
    for train, setting, judged in instances:
        places = np.ceil(levels * len(setting) - 1e-9).astype(int) - 1
        thresholds = np.sort(setting)[places]
        fpr.append(np.searchsorted(np.sort(judged), thresholds, side="right") / len(judged))
        fnr.append(1 - np.searchsorted(np.sort(train), thresholds, side="right") / len(train))
    return np.array(fpr), np.array(fnr)


def _certify(instances: Losses, delta: float, alpha: float, rng: np.random.Generator) -> float:
    parts = []
    for train, population in instances:
        mixed = rng.permutation(population)
        parts.append((train, mixed[: len(mixed) // 2], mixed[len(mixed) // 2 :]))
    points = min(len(setting) for _, setting, _ in parts)
    if points < 1:
        raise BadValue("population losses", points, "at least 2 in each instance")
    fpr, fnr = rates(parts)
    half = len(parts) // 2
    _, row, column = largest(_log_bounds(fpr[:half], fnr[:half], delta, alpha))
    bounds = _log_bounds(fpr[half:, [column]], fnr[half:, [column]], delta, alpha)
    return max(0.0, float(bounds[row, 0]))


def _log_bounds(fpr: np.ndarray, fnr: np.ndarray, delta: float, alpha: float) -> np.ndarray:
    """`log_ratios` of means over instances, with betting bounds: numerators from below, denominators from above."""
    least = {name: mean_lower(x.T, alpha / 2) for name, x in (("fpr", fpr), ("fnr", fnr))}
    most = {name: 1 - mean_lower(1 - x.T, alpha / 2) for name, x in (("fpr", fpr), ("fnr", fnr))}
    train, population = (1 - most["fnr"], least["fnr"]), (least["fpr"], 1 - most["fpr"])
    return log_ratios(
        train,
        population,
        delta,
        denominators=((1 - least["fnr"], most["fnr"]), (most["fpr"], 1 - least["fpr"])),
    )
