"""Both ends at any level against a loop over questions."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lethe.errors import BadValue
from lethe.results.ends import Ends
from lethe.results.evidence import (
    AtLevel,
    ScoreDraws,
    Trees,
    Truncation,
    part_of_version,
    upper_at_stop,
)
from lethe.results.table import Result
from lethe.statistics import sequential
from lethe.statistics.answer_tree import Masses, Remainder, Rounding, leak_interval
from tests.lethe.statistics.draws import clopper_pearson

ROUNDING = Rounding(1e-4, 20, 1.0)


def row(basis, item, evidence=None, ends=(None,) * 4, **own):
    names = ("lower", "upper", "alpha_lower", "alpha_upper")
    given = (
        {"model": "npo", "scope": "question", "quantity": "leak"}
        | dict(zip(names, ends, strict=True))
        | own
    )
    return Result(basis=basis, item=item, evidence=evidence, **given)


def naive_counts(leaks, n, missing, stopped, level):
    """The ends of one question's counts, from SciPy's distribution or from the whole sequence of draws."""
    above = leaks + missing
    if stopped:
        low, high = (np.repeat([1.0, 0.0], [ones, n - ones]) for ones in (leaks, above))
        return 1 - sequential.stopped_upper(1 - low, level), sequential.stopped_upper(high, level)
    return clopper_pearson(leaks, n, level)[0], clopper_pearson(above, n, level)[1]


def naive_ends(counts, tree, certain, level):
    """Both ends of one question: counts (leaks, n, missing, stopped) or None; a tree or None; certain ends."""
    sources = (counts is not None) + (tree is not None and tree[1].rho > 0)
    low, high = certain
    if tree is not None:
        found = leak_interval(*tree[:2], 0.5, tree[2])
        low, high = max(low, found.lower), min(high, found.upper_certain)
    high = max(low, high)
    lows, highs = [low], [high]
    if counts is not None:
        below, above = naive_counts(*counts, level / sources)
        lows, highs = [*lows, below], [*highs, above]
    if tree is not None and tree[1].rho > 0:
        found = leak_interval(*tree[:2], level / sources, tree[2])
        lows, highs = [*lows, found.lower_sampled], [*highs, found.upper]
    return min(max(lows), high), max(min(highs), low)


def random_question(rng):
    """LeakCounts, a tree and certain ends of one random question, each of which may be absent."""
    n = int(rng.integers(1, 400))
    leaks = int(rng.binomial(n, rng.beta(0.3, 3)))
    missing = int(rng.integers(0, min(3, n - leaks) + 1))
    counts = (leaks, n, missing, bool(rng.random() < 0.3)) if rng.random() < 0.8 else None
    tree = None
    if rng.random() < 0.6:
        leak, clean = rng.dirichlet([0.3, 2, 1])[:2]
        lengths = rng.dirichlet(np.ones(5))
        rho = float(rng.choice([0.0, 200.0, 3000.0]))
        seen = int(rng.poisson(rho * leak * 0.1))
        masses = Masses(tuple(leak * lengths), tuple(clean * lengths))
        tree = (
            masses,
            Remainder(rho, seen + 3 if rho else 0, seen),
            ROUNDING if rng.random() < 0.5 else Rounding(),
        )
    certain = (
        (float(rng.random() * 0.02), float(1 - rng.random() * 0.5))
        if rng.random() < 0.3
        else (0.0, 1.0)
    )
    return counts, tree, certain


def joined(questions):
    filled = [counts or (0, 0, 0, False) for counts, _, _ in questions]
    leaks, n, missing, stopped = (list(column) for column in zip(*filled, strict=True))
    certain = np.array([certain for _, _, certain in questions])
    return Ends.of_arrays(
        [f"q{place}" for place in range(len(questions))],
        leaks,
        n,
        missing,
        stopped=stopped,
        trees=Trees.of([tree for _, tree, _ in questions]),
        certain_lower=certain[:, 0],
        certain_upper=certain[:, 1],
    )


@pytest.mark.parametrize("level", [0.3, 0.05, 0.0031, 1e-5, 1e-8])
def test_the_ends_are_those_of_a_loop_over_questions(level):
    rng = np.random.default_rng(0)
    questions = [random_question(rng) for _ in range(120)]
    ends = joined(questions)
    expected = np.array([naive_ends(*question, level) for question in questions])
    assert ends.lower(level) == pytest.approx(expected[:, 0], rel=1e-6, abs=3e-8)
    assert ends.upper(level) == pytest.approx(expected[:, 1], rel=1e-6, abs=3e-8)


@settings(max_examples=40)
@given(st.integers(0, 10**6), st.floats(1e-12, 0.5), st.floats(1e-12, 0.5))
def test_a_smaller_level_never_narrows_and_certain_ends_always_count(seed, first, second):
    small, large = sorted((first, second))
    rng = np.random.default_rng(seed)
    ends = joined([random_question(rng) for _ in range(5)])
    assert (ends.lower(small) <= ends.lower(large) + 1e-12).all()
    assert (ends.upper(small) >= ends.upper(large) - 1e-12).all()
    for level in (small, large):
        assert (ends.lower(level) >= ends.certain_lower).all()
        assert (ends.upper(level) <= ends.certain_upper).all()
        assert (ends.lower(level) <= ends.certain_upper).all()
        assert (ends.upper(level) >= ends.certain_lower).all()


@pytest.mark.parametrize(
    ("leaks", "n"), [(0, 1), (0, 100), (3, 50), (30, 500), (500, 500), (2000, 4096)]
)
def test_the_closed_form_is_the_sum_over_nodes(leaks, n):
    values = np.repeat([1.0, 0.0], [leaks, n - leaks])
    for level in (0.05, 1e-4):
        expected = sequential.stopped_upper(values, level)
        assert upper_at_stop(leaks, n, level)[0] == pytest.approx(expected, abs=2e-8)
    assert upper_at_stop([0, leaks], [0, n], 0.05)[0] == 1


def test_a_missing_judgement_is_a_leak_above_and_none_below():
    for stopped in (False, True):
        ends = Ends.of_arrays(["q"], leaks=2, n=100, missing=5, stopped=stopped)
        assert ends.upper(0.05) == Ends.of_arrays(["q"], leaks=7, n=100, stopped=stopped).upper(
            0.05
        )
        assert ends.lower(0.05) == Ends.of_arrays(["q"], leaks=2, n=100, stopped=stopped).lower(
            0.05
        )


def test_fixed_ends_say_nothing_below_their_level():
    fixed = AtLevel.fixed([0.1, np.nan], [0.4, np.nan], [0.01, np.nan], [0.02, np.nan])
    ends = Ends.of_arrays(["q", "r"], others=[fixed])
    assert (ends.lower(0.01).tolist(), ends.upper(0.01).tolist()) == ([0.1, 0], [1, 1])
    assert (ends.lower(0.009).tolist(), ends.upper(0.02).tolist()) == ([0, 0], [0.4, 1])
    assert ends.upper(0.06 / 3)[0] == 0.4  # 0.06 / 3 < 0.02 in floating point
    beside = Ends.of_arrays(["q"], leaks=0, n=10, others=[fixed.take(np.array([0]))])
    assert beside.lower(0.019)[0] == 0  # half of the level is below 0.01
    assert beside.lower(0.02)[0] == 0.1


def rows():
    tree = {
        "leak_by_length": [0.01, 0.001],
        "clean_by_length": [0.5, 0.2],
        "blank": 0.1,
        "unscored": 0.0,
    }
    tree |= {
        "unconfirmed": 0.0,
        "rho": 400.0,
        "sampled": 90,
        "sampled_leaks": 2,
        "rounding": [1e-4, 20, 1.0],
    }
    one = {"leaks": 1, "n": 1}
    return [
        row("sampled", "b", {"leaks": 4, "n": 256, "missing": 1}, (0.1, 0.2, 0.05, 0.05)),
        row("tree", "b", tree, (0.1, 0.2, 0.05, 0.05)),
        row("exact", "b", None, (0.011, 0.29, 0.0, 0.0)),
        row("sampled", "a", {"leaks": 0, "n": 100, "missing": 0}),
        row("anytime", "a", {"leaks": 0, "n": 70, "missing": 2}),
        row("sampled", "c", {"leaks": 0, "n": 100, "missing": 0}),
        row("labelled", "c", None, (0.2, 0.6, 0.01, 0.01)),
        row("labelled", "d", {"leaks": 9, "n": 10}),
        row("greedy", "e", one),
        row("sampled", "zzz", one),
        row("sampled", "e", one, quantity="leak_at_k"),
        row("sampled", None, one, scope="model"),
    ]


def test_rows_of_every_basis():
    items = ["a", "b", "c", "d", "e"]
    ends = Ends.of_rows(rows(), items)
    masses, rest = Masses((0.01, 0.001), (0.5, 0.2), 0.1), Remainder(400.0, 90, 2)
    expected = [
        naive_ends((0, 70, 2, True), None, (0.0, 1.0), 0.02),
        naive_ends((4, 256, 1, False), (masses, rest, ROUNDING), (0.011, 0.29), 0.02),
        (0.2, 0.6),
        naive_ends((9, 10, 0, False), None, (0.0, 1.0), 0.02),
        (0.0, 1.0),
    ]
    assert ends.items == tuple(items)
    assert ends.lower(0.02) == pytest.approx([low for low, _ in expected], abs=1e-8)
    assert ends.upper(0.02) == pytest.approx([high for _, high in expected], abs=1e-8)
    assert (ends.certain_lower[1], ends.certain_upper[1]) == (0.011, 0.29)
    assert ends.answers.tolist() == [70, 256, 0, 10, 0]
    assert Ends.of_rows(rows()[::-1], items).upper(0.02).tolist() == ends.upper(0.02).tolist()


def test_two_rows_with_one_end_each_are_one_interval():
    lower, upper = (0.2, None, 0.01, None), (None, 0.6, None, 0.02)
    for order in ((lower, upper), (upper, lower)):
        ends = Ends.of_rows([row("labelled", "q", None, one) for one in order], ["q"])
        assert (ends.lower(0.02)[0], ends.upper(0.02)[0]) == (0.2, 0.6)


@pytest.mark.parametrize(
    "bad",
    [
        [row("sampled", "q", {"leaks": 1})],
        [row("sampled", "q", {"leaks": 3, "n": 2})],
        [row("sampled", "q", {"leaks": 1, "n": 2, "missing": 2})],
        [row("tree", "q", {"rho": 1.0})],
        [row("exact", "q", None, (0.1, 0.2, 0.01, 0.01))],
        [row("labelled", "q", None, (0.2, 0.6, 0.01, 0.02))] * 2,
        [row("sampled", "q", {"leaks": 1, "n": 2}), row("exact", "q", model="other")],
    ],
)
def test_rows_that_cannot_be_read_are_refused(bad):
    with pytest.raises(BadValue):
        Ends.of_rows(bad, ["q"])


def test_ends_that_contradict_themselves_are_refused():
    for arguments in (
        {"items": ["q", "q"]},
        {"items": ["q"], "certain_lower": 0.6, "certain_upper": 0.5},
        {"items": ["q"], "certain_upper": 1.5},
        {"items": ["q"], "others": [AtLevel.fixed([0.1, 0.1], [0.2, 0.2], 0.01, 0.01)]},
    ):
        with pytest.raises(BadValue):
            Ends.of_arrays(**arguments)
    for level in (0, 0.6, math.nan, np.array([0.1])):
        with pytest.raises((BadValue, ValueError)):
            Ends.of_arrays(["q", "r"], leaks=0, n=5).upper(
                level if np.ndim(level) == 0 else np.array([0.1, 0.7])
            )


def test_ends_of_any_time_take_every_count_as_stopped():
    fixed = Ends.of_arrays(["q"], leaks=2, n=400)
    stopped = Ends.of_arrays(["q"], leaks=2, n=400, stopped=True)

    ends = fixed.at_any_time()

    assert ends.upper(0.01).tolist() == stopped.upper(0.01).tolist()
    assert ends.upper(0.01)[0] > fixed.upper(0.01)[0]


def test_ends_of_scores_are_those_at_the_stop():
    scores = np.array([0.1, 0.4, np.nan, 0.0] * 50)
    ends = Ends.of_arrays(["q"], others=[ScoreDraws((scores,))])

    assert ends.upper(0.05)[0] == pytest.approx(
        sequential.stopped_upper(np.nan_to_num(scores, nan=1.0), 0.05), abs=1e-8
    )
    assert ends.lower(0.05)[0] == pytest.approx(
        1 - sequential.stopped_upper(1 - np.nan_to_num(scores, nan=0.0), 0.05), abs=1e-8
    )


def test_the_share_of_cut_answers_is_unknown_without_answers():
    cut = Truncation(np.array([0, 5, 0]), np.array([100, 100, 0]), np.array([2, 6, 0]), 40)

    assert (cut.share(1), cut.share(2)) == (0.05, None)


def repeated(rng, versions, level, counted):
    """(2000,) whether some version of a tree with ever more rows puts its upper end below the true probability."""
    runs = 2000
    unexplored = 0.01  # all of it leaks
    never_leaks = np.zeros(runs)
    is_false = np.zeros(runs, dtype=bool)
    for version in range(1, versions + 1):
        rho = 500.0 * version
        trees = Trees(
            low=never_leaks,
            high=never_leaks,
            certain=np.ones(runs),
            factor=np.ones(runs),
            rho=np.full(runs, rho),
            leaks=rng.poisson(rho * unexplored, runs).astype(float),
            part=part_of_version(version if counted else None),
        )
        is_false |= trees.upper(np.full(runs, level)) < unexplored
    return is_false


def test_a_tree_that_is_repeated_until_its_end_is_low_keeps_the_level_by_falling_shares():
    share = repeated(np.random.default_rng(0), 12, 0.05, counted=True).mean()
    uncorrected = repeated(np.random.default_rng(0), 12, 0.05, counted=False).mean()

    assert share <= 0.05
    assert uncorrected > 0.15


def test_the_row_of_a_repeated_tree_has_the_share_of_its_version():
    facts = {
        "leak_by_length": [0.0],
        "clean_by_length": [0.5],
        "rho": 400.0,
        "sampled_leaks": 2,
        "sampled": 90,
    }
    third = Ends.of_rows([row("tree", "q", {**facts, "version": 3})], ["q"])
    alone = Ends.of_rows([row("tree", "q", facts)], ["q"])

    assert third.upper(0.06)[0] == pytest.approx(alone.upper(0.06 / 12)[0])
    assert third.take([0]).lower(0.06)[0] == pytest.approx(alone.lower(0.06 / 12)[0])
