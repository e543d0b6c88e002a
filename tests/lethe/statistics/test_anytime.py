"""Evidence at any time: naive twins, values by an independent route, errors under looks and stops that see everything."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.integrate import quad

from lethe.errors import BadValue
from lethe.statistics import anytime
from lethe.statistics.anytime import Box, Counts
from tests.lethe.statistics import oracles

GOAL = math.log(1 / 0.05)

# Computed with 50 digits by sums and Newton steps (mpmath): model, Retrains, tau, level, and what they give.
BY_ANOTHER_ROUTE = [
    (
        Counts(0, 33),
        [],
        (0.01, 0.2259618205128167, -2.809659617777853),
        (0.05, 0.0, 0.10827164182257881, 0.0, 0.10827164182257881),
    ),
    (
        Counts(219, 10_000),
        [Counts(83, 10_000, 0, 0.00415, 0.0216)],
        (0.01, -5.763651706359824, -7.390851755682477),
        (0.05, 0.016625778397872618, 0.02714833689098112, 0.004900450742755916, 0.022829247000855694),
    ),
    (
        Counts(0, 200, 1),
        [Counts(0, 200, 1), Counts(0, 66), Counts(0, 200)],
        (0.1, 14.960757516370386, -6.444297251095363),
        (1e-6, 0.0, 0.09104334437485474, -0.25813430170514845, 0.09440974616355463),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("model", "retrains", "at_tau", "at_level"), BY_ANOTHER_ROUTE)
def test_evidence_and_ends_equal_those_of_another_route(model, retrains, at_tau, at_level):
    tau, log_e_forgot, log_e_leaks = at_tau
    level, lower, upper, beyond_lower, beyond_upper = at_level

    ends = anytime.ends(model, retrains, level)

    assert anytime.log_e_forgot(model, retrains, tau) == pytest.approx(log_e_forgot, abs=1e-8)
    assert anytime.log_e_leaks(model, retrains, tau) == pytest.approx(log_e_leaks, abs=1e-8)
    assert (ends.lower, ends.upper) == pytest.approx((lower, upper), abs=1e-8)
    assert (ends.beyond_lower, ends.beyond_upper) == pytest.approx(
        (beyond_lower, beyond_upper), abs=1e-8
    )


@pytest.mark.slow
def test_every_value_of_the_oracle_is_met(shared, capsys):
    status = oracles.main(["anytime", str(shared / "spec/anytime/oracle.json")])

    assert status == 0, capsys.readouterr().out


def test_one_pair_of_counts_has_the_value_that_it_has_in_an_array():
    chance = np.random.default_rng(5)
    for _ in range(300):
        n, k = chance.integers(0, 2000, size=2)
        leaks = int(chance.integers(0, n + 1) * chance.choice([0, 0.01, 1]))
        reference_leaks = int(chance.integers(0, k + 1) * chance.choice([0, 0.01, 1]))
        difference = float(chance.choice([-1, -0.01, 0, 0.01, 1, chance.uniform(-1, 1)]))
        p_ends, q_ends = np.sort(chance.random(2)), np.sort(chance.random(2))
        box = anytime.Box(*p_ends, *q_ends) if chance.random() < 0.5 else anytime.EVERYWHERE

        alone = anytime.log_beyond(leaks, n, reference_leaks, k, difference, box)
        in_array = anytime.log_beyond([leaks], n, reference_leaks, k, difference, box)

        assert alone == in_array[0]


@pytest.mark.parametrize("null", [0.002, 0.01, 0.3])
@pytest.mark.parametrize(("leaks", "n"), [(0, 40), (3, 40), (40, 40)])
def test_the_mixture_below_a_null_is_the_integral_of_likelihood_ratios(leaks, n, null):
    edge = math.asin(math.sqrt(null))  # uniform in the angle: Beta(1/2, 1/2) cut off at the null

    def ratio(angle):
        q = math.sin(angle) ** 2
        return (q / null) ** leaks * ((1 - q) / (1 - null)) ** (n - leaks)

    naive = math.log(quad(ratio, 0, edge, epsabs=0, epsrel=1e-11)[0] / edge)

    assert float(anytime.log_below(leaks, n, null)) == pytest.approx(naive, abs=1e-8)


def test_the_series_continues_the_incomplete_beta_function():
    share_of_ones = anytime.log_below(np.arange(300, 340), 400, 1e-3)

    steps = np.diff(share_of_ones)

    assert np.isfinite(share_of_ones).all()
    assert (np.abs(np.diff(steps)) < 0.02).all()  # a switch at the wrong value would show as a jump


counted = st.integers(0, 30).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))


@settings(max_examples=60)
@given(counted, counted, st.floats(-0.9, 0.9))
@example(
    (0, 0), (21, 21), 0.896484375
)  # the largest value lies on the border, between the grid's points
def test_the_evidence_beyond_retrain_divides_by_the_largest_likelihood_of_the_null(
    a, b, difference
):
    (x, n), (y, k) = a, b
    grid = np.linspace(0, 1, 801)
    p, q = np.meshgrid(grid, grid, indexing="ij")
    likelihood = anytime.log_likelihood(x, n, p) + anytime.log_likelihood(y, k, q)
    line = np.linspace(max(0, -difference), min(1, 1 - difference), 801)
    border = anytime.log_likelihood(x, n, np.minimum(line + difference, 1))
    border = border + anytime.log_likelihood(y, k, line)
    naive = max(likelihood[p - q >= difference].max(), border.max())
    mixture = anytime.log_mixture(x, n) + anytime.log_mixture(y, k)

    largest = float(mixture - anytime.log_beyond(x, n, y, k, difference))

    assert largest >= naive - 1e-9  # a grid can only miss the largest value
    assert largest <= naive + 0.2


@pytest.mark.parametrize("box", [Box(), Box(0.0, 0.4, 0.1, 1.0)])
def test_missing_judgements_count_as_the_worst_of_all_patterns(box):
    model = Counts(2, 12, 4, box.p_lower, box.p_upper)
    retrain = Counts(1, 9, 3, box.q_lower, box.q_upper)

    of_patterns = []
    for leaks, chance in itertools.product(range(2, 7), range(1, 5)):
        of_patterns.append(float(anytime.log_beyond(leaks, 12, chance, 9, 0.05, box)))
    worst_case = anytime._least_log_beyond(model, retrain, 0.05, box)

    assert worst_case <= min(of_patterns) + 1e-9


@settings(max_examples=40)
@given(counted, counted, st.floats(0.001, 0.4), st.floats(0.001, 0.4))
def test_a_larger_tolerance_never_weakens_forgot_nor_strengthens_leaks(a, b, tau, more):
    model, retrain = Counts(*a), Counts(*b)

    forgot = [anytime.log_e_forgot(model, [retrain], d) for d in (tau, tau + more)]
    leaks = [anytime.log_e_leaks(model, [retrain], d) for d in (tau, tau + more)]

    assert forgot[0] <= forgot[1] + 1e-9
    assert leaks[1] <= leaks[0] + 1e-9


@pytest.mark.parametrize("tau", [0.005, 0.01, 0.02])
def test_the_word_and_the_end_agree(tau):
    model = Counts(2, 1500)
    retrains = [Counts(3, 900), Counts(0, 900)]

    ends = anytime.ends(model, retrains, 0.01)
    log_e = anytime.log_e_forgot(model, retrains, tau)

    assert (ends.beyond_upper <= tau) == anytime.is_reached(log_e, math.log(100))


def test_certain_ends_decide_without_an_answer():
    below_retrain = Counts(0, 0, 0, 0.0, 0.02)
    far_above = Counts(0, 0, 0, 0.5, 1.0)
    retrain = Counts(0, 0, 0, 0.015, 0.03)

    assert anytime.log_e_forgot(below_retrain, [retrain], 0.01) == math.inf
    assert anytime.log_e_leaks(far_above, [retrain], 0.01) == math.inf
    assert anytime.log_e_leaks(below_retrain, [retrain], 0.01) < 0


def test_another_retrain_can_only_take_leaks_away():
    model = Counts(60, 600)
    few = Counts(0, 600)
    many = Counts(55, 600)

    beside_few = anytime.log_e_leaks(model, [few], 0.01)
    beside_both = anytime.log_e_leaks(model, [few, many], 0.01)

    assert beside_few > GOAL > beside_both


def test_answers_without_a_leak_that_decide_a_question_of_eight_models():
    goal = math.log(8 / 0.01)

    assert anytime.answers_without_a_leak(0.01, goal, beside_retrain=True) == 853
    assert anytime.answers_without_a_leak(0.01, goal, beside_retrain=False) == 780


def test_a_forecast_comes_near_the_number_that_decides():
    def log_e_at(times):
        return float(anytime.log_below(0, 100 * times, 0.01))

    needed = anytime.answers_needed(log_e_at, 100, GOAL)

    assert needed == pytest.approx(anytime.answers_without_a_leak(0.01, GOAL, False), rel=0.05)
    assert anytime.answers_needed(lambda times: 0.0, 100, GOAL) is None


def by_all_sets(log_e, goal):
    """A question is named if each set that holds it has a mean e-value of at least exp(goal)."""
    e = np.exp(np.asarray(log_e) - goal)
    names = []
    for question in range(len(e)):
        others = [place for place in range(len(e)) if place != question]
        sets = itertools.chain.from_iterable(
            itertools.combinations(others, size) for size in range(len(e))
        )
        names.append(all(np.mean(e[[question, *members]]) >= 1 for members in sets))
    return names


@settings(max_examples=60)
@given(st.lists(st.floats(-4, 8), min_size=1, max_size=6))
def test_the_named_questions_are_those_of_closed_testing(log_e):
    assert anytime.named(log_e, GOAL).tolist() == by_all_sets(log_e, GOAL + anytime.ROUNDING)


@pytest.mark.parametrize(
    "values", [(3, 2), (0, 1, 2), (1, 10, 0, 0.5, 0.2), (-1, 3)], ids=lambda values: str(values)
)
def test_counts_that_cannot_be_are_refused(values):
    with pytest.raises(BadValue):
        Counts(*values)


LEVEL = 0.05
RUNS = 1500
LOOKS = 24
BATCH = 64
TAU = 0.01


def false_words(p, q, rng, *, cut=0.0):
    """The share of runs in which forgot, and leaks, ever reach their goal; Retrain is drawn by the leaks that are seen."""
    x, y = np.zeros(RUNS), np.zeros(RUNS)
    n, k = np.zeros(RUNS), np.zeros(RUNS)
    forgot, leaks = np.zeros(RUNS, dtype=bool), np.zeros(RUNS, dtype=bool)
    goal = math.log(1 / LEVEL)
    for _ in range(LOOKS):
        x += rng.binomial(BATCH, p, RUNS)
        n += BATCH
        more = np.where((x > 2) | (n > 600), BATCH, 0)
        y += rng.binomial(more, q)
        k += more
        alone = anytime.log_below(x, n, TAU)
        beyond = anytime.log_beyond(x, n, y, k, TAU)
        forgot |= np.logaddexp(alone, beyond) - anytime.LN2 >= goal
        leaks |= anytime.log_beyond(y, k, x, n, -TAU) >= goal
    return forgot.mean(), leaks.mean()


@pytest.mark.parametrize("chance", [0.0, 0.002, 0.02, 0.3])
def test_a_question_at_the_edge_is_rarely_called_forgot_or_leaking(chance):
    forgot, leaks = false_words(chance + TAU, chance, np.random.default_rng([1, int(1e4 * chance)]))

    assert forgot <= LEVEL
    assert leaks <= LEVEL


def test_a_question_with_cut_off_answers_at_both_edges_is_rarely_called_forgot():
    """The mean of two processes holds under either null; each null alone is tried, at its edge."""
    rng = np.random.default_rng(5)
    goal = math.log(1 / LEVEL)
    wrong = 0
    for _ in range(300):
        n = leaks = cut = 0
        reached = False
        for _ in range(12):
            kinds = rng.multinomial(64, [0.05, 0.05, 0.90])  # leaks, cut off, neither
            n = n + 64
            leaks = leaks + int(kinds[0])
            cut = cut + int(kinds[1])
            log_e = anytime.log_e_forgot_cut_off(
                Counts(leaks, n, cut), [], 0.10, cut_off=cut, most_cut_off=0.05
            )
            reached |= anytime.is_reached(log_e, goal)
        wrong += reached
    assert wrong / 300 <= LEVEL


def test_certain_ends_of_a_tree_keep_the_error_at_its_level():
    rng = np.random.default_rng(9)
    goal = math.log(1 / LEVEL)
    wrong = np.zeros(RUNS, dtype=bool)
    x = np.zeros(RUNS)
    n = 0
    for _ in range(LOOKS):
        x += rng.binomial(BATCH, 0.03, RUNS)
        n += BATCH
        box = Box(0.0, 0.05, 0.015, 0.02)  # around p = .03 and q = .02, whose difference is tau
        beyond = anytime.log_beyond(x, n, 0, 0, TAU, box)
        alone = anytime.log_below(x, n, 0.015 + TAU)
        wrong |= np.logaddexp(alone, beyond) - anytime.LN2 >= goal
    assert wrong.mean() <= LEVEL


def test_the_evidence_of_a_model_that_forgot_decides_in_a_quarter_of_4096_answers():
    answers = anytime.answers_without_a_leak(0.01, math.log(8 / 0.01), beside_retrain=True)

    assert answers <= 4096 / 4
