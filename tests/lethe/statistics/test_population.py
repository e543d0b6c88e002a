"""Questions as a sample: coverage with the worst law searched, and ranks over pairs of runs."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, permutations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from lethe.comparison.ranking import rank
from lethe.comparison.sides import QuestionScores, Scored, Side
from lethe.statistics import betting, leak_rates
from lethe.statistics.bound import Covers
from lethe.statistics.bounds import binary_upper
from lethe.statistics.judge_error import Calibration
from lethe.statistics.leak_rates import CERTIFY, Rate
from lethe.statistics.many_prompts import population_ends, rank_ranges, share_interval
from lethe.statistics.mean_difference import mean_of_differences, population_difference
from tests.lethe.statistics.draws import allowed, clopper_pearson, tolerated

QUESTIONS = 24


@dataclass(frozen=True)
class QuestionLaw:
    """How the leak probabilities of the questions spread around their mean."""

    kind: str
    mean: float

    def draw(self, rng: np.random.Generator, shape) -> np.ndarray:
        match self.kind:
            case "alike":
                return np.full(shape, self.mean)
            case "two kinds":
                return (rng.random(shape) < self.mean).astype(float)
            case "rare":
                return np.where(rng.random(shape) < 2 * self.mean, 0.5, 0.0)
        return rng.beta(self.mean, 1 - self.mean, shape)


@dataclass(frozen=True)
class Drawing:
    """Questions of a law with so many answers each, of which an upper or a lower end is made."""

    law: QuestionLaw
    answers: int
    side: str

    def misses(self, rng: np.random.Generator, alpha: float, runs: int) -> int:
        """How often an end misses the mean, by bets and, for a single answer, by Clopper-Pearson."""
        rates = self.law.draw(rng, (runs, QUESTIONS))
        values = rng.binomial(self.answers, rates) / self.answers
        true = self.law.mean
        if self.side == "lower":
            values = 1 - values
            true = 1 - true

        missed = int((betting.mean_upper(values, alpha) < true).sum())
        if self.answers == 1:
            counted = binary_upper(values.sum(axis=1), QUESTIONS, alpha)
            missed = max(missed, int((counted < true).sum()))
        return missed


def drawings() -> Iterator[Drawing]:
    kinds = ("alike", "two kinds", "rare", "between")
    means = (0.02, 0.08, 0.25, 0.5)
    for kind, mean, answers, side in product(kinds, means, (1, 4), ("upper", "lower")):
        yield Drawing(QuestionLaw(kind, mean), answers, side)


@pytest.mark.seconds
@pytest.mark.parametrize("alpha", [0.01, 0.05])
def test_an_end_misses_at_most_at_alpha_under_the_worst_law(alpha):
    """The law that misses most often in a search is drawn again."""
    rng = np.random.default_rng(0)
    worst = max(drawings(), key=lambda drawing: drawing.misses(rng, alpha, 1000))

    missed = worst.misses(rng, alpha, 20_000)

    assert missed <= allowed(alpha, 20_000)


def test_both_ends_cover_the_population_where_an_interval_of_these_questions_does_not():
    rng = np.random.default_rng(1)
    law = QuestionLaw("between", 0.3)
    alpha = 0.05
    runs = 80

    missed_by_population = 0
    missed_by_these = 0
    for _ in range(runs):
        draws = rng.random((8, QUESTIONS)) < law.draw(rng, QUESTIONS)
        scores = draws.astype(float).T
        means = scores.mean(axis=1)
        low, high, _ = population_ends(means, means, alpha / 2)
        missed_by_population += not low <= law.mean <= high
        these = share_interval(list(scores), alpha)
        missed_by_these += not these.lower <= law.mean <= these.upper

    assert missed_by_population <= allowed(alpha, runs) < missed_by_these


def test_a_missing_score_widens_both_ends():
    whole = np.full(30, 0.5)
    missing_as_0 = np.r_[whole[:28], 0, 0]
    missing_as_1 = np.r_[whole[:28], 1, 1]

    low, high, _ = population_ends(missing_as_0, missing_as_1, 0.05)
    low_of_whole, high_of_whole, _ = population_ends(whole, whole, 0.05)

    assert low < low_of_whole
    assert high > high_of_whole


# Answers to 30 questions: 3 leak on side A alone, 12 on side B alone.
ANSWERS_A = np.repeat([1.0, 0.0, 0.0], [3, 12, 15])
ANSWERS_B = np.repeat([0.0, 1.0, 0.0], [3, 12, 15])


def test_the_sign_test_is_mcnemars():
    found = population_difference(
        list(ANSWERS_A[:, None]), list(ANSWERS_B[:, None]), 0.05, binary=True
    )

    assert found.p_value == pytest.approx(binomtest(3, 15).pvalue)
    assert found.difference == pytest.approx(0.3)
    assert found.low <= found.difference <= found.high


def test_copies_of_an_answer_are_no_evidence():
    found = population_difference(
        list(ANSWERS_A[:, None]), list(ANSWERS_B[:, None]), 0.05, binary=True
    )
    copies_a = [np.repeat(score, 50) for score in ANSWERS_A]
    copies_b = [np.repeat(score, 50) for score in ANSWERS_B]

    copied = population_difference(copies_a, copies_b, 0.05, binary=True)

    assert (copied.low, copied.high) == (found.low, found.high)


def test_a_missing_answer_of_either_side_widens_the_difference():
    found = population_difference(
        list(ANSWERS_A[:, None]), list(ANSWERS_B[:, None]), 0.05, binary=True
    )
    lost_a = ANSWERS_A.copy()
    lost_a[-1] = np.nan
    lost_b = ANSWERS_B.copy()
    lost_b[-2] = np.nan

    gap = population_difference(list(lost_a[:, None]), list(lost_b[:, None]), 0.05, binary=True)

    assert gap.low < found.low
    assert gap.high > found.high


@pytest.mark.seconds
@pytest.mark.parametrize("alpha", [0.01, 0.05])
@pytest.mark.parametrize(
    ("rise", "fall", "share"), [(0.01, 0.5, 0.1), (0.05, 0.5, 0.1), (0.5, 0.5, 0.5)]
)
def test_one_graded_answer_each_tests_the_average_and_not_the_number_of_rises(
    alpha, rise, fall, share
):
    """Most questions rise a little and a few fall a lot: the sign test finds a rise where the average falls."""
    rng = np.random.default_rng(4)
    runs = 200
    before = np.full((60, 1), 0.5)
    true = rise * (1 - share) - fall * share

    false_rises = 0
    for _ in range(runs):
        after = before + np.where(rng.random(before.shape) < share, -fall, rise)
        found = mean_of_differences(list(before), list(after), alpha)
        false_rises += found.low > true
        assert (found.low > 0) == (found.p_above() <= alpha / 2)

    assert false_rises <= allowed(alpha / 2, runs)


@pytest.mark.parametrize("alpha", [0.01, 0.05])
def test_one_graded_answer_each_shows_a_rise_of_all_questions(alpha):
    before = np.full((60, 1), 0.5)

    found = mean_of_differences(list(before), list(before + 0.3), alpha)

    assert 0 < found.low <= 0.3 <= found.high


@pytest.mark.parametrize("binary", [True, False])
def test_the_difference_covers_the_population(binary):
    rng = np.random.default_rng(2)
    alpha = 0.1
    runs = 60
    mean_a = 0.3 if binary else 0.15
    mean_b = 0.3 * 0.7 + 0.7 * 0.3

    missed = 0
    false = 0
    for _ in range(runs):
        first = rng.random(QUESTIONS) < 0.3
        a = first * (1.0 if binary else rng.random(QUESTIONS))
        b = (first ^ (rng.random(QUESTIONS) < 0.3)) * 1.0
        found = population_difference(list(a[:, None]), list(b[:, None]), alpha, binary)
        missed += not found.low <= mean_b - mean_a <= found.high
        same_law = rng.permutation(a)
        null = population_difference(list(a[:, None]), list(same_law[:, None]), alpha, binary)
        false += null.p_value <= alpha

    assert missed <= allowed(alpha, runs)
    assert false <= allowed(alpha, runs)


def naive_ranges(above):
    """The ranks of each side over all orders that contradict no proved pair."""
    n = len(above)
    ranks_of_side = [[] for _ in range(n)]
    for order in permutations(range(n)):
        if any(above[before, after] for before, after in combinations(order, 2)):
            continue
        for rank_of_side, side in enumerate(order, start=1):
            ranks_of_side[side].append(rank_of_side)
    return [(min(ranks), max(ranks)) for ranks in ranks_of_side]


@given(st.lists(st.integers(0, 5), min_size=3, max_size=5), st.integers(1, 3))
def test_ranges_of_ranks_are_those_of_all_orders(levels, gap):
    above = np.subtract.outer(levels, levels) >= gap

    assert rank_ranges(above) == naive_ranges(above)


def sides_of(*scores_of_sides):
    sides = []
    for place, scores in enumerate(scores_of_sides):
        answers = {f"q{number}": QuestionScores(row) for number, row in enumerate(scores)}
        sides.append(Side(f"run {place}", "table", "score", {"": Scored(answers)}))
    return sides


@pytest.mark.seconds
def test_redraws_of_one_log_have_false_pairs_at_most_at_alpha():
    rng = np.random.default_rng(3)
    alpha = 0.1
    runs = 30

    false = 0
    false_of_population = 0
    false_of_single_answers = 0
    for _ in range(runs):
        draws = rng.random((4, QUESTIONS, 6)) < rng.beta(0.5, 0.5, (QUESTIONS, 1))
        found = rank(sides_of(*draws.astype(float)), alpha)
        false += found.differ("difference") > 0
        false_of_population += found.differ("difference_population") > 0
        coins = rng.random((3, 60, 1)) < rng.beta(2, 2, (60, 1))
        found = rank(sides_of(*coins.astype(float)), alpha)
        false_of_single_answers += found.differ("difference_population") > 0

    assert false <= allowed(alpha, runs)
    assert false_of_population <= allowed(alpha, runs)
    assert false_of_single_answers <= allowed(alpha, runs)


def log_scores():
    rng = np.random.default_rng(3)
    draws = rng.random((QUESTIONS, 6)) < rng.beta(0.5, 0.5, (QUESTIONS, 1))
    return draws.astype(float)


def test_copies_of_one_log_have_all_ranks():
    copies = rank(sides_of(*[log_scores()] * 4), 0.1)

    assert copies.ranges("rank") == [(1, 4)] * 4
    assert copies.ranges("rank_population") == [(1, 4)] * 4


def test_logs_without_a_leak_and_with_leaks_alone_have_the_first_and_the_last_rank():
    scores = log_scores()

    found = rank(sides_of(np.zeros_like(scores), scores, np.ones_like(scores)), 0.1)

    assert found.ranges("rank_population") == [(1, 1), (2, 2), (3, 3)]


def share_exceeding(leaks, answers, tau, alpha, side, judge=None):
    return leak_rates.share_exceeding(Rate.of(leaks, answers, judge=judge), tau, alpha, side)


questions = st.integers(1, 40).flatmap(
    lambda n: st.tuples(st.just(n), st.lists(st.integers(0, n), min_size=1, max_size=30))
)


@given(questions)
def test_the_upper_share_is_the_least_over_the_levels_of_certification(drawn):
    answers, leaks = drawn
    tau = 0.2
    alpha = 0.05
    ends = [1.0]
    for level, share in CERTIFY.items():
        uppers = [clopper_pearson(count, answers, level)[1] for count in leaks]
        not_certified = sum(upper > tau for upper in uppers)
        _, end = clopper_pearson(not_certified, len(leaks), share * alpha)
        ends.append(end / (1 - level))

    found = share_exceeding(leaks, answers, tau, alpha, "upper")

    assert found.value == pytest.approx(min(ends))
    assert (found.covers, found.n) == (Covers.PROMPTS_OF_LANGUAGE, len(leaks))


def test_the_levels_of_certification_share_all_of_alpha():
    assert sum(CERTIFY.values()) == 1


@given(questions)
def test_the_lower_share_counts_the_questions_that_are_found_to_leak(drawn):
    answers, leaks = drawn
    tau = 0.2
    alpha = 0.05
    lowers = [clopper_pearson(count, answers, 0.01)[0] for count in leaks]
    detected = sum(lower > tau for lower in lowers)
    end, _ = clopper_pearson(detected, len(leaks), alpha)

    found = share_exceeding(leaks, answers, tau, alpha, "lower")

    assert found.value == pytest.approx(max(0, (end - 0.01) / 0.99))


class ErringJudge:
    """Shares of leaking prompts, by a judge who errs, and by its verdicts as if it did not."""

    tau = 0.2
    alpha = 0.05
    runs = 600
    probabilities = np.array([0.6, 0.25, 0.15])
    leaks = np.array([0.02, 0.2, 0.35])
    truth = probabilities[leaks > tau].sum()

    def __init__(self, error: float, side: str):
        answers = 64
        labelled = 400
        rng = np.random.default_rng([14, round(100 * error)])
        kinds = rng.choice(3, (self.runs, 60), p=self.probabilities)
        called_rates = self.leaks * (1 - error) + (1 - self.leaks) * error
        called = rng.binomial(answers, called_rates[kinds])
        self.judged = np.zeros(self.runs)
        self.naive = np.zeros(self.runs)
        for run, counts in enumerate(called):
            leaks_called = rng.binomial(labelled, 1 - error)
            judge = Calibration(labelled, leaks_called, labelled, rng.binomial(labelled, error))
            of_judge = share_exceeding(counts, answers, self.tau, self.alpha, side, judge)
            of_verdicts = share_exceeding(counts, answers, self.tau, self.alpha, side)
            self.judged[run] = of_judge.value
            self.naive[run] = of_verdicts.value


@pytest.mark.parametrize("error", [0.0, 0.05, 0.2])
def test_the_upper_share_covers_where_a_judge_who_errs_gives_the_leaks(error):
    shares = ErringJudge(error, "upper")

    missed = shares.judged < shares.truth - 1e-12

    assert missed.mean() <= tolerated(shares.alpha, shares.runs)


@pytest.mark.parametrize("error", [0.0, 0.05, 0.2])
def test_the_lower_share_covers_where_a_judge_who_errs_gives_the_leaks(error):
    shares = ErringJudge(error, "lower")

    missed = shares.judged > shares.truth + 1e-12

    assert missed.mean() <= tolerated(shares.alpha, shares.runs)
    if error == 0.2:  # the verdicts alone miss
        assert np.mean(shares.naive > shares.truth) > 5 * shares.alpha


@pytest.mark.parametrize(
    ("judge", "leaks", "side", "share"),
    [
        (Calibration(50, 25, 50, 25), [0] * 30, "upper", 1),  # a coin
        (Calibration(50, 5, 50, 45), [24] * 30, "lower", 0),  # nearly always wrong
    ],
)
def test_a_judge_who_separates_nothing_bounds_nothing(judge, leaks, side, share):
    assert share_exceeding(leaks, 24, 0.2, 0.05, side, judge).value == share


SHARP = Calibration(10**9, 10**9, 10**9, 0)


def test_a_judge_who_never_erred_on_very_many_labels_is_as_good_as_sure():
    assert SHARP.error(0.05 / 3).sensitivity[0] > 1 - 1e-8


@pytest.mark.parametrize("side", ["upper", "lower"])
def test_a_sure_judge_costs_a_third_of_alpha_alone(side):
    leaks = [0] * 25 + [20] * 5

    judged = share_exceeding(leaks, 24, 0.2, 0.15, side, SHARP)
    counted = share_exceeding(leaks, 24, 0.2, 0.05, side)

    assert judged.value == pytest.approx(counted.value)


@pytest.mark.parametrize(
    ("draws", "low", "high"), [("apart", 0.210846, 0.319993), ("pairs", 0.207011, 0.320411)]
)
def test_sides_of_known_seeds_have_a_narrower_difference(draws, low, high):
    rng = np.random.default_rng(5)
    a = list((rng.random((20, 40)) < 0.1) * 1.0)
    b = list((rng.random((20, 40)) < 0.4) * 1.0)

    known = mean_of_differences(a, b, 0.05, True, draws=draws)
    unknown = mean_of_differences(a, b, 0.05, True, draws="any")

    assert unknown.low < known.low < known.difference < known.high < unknown.high
    assert (known.low, known.high) == pytest.approx((low, high), abs=1e-6)
