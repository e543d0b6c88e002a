"""The automaton says of token sequences what the keyword scorer says of their texts."""

import unicodedata

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lethe.errors import BadValue
from lethe.sampling.answer_tree.automaton import (
    CLEAN_END,
    LEAK,
    LEAK_END,
    MOST_ASCII,
    UNKNOWN_END,
    KeywordAutomaton,
    TokenLetters,
    build_matcher,
    normal_form,
    spellable,
    starts_segment,
)
from lethe.sampling.answer_tree.spelling import CannotSpell, comparable, spelling_of
from lethe.scoring.keyword import joins, keywords_of, occurs
from lethe.scoring.typography import normalise
from tests.cases import read_cases
from tests.lethe.sampling.answer_tree.small_tokenizers import SPELLED, word_piece
from tests.lethe.sampling.answer_tree.toy_models import read
from tests.lethe.scoring.test_scorers import KEYWORD_CASES

KEYWORDS = [tuple(keywords) for keywords in read_cases(__file__)["KEYWORDS"]]
SCALARS = [chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000]
_CACHE: dict = {}


def automaton_of(kind, keywords, match):
    if kind not in _CACHE:
        tokenizer = SPELLED[kind]()
        _CACHE[kind] = tokenizer, TokenLetters(spelling_of(tokenizer, len(tokenizer)))
    tokenizer, letters = _CACHE[kind]
    if (kind, keywords, match) not in _CACHE:
        _CACHE[kind, keywords, match] = KeywordAutomaton(build_matcher(keywords, match), letters)
    return tokenizer, _CACHE[kind, keywords, match]


def end_of(automaton, tokens):
    return int(automaton.ends(np.array([read(automaton, tokens)]))[0])


def token_lists(tokenizer, keywords):
    """Random tokens, with the keywords' own tokens and broken pieces of them strewn in."""
    pieces = [
        tokenizer(text, add_special_tokens=False)["input_ids"]
        for keyword in keywords
        for text in (
            keyword,
            keyword.upper(),
            f" {keyword.title()}",
            keyword[: len(keyword) // 2],
            keyword[1:],
        )
    ]
    single = st.integers(0, len(tokenizer) - 1).map(lambda token: [token])
    bytewise = st.sampled_from([list(keyword.encode()) for keyword in keywords]).map(
        lambda data: [b + 1 for b in data] if "<0x41>" in tokenizer.get_vocab() else []
    )
    some = st.one_of(
        single, st.sampled_from([piece for piece in pieces if piece] or [[0]]), bytewise
    )
    return st.lists(some, max_size=8).map(
        lambda lists: [token for tokens in lists for token in tokens]
    )


@pytest.mark.seconds
@pytest.mark.parametrize("match", ["word", "substring"])
@pytest.mark.parametrize("kind", SPELLED)
@given(data=st.data())
@settings(max_examples=200)
def test_what_the_automaton_decides_the_scorer_decides(kind, match, data):
    keywords = data.draw(st.sampled_from(KEYWORDS))
    tokenizer, automaton = automaton_of(kind, keywords, match)
    tokens = data.draw(token_lists(tokenizer, keywords))
    text = tokenizer.decode(tokens, skip_special_tokens=True)
    end = end_of(automaton, tokens)
    assert end in {UNKNOWN_END, LEAK_END if occurs(text, keywords, match) else CLEAN_END}
    if all(starts_segment(character) for character in text):
        assert end != UNKNOWN_END  # it gives up for combining marks alone
    state = np.array([read(automaton, tokens)])
    if end != UNKNOWN_END and not automaton.leaks(state)[0]:
        assert automaton.blank(state)[0] == (normalise(text) == "")


@pytest.mark.seconds
@pytest.mark.parametrize("match", ["word", "substring"])
@given(data=st.data())
@settings(max_examples=200)
def test_a_leak_that_is_settled_stays_one_whatever_follows(match, data):
    keywords = data.draw(st.sampled_from(KEYWORDS))
    tokenizer, automaton = automaton_of("byte level", keywords, match)
    tokens = data.draw(token_lists(tokenizer, keywords))
    marks = data.draw(st.text(st.sampled_from("\u0301\u0327\u0331\u3099\u0338es "), max_size=3))
    further = tokenizer(marks, add_special_tokens=False)["input_ids"] if marks else []
    if automaton.leaks(np.array([read(automaton, tokens)]))[0]:
        text = tokenizer.decode([*tokens, *further], skip_special_tokens=True)
        assert occurs(text, keywords, match)


@pytest.mark.seconds
@pytest.mark.parametrize("keywords", [("ron weasley",), ("engraver", "café"), ("on ron",)])
@given(data=st.data())
@settings(max_examples=150)
def test_no_answer_leaks_with_fewer_tokens_than_the_automaton_needs(keywords, data):
    tokenizer, automaton = automaton_of("byte level", keywords, "substring")
    before, after = (
        data.draw(token_lists(tokenizer, keywords)),
        data.draw(token_lists(tokenizer, keywords)),
    )
    needed = int(automaton.needs(np.array([read(automaton, before)]))[0])
    for count in range(min(needed, len(after) + 1)):
        text = tokenizer.decode([*before, *after[:count]], skip_special_tokens=True)
        assert not occurs(text, keywords, "substring")


@pytest.mark.parametrize(
    "case", [case for case in KEYWORD_CASES if all(map(spellable, keywords_of(case)))]
)
def test_the_rule_of_whole_words_and_of_substrings(case):
    text = case["text"]
    keywords = keywords_of(case)
    for match in ("word", "substring"):
        tokenizer, automaton = automaton_of("byte level", keywords, match)
        tokens = tokenizer(text, add_special_tokens=False)["input_ids"]
        end = end_of(automaton, tokens)
        assert end in {UNKNOWN_END, case[match]}
        if not automaton.leaks(np.array([read(automaton, tokens)]))[0]:
            assert (end == UNKNOWN_END) == ("\u0301" in text)


def test_a_complete_keyword_is_pending_until_a_character_settles_it():
    tokenizer, automaton = automaton_of("byte level", ("ron",), "substring")

    def state(text):
        return np.array([read(automaton, tokenizer(text, add_special_tokens=False)["input_ids"])])

    assert automaton.pending(state("ron"))[0]
    assert not automaton.leaks(state("ron"))[0]
    assert automaton.leaks(state("ron "))[0]
    assert automaton.ends(state("ron\u0301"))[0] == UNKNOWN_END
    assert automaton.ends(state("ron ")).tolist() == [LEAK_END]
    assert state("ron ")[0] == LEAK


def test_a_character_of_several_letters_settles_none_of_them():
    """h with a line below is h and a mark once folded, but a cedilla behind it makes another letter of the h."""
    tokenizer, automaton = automaton_of("byte level", ("ah",), "substring")
    tokens = tokenizer("a\u1e96", add_special_tokens=False)["input_ids"]
    further = tokenizer("\u0327", add_special_tokens=False)["input_ids"]
    assert occurs(tokenizer.decode(tokens), ("ah",), "substring")
    assert not occurs(tokenizer.decode([*tokens, *further]), ("ah",), "substring")
    assert not automaton.leaks(np.array([read(automaton, tokens)]))[0]
    assert end_of(automaton, tokens) == LEAK_END
    assert end_of(automaton, [*tokens, *further]) == UNKNOWN_END


def test_a_token_that_the_text_skips_leaves_open_bytes_open():
    tokenizer, automaton = automaton_of("byte level", ("café",), "word")
    first, second = (tokenizer.convert_tokens_to_ids(name) for name in "Ã©")
    tokens = [
        *tokenizer("caf", add_special_tokens=False)["input_ids"],
        first,
        tokenizer.eos_token_id,
        second,
    ]
    assert tokenizer.decode(tokens, skip_special_tokens=True) == "café"
    assert end_of(automaton, tokens) == LEAK_END


def test_a_composed_character_joins_a_word_only_where_its_base_does():
    """Else a mark behind the character that settled a keyword could unsettle it."""
    for code in range(0x30000):
        pair = unicodedata.decomposition(chr(code)).split()
        if len(pair) == 2 and not pair[0].startswith("<"):
            base = chr(int(pair[0], 16))
            whole = unicodedata.normalize("NFKC", chr(code)).casefold()
            if starts_segment(base) and not joins(normal_form(base)[0]):
                assert not joins(whole[0]), hex(code)


def test_no_later_part_of_a_character_starts_a_segment():
    parts = {part for character in SCALARS for part in unicodedata.normalize("NFD", character)[1:]}
    assert not any(map(starts_segment, parts))


@pytest.mark.seconds
def test_normalising_by_character_is_normalising():
    for character in SCALARS:
        if starts_segment(character):
            assert normalise(f"x{character}x") == " ".join(f"x{normal_form(character)}x".split())
            assert sum(letter.isascii() for letter in normal_form(character)) <= MOST_ASCII


@given(
    st.text(
        st.sampled_from(
            "aein \u00e9ßﬁ\u0301\u0327\u0331\u0345İ\u1100\u1161\u11a8が\u3099"
            "\u2019\u00b4\u2033\u0149\u2212_\u200b\u034f\u0640\ufe71\ufb2a\u2800"
            "\u0131\u0390\u1fc6\u1f80\u03a3\u0665\u0e53"
        ),
        max_size=8,
    )
)
@settings(max_examples=1000)
def test_characters_that_start_segments_are_normalised_one_by_one(text):
    if all(map(starts_segment, text)):
        assert normalise(text) == " ".join("".join(map(normal_form, text)).split())


@pytest.mark.parametrize("kind", SPELLED)
@given(data=st.data())
@settings(max_examples=150)
def test_the_spelling_is_the_tokenizers_text(kind, data):
    tokenizer, automaton = automaton_of(kind, ("ron",), "word")
    tokens = data.draw(st.lists(st.integers(0, len(tokenizer) - 1), max_size=10))
    assert comparable(automaton.spelling.text(tokens)) == comparable(
        tokenizer.decode(tokens, skip_special_tokens=True)
    )


def test_a_tokenizer_that_is_not_spelled_is_refused_with_the_reason():
    with pytest.raises(CannotSpell, match="WordPiece"):
        spelling_of(word_piece(), 3)


def test_keywords_with_combining_marks_are_not_read():
    assert not spellable(normalise("हिन्दी"))
    assert spellable(normalise("cafe\u0301"))
    for bad in ((), ("",), ("RON",), (normalise("हिन्दी"),)):
        with pytest.raises(BadValue):
            build_matcher(bad, "word")
