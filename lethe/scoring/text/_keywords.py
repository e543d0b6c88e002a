"""The rule for whether a keyword occurs in a text, shared by the scorer `keyword_leak` and by exact answer trees.

Under "word" a keyword counts only as a whole word: no letter, digit, mark or underscore continues the keyword on either
side. In scripts without blanks between words a keyword counts wherever its characters occur. Under "substring" a keyword
counts inside a longer word too.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from functools import cache
from typing import Literal

from lethe.scoring.text._texts import normalise

Match = Literal["word", "substring"]

# Scripts without blanks between words: a keyword in such a script counts wherever its characters occur.
WITHOUT_BLANKS = (
    (0x0E00, 0x0EFF),  # Thai, Lao
    (0x1000, 0x109F),  # Myanmar
    (0x1780, 0x17FF),  # Khmer
    (0x3005, 0x3007),  # ideographic iteration, closing mark and zero
    (0x3040, 0x30FF),  # Hiragana, Katakana
    (0x31F0, 0x31FF),  # Katakana extensions
    (0x3400, 0x4DBF),  # Han, extension A
    (0x4E00, 0x9FFF),  # Han
    (0xF900, 0xFAFF),  # Han, compatibility
    (0x20000, 0x3FFFF),  # Han, further extensions
)


@cache
def joins(character: str) -> bool:
    """Whether a word continues across this character: a letter, digit, mark or underscore of a script with blanks."""
    code = ord(character)
    if any(first <= code <= last for first, last in WITHOUT_BLANKS):
        return False
    return character.isalnum() or character == "_" or unicodedata.category(character).startswith("M")


def occurs(text: str, keywords: Sequence[str], match: Match) -> bool:
    """Whether one of the normalised ``keywords`` occurs in a text; under "word", only as a whole word."""
    text = normalise(text)
    return any(_occurs(text, keyword, match) for keyword in keywords)


def _occurs(text: str, keyword: str, match: Match) -> bool:
    start = text.find(keyword)
    while start >= 0:
        end = start + len(keyword)
        cut_off = (start > 0 and joins(text[start - 1]) and joins(keyword[0])) or (
            end < len(text) and joins(text[end]) and joins(keyword[-1])
        )
        if match == "substring" or not cut_off:
            return True
        start = text.find(keyword, start + 1)
    return False
