"""The form in which words are compared: what only typography tells apart is equal.

`normalise` takes these steps, each of them character by character but the second:

1. Signs of typography (`SIGNS`): apostrophes and quotation marks of every shape become ``'`` and ``"``, hyphens become ``-``
   and all other dashes ``–``, which a search reads as equal (only a hyphen breaks a word over two lines),
   and what leaves no mark of its own is left out: characters with the Unicode property Default_Ignorable_Code_Point, the
   Arabic tatweel, Arabic and Hebrew vowel points, and lines under or through a letter. A decimal digit of any script becomes
   the ASCII digit.
2. Unicode NFKC: ligatures, full-width and styled letters, the order of combining marks.
3. Case folding (ß is ss, a final sigma is a sigma), and step 1 again for what NFKC unpacked.
4. What capitals do not tell apart: the dotted İ, i with a dot above and the dotless ı become i, and a Greek letter loses its
   accents, breathings and diaeresis.
5. Each run of white space becomes one blank, or one `SOFT` where a soft hyphen stands before it, and none stays at the ends.

Other accents stay: "café" is not "cafe". `EMPHASIS` marks stay too, because C* and snake_case are words, and so does the
hyphen of a word that is broken over two lines; a search skips both (`lethe.scoring.keyword`). The glossary has a table of
examples. Whoever changes the rule raises `RULE`, which results record.

Sources: Unicode Standard Annex 15 (NFKC) and the Unicode Character Database 15 (DerivedCoreProperties.txt). No character
was added to the property since then.
"""

import re
import unicodedata

from lethe.io.unseen import DEFAULT_IGNORABLE

# 1: NFKC, case folding, blanks. 2: signs of typography, the dotted I, marks of emphasis. 3: digits of all scripts, the
# dotless i, Greek accents, words broken over two lines.
RULE = f"3, Unicode {unicodedata.unidata_version}"

EMPHASIS = "*_`~"  # of Markdown: *Harry*, __Harry__, `Harry`, ~~Harry~~
SINGLE = "'"
DOUBLE = '"'
HYPHEN = "-"
DASH = "\u2013"

OPTIONAL = (
    (0x0332, 0x0333),  # one and two lines below, as underlined text is typed
    (0x0335, 0x0336),  # strokes through a letter, as struck text is typed
    (0x0591, 0x05BD),  # Hebrew accents and points
    (0x05BF, 0x05BF),
    (0x05C1, 0x05C2),
    (0x05C4, 0x05C5),
    (0x05C7, 0x05C7),
    (0x0640, 0x0640),  # Arabic tatweel
    (0x064B, 0x0652),  # Arabic vowel points; hamza and madda above make other letters and stay
    (0x0670, 0x0670),
)
# Marks of position and pronunciation that are typed for an apostrophe, such as the okina and the ayn, stand here too.
APOSTROPHES = (
    "\u00b4\u02b9\u02bb\u02bc\u02bd\u02be\u02bf\u02c8\u02ca\u02cb\u0384\u055a\u05f3\u07f4\u07f5"
    "\u1fbd\u1fbf\u1ffd\u1ffe\u2018\u2019\u201a\u201b\u2032\u2035\u2039\u203a\u275b\u275c\u275f\ua78b\ua78c\uff07"
)
QUOTATION_MARKS = (
    "\u00ab\u00bb\u02ba\u02dd\u02ee\u05f4\u201c\u201d\u201e\u201f\u2033\u2036\u275d\u275e\u2760\u276e\u276f\u2e42"
    "\u300c\u300d\u300e\u300f\u301d\u301e\u301f\ufe41\ufe42\ufe43\ufe44\uff02\uff62\uff63"
    "\U0001f676\U0001f677\U0001f678"
)
HYPHENS = "\u2010\u2011\ufe63\uff0d"  # hyphen, no-break hyphen, small and full-width hyphen-minus
# Beside the category Pd: modifier minus, hyphen bullet, swung dash, superscript, subscript and plain minus, box line,
# heavy minus.
FURTHER_DASHES = "\u02d7\u2043\u2053\u207b\u208b\u2212\u2500\u2796"
SOFT = "\u00ad"  # the hyphen that shows only at the end of a line
# Blanks under marks that are left out.
LOOSE = "\u2017\ufc5e\ufc5f\ufc60\ufc61\ufc62\ufc63\ufe70\ufe72\ufe74\ufe76\ufe78\ufe7a\ufe7c\ufe7e"
DOTLESS = 0x0131  # its capital is an I
BLANK_PATTERN = 0x2800  # the Braille pattern without dots


def _signs() -> dict[int, str]:
    """Map each code point of typography to its plain sign, and each further decimal digit to the ASCII one."""
    signs = {}
    for first, last in (*DEFAULT_IGNORABLE, *OPTIONAL):
        signs.update(dict.fromkeys(range(first, last + 1), ""))
    for code in range(0x80, 0x20000):  # no later code point is a dash or a digit
        category = unicodedata.category(chr(code))
        if category == "Pd":
            signs[code] = DASH
        if category == "Nd":
            signs[code] = str(unicodedata.decimal(chr(code)))
    plain_signs = {
        APOSTROPHES: SINGLE,
        QUOTATION_MARKS: DOUBLE,
        HYPHENS: HYPHEN,
        FURTHER_DASHES: DASH,
        LOOSE: " ",
    }
    for texts, sign in plain_signs.items():
        signs.update(dict.fromkeys(map(ord, texts), sign))
    signs[BLANK_PATTERN] = " "
    signs[DOTLESS] = "i"
    return signs


SIGNS = _signs()
# Two patterns: a character class is looked up in a table only if all its characters are below U+10000.
_NEAR = re.compile(f"[{''.join(chr(code) for code in sorted(SIGNS) if code < 0x10000)}]")
_FAR = re.compile("[\U00010000-\U0001ffff\U000e0000-\U000e0fff]")

GREEK = "\u0370-\u03ff\u1f00-\u1fff"
# Grave, acute, macron, breve, diaeresis, both breathings, circumflex.
GREEK_MARKS = "\u0300\u0301\u0304\u0306\u0308\u0313\u0314\u0342"
_ACCENTED = re.compile(f"[{GREEK}][{GREEK_MARKS}]*")
_MARK_OF_GREEK = re.compile(f"[{GREEK_MARKS}]")


_SOFT_BREAK = re.compile(rf"(?<![\s{SOFT}]){SOFT}([{EMPHASIS}{SOFT}]*)\s")


def normalise(text: str) -> str:
    """The form in which words are compared, with single blanks.

    >>> normalise("O\u2019Brien"), normalise("Jean\u2011Luc"), normalise("\u0130stanbul"), normalise(" \uff32o\u00adn ")
    ("o'brien", 'jean-luc', 'istanbul', 'ron')
    """
    if text.isascii():  # nothing but case and white space can differ
        return " ".join(text.lower().split())
    if SOFT in text:
        signs = SOFT.join(map(plain, text.split(SOFT)))
        parts = [*_SOFT_BREAK.split(signs), ""]  # lines and, behind each, the marks before its end
        lines = [line + marks for line, marks in zip(parts[::2], parts[1::2], strict=True)]
        return SOFT.join(" ".join(folded(line).split()) for line in lines).strip(SOFT)
    return " ".join(folded(text).split())


def folded(text: str) -> str:
    """`normalise` without its last step: white space stays as it is."""
    signs = plain(text)
    unpacked = unicodedata.normalize("NFKC", signs)
    lower = unpacked.casefold().replace("i\u0307", "i")
    bare = _ACCENTED.sub(_without_marks, lower)
    return bare if unpacked == signs else plain(bare)  # case folding itself brings no sign back


def _without_marks(letter: re.Match[str]) -> str:
    """A Greek letter as capitals write it, which may leave out accents and add a diaeresis (Μάιος, ΜΑΪΟΣ)."""
    return _MARK_OF_GREEK.sub("", unicodedata.normalize("NFD", letter[0]))


def plain(text: str) -> str:
    """The text with the signs of typography replaced by their plain forms, or left out."""
    near = _NEAR.sub(lambda sign: SIGNS[ord(sign[0])], text)
    return _FAR.sub(lambda sign: SIGNS.get(ord(sign[0]), sign[0]), near)
