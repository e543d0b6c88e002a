"""TOFU's aggregate metrics (Maini et al., 2024): truth on the forget set, model utility, forget quality.

Each metric takes one value per row, NaN if missing. Missing values are omitted from the mean and counted, never zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from lethe.errors import BadValue
from lethe.statistics.two_sample import KsTest, ks_test

UTILITY_SETS = ("retain", "real_authors", "world")
AMONG_CHOICES = ("real_authors", "world")  # sets whose probability is relative to the wrong answers


@dataclass(frozen=True)
class Term:
    """Mean over the ``n`` rows with a value; NaN if no row has one."""

    value: float
    n: int
    missing: int


@dataclass(frozen=True)
class Utility:
    """``value`` in [0, 1]: harmonic mean of the terms; NaN if a term has no value."""

    value: float
    terms: dict[str, Term]


def mean_term(values: np.ndarray) -> Term:
    """The mean of the ``values`` that are not NaN, with the numbers of present and missing values."""
    values = np.asarray(values, dtype=np.float64)
    present = values[~np.isnan(values)]
    return Term(float(present.mean()) if len(present) else float("nan"), len(present), len(values) - len(present))


def forget_truth(ratios: np.ndarray) -> Term:
    """Mean min(R, 1 / R) on the forget set: 1 if right and wrong answers are equally likely."""
    with np.errstate(divide="ignore"):
        inverse = 1 / np.asarray(ratios, dtype=np.float64)
    return mean_term(np.minimum(ratios, inverse))


def utility_truth(ratios: np.ndarray) -> Term:
    """Mean max(0, 1 - R) on the other sets: 1 if the wrong answers have negligible probability."""
    return mean_term(np.maximum(0, 1 - np.asarray(ratios, dtype=np.float64)))


def model_utility(sets: Mapping[str, Mapping[str, np.ndarray]]) -> Utility:
    """Harmonic mean of probability, ROUGE-L recall and truth over ``sets`` (Maini et al., 2024)."""
    if not sets:
        raise BadValue("sets", "no sets", "one or more of " + ", ".join(UTILITY_SETS))
    terms = {}
    for name, values in sets.items():
        terms[f"{name}_probability"] = mean_term(values["probability"])
        terms[f"{name}_rouge"] = mean_term(values["rouge"])
        terms[f"{name}_truth"] = utility_truth(values["truth_ratio"])
    return Utility(harmonic_mean(np.array([term.value for term in terms.values()])), terms)


def forget_quality(ratios: np.ndarray, retrain_ratios: np.ndarray) -> KsTest:
    """KS test of the forget set's truth ratios against those of the Retrain model.

    A small p-value means that the test distinguishes the two models. Rows without a ratio are omitted; the result's
    ``n_first`` and ``n_second`` count the remaining rows. Raises `BadValue` if no row remains.
    """
    samples = []
    for name, values in (("truth ratios", ratios), ("truth ratios of Retrain", retrain_ratios)):
        values = np.asarray(values, dtype=np.float64)
        samples.append(values[~np.isnan(values)])
        if not len(samples[-1]):
            raise BadValue(name, "no row with a value", "at least one")
    return ks_test(*samples)


def harmonic_mean(values: np.ndarray) -> float:
    """The harmonic mean of values in [0, 1]: zero if one is zero, NaN if one is NaN."""
    if np.isnan(values).any():
        return float("nan")
    return 0.0 if (values == 0).any() else float(1 / np.mean(1 / values))
