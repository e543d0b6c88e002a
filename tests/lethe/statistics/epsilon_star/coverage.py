"""How often each lower bound of Epsilon* exceeds the truth: `tests.benchmarks epsilon-star-coverage` prints the table."""

import sys
from collections.abc import Iterator
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
    rng = np.random.default_rng(seed)
    exact = gamma_epsilon_star(gap, delta)
    above = 0
    for _ in range(runs):
        train = rng.gamma(2, 5, n)
        bound = LOWER[method](train, rng.gamma(2 + gap, 5, n), delta, alpha)
        above += bound.value > exact + ROUNDING
    return above / runs


def main(alpha: float = 0.05, runs: int = 1000) -> int:
    return int(not as_expected(shares_of_settings(alpha, runs), alpha, runs))


def shares_of_settings(alpha: float, runs: int) -> Iterator[tuple[str, dict[str, float]]]:
    for gap, n, delta in SETTINGS:
        shares = {}
        for method in LOWER:
            shares[method] = share_above(method, gap, n, delta, alpha, runs)
        yield f"gap {gap:g}, n={n}, delta {delta:g}", shares


if __name__ == "__main__":
    sys.exit(main())
