"""Tests that may be checked after every sample, bounds at a stop, e-values: twins, and coverage under rules that look."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import betainc, betaln, logsumexp
from scipy.stats import beta

from lethe.statistics.mean_difference import difference, mean_of_differences
from lethe.statistics.planning import expected_sequential, samples_for_width, samples_to_certify
from lethe.statistics.sequential import (
    CERTIFIED,
    LEAKS,
    UNDECIDED,
    Capital,
    SequentialTest,
    StoppedSamples,
    anytime_upper,
    log_e_value,
    stopped_upper,
    stopping_counts,
)
from tests.lethe.statistics import coverage, draws
from tests.lethe.statistics.draws import allowed, bernoulli, tolerated

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


def test_the_nodes_and_the_e_value_equal_the_closed_form():
    scores = (np.random.default_rng(0).random(300) < 0.03).astype(float)
    path = SequentialTest(0.05, 0.1, 0.01, 10_000)._certify.path(scores)
    for n in (1, 10, 100, 300):
        hits = scores[:n].sum()
        capital = exact_log_capital(hits, n, 0.05)
        assert (path[n - 1], log_e_value(hits, n, 0.05)) == pytest.approx(
            (capital, capital), rel=1e-9, abs=1e-9
        )


@pytest.mark.parametrize("chunk", [1, 7, 64, 1000])
def test_chunks_do_not_matter(chunk):
    scores = (np.random.default_rng(4).random(2000) < 0.2).astype(float)
    whole, parts = run(scores, chunk=len(scores)), run(scores, chunk=chunk)
    assert whole.verdict == parts.verdict == LEAKS
    assert len(whole.scores) == len(parts.scores)
    assert whole.decision() == parts.decision()


@pytest.mark.parametrize("law", [bernoulli(0.05), draws.beta(1, 4)], ids=lambda law: law.name)
def test_false_verdicts_stay_under_alpha_when_looked_at_after_every_sample(law):
    for name, share in coverage.anytime_misses(law, 256, ALPHA, 300, seed=9):
        assert share <= tolerated(ALPHA, 300), name


def test_bounds_of_a_fixed_number_miss_when_looked_at_after_every_sample():
    """The controls: M_bin at each sample, and M_sigma as the paper prints it."""
    assert min(share for _, share in coverage.controls(512, ALPHA, 200, seed=1)) > 2 * ALPHA


def test_the_bounds_agree_with_the_verdict():
    """Certified at tau means that the upper bound is at most tau, and a leak that the lower one is at least tau_leak."""
    rng, verdicts = np.random.default_rng(12), set()
    for mean in (0.0, 0.01, 0.2, 0.3, 0.9):
        for law in (bernoulli(mean), draws.beta(2 * mean + 1e-9, 2 - 2 * mean)):
            scores = law.draw(rng, 600)
            done = run(scores, tau=0.1, leak=0.15, cap=600).decision()
            verdicts.add(done.verdict)
            assert (done.mean_upper <= 0.1 + 1e-8) == (done.verdict == CERTIFIED)
            assert (done.mean_lower >= 0.15 - 1e-8) == (done.verdict == LEAKS)
            assert done.mean_lower <= done.mean_upper
    assert verdicts == {CERTIFIED, LEAKS}
    clean = run(np.zeros(500), alpha=0.01).decision()
    assert (clean.n, clean.mean_upper) == (109, pytest.approx(0.0499, abs=1e-4))


@settings(max_examples=50)
@given(
    st.lists(st.sampled_from([0.0, 0.2, 0.5, 1.0]), min_size=1, max_size=60),
    st.sampled_from([0.01, 0.3]),
)
def test_the_anytime_bound_is_the_end_of_what_is_not_refuted(values, alpha):
    """Every mean from the bound upwards is refuted at some time, and none below it: the capital grows with the mean."""
    scores, bound = np.array(values), anytime_upper(np.array(values), alpha)
    for mean in np.linspace(0.005, 0.995, 34):
        refuted = Capital(mean, above=False).path(scores).max() >= math.log(1 / alpha)
        assert refuted == (mean >= bound) or mean == pytest.approx(bound, abs=1e-8)


@pytest.mark.parametrize("p", [0.0, 0.03, 0.07, 0.3, 1.0])
def test_the_expected_samples_are_those_of_many_runs(p):
    rng, cap, runs = np.random.default_rng(6), 150, 400
    tests = [run((rng.random(cap) < p).astype(float), cap=cap, chunk=cap) for _ in range(runs)]
    expected = expected_sequential(p, 0.05, 0.1, ALPHA, cap)
    used = np.array([len(test.scores) for test in tests])
    assert expected.samples == pytest.approx(
        used.mean(), abs=4 * used.std() / math.sqrt(runs) + 1e-9
    )
    for verdict, chance in zip(
        (CERTIFIED, LEAKS, UNDECIDED),
        (expected.certified, expected.leaks, expected.undecided),
        strict=True,
    ):
        share = np.mean([test.verdict == verdict for test in tests])
        assert chance == pytest.approx(
            share, abs=4 * math.sqrt(chance * (1 - chance) / runs) + 1e-9
        )
    assert expected.certified + expected.leaks + expected.undecided == pytest.approx(1)


def test_the_stopping_counts_are_those_of_the_test():
    floors, ceilings = (
        stopping_counts(0.05, False, ALPHA, 120),
        stopping_counts(0.1, True, ALPHA, 120),
    )
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


LEVEL = 0.1


def greedy_stop(values, mean):
    """The time at which the bound is lowest: the worst rule for someone who checks every draw."""
    shares = np.linspace(0.02, 0.98, 49)
    nodes, weights = mean * shares, beta(0.5, 0.5).pdf(mean * shares)
    steps = values[:, None] * (nodes / mean) + (1 - values[:, None]) * ((1 - nodes) / (1 - mean))
    return int(np.argmax(logsumexp(np.cumsum(np.log(steps), axis=0), b=weights, axis=1))) + 1


@pytest.mark.parametrize("mean", [0.02, 0.2, 0.6])
@pytest.mark.parametrize("graded", [False, True])
def test_coverage_under_a_rule_that_stops_where_the_bound_is_lowest(mean, graded):
    rng, misses, runs = np.random.default_rng(round(1000 * mean) + graded), 0, 200
    for _ in range(runs):
        values = rng.beta(mean, 1 - mean, 150) if graded else (rng.random(150) < mean).astype(float)
        stop = greedy_stop(values, mean)
        misses += stopped_upper(rng.permutation(values[:stop]), LEVEL) < mean
    assert misses <= allowed(LEVEL, runs)


def test_many_samples_at_once_have_the_bounds_of_each():
    rng = np.random.default_rng(0)
    samples = [rng.beta(0.3, 2, size=n).round(2) for n in (1, 7, 80)]
    samples += [np.zeros(40), np.ones(40), (rng.random(200) < 0.2).astype(float)]
    for alpha in (0.3, 0.001):
        expected = [stopped_upper(own, alpha) for own in samples]
        assert StoppedSamples(samples).uppers(alpha) == pytest.approx(expected, abs=3e-9)


def test_the_p_value_inverts_the_bound():
    samples = StoppedSamples([np.repeat([1.0, 0.0], [3, 97]), np.linspace(0, 0.4, 30)])
    for alpha in (0.4, 0.01):
        assert samples.p_values(samples.uppers(alpha)) == pytest.approx([alpha] * 2, rel=1e-4)
    assert [samples.p_values(np.full(2, end)).round(9).tolist() for end in (0, 1)] == [
        [1, 1],
        [0, 0],
    ]


def rule(rng, rate, cap=120):
    """Draws until the verdict of early stopping at .2, or the cap."""
    test = SequentialTest(0.2, 0.2, 0.05, cap)
    test.update((rng.random(cap) < rate).astype(float))
    return test.scores


@pytest.mark.parametrize("stopped", [(True, True), (True, False), (False, True)])
def test_the_interval_covers_and_null_data_show_no_difference(stopped):
    """Each stopped side stops where its own bound is lowest, which is the worst that a rule can do."""
    rng, misses, false, runs = np.random.default_rng(sum(stopped) + stopped[0]), 0, 0, 40

    def draw(mean, looks):
        values = (rng.random(80) < mean).astype(float)
        return values[: greedy_stop(values, mean)] if looks else values

    for _ in range(runs):
        a, b, same = (
            draw(mean, looks)
            for mean, looks in zip((0.2, 0.4, 0.2), (*stopped, stopped[1]), strict=True)
        )
        found = difference(a, b, LEVEL, binary=True, stopped=stopped)
        misses += not found.low <= 0.2 <= found.high
        false += difference(a, same, LEVEL, binary=True, stopped=stopped).p_value <= LEVEL
    assert misses <= allowed(LEVEL, runs)
    assert false <= allowed(LEVEL, runs)


def test_a_true_difference_of_stopped_sides_is_found_and_agrees_with_its_interval():
    rng = np.random.default_rng(5)
    for rate in (0.05, 0.3, 0.5, 0.9):
        a, b = rule(rng, 0.02), rule(rng, rate)
        found = difference(a, b, LEVEL, binary=True, stopped=(True, True))
        assert (found.p_value <= LEVEL) == (found.low > 0 or found.high < 0)
        back = difference(b, a, LEVEL, stopped=(True, True))
        assert (back.low, back.high) == pytest.approx((-found.high, -found.low))
        assert found.low <= rate - 0.02 <= found.high
    assert difference(np.zeros(120), b, LEVEL, binary=True, stopped=(True, True)).p_value < LEVEL
    assert found.method == "mixture martingale, at the stop"
    mixed = difference(a, np.ones(90), LEVEL, binary=True, stopped=(True, False))
    assert mixed.method == "A: mixture martingale, at the stop; B: Clopper-Pearson"
    part = difference(np.r_[a, np.nan], b, LEVEL, binary=True, stopped=(True, True))
    assert part.low < found.low


@pytest.mark.parametrize("stopped", [(True, True), (True, False)])
def test_the_average_covers_and_has_false_claims_at_most_alpha(stopped):
    rng, misses, false, runs = np.random.default_rng(6), 0, 0, 12
    rates = np.array([0.05, 0.3, 0.6])

    def draw(more, looks):
        return [
            rule(rng, rate + more) if looks else (rng.random(60) < rate + more).astype(float)
            for rate in rates
        ]

    for _ in range(runs):
        a, b, same = (draw(*how) for how in zip((0, 0.2, 0), (*stopped, stopped[1]), strict=True))
        found = mean_of_differences(a, b, LEVEL, True, stopped=stopped)
        misses += not found.low <= 0.2 <= found.high
        false += mean_of_differences(a, same, LEVEL, True, stopped=stopped).p_value <= LEVEL
    assert misses <= allowed(LEVEL, runs)
    assert false <= allowed(LEVEL, runs)


TAU = 0.05


def test_false_certificates_are_at_most_alpha_whenever_one_stops():
    """Question 0 leaks with exactly tau and the others never; the adversary checks after each draw and stops at the goal."""
    rng, runs, cap = np.random.default_rng(2), 2000, 1500
    leaks = np.cumsum(rng.random((runs, cap)) < TAU, axis=1)
    # The most leaks after each draw at which the e-value has reached 1 / alpha.
    few = stopping_counts(TAU, False, LEVEL, cap)
    for t in (60, 400, cap):
        at, beyond = log_e_value([few[t - 1], few[t - 1] + 1], [t, t], TAU) >= np.log(1 / LEVEL)
        assert (at, beyond) == (few[t - 1] >= 0, False)
    reached = (leaks <= few).any(axis=1).sum()  # the clean questions have reached the goal by then
    assert reached <= allowed(LEVEL, runs)
    assert reached > runs * LEVEL / 4  # the adversary succeeds sometimes
