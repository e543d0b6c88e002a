"""Epsilon* of a million losses per side with the default lower bound: `python -m tests.benchmarks epsilon-star`."""

from __future__ import annotations

import sys
import time

import numpy as np

from lethe.statistics.epsilon_star import audit

LOSSES = 1_000_000
LIMIT = 2.0  # seconds
ROUNDS = 3  # the fastest counts


def main() -> int:
    rng = np.random.default_rng(0)
    train, population = rng.gamma(2, 5, LOSSES), rng.gamma(3, 5, LOSSES)
    slow = False
    for method, lower in (("parametric", "split"), ("empirical", "split"), ("parametric", "band")):
        taken = []
        for _ in range(ROUNDS):
            start = time.perf_counter()
            result = audit(train, population, delta=1e-7, method=method, lower=lower)
            taken.append(time.perf_counter() - start)
        print(
            f"{method:10} {result['lower_method']:22} {min(taken):.2f} s: Epsilon* {result['epsilon_star']:.4g}, "
            f"at least {result['epsilon_lower']:.4g}"
        )
        slow |= lower == "split" and min(taken) > LIMIT
    print(
        f"{LOSSES:,} losses per side; the default bound {'misses' if slow else 'keeps'} its limit of {LIMIT:g} s"
    )
    return int(slow)


if __name__ == "__main__":
    sys.exit(main())
