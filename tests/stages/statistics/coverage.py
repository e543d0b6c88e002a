"""How often each bound misses the truth: `make coverage` prints the table, the tests run a small part of it."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator

import numpy as np

from stages.statistics import dispersion
from stages.statistics.bounds import paper_bounds
from stages.statistics.tighter import tighter_bounds
from tests.stages.statistics.draws import LAWS, Law

THRESHOLDS = np.array([0.0, 0.1, 0.25, 0.5, 0.75, 0.9])
ROUNDING = 1e-9  # a bound that equals the truth does not miss it


def misses(law: Law, n: int, alpha: float, runs: int, seed: int) -> Iterator[tuple[str, float]]:
    """(bound, share of ``runs`` in which it misses) for every bound; one run is n draws of ``law``."""
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
    yield "sd_upper_minimax", share(dispersion.sd_upper(scores, alpha) < law.sd - ROUNDING)


def tolerated(alpha: float, runs: int) -> float:
    """alpha and three standard errors."""
    return alpha + 3 * math.sqrt(alpha * (1 - alpha) / runs)


def main(alpha: float = 0.01, runs: int = 2000, sizes: tuple[int, ...] = (16, 128, 1024)) -> int:
    limit, failed = tolerated(alpha, runs), 0
    print(f"alpha {alpha}, {runs} runs each, at most {limit:.4f} tolerated")
    for law in LAWS:
        for n in sizes:
            shares = dict(misses(law, n, alpha, runs, seed=1))
            failed += sum(share > limit for share in shares.values())
            print(f"{law.name:24} n={n:5} " + " ".join(f"{name}={share:.4f}" for name, share in shares.items()))
    print("every bound keeps its level" if not failed else f"{failed} bounds miss too often")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
