"""The words in which servers, engines and logs say why an answer ended."""

import pytest

from lethe.io.answer_ends import ANSWERED, MEANINGS, end_of


@pytest.mark.parametrize("word", ["stop", "eos", "STOP", "end_turn", "length", "max_tokens"])
def test_a_known_end_is_one_of_an_answer(word):
    assert end_of(word, "") in ANSWERED


@pytest.mark.parametrize(
    "word", ["error", "abort", "tool_calls", "content_filter", "", None, 1, []]
)
def test_every_other_end_is_that_of_a_missing_answer(word):
    assert end_of(word, "a text") not in ANSWERED


def test_an_end_without_a_text_is_that_of_a_missing_answer():
    assert end_of("stop", None) not in ANSWERED


def test_a_table_that_was_written_with_these_words_is_read_with_the_same():
    assert {end_of(word, "a text") for word in MEANINGS.values()} == set(MEANINGS.values())
    assert all(end_of(word, "a text") == word for word in MEANINGS.values())


def test_an_unknown_word_from_outside_is_not_repeated():
    assert "happy" not in end_of("\x1b[2Jhappy", "a text")
