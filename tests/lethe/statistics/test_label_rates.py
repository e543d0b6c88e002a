"""Labels alone: ends by hand, coverage where a judge fails in a question, and two invalid shortcuts."""

from __future__ import annotations

import numpy as np
import pytest

from lethe.errors import BadValue
from lethe.statistics.bounds import binary_lower, binary_upper
from lethe.statistics.counts import labelled_average, labelled_rates, random_labels, rate_bounds
from tests.lethe.statistics.misses import tolerated

SIDES = {"lower": binary_lower, "upper": binary_upper}


def test_the_ends_by_hand():
    lower, upper = labelled_rates(np.array([7, 0]), np.array([20, 0]), np.array([500, 500]), 0.05)
    assert lower.tolist() == [binary_lower(7, 500, 0.05), 0]
    assert upper.tolist() == [binary_upper(27, 500, 0.05), binary_upper(0, 500, 0.05)]
    leaks, rest, n = np.array([7, 3]), np.array([200, 40]), np.array([500, 500])
    got = labelled_average(leaks, rest, n, (2, 80), 0.08)
    cp = {side: [f(k, size, 0.02) for k, size in ((10, 1000), (240, 1000), (2, 80))] for side, f in SIDES.items()}
    assert got == pytest.approx(tuple(own + r * rate for own, r, rate in cp.values()))
    assert labelled_average(leaks, rest, n, None, 0.08) == (
        binary_lower(10, 1000, 0.08),
        binary_upper(250, 1000, 0.08),
    )
    assert labelled_average(leaks, rest, n, (0, 0), 0.08) == (
        binary_lower(10, 1000, 0.02),
        binary_upper(250, 1000, 0.02),
    )
    assert random_labels(5, 90, 0.05) == (binary_lower(5, 90, 0.05), binary_upper(5, 90, 0.05))
    assert random_labels(1, 90, 0.05)[0] == 0.05 / 90


def test_impossible_counts_are_refused():
    with pytest.raises(BadValue):
        labelled_rates(np.array([5]), np.array([6]), np.array([10]), 0.05)
    with pytest.raises(BadValue, match="alpha"):
        labelled_rates(np.array([0]), np.array([0]), np.array([10]), 0.7)


class World:
    """Answers of one question: texts with probabilities, and labels."""

    def __init__(self, seed: int, tail: int = 300):
        self.rng = np.random.default_rng(seed)
        # A few frequent texts, one text of medium frequency that leaks, and a long tail.
        weights = np.concatenate([[60, 20, 12], np.full(tail, 8 / tail)])
        self.share = weights / weights.sum()
        self.leak = np.concatenate([[False, False, True], self.rng.random(tail) < 0.3])
        self.truth = float(self.share[self.leak].sum())

    def draw(self, n: int) -> np.ndarray:
        return self.rng.choice(len(self.share), n, p=self.share)

    def labelled(self, draws: np.ndarray, mass: float) -> np.ndarray:
        """The most frequent texts of these draws until they cover ``mass`` of them."""
        counts = np.bincount(draws, minlength=len(self.share))
        order = np.argsort(-counts, kind="stable")
        needed = int(np.searchsorted(np.cumsum(counts[order]), mass * len(draws))) + 1
        chosen = np.zeros(len(self.share), bool)
        chosen[order[:needed]] = True
        return chosen & (counts > 0)


def misses(alpha: float, runs: int, mass: float) -> dict[str, tuple[float, float]]:
    found: dict[str, list[tuple[bool, bool]]] = {
        "question": [],
        "average": [],
        "texts labelled once each": [],
        "mass on the same draws": [],
    }
    for run in range(runs):
        world = World(run)
        chosen = world.labelled(world.draw(300), mass)
        counted = world.draw(300)
        outside = np.flatnonzero(~chosen[counted])
        leaks, rest = np.array([world.leak[counted[chosen[counted]]].sum(), 0]), np.array([len(outside), 0])
        n = np.array([300, 300])  # a second question that never leaks, and is labelled whole
        low, high = labelled_rates(leaks, rest, n, alpha)
        found["question"].append((low[0] > world.truth, high[0] < world.truth))
        drawn = world.rng.permutation(outside)[:30]
        texts = np.unique(counted[outside])
        for name, labels in (
            ("average", world.leak[counted[drawn]]),
            ("texts labelled once each", world.leak[texts]),
        ):
            ends = labelled_average(leaks, rest, n, (int(labels.sum()), len(labels)), alpha)
            found[name].append((ends[0] > world.truth / 2, ends[1] < world.truth / 2))
        same = world.labelled(counted, 0.99)
        share = np.array([float((~same[counted]).sum())])
        low, high = rate_bounds(share, np.array([300.0]), alpha)
        true_rest = float(world.share[~same].sum())
        found["mass on the same draws"].append((low[0] > true_rest, high[0] < true_rest))
    return {name: tuple(np.mean(missed, axis=0).tolist()) for name, missed in found.items()}


@pytest.mark.parametrize("alpha", [0.01, 0.1])
def test_the_bounds_keep_their_level_and_the_shortcuts_do_not(alpha):
    """A text of medium frequency leaks, and is labelled only in some of the runs."""
    runs = 400
    shares = misses(alpha, runs, mass=0.75)
    for name in ("question", "average"):
        assert max(shares[name]) <= tolerated(alpha, runs), name
    assert max(shares["texts labelled once each"]) > 2 * alpha
    assert max(shares["mass on the same draws"]) > 0.9
