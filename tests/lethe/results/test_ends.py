"""Both ends at any level against a loop over questions."""

import math
from dataclasses import dataclass

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


def row(basis, item, evidence=None, ends=(None,) * 4, **fields):
    """A row of a question's leaks; ``ends`` are lower, upper and the level of each."""
    lower, upper, alpha_lower, alpha_upper = ends
    values = {
        "model": "npo",
        "scope": "question",
        "quantity": "leak",
        "lower": lower,
        "upper": upper,
        "alpha_lower": alpha_lower,
        "alpha_upper": alpha_upper,
    }
    values |= fields
    return Result(basis=basis, item=item, evidence=evidence, **values)


@dataclass(frozen=True)
class NaiveCounts:
    """Answers to one question, with ends from SciPy's distribution or from the whole sequence of draws."""

    leaks: int = 0
    n: int = 0
    missing: int = 0
    stopped: bool = False

    def ends(self, level):
        above = self.leaks + self.missing
        if not self.stopped:
            lower, _ = clopper_pearson(self.leaks, self.n, level)
            _, upper = clopper_pearson(above, self.n, level)
            return lower, upper
        low = np.repeat([1.0, 0.0], [self.leaks, self.n - self.leaks])
        high = np.repeat([1.0, 0.0], [above, self.n - above])
        lower = 1 - sequential.stopped_upper(1 - low, level)
        return lower, sequential.stopped_upper(high, level)


@dataclass(frozen=True)
class NaiveTree:
    masses: Masses
    remainder: Remainder
    rounding: Rounding = ROUNDING

    @property
    def is_sampled(self):
        return self.remainder.rho > 0

    def interval(self, level):
        return leak_interval(self.masses, self.remainder, level, self.rounding)


@dataclass(frozen=True)
class Question:
    """What is known about one question: counts, a tree, certain ends."""

    counts: NaiveCounts | None = None
    tree: NaiveTree | None = None
    certain: tuple[float, float] = (0.0, 1.0)

    def ends(self, level):
        """Both ends at a level that the sampled sources share."""
        is_sampled = self.tree is not None and self.tree.is_sampled
        n_sampled = (self.counts is not None) + is_sampled
        certain_lower, certain_upper = self.certain
        if self.tree is not None:
            interval = self.tree.interval(0.5)
            certain_lower = max(certain_lower, interval.lower)
            certain_upper = min(certain_upper, interval.upper_certain)
        certain_upper = max(certain_lower, certain_upper)

        lower, upper = certain_lower, certain_upper
        if self.counts is not None:
            of_counts = self.counts.ends(level / n_sampled)
            lower = max(lower, of_counts[0])
            upper = min(upper, of_counts[1])
        if is_sampled:
            interval = self.tree.interval(level / n_sampled)
            lower = max(lower, interval.lower_sampled)
            upper = min(upper, interval.upper)
        return min(lower, certain_upper), max(upper, certain_lower)


def random_tree(rng):
    leak, clean = rng.dirichlet([0.3, 2, 1])[:2]
    lengths = rng.dirichlet(np.ones(5))
    rho = float(rng.choice([0.0, 200.0, 3000.0]))
    seen = int(rng.poisson(rho * leak * 0.1))
    remainder = Remainder(rho, seen + 3 if rho else 0, seen)
    rounding = ROUNDING if rng.random() < 0.5 else Rounding()
    return NaiveTree(Masses(tuple(leak * lengths), tuple(clean * lengths)), remainder, rounding)


def random_question(rng):
    """Counts, a tree and certain ends of one random question, each of which may be absent."""
    n = int(rng.integers(1, 400))
    leaks = int(rng.binomial(n, rng.beta(0.3, 3)))
    missing = int(rng.integers(0, min(3, n - leaks) + 1))
    counts = None
    if rng.random() < 0.8:
        counts = NaiveCounts(leaks, n, missing, stopped=bool(rng.random() < 0.3))
    tree = random_tree(rng) if rng.random() < 0.6 else None
    certain = (0.0, 1.0)
    if rng.random() < 0.3:
        certain = (float(rng.random() * 0.02), float(1 - rng.random() * 0.5))
    return Question(counts, tree, certain)


def ends_of(questions):
    counts = [question.counts or NaiveCounts() for question in questions]
    trees = []
    for question in questions:
        tree = question.tree
        trees.append(tree and (tree.masses, tree.remainder, tree.rounding))
    return Ends.of_arrays(
        [f"q{place}" for place in range(len(questions))],
        [count.leaks for count in counts],
        [count.n for count in counts],
        [count.missing for count in counts],
        stopped=[count.stopped for count in counts],
        trees=Trees.of(trees),
        certain_lower=np.array([question.certain[0] for question in questions]),
        certain_upper=np.array([question.certain[1] for question in questions]),
    )


@pytest.mark.parametrize("level", [0.3, 0.05, 0.0031, 1e-5, 1e-8])
def test_the_ends_are_those_of_a_loop_over_questions(level):
    rng = np.random.default_rng(0)
    questions = [random_question(rng) for _ in range(120)]

    ends = ends_of(questions)

    expected = np.array([question.ends(level) for question in questions])
    assert ends.lower(level) == pytest.approx(expected[:, 0], rel=1e-6, abs=3e-8)
    assert ends.upper(level) == pytest.approx(expected[:, 1], rel=1e-6, abs=3e-8)


level = st.floats(1e-12, 0.5)
seed = st.integers(0, 10**6)


def ends_of_seed(seed):
    rng = np.random.default_rng(seed)
    return ends_of([random_question(rng) for _ in range(5)])


@settings(max_examples=40)
@given(seed, level, level)
def test_a_smaller_level_never_narrows(seed, first, second):
    small, large = sorted((first, second))

    ends = ends_of_seed(seed)

    assert (ends.lower(small) <= ends.lower(large) + 1e-12).all()
    assert (ends.upper(small) >= ends.upper(large) - 1e-12).all()


@settings(max_examples=40)
@given(seed, level)
def test_certain_ends_always_count(seed, level):
    ends = ends_of_seed(seed)

    assert (ends.lower(level) >= ends.certain_lower).all()
    assert (ends.upper(level) <= ends.certain_upper).all()
    assert (ends.lower(level) <= ends.certain_upper).all()
    assert (ends.upper(level) >= ends.certain_lower).all()


@pytest.mark.parametrize("level", [0.05, 1e-4])
@pytest.mark.parametrize(
    ("leaks", "n"), [(0, 1), (0, 100), (3, 50), (30, 500), (500, 500), (2000, 4096)]
)
def test_the_closed_form_is_the_sum_over_nodes(leaks, n, level):
    scores = np.repeat([1.0, 0.0], [leaks, n - leaks])
    upper = sequential.stopped_upper(scores, level)

    assert upper_at_stop(leaks, n, level)[0] == pytest.approx(upper, abs=2e-8)


def test_without_answers_the_upper_end_at_a_stop_is_1():
    assert upper_at_stop([0, 3], [0, 50], 0.05)[0] == 1


@pytest.mark.parametrize("stopped", [False, True])
def test_a_missing_judgement_is_a_leak_above_and_none_below(stopped):
    missing_as_leaks = Ends.of_arrays(["q"], leaks=7, n=100, stopped=stopped)
    missing_as_clean = Ends.of_arrays(["q"], leaks=2, n=100, stopped=stopped)

    ends = Ends.of_arrays(["q"], leaks=2, n=100, missing=5, stopped=stopped)

    assert ends.upper(0.05) == missing_as_leaks.upper(0.05)
    assert ends.lower(0.05) == missing_as_clean.lower(0.05)


# Ends at fixed levels of the first of two questions, in the order lower, upper, their levels.
FIXED = AtLevel.fixed([0.1, np.nan], [0.4, np.nan], [0.01, np.nan], [0.02, np.nan])


@pytest.mark.parametrize(
    ("level", "lower", "upper"),
    [
        (0.009, 0, 1),
        (0.01, 0.1, 1),
        (0.02, 0.1, 0.4),
        (0.06 / 3, 0.1, 0.4),  # which is below 0.02 in floating point
    ],
)
def test_fixed_ends_say_nothing_below_their_level(level, lower, upper):
    ends = Ends.of_arrays(["q", "r"], others=[FIXED])

    assert ends.lower(level).tolist() == [lower, 0]
    assert ends.upper(level).tolist() == [upper, 1]


@pytest.mark.parametrize(("level", "lower"), [(0.019, 0), (0.02, 0.1)])
def test_fixed_ends_beside_counts_have_half_of_the_level(level, lower):
    of_first = FIXED.take(np.array([0]))

    ends = Ends.of_arrays(["q"], leaks=0, n=10, others=[of_first])

    assert ends.lower(level)[0] == lower


TREE_EVIDENCE = {
    "leak_by_length": [0.01, 0.001],
    "clean_by_length": [0.5, 0.2],
    "blank": 0.1,
    "unscored": 0.0,
    "unconfirmed": 0.0,
    "rho": 400.0,
    "sampled": 90,
    "sampled_leaks": 2,
    "rounding": [1e-4, 20, 1.0],
}
TREE = NaiveTree(Masses((0.01, 0.001), (0.5, 0.2), 0.1), Remainder(400.0, 90, 2))
SINGLE_LEAK = {"leaks": 1, "n": 1}
ITEMS = ["a", "b", "c", "d", "e"]
ROWS = [
    row("sampled", "b", {"leaks": 4, "n": 256, "missing": 1}, (0.1, 0.2, 0.05, 0.05)),
    row("tree", "b", TREE_EVIDENCE, (0.1, 0.2, 0.05, 0.05)),
    row("exact", "b", None, (0.011, 0.29, 0.0, 0.0)),
    row("sampled", "a", {"leaks": 0, "n": 100, "missing": 0}),
    row("anytime", "a", {"leaks": 0, "n": 70, "missing": 2}),
    row("sampled", "c", {"leaks": 0, "n": 100, "missing": 0}),
    row("labelled", "c", None, (0.2, 0.6, 0.01, 0.01)),
    row("labelled", "d", {"leaks": 9, "n": 10}),
    row("greedy", "e", SINGLE_LEAK),
    row("sampled", "zzz", SINGLE_LEAK),
    row("sampled", "e", SINGLE_LEAK, quantity="leak_at_k"),
    row("sampled", None, SINGLE_LEAK, scope="model"),
]
ENDS_OF_ITEM = {
    "a": Question(NaiveCounts(0, 70, 2, stopped=True)).ends(0.02),
    "b": Question(NaiveCounts(4, 256, 1), TREE, (0.011, 0.29)).ends(0.02),
    "c": (0.2, 0.6),
    "d": Question(NaiveCounts(9, 10)).ends(0.02),
    "e": (0.0, 1.0),
}


def test_rows_of_every_basis_give_the_ends_of_their_questions():
    ends = Ends.of_rows(ROWS, ITEMS)

    assert ends.items == tuple(ITEMS)
    lowers = [ENDS_OF_ITEM[item][0] for item in ITEMS]
    uppers = [ENDS_OF_ITEM[item][1] for item in ITEMS]
    assert ends.lower(0.02) == pytest.approx(lowers, abs=1e-8)
    assert ends.upper(0.02) == pytest.approx(uppers, abs=1e-8)


def test_an_exact_row_gives_the_certain_ends():
    ends = Ends.of_rows(ROWS, ITEMS)

    assert (ends.certain_lower[1], ends.certain_upper[1]) == (0.011, 0.29)


def test_the_answers_of_a_question_are_those_that_its_ends_count():
    assert Ends.of_rows(ROWS, ITEMS).answers.tolist() == [70, 256, 0, 10, 0]


def test_the_order_of_rows_does_not_matter():
    upper = Ends.of_rows(ROWS, ITEMS).upper(0.02)

    assert Ends.of_rows(ROWS[::-1], ITEMS).upper(0.02).tolist() == upper.tolist()


LOWER_ALONE = row("labelled", "q", None, (0.2, None, 0.01, None))
UPPER_ALONE = row("labelled", "q", None, (None, 0.6, None, 0.02))


@pytest.mark.parametrize("rows", [[LOWER_ALONE, UPPER_ALONE], [UPPER_ALONE, LOWER_ALONE]])
def test_two_rows_with_one_end_each_are_one_interval(rows):
    ends = Ends.of_rows(rows, ["q"])

    assert (ends.lower(0.02)[0], ends.upper(0.02)[0]) == (0.2, 0.6)


@pytest.mark.parametrize(
    "rows",
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
def test_rows_that_cannot_be_read_are_refused(rows):
    with pytest.raises(BadValue):
        Ends.of_rows(rows, ["q"])


@pytest.mark.parametrize(
    "arguments",
    [
        {"items": ["q", "q"]},
        {"items": ["q"], "certain_lower": 0.6, "certain_upper": 0.5},
        {"items": ["q"], "certain_upper": 1.5},
        {"items": ["q"], "others": [AtLevel.fixed([0.1, 0.1], [0.2, 0.2], 0.01, 0.01)]},
    ],
)
def test_ends_that_contradict_themselves_are_refused(arguments):
    with pytest.raises(BadValue):
        Ends.of_arrays(**arguments)


@pytest.mark.parametrize("level", [0, 0.6, math.nan, np.array([0.1, 0.7])])
def test_a_level_that_is_none_is_refused(level):
    ends = Ends.of_arrays(["q", "r"], leaks=0, n=5)

    with pytest.raises((BadValue, ValueError)):
        ends.upper(level)


def test_ends_of_any_time_take_every_count_as_stopped():
    fixed = Ends.of_arrays(["q"], leaks=2, n=400)
    stopped = Ends.of_arrays(["q"], leaks=2, n=400, stopped=True)

    ends = fixed.at_any_time()

    assert ends.upper(0.01).tolist() == stopped.upper(0.01).tolist()
    assert ends.upper(0.01)[0] > fixed.upper(0.01)[0]


def test_ends_of_scores_are_those_at_the_stop():
    scores = np.array([0.1, 0.4, np.nan, 0.0] * 50)
    upper = sequential.stopped_upper(np.nan_to_num(scores, nan=1.0), 0.05)
    upper_of_clean = sequential.stopped_upper(1 - np.nan_to_num(scores, nan=0.0), 0.05)

    ends = Ends.of_arrays(["q"], others=[ScoreDraws((scores,))])

    assert ends.upper(0.05)[0] == pytest.approx(upper, abs=1e-8)
    assert ends.lower(0.05)[0] == pytest.approx(1 - upper_of_clean, abs=1e-8)


def test_the_share_of_cut_answers_is_unknown_without_answers():
    cut = Truncation(np.array([0, 5, 0]), np.array([100, 100, 0]), np.array([2, 6, 0]), 40)

    assert cut.share(1) == 0.05
    assert cut.share(2) is None


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
