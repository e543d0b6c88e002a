"""Bounds that include the judge's error: a brute-force twin, every corner, and coverage against bounds that ignore it."""

import dataclasses
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


def judged_rates(called, n, judge: Calibration | None, alpha: float, missing=0) -> Band:
    band = Rate.of(called, n, missing, judge).each(alpha)
    return dataclasses.replace(
        band, lower=band.lower[:, 0], upper=band.upper[:, 0], estimate=band.estimate[:, 0]
    )


true_rate_upper, true_rate_lower = (partial(true_rate, useless=end) for end in (1.0, 0.0))


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
    if not Rate.of(called, n, judge=judge).fits(alpha).all():
        assert np.isnan([found.lower, found.upper]).all()
        return
    want = np.array([twin(int(k), int(m), judge, alpha) for k, m in answers])
    np.testing.assert_allclose(found.lower, want[:, 0], rtol=1e-6, atol=1e-10)
    np.testing.assert_allclose(found.upper, want[:, 1], rtol=1e-6, atol=1e-10)
    assert ((found.lower >= 0) & (found.upper <= 1)).all()
    assert not np.signbit([found.lower, found.upper]).any()


@given(*[st.floats(0, 1)] * 4)
@settings(max_examples=300)
def test_the_corners_never_exclude_a_rate_that_the_rates_of_the_judge_allow(
    p, sensitivity, false_positive, slack
):
    """For any judge, even one worse than chance, bounds that hold for q, se and fp give a bound that holds for p."""
    q = p * sensitivity + (1 - p) * false_positive
    for q_by, se_by, fp_by in (
        np.array(np.meshgrid([0, slack], [0, slack / 2], [0, slack])).reshape(3, -1).T
    ):
        # Rounding of q is magnified if the judge hardly distinguishes leaks from other answers.
        se, fp = max(0, sensitivity - se_by), max(0, false_positive - fp_by)
        if not 0 < se - fp < 1e-6:
            assert true_rate_upper(min(1, q + q_by), se, fp) >= p - 1e-9
        se, fp = min(1, sensitivity + se_by), min(1, false_positive + fp_by)
        if not 0 < se - fp < 1e-6:
            assert true_rate_lower(max(0, q - q_by), se, fp) <= p + 1e-9


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
    assume(not np.isnan(full.upper[0]))
    assert found.lower[0] <= full.lower[0]
    assert full.upper[0] <= found.upper[0]


def test_the_estimate_is_rogan_and_gladens():
    found = judged_rates([24, 95, 230, 470, np.nan], 500, GOOD, 0.05)
    want = [0, (0.19 - 0.05) / 0.9, (0.46 - 0.05) / 0.9, 0.89 / 0.9, np.nan]
    np.testing.assert_allclose(found.estimate, want)
    assert np.isnan([found.lower, found.upper]).tolist() == [[False] * 4 + [True]] * 2
    some = judged_rates([95], 600, GOOD, 0.05, missing=100)
    np.testing.assert_allclose(some.estimate, want[1:2])


def test_verdicts_that_the_calibration_rules_out_have_no_bound():
    """Fewer verdicts than false alarms alone would give, or more than the judge can find: another kind of answers."""
    judge = Calibration(leaks=500, leaks_called=400, clean=500, clean_called=100)
    for other in (judge, Calibration(leaks=500, leaks_called=100, clean=500, clean_called=400)):
        rate = Rate.of([0, 250, 500], 500, judge=other)
        assert rate.fits(0.05).tolist() == [False, True, False]
        for band in (rate.each(0.05), rate.worst(0.05), rate.mean(0.05)):
            assert np.isnan([band.lower, band.upper]).all()
            assert band.bounds(0 if band.lower.ndim > 1 else None) is None
        # The judge may err on average as on the calibration answers.
        assert rate.average(0.05).bounds() is not None
        few = Rate.of([28] * 9, 200, judge=other)  # so few verdicts on one question may be chance
        assert Rate.of([28], 200, judge=other).fits(0.05).all()
        assert not few.fits(0.05).any()
        assert few.average(0.05).bounds() is few.worst(0.05).bounds() is None


def test_together_divides_the_verdicts_part_alone():
    band, error = Rate.of([20, 200, 30], 500, judge=GOOD).worst(0.06), GOOD.error(0.02)
    low, high = (
        rate_bounds([20, 200, 30], 500, 0.02 / 3)[0],
        rate_bounds([20, 200, 30], 500, 0.02)[1],
    )
    assert (
        band.upper[0] == true_rate_upper(high, error.sensitivity[0], error.false_positive[0]).max()
    )
    assert (
        band.lower[0] == true_rate_lower(low, error.sensitivity[1], error.false_positive[1]).max()
    )


@pytest.mark.parametrize("judge", [GOOD, None])
def test_the_average_is_that_of_the_pooled_count(judge):
    found = Rate.of([9, 200, 31], 500, [1, 0, 2], judge).average(0.05)
    one = judged_rates([240], 1500, judge, 0.05, missing=3)
    assert (found.lower, found.upper, found.estimate) == (one.lower, one.upper, one.estimate)
    assert (found.covers, found.n) == (Covers.AVERAGE, (1500,))


def test_leak_at_k_carries_the_bounds_of_one_answer():
    rates, found = (
        judged_rates([20, 200], 500, GOOD, 0.05),
        Rate.of([20, 200], 500, judge=GOOD).each(0.05, [1, 7]),
    )
    for name in ("lower", "upper", "estimate"):
        np.testing.assert_array_equal(
            getattr(found, name), at_least_once(getattr(rates, name), [1, 7])
        )


def test_labels_and_verdicts_are_counted():
    labels = [1, 1, 1, 0, 0, 0, 0, 1]
    verdicts = [1, 1, 0, 1, 0, 0, np.nan, np.nan]
    assert Calibration.of(labels, verdicts, of_this_run=True) == Calibration(
        4, 2, 4, 1, 1, 1, of_this_run=True
    )
    judge = Calibration.of(labels, verdicts)
    assert (judge.sensitivity, judge.false_positive) == (2 / 3, 1 / 3)
    assert np.isnan(Calibration(2, 0, 2, 0, 2, 2).sensitivity)
    assert np.isnan(Calibration(2, 0, 2, 0, 2, 2).false_positive)


def test_the_interval_to_compare_models_by_is_the_average_at_half_of_alpha():
    groups = [np.repeat([0.0, 1.0, np.nan], [400, 90, 10]), np.repeat([0.0, 1.0], [490, 10])]
    found = judged_interval(groups, GOOD, 0.1)
    want = Rate.of([90, 10], 500, [10, 0], GOOD).average(0.05)
    assert (found.lower, found.upper, found.value) == (
        want.lower[0],
        want.upper[0],
        want.estimate[0],
    )
    assert all(bound.alpha == 0.05 for bound in found.bounds())
