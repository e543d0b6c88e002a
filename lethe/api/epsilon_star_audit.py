"""`lethe.audit.epsilon_star`: the privacy of one trained model from its losses."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from lethe.api.result import Measurement, Place, View
from lethe.statistics import epsilon_star as summary

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import ArrayLike

    from lethe.results.table import Result
    from lethe.statistics.bound import Bound

NAME = "model"  # of the row of the table of results


@dataclass(frozen=True, repr=False)
class EpsilonStarAudit(Measurement, summary.EpsilonStarAudit):
    """Epsilon* of one model, an estimate, and a lower bound that holds with probability 1 - ``alpha``.

    Attributes
    ----------
    epsilon_star, epsilon_lower : float
        The estimate and the lower bound; both can be infinite, and the estimate NaN where it is undefined.
    delta : float
        The delta of the estimate and of the lower bound.
    cut : float or None
        The cut of the rates, if requested.
    n_train, n_population : int
        The number of losses of members and of non-members.
    threshold, ratio : float or None, str or None
        The threshold and the ratio at which the estimate is attained.
    method : str
        The method of the estimate.
    alpha, lower_method, lower_threshold, lower_ratio, assumes
        The level, method, threshold, ratio and assumption of the lower bound.
    note : str or None
        A further remark that a reader must know.
    fit : FitSummary or None
        The Gaussian fit of the parametric method, and its goodness-of-fit test.
    """

    def to_frame(self) -> pd.DataFrame:
        """One row per quantity."""
        import pandas as pd

        shown = ("epsilon_star", "epsilon_lower", "delta", "alpha", "n_train", "n_population", "threshold")
        return pd.DataFrame({"value": [getattr(self, name) for name in shown]}, index=list(shown))

    def bound_at(self, row: str, column: str) -> Bound | None:
        """The lower bound."""
        return self.bound if row == "epsilon_lower" else None

    def sentences(self) -> list[str]:
        """Return the lower bound with its guarantee, and the estimate."""
        from lethe.statistics.epsilon_star.parametric import rejected_fit

        missing = rejected_fit(self.epsilon_star, self.fit.ks_p_values if self.fit else None)
        lines = [
            self.bound.sentence(f"Epsilon* at delta {self.delta:g}"),
            f"The {self.method} estimate is {missing or f'{self.epsilon_star:.4g}, which is not a bound'}.",
        ]
        return lines + ([f"Note: {self.note}."] if self.note else [])

    def views(self) -> list[View]:
        """The lower bound, the estimate, and the settings."""
        from lethe.statistics.epsilon_star.parametric import rejected_fit

        fit = self.fit.ks_p_values if self.fit else None
        estimate = rejected_fit(self.epsilon_star, fit) or ("infinite" if self.infinite else self.epsilon_star)
        rows: list[list[object]] = [
            [f"Epsilon* at least, {self.bound.level()}; {self.bound.method}", self.bound],
            [f"Epsilon* ({self.method}, an estimate)", estimate],
            ["delta", self.delta],
            ["cut", "none" if self.cut is None else self.cut],
            ["losses: training, population", f"{self.n_train}, {self.n_population}"],
            ["threshold of the estimate", self.threshold],
            ["threshold of the lower bound", self.lower_threshold],
        ]
        if fit:
            shown = ", ".join(f"{p:.3g}" for p in fit.values())
            rows.append(["p-values of the fit (KS): training, population", shown])
        notes = [f"Assumes: {self.bound.assumes}.", *([f"Note: {self.note}."] if self.note else [])]
        return [View("Epsilon*", ["", "value"], rows, notes)]

    def rows(self) -> list[Result]:
        """Return the row of Epsilon*, with every setting and the fit as evidence."""
        from lethe.results.table import interval

        return interval(
            NAME,
            "model",
            "epsilon_star",
            "given answers",
            self.epsilon_star,
            self.bound,
            None,
            evidence=self.as_json(),
        )


def epsilon_star(
    train: ArrayLike | Place,
    population: ArrayLike | Place,
    *,
    delta: float,
    method: Literal["parametric", "empirical"] = "parametric",
    cut: float | None = None,
    components: int = 1,
    alpha: float = 0.05,
    lower: Literal["split", "band"] = "split",
    train_complete: bool = False,
) -> EpsilonStarAudit:
    """Estimate Epsilon* of one trained model from its losses, and bound Epsilon* from below.

    Parameters
    ----------
    train : array or path
        The losses on the training set. A file has one loss per line, or a column `loss`.
    population : array or path
        The losses on data that the model never saw, in the same form.
    delta : float
        The delta of Epsilon*, well under 1/n for a training set of n records, for example 1/(n ln n).
    method : {"parametric", "empirical"}
        The method of the estimate.
    cut : float, optional
        Restricts FPR and FNR to (cut, 1 - cut), for comparison with published values. [default: no cut]
    components : int
        The number of Gaussians that the parametric method fits to each of the two sets of losses; the paper uses 1.
    alpha : float
        The probability with which the lower bound may fail.
    lower : {"split", "band"}
        The method of the lower bound.
    train_complete : bool
        Whether ``train`` holds the losses of the whole training set.

    Notes
    -----
    A point is called a member when its loss is at most a threshold. The estimate is that of Negoescu et al. (2024):
    "parametric" fits a Gaussian to the transformed losses of either side and takes the exact supremum; "empirical" takes
    the observed shares. The lower bound assumes no distribution of the losses: "split" chooses threshold and ratio on one
    half of the losses and certifies both on the other half; "band" holds at all thresholds.

    Examples
    --------
    >>> import lethe
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> found = lethe.audit.epsilon_star(rng.gamma(2, 1, 2000), rng.gamma(6, 1, 2000), delta=1e-5)
    >>> 0 < found.epsilon_lower <= found.epsilon_star
    True
    """
    found = summary.audit(
        _losses(train),
        _losses(population),
        delta=delta,
        method=method,
        cut=cut,
        components=components,
        alpha=alpha,
        lower=lower,
        train_complete=train_complete,
    )
    return EpsilonStarAudit(**vars(found))


def _losses(given: ArrayLike | Place) -> np.ndarray:
    import numpy as np

    from lethe.io.tables import read_losses

    if isinstance(given, (str, os.PathLike)):
        return read_losses(Path(given))
    return np.asarray(given, dtype=np.float64)
