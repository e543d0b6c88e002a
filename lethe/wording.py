"""Text as results and sentences have it: visible, on one line, shortened, and a count with its noun."""

import unicodedata
from os import PathLike

# Control, format (bidi overrides, zero width), surrogate and private characters, line and paragraph separators
UNSEEN = ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")
LONGEST = 4000  # characters of a sentence about bad input


def visible(text: str) -> str:
    """Return ``text`` for a terminal: characters that move, colour, hide or reorder text are escaped, except line breaks."""
    escapes: dict[int, str] = {}
    for letter in {*text} - {"\n"}:
        if unicodedata.category(letter) in UNSEEN:
            escapes[ord(letter)] = letter.encode("unicode_escape").decode()
    return text.translate(escapes)


def one_line(text: str) -> str:
    """Return ``text`` as one line of visible characters; the middle of a longer text than `LONGEST` is left out."""
    if len(text) > LONGEST:
        text = f"{text[: LONGEST // 2]} ... {text[-LONGEST // 2 :]}"
    if text.isprintable():
        return text
    return visible(text).replace("\n", "\\n")


def reason_of(error: Exception) -> str:
    """Return the first line of a library's message, cut, or the name of an error that has none."""
    lines = str(error).strip().splitlines()
    if not lines:
        return type(error).__name__
    return lines[0][:300]


def plural(value: int, thing: str, things: str = "") -> str:
    """Return a count with its noun, whose plural is ``things`` or ends in s."""
    if value == 1:
        return f"1 {thing}"
    return f"{value:,} {things or f'{thing}s'}"


def shortened(value: object, limit: int = 80) -> str:
    """Return the ``repr`` of ``value`` (of a path, that of its text), cut to at most ``limit`` characters."""
    if isinstance(value, PathLike):
        value = str(value)
    try:
        text = repr(value)
    except ValueError:  # Python writes no integer of more than 4,300 digits
        if isinstance(value, int):
            return "an integer of thousands of digits"
        return "an entry with an integer of thousands of digits"
    if len(text) <= limit:
        return text
    return text[: limit - 3] + "..."
