"""ROUGE-1 and ROUGE-L, equal to the package rouge-score (Porter stemmer on) to the last bit, and much faster.

Words are the runs of a-z and 0-9 in the lower-cased text. NLTK's Porter stemmer, which rouge-score calls, stems words of
more than three letters, each word once per process. A text then becomes a string with one character per word, on which
rapidfuzz computes the longest common subsequence bit-parallel: a line of 100,000 characters takes milliseconds, while a
table of all pairs would take minutes.

The scorers give no score against a reference of which ROUGE would read too little (`reads`); the functions `rouge_1` and
`rouge_l` compute what rouge-score computes.

Source: Lin, "ROUGE: a package for automatic evaluation of summaries" (2004), sections 2 and 3.1.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache

import numpy as np

from lethe.scoring.text import score_distinct

_LETTERS = b"abcdefghijklmnopqrstuvwxyz0123456789"
_BLANKED = bytes(byte if byte in _LETTERS else ord(" ") for byte in range(256))
FEW = 8  # words of a reference that a warning shows
NAMED = 3  # questions that a warning names
_OTHER = "\0"  # represents every word that the reference lacks


@dataclass(frozen=True)
class Rouge:
    """Precision, recall and F-measure (beta 1), each float64 in [0, 1], one value per generation."""

    precision: np.ndarray
    recall: np.ndarray
    fmeasure: np.ndarray


def rouge_1(generations: Sequence[str], reference: str) -> Rouge:
    """ROUGE-1: words shared with ``reference``, each counted at most as often as it occurs there."""
    encoded, target = _encode(generations, reference)
    wanted = Counter(target)
    shared = []
    for text in encoded:
        common = Counter(text) & wanted
        shared.append(common.total())
    return _rouge(np.array(shared, dtype=np.float64), encoded, target)


def rouge_l(generations: Sequence[str], reference: str) -> Rouge:
    """ROUGE-L: the longest common subsequence of words with ``reference``."""
    from rapidfuzz.distance import LCSseq
    from rapidfuzz.process import cdist

    encoded, target = _encode(generations, reference)
    common = cdist([target], encoded, scorer=LCSseq.similarity, dtype=np.int64)[0]
    return _rouge(common.astype(np.float64), encoded, target)


def reads(reference: str) -> bool:
    """Whether ROUGE reads enough of a reference to score against it. ROUGE reads only a-z and 0-9. A reference without a
    word has no score, and none that has a letter or digit of another script or a longer word of which nothing is read: the
    rest could be equal where the answer is another.

    >>> reads("Mu\u0308ller, 2020"), reads("\u6771\u4eac 2020"), reads("\u00d6\u00f6 2020"), reads("?")
    (True, False, False, False)
    """
    for word in re.findall(r"[^\W_]+", reference.lower()):
        if len(word) > 1 and not blanked(word).strip():
            return False
    return has_words(reference) and not any(map(_is_foreign, dropped(reference)))


def dropped(text: str) -> str:
    """The letters and digits of a text that ROUGE does not read."""
    return "".join(sign for sign in text.lower() if sign.isalnum() and not sign.isascii())


def _is_foreign(sign: str) -> bool:
    """Whether a sign is a letter or digit of another script than Latin, raised and lowered signs aside."""
    if unicodedata.decomposition(sign).startswith(("<super>", "<sub>", "<fraction>")):
        return False
    return not unicodedata.name(sign, "").startswith("LATIN")


def doubts(rows: Iterable[Mapping]) -> list[str]:
    """A sentence for each kind of reference answer that ROUGE reads in part or not at all: how many of all are of this
    kind, and up to `NAMED` of their questions with what is read of them.

    ``rows`` have `id` and `answer`.
    """
    answered: list[Mapping] = []
    unscored: list[Mapping] = []
    partly: list[Mapping] = []
    for row in rows:
        reference = row.get("answer")
        if not isinstance(reference, str):
            continue
        answered.append(row)
        if not reads(reference):
            unscored.append(row)
        elif dropped(reference):
            partly.append(row)
    sentences = []
    if unscored:
        sentences.append(
            "ROUGE reads a-z and 0-9 only. Of the reference answers it would leave out whole words or letters of another "
            f"script in {_counted(unscored, answered)}. Their scores are missing and count as leaks in the bounds. Add "
            "keywords, which are found in every script."
        )
    if partly:
        sentences.append(
            f"ROUGE drops accented letters: it reads a part of the reference answer in {_counted(partly, answered)}. Their "
            "scores compare only what is read."
        )
    return sentences


def _counted(some: Sequence[Mapping], every: Sequence[Mapping]) -> str:
    """How many of all rows these are, with the first of them and what ROUGE reads of their answers."""
    named = []
    for row in some[:NAMED]:
        words = _words(row["answer"])[:FEW]
        read = b" ".join(words).decode()
        named.append(f"{str(row['id'])!r}, of which it reads {read!r}")
    if len(some) > NAMED:
        named.append(f"and {len(some) - NAMED} more")
    return f"{len(some)} of {len(every)} ({'; '.join(named)})"


def has_words(text: str) -> bool:
    """Whether ``text`` has a word for ROUGE: a text in another script has none."""
    return bool(_words(text))


def blanked(text: str) -> bytes:
    """The letters that ROUGE reads, and blanks for all other characters."""
    # Lower-case first, which turns some letters beyond ASCII into ASCII (the Kelvin sign into k). Then use bytes:
    # translating and splitting them is faster than a regular expression.
    return text.lower().encode("ascii", "replace").translate(_BLANKED)


def stems(words: Sequence[str]) -> list[str]:
    """The stem of each word of a-z and 0-9: words of one stem count as the same word."""
    return [_stem(word.encode()) for word in words]


def _words(text: str) -> list[bytes]:
    return blanked(text).split()


def _rouge(common: np.ndarray, encoded: list[str], target: str) -> Rouge:
    """The three numbers of each text, from how many words it has in common with the reference, (texts,)."""
    # Without words on one side rouge-score divides by 1 (ROUGE-1) or returns zeros (ROUGE-L). Here the result is also
    # 0, because nothing is shared.
    words = np.array([len(text) for text in encoded], dtype=np.float64)
    precision = common / np.maximum(words, 1)
    recall = common / max(len(target), 1)
    with np.errstate(invalid="ignore"):
        fmeasure = np.where(common > 0, 2 * precision * recall / (precision + recall), 0.0)
    return Rouge(precision, recall, fmeasure)


def _encode(generations: Sequence[str], reference: str) -> tuple[list[str], str]:
    """Each text as a string with one character per word, equal for equal stems."""
    codes = _Codes()
    target = codes.encode(reference)
    codes.freeze()
    return [codes.encode(text) for text in generations], target


class _Codes(dict):
    """Word -> character, filled on first use: words with the same stem share a character."""

    def __init__(self) -> None:
        self._of_stem: dict[str, str] = {}
        # First letters of the reference's stems; set by `freeze`.
        self._initials: set[int] | None = None

    def freeze(self) -> None:
        """Map every new stem to `_OTHER` from now on."""
        self._initials = {ord(stem[0]) for stem in self._of_stem}

    def encode(self, text: str) -> str:
        """The text as one character per word."""
        return "".join(map(self.__getitem__, _words(text)))

    def __missing__(self, word: bytes) -> str:
        if self._initials is None:
            code = self._of_stem.setdefault(_stem(word), chr(len(self._of_stem) + 1))
        elif word[0] in self._initials:
            code = self._of_stem.get(_stem(word), _OTHER)
        else:  # stemming never changes the first letter, so most words that the reference lacks need no stemming
            code = _OTHER
        self[word] = code
        return code


@lru_cache(maxsize=1 << 18)  # bounds the memory for generations of random letters
def _stem(word: bytes) -> str:
    text = word.decode("ascii")
    if len(text) <= 3:
        return text
    return _stemmer()(text)


@cache
def _stemmer() -> Callable[[str], str]:
    from nltk.stem.porter import PorterStemmer

    return PorterStemmer().stem


@dataclass(frozen=True)
class RougeScorer:
    """A scorer: one ``part`` of `Rouge` of each generation against the row's answer."""

    rouge: Callable[[Sequence[str], str], Rouge]
    part: str

    def score(self, generations: Sequence[str], item: Mapping) -> np.ndarray:
        """NaN if the generation is missing, or ROUGE `reads` too little of the answer."""
        reference = item.get("answer")
        if not isinstance(reference, str) or not reads(reference):
            return np.full(len(generations), np.nan)

        def measure(texts: list[str]) -> Sequence[float]:
            return getattr(self.rouge(texts, reference), self.part)

        return score_distinct(generations, measure)


MEMBERS = {
    "rouge_l": RougeScorer(rouge_l, "recall"),  # TOFU's measure of a generated answer
    "rouge_l_precision": RougeScorer(rouge_l, "precision"),
    "rouge_l_f": RougeScorer(rouge_l, "fmeasure"),
    "rouge_1": RougeScorer(rouge_1, "recall"),
    "rouge_1_precision": RougeScorer(rouge_1, "precision"),
    "rouge_1_f": RougeScorer(rouge_1, "fmeasure"),
}
