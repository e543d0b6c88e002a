"""How often each lower bound of Epsilon* exceeds the truth: `tests.benchmarks epsilon-star-coverage` prints the table."""

import sys
from functools import partial

import numpy as np

from lethe.statistics.epsilon_star.ratios import (
    band_lower_bound,
    largest,
    log_ratios,
    split_lower_bound,
)
from studies.simulation import gamma_epsilon_star
from tests.lethe.statistics.draws import as_expected

LOWER = {
    "split": split_lower_bound,
    "berk-jones": partial(band_lower_bound, band="berk-jones"),
    "dkw": partial(band_lower_bound, band="dkw"),
}
# (gap of the Gamma laws, losses per side, delta); at gap 0 both sides are drawn from one law and the truth is 0.
SETTINGS = [(0.0, 200, 1e-3), (2.0, 400, 0.1), (1.0, 400, 1e-4), (3.0, 200, 1e-5), (0.0, 30, 0.05)]
ROUNDING = 1e-4  # of the truth, which is searched for on a grid


def from_rates(fpr, fnr, delta: float) -> float:
    """Epsilon* of given operating points (eq. 7)."""
    fpr, fnr = np.asarray(fpr, float), np.asarray(fnr, float)
    return largest(log_ratios((1 - fnr, fnr), (fpr, 1 - fpr), delta))[0]


def share_above(
    method: str, gap: float, n: int, delta: float, alpha: float, runs: int, seed: int = 17
) -> float:
    """Share of ``runs`` in which the bound exceeds Epsilon* of Gamma(2, 5) against Gamma(2 + gap, 5)."""
    rng, exact = np.random.default_rng(seed), gamma_epsilon_star(gap, delta)
    return float(
        np.mean(
            [
                LOWER[method](rng.gamma(2, 5, n), rng.gamma(2 + gap, 5, n), delta, alpha).value
                > exact + ROUNDING
                for _ in range(runs)
            ]
        )
    )


def main(alpha: float = 0.05, runs: int = 1000) -> int:
    rows = (
        (
            f"gap {gap:g}, n={n}, delta {delta:g}",
            {of: share_above(of, gap, n, delta, alpha, runs) for of in LOWER},
        )
        for gap, n, delta in SETTINGS
    )
    return int(not as_expected(rows, alpha, runs))


if __name__ == "__main__":
    sys.exit(main())
