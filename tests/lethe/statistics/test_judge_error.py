"""Bounds that include the judge's error: a brute-force twin, every corner, and coverage against bounds that ignore it."""

import dataclasses
import itertools
from functools import partial

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from lethe.statistics.bound import Covers
from lethe.statistics.counts import at_least_once, rate_bounds
from lethe.statistics.judge_error import Calibration, true_rate
from lethe.statistics.leak_rates import Band, Rate
from lethe.verdict.claims import judged_interval
from tests.lethe.statistics.draws import clopper_pearson

GOOD = Calibration(leaks=200, leaks_called=190, clean=300, clean_called=15)


true_rate_upper = partial(true_rate, useless=1.0)
true_rate_lower = partial(true_rate, useless=0.0)


def judged_rates(called, n, judge: Calibration | None, alpha: float, missing=0) -> Band:
    """Ends and estimate of each question for one answer, without the axis of k."""
    band = Rate.of(called, n, missing, judge).each(alpha)
    return dataclasses.replace(
        band,
        lower=band.lower[:, 0],
        upper=band.upper[:, 0],
        estimate=band.estimate[:, 0],
    )


def twin(called: int, n: int, judge: Calibration, alpha: float) -> tuple[float, float]:
    """The three binomials and the corners exactly as in the formulas, case by case."""
    rate_lower, rate_upper = clopper_pearson(called, n, alpha / 3)
    sensitivity_lower, sensitivity_upper = clopper_pearson(
        judge.leaks_called, judge.leaks, alpha / 3
    )
    false_lower, false_upper = clopper_pearson(judge.clean_called, judge.clean, alpha / 3)

    if sensitivity_lower <= rate_upper or sensitivity_lower <= false_lower:
        upper = 1.0
    elif rate_upper <= false_lower:
        upper = 0.0
    else:
        upper = (rate_upper - false_lower) / (sensitivity_lower - false_lower)

    if sensitivity_upper <= false_upper:
        return 0.0, upper
    lower = (rate_lower - false_upper) / (sensitivity_upper - false_upper)
    return min(1.0, max(0.0, lower)), upper


# (of them called a leak, answers)
counted = st.integers(1, 300).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))


@given(st.lists(counted, min_size=1, max_size=5), counted, counted, st.floats(1e-4, 0.5))
@example([(0, 5), (5, 5)], (0, 3), (3, 3), 0.05)  # a judge that is always wrong
@example([(0, 1000), (1000, 1000)], (300, 300), (0, 300), 0.01)
@settings(max_examples=150)
def test_every_question_as_the_formulas_are_written(answers, leaks, clean, alpha):
    judge = Calibration(leaks[1], leaks[0], clean[1], clean[0])
    called, n = np.array(answers).T

    found = judged_rates(called, n, judge, alpha)

    if not Rate.of(called, n, judge=judge).fits(alpha).all():
        assert np.isnan([found.lower, found.upper]).all()
        return
    expected = np.array([twin(int(count), int(size), judge, alpha) for count, size in answers])
    np.testing.assert_allclose(found.lower, expected[:, 0], rtol=1e-6, atol=1e-10)
    np.testing.assert_allclose(found.upper, expected[:, 1], rtol=1e-6, atol=1e-10)
    assert ((found.lower >= 0) & (found.upper <= 1)).all()
    assert not np.signbit([found.lower, found.upper]).any()


@given(*[st.floats(0, 1)] * 4)
@settings(max_examples=300)
def test_the_corners_never_exclude_a_rate_that_the_rates_of_the_judge_allow(
    rate, sensitivity, false_positive, slack
):
    """For any judge, even a bad guesser, bounds that hold for called, se and fp give a bound of the true rate."""
    called = rate * sensitivity + (1 - rate) * false_positive
    shifts = itertools.product([0, slack], [0, slack / 2], [0, slack])

    for of_called, of_sensitivity, of_false_positive in shifts:
        # Rounding is magnified if the judge hardly distinguishes leaks from other answers.
        least_sensitive = max(0, sensitivity - of_sensitivity)
        fewest_false = max(0, false_positive - of_false_positive)
        if not 0 < least_sensitive - fewest_false < 1e-6:
            most_called = min(1, called + of_called)
            upper = true_rate_upper(most_called, least_sensitive, fewest_false)
            assert upper >= rate - 1e-9

        most_sensitive = min(1, sensitivity + of_sensitivity)
        most_false = min(1, false_positive + of_false_positive)
        if not 0 < most_sensitive - most_false < 1e-6:
            fewest_called = max(0, called - of_called)
            lower = true_rate_lower(fewest_called, most_sensitive, most_false)
            assert lower <= rate + 1e-9


def test_a_useless_judge_leaves_nothing_but_0_and_1():
    coin = Calibration(leaks=1000, leaks_called=500, clean=1000, clean_called=520)

    found = judged_rates([45, 50, 55], 100, coin, 0.05)

    assert found.upper.tolist() == [1, 1, 1]
    assert found.lower.tolist() == [0, 0, 0]
    assert np.isnan(found.estimate).all()


@given(counted, counted, counted, st.data())
@settings(max_examples=100)
def test_missing_verdicts_only_widen(answers, leaks, clean, data):
    """Whatever the lost verdicts would have been, the bounds that know them are inside."""

    def draw_lost(called, n):
        """(how many verdicts are lost, how many of them would have called a leak)."""
        lost = data.draw(st.integers(0, n - called))
        return lost, data.draw(st.integers(0, lost))

    lost_answers, called_of_answers = draw_lost(*answers)
    lost_leaks, called_of_leaks = draw_lost(*leaks)
    lost_clean, called_of_clean = draw_lost(*clean)
    with_losses = Calibration(
        leaks[1], leaks[0], clean[1], clean[0], leaks_unjudged=lost_leaks, clean_unjudged=lost_clean
    )
    whole = Calibration(leaks[1], leaks[0] + called_of_leaks, clean[1], clean[0] + called_of_clean)

    found = judged_rates([answers[0]], answers[1], with_losses, 0.05, missing=lost_answers)
    known = judged_rates([answers[0] + called_of_answers], answers[1], whole, 0.05)

    assume(not np.isnan(known.upper[0]))
    assert found.lower[0] <= known.lower[0]
    assert known.upper[0] <= found.upper[0]


ROGAN_AND_GLADEN = [0, (0.19 - 0.05) / 0.9, (0.46 - 0.05) / 0.9, 0.89 / 0.9, np.nan]


def test_the_estimate_is_rogan_and_gladens():
    found = judged_rates([24, 95, 230, 470, np.nan], 500, GOOD, 0.05)

    np.testing.assert_allclose(found.estimate, ROGAN_AND_GLADEN)


def test_only_a_question_without_verdicts_has_no_ends():
    found = judged_rates([24, 95, 230, 470, np.nan], 500, GOOD, 0.05)

    assert np.isnan(found.lower).tolist() == [False] * 4 + [True]
    assert np.isnan(found.upper).tolist() == [False] * 4 + [True]


def test_the_estimate_leaves_missing_verdicts_out():
    found = judged_rates([95], 600, GOOD, 0.05, missing=100)

    np.testing.assert_allclose(found.estimate, ROGAN_AND_GLADEN[1:2])


JUDGES_OF_OTHER_ANSWERS = [
    Calibration(leaks=500, leaks_called=400, clean=500, clean_called=100),
    Calibration(leaks=500, leaks_called=100, clean=500, clean_called=400),
]


@pytest.mark.parametrize("judge", JUDGES_OF_OTHER_ANSWERS)
def test_verdicts_that_the_calibration_rules_out_have_no_bound(judge):
    """Fewer verdicts than false alarms alone would give, or more than the judge can find: another kind of answers."""
    rate = Rate.of([0, 250, 500], 500, judge=judge)

    assert rate.fits(0.05).tolist() == [False, True, False]
    for band in (rate.each(0.05), rate.worst(0.05), rate.mean(0.05)):
        assert np.isnan([band.lower, band.upper]).all()
        place = 0 if band.lower.ndim > 1 else None
        assert band.bounds(place) is None


@pytest.mark.parametrize("judge", JUDGES_OF_OTHER_ANSWERS)
def test_an_average_that_the_calibration_allows_is_bounded_though_a_question_is_not(judge):
    """The judge may err on average as on the calibration answers."""
    rate = Rate.of([0, 250, 500], 500, judge=judge)

    assert rate.average(0.05).bounds() is not None


@pytest.mark.parametrize("judge", JUDGES_OF_OTHER_ANSWERS)
def test_what_may_be_chance_on_one_question_is_ruled_out_on_many(judge):
    few_verdicts = Rate.of([28], 200, judge=judge)
    few_on_many = Rate.of([28] * 9, 200, judge=judge)

    assert few_verdicts.fits(0.05).all()
    assert not few_on_many.fits(0.05).any()
    assert few_on_many.average(0.05).bounds() is None
    assert few_on_many.worst(0.05).bounds() is None


def test_together_divides_the_verdicts_part_alone():
    called = [20, 200, 30]
    error = GOOD.error(0.02)
    rates_lower = rate_bounds(called, 500, 0.02 / 3)[0]
    rates_upper = rate_bounds(called, 500, 0.02)[1]
    lowers = true_rate_lower(rates_lower, error.sensitivity[1], error.false_positive[1])
    uppers = true_rate_upper(rates_upper, error.sensitivity[0], error.false_positive[0])

    band = Rate.of(called, 500, judge=GOOD).worst(0.06)

    assert band.upper[0] == uppers.max()
    assert band.lower[0] == lowers.max()


@pytest.mark.parametrize("judge", [GOOD, None])
def test_the_average_is_that_of_the_pooled_count(judge):
    pooled = judged_rates([240], 1500, judge, 0.05, missing=3)

    found = Rate.of([9, 200, 31], 500, [1, 0, 2], judge).average(0.05)

    assert found.lower == pooled.lower
    assert found.upper == pooled.upper
    assert found.estimate == pooled.estimate
    assert (found.covers, found.n) == (Covers.AVERAGE, (1500,))


@pytest.mark.parametrize("column", ["lower", "upper", "estimate"])
def test_leak_at_k_carries_the_bounds_of_one_answer(column):
    rates = getattr(judged_rates([20, 200], 500, GOOD, 0.05), column)

    found = Rate.of([20, 200], 500, judge=GOOD).each(0.05, [1, 7])

    np.testing.assert_array_equal(getattr(found, column), at_least_once(rates, [1, 7]))


LABELS = [1, 1, 1, 0, 0, 0, 0, 1]
VERDICTS = [1, 1, 0, 1, 0, 0, np.nan, np.nan]


def test_labels_and_verdicts_are_counted():
    judge = Calibration.of(LABELS, VERDICTS, of_this_run=True)

    assert judge == Calibration(4, 2, 4, 1, 1, 1, of_this_run=True)


def test_the_rates_of_a_judge_leave_lost_verdicts_out():
    judge = Calibration.of(LABELS, VERDICTS)

    assert (judge.sensitivity, judge.false_positive) == (2 / 3, 1 / 3)


def test_a_judge_without_verdicts_has_no_rates():
    silent = Calibration(2, 0, 2, 0, 2, 2)

    assert np.isnan(silent.sensitivity)
    assert np.isnan(silent.false_positive)


def test_the_interval_to_compare_models_by_is_the_average_at_half_of_alpha():
    groups = [np.repeat([0.0, 1.0, np.nan], [400, 90, 10]), np.repeat([0.0, 1.0], [490, 10])]
    average = Rate.of([90, 10], 500, [10, 0], GOOD).average(0.05)

    found = judged_interval(groups, GOOD, 0.1)

    assert found.lower == average.lower[0]
    assert found.upper == average.upper[0]
    assert found.value == average.estimate[0]
    assert all(bound.alpha == 0.05 for bound in found.bounds())
