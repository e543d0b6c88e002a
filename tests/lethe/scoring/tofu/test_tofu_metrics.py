from __future__ import annotations

import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lethe.errors import BadValue
from lethe.scoring.tofu import forget_quality, forget_truth, harmonic_mean, mean_term, model_utility

NAN = float("nan")


def test_truth_on_the_forget_set_and_elsewhere():
    assert forget_truth([0.5, 2.0, 1.0]).value == pytest.approx(2 / 3)
    assert forget_truth([0.0, np.inf]).value == 0
    ratios = {"probability": [1.0], "rouge": [1.0], "truth_ratio": [0.25, 2.0, np.inf]}
    assert model_utility({"world": ratios}).terms["world_truth"].value == pytest.approx(0.25)


def test_missing_rows_are_counted_and_never_zero():
    for term in (mean_term([1.0, NAN]), forget_truth([1.0, NAN])):
        assert (term.value, term.n, term.missing) == (1, 1, 1)
    assert np.isnan(mean_term([NAN]).value)
    assert mean_term([]).n == 0


@given(st.lists(st.floats(1e-6, 1), min_size=1, max_size=9))
def test_harmonic_mean_equals_the_standard_library(values):
    assert harmonic_mean(np.array(values)) == pytest.approx(statistics.harmonic_mean(values))


def test_harmonic_mean_of_zero_and_of_missing():
    assert harmonic_mean(np.array([0.0, 1.0])) == 0
    assert np.isnan(harmonic_mean(np.array([0.0, NAN])))


def test_model_utility_is_the_harmonic_mean_of_three_terms_a_set():
    rows = {"probability": [0.5, NAN], "rouge": [1.0, 1.0], "truth_ratio": [0.5, 0.5]}
    got = model_utility({"retain": rows, "world": rows})
    assert got.value == pytest.approx(statistics.harmonic_mean([0.5, 1, 0.5]))
    assert list(got.terms) == [
        f"{name}_{part}" for name in ("retain", "world") for part in ("probability", "rouge", "truth")
    ]
    assert got.terms["world_probability"].missing == 1
    with pytest.raises(BadValue, match="real_authors"):
        model_utility({})


def test_forget_quality_leaves_missing_rows_out():
    rng = np.random.default_rng(0)
    ratios = rng.random(40)
    got = forget_quality([*ratios, NAN], ratios)
    assert (got.p_value, got.n_first, got.n_second) == (1, 40, 40)
    assert forget_quality(ratios, ratios + 1).p_value < 1e-20
    with pytest.raises(BadValue, match="Retrain"):
        forget_quality(ratios, [NAN])
