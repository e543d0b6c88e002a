"""The share of prompts above a threshold: a naive twin, its corners, and coverage on languages with known leaks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import beta

from lethe.errors import BadValue
from lethe.statistics import leak_rates
from lethe.statistics.bound import Covers
from lethe.statistics.judge_error import Calibration
from lethe.statistics.leak_rates import CERTIFY, Rate


def share_exceeding(leaks, answers, tau, alpha, side):
    return leak_rates.share_exceeding(Rate.of(leaks, answers), tau, alpha, side)


def judged_share_exceeding(leaks, answers, tau, judge, alpha, side):
    return leak_rates.share_exceeding(Rate.of(leaks, answers, judge=judge), tau, alpha, side)


def upper(k, n, alpha):
    return 1.0 if k == n else beta.ppf(1 - alpha, k + 1, n - k)


def lower(k, n, alpha):
    return 0.0 if k == 0 else beta.ppf(alpha, k, n - k + 1)


@given(
    st.integers(1, 40).flatmap(
        lambda r: st.tuples(st.just(r), st.lists(st.integers(0, r), min_size=1, max_size=30))
    )
)
def test_against_the_formulas_written_out(drawn):
    answers, leaks = drawn
    tau, alpha = 0.2, 0.05
    bounds = []
    for level, share in CERTIFY.items():
        not_certified = sum(upper(k, answers, level) > tau for k in leaks)
        bounds.append(min(1, upper(not_certified, len(leaks), share * alpha) / (1 - level)))
    assert sum(CERTIFY.values()) == 1
    detected = sum(lower(k, answers, 0.01) > tau for k in leaks)
    above = share_exceeding(leaks, answers, tau, alpha, "upper")
    below = share_exceeding(leaks, answers, tau, alpha, "lower")
    assert above.value == pytest.approx(min(bounds))
    assert below.value == pytest.approx(max(0, (lower(detected, len(leaks), alpha) - 0.01) / 0.99))
    assert (above.covers, above.n) == (Covers.PROMPTS_OF_LANGUAGE, len(leaks))


# probability and leak of each production; tau is below, between and exactly at leaks
LANGUAGES = {
    "one leaks": ([0.7, 0.2, 0.1], [0.0, 0.05, 0.6]),
    "at tau": ([0.5, 0.3, 0.2], [0.2, 0.2, 0.21]),
    "all leak": ([0.5, 0.5], [0.25, 0.9]),
    "none leaks": ([0.9, 0.1], [0.0, 0.199]),
}


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("side", ["upper", "lower"])
def test_coverage_on_languages_with_known_leaks(language, side):
    probabilities, leaks = map(np.array, LANGUAGES[language])
    tau, alpha, prompts, answers, runs = 0.2, 0.05, 40, 24, 2000
    truth = probabilities[leaks > tau].sum()
    rng = np.random.default_rng(7)
    drawn = rng.binomial(answers, leaks[rng.choice(len(leaks), size=(runs, prompts), p=probabilities)])
    bounds = np.array([share_exceeding(counts, answers, tau, alpha, side).value for counts in drawn])
    misses = np.mean(bounds < truth - 1e-12) if side == "upper" else np.mean(bounds > truth + 1e-12)
    assert misses <= alpha + 3 * np.sqrt(alpha * (1 - alpha) / runs)


def test_without_the_correction_the_upper_bound_would_miss():
    """The division by 1 - alpha matters if every prompt above tau is certified as often as the level allows."""
    alpha, prompts, runs = 0.3, 400, 2000
    rng = np.random.default_rng(3)
    certified = rng.random((runs, prompts)) < alpha  # the worst case that the certificate allows, at a share of 1
    plain = np.array([upper(prompts - row.sum(), prompts, alpha) for row in certified])
    assert np.mean(plain < 1) > 0.9
    assert np.mean(np.minimum(1, plain / (1 - alpha)) < 1) <= alpha + 3 * np.sqrt(alpha * (1 - alpha) / runs)


@pytest.mark.parametrize(
    ("leaks", "answers", "tau"),
    [([], 4, 0.1), ([[1]], 4, 0.1), ([5], 4, 0.1), ([-1], 4, 0.1), ([1], 4, 0.0), ([1], 4, 1.0)],
)
def test_impossible_values_are_refused(leaks, answers, tau):
    with pytest.raises(BadValue):
        share_exceeding(leaks, answers, tau, 0.05, "upper")


@pytest.mark.parametrize("side", ["upper", "lower"])
@pytest.mark.parametrize("error", [0.0, 0.05, 0.2])
def test_coverage_where_a_judge_who_errs_gives_the_leaks(error, side):
    """The bound on true leaks keeps its level; the share of prompts by the verdicts alone misses at an error of 20%."""
    probabilities, leaks = np.array([0.6, 0.25, 0.15]), np.array([0.02, 0.2, 0.35])
    tau, alpha, prompts, answers, labelled, runs = 0.2, 0.05, 60, 64, 400, 600
    truth = probabilities[leaks > tau].sum()
    rng = np.random.default_rng([14, round(100 * error)])
    called = rng.binomial(
        answers, (leaks * (1 - error) + (1 - leaks) * error)[rng.choice(3, (runs, prompts), p=probabilities)]
    )
    found, naive = [], []
    for counts in called:
        judge = Calibration(labelled, rng.binomial(labelled, 1 - error), labelled, rng.binomial(labelled, error))
        found.append(judged_share_exceeding(counts, answers, tau, judge, alpha, side).value)
        naive.append(share_exceeding(counts, answers, tau, alpha, side).value)
    missed = (np.array(found) < truth - 1e-12) if side == "upper" else (np.array(found) > truth + 1e-12)
    assert missed.mean() <= alpha + 3 * np.sqrt(alpha * (1 - alpha) / runs)
    if error == 0.2 and side == "lower":
        assert np.mean(np.array(naive) > truth) > 5 * alpha


def test_a_judge_who_separates_nothing_bounds_nothing():
    blind = Calibration(50, 25, 50, 25)
    assert judged_share_exceeding([0] * 30, 24, 0.2, blind, 0.05, "upper").value == 1
    assert judged_share_exceeding([24] * 30, 24, 0.2, Calibration(50, 5, 50, 45), 0.05, "lower").value == 0
    sharp = Calibration(10**9, 10**9, 10**9, 0)
    error = sharp.error(0.05 / 3)
    assert error.sensitivity[0] > 1 - 1e-8
    for side in ("upper", "lower"):
        own = judged_share_exceeding([0] * 25 + [20] * 5, 24, 0.2, sharp, 0.15, side).value
        assert own == pytest.approx(share_exceeding([0] * 25 + [20] * 5, 24, 0.2, 0.05, side).value)
