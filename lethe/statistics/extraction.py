"""Extraction of passages: edit distance to a passage token by token, and what probabilities of
windows say of a text.

A window is a prefix x and a suffix z of T tokens. ``p_z`` is the probability that the model
continues x by z under a decoding rule (Cooper et al., arXiv 2505.12546). Near-verbatim extraction
is the event that the first T generated tokens have a Levenshtein distance of at most d from z
(arXiv 2603.24917).
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

    Row i holds D(i, j), the distance between a sequence of i tokens and the first j of the target,
    cut at ``most`` + 1.

    Parameters
    ----------
    target
        The T tokens of the target, whole numbers from 0.
    most
        The largest distance that counts as near-verbatim, at least 0.

    Attributes
    ----------
    start
        (T + 1,) the row of the empty sequence.
    other
        The kind of a token that is none of the target's; the kinds below are those of its distinct
        tokens.

    Raises
    ------
    BadValue
        If ``most`` is below 0.

    >>> near = Distance([5, 6, 7], most=1)
    >>> row = near.start[None]
    >>> for token in (5, 9, 7):
    ...     row = near.step(row, np.array([token]))
    >>> near.final(row).tolist()
    [1]
    """

    def __init__(self, target: ArrayLike, most: int):
        check(most >= 0, "distance", most, "a whole number of at least 0")
        self.target = np.asarray(target, dtype=np.int64)
        self.most = most

        # The tokens that can match are a kind each, and all others are one kind more.
        self.kinds, kind_of_place = np.unique(self.target, return_inverse=True)
        self.other = len(self.kinds)
        self.mismatch = np.arange(self.other + 1)[:, None] != kind_of_place  # (kinds + 1, T)

        self.steps = np.arange(len(self.target) + 1)
        self.start = np.minimum(self.steps, most + 1)

    def kind_of(self, tokens: np.ndarray) -> np.ndarray:
        """The kind of each token: its place among the target's tokens, or that of all others."""
        places = np.searchsorted(self.kinds, tokens)
        return np.where(np.isin(tokens, self.kinds), places, self.other)

    def after(self, rows: np.ndarray, kinds: np.ndarray) -> np.ndarray:
        """The rows (m, T + 1) of sequences with one more token of the given kinds (m,).

        D(i, j) is the least of D(i - 1, j) + 1, D(i - 1, j - 1) + [tokens differ] and
        D(i, j - 1) + 1.
        """
        inserted = rows[:, 1:] + 1
        replaced = rows[:, :-1] + self.mismatch[kinds]
        longer = np.empty_like(rows)
        longer[:, 0] = rows[:, 0] + 1
        longer[:, 1:] = np.minimum(inserted, replaced)

        # Tokens of the target left out cost 1 each: a running minimum along the row.
        longer = np.minimum.accumulate(longer - self.steps, axis=1) + self.steps
        return np.minimum(longer, self.most + 1)

    def step(self, rows: np.ndarray, tokens: np.ndarray) -> np.ndarray:
        """The rows of sequences with one more token each, (m,)."""
        return self.after(rows, self.kind_of(tokens))

    def children(self, rows: np.ndarray, masses: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What each sequence becomes by one more token.

        Tokens of one kind lead to the same row, so there are fewer kinds than tokens.

        Parameters
        ----------
        rows
            (m, T + 1) those of the sequences.
        masses
            (m, V) the probabilities of the next token; a token without mass may have any kind.

        Returns
        -------
        tuple of numpy.ndarray
            (m, kinds, T + 1) the rows after every kind of token, and (m, V) the kind of each token.
        """
        n_kinds = self.other + 1
        parents = np.repeat(rows, n_kinds, axis=0)
        children = self.after(parents, np.tile(np.arange(n_kinds), len(rows)))

        kind_of_token = self.kind_of(np.arange(masses.shape[1]))
        return (
            children.reshape(len(rows), n_kinds, -1),
            np.broadcast_to(kind_of_token, masses.shape),
        )

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
        """Whether every continuation by at most ``left`` tokens is within the distance, (m,).

        A continuation w from column j adds at most max(|w|, T - j) edits.
        """
        added = np.maximum(left, len(self.target) - self.steps)
        return (rows + added).min(axis=1) <= self.most


class Words(Distance):
    """The same in words: what blanks separate in the bytes of the tokens' text.

    A state is a row of the edit table over the finished words, and last the open word, which the
    next token may extend: 0 for none, the place of the beginning of a target word, or ``unknown``.

    Parameters
    ----------
    tokens
        Those of the target, whose bytes together hold its words.
    most
        The largest distance in words that counts as near-verbatim, at least 0.
    pieces
        The bytes of every token.

    Notes
    -----
    The outcome of a token behind an open word is a tuple: the kinds of the words that it finishes,
    and last the new open word. ``kind_of_open[place]`` is the kind of an open word if it ends here.
    Row ``other`` + place of ``mismatch`` says which words of the target the open word cannot
    become.

    >>> near = Words([0, 1], most=1, pieces=[b"a b", b"c", b" "])
    >>> near.final(near.step(near.step(near.start[None], np.array([0])), np.array([2]))).tolist()
    [1]
    """

    def __init__(self, tokens: ArrayLike, most: int, pieces: Sequence[bytes]):
        text = b"".join(pieces[token] for token in np.asarray(tokens).tolist())
        target = text.split()
        words = sorted(set(target))
        super().__init__([words.index(word) for word in target], most)
        self.pieces = pieces
        self.most_words = max(len(piece.split()) for piece in pieces)

        # Every word that may be open and still become a word of the target.
        beginnings: set[bytes] = set()
        for word in words:
            beginnings.update(word[:length] for length in range(1, len(word) + 1))
        self.texts = [b"", *sorted(beginnings)]
        self.unknown = len(self.texts)
        self.places = dict(zip(self.texts, range(self.unknown), strict=True))

        kind_of_word = dict(zip(words, range(self.other), strict=True))
        kinds = [kind_of_word.get(text, self.other) for text in self.texts]
        self.kind_of_open = np.array([*kinds, self.other])

        # Below the rows of finished words one for each open word: which words it cannot become.
        mismatch = list(self.mismatch)
        for text in self.texts[1:]:
            mismatch.append([not word.startswith(text) for word in target])
        mismatch.append([True] * len(target))
        self.mismatch = np.array(mismatch).reshape(-1, len(target))

        self.start = np.append(self.start, 0)
        self._by_place: dict[int, tuple[np.ndarray, dict[tuple[int, ...], int]]] = {}

    def _read(self, place: int, piece: bytes) -> tuple[int, ...]:
        """The outcome of a piece behind the open word at ``place``."""
        finished = []
        for number, text in enumerate(re.split(rb"\s+", piece)):
            if number and place:
                finished.append(int(self.kind_of_open[place]))
                place = 0
            if text and place < self.unknown:
                place = self.places.get(self.texts[place] + text, self.unknown)
        return *finished, place

    def _outcomes(self, place: int, tokens: np.ndarray) -> tuple[np.ndarray, list[tuple[int, ...]]]:
        """(V,) the number of each token's outcome behind an open word, -1 if never read, and the
        outcomes by number.

        Read are ``tokens`` and those of earlier calls.
        """
        if place not in self._by_place:
            self._by_place[place] = (np.full(len(self.pieces), -1), {})
        numbers, outcomes = self._by_place[place]
        for token in tokens[numbers[tokens] < 0].tolist():
            outcome = self._read(place, self.pieces[token])
            numbers[token] = outcomes.setdefault(outcome, len(outcomes))
        return numbers, list(outcomes)

    def _moved(self, states: np.ndarray, outcomes: Sequence[tuple[int, ...]]) -> np.ndarray:
        """(m, T + 2) the ``states`` after one outcome each."""
        rows = states[:, :-1]
        open_words = np.array([outcome[-1] for outcome in outcomes], dtype=np.int64)
        n_finished = np.array([len(outcome) - 1 for outcome in outcomes], dtype=np.int64)
        for word in range(max(n_finished, default=0)):
            longer = np.flatnonzero(n_finished > word)
            kinds = np.array([outcomes[state][word] for state in longer])
            rows = rows.copy()
            rows[longer] = self.after(rows[longer], kinds)
        return np.concatenate([rows, open_words[:, None]], axis=1)

    def step(self, rows: np.ndarray, tokens: np.ndarray) -> np.ndarray:
        outcomes = []
        for place, token in zip(rows[:, -1].tolist(), tokens.tolist(), strict=True):
            outcomes.append(self._read(place, self.pieces[token]))
        return self._moved(rows, outcomes)

    def children(self, rows: np.ndarray, masses: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        numbers = []
        outcomes_by_row = []
        for place, mass in zip(rows[:, -1].tolist(), masses, strict=True):
            number_of_token, outcomes = self._outcomes(place, np.flatnonzero(mass))
            numbers.append(number_of_token)
            outcomes_by_row.append(outcomes)

        most = max(map(len, outcomes_by_row), default=0)
        padded: list[tuple[int, ...]] = []
        for outcomes in outcomes_by_row:
            padded += outcomes
            padded += [(0,)] * (most - len(outcomes))
        children = self._moved(np.repeat(rows, most, axis=0), padded)
        return children.reshape(len(rows), most, -1), np.array(numbers)

    def least(self, rows: np.ndarray) -> np.ndarray:
        return rows[..., :-1].min(axis=-1)

    def alive(self, rows: np.ndarray) -> np.ndarray:
        edits = rows[:, :-1]
        places = rows[:, -1]
        at_best = self.after(edits, self.other + places)
        return np.where(places[:, None] > 0, at_best, edits).min(axis=1) <= self.most

    def final(self, rows: np.ndarray) -> np.ndarray:
        edits = rows[:, :-1]
        places = rows[:, -1]
        ended = self.after(edits, self.kind_of_open[places])
        return np.where(places > 0, ended[:, -1], edits[:, -1])

    def certain(self, rows: np.ndarray, left: int) -> np.ndarray:
        """At most the open word and the words of ``left`` tokens are still to come."""
        words_left = left * self.most_words + (rows[:, -1:] > 0)
        added = np.maximum(words_left, len(self.target) - self.steps)
        within = (rows[:, :-1] + added).min(axis=1) <= self.most
        if left:
            return within
        return within | (self.final(rows) <= self.most)


def discoverable(
    probabilities: ArrayLike, queries: ArrayLike = QUERIES, chances: ArrayLike = CHANCES
) -> np.ndarray:
    """The share of windows that n queries reproduce with probability at least p,
    1 - (1 - p_z)^n >= p.

    Parameters
    ----------
    probabilities
        (windows,) p_z of each window.
    queries
        The numbers n of queries.
    chances
        The levels p, in (0, 1).

    Returns
    -------
    numpy.ndarray
        (queries, chances), NaN where there is no window.

    Notes
    -----
    (n, p)-discoverable extraction: Hayes et al. (arXiv 2410.19482).

    >>> discoverable([0.5, 1e-6], queries=[1, 10], chances=[0.5, 0.9]).tolist()
    [[0.5, 0.0], [0.5, 0.5]]
    """
    p_z = np.atleast_1d(np.asarray(probabilities, dtype=np.float64))
    n = np.atleast_1d(queries)
    levels = np.atleast_1d(np.asarray(chances, dtype=np.float64))
    if not len(p_z):
        return np.full((len(n), len(levels)), np.nan)
    needed = np.stack([queries_until(p_z, float(level)) for level in levels])  # (P, windows)
    return (needed <= n[:, None, None]).mean(axis=2)


def longest_run(probabilities: ArrayLike, least: float = 0.5) -> tuple[int, int]:
    """The longest run of neighbouring windows that each have at least ``least``: (first window,
    length).

    (0, 0) where no window has; of equally long runs the first.

    >>> longest_run([0.9, 0.1, 0.6, 0.7])
    (2, 2)
    """
    reaches = np.asarray(probabilities, dtype=np.float64) >= least
    edges = np.flatnonzero(np.diff(reaches.astype(np.int8), prepend=0, append=0))
    starts = edges[::2]
    if not len(starts):
        return 0, 0
    lengths = edges[1::2] - starts
    longest = int(lengths.argmax())
    return int(starts[longest]), int(lengths[longest])
