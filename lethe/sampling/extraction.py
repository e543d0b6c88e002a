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

from lethe.config.measuring import ExtractSettings
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
    """A passage of a text: the tokens that a model reads, and those that it should not continue with.

    Attributes
    ----------
    start
        The place of the first token of the prefix in the text, or of the question among those of the dataset.
    prefix
        The tokens that the model reads.
    suffix
        The tokens whose probability is asked.
    id
        The name of the passage, or the id of the question.
    split
        The split of the question; None for a passage of a text.
    """

    start: int
    prefix: tuple[int, ...]
    suffix: tuple[int, ...]
    id: str = ""
    split: str | None = None

    def __len__(self) -> int:
        return len(self.prefix) + len(self.suffix)


def windows_of(tokens: Sequence[int], prefix: int, suffix: int, stride: int) -> list[Window]:
    """Every ``stride``-th window of a text that has all its tokens, in the order of the text.

    Raises
    ------
    BadValue
        If one of the three numbers is below 1.
    """
    for name, value in [("prefix", prefix), ("suffix", suffix), ("stride", stride)]:
        if value < 1:
            raise BadValue(name, value, "a whole number of at least 1")
    windows = []
    for start in range(0, len(tokens) - prefix - suffix + 1, stride):
        middle = start + prefix
        read = tuple(tokens[start:middle])
        hidden = tuple(tokens[middle : middle + suffix])
        windows.append(Window(start, read, hidden, f"w{start:06d}"))
    return windows


def scan(
    predictor: ModelPredictor, windows: Sequence[Window], law: Law, memory: int
) -> Iterator[np.ndarray]:
    """The conditional probability of each token of the suffix: (T,) per window, whose product is p_z.

    Parameters
    ----------
    law
        How a next-token distribution follows from logits.
    memory
        Bytes for the logits of the windows that are read at once.
    """
    if not windows:
        return
    longest = max(len(window) for window in windows)
    positions = longest - min(len(window.prefix) for window in windows)
    size = max(1, memory // (BYTES * predictor.vocabulary * positions))
    for start in range(0, len(windows), size):
        batch = windows[start : start + size]
        for window, logits in zip(batch, _logits(predictor, batch), strict=True):
            chances = _first_step(law, logits)
            yield chances[np.arange(len(logits)), list(window.suffix)]


def path_of(predictor: ModelPredictor, window: Window, law: Law) -> np.ndarray:
    """(T, V) the next-token probabilities along a window's own suffix, in one pass."""
    return _first_step(law, _logits(predictor, [window])[0])


def _first_step(law: Law, logits: np.ndarray) -> np.ndarray:
    """(rows, V) the next-token probabilities of logits, as in a first step: no confidence comes before."""
    chances, _ = law.probabilities(logits, np.zeros(len(logits)), 0)
    return chances


def _logits(predictor: ModelPredictor, windows: Sequence[Window]) -> list[np.ndarray]:
    """(T, V) the logits that predict each suffix token of each window; what pads a window comes behind it, unseen."""
    width = max(len(window) for window in windows)
    first = min(len(window.prefix) for window in windows)
    tokens = np.zeros((len(windows), width), np.int64)
    for row, window in zip(tokens, windows, strict=True):
        row[: len(window)] = [*window.prefix, *window.suffix]
    logits = predictor.forward.passed(tokens, width - first).float().cpu().numpy()
    of_suffixes = []
    for row, window in zip(logits, windows, strict=True):
        start = len(window.prefix) - first
        of_suffixes.append(row[start : start + len(window.suffix)])
    return of_suffixes


@dataclass(frozen=True)
class _Prefixes(Level):
    """Prefixes of one length, a row each.

    The beam reads on below decided prefixes too, but their mass counts once: where they are ``open``.
    """

    tokens: np.ndarray  # (rows, length), those of the window's prefix included
    edits: np.ndarray  # (rows, S) the states of the distance
    mass: np.ndarray  # (rows,) the probability of the prefix
    beam: np.ndarray  # (rows,) whether it is a member of the beam
    open: np.ndarray  # (rows,) whether its distance is undecided
    # (rows,) whether the model reads on; else the probabilities of the scan stand in
    read: np.ndarray
    on_path: np.ndarray  # (rows,) whether it is a prefix of the passage itself
    parent: np.ndarray  # (rows,) the row of the level above


@dataclass(frozen=True)
class _Rest:
    """A prefix some of whose continuations were left unread."""

    tokens: np.ndarray  # (length,) those of the window's prefix included
    edits: np.ndarray  # (S,) the state of the distance
    mass: float  # of the continuations that were left
    taken: np.ndarray  # the next tokens that were read on, and so are not left


def near_verbatim(
    predictor: Predictor,
    window: Window,
    law: Law,
    settings: ExtractSettings,
    path: np.ndarray | None = None,
    pieces: Sequence[bytes] | None = None,
) -> Near:
    """Search the continuations of one window: the mass within the edit distance of its suffix, outside of it, and open.

    Parameters
    ----------
    settings
        ``beam`` prefixes of each length are those of constrained beam search, ``further`` more are read beside them, and
        about ``samples`` continuations of what stays open are sampled for the upper end.
    path
        (T, V) the probabilities along the suffix from the scan. They make the lower end at least p_z without a further row.
    pieces
        The bytes of every token. With them the distance counts words, else tokens.

    Notes
    -----
    Constrained beam search: arXiv 2603.24917.
    """
    if pieces:
        near: Distance = Words(window.suffix, settings.distance, pieces)
    else:
        near = Distance(window.suffix, settings.distance)
    law_of_suffix = law.model_copy(update={"max_new_tokens": len(window.suffix)})
    return _Search(predictor, window, law_of_suffix, settings, path, near).run()


@dataclass
class _Search:
    """One call of `near_verbatim`.

    V is the vocabulary, T the number of tokens of the suffix, and S the length of a state of the distance. The children of
    a row are its continuations by one token, (rows, V).
    """

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
        # (T,) the mass that was decided at each step: within the distance, and beyond it
        self.inside = np.zeros(self.length)
        self.outside = np.zeros(self.length)

    def run(self) -> Near:
        """Read level by level, then sample what stayed open."""
        yes = np.ones(1, bool)
        rows = _Prefixes(
            tokens=np.array([self.window.prefix], np.int64),
            edits=self.near.start[None],
            mass=np.ones(1),
            beam=yes,
            open=yes,
            read=yes,
            on_path=yes,
            parent=np.zeros(1, np.int64),
        )
        self.predictor.begin(rows.tokens, len(self.window.prefix) + self.length)
        for step in range(self.length):
            children = self._children(rows, step)
            if step + 2 == self.length:  # nobody reads on below the last level
                children = children.take(np.flatnonzero(children.open))
            if not len(children):
                break
            order = self.predictor.fork(children.parent[children.read])
            read_on = np.flatnonzero(children.read)[order]
            from_the_scan = np.flatnonzero(~children.read)
            rows = children.take(np.concatenate([read_on, from_the_scan]))

        remainder = Remainder()
        if self.search.samples and self.rests:
            remainder = self._sampled()
        masses = Masses(tuple(self.inside), tuple(self.outside))
        return Near(masses, remainder, self.rows)

    def _chances(self, rows: _Prefixes, step: int) -> np.ndarray:
        """(rows, V) the next-token probabilities: by the model, or from the scan where it cannot read on."""
        chances = np.empty((len(rows), self.predictor.vocabulary))
        if rows.read.any():
            chances[rows.read] = self._next(rows.tokens[rows.read, -1], step)
        if not rows.read.all() and self.path is not None:
            chances[~rows.read] = self.path[step]
        return chances

    def _next(self, tokens: np.ndarray, step: int) -> np.ndarray:
        """(rows, V) the next-token probabilities by the model, which reads the last tokens (rows,)."""
        self.rows += len(tokens)
        logits = self.predictor.step(tokens)
        chances, _ = self.law.probabilities(logits, np.zeros(len(logits)), step)
        return chances

    def _children(self, rows: _Prefixes, step: int) -> _Prefixes:
        """Read one level, decide what is certain, and choose the prefixes of the next level."""
        end_ids = list(self.law.end_ids)
        masses = self._chances(rows, step) * rows.mass[:, None]  # (rows, V)
        ended = masses[:, end_ids].sum(axis=1)
        masses[:, end_ids] = 0

        # What is decided: an answer that ends is as far as it is, and others may be certain already.
        within = self.near.final(rows.edits) <= self.search.distance
        edits, kind, alive, certain = self._decided(rows.edits, masses, self.length - step - 1)
        undecided = alive & ~certain
        open_masses = masses * rows.open[:, None]
        ended_inside = (ended * (within & rows.open)).sum()
        ended_outside = (ended * (~within & rows.open)).sum()
        self.inside[step] += ended_inside + (open_masses * certain).sum()
        self.outside[step] += ended_outside + (open_masses * ~alive).sum()
        if step + 1 == self.length:
            return rows.take(np.zeros(0, np.int64))

        # Which children are read on; the mass of the others is left to sampling.
        least = np.take_along_axis(self.near.least(edits), kind, axis=1)
        row, token, member = self._chosen(rows, masses, undecided, alive, least)
        unread = self._passage(rows, masses, undecided, row, token)
        goal = np.full(len(unread), self.window.suffix[step])
        row = np.concatenate([row, unread])
        token = np.concatenate([token, goal])
        self._leave(rows, masses, undecided, row, token)

        more = np.zeros(len(unread), bool)
        return _Prefixes(
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
        """What is known of the children of rows in the states ``edits``, if ``left`` tokens may follow them.

        Tokens of one kind lead to one state, so that few states are computed for a whole vocabulary.

        Returns
        -------
        tuple of numpy.ndarray
            (rows, kinds, S) the state after each kind of token, (rows, V) the kind of each token, and (rows, V) whether the
            child may still come within the distance, and whether it must.
        """
        after, kind = self.near.children(edits, masses)
        states = after.reshape(-1, after.shape[2])
        by_kind = after.shape[:2]
        must = self.near.certain(states, left)
        may = self.near.alive(states) if left else must
        alive = np.take_along_axis(may.reshape(by_kind), kind, axis=1)
        certain = np.take_along_axis(must.reshape(by_kind), kind, axis=1)
        return after, kind, alive, certain

    def _chosen(
        self,
        rows: _Prefixes,
        masses: np.ndarray,
        undecided: np.ndarray,
        alive: np.ndarray,
        least: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The children to go on with: those of the beam, then further ones that the beam leaves.

        ``least`` (rows, V) are the edits so far.

        Returns
        -------
        tuple of numpy.ndarray
            (children,) the row and the token of each, and whether it is a member of the beam.
        """
        in_beam = (rows.beam & rows.read)[:, None] & alive
        beam = _heaviest(np.where(in_beam, masses, 0.0), self.search.beam)

        # Whatever is chosen loses its mass in `free`, so that nothing is chosen twice.
        free = np.where((rows.open & rows.read)[:, None] & undecided, masses, 0.0)
        flat = free.reshape(-1)
        flat[beam] = 0

        further = self.search.further
        n_near = further // 4
        n_heaviest = further // 2
        near = _heaviest(free * (least <= 1), n_near)
        flat[near] = 0
        mixed = _heaviest(free * np.exp(-LIKE_EDITS * least), further - n_near - n_heaviest)
        flat[mixed] = 0
        heaviest = _heaviest(free, n_heaviest)

        chosen = np.concatenate([beam, near, mixed, heaviest])
        row, token = np.divmod(chosen, masses.shape[1])
        is_member = np.arange(len(row)) < len(beam)
        return row, token, is_member

    def _passage(
        self,
        rows: _Prefixes,
        masses: np.ndarray,
        undecided: np.ndarray,
        row: np.ndarray,
        token: np.ndarray,
    ) -> np.ndarray:
        """The row (one or none) whose child on the passage's path nobody reads, so that the scan must stand in."""
        if self.path is None:
            return np.zeros(0, np.int64)
        goal = self.window.suffix[rows.tokens.shape[1] - len(self.window.prefix)]
        wanted = rows.on_path & rows.open & undecided[:, goal] & (masses[:, goal] > 0)
        wanted[row[token == goal]] = False
        return np.flatnonzero(wanted)

    def _leave(
        self,
        rows: _Prefixes,
        masses: np.ndarray,
        undecided: np.ndarray,
        row: np.ndarray,
        token: np.ndarray,
    ) -> None:
        """Note the open mass below each row that no chosen child takes."""
        for place in np.flatnonzero(rows.open):
            taken = token[row == place]
            rest = np.where(undecided[place], masses[place], 0.0)
            rest[taken] = 0
            mass = float(rest.sum())
            if mass > 0:
                self.rests.append(_Rest(rows.tokens[place], rows.edits[place], mass, taken))

    def _sampled(self) -> Remainder:
        """Poisson starts in the open mass, each continued by the model until its distance is decided.

        Prefixes of one length are continued together, as many as there is memory for.
        """
        window = self.window
        place = 0 if window.id else window.start  # a question's place among others decides nothing
        which = (window.split or "", window.id, place, len(window.prefix))
        random = np.random.default_rng(stream(self.search.seed, "extraction", *which))

        masses = np.array([rest.mass for rest in self.rests])
        rate = self.search.samples / float(sum(masses))  # fixed before anything is drawn
        counts = random.poisson(rate * masses)

        hits = 0
        lengths = np.array([len(rest.tokens) for rest in self.rests])
        for length in np.unique(lengths):
            starts = np.flatnonzero((lengths == length) & (counts > 0))
            room = self.predictor.most_rows()
            for first in range(0, len(starts), room):
                places = starts[first : first + room]
                rests = [self.rests[place] for place in places]
                hits += self._walk(rests, counts[places], random)
        return Remainder(rate, int(counts.sum()), hits)

    def _walk(self, rests: Sequence[_Rest], counts: np.ndarray, random: np.random.Generator) -> int:
        """How many of the sampled continuations of prefixes of one length end within the distance.

        ``counts`` (rests,) are the numbers of continuations. The first token of each is one that the search left unread.
        """
        tokens = np.stack([rest.tokens for rest in rests])
        edits = np.stack([rest.edits for rest in rests])
        self.predictor.begin(tokens, len(self.window.prefix) + self.length)
        hits = 0
        first = True
        for step in range(tokens.shape[1] - len(self.window.prefix), self.length):
            chances = self._next(tokens[:, -1], step)
            if first:
                chances = self._unread(rests, chances, edits, step)

            # Continuations that end here.
            row = np.repeat(np.arange(len(tokens)), counts)
            drawn = _drawn(chances, row, random)
            ends = np.isin(drawn, self.law.end_ids)
            distances = self.near.final(edits)[row[ends]]
            hits += int((distances <= self.search.distance).sum())

            # Others whose distance is decided, whatever follows.
            row = row[~ends]
            drawn = drawn[~ends]
            after = self.near.step(edits[row], drawn)
            certain = self.near.certain(after, self.length - step - 1)
            hits += int(certain.sum())
            going = self.near.alive(after) & ~certain & (step + 1 < self.length)
            if not going.any():
                break

            # Equal prefixes go on as one row with a count.
            both = np.stack([row[going], drawn[going]])
            pairs, place, counts = np.unique(both, axis=1, return_index=True, return_counts=True)
            parents = pairs[0]
            order = self.predictor.fork(parents)
            tokens = np.concatenate([tokens[parents], pairs[1][:, None]], axis=1)[order]
            edits = after[going][place][order]
            counts = counts[order]
            first = False
        return hits

    def _unread(
        self,
        rests: Sequence[_Rest],
        chances: np.ndarray,
        edits: np.ndarray,
        step: int,
    ) -> np.ndarray:
        """(rests, V) the chances of the open tokens that no prefix took, 0 for the others."""
        left = chances.copy()
        left[:, list(self.law.end_ids)] = 0
        _, _, alive, certain = self._decided(edits, left, self.length - step - 1)
        left[~(alive & ~certain)] = 0
        for place, rest in enumerate(rests):
            left[place, rest.taken] = 0
        return left


def _heaviest(masses: np.ndarray, count: int) -> np.ndarray:
    """Flat places of the ``count`` largest positive entries, the largest first; equal ones by place."""
    flat = masses.reshape(-1)
    positive = np.flatnonzero(flat)

    # Of a whole vocabulary few entries are wanted, and only these are sorted.
    if len(positive) > count:
        least = np.partition(flat[positive], -count)[-count] if count else np.inf
        positive = positive[flat[positive] >= least]
    return positive[np.argsort(-flat[positive], kind="stable")][:count]


def _drawn(chances: np.ndarray, row: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """(samples,) a token for each sample, from the unnormalised ``chances`` (rows, V) of its row."""
    heights = chances.cumsum(axis=1)
    drawn = np.empty(len(row), np.int64)
    levels = random.random(len(row)) * heights[row, -1]
    for place in np.unique(row):
        samples = row == place
        drawn[samples] = np.searchsorted(heights[place], levels[samples], side="right")
    return drawn
