"""Characters that a reader cannot see, and a text as it looks without them."""

import re
import unicodedata

# The property Default_Ignorable_Code_Point of the Unicode Character Database 15 (DerivedCoreProperties.txt).
DEFAULT_IGNORABLE = (
    (0x00AD, 0x00AD),  # soft hyphen
    (0x034F, 0x034F),  # combining grapheme joiner
    (0x061C, 0x061C),  # Arabic letter mark
    (0x115F, 0x1160),  # Hangul fillers
    (0x17B4, 0x17B5),  # Khmer inherent vowels
    (0x180B, 0x180F),  # Mongolian variation selectors and vowel separator
    (0x200B, 0x200F),  # zero width space, joiners, marks of direction
    (0x202A, 0x202E),  # embeddings and overrides of direction
    (0x2060, 0x206F),  # word joiner, invisible operators, isolates
    (0x3164, 0x3164),  # Hangul filler
    (0xFE00, 0xFE0F),  # variation selectors
    (0xFEFF, 0xFEFF),  # byte order mark
    (0xFFA0, 0xFFA0),  # half-width Hangul filler
    (0xFFF0, 0xFFF8),  # unassigned
    (0x1BCA0, 0x1BCA3),  # shorthand format controls
    (0x1D173, 0x1D17A),  # musical format controls
    (0xE0000, 0xE0FFF),  # tags and further variation selectors
)
_RANGES = "".join(f"{chr(first)}-{chr(last)}" for first, last in DEFAULT_IGNORABLE)
# White space among the controls parts words, and stays.
_UNSEEN = re.compile(f"[{_RANGES}\\x00-\\x08\\x0e-\\x1b\\x7f-\\x84\\x86-\\x9f]")


def seen(text: str) -> str:
    """A text as it looks: composed, without characters that show nothing, with single plain blanks and none at its ends.

    >>> seen("q\\u200b1 "), seen("cafe\\u0301") == seen("caf\\u00e9"), seen("a\\u00a0 b")
    ('q1', True, 'a b')
    """
    if text.isascii() and text.isalnum():  # as most ids
        return text
    composed = unicodedata.normalize("NFC", _UNSEEN.sub("", text))
    return " ".join(composed.split())
