"""What growths share between rows, levels and growths, against asking the automaton anew each time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis.extra.numpy import array_shapes, arrays

from lethe.sampling.answer_tree.automaton import DIRTY, KeywordAutomaton, TokenLetters, build_matcher, read
from lethe.sampling.answer_tree.enumeration import Outlooks, Sight, grow, places
from lethe.sampling.answer_tree.growth import Growth
from lethe.sampling.answer_tree.spelling import Spelling, spelling_of
from lethe.sampling.draws import Law
from lethe.scoring.text.binary import occurs
from tests.lethe.sampling.answer_tree.small_tokenizers import SPELLED
from tests.lethe.sampling.answer_tree.toy_models import LETTERS, ToyPredictor, whole_question

END = len(LETTERS)


def automaton() -> KeywordAutomaton:
    return KeywordAutomaton(
        build_matcher(("abc ab", "cc"), "word"), TokenLetters(Spelling((*LETTERS, None), "runs"))
    )


@given(arrays(bool, array_shapes(min_dims=2, max_dims=2, max_side=40)))
def test_places_are_those_of_nonzero(chosen):
    for own, theirs in zip(places(chosen), np.nonzero(chosen), strict=True):
        assert own.tolist() == theirs.tolist()


@pytest.mark.parametrize("guide", [0.0, 8.0])
def test_an_outlook_depends_on_the_tokens_left_only_as_far_as_a_keyword_needs(guide):
    reader, growth = automaton(), Growth(1e-3, guide)
    answers = [(0,), (0, 1), (0, 1, 2, 3), (3, 3), (2, 2), (0, 1, 2, 3, 0, 1)]
    states, needed = {reader.start, *(read(reader, answer) for answer in answers)}, set()
    shared = Outlooks(Sight(reader), growth, END + 1, (END,))
    for left in range(8):
        for state in states:
            outlook = shared.of(state, left)
            following = reader.row(state)
            ends, over = reader.ends(following), (np.arange(END + 1) == END) | (left == 0)
            needed |= set(reader.needs(following).tolist())
            leak = reader.leaks(following) | (over & (ends == 1))
            hopeless = (reader.needs(following) > left) & ~reader.blank(following)
            clean = ~leak & np.where(over, ends == 0, hopeless)
            least = np.where(
                leak | clean | over, np.inf, 1e-3 / np.exp(guide * np.array(reader.matched(following)))
            )
            assert outlook.leak.tolist() == leak.tolist()
            assert outlook.clean.tolist() == clean.tolist()
            assert outlook.least.tolist() == least.tolist()
            assert outlook.held.tolist() == reader.pending(following).tolist()
            assert outlook.decided.tolist() == (leak | clean).tolist()
    assert len(needed) > 2  # some outlooks differ by the tokens left


def test_growths_that_share_their_sight_are_growths_that_do_not():
    question = whole_question(lambda text: occurs(text, ("abc ab", "cc"), "word"), automaton=automaton())
    sight, law = Sight(question.automaton), Law((END,), 6)
    for number, growth in enumerate([Growth(0.02, 6.0), Growth(0.002), Growth(0.01, 3.0, rho=60.0)]):
        shared, alone = (grow(question, law, ToyPredictor(), growth, number, each) for each in (sight, None))
        assert (shared.masses, shared.remainder, shared.rest) == (alone.masses, alone.remainder, alone.rest)
        assert shared.priorities.tolist() == alone.priorities.tolist()


@pytest.mark.parametrize("kind", SPELLED)
def test_tokens_behind_open_bytes_are_read_as_one_by_one(kind):
    tokenizer = SPELLED[kind]()
    reader = KeywordAutomaton(
        build_matcher(("café", "ron"), "word"), TokenLetters(spelling_of(tokenizer, len(tokenizer)))
    )
    start = reader.row(reader.start)
    opened = np.unique(start[start >= reader.size]).tolist()[:12]
    for state in opened:
        place, at = divmod(state, reader.size)
        row, remainder = reader.row(state), reader.opens[place]
        for token in reader.spelling.continuing.tolist():
            text, further = reader.spelling.advance(remainder, token)
            after = reader.matcher.after(at, text)
            told = after if after <= DIRTY else reader.place_of[further] * reader.size + after
            assert row[token] == told
    assert bool(opened) == bool(len(reader.spelling.continuing))
