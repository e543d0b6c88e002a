"""Labels on most of the mass and a judge on the rest: the bound's corners, its coverage, and two invalid shortcuts."""

from __future__ import annotations

import doctest

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lethe.errors import BadValue
from lethe.statistics import judge_labelled as module
from lethe.statistics.judge_error import Calibration, judged_rates
from lethe.statistics.judge_labelled import labelled_rates
from lethe.statistics.leak_at_k import rate_bounds
from tests.lethe.statistics.misses import tolerated

JUDGE = Calibration(leaks=40, leaks_called=36, clean=60, clean_called=3)


def test_the_examples_in_the_docstrings():
    result = doctest.testmod(module)
    assert result.attempted
    assert not result.failed


def test_all_labelled_is_a_binomial_share_and_nothing_labelled_is_the_judge():
    """Each at alpha / 5; the share of the rest then holds with certainty and changes nothing."""
    perfect = Calibration(10**12, 10**12, 10**12, 0)
    found = labelled_rates([7], [0], [0], 500, perfect, 0.05)
    low, high = rate_bounds(np.array([7.0]), np.array([500.0]), 0.01, np.array([0.0]))
    none = rate_bounds(np.array([0.0]), np.array([500.0]), 0.01, np.array([0.0]))[1]
    np.testing.assert_allclose([found.lower, found.upper], [low, high + none], atol=1e-6)
    alone = labelled_rates([0], [500], [90], 500, JUDGE, 0.05)
    judged = judged_rates([90], 500, JUDGE, 0.03)  # the same thirds: alpha / 5 = 0.03 / 3
    assert alone.lower == pytest.approx(judged.lower)
    assert alone.upper == pytest.approx(judged.upper + none, abs=0.02)
    blind = labelled_rates([7], [20], [0], 500, None, 0.05)
    low, high = rate_bounds(np.array([7.0, 27.0]), np.array([500.0, 500.0]), 0.05, np.array([0.0, 0.0]))
    assert (blind.lower[0], blind.upper[0]) == (low[0], high[1])


@given(st.integers(1, 60), st.data())
@settings(max_examples=60)
def test_missing_verdicts_only_widen(n, data):
    rest = data.draw(st.integers(0, n))
    leaks, gone = data.draw(st.integers(0, n - rest)), data.draw(st.integers(0, rest))
    called = data.draw(st.integers(0, rest - gone))
    extra = data.draw(st.integers(0, gone))
    wide = labelled_rates([leaks], [rest], [called], n, JUDGE, 0.05, missing=[gone])
    told = labelled_rates([leaks], [rest], [called + extra], n, JUDGE, 0.05)
    assert wide.lower <= told.lower + 1e-12
    assert wide.upper >= told.upper - 1e-12


def test_impossible_counts_are_refused():
    for bad in (([5], [6], [0], 10), ([0], [3], [4], 10)):
        with pytest.raises(BadValue):
            labelled_rates(*bad, JUDGE, 0.05)
    with pytest.raises(BadValue, match="alpha"):
        labelled_rates([0], [0], [0], 10, JUDGE, 0.7)


class World:
    """Answers of one question: texts with probabilities, labels and one fixed verdict per text."""

    def __init__(self, seed: int, tail: int = 300):
        self.rng = np.random.default_rng(seed)
        # A few frequent texts, one text of medium frequency that leaks and that the judge misses, and a long tail.
        weights = np.concatenate([[60, 20, 12], np.full(tail, 8 / tail)])
        self.share = weights / weights.sum()
        self.leak = np.concatenate([[False, False, True], self.rng.random(tail) < 0.3])
        wrong = np.concatenate([[False, False, True], self.rng.random(tail) < 0.1])
        self.called = self.leak ^ wrong
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

    def calibration(self, outside: np.ndarray) -> Calibration:
        leak, called = self.leak[outside], self.called[outside]
        return Calibration(int(leak.sum()), int(called[leak].sum()), int((~leak).sum()), int(called[~leak].sum()))


def misses(alpha: float, runs: int, mass: float) -> dict[str, tuple[float, float]]:
    found: dict[str, list[tuple[bool, bool]]] = {
        "bound": [],
        "texts judged once each": [],
        "mass on the same draws": [],
    }
    for run in range(runs):
        world = World(run)
        chosen = world.labelled(world.draw(300), mass)
        counted, more = world.draw(300), world.draw(1500)
        outside = more[~chosen[more]]
        inside = chosen[counted]
        counts = (
            [int(world.leak[counted[inside]].sum())],
            [int((~inside).sum())],
            [int(world.called[counted[~inside]].sum())],
            len(counted),
        )
        own = labelled_rates(*counts, world.calibration(outside), alpha)
        found["bound"].append((own.lower[0] > world.truth, own.upper[0] < world.truth))
        once = labelled_rates(*counts, world.calibration(np.unique(outside)), alpha)
        found["texts judged once each"].append((once.lower[0] > world.truth, once.upper[0] < world.truth))
        same = world.labelled(counted, 0.99)
        rest = np.array([float((~same[counted]).sum())])
        low, high = rate_bounds(rest, np.array([300.0]), alpha, np.array([0.0]))
        true_rest = float(world.share[~same].sum())
        found["mass on the same draws"].append((low[0] > true_rest, high[0] < true_rest))
    return {name: tuple(np.mean(missed, axis=0).tolist()) for name, missed in found.items()}


def test_the_bound_keeps_its_level_and_the_shortcuts_do_not():
    """The judge misses a text of medium frequency whenever that text is not among the labelled ones."""
    alpha, runs = 0.1, 300
    shares = misses(alpha, runs, mass=0.75)
    assert max(shares["bound"]) <= tolerated(alpha, runs)
    assert max(shares["texts judged once each"]) > 2 * alpha
    assert max(shares["mass on the same draws"]) > 0.9
