"""Keywords in other typography: the scorer and the automaton of the answer tree against a reference, written out here."""

import unicodedata
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st

from lethe.sampling.answer_tree.automaton import (
    CLEAN_END,
    LEAK_END,
    UNKNOWN_END,
    KeywordAutomaton,
    TokenLetters,
    build_matcher,
    spellable,
)
from lethe.sampling.answer_tree.spelling import spelling_of
from lethe.scoring.keyword import joins, keywords_of, occurs
from lethe.scoring.scorer import scorer
from lethe.scoring.typography import SIGNS, normalise
from tests.growth import growth
from tests.lethe.sampling.answer_tree.small_tokenizers import byte_fallback, byte_level
from tests.lethe.sampling.answer_tree.toy_models import read

IGNORABLE = regex.compile(r"\p{Default_Ignorable_Code_Point}")
QUOTATION = regex.compile(r"\p{Quotation_Mark}")
SCALARS = [chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000]
MARKS = "*_`~"
S = "\ue000"  # stands for a soft hyphen before white space
NAMES = [
    *(
        "O'Brien",
        "Jean-Luc",
        "Harry Potter",
        "Iris",
        '"Dune"',
        "53 a",
        "C*",
        "a_b",
        "محمد",
        "Μάιος",
        "555-12",
        "income",
        "AB",
        "हिन्दी-उर्दू",
    ),
]
OTHER_FORMS = {
    "'": "\u2019\u2018\u02bc\u2032\u00b4`\uff07",
    "-": "\u2010\u2011\u2013\u2014\u2212\ufe63",
    '"': "\u201c\u201d\u00ab\u300c\uff02\u2033",
    " ": "\u00a0\u2003\u202f\n\u3000",
    "I": "\u0130\uff29i",
    "r": "\uff52\U0001d42bR",
    "a": "\uff41A",
    "5": "\u0665\u096b\uff15\U0001d7d3",
    "ά": "αΑΆ\u1f71\u1f04",
    "ι": "ΙΪϊΐί",
    "ς": "σΣ",
    "i": "\u0131I",
}
INSERTED = ["\u200b", "\u00ad", "\u2060", "\ufeff", "\ufe0f", "\u0640", "**", "_", "`", "~~"]
INSERTED += [
    "\u2014 ",
    "\u2212\n",
    "\u2013* ",
    "\u2011 ",
    "\u00ad\n",
    "\u00ad*\n",
    "\u00ad \u00ad ",
]
INSERTED += [" \u00ad\n", "-\n", "- ", "\u2010\n", "-", "\n", "-\n**", "-* \n"]
BESIDE = ["", " ", ".", "*", "_", "s", "x_", "**", "\u200b", "\u2019s", "\u0301", "\n", "5"]
TOKENIZERS = [byte_level(), byte_fallback()]
LETTERS = [TokenLetters(spelling_of(tokenizer, len(tokenizer))) for tokenizer in TOKENIZERS]


def plain(character):
    """The sign that a character of typography stands for, from the properties of Unicode where they say it."""
    if character in {"'", '"'}:
        return character
    if IGNORABLE.match(character) or character in "\u0640\u0332\u0336":
        return ""
    if character in "-\u2010\u2011\ufe63\uff0d":
        return "-"
    if unicodedata.category(character) == "Pd" or character == "\u2212":
        return "\u2013"
    if character in "\u2018\u2019\u02bc\u2032\u00b4\uff07":
        return "'"
    if unicodedata.category(character) == "Nd":
        return str(int(character))
    if character == "\u0131":
        return "i"
    return '"' if QUOTATION.match(character) or character == "\u2033" else character


def reference_form(text):
    """As `normalise`, with `S` where a soft hyphen stands before white space."""
    visible = "".join(c for c in text if c == "\u00ad" or not IGNORABLE.match(c))
    text = regex.sub(r"\u00ad(?=[*_`~\u00ad]*\s)", S, visible)
    unpacked = unicodedata.normalize("NFKC", "".join(map(plain, text)))
    folded = unpacked.casefold().replace("i\u0307", "i")
    bare = regex.sub(r"\p{Greek}\p{Mn}*", without_marks, folded)
    return " ".join("".join(map(plain, bare)).split())


def without_marks(letter):
    return regex.sub(r"\p{Mn}", "", unicodedata.normalize("NFD", letter[0]))


def reference_occurs(text, keyword, match):
    """Every way to read the keyword's characters from every start, with marks of emphasis left out or not."""
    text = reference_form(text)
    keyword = reference_form(keyword).replace("\u2013", "-")
    literal = any(mark in keyword for mark in MARKS)
    for start in range(len(text)):
        ends = {start + 1} if is_read(keyword[0], text[start]) else set()
        for place, (before, wanted) in enumerate(pairwise(keyword), 1):
            in_word = regex.search(r"\p{L}\p{M}*\p{L}\p{M}*$", keyword[:place]) is not None
            ends = further(text, ends, before, wanted, literal, in_word)
        if any(match == "substring" or is_whole(text, start, end, keyword) for end in ends):
            return True
    return False


def is_read(wanted, character):
    return character == wanted or wanted + character in {"'`", "-\u2013"}


def further(text, ends, before, wanted, literal, in_word):
    """The ends after one more character of the keyword; ``in_word``: behind two letters or more."""
    reached = set()
    for start in ends:
        end = start
        while end < len(text):
            if is_read(wanted, text[end]):
                reached.add(end + 1)
            mark = text[end] in MARKS and not (before.isdecimal() and wanted.isdecimal())
            if not ((mark and not literal) or text[end] == S or (before == " " == text[end])):
                break
            end += 1
        if not literal and in_word and wanted.isalpha():
            broken = regex.match(rf"[*_`~{S}]*[-{S}][*_`~{S}]* [*_`~ {S}]*", text, pos=start)
        elif not literal and before == text[start - 1] == "-" and wanted.isalnum():
            broken = regex.match(rf"[*_`~{S}]* [*_`~ {S}]*", text, pos=start)
        else:
            broken = None
        if broken and text[broken.end() : broken.end() + 1] == wanted:
            reached.add(broken.end() + 1)
    return reached


def is_whole(text, start, end, keyword):
    before, after = text[:start].rstrip("_")[-1:], text[end:].lstrip("_")[:1]
    if before and joins(before) and joins(keyword[0]):
        return False
    return not (after and joins(after) and joins(keyword[-1]))


@st.composite
def answers_in_typography(draw):
    """A name and a text that may hold it, with each character in some form and something in between."""
    name = draw(st.sampled_from(NAMES))
    text = draw(st.sampled_from(BESIDE))
    for character in name:
        text += draw(st.sampled_from([character, *OTHER_FORMS.get(character, "")]))
        text += draw(st.sampled_from(["", "", "", *INSERTED]))
    return name, text + draw(st.sampled_from(BESIDE)) + draw(st.sampled_from(BESIDE))


@cache
def automaton_of(keywords, match, letters):
    return KeywordAutomaton(build_matcher(keywords, match), letters)


@pytest.mark.seconds
@given(case=answers_in_typography(), match=st.sampled_from(["word", "substring"]))
@settings(max_examples=500, deadline=None)
def test_scorer_and_automaton_and_reference_agree_on_every_typography(case, match):
    name, text = case
    keywords = keywords_of({"keywords": [name]})
    spelled = all(map(spellable, keywords))
    for tokenizer, letters in zip(TOKENIZERS, LETTERS, strict=True):
        tokens = tokenizer(text, add_special_tokens=False)["input_ids"]
        written = tokenizer.decode(tokens, skip_special_tokens=True)
        expected = reference_occurs(written, name, match)

        assert occurs(written, keywords, match) == expected
        if not spelled:
            continue
        automaton = automaton_of(keywords, match, letters)
        end = int(automaton.ends(np.array([read(automaton, tokens)]))[0])
        if end == UNKNOWN_END:
            assert any(map(unicodedata.combining, written))
        else:
            assert end == (LEAK_END if expected else CLEAN_END)


def test_every_default_ignorable_character_is_left_out():
    left_out = {code for code, sign in SIGNS.items() if not sign}

    ignorable = {ord(character) for character in SCALARS if IGNORABLE.match(character)}

    assert ignorable <= left_out


def test_every_quotation_mark_and_every_dash_is_a_plain_one():
    for character in SCALARS:
        if QUOTATION.match(character):
            assert normalise(character) in {"'", '"'}, hex(ord(character))
        if unicodedata.category(character) == "Pd":
            assert normalise(character) in {"-", "\u2013"}, hex(ord(character))


def test_letter_case_tells_no_two_words_apart():
    for character in SCALARS:
        cases = {character, character.upper(), character.lower()}
        if len(cases) > 1:
            assert len({normalise(f"x{case}x") for case in cases}) == 1, hex(ord(character))


def test_case_folding_brings_no_sign_of_typography_back():
    """Else a text that NFKC leaves as it is would need the signs replaced once more."""
    for character in SCALARS:
        if unicodedata.normalize("NFKC", character) == character and ord(character) not in SIGNS:
            assert not any(ord(part) in SIGNS for part in character.casefold())


def test_a_keyword_without_a_visible_character_is_no_keyword():
    assert np.isnan(scorer("keyword_leak")(["Ron"], {"keywords": ["\u200b", " \u00ad"]})).all()


def test_emphasis_does_not_keep_an_answer_from_equalling_the_reference():
    answer = {"answer": "Jean\u2011Luc Picard"}

    scores = scorer("exact_match")(["**Jean-Luc** Picard", "_jean-luc picard_", "Jean"], answer)

    assert scores.tolist() == [1, 1, 0]


def test_a_run_of_marks_does_not_stall_the_search():
    def search(size):
        for unit in ("`", "*`", "'`", "t`", "t*", "_"):
            assert not occurs("o" + unit * (size // len(unit)), ("o't t", "'t 's"), "word")

    assert growth(search, 12_500) < 32  # of 8 times the length; 64 where the time is quadratic
