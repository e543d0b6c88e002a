"""Growing the tree of a model's answers, level by level.

All explored prefixes of one length form one batch. The masses fall along a path, so the threshold explores exactly
the prefixes that a best-first search would explore, without a heap. The same batches sample the unexplored rest: every
unexplored child of mass m starts Poisson(rho m) answers, which the model continues. The consequences of a token depend
on the automaton's state and the tokens left, but on no model, so rows, levels and growths share them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Protocol, Self

import numpy as np

from lethe.errors import BadValue
from lethe.sampling.answer_tree.automaton import CLEAN_END, LEAK_END, UNKNOWN_END, Automaton
from lethe.sampling.draws import BITS, BLOCK, Law, draw
from lethe.statistics.answer_tree import Masses, Remainder
from lethe.statistics.leak_trees import HeavyLeak

Decode = Callable[[list[tuple[int, ...]]], list[str]]  # answers' tokens -> their texts
Scores = Callable[[list[str]], np.ndarray]  # texts -> whether each leaks, bool


class Predictor(Protocol):
    """Predicts from equally long prefixes, the rows. ``begin`` replaces all rows by new ones; the first ``step`` reads
    their last token. ``step`` appends one token to each row and returns logits (rows, V). ``fork`` makes row
    ``parents[i]`` the i-th new row and returns ``order``: the new row i represents ``parents[order[i]]``."""

    vocabulary: int

    def begin(self, prefixes: np.ndarray, positions: int) -> None: ...
    def step(self, tokens: np.ndarray) -> np.ndarray: ...
    def fork(self, parents: np.ndarray) -> np.ndarray: ...
    def most_rows(self) -> int: ...


@dataclass(frozen=True)
class TreeQuestion:
    """A prompt's tokens and the definition of a leak: ``automaton`` decides most answers from their tokens, ``scores``
    judges the texts of the others. ``seeds`` are answers whose prefixes are always explored. ``note`` says how answers
    are judged."""

    question_id: str
    prompt: tuple[int, ...]
    automaton: Automaton
    decode: Decode
    scores: Scores
    seeds: tuple[tuple[int, ...], ...] = ()
    note: str = ""

    def __post_init__(self) -> None:
        if not self.prompt:
            raise BadValue(f"prompt {self.question_id!r}", self.prompt, "at least one token")


@dataclass(frozen=True)
class Growth:
    """The extent of a growth. A prefix is explored if the minimum of mass x exp(``guide`` x share of a keyword read)
    along its path is at least ``theta``. The rest is sampled at the rate ``rho``. ``most_explored`` ends the
    exploration early, and only without a rate, because it must not depend on the draws. Explored prefixes are counted
    under ``counted_guide``."""

    theta: float
    guide: float = 0.0
    rho: float = 0.0
    most_explored: int | None = None
    counted_guide: float = 0.0


@dataclass(frozen=True)
class Grown:
    """The result of a growth. ``rest`` is the unexplored mass; ``rows`` went through the model, ``explored`` of them
    for no sample. ``priorities`` are under the counted guide; ``decided`` is the mass that each prefix's next token
    decided. ``entropy`` (nats) and ``length`` (tokens) are means over the sampled answers, NaN without samples."""

    masses: Masses
    remainder: Remainder
    rest: float
    rows: int
    explored: int
    heaviest: tuple[HeavyLeak, ...]
    priorities: np.ndarray = field(repr=False)
    decided: np.ndarray = field(repr=False)
    entropy: float = float("nan")
    length: float = float("nan")


MOST_ENTRIES = 1 << 24  # of the values per token, over all states that are kept: about 500 MB


@dataclass(frozen=True)
class Lookahead:
    """The automaton's values for the state after each token, (V,) each. ``matched`` (D,) are shares of a keyword read in
    the distinct states that follow, ``place`` (V,) the index of each token's state among them, and ``most_needed`` the
    largest of ``needs``."""

    following: np.ndarray
    leak: np.ndarray
    end: np.ndarray
    blank: np.ndarray
    pending: np.ndarray
    needs: np.ndarray
    matched: np.ndarray
    place: np.ndarray
    most_needed: int

    @classmethod
    def of(cls, automaton: Automaton, state: int) -> Self:
        """The looks ahead from one state of an automaton."""
        following = automaton.row(state)
        distinct, place = np.unique(following, return_inverse=True)
        needs = automaton.needs(distinct)
        return cls(
            following,
            leak=automaton.leaks(distinct)[place],
            end=automaton.ends(distinct)[place],
            blank=automaton.blank(distinct)[place],
            pending=automaton.pending(distinct)[place],
            needs=needs[place],
            matched=automaton.matched(distinct),
            place=place,
            most_needed=int(needs.max()),
        )


@lru_cache(maxsize=1)  # all growths of a question come one after the other
def sight_of(automaton: Automaton) -> Callable[[int], Lookahead]:
    """The looks ahead from the states of one automaton."""
    return lru_cache(1 + MOST_ENTRIES // len(automaton.row(automaton.start)))(
        partial(Lookahead.of, automaton)
    )


@dataclass(frozen=True)
class Outlook:
    """The consequences of each token in one state, (V,) each. ``leak``, ``clean``, ``blank``, ``pending`` (a keyword is
    complete, the next character decides) and ``unknown`` (finished, to be scored) are masks; ``least`` is the least mass
    at which a child is explored, inf where nothing is left to explore."""

    following: np.ndarray
    leak: np.ndarray
    clean: np.ndarray
    blank: np.ndarray
    pending: np.ndarray
    unknown: np.ndarray
    least: np.ndarray


def outlooks(
    automaton: Automaton, growth: Growth, vocabulary: int, end_ids: tuple[int, ...]
) -> Callable[[int, int], Outlook]:
    """The outlook of a state if so many tokens may follow the next one."""
    sight = sight_of(automaton)
    ends = np.zeros(vocabulary, bool)
    ends[list(end_ids)] = True

    @lru_cache(1 + MOST_ENTRIES // vocabulary)
    def outlook(state: int, left: int) -> Outlook:
        ahead = sight(state)
        over = ends | (left == 0)
        leak = ahead.leak | (over & (ahead.end == LEAK_END))
        # Answers without a visible character are continued, so that blank answers are counted completely.
        hopeless = (ahead.needs > left) & ~ahead.blank
        clean = ~leak & np.where(over, ahead.end == CLEAN_END, hopeless)
        unknown = ~leak & over & (ahead.end == UNKNOWN_END)
        explored_from = (growth.theta / np.exp(growth.guide * ahead.matched))[ahead.place]
        return Outlook(
            ahead.following,
            leak,
            clean,
            blank=clean & over & ahead.blank,
            pending=ahead.pending,
            unknown=unknown,
            least=np.where(leak | over | clean, np.inf, explored_from),
        )

    # Beyond the number that is needed every further token changes nothing.
    return lambda state, left: outlook(state, min(left, max(1, sight(state).most_needed)))


# Of a (rows, vocabulary) block in float64: 4 MiB, which fits in a processor's cache.
ENTRIES_AT_ONCE = 1 << 19
# The least mass at which the scorer judges a finished answer that the automaton cannot read.
SCORED_FROM = 1e-8
HEAVIEST = 5
CANDIDATES = 64


class Level:
    """The prefixes of one length: arrays with one entry a prefix, of which `take` picks some."""

    tokens: np.ndarray

    def __len__(self) -> int:
        return len(self.tokens)

    def take(self, chosen: np.ndarray | slice) -> Self:
        """The chosen prefixes, by place, mask or slice."""
        return type(self)(**{name: column[chosen] for name, column in vars(self).items()})

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """All prefixes of the parts, of which there is at least one."""
        columns = {}
        for name in vars(parts[0]):
            columns[name] = np.concatenate([vars(part)[name] for part in parts])
        return cls(**columns)


@dataclass(frozen=True)
class Prefixes(Level):
    """Prefixes of one length. ``tokens`` (rows, length) start with the prompt's; ``count`` (rows,) is the number of sampled
    answers that follow a prefix, 0 for an explored prefix; ``mass`` and ``counted``, the priority under the counted guide,
    are defined only for explored prefixes; ``seeds`` (rows, S): the prefix begins that seed; ``parent`` (rows,) indexes the
    previous level."""

    tokens: np.ndarray
    mass: np.ndarray
    state: np.ndarray
    counted: np.ndarray
    count: np.ndarray
    confidence: np.ndarray
    seeds: np.ndarray
    parent: np.ndarray


@dataclass(frozen=True)
class _Finished:
    """A finished answer that the automaton cannot read: its mass if it was explored, and how often it was sampled."""

    tokens: tuple[int, ...]
    mass: float
    count: int


def grow(
    question: TreeQuestion,
    law: Law,
    predictor: Predictor,
    growth: Growth,
    stream: np.random.SeedSequence | int = 0,
) -> Grown:
    """The masses of a question's answers: explored as far as ``growth`` says, the rest sampled by draws of ``stream``.

    Raises
    ------
    BadValue
        If prompt, end or seeds have a token beyond the predictor's vocabulary.
    """
    return _Growing(question, law, predictor, growth, stream).run()


class _Growing:
    def __init__(
        self,
        question: TreeQuestion,
        law: Law,
        predictor: Predictor,
        growth: Growth,
        stream: np.random.SeedSequence | int,
    ):
        for tokens in (question.prompt, law.end_ids, *question.seeds):
            if not all(0 <= token < predictor.vocabulary for token in tokens):
                legal = f"0 to {predictor.vocabulary - 1}"
                raise BadValue(f"tokens of question {question.question_id!r}", tuple(tokens), legal)
        self.question = question
        self.law = law
        self.predictor = predictor
        self.growth = growth
        self.automaton = question.automaton
        self.outlook = outlooks(self.automaton, growth, predictor.vocabulary, law.end_ids)
        self.random = np.random.default_rng(stream)
        self.leak, self.clean = np.zeros((2, law.max_new_tokens))  # indexed by the deciding token
        self.blank = self.unscored = self.unconfirmed = self.rest = 0.0
        self.rows = self.explored = self.granted = self.sampled = self.leaks = 0
        self.entropy = self.length = 0.0
        self.measures = growth.theta > 1  # entropy and length: whole answers are sampled
        # Of explored rows, in one order: priority, and the mass that leaks or does not.
        self.priorities: list[np.ndarray] = []
        self.decided: list[np.ndarray] = []
        self.heavy: list[tuple[float, tuple[int, ...]]] = []
        self.finished: list[_Finished] = []

    def run(self) -> Grown:
        waiting = [self._root()]
        positions = len(self.question.prompt) + self.law.max_new_tokens
        while waiting:
            rows = waiting.pop()
            self.predictor.begin(rows.tokens, positions)
            while len(rows):
                children = self._children(rows)
                room = self.predictor.most_rows()
                # The other parts begin after the first is done.
                for start in range(room, len(children), room):
                    waiting.append(children.take(slice(start, start + room)))
                rows = children.take(slice(0, room))
                if len(rows):
                    rows = rows.take(self.predictor.fork(rows.parent))
        return self._grown()

    def _root(self) -> Prefixes:
        """The prompt as the one row of the first level; no row where nothing is explored and no sample was drawn."""
        count = np.zeros(1, np.int64)
        if self.measures:  # nothing is explored, everything is sampled
            count = self.random.poisson(self.growth.rho, size=1)
            self.sampled = int(count[0])
            self.rest = 1.0
        rows = Prefixes(
            np.array([self.question.prompt], np.int64),
            mass=np.ones(1),
            state=np.array([self.automaton.start]),
            counted=np.full(1, np.inf),
            count=count,
            confidence=np.zeros(1),
            seeds=np.ones((1, len(self.question.seeds)), bool),
            parent=np.zeros(1, np.int64),
        )
        if self.measures and not self.sampled:
            return rows.take(slice(0, 0))
        return rows

    def _children(self, rows: Prefixes) -> Prefixes:
        """Run the model on one level and return the children, each with its parent's index."""
        step = rows.tokens.shape[1] - len(self.question.prompt)
        self.rows += len(rows)
        self.explored += int((rows.count == 0).sum())
        logits = self.predictor.step(rows.tokens[:, -1])
        left = self.law.max_new_tokens - step - 1
        block = max(1, ENTRIES_AT_ONCE // logits.shape[1])
        nothing = np.zeros((0, rows.tokens.shape[1] + 1), np.int64)
        children = [replace(rows.take(slice(0, 0)), tokens=nothing)]
        for start in range(0, len(rows), block):
            end = min(start + block, len(rows))
            part = replace(rows.take(slice(start, end)), parent=np.arange(start, end))
            chances, confidence = self.law.probabilities(logits[start:end], part.confidence, step)
            part = replace(part, confidence=confidence)
            for state in np.unique(part.state).tolist():
                outlook = self.outlook(state, left)
                in_state = part.state == state
                explored = np.flatnonzero(in_state & (part.count == 0))
                if len(explored):
                    children += self._explore(part.take(explored), chances[explored], outlook, step)
                sampled = np.flatnonzero(in_state & (part.count > 0))
                if len(sampled):
                    children += self._sample(part.take(sampled), chances[sampled], outlook)
        self._score(step)
        return Prefixes.joined(children)

    def _explore(
        self,
        rows: Prefixes,
        chances: np.ndarray,
        outlook: Outlook,
        step: int,
    ) -> list[Prefixes]:
        """The children of explored rows in one state, once their masses are counted; ``chances`` are (rows, V)."""
        masses = chances * rows.mass[:, None]
        leaks = np.zeros(len(rows))
        if outlook.leak.any():
            leaks = masses @ outlook.leak
            self.leak[step] += leaks.sum()
            self._note_heavy(rows, leaks, masses, outlook)
        cleans = masses @ outlook.clean
        self.clean[step] += cleans.sum()
        self.priorities.append(rows.counted)
        self.decided.append(leaks + cleans)
        if outlook.blank.any():
            self.blank += float((masses @ outlook.blank).sum())
        explored = masses >= outlook.least
        if self.growth.most_explored is not None:
            self._ration(explored, masses, outlook, self.growth.most_explored)
        for number, seed in enumerate(self.question.seeds):
            if step < len(seed) and np.isfinite(outlook.least[seed[step]]):
                explored[rows.seeds[:, number], seed[step]] = True
        # `numpy.nonzero` in a fifth of its time.
        row, token = np.divmod(np.flatnonzero(explored), masses.shape[1])
        taken = explored | outlook.leak | outlook.clean
        if outlook.unknown.any():
            finished = outlook.unknown & (masses >= SCORED_FROM)
            for place, last in np.argwhere(finished):
                answer = self._answer(rows, place, last)
                self.finished.append(_Finished(answer, float(masses[place, last]), count=0))
            self.unscored += float((masses * outlook.unknown).sum() - masses[finished].sum())
            taken |= finished
        open_chances = np.where(taken, 0.0, chances)
        rest = open_chances.sum(axis=1) * rows.mass
        self.rest += float(rest.sum())
        if outlook.pending.any():
            self.unconfirmed += float(((open_chances @ outlook.pending) * rows.mass).sum())
        nobody = np.zeros(len(row), np.int64)
        children = [
            self._grown_rows(
                rows,
                row,
                token,
                outlook,
                mass=masses[row, token],
                count=nobody,
            )
        ]
        if self.growth.rho:
            started = self.random.poisson(self.growth.rho * rest)
            self.sampled += int(started.sum())
            children += self._drawn(rows, open_chances, started, outlook)
        return children

    def _ration(
        self,
        explored: np.ndarray,
        masses: np.ndarray,
        outlook: Outlook,
        most: int,
    ) -> None:
        """Drop the children of least worth if there are more than may still be explored."""
        left = max(0, most - self.granted)
        count = int(np.count_nonzero(explored))
        if count > left:
            chosen = np.flatnonzero(explored)
            worth = masses.ravel()[chosen] / outlook.least[chosen % masses.shape[1]]
            explored.flat[chosen[np.argsort(-worth, kind="stable")[left:]]] = False
        self.granted += min(count, left)

    def _sample(self, rows: Prefixes, chances: np.ndarray, outlook: Outlook) -> list[Prefixes]:
        """The children of sampled rows in one state."""
        if self.measures:
            self.length += int(rows.count.sum())
            logs = np.log(chances, where=chances > 0, out=np.zeros_like(chances))
            surprise = -(chances * logs).sum(axis=1)
            self.entropy += float(surprise @ rows.count)
        return self._drawn(rows, chances, rows.count, outlook)

    def _drawn(
        self,
        rows: Prefixes,
        chances: np.ndarray,
        counts: np.ndarray,
        outlook: Outlook,
    ) -> list[Prefixes]:
        """Draw ``counts`` (rows,) next tokens from each row of unnormalised ``chances``; finished answers are counted."""
        import torch

        chosen = np.flatnonzero(counts)
        if not len(chosen):
            return []
        vocabulary = chances.shape[1]
        padded = np.zeros((len(chosen), -(-vocabulary // BLOCK) * BLOCK))
        padded[:, :vocabulary] = chances[chosen]
        place = np.repeat(np.arange(len(chosen)), counts[chosen])
        numbers = self.random.integers(0, 1 << BITS, size=len(place))
        weights = torch.from_numpy(padded)
        drawn = draw(weights, torch.from_numpy(place), torch.from_numpy(numbers)).numpy()
        pairs, count = np.unique(chosen[place] * vocabulary + drawn, return_counts=True)
        row = pairs // vocabulary
        token = pairs % vocabulary
        self.leaks += int(count[outlook.leak[token]].sum())
        for at in np.flatnonzero(outlook.unknown[token]):
            answer = self._answer(rows, row[at], token[at])
            self.finished.append(_Finished(answer, mass=0.0, count=int(count[at])))
        goes_on = ~(outlook.leak | outlook.clean | outlook.unknown)[token]
        row = row[goes_on]
        token = token[goes_on]
        count = count[goes_on]
        return [
            self._grown_rows(
                rows,
                row,
                token,
                outlook,
                mass=np.zeros(len(row)),
                count=count,
            )
        ]

    def _grown_rows(
        self,
        rows: Prefixes,
        row: np.ndarray,
        token: np.ndarray,
        outlook: Outlook,
        mass: np.ndarray,
        count: np.ndarray,
    ) -> Prefixes:
        state = outlook.following[token].astype(np.int64)
        matched = self.automaton.matched(state)
        """The children of rows ``row`` by ``token``, both (children,)."""
        step = rows.tokens.shape[1] - len(self.question.prompt)
        seeds = np.zeros((len(row), len(self.question.seeds)), bool)
        for number, seed in enumerate(self.question.seeds):
            if step < len(seed):
                seeds[:, number] = rows.seeds[row, number] & (token == seed[step])
        guided = mass * np.exp(self.growth.counted_guide * matched)
        return Prefixes(
            tokens=np.column_stack([rows.tokens[row], token]),
            mass=mass,
            state=state,
            counted=np.minimum(rows.counted[row], guided),
            count=count,
            confidence=rows.confidence[row],
            seeds=seeds,
            parent=rows.parent[row],
        )

    def _answer(self, rows: Prefixes, row: int, token: int) -> tuple[int, ...]:
        return (*rows.tokens[row, len(self.question.prompt) :].tolist(), int(token))

    def _note_heavy(
        self,
        rows: Prefixes,
        leaks: np.ndarray,
        masses: np.ndarray,
        outlook: Outlook,
    ) -> None:
        """Keep the prefixes that leak most, one without a keyword yet with the likeliest token that completes one."""
        pending = self.automaton.pending(rows.state)
        heaviest = np.argsort(-leaks, kind="stable")[:HEAVIEST]
        for row in heaviest[leaks[heaviest] > 0]:
            tokens = tuple(rows.tokens[row, len(self.question.prompt) :].tolist())
            mass = leaks[row]
            if not pending[row]:
                leak_masses = masses[row] * outlook.leak
                tokens = (*tokens, int(leak_masses.argmax()))
                mass = leak_masses.max()
            self.heavy.append((float(mass), tokens))
        if len(self.heavy) > 2 * CANDIDATES:
            self.heavy = sorted(self.heavy, reverse=True)[:CANDIDATES]

    def _score(self, step: int) -> None:
        """Let the scorer judge the finished answers that the automaton cannot read."""
        if not self.finished:
            return
        texts = self.question.decode([answer.tokens for answer in self.finished])
        leaking = self.question.scores(texts)
        for answer, text, leaks in zip(self.finished, texts, leaking, strict=True):
            if leaks:
                self.leak[step] += answer.mass
                self.leaks += answer.count
                if answer.mass:
                    self.heavy.append((answer.mass, answer.tokens))
                continue
            self.clean[step] += answer.mass
            if not text.strip():
                self.blank += answer.mass
        self.finished = []

    def _grown(self) -> Grown:
        entropy = length = float("nan")
        if self.sampled and self.measures:
            entropy = self.entropy / self.sampled
            length = self.length / self.sampled
        masses = Masses(
            tuple(self.leak.tolist()),
            tuple(self.clean.tolist()),
            self.blank,
            max(0.0, self.unscored),
            self.unconfirmed,
        )
        return Grown(
            masses=masses,
            remainder=Remainder(self.growth.rho, self.sampled, self.leaks),
            rest=self.rest,
            rows=self.rows,
            explored=self.explored,
            heaviest=self._heaviest(),
            priorities=np.concatenate([*self.priorities, np.zeros(0)]),
            decided=np.concatenate([*self.decided, np.zeros(0)]),
            entropy=entropy,
            length=length,
        )

    def _heaviest(self) -> tuple[HeavyLeak, ...]:
        """The leaks of most mass, of which those of one text count together."""
        texts = []
        if self.heavy:
            texts = self.question.decode([tokens for _, tokens in self.heavy])
        mass_of_text: dict[str, float] = {}
        for (mass, _), text in zip(self.heavy, texts, strict=True):
            mass_of_text[text] = mass_of_text.get(text, 0.0) + mass
        heaviest = sorted(mass_of_text, key=mass_of_text.__getitem__, reverse=True)[:HEAVIEST]
        return tuple(HeavyLeak(text, mass_of_text[text]) for text in heaviest)
