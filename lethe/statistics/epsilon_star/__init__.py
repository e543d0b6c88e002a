"""Epsilon*: the privacy of one trained model from its losses (Negoescu et al. 2024), and valid
lower bounds.
"""

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

    Infinite values are floats here. JSON stores them as null, so ``infinite`` and
    ``lower_infinite`` are fields.
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
        value = self.epsilon_lower
        return Bound(value, "lower", self.alpha, Covers.MODEL, self.assumes, self.lower_method)

    def facts(self) -> dict[str, object]:
        """The fields as plain values; ``fit`` is present only where a law was fitted."""
        facts = asdict(self)
        if self.fit is None:
            del facts["fit"]
        return facts


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
    """Estimate Epsilon* of one model, and bound it from below; the losses are those of
    `split_lower_bound`.

    ``method`` is "parametric" (`parametric_epsilon_star`) or "empirical"
    (`empirical_epsilon_star`), ``lower`` is "split" (`split_lower_bound`) or "band"
    (`band_lower_bound`).

    Parameters
    ----------
    train, population
        (n,) and (m,) finite losses of one model, at least two each.
    delta
        In [0, 1).
    cut
        Restricts FPR and FNR to [cut, 1 - cut], in (0, 0.5).
    components
        Gaussians of each side's fit; "parametric" alone.
    alpha
        Level of the lower bound, in (0, 1).
    train_complete
        Whether ``train`` holds the whole training set.

    Raises
    ------
    BadValue
        If a loss is not finite or a parameter is out of its range.
    """
    check(lower in LOWER, "lower", lower, f"one of {', '.join(LOWER)}")
    if method == "parametric":
        estimate = parametric_epsilon_star(train, population, delta, cut, components)
    elif method == "empirical":
        estimate = ratios.empirical_epsilon_star(train, population, delta, cut)
    else:
        raise BadValue("method", method, "parametric or empirical")
    bound = LOWER[lower](train, population, delta, alpha, train_complete)
    return EpsilonStarAudit(
        epsilon_star=estimate.value,
        infinite=math.isinf(estimate.value),
        epsilon_lower=bound.value,
        lower_infinite=math.isinf(bound.value),
        delta=estimate.delta,
        cut=estimate.cut,
        n_train=estimate.n_train,
        n_population=estimate.n_population,
        threshold=estimate.threshold,
        ratio=estimate.ratio,
        method=estimate.method,
        alpha=bound.alpha,
        lower_method=bound.method,
        lower_threshold=bound.threshold,
        lower_ratio=bound.ratio,
        assumes=bound.assumes,
        note=_note(estimate, bound),
        fit=estimate.fit,
    )


INFINITE = (
    "the lower bound is infinite because the whole training set has no loss beyond some threshold "
    "where the population has more than delta: true of this set, not of the mechanism"
)


def _note(estimate: ratios.EpsilonStar, bound: ratios.LowerBound) -> str | None:
    """The notes of the estimate and of an infinite bound; None without a note."""
    notes = [estimate.note] if estimate.note else []
    if math.isinf(bound.value):
        notes.append(INFINITE)
    return "; ".join(notes) or None
