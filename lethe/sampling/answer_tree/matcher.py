"""A finite automaton that reads normalised characters and detects keywords.

The keyword scorer normalises whole texts: Unicode NFKC, case folded, each run of white space as one blank. All steps
except NFKC work character by character. NFKC does too, as long as every character starts its own segment, i.e. is
neither reordered nor composed with the preceding text (Unicode Standard Annex 15, section 9). A combining mark does
not start a segment; text after such a mark is left to the scorer.

A complete keyword is pending at first. A combining mark may still compose with the keyword's last character, and under
"word" the next character may continue the word. Only the next character that starts a segment, or the end of the text,
turns the keyword into a leak. A mark that does not start a segment leads to `DIRTY`: only the scorer itself can judge
such a text.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass, field
from functools import cache

import numpy as np

from lethe.errors import BadValue
from lethe.scoring.text import normalise
from lethe.scoring.text.binary import Match, joins

LEAK, DIRTY = 0, 1  # the two absorbing states
MOST_STATES = 20_000

# Symbols of characters that occur in no keyword. The symbols of keyword characters follow, each in two forms: as the
# start of a character of the text (the preceding text is then settled), or as a further part of its normal form.
MARK = 0
JOINING, JOINING_MORE, APART, APART_MORE, BLANK, BLANK_MORE = range(1, 7)
FIRST_OWN = 7

# No code point normalises to more than five ASCII characters; a test checks all code points.
MOST_ASCII = 5
MARK_CODE = -1  # represents a character that does not start a segment


@cache
def composing() -> frozenset[str]:
    """The characters that compose with the preceding one: second in a canonical pair, or a Hangul vowel or final."""
    jamo = [*range(0x1161, 0x1176), *range(0x11A8, 0x11C3)]
    seconds = {chr(code) for code in jamo}
    for code in range(0x30000):  # no later code point has a canonical pair
        pair = unicodedata.decomposition(chr(code)).split()
        if len(pair) == 2 and not pair[0].startswith("<"):
            seconds.add(chr(int(pair[1], 16)))
    return frozenset(seconds)


@cache
def starts_segment(character: str) -> bool:
    """Whether NFKC neither changes the text before this character nor merges this character with it."""
    first = unicodedata.normalize("NFKD", character)[0]
    return unicodedata.combining(first) == 0 and first not in composing()


@cache
def normal_form(character: str) -> str:
    """The normal form of a character that starts a segment: one or more characters, blanks for white space."""
    folded = unicodedata.normalize("NFKC", character).casefold()
    return "".join(" " if each.isspace() else each for each in folded)


@dataclass(frozen=True)
class Letters:
    """Normalised characters, as arrays of one shape: the code points, whether each is the first of its original character,
    and whether each joins a word."""

    codes: np.ndarray
    starts: np.ndarray
    joining: np.ndarray


@cache
def _letters(character: str) -> tuple[tuple[int, bool, bool], ...]:
    if not starts_segment(character):
        return ((MARK_CODE, True, False),)
    form = normal_form(character)
    return tuple((ord(each), place == 0, joins(each)) for place, each in enumerate(form))


def letters_of(text: str) -> Letters:
    """The normalised characters of a text."""
    rows = [row for character in text for row in _letters(character)]
    codes, starts, joining = zip(*rows, strict=True) if rows else ((), (), ())
    return Letters(np.array(codes, np.int64), np.array(starts, bool), np.array(joining, bool))


@dataclass(frozen=True)
class Configuration:
    """The progress of every keyword: ``open`` holds (keyword, characters read) for each keyword that has begun.

    ``joined``: the last character joins a word. ``blank``: the last character was a blank, or nothing was read.
    ``empty``: only blanks so far. ``complete``: a keyword is complete, except for a mark that may follow. ``ending``: a
    keyword is complete unless the word continues.
    """

    open: frozenset[tuple[int, int]] = frozenset()
    joined: bool = False
    blank: bool = True
    empty: bool = True
    complete: bool = False
    ending: bool = False


@dataclass(frozen=True)
class Matcher:
    """(S, C) ``steps`` from state and symbol to state; arrays (S,) with the facts of each state.

    ``start`` is the state of the empty text. ``leaks_at_end``: the text leaks if the text ends here. ``pending``: a keyword
    is complete and not yet settled. ``empty``: no visible character. ``missing``: the fewest normalised characters
    that must follow before a text leaks, 0 if unknown. ``matched``: the share of a keyword read so far, the
    largest over all keywords.
    """

    keywords: tuple[str, ...]
    alphabet: str
    steps: np.ndarray
    start: int
    leaks_at_end: np.ndarray
    pending: np.ndarray
    empty: np.ndarray
    missing: np.ndarray
    matched: np.ndarray
    _symbols: dict[str, list[int]] = field(default_factory=dict, repr=False, compare=False)  # of texts read so far

    def symbols(self, letters: Letters) -> np.ndarray:
        """The symbols under which this automaton reads the letters."""
        own = np.array([ord(character) for character in self.alphabet], dtype=letters.codes.dtype)
        place = np.searchsorted(own, letters.codes)
        symbols = np.where(letters.joining, JOINING, APART)
        symbols[letters.codes == ord(" ")] = BLANK
        in_alphabet = own[np.minimum(place, len(own) - 1)] == letters.codes
        symbols[in_alphabet] = FIRST_OWN + 2 * place[in_alphabet]
        symbols += ~letters.starts
        symbols[letters.codes == MARK_CODE] = MARK
        return symbols

    def after(self, state: int, text: str) -> int:
        """The state after further characters of the text."""
        return int(self.all_after(np.array([state]), text)[0])

    def all_after(self, states: np.ndarray, text: str) -> np.ndarray:
        """`after` for an array of states."""
        if text not in self._symbols:
            self._symbols[text] = self.symbols(letters_of(text)).tolist()
        for symbol in self._symbols[text]:
            states = self.steps[states, symbol]
        return states


def spellable(keyword: str) -> bool:
    """Whether a normalised keyword can be read character by character: every character starts a segment."""
    return all(starts_segment(character) for character in keyword)


def build_matcher(keywords: tuple[str, ...], match: Match) -> Matcher:
    """The automaton of normalised, spellable keywords, none of them blank."""
    if not keywords or not all(keyword == normalise(keyword) != "" and spellable(keyword) for keyword in keywords):
        raise BadValue("keywords", keywords, "normalised texts that are not blank and contain no combining mark")
    alphabet = "".join(sorted({character for keyword in keywords for character in keyword} - {" "}))
    reader = _Reader(keywords, match)
    # (character, joins, starts a character of the text) of each symbol from JOINING on
    inputs: list[tuple[str | None, bool, bool]] = [
        (None, True, True),
        (None, True, False),
        (None, False, True),
        (None, False, False),
        (" ", False, True),
        (" ", False, False),
    ]
    inputs += [(character, joins(character), starts) for character in alphabet for starts in (True, False)]
    number: dict[Configuration, int] = {Configuration(): 2}
    waiting, steps = [Configuration()], [[LEAK] * (len(inputs) + 1), [DIRTY] * (len(inputs) + 1)]
    while waiting:
        row = [DIRTY]
        for character, joining, starts in inputs:
            following = reader.read(waiting[0], character, joining, starts)
            if following is None:
                row.append(LEAK)
                continue
            if following not in number:
                number[following] = len(number) + 2
                waiting.append(following)
            row.append(number[following])
        steps.append(row)
        waiting.pop(0)
        if len(number) > MOST_STATES:
            raise BadValue(
                "keywords", keywords, f"fewer or shorter ones: the automaton exceeds {MOST_STATES} states"
            )
    states = list(number)
    pending = np.array([False, False, *(state.complete or state.ending for state in states)])
    # No count is given where a mark may compose with the text read so far, as in non-ASCII keywords.
    counted = all(keyword.isascii() for keyword in keywords)
    return Matcher(
        keywords=keywords,
        alphabet=alphabet,
        steps=np.array(steps, dtype=np.int32),
        start=2,
        leaks_at_end=pending | (np.arange(len(pending)) == LEAK),
        pending=pending,
        empty=np.array([False, False, *(state.empty for state in states)]),
        missing=np.array([0, 0, *(reader.missing(state) if counted else 0 for state in states)]),
        matched=np.array([1.0, 0.0, *(reader.matched(state) for state in states)]),
    )


class _Reader:
    """One step of the automaton: the rule of the keyword scorer, written out."""

    def __init__(self, keywords: tuple[str, ...], match: Match):
        self.keywords, self.whole = keywords, match == "word"

    def read(self, at: Configuration, character: str | None, joining: bool, starts: bool) -> Configuration | None:
        """The configuration after a character; None: the text has leaked."""
        ended = at.ending and not joining
        if starts and (at.complete or ended):
            return None
        if character == " " and at.blank:
            return at
        complete, ending, begun = at.complete or ended, False, set()
        for number, length in [*at.open, *((number, 0) for number in range(len(self.keywords)))]:
            keyword = self.keywords[number]
            if length == 0 and self.whole and at.joined and joins(keyword[0]):
                continue  # a keyword within a word
            if keyword[length] != character:
                continue
            if length + 1 < len(keyword):
                begun.add((number, length + 1))
            elif self.whole and joining:
                ending = True
            else:
                complete = True
        blank = character == " "
        return Configuration(frozenset(begun), joining, blank, at.empty and blank, complete, ending)

    def missing(self, at: Configuration) -> int:
        if at.complete or at.ending:
            return 0
        begun = [len(self.keywords[number]) - length for number, length in at.open]
        return min([*begun, *map(len, self.keywords)])

    def matched(self, at: Configuration) -> float:
        if at.complete or at.ending:
            return 1.0
        return max((length / len(self.keywords[number]) for number, length in at.open), default=0.0)
