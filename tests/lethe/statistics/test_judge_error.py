"""Bounds that include the judge's error: a brute-force twin, every corner, and coverage against bounds that ignore it."""

import dataclasses
import doctest

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from scipy.stats import beta

from lethe.errors import BadValue
from lethe.statistics import judge_error as module
from lethe.statistics import judged_leak_at_k as leak_module
from lethe.statistics.judge_error import (
    Calibration,
    judge_error,
    judged_average,
    judged_rates,
    true_rate_lower,
    true_rate_upper,
)
from lethe.statistics.judged_interval import judged_share_interval
from lethe.statistics.judged_leak_at_k import judged_leak_at_k, judged_mean_over_questions, judged_worst_question
from lethe.statistics.leak_at_k import at_least_once, leak_at_k, mean_over_questions, rate_bounds, worst_question
from tests.lethe.statistics.judge_error_coverage import (
    ERRORS,
    is_control,
    many_questions,
    one_question,
    tolerated,
)

GOOD = Calibration(leaks=200, leaks_called=190, clean=300, clean_called=15)


@pytest.mark.parametrize("documented", [module, leak_module])
def test_the_examples_in_the_docstrings(documented):
    result = doctest.testmod(documented)
    assert result.attempted > 5
    assert not result.failed


# --- naive twins -------------------------------------------------------------------------------------------------


def clopper_pearson(k: int, n: int, level: float) -> tuple[float, float]:
    """Both one-sided bounds by SciPy's beta distribution, with the two ends written out."""
    lower = beta.ppf(level, k, n - k + 1) if k > 0 else 0.0
    upper = beta.ppf(1 - level, k + 1, n - k) if k < n else 1.0
    return lower, upper


def twin(k: int, n: int, judge: Calibration, alpha: float) -> tuple[float, float]:
    """The three binomials and the corners exactly as in the formulas, case by case."""
    q_l, q_u = clopper_pearson(k, n, alpha / 3)
    se_l, se_u = clopper_pearson(judge.leaks_called, judge.leaks, alpha / 3)
    fp_l, fp_u = clopper_pearson(judge.clean_called, judge.clean, alpha / 3)
    if se_l <= q_u or se_l <= fp_l:
        upper = 1.0
    elif q_u <= fp_l:
        upper = 0.0
    else:
        upper = (q_u - fp_l) / (se_l - fp_l)
    lower = 0.0 if se_u <= fp_u else min(1.0, max(0.0, (q_l - fp_u) / (se_u - fp_u)))
    return lower, upper


counted = st.integers(1, 300).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))


@given(st.lists(counted, min_size=1, max_size=5), counted, counted, st.floats(1e-4, 0.5))
@example([(0, 5), (5, 5)], (0, 3), (3, 3), 0.05)  # a judge that is always wrong
@example([(0, 1000), (1000, 1000)], (300, 300), (0, 300), 0.01)
@settings(max_examples=150)
def test_every_question_as_the_formulas_are_written(answers, leaks, clean, alpha):
    judge = Calibration(leaks[1], leaks[0], clean[1], clean[0])
    called, n = np.array(answers).T
    found = judged_rates(called, n, judge, alpha)
    want = np.array([twin(int(k), int(m), judge, alpha) for k, m in answers])
    np.testing.assert_allclose(found.lower, want[:, 0], rtol=1e-6, atol=1e-10)
    np.testing.assert_allclose(found.upper, want[:, 1], rtol=1e-6, atol=1e-10)
    assert ((found.lower >= 0) & (found.upper <= 1)).all()
    assert not np.signbit([found.lower, found.upper]).any()


@given(*[st.floats(0, 1)] * 4)
@settings(max_examples=300)
def test_the_corners_never_exclude_a_rate_that_the_rates_of_the_judge_allow(p, sensitivity, false_positive, slack):
    """For any judge, even one worse than chance, bounds that hold for q, se and fp give a bound that holds for p."""
    q = p * sensitivity + (1 - p) * false_positive
    for q_by, se_by, fp_by in np.array(np.meshgrid([0, slack], [0, slack / 2], [0, slack])).reshape(3, -1).T:
        # Rounding of q is magnified if the judge hardly distinguishes leaks from other answers.
        se, fp = max(0, sensitivity - se_by), max(0, false_positive - fp_by)
        if not 0 < se - fp < 1e-6:
            assert true_rate_upper(min(1, q + q_by), se, fp) >= p - 1e-9
        se, fp = min(1, sensitivity + se_by), min(1, false_positive + fp_by)
        if not 0 < se - fp < 1e-6:
            assert true_rate_lower(max(0, q - q_by), se, fp) <= p + 1e-9


def test_the_worst_corner_is_the_worst_point_of_the_box():
    """A search over the box of the three rates, if the judge is better than chance in all of it."""
    q, se, fp = np.meshgrid(np.linspace(0.2, 0.4, 21), np.linspace(0.7, 0.9, 21), np.linspace(0.05, 0.15, 21))
    p = (q - fp) / (se - fp)
    assert true_rate_upper(0.4, 0.7, 0.05) == pytest.approx(p.max())
    assert true_rate_lower(0.2, 0.9, 0.15) == pytest.approx(p.min())


# --- the edges ---------------------------------------------------------------------------------------------------


def test_corners_by_name():
    assert true_rate_upper(0.7, 0.7, 0.1) == 1  # the judge may find no more leaks than these
    assert true_rate_upper(0.05, 0.3, 0.3) == 1  # the judge may be useless
    assert true_rate_upper(0.05, 0.2, 0.3) == 1  # the judge may be worse than chance
    assert true_rate_upper(0.1, 0.7, 0.1) == 0  # all its verdicts may be false alarms
    assert true_rate_lower(0.5, 0.3, 0.3) == 0
    assert true_rate_lower(0.1, 0.7, 0.2) == 0
    assert true_rate_lower(0.9, 0.7, 0.2) == 1
    for side in (true_rate_lower, true_rate_upper):
        for sensitivity in (0.2, 0.7):
            assert np.isnan(side(np.nan, sensitivity, 0.3))


def test_a_useless_judge_leaves_nothing_but_0_and_1():
    coin = Calibration(leaks=1000, leaks_called=500, clean=1000, clean_called=520)
    found = judged_rates([0, 50, 100], 100, coin, 0.05)
    assert found.upper[1:].tolist() == [1, 1]
    assert found.lower.tolist() == [0, 0, 0]
    assert np.isnan(found.estimate).all()


def test_one_label_of_each_kind_bounds_something_or_nothing():
    found = judged_rates([0, 500, 1000], 1000, Calibration(1, 1, 1, 0), 0.05)
    # From one leak that was called a leak: se >= alpha / 3; from one clean answer that was not: fp <= 1 - alpha / 3.
    assert (found.sensitivity[0], found.false_positive[1]) == pytest.approx((0.05 / 3, 1 - 0.05 / 3))
    assert found.upper.tolist() == [pytest.approx((1 - (0.05 / 3) ** (1 / 1000)) / (0.05 / 3)), 1, 1]
    q = (0.05 / 3) ** (1 / 1000)
    assert found.lower.tolist() == [0, 0, pytest.approx((q - 1 + 0.05 / 3) / (0.05 / 3))]


def test_a_judge_measured_without_end_is_the_plain_bound_at_a_third():
    sure = Calibration(leaks=10**9, leaks_called=10**9, clean=10**9, clean_called=0)
    found = judged_rates([0, 3, 100], 100, sure, 0.03)
    lower, upper = rate_bounds([0, 3, 100], 100, 0.01)
    np.testing.assert_allclose(found.lower, lower, atol=1e-7)
    np.testing.assert_allclose(found.upper, upper, atol=1e-7)


@given(counted, counted, counted, st.data())
@settings(max_examples=100)
def test_missing_verdicts_only_widen(answers, leaks, clean, data):
    """Whatever the lost verdicts would have been, the bounds that know them are inside."""
    judge = Calibration(leaks[1], leaks[0], clean[1], clean[0])
    lost = [data.draw(st.integers(0, n - k)) for k, n in (answers, leaks, clean)]
    said = [data.draw(st.integers(0, gone)) for gone in lost]
    found = judged_rates(
        [answers[0]],
        answers[1],
        dataclasses.replace(judge, leaks_unjudged=lost[1], clean_unjudged=lost[2]),
        0.05,
        missing=lost[0],
    )
    known = Calibration(leaks[1], leaks[0] + said[1], clean[1], clean[0] + said[2])
    full = judged_rates([answers[0] + said[0]], answers[1], known, 0.05)
    assume(full.fits[0])  # else the bounds are 0 and 1 by convention
    assert found.lower[0] <= full.lower[0]
    assert full.upper[0] <= found.upper[0]


@given(counted, counted, counted, st.floats(1e-4, 0.25))
@settings(max_examples=60)
def test_a_smaller_alpha_only_widens(answers, leaks, clean, alpha):
    judge = Calibration(leaks[1], leaks[0], clean[1], clean[0])
    wide, narrow = (judged_rates([answers[0]], answers[1], judge, level) for level in (alpha, 2 * alpha))
    assume(narrow.fits[0])
    assert wide.lower[0] <= narrow.lower[0]
    assert narrow.upper[0] <= wide.upper[0]


def test_the_estimate_is_rogan_and_gladens():
    found = judged_rates([0, 95, 230, 500, np.nan], 500, GOOD, 0.05)
    want = [0, (0.19 - 0.05) / 0.9, (0.46 - 0.05) / 0.9, 1, np.nan]
    np.testing.assert_allclose(found.estimate, want)
    assert np.isnan([found.lower[4], found.upper[4]]).all()
    some = judged_rates([95], 600, GOOD, 0.05, missing=100)
    np.testing.assert_allclose(some.estimate, want[1:2])


def test_verdicts_that_the_calibration_rules_out_are_flagged():
    """Fewer verdicts than false alarms alone would give, or more than the judge can find: another kind of answers."""
    judge = Calibration(leaks=500, leaks_called=400, clean=500, clean_called=100)
    found = judged_rates([0, 250, 500, np.nan], 500, judge, 0.05)
    assert found.fits.tolist() == [False, True, False, True]
    opposite = Calibration(leaks=500, leaks_called=100, clean=500, clean_called=400)
    assert judged_rates([0, 250, 500], 500, opposite, 0.05).fits.tolist() == [False, True, False]


def test_a_calibration_of_another_run_is_an_assumption():
    assert "another run" in judged_rates([1], 9, GOOD, 0.05).assumes
    own = dataclasses.replace(GOOD, of_this_run=True)
    assert "another run" not in judged_rates([1], 9, own, 0.05).assumes
    assert "another run" in judged_mean_over_questions([1], 9, GOOD, 0.05).assumes


# --- many questions ----------------------------------------------------------------------------------------------


def test_together_divides_the_verdicts_part_alone():
    each, table = (judged_rates([9, 200, 3], 500, GOOD, 0.06, together=how) for how in ("none", "bonferroni"))
    assert each.sensitivity == table.sensitivity == judge_error(GOOD, 0.02).sensitivity
    low, high = rate_bounds([9, 200, 3], 500, 0.02 / 3)
    np.testing.assert_array_equal(table.upper, true_rate_upper(high, each.sensitivity[0], each.false_positive[0]))
    np.testing.assert_array_equal(table.lower, true_rate_lower(low, each.sensitivity[1], each.false_positive[1]))


def test_the_average_is_that_of_the_pooled_count():
    found = judged_average([9, 200, 31], 500, GOOD, 0.05, missing=[1, 0, 2])
    one = judged_rates([240], 1500, GOOD, 0.05, missing=3)
    assert (found.lower, found.upper, found.estimate) == (one.lower, one.upper, one.estimate)
    assert (found.questions, found.covers) == (3, "the average over the questions")


def test_leak_at_k_carries_the_bounds_of_one_answer():
    rates, found = judged_rates([9, 200], 500, GOOD, 0.05), judged_leak_at_k([9, 200], 500, GOOD, 0.05, [1, 7])
    for name in ("lower", "upper", "estimate"):
        np.testing.assert_array_equal(getattr(found, name), at_least_once(getattr(rates, name), [1, 7]))


def test_leak_at_k_of_a_judge_measured_without_end_is_that_of_a_score_at_a_third():
    sure = Calibration(leaks=10**12, leaks_called=10**12, clean=10**12, clean_called=0)
    counts, n, ks = [3, 40, 0], 64, [1, 10, 1000]
    place, found = judged_worst_question(counts, n, sure, 0.03, ks)
    plain_place, plain = worst_question(counts, n, 0.01, ks)
    assert (place, found.alpha) == (plain_place, 0.03)
    mean, plain_mean = (
        judged_mean_over_questions(counts, n, sure, 0.03, ks),
        mean_over_questions(counts, n, 0.01, ks),
    )
    each, plain_each = judged_leak_at_k(counts, n, sure, 0.03, ks), leak_at_k(counts, n, 0.01, ks)
    for got, want in ((found, plain), (mean, plain_mean), (each, plain_each)):
        np.testing.assert_allclose(got.lower, want.lower, atol=1e-6)
        np.testing.assert_allclose(got.upper, want.upper, atol=1e-6)
    np.testing.assert_allclose(mean.estimate, at_least_once(np.array(counts) / n, ks).mean(axis=0))
    np.testing.assert_allclose(found.estimate, at_least_once(40 / 64, ks))


# --- coverage ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", ERRORS)
def test_one_question_is_covered_where_the_naive_bound_misses(error):
    """Rates and labels that are hardest for each side; the module that prints the table has more."""
    alpha, runs = 0.05, 600
    naive, as_measured = [], []
    for rate, labelled, lost in ((0.01, 30, 0.0), (0.1, 400, 0.1), (0.95, 30, 0.0)):
        shares = one_question(error, rate, 512, alpha, runs, seed=5, labelled=labelled, lost=lost)
        assert max(shares["judged"]) <= tolerated(alpha, runs), (rate, labelled)
        naive.append(max(shares["naive"]))
        as_measured.append(max(shares["as measured"]))
    if error:  # without error the naive bound holds too
        assert naive[0] > 0.5
        assert naive[2] > 0.5
        assert max(as_measured) > 4 * alpha


@pytest.mark.parametrize("error", [0.05, 0.2])
def test_claims_over_twenty_questions_are_covered(error):
    alpha, runs = 0.05, 250
    for name, shares in many_questions(error, 256, alpha, runs, seed=5, lost=0.02).items():
        if is_control(name):
            assert max(shares) > 0.5, name
        else:
            assert max(shares) <= tolerated(alpha, runs), name


# --- wrong use ---------------------------------------------------------------------------------------------------


def test_labels_and_verdicts_are_counted():
    labels = [1, 1, 1, 0, 0, 0, 0, 1]
    verdicts = [1, 1, 0, 1, 0, 0, np.nan, np.nan]
    assert Calibration.of(labels, verdicts, of_this_run=True) == Calibration(4, 2, 4, 1, 1, 1, of_this_run=True)
    judge = Calibration.of(labels, verdicts)
    assert (judge.sensitivity, judge.false_positive) == (2 / 3, 1 / 3)
    assert np.isnan(Calibration(2, 0, 2, 0, 2, 2).sensitivity)
    assert np.isnan(Calibration(2, 0, 2, 0, 2, 2).false_positive)


@pytest.mark.parametrize(
    ("labels", "verdicts", "named"),
    [
        ([1, 1], [1, 0], "calibration, clean"),
        ([0, 0], [1, 0], "calibration, leaks"),
        ([], [], "calibration, leaks"),
        ([1, 0, 2], [1, 0, 0], "labels: got 2"),
        ([1, 0, np.nan], [1, 0, 0], "labels: got nan"),
        ([1, 0], [1, 0.5], "verdicts: got 0.5"),
        ([1, 0], [1], "labels and verdicts"),
    ],
)
def test_what_is_no_calibration_is_named(labels, verdicts, named):
    with pytest.raises(BadValue, match=named):
        Calibration.of(labels, verdicts)


@pytest.mark.parametrize("counts", [(0, 0, 5, 1), (5, 6, 5, 1), (5, 1, 5, 1, 5), (5, 1, 5, -1), (5, 1.5, 5, 1)])
def test_impossible_counts_are_refused(counts):
    with pytest.raises(BadValue, match="calibration"):
        Calibration(*counts)


@pytest.mark.parametrize(
    "claim",
    [judged_rates, judged_average, judged_leak_at_k, judged_worst_question, judged_mean_over_questions],
)
def test_what_is_out_of_range_is_named(claim):
    for alpha in (0, 0.6, np.nan):
        with pytest.raises(BadValue, match="alpha"):
            claim([1], 9, GOOD, alpha)
    with pytest.raises(BadValue, match="leaks and missing"):
        claim([10], 9, GOOD, 0.05)
    if claim not in (judged_rates, judged_leak_at_k):
        for called in ([], [np.nan]):
            with pytest.raises(BadValue):
                claim(called, 9, GOOD, 0.05)


def test_how_questions_hold_together_has_two_names():
    with pytest.raises(BadValue, match="together"):
        judged_rates([1], 9, GOOD, 0.05, together="holm")


def test_no_question_is_an_empty_table():
    found = judged_rates([], 9, GOOD, 0.05, together="bonferroni")
    assert found.lower.shape == found.upper.shape == found.fits.shape == (0,)


def test_the_interval_to_compare_models_by_is_the_average_at_half_of_alpha():
    groups = [np.repeat([0.0, 1.0, np.nan], [400, 90, 10]), np.repeat([0.0, 1.0], [490, 10])]
    found = judged_share_interval(groups, GOOD, 0.1)
    want = judged_average([90, 10], 500, GOOD, 0.05, missing=[10, 0])
    assert (found.lower, found.upper, found.value) == (want.lower[0], want.upper[0], want.estimate[0])
    assert all(bound.alpha == 0.05 for bound in found.bounds())
    with pytest.raises(BadValue, match="verdicts"):
        judged_share_interval([np.array([0.5])], GOOD, 0.1)
