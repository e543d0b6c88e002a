"""Tests that may be checked after every sample: false verdicts stay below alpha, and few samples are needed."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import betainc, betaln

from lethe.errors import BadValue
from lethe.statistics.planning import expected_sequential, samples_for_width, samples_to_certify
from lethe.statistics.sequential import (
    CERTIFIED,
    LEAKS,
    UNDECIDED,
    Capital,
    SequentialTest,
    anytime_upper,
    stopping_counts,
)

ALPHA = 0.05


def run(scores, tau=0.05, leak=0.10, alpha=ALPHA, cap=2048, chunk=64):
    test = SequentialTest(tau, leak, alpha, cap)
    for start in range(0, len(scores), chunk):
        test.update(scores[start : start + chunk])
        if test.done:
            break
    return test


def exact_log_capital(hits, n, p0):
    """The mixture in closed form for 0/1 scores: Beta(1/2, 1/2) cut off at p0."""

    def incomplete(a, b):
        return math.log(betainc(a, b, p0)) + betaln(a, b)

    null = hits * math.log(p0) + (n - hits) * math.log1p(-p0)
    return incomplete(hits + 0.5, n - hits + 0.5) - incomplete(0.5, 0.5) - null


def test_the_nodes_equal_the_closed_form():
    scores = (np.random.default_rng(0).random(300) < 0.03).astype(float)
    test = SequentialTest(0.05, 0.1, 0.01, 10_000)
    path = test._certify.path(scores)
    for n in (1, 10, 100, 300):
        assert path[n - 1] == pytest.approx(exact_log_capital(scores[:n].sum(), n, 0.05), rel=1e-9, abs=1e-9)


def test_the_known_stopping_times():
    """109 clean answers certify 5% at alpha .01; three leaks in a row detect 10%."""
    clean = run(np.zeros(500), alpha=0.01)
    assert (clean.verdict, len(clean.scores)) == (CERTIFIED, 109)
    leaky = run(np.ones(500), alpha=0.01)
    assert (leaky.verdict, len(leaky.scores)) == (LEAKS, 3)


@pytest.mark.parametrize("chunk", [1, 7, 64, 1000])
def test_chunks_do_not_matter(chunk):
    scores = (np.random.default_rng(4).random(2000) < 0.2).astype(float)
    whole, parts = run(scores, chunk=len(scores)), run(scores, chunk=chunk)
    assert whole.verdict == parts.verdict == LEAKS
    assert len(whole.scores) == len(parts.scores)
    assert whole.decision() == parts.decision()


NULLS = {
    "coins": lambda rng, mean, n: (rng.random(n) < mean).astype(float),
    "scores between": lambda rng, mean, n: rng.beta(2 * mean, 2 * (1 - mean), n),
}


@pytest.mark.parametrize("kind", NULLS)
def test_false_verdicts_stay_under_alpha_when_looked_at_after_every_sample(kind):
    rng, runs = np.random.default_rng(9), 600
    limit = ALPHA + 3 * math.sqrt(ALPHA * (1 - ALPHA) / runs)
    certified = [run(NULLS[kind](rng, 0.05, 512), cap=512).verdict == CERTIFIED for _ in range(runs)]
    assert np.mean(certified) <= limit
    detected = [run(NULLS[kind](rng, 0.10, 512), cap=512).verdict == LEAKS for _ in range(runs)]
    assert np.mean(detected) <= limit


def test_peeking_with_the_fixed_bound_would_be_wrong():
    """The reason for these tests: checking M_bin after each sample certifies falsely far more often than alpha."""
    from lethe.statistics.bounds import binary_upper

    rng, runs, n = np.random.default_rng(1), 400, np.arange(1, 513)
    hits = np.cumsum(rng.random((runs, 512)) < 0.05, axis=1)
    upper = np.where(hits >= n, 1.0, binary_upper(np.minimum(hits, n - 1), n, ALPHA))
    assert np.mean((upper <= 0.05).any(axis=1)) > 2 * ALPHA


def test_the_bounds_at_the_stop_hold():
    rng, runs = np.random.default_rng(3), 100
    limit = ALPHA + 3 * math.sqrt(ALPHA * (1 - ALPHA) / runs)
    decisions = [run((rng.random(256) < 0.08).astype(float), cap=256).decision() for _ in range(runs)]
    assert np.mean([decision.mean_upper < 0.08 for decision in decisions]) <= limit
    assert np.mean([decision.mean_lower > 0.08 for decision in decisions]) <= limit
    assert np.mean([decision.sd_upper < math.sqrt(0.08 * 0.92) for decision in decisions]) <= limit


def test_undecided_at_the_cap_and_nothing_after_the_decision():
    between = run((np.random.default_rng(0).random(100) < 0.07).astype(float), cap=100)
    assert (between.verdict, between.done, len(between.scores)) == (UNDECIDED, True, 100)
    between.update(np.zeros(1000))
    assert len(between.scores) == 100
    clean = run(np.zeros(200), alpha=0.01)
    clean.update(np.ones(50))
    assert (clean.verdict, len(clean.scores)) == (CERTIFIED, 109)


def test_what_is_refused():
    for tau, leak, alpha, cap in [
        (0, 0.1, 0.05, 10),
        (0.2, 0.1, 0.05, 10),
        (0.1, 1, 0.05, 10),
        (0.1, 0.2, 0.7, 10),
    ]:
        with pytest.raises(BadValue):
            SequentialTest(tau, leak, alpha, cap)
    with pytest.raises(BadValue, match="cap"):
        SequentialTest(0.1, 0.2, 0.05, 0)
    with pytest.raises(BadValue, match="scores"):
        SequentialTest(0.1, 0.2, 0.05, 10).update(np.array([0.5, 2.0]))


def test_the_bounds_agree_with_the_verdict():
    """Certified at tau means that the upper bound is at most tau, and a leak that the lower one is at least tau_leak."""
    rng, verdicts = np.random.default_rng(12), set()
    for mean in (0.0, 0.01, 0.2, 0.3, 0.9):
        for kind in NULLS.values():
            scores = kind(rng, mean, 600) if mean else np.zeros(600)
            done = run(scores, tau=0.1, leak=0.15, cap=600).decision()
            verdicts.add(done.verdict)
            assert (done.mean_upper <= 0.1 + 1e-8) == (done.verdict == CERTIFIED)
            assert (done.mean_lower >= 0.15 - 1e-8) == (done.verdict == LEAKS)
            assert done.mean_lower <= done.mean_upper
    assert verdicts == {CERTIFIED, LEAKS}
    clean = run(np.zeros(500), alpha=0.01).decision()
    assert (clean.n, clean.mean_upper) == (109, pytest.approx(0.0499, abs=1e-4))


@settings(max_examples=50)
@given(st.lists(st.sampled_from([0.0, 0.2, 0.5, 1.0]), min_size=1, max_size=60), st.sampled_from([0.01, 0.3]))
def test_the_anytime_bound_is_the_end_of_what_is_not_refuted(values, alpha):
    """Every mean from the bound upwards is refuted at some time, and none below it: the capital grows with the mean."""
    scores, bound = np.array(values), anytime_upper(np.array(values), alpha)
    for mean in np.linspace(0.005, 0.995, 34):
        refuted = Capital(mean, above=False).path(scores).max() >= math.log(1 / alpha)
        assert refuted == (mean >= bound) or mean == pytest.approx(bound, abs=1e-8)


def test_the_anytime_bounds_hold_at_every_time_at_once():
    """Each bound is the best up to its time, so a bound that ever missed also misses at the end of the run."""
    rng, runs, n = np.random.default_rng(5), 150, 100
    limit = ALPHA + 3 * math.sqrt(ALPHA * (1 - ALPHA) / runs)
    for draw in NULLS.values():
        rows = [draw(rng, 0.3, n) for _ in range(runs)]
        assert np.mean([anytime_upper(row, ALPHA) < 0.3 for row in rows]) <= limit
        assert np.mean([1 - anytime_upper(1 - row, ALPHA) > 0.3 for row in rows]) <= limit
    row = rows[0]
    path = [anytime_upper(row[:t], ALPHA) for t in range(1, n, 20)]
    assert path == sorted(path, reverse=True)


def test_unknown_scores_widen_both_sides_and_the_spread():
    test = SequentialTest(0.05, 0.1, ALPHA, 200)
    known = (np.random.default_rng(2).random(200) < 0.07).astype(float)
    unknown = np.arange(200) % 10 == 0
    test.update(np.where(unknown, 1.0, known), low=np.where(unknown, 0.0, known))
    wide = test.decision()
    narrow = run(known, cap=200).decision()
    assert wide.mean_upper > narrow.mean_upper
    assert wide.mean_lower < narrow.mean_lower
    assert wide.sd_upper > narrow.sd_upper


@pytest.mark.parametrize("p", [0.0, 0.03, 0.07, 0.3, 1.0])
def test_the_expected_samples_are_those_of_many_runs(p):
    rng, cap, runs = np.random.default_rng(6), 150, 400
    tests = [run((rng.random(cap) < p).astype(float), cap=cap, chunk=cap) for _ in range(runs)]
    expected = expected_sequential(p, 0.05, 0.1, ALPHA, cap)
    used = np.array([len(test.scores) for test in tests])
    assert expected.samples == pytest.approx(used.mean(), abs=4 * used.std() / math.sqrt(runs) + 1e-9)
    for verdict, chance in zip(
        (CERTIFIED, LEAKS, UNDECIDED), (expected.certified, expected.leaks, expected.undecided), strict=True
    ):
        share = np.mean([test.verdict == verdict for test in tests])
        assert chance == pytest.approx(share, abs=4 * math.sqrt(chance * (1 - chance) / runs) + 1e-9)
    assert expected.certified + expected.leaks + expected.undecided == pytest.approx(1)


def test_the_stopping_counts_are_those_of_the_test():
    floors, ceilings = stopping_counts(0.05, False, ALPHA, 120), stopping_counts(0.1, True, ALPHA, 120)
    goal = math.log(1 / ALPHA)
    for n in (1, 2, 40, 59, 60, 61, 120):
        for ones in range(n + 1):
            scores = np.repeat([1.0, 0.0], [ones, n - ones])
            assert (Capital(0.05, above=False).path(scores)[-1] >= goal) == (ones <= floors[n - 1])
            assert (Capital(0.1, above=True).path(scores)[-1] >= goal) == (ones >= ceilings[n - 1])


def test_planning():
    assert samples_for_width(0.05, 0.01) == 922
    assert samples_for_width(0.05, 0.01, sides=2) == 1060
    n = samples_to_certify(0.05, 0.01)
    assert 1 - 0.01 ** (1 / n) <= 0.05 < 1 - 0.01 ** (1 / (n - 1))
    assert expected_sequential(0.0, 0.05, 0.1, 0.01, 1024).samples == 109
    with pytest.raises(BadValue, match="p: got"):
        expected_sequential(1.5, 0.05, 0.1, 0.01, 100)
    for bad in (0, 1, -1):
        with pytest.raises(BadValue):
            samples_for_width(bad, 0.01)
        with pytest.raises(BadValue):
            samples_to_certify(bad, 0.01)
