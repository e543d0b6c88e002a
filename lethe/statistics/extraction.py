"""Extraction of passages: edit distance to a passage token by token, and what probabilities of windows say of a text.

A window is a prefix x and a suffix z of T tokens. ``p_z`` is the probability that the model continues x by z under a decoding
rule (Cooper et al., arXiv 2505.12546). Near-verbatim extraction is the event that the first T generated tokens have a
Levenshtein distance of at most d from z (arXiv 2603.24917).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from lethe.errors import BadValue
from lethe.statistics.answer_tree import queries_until

QUERIES = tuple(10**power for power in range(7))  # n of (n, p)-discoverable extraction
CHANCES = (0.1, 0.5, 0.9, 0.99)  # p of (n, p)-discoverable extraction
EXTRACTABLE = 1e-3  # Cooper et al.: a window with at least this probability is extractable


class Distance:
    """Levenshtein distances between growing sequences and one target, row by row of the edit table.

    Row i holds D(i, j), the distance between a sequence of i tokens and the first j of the target. Entries above ``most`` +
    1 are all equal to ``most`` + 1, because no decision depends on them: ``most``, at least 0, is the largest distance that
    counts as near-verbatim.

    >>> near = Distance([5, 6, 7], most=1)
    >>> row = near.after(near.start[None], np.array([near.kind_of(5)]))
    >>> row = near.after(row, np.array([near.kind_of(9)]))
    >>> near.final(near.after(row, np.array([near.kind_of(7)]))).tolist()
    [1]
    """

    def __init__(self, target: ArrayLike, most: int):
        self.target, self.most = np.asarray(target, dtype=np.int64), most
        if self.target.ndim != 1 or not len(self.target):
            raise BadValue("suffix", len(self.target), "at least one token")
        if most < 0:
            raise BadValue("distance", most, "a whole number of at least 0")
        self.kinds, kind = np.unique(
            self.target, return_inverse=True
        )  # tokens that can match, and the rest as one kind
        self.other = len(self.kinds)
        self.mismatch = np.arange(self.other + 1)[:, None] != kind[None, :]  # (kinds + 1, T)
        self.steps = np.arange(len(self.target) + 1)
        self.start = np.minimum(self.steps, most + 1)

    def kind_of(self, token: int) -> int:
        """The kind of a token: its place among the target's tokens, or that of all others."""
        place = int(np.searchsorted(self.kinds, token))
        return place if place < self.other and self.kinds[place] == token else self.other

    def after(self, rows: np.ndarray, kinds: np.ndarray) -> np.ndarray:
        """The rows (m, T + 1) of sequences with one more token of the given kinds (m,)."""
        new = np.empty_like(rows)
        new[:, 0] = rows[:, 0] + 1
        new[:, 1:] = np.minimum(rows[:, 1:] + 1, rows[:, :-1] + self.mismatch[kinds])
        new = np.minimum.accumulate(new - self.steps, axis=1) + self.steps  # tokens of the target left out
        return np.minimum(new, self.most + 1)

    def alive(self, rows: np.ndarray) -> np.ndarray:
        """Whether some continuation may still come within the distance, (m,)."""
        return rows.min(axis=1) <= self.most

    def final(self, rows: np.ndarray) -> np.ndarray:
        """The distances (m,) of sequences that end here; ``most`` + 1 stands for anything larger."""
        return rows[:, -1]

    def certain(self, rows: np.ndarray, left: int) -> np.ndarray:
        """Whether every continuation by at most ``left`` tokens is within the distance, (m,).

        The distance of a continuation w of the first j target tokens is at most max(|w|, T - j).
        """
        rest = np.maximum(left, len(self.target) - self.steps)
        return (rows + rest).min(axis=1) <= self.most


def discoverable(
    probabilities: ArrayLike, queries: ArrayLike = QUERIES, chances: ArrayLike = CHANCES
) -> np.ndarray:
    """The share of windows that n queries extract with a chance of at least p: (n, p)-discoverable extraction.

    1 - (1 - p_z)^n >= p (Hayes et al., arXiv 2410.19482). The shares have shape (queries, chances), NaN where there is no
    window.
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
