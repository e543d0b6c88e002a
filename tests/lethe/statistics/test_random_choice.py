"""Labels that cannot be of random draws: both tests against naive twins that add up every outcome, and their level."""

import itertools
import math

import numpy as np
import pytest

from lethe.errors import BadValue
from lethe.statistics.random_choice import (
    CONCENTRATIONS,
    REFUTED,
    blind_p_value,
    uniform_p_value,
)


def sequence_ratio(sequence, m):
    """The twin: the probability of each choice given those before it, one after the other, averaged over the laws."""
    ratios = []
    for concentration in CONCENTRATIONS:
        ratio = 1.0
        seen = [0] * m
        for drawn, question in enumerate(sequence):
            ratio *= m * (seen[question] + concentration) / (drawn + m * concentration)
            seen[question] += 1
        ratios.append(ratio)
    return sum(ratios) / len(ratios)


@pytest.mark.parametrize(("m", "n"), [(2, 8), (3, 6), (5, 4)])
def test_the_mean_ratio_over_all_sequences_is_one(m, n):
    sequences = [*itertools.product(range(m), repeat=n)]

    ratios = [sequence_ratio(sequence, m) for sequence in sequences]

    assert math.isclose(sum(ratios) / len(ratios), 1, rel_tol=1e-12)
    for sequence, ratio in zip(sequences, ratios, strict=True):
        counts = np.bincount(sequence, minlength=m)
        assert math.isclose(uniform_p_value(counts), min(1, 1 / ratio), rel_tol=1e-9)


@pytest.mark.parametrize(("m", "n"), [(2, 90), (30, 200), (400, 60)])
def test_uniform_choices_have_a_small_p_value_no_more_often_than_it_says(m, n):
    rng = np.random.default_rng(43)
    counts = rng.multinomial(n, np.full(m, 1 / m), size=2000)

    p_values = np.array([uniform_p_value(row) for row in counts])

    for level in (0.01, 0.05, 0.2):
        assert (p_values <= level).mean() <= level


def test_all_labels_of_one_question_are_not_random_from_few_labels_on():
    assert uniform_p_value([200] + [0] * 29) < REFUTED
    assert uniform_p_value([6] + [0] * 29) < REFUTED
    assert uniform_p_value([20] * 10 + [0] * 20) < REFUTED


def test_equally_many_labels_of_each_question_are_no_reason_to_refuse():
    assert uniform_p_value([40] * 30) == 1


def test_counts_below_zero_are_refused():
    with pytest.raises(BadValue, match="counts"):
        uniform_p_value([3, -1])


def every_choice(labelled, verdicts, n):
    """The twin: all ways to choose the labelled draws of each question, and how many chosen draws have verdict 1."""
    called = [0]
    for chosen, ones, draws in zip(labelled, verdicts, n, strict=True):
        values = [1] * ones + [0] * (draws - ones)
        sums = [sum(pick) for pick in itertools.combinations(values, chosen)]
        called = [before + now for before in called for now in sums]
    return np.array(called)


def test_the_verdicts_of_labelled_draws_are_tested_as_by_all_choices():
    labelled = (2, 3)
    verdicts = (1, 4)
    n = (5, 6)
    called = every_choice(labelled, verdicts, n)

    for seen in range(5):
        tails = (called <= seen).mean(), (called >= seen).mean()
        expected = min(1, 2 * min(tails))
        assert math.isclose(blind_p_value(seen, labelled, verdicts, n), expected, abs_tol=1e-12)


@pytest.mark.seconds
def test_choices_without_sight_of_the_verdicts_are_refused_no_more_often_than_it_says():
    rng = np.random.default_rng(43)
    labelled = np.full(20, 10)
    verdicts = np.full(20, 30)
    n = np.full(20, 100)

    called = rng.hypergeometric(verdicts, n - verdicts, labelled, size=(2000, 20)).sum(axis=1)
    p_values = np.array([blind_p_value(seen, labelled, verdicts, n) for seen in called])

    for level in (0.01, 0.05, 0.2):
        assert (p_values <= level).mean() <= level


def test_labels_of_answers_that_the_judge_calls_clean_are_not_blind():
    assert blind_p_value(0, np.full(20, 10), np.full(20, 30), np.full(20, 100)) < REFUTED
