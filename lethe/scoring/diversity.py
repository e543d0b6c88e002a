"""Distinct texts and n-grams among one question's samples, and self-BLEU: the counts of n-grams of all samples at once.

Distinct-n (Li et al., 2016) is the number of distinct n-grams over the number of all n-grams; higher is more diverse.

Self-BLEU is the mean BLEU-4 of each sample against all others, from 0 (nothing shared) to 1 (all alike), equal to NLTK's
sentence_bleu with smoothing method 1 on the same tokens. NLTK compares each sample with all n - 1 others, which takes time
quadratic in n. Here the clipped count of an n-gram is the smaller of its count and the largest count among the others; the
two largest counts of each n-gram over all samples suffice for that. Source: Zhu et al., "Texygen" (2018); Papineni et al.
(2002); smoothing: Chen and Cherry (2014), method 1.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from lethe.scoring.text import is_text

ORDER = 4  # of BLEU
EPSILON = 0.1  # matches counted for an order without a match: NLTK's default
# Words, and every other visible character as one token; case kept.
tokenize = re.compile(r"\w+|[^\w\s]").findall


@dataclass(frozen=True)
class Ngrams:
    """The n-grams of one order, each pair of a text and an n-gram once; sorted by text, then n-gram.

    Attributes
    ----------
    text
        (pairs,) the number of the text.
    gram
        (pairs,) the number of the n-gram.
    count
        (pairs,) how often the text has the n-gram.
    """

    text: np.ndarray
    gram: np.ndarray
    count: np.ndarray


@dataclass(frozen=True)
class Tokens:
    """Distinct token sequences, concatenated.

    Attributes
    ----------
    ids
        (N,) the number of each token.
    text
        (N,) the number of the text that the token stands in.
    length
        (texts,) the number of tokens of each text.
    copies
        (texts,) how many samples have this text.
    """

    ids: np.ndarray
    text: np.ndarray
    length: np.ndarray
    copies: np.ndarray

    @classmethod
    def of(cls, texts: Sequence[str]) -> Self:
        """Tokenize ``texts``: equal sequences are kept once with their number of copies; missing texts are omitted."""
        copies = Counter(tuple(tokenize(text)) for text in texts if is_text(text))
        number: dict[str, int] = {}
        ids: list[int] = []
        for tokens in copies:
            ids += [number.setdefault(token, len(number)) for token in tokens]
        length = np.array(list(map(len, copies)), dtype=np.int64)
        return cls(
            ids=np.array(ids, dtype=np.int64),
            text=np.repeat(np.arange(len(length)), length),
            length=length,
            copies=np.array(list(copies.values()), dtype=np.int64),
        )

    def ngrams(self, highest: int) -> Iterator[Ngrams]:
        """The n-grams of each order from 1 to ``highest``.

        An n-gram is the number of the (n-1)-gram that begins at its place, and its last word: so numbers stay small.
        """
        vocabulary = int(self.ids.max(initial=-1)) + 1
        gram = np.zeros(len(self.ids), dtype=np.int64)  # that starts at each position
        for n in range(1, highest + 1):
            # Those that lie within a text.
            n_starts = max(len(self.ids) - n + 1, 0)
            inside = self.text[:n_starts] == self.text[n - 1 :]

            shorter = gram[: len(inside)]
            last_word = self.ids[n - 1 :]
            key = (shorter * vocabulary + last_word)[inside]
            distinct, number = np.unique(key, return_inverse=True)
            gram = np.zeros(len(inside), dtype=np.int64)
            gram[inside] = number

            text_of_gram = self.text[: len(inside)][inside]
            pair = text_of_gram * len(distinct) + number
            pairs, count = np.unique(pair, return_counts=True)
            text, gram_of_pair = np.divmod(pairs, max(len(distinct), 1))
            yield Ngrams(text, gram_of_pair, count)


def distinct(texts: Sequence[str]) -> float:
    """The share of distinct texts, in (0, 1]; NaN without samples."""
    present = [text for text in texts if is_text(text)]
    if not present:
        return float("nan")
    return len(set(present)) / len(present)


def _distinct_ngrams(texts: Sequence[str], n: int) -> float:
    """Distinct n-grams over all n-grams of the texts together, in (0, 1]; NaN without n-grams."""
    tokens = Tokens.of(texts)
    *_, grams = tokens.ngrams(n)
    count = grams.count * tokens.copies[grams.text]
    total = int(count.sum())
    if not total:
        return float("nan")
    n_distinct = int(grams.gram.max()) + 1
    return n_distinct / total


def self_bleu(texts: Sequence[str]) -> float:
    """Mean over the samples; NaN for fewer than two samples. Lower is more diverse."""
    tokens = Tokens.of(texts)
    if tokens.copies.sum() < 2:
        return float("nan")
    return float(np.average(_bleu_of_texts(tokens), weights=tokens.copies))


def _bleu_of_texts(tokens: Tokens) -> np.ndarray:
    """(texts,) BLEU-4 of each distinct text against all other samples, its own copies included: the brevity penalty times
    the geometric mean of the clipped precisions of the orders 1 to 4.
    """
    log_precision = np.zeros(len(tokens.length))
    for n, grams in enumerate(tokens.ngrams(ORDER), start=1):
        of_others = _second_largest(grams, tokens.copies)
        clipped = np.minimum(grams.count, of_others[grams.gram])
        matches = np.bincount(grams.text, weights=clipped, minlength=len(tokens.length))
        if n == 1:
            nothing_shared = matches == 0
        possible = np.maximum(tokens.length - n + 1, 1)
        smoothed = np.where(matches == 0, EPSILON, matches)
        log_precision += np.log(smoothed / possible) / ORDER

    bleu = _brevity(tokens) * np.exp(log_precision)
    return np.where(nothing_shared, 0.0, bleu)


def _second_largest(grams: Ngrams, copies: np.ndarray) -> np.ndarray:
    """(grams,) the second largest count of each n-gram over all samples, copies counted; 0 if only one sample has it.

    For the sample with the largest count the others reach the second largest; any other's own count is at most that.
    """
    # By n-gram, and of one n-gram the largest count first.
    order = np.argsort(grams.gram * (grams.count.max(initial=0) + 1) - grams.count)
    gram = grams.gram[order]
    count = grams.count[order]
    several = copies[grams.text[order]] > 1

    first = np.flatnonzero(np.diff(gram, prepend=-1))
    follower = np.minimum(first + 1, len(gram) - 1)
    followed = (follower > first) & (gram[follower] == gram[first])
    second = np.where(followed, count[follower], 0)
    return np.where(several[first], count[first], second)


def _brevity(tokens: Tokens) -> np.ndarray:
    """Brevity penalty of each distinct text against the other sample nearest in length; the shorter one on a tie."""
    length, copies = np.unique(np.repeat(tokens.length, tokens.copies), return_counts=True)
    shorter = np.concatenate([[-np.inf], length[:-1]])
    longer = np.concatenate([length[1:], [np.inf]])
    nearest = np.where(length - shorter <= longer - length, shorter, longer)
    reference = np.where(copies > 1, length, nearest)
    penalty = np.where(reference < length, 1.0, np.exp(1 - reference / length))
    return penalty[np.searchsorted(length, tokens.length)]


MEMBERS = {
    "self_bleu": self_bleu,
    "distinct_1": lambda texts: _distinct_ngrams(texts, 1),
    "distinct_2": lambda texts: _distinct_ngrams(texts, 2),
    "distinct": distinct,
}
