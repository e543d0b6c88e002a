"""The twin test among the simulations of `tests.benchmarks.simulations`: its level, its power, and what breaks it.

The worlds and settings are those of the specification of the test; ``--only twins`` prints them alone.
"""

import math

import numpy as np

from lethe.statistics import twins
from lethe.statistics.twins import Way
from tests.benchmarks.simulated_bounds import Rng, simulation

SECRETS = 30
CANDIDATES = 20
LEVEL = 0.01
SPREAD = 2.24  # of scores, in nats: 2 of plausibility and 1 of the seed
RUNS = 1000
MOST_SCORES = (
    10_000_000  # at once: 80 MB; up to 100 secrets are one part, as they were drawn before
)


def ranked(rng: Rng, scores: np.ndarray, true: np.ndarray) -> np.ndarray:
    """(runs, m) the rank of each true candidate; a drawn order decides between equal scores."""
    order = rng.random(scores.shape)
    score_of_true = np.take_along_axis(scores, true[..., None], axis=-1)
    order_of_true = np.take_along_axis(order, true[..., None], axis=-1)
    before = (scores == score_of_true) & (order < order_of_true)
    return 1 + ((scores > score_of_true) | before).sum(axis=-1)


def rejected(ranks: np.ndarray, k: int, level: float = LEVEL) -> np.ndarray:
    """(runs,) whether the twin test rejects, by the thresholds of its three ways; the same as its p-value at most level."""
    m = ranks.shape[-1]
    some = np.zeros(len(ranks), dtype=bool)
    for way in twins.WAYS:
        totals = twins.score_table(k, way)[ranks - 1].sum(axis=-1)
        some |= totals >= twins.threshold([k] * m, level / 3, way)
    return some


def lifted(rng: Rng, m: int, k: int, nats: float | np.ndarray, runs: int = RUNS) -> np.ndarray:
    """(runs, m) ranks of true candidates whose scores are lifted by so many nats."""
    at_once = max(1, MOST_SCORES // (m * k))
    ranks = []
    for start in range(0, runs, at_once):
        shape = (min(at_once, runs - start), m, k)
        scores = rng.normal(0, SPREAD, shape)
        scores[:, :, 0] += nats
        ranks.append(ranked(rng, scores, np.zeros(shape[:2], dtype=int)))
    return np.concatenate(ranks)


@simulation("twins_level", "at most 1.1%")
def level(rng: Rng) -> str:
    """Twin test, no trace, 1%: six worlds."""
    runs = 4 * RUNS
    shape = (runs, SECRETS, CANDIDATES)
    liked = rng.normal(0, 2, (SECRETS, CANDIDATES))
    liked[:, 0] += 8
    copied = np.repeat(rng.normal(size=(runs, 1, CANDIDATES)), SECRETS, axis=1)
    worlds = [
        rng.normal(size=shape),
        rng.normal(size=shape) + rng.standard_cauchy((runs, 1, CANDIDATES)),
        rng.normal(size=shape) + liked,
        rng.normal(size=shape) * rng.exponential(size=(runs, 1, 1)),
        copied,
        rng.poisson(0.05, shape).astype(float),
    ]
    shares = []
    for scores in worlds:
        true = rng.integers(0, CANDIDATES, shape[:2])
        shares.append(rejected(ranked(rng, scores, true), CANDIDATES).mean())
    return f"{min(shares):.1%} to {max(shares):.1%}"


def power(m: int, runs: int = RUNS) -> None:
    """Add the row of the table of power for m secrets."""

    def now(rng: Rng) -> str:
        cells = []
        for nats in (0.5, 1.0, 2.0):
            found = [rejected(lifted(rng, m, k, nats, runs), k).mean() for k in (2, 5, 20, 100)]
            cells.append(", ".join(f"{share:.2f}" for share in found))
        known = [twins.smallest_known([k] * m, LEVEL) for k in (2, 5, 20, 100)]
        return "; ".join([*cells, f"known {', '.join(map(str, known))}"])

    statement = f"Twin test, power at 1%, {m} secrets of 2, 5, 20, 100: lifts of .5; 1; 2 nats"
    simulation(f"twins_power_{m:03}", "-", statement)(now)


for size in (10, 30, 100):
    power(size)
power(400, runs=4 * RUNS)


@simulation("twins_ways", "by *preferred* alone .21")
def ways(rng: Rng) -> str:
    """Twin test, half lifted and half lowered by 3 nats: three ways / *preferred* alone."""
    nats = np.where(np.arange(SECRETS) % 2, 3.0, -3.0)
    ranks = lifted(rng, SECRETS, CANDIDATES, nats)
    way: Way = "preferred"
    totals = twins.score_table(CANDIDATES, way)[ranks - 1].sum(axis=1)
    alone = totals >= twins.threshold([CANDIDATES] * SECRETS, LEVEL, way)
    return f"{rejected(ranks, CANDIDATES).mean():.2f} / {alone.mean():.2f}"


def log_e_values(ranks: np.ndarray, k: int) -> np.ndarray:
    """(runs,) ln of the e-value of each run."""
    return np.array([twins.log_e_value(twins.log_capitals(row, [k] * len(row))) for row in ranks])


@simulation("twins_product", "1% allowed")
def product(rng: Rng) -> str:
    """Twin test, no trace, e of 100: product and average over 20 releases of a draw; product over requests."""
    runs = 400
    releases = 20
    goal = math.log(100)
    shared = rng.integers(1, CANDIDATES + 1, (runs, SECRETS))  # each release ranks alike
    log_e = log_e_values(shared, CANDIDATES)
    requests = 0
    for _ in range(runs):
        capitals = np.zeros((len(twins.WAYS), len(twins.BETS)))
        reached = False
        for _request in range(releases):
            ranks = rng.integers(1, CANDIDATES + 1, 6)
            capitals += twins.log_capitals(ranks, [CANDIDATES] * 6)
            reached |= twins.log_e_value(capitals) >= goal
        requests += reached
    of_product = (releases * log_e >= goal).mean()
    return f"product {of_product:.0%}; average {(log_e >= goal).mean():.1%}; requests {requests / runs:.1%}"


@simulation("twins_broken", "100%; 100%; 14%; 7.3%")
def broken(rng: Rng) -> str:
    """Twin test, no trace, 1%: less a model that knows; ties for the truth; truths round; best of 20 scores."""
    shape = (RUNS, SECRETS, CANDIDATES)
    true = np.zeros(shape[:2], dtype=int)
    plausible = rng.normal(0, 2, shape)
    learned = plausible + rng.normal(size=shape)
    learned[:, :, 0] += 5
    subtracted = ranked(rng, plausible + rng.normal(size=shape) - learned, true)

    counts = rng.poisson(0.05, shape)
    tied = 1 + (counts[:, :, 1:] > counts[:, :, :1]).sum(axis=-1)

    is_round = rng.random(shape) < 0.1
    is_round[:, :, 0] = rng.random(shape[:2]) < 0.3
    rounded = ranked(rng, rng.normal(0, 2, shape) + 3 * is_round, true)

    tries = rng.integers(1, CANDIDATES + 1, (RUNS, 20, SECRETS))
    totals = twins.score_table(CANDIDATES)[tries - 1].sum(axis=-1)
    best = tries[np.arange(RUNS), totals.argmax(axis=1)]
    shares = [rejected(ranks, CANDIDATES).mean() for ranks in (subtracted, tied, rounded, best)]
    return "; ".join(f"{share:.1%}" for share in shares)


@simulation("twins_epsilon", "above at most 2.6%")
def epsilon(rng: Rng) -> str:
    """Twin test, epsilon from below, 5%: above the truth; median."""
    above = []
    median = []
    for k, m, true in ((20, 30, 1.0), (20, 400, 1.0), (2, 100, 0.5), (100, 100, 3.0)):
        likely = math.exp(true) / (math.exp(true) + k - 1)
        ends = []
        for _ in range(400):
            ranks = np.where(rng.random(m) < likely, 1, rng.integers(2, k + 1, m))
            ends.append(twins.epsilon_lower(ranks.tolist(), [k] * m, 0.05))
        above.append(np.mean(np.array(ends) > true))
        median.append(float(np.median(ends)))
    return f"{max(above):.1%}; {', '.join(f'{end:.2f}' for end in median)}"


@simulation("twins_lift", "found .944 to .957")
def lift(rng: Rng) -> str:
    """Twin test, the smallest lift, .95: nats; really found."""
    nats = []
    found = []
    for m, k in ((30, 20), (100, 20), (30, 100)):
        scores = rng.normal(0, SPREAD, (m, k))
        nats.append(twins.smallest_lift(scores, LEVEL, rng, draws=1000))
        true = rng.integers(0, k, (RUNS, m))
        moved = np.repeat(scores[None], RUNS, axis=0)
        np.put_along_axis(
            moved,
            true[..., None],
            np.take_along_axis(moved, true[..., None], axis=-1) + nats[-1],
            axis=-1,
        )
        totals = twins.score_table(k)[ranked(rng, moved, true) - 1].sum(axis=1)
        found.append((totals >= twins.threshold([k] * m, LEVEL / 3)).mean())
    return f"{', '.join(f'{value:.1f}' for value in nats)}; {min(found):.2f} to {max(found):.2f}"


@simulation("twins_named", "20: none; 10,000: 6.0; author 1.00")
def named(rng: Rng) -> str:
    """Twin test, 6 known of 30, Holm at 1%: secrets named at k of 20, 10,000; their author at 20; false."""
    cells = []
    false = 0.0
    for k in (20, 10_000):
        secrets = authors = 0.0
        for _ in range(200):
            ranks = rng.integers(1, k + 1, SECRETS)
            ranks[:6] = 1
            alone = twins.holm_adjusted(twins.secret_p_values(ranks, [k] * SECRETS)) <= LEVEL
            secrets += alone[:6].sum()
            false += alone[6:].any() / 400
            if k == CANDIDATES:
                p = [twins.twin_test(row, [k] * 6).p for row in ranks.reshape(5, 6).tolist()]
                authors += twins.holm_adjusted(p)[0] <= LEVEL
        cells.append(f"{k:,}: {secrets / 200:.1f}")
        if k == CANDIDATES:
            cells.append(f"author {authors / 200:.2f}")
    return f"{'; '.join(cells)}; false {false:.1%}"


@simulation("twins_control", "*trace* beside a silent control: .4%; 3.9%; 21%; 13%")
def control(rng: Rng) -> str:
    """Twin test, truths liked by every model by 0; .5; 1; 2 nats: a control at .1% rejects / false *trace* without."""
    cells = []
    shape = (RUNS, SECRETS, CANDIDATES)
    true = np.zeros(shape[:2], dtype=int)
    for nats in (0.0, 0.5, 1.0, 2.0):
        plausible = rng.normal(0, 2, shape)
        plausible[:, :, 0] += nats
        clean = rejected(ranked(rng, plausible + rng.normal(size=shape), true), CANDIDATES, 0.001)
        word = rejected(ranked(rng, plausible + rng.normal(size=shape), true), CANDIDATES)
        cells.append(f"{clean.mean():.1%} / {(word & ~clean).mean():.1%}")
    return "; ".join(cells)
