"""The frontier of a forest: the live distinct prefixes, and the samples that follow each prefix.

All samples of one prompt start on one row, the prompt. A step draws every sample's next token; samples that
drew the same token on the same row share a row again. A row is therefore a distinct prefix, and the rows are the
frontier of the trie of all samples. This module does only the bookkeeping, in NumPy; the engine owns keys, values and
logits.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True, eq=False)
class Branch:
    """Work that can start at any time: equally long prefixes of one prompt, and the samples that follow them.

    ``prompt`` is the prompt's index; ``tokens`` (rows, length) include the prompt's; ``confidence``
    (rows,) sums the top probabilities of the steps so far; sample ``number[i]`` follows prefix ``row[i]``.
    """

    prompt: int
    tokens: np.ndarray
    confidence: np.ndarray
    number: np.ndarray
    row: np.ndarray

    @property
    def length(self) -> int:
        return self.tokens.shape[1]


@dataclass(frozen=True)
class Leaf:
    """A finished answer and the samples that drew it. ``tokens`` are the generated tokens, the end token included."""

    tokens: tuple[int, ...]
    number: np.ndarray
    mean_confidence: float
    stopped: bool


@dataclass
class Running:
    """A running branch: its start, in case of a restart, and its finished leaves."""

    start: Branch
    leaves: list[Leaf] = field(default_factory=list)
    most_rows: int = 0


class Frontier:
    """Flat arrays over the live rows of all running branches, and over the samples that follow them.

    All rows are equally long, so no row is padded: a prompt joins when the rows reach the prompt's length.
    Rows: ``owner`` (key of ``running``), ``prompt_length``, ``confidence``, ``tokens`` (rows, length), and
    between `grow` and `settle` the ``parent`` row. Samples: ``row``, ``number``, and ``lane``, its row of
    ``table``.
    """

    def __init__(self, end_ids: tuple[int, ...], max_new_tokens: int, vocabulary: int):
        self.end_ids, self.max_new_tokens, self.vocabulary = np.array(end_ids, int), max_new_tokens, vocabulary
        self.running: dict[int, Running] = {}
        self._joined = 0
        self.clear(0)

    def clear(self, length: int) -> None:
        """Remove all rows and set the length."""
        self.tokens = np.zeros((0, length), np.int64)
        self.owner = self.prompt_length = self.parent = np.zeros(0, np.int64)
        self.confidence = np.zeros(0)
        self.row = self.number = self.lane = np.zeros(0, np.int64)
        self.table = np.zeros((0, self.max_new_tokens), np.int64)

    @property
    def length(self) -> int:
        return self.tokens.shape[1]

    def __len__(self) -> int:
        return len(self.tokens)

    def join(self, branch: Branch, prompt_length: int, table: np.ndarray) -> None:
        """Append a branch's rows."""
        key, rows = self._joined, len(branch.tokens)
        self._joined += 1
        self.running[key] = Running(branch, most_rows=rows)
        self.row = np.concatenate([self.row, branch.row + len(self)])
        self.number = np.concatenate([self.number, branch.number])
        self.table = np.concatenate([self.table[self.lane], table])
        self.lane = np.arange(len(self.table))
        self.tokens = np.concatenate([self.tokens, branch.tokens])
        self.confidence = np.concatenate([self.confidence, branch.confidence])
        self.owner, self.parent = np.append(self.owner, np.full(rows, key)), np.arange(len(self))
        self.prompt_length = np.append(self.prompt_length, np.full(rows, prompt_length))

    def steps_done(self) -> np.ndarray:
        """Tokens generated so far on each row."""
        return self.length - self.prompt_length

    def draws(self) -> np.ndarray:
        """Each sample's draw for the coming step."""
        return self.table[self.lane, self.steps_done()[self.row]]

    def grow(self, top_probability: np.ndarray, drawn: np.ndarray) -> None:
        """Put every sample on the row of its new token; finished answers become leaves of their branch.

        ``top_probability`` (rows,), ``drawn`` (samples,).
        """
        self.confidence = self.confidence + top_probability
        children, row = np.unique(self.row * self.vocabulary + drawn, return_inverse=True)
        parent, token = children // self.vocabulary, children % self.vocabulary
        self.tokens = np.column_stack([self.tokens[parent], token])
        self.parent, self.row = parent, row.reshape(-1)
        self.owner, self.prompt_length = self.owner[parent], self.prompt_length[parent]
        self.confidence = self.confidence[parent]
        stopped = np.isin(token, self.end_ids)
        finished = stopped | (self.steps_done() == self.max_new_tokens)
        if finished.any():
            self._shed(finished, stopped)
        for key, rows in zip(*np.unique(self.owner, return_counts=True), strict=True):
            self.running[key].most_rows = max(self.running[key].most_rows, rows)

    def _shed(self, finished: np.ndarray, stopped: np.ndarray) -> None:
        samples = np.flatnonzero(finished[self.row])
        samples = samples[np.argsort(self.row[samples], kind="stable")]
        groups = np.split(samples, np.flatnonzero(np.diff(self.row[samples])) + 1)
        means = self.confidence / self.steps_done()
        for row, group in zip(np.flatnonzero(finished), groups, strict=True):
            answer = tuple(self.tokens[row, self.prompt_length[row] :].tolist())
            leaf = Leaf(answer, self.number[group], float(means[row]), bool(stopped[row]))
            self.running[self.owner[row]].leaves.append(leaf)
        self._keep(~finished)

    def _keep(self, rows: np.ndarray) -> None:
        """Drop the other rows, and the samples that follow them. ``rows``: (rows,) of bool."""
        samples = rows[self.row]
        self.row = (np.cumsum(rows) - 1)[self.row[samples]]
        self.number, self.lane = self.number[samples], self.lane[samples]
        for name in ("tokens", "owner", "prompt_length", "confidence", "parent"):
            setattr(self, name, getattr(self, name)[rows])

    def finished(self) -> list[Running]:
        """Remove and return the branches without live rows."""
        done = [key for key in self.running if key not in set(self.owner.tolist())]
        return [self.running.pop(key) for key in done]

    def split(self, key: int, most_rows: int) -> tuple[Running, list[Branch]]:
        """Remove a branch; returns its finished part and the rest in parts of up to ``most_rows`` rows.

        The parts are cut in the order of their tokens, so they do not depend on other branches.
        """
        own = np.flatnonzero(self.owner == key)
        own = own[np.lexsort(self.tokens[own].T[::-1])]
        parts = [self._branch(own[start : start + most_rows]) for start in range(0, len(own), most_rows)]
        self._keep(self.owner != key)
        return self.running.pop(key), parts

    def _branch(self, rows: np.ndarray) -> Branch:
        position = np.full(len(self), -1)
        position[rows] = np.arange(len(rows))
        samples = position[self.row] >= 0
        prompt = self.running[self.owner[rows[0]]].start.prompt
        row = position[self.row[samples]]
        return Branch(prompt, self.tokens[rows], self.confidence[rows], self.number[samples], row)

    def abandon(self, key: int) -> Branch:
        """Remove an unfinished branch; returns the branch as it was when it joined."""
        self._keep(self.owner != key)
        return self.running.pop(key).start

    def settle(self) -> tuple[np.ndarray, np.ndarray]:
        """Give every child a slot below the number of children; returns (sources, targets), the slots to copy."""
        order, sources, targets = slots(self.parent)
        for name in ("tokens", "owner", "prompt_length", "confidence", "parent"):
            setattr(self, name, getattr(self, name)[order])
        self.row = np.argsort(order)[self.row]
        return sources, targets


def slots(parents: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The slots of the rows' children: (order, sources, targets), i.e. the children by slot and the slots to copy.

    A parent's first child stays in the parent's slot if that slot is below the number of children; no slot is both a source
    and a target.
    """
    children = len(parents)
    _, first = np.unique(parents, return_index=True)
    stays = np.zeros(children, bool)
    stays[first] = True
    stays &= parents < children
    vacant = np.ones(children, bool)
    vacant[parents[stays]] = False
    slot = parents.copy()
    slot[~stays] = targets = np.flatnonzero(vacant)
    return np.argsort(slot), parents[~stays], targets
