"""How often the bounds of answer trees miss the truth, on simulated trees whose leak is known: rows of `make coverage`."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from lethe.statistics.answer_tree import (
    Masses,
    Remainder,
    against_retrain,
    leak_interval,
    poisson_lower,
    poisson_upper,
    pooled_leak,
)

ROUNDING = 1e-12
QUESTIONS = 8
# For each unexplored start: its mass, and the probability that an answer which begins there leaks.
TREES: dict[str, tuple[np.ndarray, np.ndarray]] = {
    "one start": (np.array([0.5]), np.array([0.01])),
    "equal starts": (np.full(500, 1e-3), np.full(500, 0.004)),
    "heavy tail": (0.5 * np.arange(1, 801) ** -1.5 / (np.arange(1, 801) ** -1.5).sum(), np.linspace(0, 0.05, 800)),
    "every start leaks": (np.full(50, 4.61e-3 / 50), np.ones(50)),
    "rare leaks": (np.full(100, 5e-3), np.where(np.arange(100) == 0, 0.2, 0.0)),
}
EXACT_LEAK = 1e-3


def tree_misses(name: str, rho: float, alpha: float, runs: int, seed: int) -> Iterator[tuple[str, float]]:
    """(bound, share of ``runs`` that it misses) for every bound; a run samples the rest of `QUESTIONS` similar questions."""
    masses, chances = TREES[name]
    random = np.random.default_rng([seed, int(rho), len(masses)])
    started = random.poisson(rho * masses, size=(runs, QUESTIONS, len(masses)))
    leaks = random.binomial(started, chances).sum(axis=2)
    truth = EXACT_LEAK + float(masses @ chances)
    known = Masses((EXACT_LEAK,), (1 - EXACT_LEAK - float(masses.sum()),))
    counts = {int(count) for count in leaks[:, 0]}
    ends = {count: leak_interval(known, Remainder(rho, 10**9, count), alpha) for count in counts}
    own = [ends[int(count)] for count in leaks[:, 0]]
    yield "tree upper", float(np.mean([end.upper < truth - ROUNDING for end in own]))
    yield "tree lower", float(np.mean([end.lower_sampled > truth + ROUNDING for end in own]))
    rests = [[(known, Remainder(rho, 10**9, int(count))) for count in row] for row in leaks]
    pooled = [pooled_leak(rest, alpha) for rest in rests]
    yield "tree mean upper", float(np.mean([found.upper < truth - ROUNDING for found in pooled]))
    yield "tree mean lower", float(np.mean([found.lower_sampled > truth + ROUNDING for found in pooled]))
    # The model leaks exactly twice as often as Retrain, so no question exceeds that ratio.
    model = np.full(QUESTIONS, 2 * truth)
    false = [against_retrain(model, rest, 2.0, alpha).holds.any() for rest in rests[: runs // 4]]
    yield "tree excess, Holm", float(np.mean(false))


def no_bounds(alpha: float, runs: int, seed: int) -> Iterator[tuple[str, float]]:
    """A control that is not a bound: the rate is raised until a question looks clean. The simulation must expose it."""
    random, rest, rho = np.random.default_rng([seed, 1]), 3.0, 1.0
    counts = np.cumsum(random.poisson(rest, size=(runs, 40)), axis=1)
    rates = rho * np.arange(1, 41)
    yield "rate chosen after the draws", float(np.mean((poisson_upper(counts, alpha) / rates < rest).any(axis=1)))
    yield "lower, the same", float(np.mean((poisson_lower(counts, alpha) / rates > rest).any(axis=1)))


def worst_case(alpha: float, runs: int, seed: int) -> float:
    """The share of misses where every unexplored answer leaks and their expected number is just above -ln(alpha)."""
    mean = -math.log(alpha) * (1 + 1e-3)
    counts = np.random.default_rng([seed, 2]).poisson(mean, size=runs)
    return float(np.mean(poisson_upper(counts, alpha) < mean))
