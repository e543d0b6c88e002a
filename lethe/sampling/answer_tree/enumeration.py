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
    """Predicts next tokens from equally long prefixes, the rows, which it keeps from one step to the next.

    Attributes
    ----------
    vocabulary
        V, the number of tokens that a row of logits scores.
    """

    vocabulary: int

    def begin(self, prefixes: np.ndarray, positions: int) -> None:
        """Replace all rows by ``prefixes`` (rows, length), which may grow to ``positions`` tokens.

        The first `step` reads their last token.
        """

    def step(self, tokens: np.ndarray) -> np.ndarray:
        """Append one token (rows,) to each row, and return the logits (rows, V) of the next one."""

    def fork(self, parents: np.ndarray) -> np.ndarray:
        """Replace the rows by the rows ``parents`` (children,), of which a row may occur several times.

        Returns
        -------
        numpy.ndarray
            ``order`` (children,): the new row i represents ``parents[order[i]]``.
        """

    def most_rows(self) -> int:
        """Return the number of rows for which there is memory, at least 1."""


@dataclass(frozen=True)
class TreeQuestion:
    """A prompt's tokens, and the definition of a leak.

    Attributes
    ----------
    question_id
        The id of the question in the dataset.
    prompt
        The tokens that the model reads, at least one.
    automaton
        Decides most answers from their tokens.
    decode
        Turns the tokens of the other answers into texts.
    scores
        Judges these texts.
    seeds
        Tokens of answers whose prefixes are always explored, such as those of the answer in the dataset.
    note
        How answers are judged, for people who read the result.

    Raises
    ------
    BadValue
        If the prompt has no token.
    """

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
    """The extent of a growth.

    Attributes
    ----------
    theta
        The least priority of an explored prefix. The priority is the minimum of mass x exp(``guide`` x share of a keyword
        read) along the path. Above 1 nothing is explored, and whole answers are sampled.
    guide
        How much a keyword that is half read raises the priority: 0 explores by mass alone.
    rho
        The rate at which the unexplored rest is sampled, in answers per unit of mass; 0 samples nothing.
    most_explored
        The number of prefixes after which the exploration ends, whatever their priority. It is legal only without a rate,
        because the explored set must not depend on the draws.
    counted_guide
        The guide of the priorities that the result reports, from which the next growth is planned.
    """

    theta: float
    guide: float = 0.0
    rho: float = 0.0
    most_explored: int | None = None
    counted_guide: float = 0.0


@dataclass(frozen=True)
class Grown:
    """The result of a growth.

    Attributes
    ----------
    masses
        The mass that certainly leaks and that certainly does not, by the token that decides.
    remainder
        The sample of the unexplored rest: its rate, its size, and how many of its answers leak.
    rest
        The unexplored mass, in [0, 1].
    rows
        The rows that went through the model.
    explored
        Those of them that were explored, not read for a sample.
    heaviest
        The leaks of most mass, the heaviest first.
    priorities
        (explored,) the priority of each explored prefix under the counted guide.
    decided
        (explored,) the mass that the next token of each explored prefix decides.
    entropy
        The mean entropy of the sampled answers in nats; NaN without samples of whole answers.
    length
        Their mean length in tokens; NaN likewise.
    """

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
    """The automaton's values for the state after each token, as seen from one state.

    Attributes
    ----------
    following
        (V,) the state after each token.
    leak
        (V,) whether the answer then leaks, whatever follows.
    end
        (V,) the verdict if the answer ends there: `CLEAN_END`, `LEAK_END` or `UNKNOWN_END`.
    blank
        (V,) whether an answer that ends there has no visible character.
    pending
        (V,) whether a keyword is complete, and the next character decides.
    needs
        (V,) the number of further tokens before which no answer leaks.
    matched
        (D,) the share of a keyword read, of the D distinct states that follow: most tokens lead to few states.
    place
        (V,) the index of each token's state among the distinct ones.
    most_needed
        The largest of ``needs``.
    """

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
    """The consequences of each token in one state, if a certain number of tokens may follow.

    Attributes
    ----------
    following
        (V,) the state after each token.
    leak
        (V,) whether the answer certainly leaks.
    clean
        (V,) whether it certainly does not.
    blank
        (V,) whether it is finished, clean and has no visible character.
    pending
        (V,) whether a keyword is complete, and the next character decides.
    unknown
        (V,) whether it is finished, and only the scorer can judge it.
    least
        (V,) the least mass at which a child is explored; inf where nothing is left to explore.
    """

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
    """The function from a state, and the number of tokens that may follow the next one, to their `Outlook`.

    Outlooks are kept, up to `MOST_ENTRIES` values: thousands of rows are in the same state.
    """
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
    """Prefixes of one length, each explored or followed by sampled answers.

    Attributes
    ----------
    tokens
        (rows, length) those of the prompt included.
    mass
        (rows,) the probability of the prefix; defined only where it is explored.
    state
        (rows,) the state of the automaton.
    counted
        (rows,) the priority under the counted guide; defined only where the prefix is explored.
    count
        (rows,) the number of sampled answers that follow the prefix; 0 where it is explored.
    confidence
        (rows,) the sum of the largest next-token probabilities so far.
    seeds
        (rows, S) whether the prefix begins that seed of the question.
    parent
        (rows,) the row of the previous level.
    """

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
    """One call of `grow`: the sums so far, over all levels and parts.

    A level that exceeds the predictor's memory is cut into parts, each of which runs to the end of its answers before the
    next begins.
    """

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

        # Masses: (T,) by the deciding token, and sums over the tree.
        self.leak, self.clean = np.zeros((2, law.max_new_tokens))
        self.blank = self.unscored = self.unconfirmed = self.rest = 0.0

        # Counts: rows of the model; children that `_ration` let pass; sampled answers, and those that leak.
        self.rows = self.explored = self.granted = self.sampled = self.leaks = 0

        # Sums over sampled answers, taken where whole answers are sampled.
        self.measures = growth.theta > 1
        self.entropy = self.length = 0.0

        # Of explored rows, in one order: priority, and the mass that leaks or does not.
        self.priorities: list[np.ndarray] = []
        self.decided: list[np.ndarray] = []

        self.heavy: list[tuple[float, tuple[int, ...]]] = []  # mass and tokens of leaks
        self.finished: list[_Finished] = []  # of the current level

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
        left = self.law.max_new_tokens - step - 1
        self.rows += len(rows)
        self.explored += int((rows.count == 0).sum())
        logits = self.predictor.step(rows.tokens[:, -1])

        # Without a child the level is empty, of the right shape.
        nothing = np.zeros((0, rows.tokens.shape[1] + 1), np.int64)
        children = [replace(rows.take(slice(0, 0)), tokens=nothing)]
        block = max(1, ENTRIES_AT_ONCE // logits.shape[1])
        for start in range(0, len(rows), block):
            end = min(start + block, len(rows))
            part = replace(rows.take(slice(start, end)), parent=np.arange(start, end))
            chances, confidence = self.law.probabilities(logits[start:end], part.confidence, step)
            part = replace(part, confidence=confidence)

            # Rows of one state share an outlook, so they are counted together.
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
        """The children of explored rows in one state, once their masses are counted.

        Parameters
        ----------
        chances
            (rows, V) the next-token probabilities.
        outlook
            What each token leads to from the state of all these rows.
        step
            The number of tokens that the answers have before this one.

        Returns
        -------
        list of Prefixes
            The explored children, and with a rate those in which sampled answers begin.
        """
        masses = chances * rows.mass[:, None]  # (rows, V)

        # What the next token decides.
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

        # Which children are explored: the heavy ones, and those that begin a seed.
        explored = masses >= outlook.least
        if self.growth.most_explored is not None:
            self._ration(explored, masses, outlook, self.growth.most_explored)
        for number, seed in enumerate(self.question.seeds):
            if step < len(seed) and np.isfinite(outlook.least[seed[step]]):
                explored[rows.seeds[:, number], seed[step]] = True
        # `numpy.nonzero` in a fifth of its time.
        row, token = np.divmod(np.flatnonzero(explored), masses.shape[1])

        # Finished answers that the automaton cannot judge: the heavy ones go to the scorer.
        taken = explored | outlook.leak | outlook.clean
        if outlook.unknown.any():
            finished = outlook.unknown & (masses >= SCORED_FROM)
            for place, last in np.argwhere(finished):
                answer = self._answer(rows, place, last)
                self.finished.append(_Finished(answer, float(masses[place, last]), count=0))
            self.unscored += float((masses * outlook.unknown).sum() - masses[finished].sum())
            taken |= finished

        # The rest is left to sampling.
        open_chances = np.where(taken, 0.0, chances)
        rest = open_chances.sum(axis=1) * rows.mass
        self.rest += float(rest.sum())
        if outlook.pending.any():
            self.unconfirmed += float(((open_chances @ outlook.pending) * rows.mass).sum())

        mass = masses[row, token]
        nobody = np.zeros(len(row), np.int64)
        children = [self._grown_rows(rows, row, token, outlook, mass, count=nobody)]
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
        """Drop the children of least worth, in place, if there are more than may still be explored.

        ``explored`` and ``masses`` are (rows, V). The worth of a child is its mass over the least that is explored.
        """
        left = max(0, most - self.granted)
        chosen = np.flatnonzero(explored)
        if len(chosen) > left:
            worth = masses.ravel()[chosen] / outlook.least[chosen % masses.shape[1]]
            best_first = np.argsort(-worth, kind="stable")
            explored.flat[chosen[best_first[left:]]] = False
        self.granted += min(len(chosen), left)

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
        """The children in which draws of the next token begin or go on; finished answers are counted.

        Parameters
        ----------
        chances
            (rows, V) the probabilities of the tokens that may be drawn, unnormalised.
        counts
            (rows,) the number of draws from each row.
        """
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

        # Draws of the same token from the same row are one child with a count.
        pairs, count = np.unique(chosen[place] * vocabulary + drawn, return_counts=True)
        row, token = np.divmod(pairs, vocabulary)

        self.leaks += int(count[outlook.leak[token]].sum())
        for at in np.flatnonzero(outlook.unknown[token]):
            answer = self._answer(rows, row[at], token[at])
            self.finished.append(_Finished(answer, mass=0.0, count=int(count[at])))

        goes_on = ~(outlook.leak | outlook.clean | outlook.unknown)[token]
        row = row[goes_on]
        token = token[goes_on]
        no_mass = np.zeros(len(row))
        return [self._grown_rows(rows, row, token, outlook, no_mass, count=count[goes_on])]

    def _grown_rows(
        self,
        rows: Prefixes,
        row: np.ndarray,
        token: np.ndarray,
        outlook: Outlook,
        mass: np.ndarray,
        count: np.ndarray,
    ) -> Prefixes:
        """The children of the rows ``row`` by the tokens ``token``; all arrays are (children,)."""
        step = rows.tokens.shape[1] - len(self.question.prompt)
        seeds = np.zeros((len(row), len(self.question.seeds)), bool)
        for number, seed in enumerate(self.question.seeds):
            if step < len(seed):
                seeds[:, number] = rows.seeds[row, number] & (token == seed[step])

        state = outlook.following[token].astype(np.int64)
        matched = self.automaton.matched(state)
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
        """The tokens of the answer that ends with ``token`` behind a row, without those of the prompt."""
        return (*rows.tokens[row, len(self.question.prompt) :].tolist(), int(token))

    def _note_heavy(
        self,
        rows: Prefixes,
        leaks: np.ndarray,
        masses: np.ndarray,
        outlook: Outlook,
    ) -> None:
        """Keep the prefixes that leak most, as candidates for the heaviest leaks of the result.

        A prefix without a complete keyword is kept with the likeliest token that completes one. ``leaks`` (rows,) is the
        leaking mass of ``masses`` (rows, V).
        """
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
        """The result, once every part has ended."""
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
