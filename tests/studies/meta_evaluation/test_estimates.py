"""The AUC over models against naive twins; tests/test_simulations.py has its coverage (s07) and its null data."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, logit
from scipy.stats import spearmanr
from scipy.stats import t as student

from lethe.errors import BadValue
from lethe.statistics.many_prompts import holm
from studies.meta_evaluation.estimates import (
    auc_covariance,
    auc_estimate,
    best_threshold,
    harmonic_mean,
    holm_adjusted,
    mean_auc_over_questions,
    quantisation,
    rank_correlation,
    relearning,
    robustness,
    symmetric,
)

numbers = st.lists(st.integers(0, 6), min_size=2, max_size=9)


def naive_auc(positives, negatives) -> float:
    won = [1.0 if p > n else 0.5 if p == n else 0.0 for p in positives for n in negatives]
    return sum(won) / len(won)


def naive_covariance(positives, negatives) -> np.ndarray:
    """DeLong's formula with loops over models and numbers."""
    k, m, n = len(positives), len(positives[0]), len(negatives[0])
    aucs = [naive_auc(positives[a], negatives[a]) for a in range(k)]
    rows = [[naive_auc([x], negatives[a]) - aucs[a] for x in positives[a]] for a in range(k)]
    columns = [[naive_auc(positives[a], [y]) - aucs[a] for y in negatives[a]] for a in range(k)]
    found = np.zeros((k, k))
    for a in range(k):
        for b in range(k):
            first = sum(rows[a][i] * rows[b][i] for i in range(m)) / (m - 1)
            second = sum(columns[a][j] * columns[b][j] for j in range(n)) / (n - 1)
            found[a, b] = first / m + second / n
    return found


@given(numbers, numbers)
@settings(max_examples=80)
def test_auc_and_covariance_equal_the_naive_twin(first, second):
    rng = np.random.default_rng(len(first) * 10 + len(second))
    positives = np.array([first, rng.integers(0, 5, len(first))], float)
    negatives = np.array([second, rng.integers(0, 5, len(second))], float)
    aucs, covariance = auc_covariance(positives, negatives)
    assert aucs == pytest.approx(
        [naive_auc(p, n) for p, n in zip(positives, negatives, strict=True)]
    )
    assert covariance == pytest.approx(naive_covariance(positives, negatives), abs=1e-12)
    found = auc_estimate(first, second)
    assert found.low <= found.value <= found.high


def test_the_truth_has_auc_1_and_its_opposite_0():
    truth = auc_estimate(np.ones(30), np.zeros(30))
    assert (truth.value, truth.high) == (1.0, 1.0)
    assert 0.8 < truth.low < 0.95, "30 models of each kind do not prove 1"
    assert auc_estimate(np.zeros(30), np.ones(30)).value == 0.0


@pytest.mark.parametrize("bad", [([], [1.0]), ([1.0], []), ([math.nan], [1.0])])
def test_an_empty_group_or_nan_is_refused(bad):
    with pytest.raises(BadValue):
        auc_estimate(*bad)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8), st.sampled_from([0.01, 0.05, 0.3]))
@settings(max_examples=150)
def test_adjusted_p_values_reject_what_holm_rejects(p_values, alpha):
    adjusted = holm_adjusted(p_values)
    assert (adjusted <= alpha).tolist() == holm(p_values, 0.5, alpha)[0].tolist() or np.isclose(
        adjusted, alpha
    ).any()
    assert (adjusted >= np.asarray(p_values)).all()


def naive_mean_auc(values, knows) -> float:
    found = []
    for question in range(values.shape[1]):
        column, label = values[:, question], knows[:, question]
        left, right = column[label], column[~label]
        left, right = left[~np.isnan(left)], right[~np.isnan(right)]
        if len(left) and len(right):
            found.append(naive_auc(left, right))
    return float(np.mean(found)) if found else math.nan


def test_the_mean_over_questions_equals_the_naive_twin_in_value_and_in_every_draw():
    rng = np.random.default_rng(3)
    values = rng.integers(0, 5, (9, 4)).astype(float)
    values[0, 0] = values[8, 3] = np.nan
    knows = np.zeros((9, 4), bool)
    knows[:5] = True
    knows[4, :2] = False  # learned half of the questions
    groups = ["P"] * 5 + ["N"] * 4
    found = mean_auc_over_questions(values, knows, groups, draws=40, seed=5)
    assert found.value == pytest.approx(naive_mean_auc(values, knows))
    draws, again = np.random.default_rng(5), []
    weights = np.zeros((40, 9))
    for places in (np.arange(5, 9), np.arange(5)):  # np.unique: N before P
        weights[:, places] = draws.multinomial(
            len(places), np.full(len(places), 1 / len(places)), size=40
        )
    for row in weights.astype(int):
        picked = np.repeat(np.arange(9), row)
        again.append(naive_mean_auc(values[picked], knows[picked]))
    half = student.isf(0.025, 3) * np.nanstd(logit(np.clip(again, 1e-6, 1 - 1e-6)))
    assert (found.low, found.high) == pytest.approx(
        tuple(expit(logit(found.value) + half * np.array([-1, 1])))
    )


INF, NAN = math.inf, math.nan


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=4, max_size=30))
@settings(max_examples=100)
def test_rank_correlation_equals_scipy(pairs):
    x, y = np.array(pairs, float).T
    found = rank_correlation(x, y)
    if len(set(x)) < 2 or len(set(y)) < 2:
        assert not found.defined
        return
    assert found.value == pytest.approx(spearmanr(x, y).statistic)
    assert -1 <= found.low <= found.value <= found.high <= 1


def test_rank_correlation_of_few_missing_and_infinite_values():
    assert not rank_correlation([1, 2, NAN, 4], [1, 2, 3, 4]).defined
    assert rank_correlation([1, 2, 3, INF], [1, 2, 3, 4]).value == pytest.approx(1.0)
    perfect = rank_correlation(np.arange(30.0), np.arange(30.0))
    assert perfect.high == 1.0
    assert 0.9 < perfect.low < 1.0


def test_a_draw_of_groups_equals_the_correlation_of_the_models_written_out():
    from studies.meta_evaluation.estimates import _counts, _drawn

    rng = np.random.default_rng(3)
    x, y = rng.integers(0, 5, size=(2, 12)).astype(float)
    counts = _counts(np.repeat(np.arange(4), 3), 20, 1)
    found = _drawn(x, y, counts)
    for own, times in zip(found, counts.astype(int), strict=True):
        assert own == pytest.approx(spearmanr(np.repeat(x, times), np.repeat(y, times)).statistic)


def test_few_groups_say_nothing_and_equal_draws_are_no_point():
    x = np.arange(12.0)
    few = rank_correlation(x, x, 0.05, np.repeat([0, 1], 6))
    assert (few.value, few.low, few.high) == (1.0, -1.0, 1.0)
    perfect = rank_correlation(x, x, 0.05, np.repeat(np.arange(6), 2))
    assert perfect.low < 0.98
    assert perfect.high == 1.0
    with pytest.raises(BadValue, match="one length"):
        rank_correlation(x, x, 0.05, [1, 2])


finite = st.floats(-1e3, 1e3)


def test_relearning_by_hand():
    # Retrain rises by 0.2; models rise by 0.4, 0.1, 0, fall by 0.1, and one value is missing.
    found = relearning([0.1, 0.1, 0.3, 0.3, NAN], [0.5, 0.2, 0.3, 0.2, 0.5], 0.0, 0.2)
    assert found == pytest.approx([0.5, 1.0, 1.0, 1.0, NAN], nan_ok=True)
    assert relearning([0.3, 0.3], [0.3, 0.4], 0.2, 0.1).tolist() == [1.0, 0.0]  # Retrain falls
    assert np.isnan(relearning([0.3], [INF], 0.0, 0.1)).all()
    assert np.isnan(relearning([0.3], [0.4], 0.0, NAN)).all()


def test_quantisation_by_hand():
    found = quantisation(
        [0.1, 0.2, 0.0, 0.0, 0.1, -0.1, NAN, 1.0], [0.2, 0.1, 0.0, 0.3, 0.0, 0.1, 0.1, INF]
    )
    assert found == pytest.approx([0.5, 1.0, 1.0, 0.0, 1.0, NAN, NAN, NAN], nan_ok=True)


@given(finite, finite)
@settings(max_examples=100)
def test_the_symmetric_form_does_not_know_before_from_after(x, y):
    assert symmetric([x], [y]) == pytest.approx(symmetric([y], [x]))
    assert 0 <= symmetric([x], [y])[0] <= 1
    assert symmetric([x], [x])[0] == pytest.approx(1.0)


def test_robustness_is_the_harmonic_mean_of_means_and_its_draws_are_of_whole_models():
    r, q = np.array([1.0, 0.5, NAN, 0.0] * 4), np.array([1.0, 0.8, 0.6, NAN] * 4)
    found = robustness(r, q, draws=200, seed=4)
    assert found.relearning.value == pytest.approx(0.5)
    assert found.quantisation.value == pytest.approx(0.8)
    assert found.both.value == pytest.approx(2 / (1 / 0.5 + 1 / 0.8))
    picks, means = np.random.default_rng(4).integers(16, size=(200, 16)), []
    for pick in picks:
        means.append(harmonic_mean(*(np.nanmean(v[pick]) for v in (r, q))))
    half = student.isf(0.025, 11) * np.nanstd(logit(np.clip(means, 1e-6, 1 - 1e-6)))
    expected = expit(logit(found.both.value) + half * np.array([-1, 1]))
    assert (found.both.low, found.both.high) == pytest.approx(tuple(expected))
    assert (found.relearning.n, found.quantisation.n, found.both.n) == (12, 12, 12)


def test_fewer_than_ten_groups_have_no_interval():
    r, groups = np.linspace(0.1, 0.9, 27), np.repeat(np.arange(9), 3)
    few, many = (robustness(r, r, draws=100, groups=own).both for own in (groups, np.arange(27)))
    assert few.defined
    assert np.isnan([few.low, few.high]).all()
    assert many.low < many.value < many.high


def test_the_best_threshold_separates_and_stays_between_its_values():
    assert best_threshold([4, 5, 6], [1, 2, 3]) == 3.5
    assert best_threshold([INF, 2], [1, 1]) == 1.5
    assert best_threshold([1, 1], [1, 1]) == 1
