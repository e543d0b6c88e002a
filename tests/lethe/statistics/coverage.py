"""How often each bound misses the truth: `make coverage` prints the table, the tests run a small part of it."""

import math
import sys
from collections.abc import Iterator
from functools import partial
from itertools import product

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
from lethe.statistics.betting import predictable_squares
from lethe.statistics.bounds import (
    binary_upper,
    leak_bounds,
    paper_bounds,
    sd_upper,
    tighter_bounds,
)
from lethe.statistics.many_prompts import (
    binary_p_value,
    bonferroni,
    every_prompt_under,
    holm,
    pooled_average,
    worst_prompt,
)
from lethe.statistics.sequential import Capital
from tests.lethe.certificates import forged
from tests.lethe.certificates.forged import ends_missed
from tests.lethe.statistics.draws import LAWS, Law, as_expected, printed_variance_no_bound
from tests.lethe.verdict.word_coverage import word_misses

THRESHOLDS = np.union1d(np.geomspace(1e-6, 0.01, 9), np.linspace(0, 0.99, 34))
ROUNDING = 1e-9  # a bound that equals the truth does not miss it


def misses(law: Law, n: int, alpha: float, runs: int, seed: int) -> Iterator[tuple[str, float]]:
    """(bound, share of ``runs`` that it misses) for every bound; a run has n draws of ``law``."""
    scores = law.draw(np.random.default_rng([seed, n]), (runs, n))
    paper = paper_bounds(scores, alpha, THRESHOLDS)
    sharp = tighter_bounds(scores, alpha, THRESHOLDS)
    tail = np.array([law.above(x) for x in THRESHOLDS])

    def share(missed: np.ndarray) -> float:
        return float(np.mean(missed))

    # The bounds of the paper.
    if law.binary:
        yield "m_bin", share(paper.m_bin < law.mean - ROUNDING)
        yield "m_bin_lower", share(paper.m_bin_lower > law.mean + ROUNDING)
    yield "m_gen", share((paper.m_gen < tail - ROUNDING).any(axis=1))
    yield "m_gen_lower", share((paper.m_gen_lower > tail + ROUNDING).any(axis=1))
    yield "m_mu", share(paper.m_mu < law.mean - ROUNDING)
    yield "m_mu_lower", share(paper.m_mu_lower > law.mean + ROUNDING)
    yield "m_sigma", share(paper.m_sigma < law.sd - ROUNDING)

    # The tighter ones.
    yield "exceedance", share((sharp.exceedance < tail - ROUNDING).any(axis=1))
    yield "mean_upper", share(sharp.mean_upper < law.mean - ROUNDING)
    yield "mean_lower", share(sharp.mean_lower > law.mean + ROUNDING)
    yield "sd_upper", share(sharp.sd_upper < law.sd - ROUNDING)
    yield "sd_upper_minimax", share(sd_upper(scores, alpha) < law.sd - ROUNDING)


def anytime_misses(
    law: Law, n: int, alpha: float, runs: int, seed: int
) -> Iterator[tuple[str, float]]:
    """The misses of the sequential tests, checked after each of n samples, with the null at the law's own mean.

    The capital against the truth reaches 1 / alpha exactly where a bound at that time has passed the truth.
    """
    scores = law.draw(np.random.default_rng([seed, n]), (runs, n))
    squares = predictable_squares(scores)

    def share(null: float, above: bool, rows: np.ndarray) -> float:
        goal = math.log(1 / alpha)
        reached = []
        for row in rows:
            path = Capital(null, above).path(row)
            reached.append(path.max() >= goal)
        return float(np.mean(reached))

    if 0 < law.mean < 1:  # at 0 nothing is falsely certified, at 1 nothing falsely found to leak
        yield "certified falsely", share(law.mean, False, scores)
        yield "leaks falsely", share(law.mean, True, scores)
    if law.sd > 0:
        yield "anytime sd", share(law.sd**2, False, squares)


def many_misses(n: int, alpha: float, runs: int, seed: int) -> Iterator[tuple[str, float]]:
    """The misses of each claim over forty prompts; half leak with probability 10% and half with 2%."""
    rng = np.random.default_rng([seed, n])
    rates = np.repeat([0.1, 0.02], 20)
    hits = rng.binomial(n, rates, (runs, len(rates)))

    # What follows from the bounds of each prompt by itself.
    just_below = np.nextafter(0.1, 0)
    worst = []
    every = []
    for row in hits:
        alone = leak_bounds(row, n, alpha)
        _, largest = worst_prompt(alone)
        worst.append(largest.value < 0.1)
        is_every_under, _ = every_prompt_under(alone, just_below)
        every.append(is_every_under)
    yield "worst prompt", np.mean(worst)
    yield "every prompt under", np.mean(every)

    pooled = [pooled_average(row, n, alpha).value for row in hits]
    yield "pooled average", np.mean(np.array(pooled) < rates.mean())

    # What is said of all prompts together.
    table = []
    for row in hits:
        bounds = bonferroni(partial(leak_bounds, row, n), 40, alpha)
        table.append([bound.value for bound in bounds])
    yield "Bonferroni table", np.mean((np.array(table) < rates).any(axis=1))

    certified = []
    for row in hits:
        passed, _ = holm(binary_p_value(row, n, 0.1), 0.1, alpha)
        certified.append(passed)
    leaky = np.array(certified)[:, rates >= 0.1]
    yield "Holm list", np.mean(leaky.any(axis=1))


def controls(n: int, alpha: float, runs: int, seed: int) -> Iterator[tuple[str, float]]:
    """Controls that are not bounds, on fair coins and on coins of 5%: the simulation must expose them."""
    rng = np.random.default_rng([seed, n])

    grid = np.linspace(0, 1, 101)
    coins = np.sort((rng.random((runs, n)) < 0.5).astype(float), axis=1)
    printed = np.array([printed_variance_no_bound(row, grid, alpha) for row in coins])
    yield "M_sigma as printed", np.mean(printed < 0.25)

    hits = np.cumsum(rng.random((runs, n)) < 0.05, axis=1)
    peeked = binary_upper(hits, np.arange(1, n + 1), alpha)
    yield "M_bin looked at after every sample", np.mean((peeked < 0.05).any(axis=1))


def table(
    alpha: float, runs: int, sizes: tuple[int, ...]
) -> Iterator[tuple[str, dict[str, float]]]:
    """(what is simulated, the misses of each bound there), one after the other."""
    for law, n in product(LAWS, sizes):
        yield f"{law.name}, n={n}", dict(misses(law, n, alpha, runs, seed=1))
    for law in LAWS:  # checked after every sample, so the smaller sizes are included
        yield f"{law.name}, at any time", dict(anytime_misses(law, max(sizes), alpha, runs, seed=1))
    for n in sizes:
        yield f"40 prompts, n={n}", dict(many_misses(n, alpha, runs, seed=1))
    for tree, rho in product(TREES, (30, 1000)):
        yield f"{tree}, rate {rho}", dict(tree_misses(tree, rho, alpha, runs, seed=1))
    yield "words, looked at after every batch", dict(word_misses(alpha, runs, seed=1))
    yield "certificates after a spot check", dict(ends_missed(alpha, runs, seed=1))

    exposed = dict(controls(max(sizes), alpha, runs, seed=1))
    exposed |= no_bounds(alpha, runs, seed=1)
    yield "no bounds", exposed


def main(alpha: float = 0.01, runs: int = 2000, sizes: tuple[int, ...] = (16, 128, 1024)) -> int:
    is_expected = as_expected(table(alpha, runs, sizes), alpha, runs, CONTROLS)
    return int(not is_expected or forged.main(runs // 2) > 0)


CONTROLS = (
    "M_sigma as printed",
    "M_bin looked at after every sample",
    "rate chosen after the draws",
    "lower, the same",
)
OF_SUMS = 1e-12
QUESTIONS = 8
# For each unexplored start: its mass, and the probability that an answer which begins there leaks.
TREES: dict[str, tuple[np.ndarray, np.ndarray]] = {
    "one start": (np.array([0.5]), np.array([0.01])),
    "equal starts": (np.full(500, 1e-3), np.full(500, 0.004)),
    "heavy tail": (
        0.5 * np.arange(1, 801) ** -1.5 / (np.arange(1, 801) ** -1.5).sum(),
        np.linspace(0, 0.05, 800),
    ),
    "every start leaks": (np.full(50, 4.61e-3 / 50), np.ones(50)),
    "rare leaks": (np.full(100, 5e-3), np.where(np.arange(100) == 0, 0.2, 0.0)),
}
EXACT_LEAK = 1e-3


def tree_misses(
    name: str, rho: float, alpha: float, runs: int, seed: int
) -> Iterator[tuple[str, float]]:
    """(bound, share of ``runs`` that it misses) for every bound; a run samples the rest of `QUESTIONS` similar questions."""
    masses, chances = TREES[name]
    random = np.random.default_rng([seed, int(rho), len(masses)])
    started = random.poisson(rho * masses, size=(runs, QUESTIONS, len(masses)))
    leaks = random.binomial(started, chances).sum(axis=2)
    truth = EXACT_LEAK + float(masses @ chances)
    low = truth - OF_SUMS
    high = truth + OF_SUMS
    known = Masses((EXACT_LEAK,), (1 - EXACT_LEAK - float(masses.sum()),))

    def sampled(count: int) -> Remainder:
        return Remainder(rho, 10**9, int(count))

    # One question; equal counts have equal ends.
    ends = {}
    for count in np.unique(leaks[:, 0]).tolist():
        ends[count] = leak_interval(known, sampled(count), alpha)
    alone = [ends[count] for count in leaks[:, 0].tolist()]
    yield "tree upper", float(np.mean([end.upper < low for end in alone]))
    yield "tree lower", float(np.mean([end.lower_sampled > high for end in alone]))

    # The mean of all questions.
    rests = []
    for row in leaks:
        rests.append([(known, sampled(count)) for count in row])
    pooled = [pooled_leak(rest, alpha) for rest in rests]
    yield "tree mean upper", float(np.mean([found.upper < low for found in pooled]))
    yield "tree mean lower", float(np.mean([found.lower_sampled > high for found in pooled]))

    # The model leaks exactly twice as often as Retrain, so no question exceeds that ratio.
    model = np.full(QUESTIONS, 2 * truth)
    false = []
    for rest in rests[: runs // 4]:
        found = against_retrain(model, rest, 2.0, alpha)
        false.append(found.holds.any())
    yield "tree excess, Holm", float(np.mean(false))


def no_bounds(alpha: float, runs: int, seed: int) -> Iterator[tuple[str, float]]:
    """A control that is not a bound: the rate is raised until a question looks clean. The simulation must expose it."""
    random = np.random.default_rng([seed, 1])
    rest = 3.0
    rho = 1.0
    counts = np.cumsum(random.poisson(rest, size=(runs, 40)), axis=1)
    rates = rho * np.arange(1, 41)
    missed_above = (poisson_upper(counts, alpha) / rates < rest).any(axis=1)
    missed_below = (poisson_lower(counts, alpha) / rates > rest).any(axis=1)
    yield "rate chosen after the draws", float(np.mean(missed_above))
    yield "lower, the same", float(np.mean(missed_below))


if __name__ == "__main__":
    sys.exit(main())
