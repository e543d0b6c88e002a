"""Tests that may be checked after every sample, bounds at a stop, e-values: twins, and coverage under rules that look."""

import math
from dataclasses import dataclass

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
    """The test after it has seen the scores chunk by chunk, up to its verdict."""
    test = SequentialTest(tau, leak, alpha, cap)
    for start in range(0, len(scores), chunk):
        test.update(scores[start : start + chunk])
        if test.done:
            break
    return test


def exact_log_capital(hits, n, null):
    """The mixture in closed form for 0/1 scores: Beta(1/2, 1/2) cut off at ``null``."""

    def log_incomplete(a, b):
        return math.log(betainc(a, b, null)) + betaln(a, b)

    log_likelihood = hits * math.log(null) + (n - hits) * math.log1p(-null)
    mixture = log_incomplete(hits + 0.5, n - hits + 0.5) - log_incomplete(0.5, 0.5)
    return mixture - log_likelihood


@pytest.mark.parametrize("n", [1, 10, 100, 300])
def test_the_nodes_and_the_e_value_equal_the_closed_form(n):
    scores = (np.random.default_rng(0).random(300) < 0.03).astype(float)
    hits = scores[:n].sum()
    exact = pytest.approx(exact_log_capital(hits, n, 0.05), rel=1e-9, abs=1e-9)

    path = SequentialTest(0.05, 0.1, 0.01, 10_000)._certify.path(scores)

    assert path[n - 1] == exact
    assert log_e_value(hits, n, 0.05) == exact


@pytest.mark.parametrize("chunk", [1, 7, 64, 1000])
def test_chunks_do_not_matter(chunk):
    scores = (np.random.default_rng(4).random(2000) < 0.2).astype(float)

    whole = run(scores, chunk=len(scores))
    in_chunks = run(scores, chunk=chunk)

    assert whole.verdict == in_chunks.verdict == LEAKS
    assert len(whole.scores) == len(in_chunks.scores)
    assert whole.decision() == in_chunks.decision()


@pytest.mark.parametrize("law", [bernoulli(0.05), draws.beta(1, 4)], ids=lambda law: law.name)
def test_false_verdicts_stay_under_alpha_when_looked_at_after_every_sample(law):
    for name, share in coverage.anytime_misses(law, 256, ALPHA, 300, seed=9):
        assert share <= tolerated(ALPHA, 300), name


def test_bounds_of_a_fixed_number_miss_when_looked_at_after_every_sample():
    """The controls: M_bin at each sample, and M_sigma as the paper prints it."""
    for name, share in coverage.controls(512, ALPHA, 200, seed=1):
        assert share > 2 * ALPHA, name


def test_the_bounds_agree_with_the_verdict():
    """Certified at tau means that the upper bound is at most tau, and a leak that the lower one is at least tau_leak."""
    rng = np.random.default_rng(12)

    verdicts = set()
    for mean in (0.0, 0.01, 0.2, 0.3, 0.9):
        for law in (bernoulli(mean), draws.beta(2 * mean + 1e-9, 2 - 2 * mean)):
            scores = law.draw(rng, 600)
            decision = run(scores, tau=0.1, leak=0.15, cap=600).decision()
            verdicts.add(decision.verdict)
            assert (decision.mean_upper <= 0.1 + 1e-8) == (decision.verdict == CERTIFIED)
            assert (decision.mean_lower >= 0.15 - 1e-8) == (decision.verdict == LEAKS)
            assert decision.mean_lower <= decision.mean_upper
    assert verdicts == {CERTIFIED, LEAKS}


def test_answers_without_a_leak_are_certified_after_109_of_them():
    decision = run(np.zeros(500), alpha=0.01).decision()

    assert decision.n == 109
    assert decision.mean_upper == pytest.approx(0.0499, abs=1e-4)


@settings(max_examples=50)
@given(
    st.lists(st.sampled_from([0.0, 0.2, 0.5, 1.0]), min_size=1, max_size=60),
    st.sampled_from([0.01, 0.3]),
)
def test_the_anytime_bound_is_the_end_of_what_is_not_refuted(values, alpha):
    """Every mean from the bound upwards is refuted at some time, and none below it: the capital grows with the mean."""
    scores = np.array(values)

    bound = anytime_upper(scores, alpha)

    for mean in np.linspace(0.005, 0.995, 34):
        if mean == pytest.approx(bound, abs=1e-8):
            continue
        refuted = Capital(mean, above=False).path(scores).max() >= math.log(1 / alpha)
        assert refuted == (mean >= bound)


@pytest.mark.parametrize("rate", [0.0, 0.03, 0.07, 0.3, 1.0])
def test_the_expected_samples_are_those_of_many_runs(rate):
    rng = np.random.default_rng(6)
    cap = 150
    runs = 400
    n_used = np.zeros(runs)
    verdicts = []
    for place in range(runs):
        test = run((rng.random(cap) < rate).astype(float), cap=cap, chunk=cap)
        n_used[place] = len(test.scores)
        verdicts.append(test.verdict)

    expected = expected_sequential(rate, 0.05, 0.1, ALPHA, cap)

    error = 4 * n_used.std() / math.sqrt(runs)
    assert expected.samples == pytest.approx(n_used.mean(), abs=error + 1e-9)
    probability_of_verdict = {
        CERTIFIED: expected.certified,
        LEAKS: expected.leaks,
        UNDECIDED: expected.undecided,
    }
    for verdict, probability in probability_of_verdict.items():
        share = verdicts.count(verdict) / runs
        error = 4 * math.sqrt(probability * (1 - probability) / runs)
        assert probability == pytest.approx(share, abs=error + 1e-9)
    assert sum(probability_of_verdict.values()) == pytest.approx(1)


@pytest.mark.parametrize("n", [1, 2, 40, 59, 60, 61, 120])
def test_the_stopping_counts_are_those_of_the_test(n):
    floor = stopping_counts(0.05, False, ALPHA, 120)[n - 1]
    ceiling = stopping_counts(0.1, True, ALPHA, 120)[n - 1]
    goal = math.log(1 / ALPHA)

    for ones in range(n + 1):
        scores = np.repeat([1.0, 0.0], [ones, n - ones])
        below = Capital(0.05, above=False).path(scores)[-1]
        above = Capital(0.1, above=True).path(scores)[-1]
        assert (below >= goal) == (ones <= floor)
        assert (above >= goal) == (ones >= ceiling)


@pytest.mark.parametrize(("sides", "samples"), [(1, 922), (2, 1060)])
def test_samples_for_a_width_of_5_percent(sides, samples):
    assert samples_for_width(0.05, 0.01, sides=sides) == samples


def test_the_samples_for_a_width_are_of_one_side_where_none_is_named():
    assert samples_for_width(0.05, 0.01) == samples_for_width(0.05, 0.01, sides=1)


def test_samples_to_certify_are_the_fewest():
    n = samples_to_certify(0.05, 0.01)

    assert 1 - 0.01 ** (1 / n) <= 0.05 < 1 - 0.01 ** (1 / (n - 1))


def test_a_model_that_never_leaks_is_expected_to_need_109_samples():
    assert expected_sequential(0.0, 0.05, 0.1, 0.01, 1024).samples == 109


LEVEL = 0.1


def greedy_stop(values, mean):
    """The time at which the bound is lowest: the worst rule for someone who checks every draw."""
    shares = np.linspace(0.02, 0.98, 49)
    nodes = mean * shares
    weights = beta(0.5, 0.5).pdf(nodes)
    gains = values[:, None] * (nodes / mean)
    losses = (1 - values[:, None]) * ((1 - nodes) / (1 - mean))
    log_paths = np.cumsum(np.log(gains + losses), axis=0)
    log_capital = logsumexp(log_paths, b=weights, axis=1)
    return int(np.argmax(log_capital)) + 1


@pytest.mark.seconds
@pytest.mark.parametrize("mean", [0.02, 0.2, 0.6])
@pytest.mark.parametrize("graded", [False, True])
def test_coverage_under_a_rule_that_stops_where_the_bound_is_lowest(mean, graded):
    rng = np.random.default_rng(round(1000 * mean) + graded)
    runs = 200

    misses = 0
    for _ in range(runs):
        if graded:
            values = rng.beta(mean, 1 - mean, 150)
        else:
            values = (rng.random(150) < mean).astype(float)
        stop = greedy_stop(values, mean)
        misses += stopped_upper(rng.permutation(values[:stop]), LEVEL) < mean

    assert misses <= allowed(LEVEL, runs)


@pytest.mark.parametrize("alpha", [0.3, 0.001])
def test_many_samples_at_once_have_the_bounds_of_each(alpha):
    rng = np.random.default_rng(0)
    samples = [rng.beta(0.3, 2, size=n).round(2) for n in (1, 7, 80)]
    samples += [np.zeros(40), np.ones(40), (rng.random(200) < 0.2).astype(float)]
    alone = [stopped_upper(scores, alpha) for scores in samples]

    together = StoppedSamples(samples).uppers(alpha)

    assert together == pytest.approx(alone, abs=3e-9)


TWO_SAMPLES = StoppedSamples([np.repeat([1.0, 0.0], [3, 97]), np.linspace(0, 0.4, 30)])


@pytest.mark.parametrize("alpha", [0.4, 0.01])
def test_the_p_value_inverts_the_bound(alpha):
    uppers = TWO_SAMPLES.uppers(alpha)

    assert TWO_SAMPLES.p_values(uppers) == pytest.approx([alpha] * 2, rel=1e-4)


@pytest.mark.parametrize(("null", "p_value"), [(0, 1), (1, 0)])
def test_a_mean_of_at_least_0_is_never_refuted_and_one_of_1_is_at_once(null, p_value):
    p_values = TWO_SAMPLES.p_values(np.full(2, null))

    assert p_values.round(9).tolist() == [p_value, p_value]


def stopped_early(rng, rate, cap=120):
    """Draws until the verdict of early stopping at .2, or the cap."""
    test = SequentialTest(0.2, 0.2, 0.05, cap)
    test.update((rng.random(cap) < rate).astype(float))
    return test.scores


def stopped_greedily(rng, mean, looks):
    """80 draws, or those up to the time at which the bound is lowest: the worst that a rule can do."""
    values = (rng.random(80) < mean).astype(float)
    if not looks:
        return values
    return values[: greedy_stop(values, mean)]


@pytest.mark.seconds
@pytest.mark.parametrize("stopped", [(True, True), (True, False), (False, True)])
def test_the_interval_covers_and_null_data_show_no_difference(stopped):
    rng = np.random.default_rng(sum(stopped) + stopped[0])
    runs = 40
    a_looks, b_looks = stopped

    misses = 0
    false = 0
    for _ in range(runs):
        a = stopped_greedily(rng, 0.2, a_looks)
        b = stopped_greedily(rng, 0.4, b_looks)
        null = stopped_greedily(rng, 0.2, b_looks)
        found = difference(a, b, LEVEL, binary=True, stopped=stopped)
        misses += not found.low <= 0.2 <= found.high
        false += difference(a, null, LEVEL, binary=True, stopped=stopped).p_value <= LEVEL

    assert misses <= allowed(LEVEL, runs)
    assert false <= allowed(LEVEL, runs)


@dataclass(frozen=True)
class StoppedSides:
    """Two sides that stopped early; b leaks with ``rate``, a with 2%."""

    rate: float
    a: np.ndarray
    b: np.ndarray


def stopped_sides():
    rng = np.random.default_rng(5)
    sides = []
    for rate in (0.05, 0.3, 0.5, 0.9):
        a = stopped_early(rng, 0.02)
        sides.append(StoppedSides(rate, a, stopped_early(rng, rate)))
    return sides


BOTH = (True, True)


@pytest.mark.parametrize("sides", stopped_sides(), ids=lambda sides: str(sides.rate))
def test_a_difference_of_stopped_sides_agrees_with_its_interval(sides):
    found = difference(sides.a, sides.b, LEVEL, binary=True, stopped=BOTH)
    mirrored = difference(sides.b, sides.a, LEVEL, stopped=BOTH)

    assert (found.p_value <= LEVEL) == (found.low > 0 or found.high < 0)
    assert (mirrored.low, mirrored.high) == pytest.approx((-found.high, -found.low))
    assert found.low <= sides.rate - 0.02 <= found.high


def test_a_true_difference_of_stopped_sides_is_found():
    b = stopped_sides()[-1].b

    found = difference(np.zeros(120), b, LEVEL, binary=True, stopped=BOTH)

    assert found.p_value < LEVEL


def test_a_difference_names_the_method_of_each_side():
    last = stopped_sides()[-1]

    both = difference(last.a, last.b, LEVEL, binary=True, stopped=BOTH)
    a_alone = difference(last.a, np.ones(90), LEVEL, binary=True, stopped=(True, False))

    assert both.method == "mixture martingale, at the stop"
    assert a_alone.method == "A: mixture martingale, at the stop; B: Clopper-Pearson"


def test_a_missing_score_widens_the_difference_of_stopped_sides():
    last = stopped_sides()[-1]

    whole = difference(last.a, last.b, LEVEL, binary=True, stopped=BOTH)
    with_missing = difference(np.r_[last.a, np.nan], last.b, LEVEL, binary=True, stopped=BOTH)

    assert with_missing.low < whole.low


def scores_of_questions(rng, more, looks):
    """Scores of three questions whose rates are ``more`` above 5, 30 and 60%."""
    scores = []
    for rate in (0.05, 0.3, 0.6):
        if looks:
            scores.append(stopped_early(rng, rate + more))
        else:
            scores.append((rng.random(60) < rate + more).astype(float))
    return scores


@pytest.mark.parametrize("stopped", [(True, True), (True, False)])
def test_the_average_covers_and_has_false_claims_at_most_alpha(stopped):
    rng = np.random.default_rng(6)
    runs = 12
    a_looks, b_looks = stopped

    misses = 0
    false = 0
    for _ in range(runs):
        a = scores_of_questions(rng, 0, a_looks)
        b = scores_of_questions(rng, 0.2, b_looks)
        null = scores_of_questions(rng, 0, b_looks)
        found = mean_of_differences(a, b, LEVEL, True, stopped=stopped)
        misses += not found.low <= 0.2 <= found.high
        false += mean_of_differences(a, null, LEVEL, True, stopped=stopped).p_value <= LEVEL

    assert misses <= allowed(LEVEL, runs)
    assert false <= allowed(LEVEL, runs)


TAU = 0.05
CAP = 1500


def most_leaks_that_certify():
    """After each draw, the most leaks at which the e-value has reached 1 / alpha."""
    return stopping_counts(TAU, False, LEVEL, CAP)


@pytest.mark.parametrize("n", [60, 400, CAP])
def test_one_leak_more_than_certifies_leaves_the_e_value_below_its_goal(n):
    most = most_leaks_that_certify()[n - 1]
    goal = np.log(1 / LEVEL)

    at, beyond = log_e_value([most, most + 1], [n, n], TAU)

    assert (at >= goal) == (most >= 0)
    assert beyond < goal


def test_false_certificates_are_at_most_alpha_whenever_one_stops():
    """Question 0 leaks with exactly tau and the others never; the adversary checks after each draw and stops at the goal."""
    rng = np.random.default_rng(2)
    runs = 2000
    leaks = np.cumsum(rng.random((runs, CAP)) < TAU, axis=1)

    # The clean questions have reached the goal by then.
    certified = (leaks <= most_leaks_that_certify()).any(axis=1).sum()

    assert certified <= allowed(LEVEL, runs)
    assert certified > runs * LEVEL / 4  # the adversary succeeds sometimes
