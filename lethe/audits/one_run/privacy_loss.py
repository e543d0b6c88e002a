"""DP-SGD as a family of nulls: privacy loss distributions of the Poisson-subsampled Gaussian mechanism over steps."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from lethe.errors import BadValue, LibraryChanged
from lethe.statistics.one_run.channel import Family

if TYPE_CHECKING:
    import numpy as np

    from lethe.statistics.one_run.tradeoff import Atoms

INTERVAL = 1e-3  # of the privacy loss; rounding goes towards less privacy, so a rounded null remains a valid null
LEAST_DELTA = 1e-12  # masses of about 1e-15 are truncated and count as outputs that reveal the canary
STRONGEST = 20.0  # 1 / sigma
MOST_STEPS = 1_000_000  # about a minute
TOLERANCE = 1e-5  # each member needs a convolution of up to several seconds


def dp_sgd(q: float, steps: int, delta: float) -> Family:
    """Return nulls ordered by 1 / sigma (sigma: noise multiplier)."""
    if 0 < delta < LEAST_DELTA:
        raise BadValue(
            "delta", delta, f"0, or from {LEAST_DELTA:g}, for dp-sgd", "Its distributions are rounded there."
        )
    if not 0 < q <= 1:
        raise BadValue("q", q, "a sampling rate above 0 and up to 1")
    if not 1 <= steps <= MOST_STEPS:
        raise BadValue("steps", steps, f"a whole number from 1 to {MOST_STEPS:,}", "More would take hours.")
    return Family(
        "dp-sgd",
        "sigma",
        lambda strength: _pair(strength, q, steps),
        STRONGEST,
        strength=_reciprocal,
        tolerance=TOLERANCE,
    )


def _reciprocal(sigma: float) -> float:
    if sigma <= 0:
        raise BadValue("null", sigma, "a sigma above 0", "Without noise nothing is private.")
    return 1 / sigma


@lru_cache(maxsize=256)
def _pair(strength: float, q: float, steps: int) -> Atoms:
    import numpy as np
    from dp_accounting.pld import privacy_loss_distribution as pld

    from lethe.statistics.one_run.tradeoff import Atoms, from_losses

    if strength == 0:
        return Atoms(np.ones(1), np.ones(1))
    loss = pld.from_gaussian_mechanism(
        1 / strength, sampling_prob=q, value_discretization_interval=INTERVAL, use_connect_dots=True
    ).self_compose(steps)
    removed, added = _sides(loss)
    return from_losses(*removed, *added)


def _sides(loss: Any) -> list[tuple[np.ndarray, np.ndarray, float]]:
    """Return losses, probabilities and infinite mass of a `PrivacyLossDistribution`, without and with the canary.

    Only this function reads private names of dp-accounting, which offers no public access to the masses.
    """
    import numpy as np

    sides = []
    try:
        for pmf in (loss._pmf_remove, loss._pmf_add):
            dense = pmf.to_dense_pmf()
            losses = (dense._lower_loss + np.arange(len(dense._probs))) * dense._discretization
            # A convolution by FFT leaves probabilities such as -1e-18.
            sides.append((losses, np.maximum(dense._probs, 0.0), dense._infinity_mass))
    except AttributeError as error:
        raise LibraryChanged("dp-accounting", "the masses of a privacy loss distribution", error) from error
    return sides
