"""Where a keyword stands in a text: the rule that the keyword scorer and the exact answer tree share.

Text and keyword are compared in their normal form (`lethe.scoring.typography`). Marks of emphasis between the
characters of a keyword are skipped (Harry **Potter**), but not between two digits (5*3 is not 53); a backtick may also be an
apostrophe (O`Brien). A keyword that holds such a mark itself, like C* or snake_case, is looked for as it is written.

All dashes are equal. A word may be broken over two lines: behind two letters or more, with their marks, a hyphen and white
space before a letter are skipped (Har- ry), so are a soft hyphen and white space, and so is white space behind a hyphen where
the keyword has a dash itself (Jean- Luc). White space alone parts words, and so does a hyphen alone, and so does another dash
(in— come).

Under "word" a keyword counts as a whole word only: no letter, digit or combining mark continues it on either side. An
underscore is not an end: it counts as what stands behind it, so _Harry_ says Harry and snake_harry does not.
"""

import re
import unicodedata
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from typing import Literal

from lethe.scoring.text import is_text
from lethe.scoring.typography import DASH, EMPHASIS, HYPHEN, SINGLE, SOFT, normalise

Match = Literal["word", "substring"]

UNDERSCORE = "_"
BACKTICK = "`"
MARKS = re.escape(EMPHASIS)
BLANK = f"[ {SOFT}]"
BETWEEN = f"[{MARKS} {SOFT}]*"  # marks and blanks
_SKIPPED = f"{EMPHASIS}{SINGLE}{HYPHEN} ".encode()
BREAK = f"{HYPHEN} "

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


def keywords_of(item: Mapping) -> tuple[str, ...]:
    """The keywords of a dataset row as they are compared, without those that have no visible character."""
    words = [word for word in item.get("keywords") or () if is_text(word)]
    forms = dict.fromkeys(keyword_form(word) for word in words)
    return tuple(form for form in forms if form)  # an empty one would occur in every text


def keyword_form(word: str) -> str:
    """The normal form of a keyword, with hyphens for all dashes, without marks of emphasis around the whole of it.

    >>> keyword_form("**Harry  Potter**"), keyword_form("C*"), keyword_form("**")
    ('harry potter', 'c*', '**')
    """
    form = _with_plain_signs(normalise(word))
    while form[:1] == form[-1:] and form[:1] and form[0] in EMPHASIS:
        inner = form[1:-1].strip()
        if not inner.strip(f"{EMPHASIS} "):
            break
        form = inner
    return form


def _with_plain_signs(text: str) -> str:
    return text.replace(DASH, HYPHEN).replace(SOFT, " ")


def is_literal(keyword: str) -> bool:
    """Whether a keyword holds a mark of emphasis, so that none is skipped."""
    # written out, because every text passes here
    return "*" in keyword or "_" in keyword or "`" in keyword or "~" in keyword


def skips(keyword: str, place: int) -> bool:
    """Whether a mark of emphasis may stand before the character at ``place``, which is not the first."""
    between_digits = keyword[place - 1].isdecimal() and keyword[place].isdecimal()
    return not between_digits and not is_literal(keyword)


def breaks(keyword: str, place: int) -> bool:
    """Whether a hyphen and white space may stand before the letter at ``place``: two letters or more stand before it."""
    if not keyword[place].isalpha() or is_literal(keyword):
        return False
    letters = 0
    for character in reversed(keyword[:place]):
        if character.isalpha():
            letters += 1
        elif not _is_mark(character):
            break
    return letters > 1


def breaks_at_hyphen(keyword: str, place: int) -> bool:
    """Whether white space may stand before the character at ``place``, behind a hyphen of the keyword."""
    if place < 2 or keyword[place - 1] != HYPHEN or is_literal(keyword):
        return False
    before = keyword[place - 2]
    return (before.isalnum() or _is_mark(before)) and keyword[place].isalnum()


def _is_mark(character: str) -> bool:
    """Whether a character is a combining mark."""
    return unicodedata.category(character).startswith("M")


@cache
def joins(character: str) -> bool:
    """Whether a word continues across this character: a letter, digit, mark or underscore of a script with blanks."""
    code = ord(character)
    if any(first <= code <= last for first, last in WITHOUT_BLANKS):
        return False
    return character.isalnum() or character == UNDERSCORE or _is_mark(character)


def occurs(text: str, keywords: Sequence[str], match: Match) -> bool:
    """Whether one of the ``keywords``, in the form of `keyword_form`, occurs in a text; under "word", as a whole word."""
    text = normalise(text)
    with_hyphens = _with_plain_signs(text)
    for keyword in keywords:
        if _occurs(with_hyphens, keyword, match):
            return True
    if not is_literal(text) and BREAK not in text and SOFT not in text:
        return False
    bare = _bare(with_hyphens)
    for keyword in keywords:
        if _bare_keyword(keyword) not in bare:
            continue  # most texts end here, in a fraction of the time of a pattern
        if _occurs_marked(text, keyword, match):
            return True
    return False


def equals(text: str, answer: str) -> bool:
    """Whether a text is a keyword and nothing else, with or without marks of emphasis; ``answer``: its `keyword_form`."""
    form = keyword_form(text)
    if form == answer or is_literal(answer) or not answer:
        return form == answer
    return re.fullmatch(BETWEEN + _pattern(answer) + BETWEEN, normalise(text)) is not None


def _bare(text: str) -> bytes:
    """A text without what a search may skip. A keyword that does not occur even so needs no pattern."""
    return text.encode("utf-8", "surrogatepass").translate(None, _SKIPPED)


_bare_keyword = lru_cache(maxsize=1 << 14)(_bare)


def _occurs(text: str, keyword: str, match: Match) -> bool:
    start = text.find(keyword)
    while start >= 0:
        end = start + len(keyword)
        if match == "substring" or not _is_cut_off(text, start, end, keyword):
            return True
        start = text.find(keyword, start + 1)
    return False


def _occurs_marked(text: str, keyword: str, match: Match) -> bool:
    """Whether a keyword without marks of emphasis occurs in a text with marks or a break between its characters."""
    if is_literal(keyword):
        return False
    for found in _search(keyword).finditer(text):
        start, end = found.span(1)
        if match == "substring" or not _is_cut_off(text, start, end, keyword):
            return True
    return False


def _is_cut_off(text: str, start: int, end: int, keyword: str) -> bool:
    """Whether the keyword found at ``text[start:end]`` is a part of a longer word."""
    if joins(keyword[0]):
        while start > 0 and text[start - 1] == UNDERSCORE:
            start -= 1
        if start > 0 and joins(text[start - 1]):
            return True
    if joins(keyword[-1]):
        while end < len(text) and text[end] == UNDERSCORE:
            end += 1
        if end < len(text) and joins(text[end]):
            return True
    return False


@lru_cache(maxsize=1 << 14)
def _search(keyword: str) -> re.Pattern[str]:
    """Finds every place of a keyword, also places that overlap."""
    return re.compile(f"(?=({_pattern(keyword)}))")


def _pattern(keyword: str) -> str:
    """A keyword without marks of emphasis, with optional marks and breaks between its characters. No two parts that repeat
    can match the same mark, so a search takes linear time."""
    marks = f"[{MARKS}]*"
    parts = [_sign(keyword[0])]
    if keyword[0] == SINGLE:  # a run of marks can begin with an apostrophe at one place only
        parts = [f"(?:{SINGLE}|(?<![{MARKS}])[*_~]*{BACKTICK})"]
    for place in range(1, len(keyword)):
        character = keyword[place]
        before = ""
        if keyword[place - 1] == " ":
            before = BETWEEN
        elif skips(keyword, place):
            before = marks
        if breaks(keyword, place):
            before += f"(?:(?:{HYPHEN}{marks}{BLANK}|{SOFT}){BETWEEN})?"
        elif breaks_at_hyphen(keyword, place):
            before = f"(?:{marks}|(?<={HYPHEN}){marks}{BLANK}{BETWEEN})"
        if character == SINGLE:
            parts.append(f"(?:{before}{SINGLE}|{before.replace(BACKTICK, '')}{BACKTICK})")
        else:
            parts.append(before + _sign(character))
    return "".join(parts)


def _sign(character: str) -> str:
    """The pattern of one character of a keyword, where a hyphen stands for every dash."""
    if character == " ":
        return BLANK
    return f"[{HYPHEN}{DASH}]" if character == HYPHEN else re.escape(character)
