"""Texts in the scorers' normal form, one character at a time.

The keyword scorer normalises whole texts: Unicode NFKC, case folded, each run of white space as one blank. All steps
except NFKC work character by character. NFKC does too, as long as every character starts its own segment, i.e. is
neither reordered nor composed with the preceding text (Unicode Standard Annex 15, section 9). A combining mark does
not start a segment; this module leaves text after such a mark to the scorer.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from functools import cache

import numpy as np

from lethe.scoring.text.keyword_leak import joins

# No code point normalises to more than five ASCII characters; a test checks all code points.
MOST_ASCII = 5


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


MARK_CODE = -1  # represents a character that does not start a segment


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
