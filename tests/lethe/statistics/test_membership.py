from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lethe.errors import BadValue
from lethe.statistics.two_sample import auc, entropy, fit_threshold, modified_entropy

SCORES = st.lists(st.integers(-4, 4).map(float), min_size=1, max_size=25)


def naive_threshold(members, nonmembers):
    best, value = -1.0, None
    for v in [*members, *nonmembers]:
        accuracy = sum(m >= v for m in members) * len(nonmembers) + sum(n < v for n in nonmembers) * len(members)
        if accuracy > best:
            best, value = accuracy, v
    return value, best / 2 / len(members) / len(nonmembers)


@given(SCORES, SCORES)
def test_threshold_against_its_naive_twin(members, nonmembers):
    fitted = fit_threshold(members, nonmembers)
    value, accuracy = naive_threshold(members, nonmembers)
    assert fitted.value == value
    assert fitted.balanced_accuracy == pytest.approx(accuracy)


@given(SCORES, SCORES)
def test_auc_against_its_naive_twin(members, nonmembers):
    naive = np.mean([(m > n) + (m == n) / 2 for m in members for n in nonmembers])
    assert auc(members, nonmembers) == pytest.approx(naive)


@given(st.lists(st.floats(0.01, 1), min_size=2, max_size=6), st.data())
def test_entropies_against_their_naive_twins(weights, data):
    p = np.array(weights) / sum(weights)
    y = data.draw(st.integers(0, len(p) - 1))
    naive = -(1 - p[y]) * math.log(p[y]) - sum(p[j] * math.log(1 - p[j]) for j in range(len(p)) if j != y)
    assert modified_entropy([p], [y])[0] == pytest.approx(naive, abs=1e-12)
    assert entropy(p) == pytest.approx(-sum(x * math.log(x) for x in p))


def test_certainty_of_the_right_class_is_zero_and_of_the_wrong_one_is_finite():
    certain = np.array([[1.0, 0.0, 0.0]])
    assert modified_entropy(certain, [0])[0] == 0
    assert modified_entropy(certain, [1])[0] == pytest.approx(-2 * math.log(1e-30))
    assert entropy(certain)[0] == 0


@pytest.mark.parametrize(("members", "nonmembers"), [([], [1.0]), ([1.0], []), ([math.nan], [1.0])])
def test_scores_that_fit_nothing_are_refused(members, nonmembers):
    with pytest.raises(BadValue, match="scores"):
        fit_threshold(members, nonmembers)
