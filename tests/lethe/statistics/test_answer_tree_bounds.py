"""The interval of P(leak): closed forms, naive twins, and how often it misses the truth."""

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.stats import poisson

from lethe.errors import BadValue
from lethe.statistics.answer_tree import (
    Masses,
    Remainder,
    Rounding,
    against_retrain,
    chance_within,
    leak_interval,
    poisson_lower,
    poisson_upper,
    pooled_leak,
    queries_until,
)
from tests.lethe.statistics.coverage import TREES, no_bounds, tree_misses
from tests.lethe.statistics.draws import tolerated
from tests.lethe.verdict.deciding import certified

ALPHA = 0.01


@pytest.mark.parametrize("count", [0, 1, 2, 7, 40, 1000])
@pytest.mark.parametrize("alpha", [0.5, 0.05, 0.01, 1e-6])
def test_garwoods_limits_are_where_the_poisson_tails_are_alpha(count, alpha):
    upper, lower = float(poisson_upper(count, alpha)), float(poisson_lower(count, alpha))
    assert poisson.cdf(count, upper) == pytest.approx(alpha, rel=1e-8)
    assert poisson.sf(count - 1, lower) == pytest.approx(alpha, rel=1e-8) if count else lower == 0


@pytest.mark.parametrize("tree", TREES)
@pytest.mark.parametrize("rho", [30, 1000])
def test_the_bounds_cover_the_truth_of_simulated_trees(tree, rho):
    """One question, the mean of several, and the list against Retrain; the quick part of `make coverage`."""
    for name, share in tree_misses(tree, rho, 0.05, 400, seed=7):
        assert share <= tolerated(0.05, 100 if "Holm" in name else 400), name


def test_a_rate_chosen_after_the_draws_misses():
    assert min(share for _, share in no_bounds(0.05, 400, seed=1)) > tolerated(0.05, 400)


def test_pooling_needs_one_rate_and_is_narrower_than_the_mean_of_the_bounds():
    questions = [(Masses((0.01,), (0.5,)), Remainder(100.0, 9, 1)) for _ in range(10)]
    got = pooled_leak(questions, ALPHA)
    assert got.upper < np.mean([leak_interval(*question, ALPHA).upper for question in questions])
    assert got.upper == pytest.approx(0.01 + float(poisson_upper(10, ALPHA)) / 1000)
    for others in (
        [],
        [(questions[0][0], Remainder())],
        [questions[0], (questions[0][0], Remainder(99.0, 1, 1))],
    ):
        with pytest.raises(BadValue, match="rho"):
            pooled_leak(others, ALPHA)


lengths = st.lists(st.floats(0, 0.04), max_size=12).map(tuple)


@given(
    lengths, lengths, st.integers(0, 50), st.floats(0, 1e5), st.floats(0, 1e-2), st.floats(0.2, 3)
)
def test_rounding_moves_every_end_outward(leak, clean, leaks, rho, allowance, temperature):
    masses = Masses(leak, clean)
    remainder = Remainder(rho, 50, leaks)
    plain = leak_interval(masses, remainder, ALPHA)
    rounded = leak_interval(masses, remainder, ALPHA, Rounding(allowance, 12, temperature))
    assert rounded.lower <= plain.lower * (1 + 1e-12)
    # No end exceeds the certain one, which moves too.
    assert (
        rounded.lower_sampled <= plain.lower_sampled * (1 + 1e-12)
        or rounded.lower_sampled == rounded.upper_certain
    )
    assert rounded.upper >= plain.upper * (1 - 1e-12)
    assert rounded.upper_certain >= plain.upper_certain * (1 - 1e-12)
    assert 0 <= rounded.lower <= rounded.upper <= rounded.upper_certain <= 1


@given(st.data(), st.floats(0, 1e-2), st.floats(0.3, 2.0))
def test_rounded_masses_bracket_those_of_logits_that_are_off_by_the_allowance(
    data, allowance, temperature
):
    """An answer's probability under shifted logits, by the definition of the softmax."""
    random = np.random.default_rng(data.draw(st.integers(0, 1000)))
    tokens = data.draw(st.integers(1, 6))
    vocabulary = 5
    logits = random.normal(size=(tokens, vocabulary))
    shifted = logits + allowance * random.choice([-1, 1], size=logits.shape)
    answer = random.integers(vocabulary, size=tokens)

    def mass(values):
        chances = np.exp(values / temperature)
        return float(
            np.prod((chances / chances.sum(axis=1, keepdims=True))[np.arange(tokens), answer])
        )

    by_length = (0.0,) * (tokens - 1) + (mass(logits),)
    rounding = Rounding(allowance, tokens, temperature)
    assert rounding.least(by_length) <= mass(shifted) * (1 + 1e-9)
    assert rounding.most(by_length) >= mass(shifted) * (1 - 1e-9)


@given(st.floats(1e-12, 0.99), st.integers(1, 10**9))
def test_leak_at_n_is_the_complement_of_n_clean_answers(p, n):
    assert chance_within(p, n) == pytest.approx(
        1 - math.exp(n * math.log1p(-p)), rel=1e-9, abs=1e-15
    )
    needed = float(queries_until(p))
    assert chance_within(p, needed) >= 0.5 - 1e-9
    assume(needed > 1)
    assert chance_within(p, needed - 1) < 0.5 + 1e-9
    assert queries_until([0.0, 1.0]).tolist() == [math.inf, 1.0]


def test_what_the_enumeration_rules_out_needs_no_sample():
    surely = [(Masses((0.001,), (0.99,)), Remainder(1.0, 0, 0)), (Masses((), ()), Remainder())]
    got = against_retrain(np.array([0.5, 0.5]), surely, 40, ALPHA)
    assert got.p_values.tolist() == [0.0, 1.0]
    assert got.holds.tolist() == [True, False]
    assert got.ratio[0] == pytest.approx(50)


def test_questions_without_a_proof_of_leaks_are_not_said_to_leak_in_no_answer():
    unproved = certified(["a", "b"], leak=0.0, clean=0.5, rho=0)

    counted = [said for said in unproved.sentences() if "0 of the 2 questions" in said]

    assert counted
    assert all(said.startswith("Proved to leak") for said in counted)
