"""Extraction of passages: edit distance to a passage token by token, and what probabilities of windows say of a text.

A window is a prefix x and a suffix z of T tokens. ``p_z`` is the probability that the model continues x by z under a decoding
rule (Cooper et al., arXiv 2505.12546). Near-verbatim extraction is the event that the first T generated tokens have a
Levenshtein distance of at most d from z (arXiv 2603.24917).
"""

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from lethe.statistics.answer_tree import queries_until
from lethe.statistics.checks import check

QUERIES = tuple(10**power for power in range(7))  # n of (n, p)-discoverable extraction
CHANCES = (0.1, 0.5, 0.9, 0.99)  # p of (n, p)-discoverable extraction
EXTRACTABLE = 1e-3  # Cooper et al.: a window with at least this probability is extractable


class Distance:
    """Levenshtein distances between growing sequences and one target, row by row of the edit table.

    Row i holds D(i, j), the distance between a sequence of i tokens and the first j of the target, cut at ``most`` + 1:
    ``most``, at least 0, is the largest distance that counts as near-verbatim.

    >>> near = Distance([5, 6, 7], most=1)
    >>> row = near.start[None]
    >>> for token in (5, 9, 7):
    ...     row = near.step(row, np.array([token]))
    >>> near.final(row).tolist()
    [1]
    """

    def __init__(self, target: ArrayLike, most: int):
        self.target, self.most = np.asarray(target, dtype=np.int64), most
        check(most >= 0, "distance", most, "a whole number of at least 0")
        # tokens that can match, and the rest as one kind
        self.kinds, kind = np.unique(self.target, return_inverse=True)
        self.other = len(self.kinds)
        self.mismatch = np.arange(self.other + 1)[:, None] != kind[None, :]  # (kinds + 1, T)
        self.steps = np.arange(len(self.target) + 1)
        self.start = np.minimum(self.steps, most + 1)

    def kind_of(self, tokens: np.ndarray) -> np.ndarray:
        """The kind of each token: its place among the target's tokens, or that of all others."""
        return np.where(
            np.isin(tokens, self.kinds), np.searchsorted(self.kinds, tokens), self.other
        )

    def after(self, rows: np.ndarray, kinds: np.ndarray) -> np.ndarray:
        """The rows (m, T + 1) of sequences with one more token of the given kinds (m,)."""
        new = np.empty_like(rows)
        new[:, 0] = rows[:, 0] + 1
        new[:, 1:] = np.minimum(rows[:, 1:] + 1, rows[:, :-1] + self.mismatch[kinds])
        new = (
            np.minimum.accumulate(new - self.steps, axis=1) + self.steps
        )  # tokens of the target left out
        return np.minimum(new, self.most + 1)

    def step(self, rows: np.ndarray, tokens: np.ndarray) -> np.ndarray:
        """The rows of sequences with one more token each, (m,)."""
        return self.after(rows, self.kind_of(tokens))

    def children(self, rows: np.ndarray, masses: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The rows after every kind of token, (m, kinds, T + 1), and the kind of each token, (m, V); a token without mass
        may have any."""
        kinds = self.other + 1
        after = self.after(np.repeat(rows, kinds, axis=0), np.tile(np.arange(kinds), len(rows)))
        kind = np.broadcast_to(self.kind_of(np.arange(masses.shape[1])), masses.shape)
        return after.reshape(len(rows), kinds, -1), kind

    def least(self, rows: np.ndarray) -> np.ndarray:
        """The edits so far: the smallest entry of each row of (..., T + 1)."""
        return rows.min(axis=-1)

    def alive(self, rows: np.ndarray) -> np.ndarray:
        """Whether some continuation may still come within the distance, (m,)."""
        return rows.min(axis=1) <= self.most

    def final(self, rows: np.ndarray) -> np.ndarray:
        """The distances (m,) of sequences that end here; ``most`` + 1 stands for anything larger."""
        return rows[:, -1]

    def certain(self, rows: np.ndarray, left: int) -> np.ndarray:
        """Whether every continuation by at most ``left`` tokens is within the distance, (m,)."""
        rest = np.maximum(left, len(self.target) - self.steps)  # at most max(|w|, T - j)
        return (rows + rest).min(axis=1) <= self.most


class Words(Distance):
    """The same in words: what blanks separate in the bytes of the tokens' text.

    A state is a row of the edit table over the finished words, and last the open word, which the next token may extend: 0
    for none, the place of the beginning of a target word, or ``unknown``. ``pieces`` holds the bytes of every token.

    >>> near = Words([0, 1], most=1, pieces=[b"a b", b"c", b" "])
    >>> near.final(near.step(near.step(near.start[None], np.array([0])), np.array([2]))).tolist()
    [1]
    """

    def __init__(self, tokens: ArrayLike, most: int, pieces: Sequence[bytes]):
        target = b"".join(pieces[token] for token in np.asarray(tokens).tolist()).split()
        words = sorted(set(target))
        super().__init__([words.index(word) for word in target], most)
        self.pieces, self.most_words = pieces, max(len(piece.split()) for piece in pieces)
        beginnings = sorted({word[: end + 1] for word in words for end in range(len(word))})
        self.texts = [b"", *beginnings]
        self.places, self.unknown = (
            {text: place for place, text in enumerate(self.texts)},
            len(self.texts),
        )
        whole = [words.index(text) if text in words else self.other for text in self.texts]
        self.whole = np.array([*whole, self.other])  # the kind of each open word, if it ends
        # row ``other`` + place: what the open word cannot become
        never = [[not word.startswith(text) for word in target] for text in beginnings]
        self.mismatch = np.array([*self.mismatch, *never, [True] * len(target)]).reshape(
            -1, len(target)
        )
        self.start = np.append(self.start, 0)
        self._by_place: dict[int, tuple[np.ndarray, dict[tuple[int, ...], int]]] = {}

    def _read(self, place: int, piece: bytes) -> tuple[int, ...]:
        """The open word behind a piece, and before it the kinds of the words that the piece finishes."""
        finished = []
        for number, part in enumerate(re.split(rb"\s+", piece)):
            if number and place:
                finished.append(int(self.whole[place]))
                place = 0
            if part and place < self.unknown:
                place = self.places.get(self.texts[place] + part, self.unknown)
        return *finished, place

    def _outcomes(self, place: int, tokens: np.ndarray) -> tuple[np.ndarray, list[tuple[int, ...]]]:
        """The outcome of every token behind an open word, read for ``tokens`` and those before."""
        number, outcomes = self._by_place.setdefault(place, (np.full(len(self.pieces), -1), {}))
        for token in tokens[number[tokens] < 0].tolist():
            number[token] = outcomes.setdefault(
                self._read(place, self.pieces[token]), len(outcomes)
            )
        return number, list(outcomes)

    def _moved(self, states: np.ndarray, outcomes: Sequence[tuple[int, ...]]) -> np.ndarray:
        """Each state after its outcome."""
        rows, new = states[:, :-1], np.array([outcome[-1] for outcome in outcomes], dtype=np.int64)
        sizes = np.array([len(outcome) - 1 for outcome in outcomes], dtype=np.int64)
        for word in range(max(sizes, default=0)):
            more = np.flatnonzero(sizes > word)
            rows = rows.copy()
            rows[more] = self.after(rows[more], np.array([outcomes[place][word] for place in more]))
        return np.concatenate([rows, new[:, None]], axis=1)

    def step(self, rows: np.ndarray, tokens: np.ndarray) -> np.ndarray:
        each = zip(rows[:, -1].tolist(), tokens.tolist(), strict=True)
        return self._moved(rows, [self._read(place, self.pieces[token]) for place, token in each])

    def children(self, rows: np.ndarray, masses: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        each = zip(rows[:, -1].tolist(), masses, strict=True)
        read = [self._outcomes(place, np.flatnonzero(mass)) for place, mass in each]
        most = max((len(outcomes) for _, outcomes in read), default=0)
        padded = [[*outcomes, *[(0,)] * (most - len(outcomes))] for _, outcomes in read]
        after = self._moved(
            np.repeat(rows, most, axis=0), [outcome for row in padded for outcome in row]
        )
        return after.reshape(len(rows), most, -1), np.array([number for number, _ in read])

    def least(self, rows: np.ndarray) -> np.ndarray:
        return rows[..., :-1].min(axis=-1)

    def alive(self, rows: np.ndarray) -> np.ndarray:
        edits, place = rows[:, :-1], rows[:, -1]
        hopeful = self.after(edits, self.other + place)
        return np.where(place[:, None] > 0, hopeful, edits).min(axis=1) <= self.most

    def final(self, rows: np.ndarray) -> np.ndarray:
        edits, place = rows[:, :-1], rows[:, -1]
        return np.where(place > 0, self.after(edits, self.whole[place])[:, -1], edits[:, -1])

    def certain(self, rows: np.ndarray, left: int) -> np.ndarray:
        """At most the open word and the words of ``left`` tokens are still to come."""
        more = left * self.most_words + (rows[:, -1:] > 0)
        ends = (self.final(rows) <= self.most) & (left == 0)
        rest = np.maximum(more, len(self.target) - self.steps)
        return ends | ((rows[:, :-1] + rest).min(axis=1) <= self.most)


def discoverable(
    probabilities: ArrayLike, queries: ArrayLike = QUERIES, chances: ArrayLike = CHANCES
) -> np.ndarray:
    """(queries, chances) the share of windows with 1 - (1 - p_z)^n >= p: (n, p)-discoverable extraction (Hayes et al., arXiv
    2410.19482); NaN where there is no window.
    """
    p = np.atleast_1d(np.asarray(probabilities, dtype=np.float64))
    n, least = np.atleast_1d(queries), np.atleast_1d(np.asarray(chances, dtype=np.float64))
    if not len(p):
        return np.full((len(n), len(least)), np.nan)
    needed = np.stack([queries_until(p, float(chance)) for chance in least])  # (P, windows)
    return (needed[None] <= n[:, None, None]).mean(axis=2)


def longest_run(probabilities: ArrayLike, least: float = 0.5) -> tuple[int, int]:
    """The longest run of neighbouring windows that each have at least ``least``: (first window, length)."""
    hits = np.concatenate([[False], np.asarray(probabilities, dtype=np.float64) >= least, [False]])
    edges = np.flatnonzero(np.diff(hits.astype(np.int8)))
    starts, lengths = edges[::2], edges[1::2] - edges[::2]
    if not len(starts):
        return 0, 0
    best = int(lengths.argmax())
    return int(starts[best]), int(lengths[best])
