"""How often a gate opens for a model that leaks just more than its threshold, when it is tried 20 times: by one process that
each try continues, and by tests of their own.
"""

import numpy as np

from lethe.statistics.anytime import log_below

RUNS, TRIES, ANSWERS = 20_000, 20, 1024
LEAKS, THRESHOLD = 0.0101, 0.01


def main() -> None:
    print("alpha|one process|20 tests of their own")
    print("---|---|---")
    for alpha in (0.01, 0.05):
        draws = np.random.default_rng(46)
        leaks = draws.binomial(ANSWERS, LEAKS, size=(RUNS, TRIES))
        n = np.full(leaks.shape, ANSWERS)
        continued = share_open(leaks.cumsum(axis=1), n.cumsum(axis=1), alpha)
        print(f"{alpha}|{continued:.4f}|{share_open(leaks, n, alpha):.4f}")


def share_open(leaks: np.ndarray, n: np.ndarray, alpha: float) -> float:
    """The share of runs (rows) in which some try (column) opens the gate."""
    is_open = log_below(leaks, n, THRESHOLD) >= np.log(1 / alpha)
    return float(is_open.any(axis=1).mean())


if __name__ == "__main__":
    main()
