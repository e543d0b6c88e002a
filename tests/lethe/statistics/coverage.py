"""How often each bound misses the truth: `make coverage` prints the table, the tests run a small part of it."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator

import numpy as np

from lethe.statistics.betting import predictable_squares
from lethe.statistics.bounds import binary_upper, leak_bounds, paper_bounds, sd_upper, tighter_bounds
from lethe.statistics.many_prompts import (
    binary_p_value,
    bonferroni,
    every_prompt_under,
    holm,
    pooled_average,
    worst_prompt,
)
from lethe.statistics.sequential import Capital
from tests.lethe.statistics.answer_tree_coverage import TREES, no_bounds, tree_misses
from tests.lethe.statistics.draws import LAWS, Law
from tests.lethe.statistics.misses import tolerated
from tests.lethe.statistics.printed import printed_variance_no_bound

THRESHOLDS = np.union1d(np.geomspace(1e-6, 0.01, 9), np.linspace(0, 0.99, 34))
ROUNDING = 1e-9  # a bound that equals the truth does not miss it


def misses(law: Law, n: int, alpha: float, runs: int, seed: int) -> Iterator[tuple[str, float]]:
    """(bound, share of ``runs`` that it misses) for every bound; a run has n draws of ``law``."""
    scores = law.draw(np.random.default_rng([seed, n]), (runs, n))
    paper, sharp = paper_bounds(scores, alpha, THRESHOLDS), tighter_bounds(scores, alpha, THRESHOLDS)
    tail = np.array([law.above(x) for x in THRESHOLDS])

    def share(missed: np.ndarray) -> float:
        return float(np.mean(missed))

    if law.binary:
        yield "m_bin", share(paper.m_bin < law.mean - ROUNDING)
        yield "m_bin_lower", share(paper.m_bin_lower > law.mean + ROUNDING)
    yield "m_gen", share((paper.m_gen < tail - ROUNDING).any(axis=1))
    yield "m_gen_lower", share((paper.m_gen_lower > tail + ROUNDING).any(axis=1))
    yield "m_mu", share(paper.m_mu < law.mean - ROUNDING)
    yield "m_mu_lower", share(paper.m_mu_lower > law.mean + ROUNDING)
    yield "m_sigma", share(paper.m_sigma < law.sd - ROUNDING)
    yield "exceedance", share((sharp.exceedance < tail - ROUNDING).any(axis=1))
    yield "mean_upper", share(sharp.mean_upper < law.mean - ROUNDING)
    yield "mean_lower", share(sharp.mean_lower > law.mean + ROUNDING)
    yield "sd_upper", share(sharp.sd_upper < law.sd - ROUNDING)
    yield "sd_upper_minimax", share(sd_upper(scores, alpha) < law.sd - ROUNDING)


def anytime_misses(law: Law, n: int, alpha: float, runs: int, seed: int) -> Iterator[tuple[str, float]]:
    """The misses of the sequential tests, checked after each of n samples, with the null at the law's own mean.

    The capital against the truth reaches 1 / alpha exactly where a bound at that time has passed the truth.
    """
    scores = law.draw(np.random.default_rng([seed, n]), (runs, n))
    squares = predictable_squares(scores)

    def share(null: float, above: bool, rows: np.ndarray) -> float:
        return float(np.mean([Capital(null, above).path(row).max() >= math.log(1 / alpha) for row in rows]))

    if 0 < law.mean < 1:  # at 0 nothing is falsely certified, at 1 nothing falsely found to leak
        yield "certified falsely", share(law.mean, False, scores)
        yield "leaks falsely", share(law.mean, True, scores)
    if law.sd > 0:
        yield "anytime sd", share(law.sd**2, False, squares)


def many_misses(n: int, alpha: float, runs: int, seed: int) -> Iterator[tuple[str, float]]:
    """The misses of each claim over forty prompts; half leak with probability 10% and half with 2%."""
    rng, rates = np.random.default_rng([seed, n]), np.repeat([0.1, 0.02], 20)
    hits = rng.binomial(n, rates, (runs, len(rates)))
    own = [leak_bounds(row, n, alpha) for row in hits]
    yield "worst prompt", np.mean([worst_prompt(row)[1].value < 0.1 for row in own])
    yield "every prompt under", np.mean([every_prompt_under(row, np.nextafter(0.1, 0))[0] for row in own])
    yield "pooled average", np.mean([pooled_average(row, n, alpha).value < rates.mean() for row in hits])
    tables = [bonferroni(lambda each, row=row: leak_bounds(row, n, each), 40, alpha) for row in hits]
    table = [[bound.value for bound in row] for row in tables]
    yield "Bonferroni table", np.mean((np.array(table) < rates).any(axis=1))
    lists = [holm(binary_p_value(row, n, 0.1), 0.1, alpha)[0] for row in hits]
    yield "Holm list", np.mean(np.array(lists)[:, rates >= 0.1].any(axis=1))


def controls(n: int, alpha: float, runs: int, seed: int) -> Iterator[tuple[str, float]]:
    """Controls that are not bounds, on fair coins and on coins of 5%: the simulation must expose them."""
    rng, grid = np.random.default_rng([seed, n]), np.linspace(0, 1, 101)
    coins = np.sort((rng.random((runs, n)) < 0.5).astype(float), axis=1)
    yield "M_sigma as printed", np.mean([printed_variance_no_bound(row, grid, alpha) < 0.25 for row in coins])
    hits = np.cumsum(rng.random((runs, n)) < 0.05, axis=1)
    peeked = binary_upper(hits, np.arange(1, n + 1), alpha)
    yield "M_bin looked at after every sample", np.mean((peeked < 0.05).any(axis=1))


def main(alpha: float = 0.01, runs: int = 2000, sizes: tuple[int, ...] = (16, 128, 1024)) -> int:
    """Print the table; return 1 if a bound misses too often, or a control does not."""
    limit, worst = tolerated(alpha, runs), {}
    print(f"share of {runs} runs in which a bound misses, in %; alpha {alpha:.0%}, up to {limit:.2%} tolerated")

    def show(title: str, n: int, shares: dict[str, float]) -> None:
        print(f"{title:22} n={n:5}  " + ", ".join(f"{name} {100 * share:.2f}" for name, share in shares.items()))

    for law in LAWS:
        for n in sizes:
            shares = dict(misses(law, n, alpha, runs, seed=1))
            if n == max(sizes):  # checked after every sample, so the smaller sizes are included
                shares |= anytime_misses(law, n, alpha, runs, seed=1)
            show(law.name, n, shares)
            worst |= {name: max(share, worst.get(name, 0.0)) for name, share in shares.items()}
    for n in sizes:
        shares = dict(many_misses(n, alpha, runs, seed=1))
        show("40 prompts", n, shares)
        worst |= {name: max(share, worst.get(name, 0.0)) for name, share in shares.items()}
    for tree in TREES:
        for rho in (30, 1000):
            shares = dict(tree_misses(tree, rho, alpha, runs, seed=1))
            show(tree, rho, shares)
            worst |= {name: max(share, worst.get(name, 0.0)) for name, share in shares.items()}
    missed = {name: share for name, share in worst.items() if share > limit}
    invalid = dict(controls(max(sizes), alpha, runs, seed=1)) | dict(no_bounds(alpha, runs, seed=1))
    show("no bounds (controls)", max(sizes), invalid)
    print("\nthe largest share of each over all distributions and sizes:")
    for name, share in worst.items():
        print(f"  {name:20} {share:6.2%}  {'MISSES TOO OFTEN' if name in missed else 'keeps its level'}")
    found_out = all(share > limit for share in invalid.values())
    print("the controls are found out" if found_out else "A CONTROL IS NOT FOUND OUT")
    return int(bool(missed) or not found_out)


if __name__ == "__main__":
    sys.exit(main())
