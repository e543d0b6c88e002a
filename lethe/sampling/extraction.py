"""The probability that a model continues passages of a text, verbatim and nearly so.

`scan` takes one pass per window. `near_verbatim` walks the tree of continuations level by level: the beam of constrained
beam search (arXiv 2603.24917), further prefixes, and the passage itself. Mass that is certainly within the edit distance,
or certainly outside, is decided; the rest is open, and a Poisson sample bounds it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from lethe.config.evaluating import ExtractSettings
from lethe.errors import BadValue
from lethe.results.extraction import Near
from lethe.sampling.answer_tree.enumeration import Level, Predictor
from lethe.sampling.draws import Law
from lethe.statistics.answer_tree import Masses, Remainder
from lethe.statistics.extraction import Distance, Words
from lethe.statistics.streams import stream

if TYPE_CHECKING:
    from lethe.sampling.predictor import ModelPredictor

# Of the further prefixes a quarter has at most one edit, half the most mass, the rest the largest log mass - 4 x edits.
LIKE_EDITS = 4.0
BYTES = 24  # per entry of a window's logits: float32, float64 and a working copy


@dataclass(frozen=True)
class Window:
    """``prefix`` and ``suffix``, tokens of a text; ``start`` is the place of the first token of the prefix, or of the
    question among those of the dataset, whose ``id`` and ``split`` it has."""

    start: int
    prefix: tuple[int, ...]
    suffix: tuple[int, ...]
    id: str = ""
    split: str | None = None


def windows_of(tokens: Sequence[int], prefix: int, suffix: int, stride: int) -> list[Window]:
    """Every ``stride``-th window of a text that has all its tokens."""
    for name, value in [("prefix", prefix), ("suffix", suffix), ("stride", stride)]:
        if value < 1:
            raise BadValue(name, value, "a whole number of at least 1")
    windows = []
    for at in range(0, len(tokens) - prefix - suffix + 1, stride):
        middle = at + prefix
        windows.append(
            Window(
                at, tuple(tokens[at:middle]), tuple(tokens[middle : middle + suffix]), f"w{at:06d}"
            )
        )
    return windows


def scan(
    predictor: ModelPredictor, windows: Sequence[Window], law: Law, memory: int
) -> Iterator[np.ndarray]:
    """The conditional probability of each suffix token, an array (T,) per window: their product is p_z."""
    longest = max((len(window.prefix) + len(window.suffix) for window in windows), default=1)
    positions = longest - min((len(window.prefix) for window in windows), default=0)
    size = max(1, memory // (BYTES * predictor.vocabulary * positions))
    for part in (windows[at : at + size] for at in range(0, len(windows), size)):
        for window, logits in zip(part, _logits(predictor, part), strict=True):
            chances = law.probabilities(logits, np.zeros(len(logits)), 0)[0]
            yield chances[np.arange(len(logits)), list(window.suffix)]


def path_of(predictor: ModelPredictor, window: Window, law: Law) -> np.ndarray:
    """(T, V) the next-token probabilities along a window's own suffix, in one pass."""
    logits = _logits(predictor, [window])[0]
    return law.probabilities(logits, np.zeros(len(logits)), 0)[0]


def _logits(predictor: ModelPredictor, windows: Sequence[Window]) -> list[np.ndarray]:
    """(T, V) the logits that predict each suffix token of each window; what pads a window comes behind it, unseen."""
    width = max(len(window.prefix) + len(window.suffix) for window in windows)
    first = min(len(window.prefix) for window in windows)
    tokens = np.zeros((len(windows), width), np.int64)
    for row, window in zip(tokens, windows, strict=True):
        row[: len(window.prefix) + len(window.suffix)] = [*window.prefix, *window.suffix]
    logits = predictor.forward.passed(tokens, width - first).float().cpu().numpy()
    starts = [len(window.prefix) - first for window in windows]
    own = zip(logits, starts, windows, strict=True)
    return [row[start : start + len(window.suffix)] for row, start, window in own]


@dataclass(frozen=True)
class _Rows(Level):
    """Prefixes of one length. ``beam``: a member of the beam. ``open``: undecided; the beam reads on below decided
    prefixes too, but their mass counts once. ``read``: the model can read on, unlike the passage that stands in from
    the scan."""

    tokens: np.ndarray
    edits: np.ndarray
    mass: np.ndarray
    beam: np.ndarray
    open: np.ndarray
    read: np.ndarray
    on_path: np.ndarray
    parent: np.ndarray


@dataclass(frozen=True)
class _Rest:
    """A prefix some of whose continuations were left unread: their mass, and the tokens that were taken."""

    tokens: np.ndarray
    edits: np.ndarray
    mass: float
    taken: np.ndarray


def near_verbatim(
    predictor: Predictor,
    window: Window,
    law: Law,
    settings: ExtractSettings,
    path: np.ndarray | None = None,
    pieces: Sequence[bytes] | None = None,
) -> Near:
    """Search the continuations of one window: ``beam`` prefixes of each length are those of constrained beam search,
    ``further`` more are read beside them, and about ``samples`` continuations of what stays open are sampled for the upper
    end. ``path`` (T, V) are the probabilities along the suffix from the scan, which make the lower end at least p_z without
    a further row. With ``pieces``, the bytes of every token, the distance counts words."""
    own = window.suffix, settings.distance
    near = Words(*own, pieces) if pieces else Distance(*own)
    own_law = law.model_copy(update={"max_new_tokens": len(window.suffix)})
    return _Search(predictor, window, own_law, settings, path, near).run()


@dataclass
class _Search:
    predictor: Predictor
    window: Window
    law: Law
    search: ExtractSettings
    path: np.ndarray | None
    near: Distance
    rests: list[_Rest] = field(default_factory=list)
    rows: int = 0

    def __post_init__(self) -> None:
        self.length = len(self.window.suffix)
        self.inside, self.outside = np.zeros((2, self.length))

    def run(self) -> Near:
        yes = np.ones(1, bool)
        tokens = np.array([self.window.prefix], np.int64)
        rows = _Rows(
            tokens, self.near.start[None], np.ones(1), yes, yes, yes, yes, np.zeros(1, np.int64)
        )
        self.predictor.begin(rows.tokens, len(self.window.prefix) + self.length)
        for step in range(self.length):
            children = self._children(rows, step)
            if step + 2 == self.length:  # nobody reads on below the last level
                children = children.take(np.flatnonzero(children.open))
            if not len(children):
                break
            order = self.predictor.fork(children.parent[children.read])
            places = np.flatnonzero(children.read)[order], np.flatnonzero(~children.read)
            rows = children.take(np.concatenate(places))
        remainder = self._sampled() if self.search.samples and self.rests else Remainder()
        return Near(Masses(tuple(self.inside), tuple(self.outside)), remainder, self.rows)

    def _chances(self, rows: _Rows, step: int) -> np.ndarray:
        chances = np.empty((len(rows), self.predictor.vocabulary))
        if rows.read.any():
            chances[rows.read] = self._next(rows.tokens[rows.read, -1], step)
        if not rows.read.all() and self.path is not None:
            chances[~rows.read] = self.path[step]
        return chances

    def _next(self, tokens: np.ndarray, step: int) -> np.ndarray:
        self.rows += len(tokens)
        logits = self.predictor.step(tokens)
        return self.law.probabilities(logits, np.zeros(len(logits)), step)[0]

    def _children(self, rows: _Rows, step: int) -> _Rows:
        """Read one level, decide what is certain, and choose the prefixes of the next level."""
        masses = self._chances(rows, step) * rows.mass[:, None]
        ended = masses[:, list(self.law.end_ids)].sum(axis=1)
        masses[:, list(self.law.end_ids)] = 0
        within = self.near.final(rows.edits) <= self.search.distance
        edits, kind, alive, certain = self._decided(rows.edits, masses, self.length - step - 1)
        undecided, open_masses = alive & ~certain, masses * rows.open[:, None]
        self.inside[step] += (ended * (within & rows.open)).sum() + (open_masses * certain).sum()
        self.outside[step] += (ended * (~within & rows.open)).sum() + (open_masses * ~alive).sum()
        if step + 1 == self.length:
            return rows.take(np.zeros(0, np.int64))
        least = np.take_along_axis(self.near.least(edits), kind, axis=1)
        row, token, member = self._chosen(rows, masses, undecided, alive, least)
        unread = self._passage(rows, masses, undecided, row, token)
        goal = np.full(len(unread), self.window.suffix[step])
        row, token = np.concatenate([row, unread]), np.concatenate([token, goal])
        self._leave(rows, masses, undecided, row, token)
        more = np.zeros(len(unread), bool)
        return _Rows(
            tokens=np.concatenate([rows.tokens[row], token[:, None]], axis=1),
            edits=edits[row, kind[row, token]],
            mass=masses[row, token],
            beam=np.concatenate([member, more]),
            open=rows.open[row] & ~certain[row, token],
            read=np.concatenate([~np.zeros_like(member), more]),
            on_path=rows.on_path[row] & (token == self.window.suffix[step]),
            parent=row,
        )

    def _decided(
        self, edits: np.ndarray, masses: np.ndarray, left: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Every child's state, (rows, kinds, S), each token's kind, and whether it may be near and must be, (rows, V)."""
        after, kind = self.near.children(edits, masses)
        states, shape = after.reshape(-1, after.shape[2]), after.shape[:2]
        certain = self.near.certain(states, left)
        alive = self.near.alive(states) if left else certain
        spread = [
            np.take_along_axis(each.reshape(shape), kind, axis=1) for each in (alive, certain)
        ]
        return after, kind, spread[0], spread[1]

    def _chosen(
        self,
        rows: _Rows,
        masses: np.ndarray,
        undecided: np.ndarray,
        alive: np.ndarray,
        least: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Row and token of the children to go on with, and which of them are of the beam; ``least`` are the edits so far."""
        read, further = rows.read[:, None], self.search.further
        of_beam = np.where(rows.beam[:, None] & read & alive, masses, 0.0)
        free = np.where(rows.open[:, None] & read & undecided, masses, 0.0)
        chosen = [_heaviest(of_beam, self.search.beam)]
        near, most = further // 4, further // 2
        looks = [
            (least <= 1, near),
            (np.exp(-LIKE_EDITS * least), further - near - most),
            (1.0, most),
        ]
        for weight, count in looks:
            free.reshape(-1)[chosen[-1]] = 0
            chosen.append(_heaviest(free * weight, count))
        beam = chosen[0]
        row, token = np.divmod(np.concatenate(chosen), masses.shape[1])
        return row, token, np.arange(len(row)) < len(beam)

    def _passage(
        self,
        rows: _Rows,
        masses: np.ndarray,
        undecided: np.ndarray,
        row: np.ndarray,
        token: np.ndarray,
    ) -> np.ndarray:
        """The row (one or none) whose child on the passage's path nobody reads, so that the scan must stand in."""
        goal = self.window.suffix[rows.tokens.shape[1] - len(self.window.prefix)]
        wanted = rows.on_path & rows.open & undecided[:, goal] & (masses[:, goal] > 0)
        wanted[row[token == goal]] = False
        return np.flatnonzero(wanted) if self.path is not None else np.zeros(0, np.int64)

    def _leave(
        self,
        rows: _Rows,
        masses: np.ndarray,
        undecided: np.ndarray,
        row: np.ndarray,
        token: np.ndarray,
    ) -> None:
        for place in np.flatnonzero(rows.open):
            taken = token[row == place]
            rest = np.where(undecided[place], masses[place], 0.0)
            rest[taken] = 0
            if (mass := float(rest.sum())) > 0:
                self.rests.append(_Rest(rows.tokens[place], rows.edits[place], mass, taken))

    def _sampled(self) -> Remainder:
        """Poisson starts in the open mass, each continued by the model until its distance is decided."""
        window = self.window
        place = 0 if window.id else window.start  # a question's place among others decides nothing
        names = (window.split or "", window.id, place, len(window.prefix))
        random = np.random.default_rng(stream(self.search.seed, "extraction", *names))
        total = float(sum(rest.mass for rest in self.rests))
        rate = self.search.samples / total  # fixed by the search, before anything is drawn
        counts = random.poisson([rate * rest.mass for rest in self.rests])
        hits = 0
        for length in sorted({len(rest.tokens) for rest in self.rests}):
            pairs = zip(self.rests, counts.tolist(), strict=True)
            some = [(rest, count) for rest, count in pairs if len(rest.tokens) == length and count]
            room = self.predictor.most_rows()
            for at in range(0, len(some), room):
                hits += self._walk(some[at : at + room], random)
        return Remainder(rate, int(counts.sum()), hits)

    def _walk(self, starts: list[tuple[_Rest, int]], random: np.random.Generator) -> int:
        """How many of the sampled continuations of prefixes of one length end within the distance."""
        tokens = np.stack([rest.tokens for rest, _ in starts])
        edits = np.stack([rest.edits for rest, _ in starts])
        counts = np.array([count for _, count in starts])
        self.predictor.begin(tokens, len(self.window.prefix) + self.length)
        hits, first = 0, True
        for step in range(tokens.shape[1] - len(self.window.prefix), self.length):
            chances = self._next(tokens[:, -1], step)
            if first:
                chances = self._unread(starts, chances, edits, step)
            row = np.repeat(np.arange(len(tokens)), counts)
            drawn = _drawn(chances, row, random)
            ends = np.isin(drawn, self.law.end_ids)
            hits += int((self.near.final(edits)[row[ends]] <= self.search.distance).sum())
            row, drawn = row[~ends], drawn[~ends]
            after = self.near.step(edits[row], drawn)
            certain = self.near.certain(after, self.length - step - 1)
            hits += int(certain.sum())
            going = self.near.alive(after) & ~certain & (step + 1 < self.length)
            if not going.any():
                break
            both = np.stack([row[going], drawn[going]])
            pairs, place, counts = np.unique(both, axis=1, return_index=True, return_counts=True)
            parents, edits = pairs[0], after[going][place]
            order = self.predictor.fork(parents)
            tokens = np.concatenate([tokens[parents], pairs[1][:, None]], axis=1)[order]
            edits, counts, first = edits[order], counts[order], False
        return hits

    def _unread(
        self, starts: list[tuple[_Rest, int]], chances: np.ndarray, edits: np.ndarray, step: int
    ) -> np.ndarray:
        left = chances.copy()
        left[:, list(self.law.end_ids)] = 0
        _, _, alive, certain = self._decided(edits, left, self.length - step - 1)
        left[~(alive & ~certain)] = 0
        for place, (rest, _) in enumerate(starts):
            left[place, rest.taken] = 0
        return left


def _heaviest(masses: np.ndarray, count: int) -> np.ndarray:
    """Flat places of the ``count`` largest positive entries, the largest first; equal ones by place."""
    flat = masses.reshape(-1)
    positive = np.flatnonzero(flat)
    if len(positive) > count:
        least = np.partition(flat[positive], -count)[-count] if count else np.inf
        positive = positive[flat[positive] >= least]
    return positive[np.argsort(-flat[positive], kind="stable")][:count]


def _drawn(chances: np.ndarray, row: np.ndarray, random: np.random.Generator) -> np.ndarray:
    heights = chances.cumsum(axis=1)
    drawn = np.empty(len(row), np.int64)
    levels = random.random(len(row)) * heights[row, -1]
    for place in np.unique(row):
        own = row == place
        drawn[own] = np.searchsorted(heights[place], levels[own], side="right")
    return drawn
