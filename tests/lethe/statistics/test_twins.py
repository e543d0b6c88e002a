"""The twin test: naive twins, enumeration, its level, and the mistakes that must break it."""

import itertools
import json
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lethe.errors import BadValue
from lethe.statistics import twins
from tests.lethe.statistics import oracles

secrets = st.integers(2, 7).flatmap(lambda k: st.tuples(st.integers(1, k), st.just(k)))


def naive_tail(t, candidates, way):
    """P(T >= t) in whole numbers, by adding one secret after the other."""
    ways_to = {0: 1}
    for k in candidates:
        further: dict[int, int] = {}
        for score in twins.score_table(k, way).tolist():
            for total, count in ways_to.items():
                further[total + score] = further.get(total + score, 0) + count
        ways_to = further
    reached = sum(count for total, count in ways_to.items() if total >= t)
    return Fraction(reached, math.prod(candidates))


@settings(max_examples=60)
@given(st.lists(secrets, min_size=1, max_size=7))
def test_a_p_value_is_that_of_whole_numbers(drawn):
    ranks, candidates = zip(*drawn, strict=True)

    test = twins.twin_test(ranks, candidates)

    for way in twins.WAYS:
        exact = naive_tail(test.totals[way], candidates, way)
        assert math.exp(test.log_p_of_way[way]) == pytest.approx(float(exact), rel=1e-11)


def test_a_p_value_far_below_double_precision_keeps_its_digits():
    test = twins.twin_test([1] * 40, [20] * 40)

    assert test.log_p == pytest.approx(math.log(3) - 40 * math.log(20), rel=1e-12)


def test_every_value_of_the_oracle_is_met(shared, capsys):
    status = oracles.main(["twins", str(shared / "spec/twins/oracle.json")])

    assert status == 0, capsys.readouterr().out


@pytest.mark.parametrize(
    "text",
    [
        '{"cases": [], "surprise": 1}',
        '{"cases": [{"ranks": [1], "candidates": [2], "alpha": 0.01, "T": {"sideways": 1}, "p_way": {}}]}',
    ],
)
def test_an_oracle_with_an_unknown_name_is_not_passed_over(tmp_path, text):
    (tmp_path / "new.json").write_text(text)

    assert oracles.main(["twins", str(tmp_path / "new.json")]) == 1


@pytest.mark.parametrize("wrong", [math.nan, 1.0 + 1e-8])
def test_an_oracle_whose_end_or_capital_is_another_number_is_refused(tmp_path, shared, wrong):
    oracle = json.loads((shared / "spec/twins/oracle.json").read_text())
    oracle["cases"][5]["first_ends"][1] *= wrong
    (tmp_path / "other.json").write_text(json.dumps(oracle))

    assert oracles.main(["twins", str(tmp_path / "other.json")]) == 1


def test_smallest_known_of_the_specification():
    assert twins.smallest_known([20] * 30, 0.01) == 9
    assert twins.smallest_known([20] * 30, 0.00125) == 10
    assert twins.smallest_known([5] * 10, 0.01) == 7
    assert twins.smallest_known([2] * 3, 0.01) is None  # eight draws cannot refute at 1%


def test_a_model_without_knowledge_ranks_every_draw_equally_often():
    """The theorem by enumeration: fixed scores with ties, a fixed order, every draw of the true candidates."""
    scores = np.array([[1.0, 0.0, 1.0], [0.5, 0.5, 0.5]])
    order = np.array([[2, 0, 1], [1, 2, 0]])

    seen = set()
    for true in itertools.product(range(3), repeat=2):
        seen.add(tuple(twins.ranks_of(scores, np.array(true), order).tolist()))

    assert seen == set(itertools.product((1, 2, 3), repeat=2))


def test_the_mean_of_the_e_value_over_all_draws_is_one():
    candidates = [3, 5, 2]
    total = 0.0
    for ranks in itertools.product(*(range(1, k + 1) for k in candidates)):
        total += math.exp(twins.log_e_value(twins.log_capitals(ranks, candidates)))

    assert total / math.prod(candidates) == pytest.approx(1, rel=1e-12)


def rejections(ranks_of_run, runs=1500, m=20, k=20, alpha=0.05):
    """The share of runs in which the test rejects at alpha: a way's statistic reaches its threshold at a third of alpha.

    A p-value of its own takes a Fourier transform for each run; the first runs have one, and it decides alike.
    """
    rng = np.random.default_rng(3)
    candidates = [k] * m
    thresholds = {way: twins.threshold(candidates, alpha / 3, way) for way in twins.WAYS}
    wrong = 0
    for run in range(runs):
        ranks = ranks_of_run(rng, m, k)
        reached = [
            twins.total(ranks, candidates, way) >= least for way, least in thresholds.items()
        ]
        wrong += any(reached)
        if run < 150:
            assert any(reached) == (twins.twin_test(ranks, candidates).p <= alpha)
    return wrong / runs


def tied_scores(rng, m, k):
    """A model that cannot know the draws, whose scores are often equal and whose secrets depend on one another."""
    common = rng.normal(size=(1, k))
    return np.round((common + rng.normal(size=(m, k))) / 2)


def with_fair_ties(rng, m, k):
    order = rng.permuted(np.tile(np.arange(k), (m, 1)), axis=1)
    return twins.ranks_of(tied_scores(rng, m, k), rng.integers(0, k, m), order)


def with_ties_for_the_true(rng, m, k):
    true = rng.integers(0, k, m)
    order = np.ones((m, k))
    order[np.arange(m), true] = 0
    return twins.ranks_of(np.zeros((m, k)), true, order)


def with_round_numbers_preferred(rng, m, k):
    """Values that are true more often than their twins, and that every model prefers: no draw at all."""
    is_round = rng.random((m, k)) < 0.3
    weights = np.where(is_round, 3.0, 1.0)
    chosen = rng.random((m, 1)) * weights.sum(axis=1, keepdims=True)
    true = (np.cumsum(weights, axis=1) < chosen).sum(axis=1)
    scores = is_round + 0.01 * rng.normal(size=(m, k))
    return twins.ranks_of(scores, true, np.tile(np.arange(k), (m, 1)))


def test_a_model_without_knowledge_is_rejected_at_most_at_the_level():
    assert rejections(with_fair_ties) <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 1500)


def test_ties_that_favour_the_truth_reject_every_clean_model():
    assert rejections(with_ties_for_the_true, runs=200) > 0.9


def test_a_model_that_gives_no_numbers_ranks_the_truth_by_the_order_of_ties_alone():
    scores = np.full((400, 5), np.nan)
    order = np.argsort(np.random.default_rng(0).random((400, 5)), axis=1)

    ranks = twins.ranks_of(scores, np.zeros(400, int), order)

    assert np.array_equal(ranks, 1 + order[:, 0])


def test_values_that_are_true_more_often_break_the_level():
    assert rejections(with_round_numbers_preferred) > 0.1


def test_products_over_audits_of_one_draw_exceed_what_an_e_value_may():
    """Twenty audits of one clean model by one score: their product reaches 100 in more than 1 of 20."""
    rng = np.random.default_rng(11)
    product_reached = average_reached = 0
    for _ in range(400):
        ranks = rng.integers(1, 21, 30)
        log_e = twins.log_e_value(twins.log_capitals(ranks, [20] * 30))
        product_reached += 20 * log_e >= math.log(100)
        average_reached += log_e >= math.log(100)

    assert product_reached / 400 > 0.05
    assert average_reached / 400 <= 0.01


def lifted_ranks(rng, m, k, nats):
    scores = rng.normal(0, 2.24, (m, k))
    true = rng.integers(0, k, m)
    scores[np.arange(m), true] += nats
    return twins.ranks_of(scores, true, np.tile(np.arange(k), (m, 1)))


@pytest.mark.parametrize("direction", [1, -1], ids=["preferred", "avoided"])
def test_the_smallest_lift_is_found_about_as_often_as_promised(direction):
    rng = np.random.default_rng(2)
    scores = rng.normal(0, 2.24, (30, 20))
    nats = twins.smallest_lift(scores, 0.01, rng, up=direction > 0, draws=1000)
    way = "preferred" if direction > 0 else "avoided"

    found = 0
    for _ in range(300):
        ranks = lifted_ranks(rng, 30, 20, direction * nats)
        t = twins.total(ranks, [20] * 30, way)
        found += math.exp(twins.log_tail(t, [20] * 30, way)) <= 0.01 / 3

    assert 0.85 <= found / 300 <= 1.0


def test_unlearning_that_pushes_secrets_to_either_end_is_seen_by_the_third_way():
    ranks = [1, 20] * 8

    test = twins.twin_test(ranks, [20] * 16)

    assert test.direction == "either"
    assert test.p < 1e-9
    assert math.exp(test.log_p_of_way["preferred"]) > 1e-4


def randomised_response(rng, m, k, epsilon):
    """The rank of the true one in a model that names it as often as pure epsilon allows, and else any other."""
    likely = math.exp(epsilon) / (math.exp(epsilon) + k - 1)
    return np.where(rng.random(m) < likely, 1, rng.integers(2, k + 1, m))


@pytest.mark.parametrize("epsilon", [0.0, 1.0, 3.0])
def test_epsilon_from_below_is_rarely_above_the_truth(epsilon):
    rng = np.random.default_rng(7)

    above = 0
    for _ in range(400):
        ranks = randomised_response(rng, 30, 20, epsilon).tolist()
        above += twins.epsilon_lower(ranks, [20] * 30, 0.05) > epsilon

    assert above / 400 <= 0.05


def test_single_secrets_have_two_ends_and_holm():
    alone = twins.secret_p_values([1, 10, 20], [20, 20, 20])

    assert alone.tolist() == pytest.approx([0.1, 1.0, 0.1])
    assert twins.holm_adjusted([0.01, 0.04, 0.03]).tolist() == pytest.approx([0.03, 0.06, 0.06])


@pytest.mark.parametrize(
    ("ranks", "candidates"),
    [([], []), ([1], [2, 3]), ([0], [2]), ([3], [2]), ([1], [1]), ([1.5], [4])],
)
def test_ranks_that_cannot_be_are_refused(ranks, candidates):
    with pytest.raises(BadValue):
        twins.twin_test(ranks, candidates)


KEY = bytes.fromhex("2d934788eedab20a2c7ca605ff57b01b74e00a1d5fb5ce84ae548023eb24a340")


def test_a_sealed_draw_is_uniform_over_the_candidates():
    places = [twins.drawn_place(KEY, f"secret {number}", 7) for number in range(7000)]

    counts = np.bincount(places, minlength=7)

    assert counts.min() > 850
    assert counts.max() < 1150


def test_a_commitment_changes_with_the_key_and_with_each_candidate():
    rows = [("a", ["1", "2"]), ("b", ["3", "4"])]
    other_rows = [("a", ["1", "2"]), ("b", ["3", "5"])]

    commitments = {
        twins.commitment(KEY, rows),
        twins.commitment(KEY[::-1], rows),
        twins.commitment(KEY, other_rows),
    }

    assert len(commitments) == 3


@pytest.mark.parametrize("unread", [0, 3, 12])
def test_known_secrets_are_found_although_some_of_them_were_not_read(unread):
    """Those not read rank last at worst."""
    known = twins.smallest_known([20] * (30 - unread), 0.01, unread=[20] * unread)

    rng = np.random.default_rng(3)
    found = 0
    for _ in range(400):
        ranks = rng.integers(1, 21, 30)
        ranks[:known] = 1
        ranks[:unread] = 20
        found += twins.total(ranks, [20] * 30) >= twins.threshold([20] * 30, 0.01 / 3)
    assert known >= 9 + unread
    assert found >= 365
