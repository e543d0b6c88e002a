"""Near-verbatim mass against every continuation written out, and against constrained beam search."""

import itertools
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rapidfuzz.distance.Levenshtein import distance as levenshtein

from lethe.config.measuring import ExtractSettings
from lethe.errors import BadValue
from lethe.sampling.draws import Law
from lethe.sampling.extraction import Window, near_verbatim, windows_of
from lethe.statistics.answer_tree import Rounding, leak_interval
from lethe.statistics.extraction import Distance, Words, discoverable, longest_run
from tests.benchmarks.near_verbatim import beam_mass
from tests.lethe.sampling.answer_tree.toy_models import ToyPredictor, every_answer
from tests.lethe.sampling.sampling_models import step_probabilities

VOCABULARY = 6
LENGTH = 4
END = 5
PROMPT = (0, 3)
PLAIN = Rounding()
PIECES = (b"a", b" b", b" ", b"ab", b" a b", b"")  # of the tokens; the last one ends an answer
TOKENS = st.lists(st.integers(0, 4), min_size=1, max_size=6)


def rows_of(near: Distance, sequence) -> np.ndarray:
    row = near.start[None]
    for token in sequence:
        row = near.step(row, np.array([token]))
    return row


@given(TOKENS, st.lists(st.integers(0, 6), max_size=7), st.integers(0, 4))
def test_rows_equal_the_full_table(target, sequence, most):
    near = Distance(target, most)
    assert near.final(rows_of(near, sequence))[0] == min(levenshtein(sequence, target), most + 1)


@given(
    st.lists(st.integers(0, 1), min_size=1, max_size=4),
    st.lists(st.integers(0, 2), max_size=3),
    st.integers(0, 3),
)
def test_dead_prefixes_never_come_back_and_certain_ones_never_leave(target, prefix, most):
    near = Distance(target, most)
    left = 3
    row = rows_of(near, prefix)
    ends = [
        levenshtein([*prefix, *more], target) <= most
        for size in range(left + 1)
        for more in itertools.product(range(3), repeat=size)
    ]
    assert near.alive(row)[0] or not any(ends)
    assert not near.certain(row, left)[0] or all(ends)


def test_share_of_windows_by_queries_and_chance():
    p = np.array([0.5, 0.01, 0.0, 1.0])
    table = discoverable(p, [1, 68, 69, 1000], [0.5, 0.99])
    by_definition = [
        [np.mean(1 - (1 - p) ** n >= chance) for chance in (0.5, 0.99)] for n in (1, 68, 69, 1000)
    ]
    assert table.tolist() == by_definition
    assert discoverable([0.6], [5]).tolist() == [[1, 1, 1, 0]]  # 0.9898 of p 0.1, 0.5, 0.9 and 0.99
    assert np.isnan(discoverable([])).all()


def test_the_longest_run_is_the_first_of_the_longest():
    assert longest_run([]) == (0, 0)
    assert longest_run([0.5, 0.5, 0.4, 1, 1, 1]) == (3, 3)


def law(**settings) -> Law:
    return Law((END,), LENGTH, **settings)


def interval(near, alpha: float):
    return leak_interval(near.masses, near.remainder, alpha, PLAIN)


def truth(predictor: ToyPredictor, suffix, distance: int, pieces=None, **settings) -> float:
    answers = every_answer(predictor, PROMPT, LENGTH, END, **settings)

    def units(tokens):
        tokens = [token for token in tokens if token != END]
        return b"".join(pieces[token] for token in tokens).split() if pieces else tokens

    target = units(suffix)
    return sum(
        mass for answer, mass in answers.items() if levenshtein(units(answer), target) <= distance
    )


def chances(predictor: ToyPredictor, prefixes, **settings) -> np.ndarray:
    """Of each next token behind each of the prefixes."""
    logits = [predictor.logits_of((*PROMPT, *prefix)).astype(float) for prefix in prefixes]
    return np.array([step_probabilities(prefix, **settings) for prefix in logits])


CASES = [
    (seed, distance, settings)
    for seed in range(6)
    for distance, settings in [(1, {}), (2, {"top_k": 3})]
]
BY = [None, PIECES]  # the distance counts tokens, or words


def window(seed: int) -> Window:
    return Window(0, PROMPT, tuple(np.random.default_rng(seed).integers(0, END, LENGTH).tolist()))


@pytest.mark.parametrize("pieces", BY)
@pytest.mark.parametrize(("seed", "distance", "settings"), CASES)
def test_a_wide_search_finds_the_whole_mass(seed, distance, settings, pieces):
    predictor = ToyPredictor(VOCABULARY, seed=seed)
    passage = window(seed)
    wide = ExtractSettings(distance=distance, beam=1000, further=1000, samples=0)
    ends = interval(near_verbatim(predictor, passage, law(**settings), wide, None, pieces), 0.01)
    expected = truth(predictor, passage.suffix, distance, pieces, **settings)
    assert (ends.lower, ends.upper) == pytest.approx((expected, expected), abs=1e-12)


@pytest.mark.parametrize("pieces", BY)
@pytest.mark.parametrize(("seed", "distance", "settings"), CASES)
def test_certain_ends_hold_and_the_lower_one_beats_the_beam(seed, distance, settings, pieces):
    predictor = ToyPredictor(VOCABULARY, seed=seed)
    passage = window(seed)
    near = Words(passage.suffix, distance, pieces) if pieces else Distance(passage.suffix, distance)
    expected = truth(predictor, passage.suffix, distance, pieces, **settings)
    verbatim = chances(predictor, [passage.suffix[:step] for step in range(LENGTH)], **settings)
    for beam in (1, 2, 3):
        narrow = ExtractSettings(distance=distance, beam=beam, further=0, samples=0)
        found = near_verbatim(predictor, passage, law(**settings), narrow, verbatim, pieces)
        ends = interval(found, 0.01)
        published, rows = beam_mass(
            partial(chances, predictor, **settings), near, LENGTH, beam, (END,)
        )
        assert ends.lower <= expected + 1e-12
        assert ends.upper_certain >= expected - 1e-12
        assert ends.lower >= published - 1e-12
        assert found.rows <= rows
        assert ends.lower >= verbatim[np.arange(LENGTH), list(passage.suffix)].prod() - 1e-12
        wider = narrow.model_copy(update={"further": 1})
        more = interval(
            near_verbatim(predictor, passage, law(**settings), wider, verbatim, pieces), 0.01
        )
        assert ends.lower - 1e-12 <= more.lower <= expected + 1e-12
        assert expected - 1e-12 <= more.upper_certain <= ends.upper_certain + 1e-12


@pytest.mark.seconds
@pytest.mark.parametrize("pieces", BY)
def test_sampled_ends_miss_with_at_most_alpha(pieces):
    predictor = ToyPredictor(VOCABULARY, seed=3)
    suffix = (1, 2, 0, 4)
    alpha = 0.1
    runs = 400
    distance = 1 if pieces else 2
    expected = truth(predictor, suffix, distance, pieces)
    missed = np.zeros(2)
    for seed in range(runs):
        search = ExtractSettings(distance=distance, beam=1, further=0, samples=40, seed=seed)
        ends = interval(
            near_verbatim(predictor, Window(0, PROMPT, suffix), law(), search, None, pieces), alpha
        )
        missed += ends.upper < expected, ends.lower_sampled > expected
        assert ends.upper < ends.upper_certain
    assert (missed / runs <= alpha + 3 * np.sqrt(alpha * (1 - alpha) / runs)).all()
    assert missed.sum()  # the bounds are not empty words


def test_windows_are_whole_and_start_at_the_stride():
    got = windows_of(range(10), prefix=2, suffix=3, stride=4)
    assert got == [Window(0, (0, 1), (2, 3, 4), "w000000"), Window(4, (4, 5), (6, 7, 8), "w000004")]
    assert windows_of(range(4), 2, 3, 1) == []
    with pytest.raises(BadValue, match="stride"):
        windows_of(range(9), 2, 3, 0)
