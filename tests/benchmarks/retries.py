"""How often a gate opens for a model that leaks just more than its threshold, when it is tried 20 times: by one process that
each try continues, and by tests of their own.

The last column has a person who changes the seed by hand, 100 times with 64 answers: the luckiest seed is drawn on, and a new
seed takes its place once it looks bad. The gate reads the process, in which all seeds count.
"""

from pathlib import Path

import numpy as np

from lethe.io.processes import Process, QuestionCounts
from lethe.statistics.anytime import log_below

RUNS = 20_000
TRIES = 20
ANSWERS = 1024
LEAKS = 0.0101
THRESHOLD = 0.01
BY_HAND = 200  # runs
CHANGES = 100
BATCH = 64
LEAKS_BY_HAND = 0.101
THRESHOLD_BY_HAND = 0.1


def main() -> None:
    print("alpha|one process|20 tests of their own|seeds changed by hand")
    print("---|---|---|---")
    for alpha in (0.01, 0.05):
        draws = np.random.default_rng(46)
        leaks = draws.binomial(ANSWERS, LEAKS, size=(RUNS, TRIES))
        n = np.full(leaks.shape, ANSWERS)
        continued = share_open(leaks.cumsum(axis=1), n.cumsum(axis=1), alpha)
        apart = share_open(leaks, n, alpha)
        print(f"{alpha}|{continued:.4f}|{apart:.4f}|{opened_by_hand(alpha):.4f}")


def share_open(leaks: np.ndarray, n: np.ndarray, alpha: float) -> float:
    """The share of runs (rows) in which some try (column) opens the gate."""
    is_open = log_below(leaks, n, THRESHOLD) >= np.log(1 / alpha)
    return float(is_open.any(axis=1).mean())


def opened_by_hand(alpha: float, runs: int = BY_HAND) -> float:
    """The share of runs in which a person who changes seeds by hand ever opens the gate."""
    chance = np.random.default_rng(46)
    return sum(_opens_by_hand(chance, alpha) for _ in range(runs)) / runs


def _opens_by_hand(chance: np.random.Generator, alpha: float) -> bool:
    process = Process(Path("no-file.json"), kept=False)
    for number in range(CHANGES):
        seeds = {name: segment.counts["q"] for name, segment in process.segments.items()}
        luckiest = min(seeds, key=lambda name: seeds[name].leaks / seeds[name].n, default="")
        before = seeds.get(luckiest, QuestionCounts(0, 0))
        if before.leaks >= THRESHOLD_BY_HAND * before.n:
            luckiest = str(number)
            before = QuestionCounts(0, 0)
        drawn = before + QuestionCounts(int(chance.binomial(BATCH, LEAKS_BY_HAND)), BATCH)
        process = process.with_counts(luckiest, {"q": drawn}, most=drawn.n)
        total = process.totals()["q"]
        if log_below(total.leaks, total.n, THRESHOLD_BY_HAND) >= np.log(1 / alpha):
            return True
    return False


if __name__ == "__main__":
    main()
