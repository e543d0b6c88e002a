"""Epsilon*: the privacy of one trained model from its losses (Negoescu et al. 2024), and valid lower bounds."""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np

from lethe.errors import BadValue
from lethe.statistics.bound import Bound, Covers
from lethe.statistics.checks import check
from lethe.statistics.epsilon_star import ratios
from lethe.statistics.epsilon_star.parametric import parametric_epsilon_star

LOWER: dict[str, Callable[..., ratios.LowerBound]] = {
    "split": ratios.split_lower_bound,
    "band": ratios.band_lower_bound,
}


@dataclass(frozen=True)
class EpsilonStarAudit:
    """An estimate of Epsilon* and a lower bound that holds with probability 1 - ``alpha``.

    Infinite values are floats here. JSON stores them as null, so ``infinite`` and ``lower_infinite`` are fields.
    """

    epsilon_star: float
    infinite: bool
    epsilon_lower: float
    lower_infinite: bool
    delta: float
    cut: float | None
    n_train: int
    n_population: int
    threshold: float | None
    ratio: str | None
    method: str
    alpha: float
    lower_method: str
    lower_threshold: float | None
    lower_ratio: str | None
    assumes: str
    note: str | None
    fit: ratios.Fit | None = None

    @property
    def bound(self) -> Bound:
        return Bound(
            self.epsilon_lower, "lower", self.alpha, Covers.MODEL, self.assumes, self.lower_method
        )

    def facts(self) -> dict[str, object]:
        """The fields as plain values; ``fit`` is present only where a law was fitted."""
        return {
            key: value for key, value in asdict(self).items() if key != "fit" or value is not None
        }


def audit(
    train: np.ndarray,
    population: np.ndarray,
    *,
    delta: float,
    method: str = "parametric",
    cut: float | None = None,
    components: int = 1,
    alpha: float = 0.05,
    lower: str = "split",
    train_complete: bool = False,
) -> EpsilonStarAudit:
    """Estimate Epsilon* of one model, and bound it from below; the losses are those of `split_lower_bound`.

    ``method`` is "parametric" (`parametric_epsilon_star`) or "empirical" (`empirical_epsilon_star`), ``lower`` is "split"
    (`split_lower_bound`) or "band" (`band_lower_bound`).
    """
    check(lower in LOWER, "lower", lower, f"one of {', '.join(LOWER)}")
    if method == "parametric":
        estimate = parametric_epsilon_star(train, population, delta, cut, components)
    elif method == "empirical":
        estimate = ratios.empirical_epsilon_star(train, population, delta, cut)
    else:
        raise BadValue("method", method, "parametric or empirical")
    bound = LOWER[lower](train, population, delta, alpha, train_complete)
    same = ("delta", "cut", "n_train", "n_population", "threshold", "ratio", "method", "fit")
    return EpsilonStarAudit(
        epsilon_star=estimate.value,
        infinite=math.isinf(estimate.value),
        epsilon_lower=bound.value,
        lower_infinite=math.isinf(bound.value),
        alpha=bound.alpha,
        assumes=bound.assumes,
        note=_note(estimate, bound),
        **{name: getattr(estimate, name) for name in same},
        **{f"lower_{name}": getattr(bound, name) for name in ("method", "threshold", "ratio")},
    )


def _note(estimate: ratios.EpsilonStar, bound: ratios.LowerBound) -> str | None:
    notes = [estimate.note] if estimate.note else []
    if math.isinf(bound.value):
        notes.append(
            "the lower bound is infinite because the whole training set has no loss beyond some threshold where the "
            "population has more than delta: true of this set, not of the mechanism"
        )
    return "; ".join(notes) or None
