"""Shared prefixes: samples of a prompt that agree so far share one row of the model's batch.

The draws stay independent: each sample follows its own row of a random table by inverse transform, and a row is forked
when its samples diverge. A row is a distinct prefix, and the live rows are the frontier of the trie of all samples. A
more confident model shares, and so saves, more.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch

from lethe.errors import LetheError
from lethe.io.answer_ends import CUT_OFF, STOPPED
from lethe.io.artifacts import GREEDY
from lethe.models.agreement import EngineStep, steps_of
from lethe.models.checkpoints import Source
from lethe.models.model import Model
from lethe.sampling.draws import check_numbers, draw, random_table, weigh
from lethe.sampling.engine import (
    Answers,
    CannotOpen,
    Options,
    Prompt,
    Settings,
    answers_of,
    asked_to_watch,
    check_prompts,
)
from lethe.sampling.predictor import PREFILL_ROWS, RowCache, RowModel, slots

if TYPE_CHECKING:
    from transformers import PreTrainedModel

logger = logging.getLogger(__name__)

WEIGHTS_AT_ONCE = 1 << 24  # entries of a (rows, vocabulary) block of the draws: 128 MiB in float64


class PrefixEngine:
    """Samples several prompts at once if that cannot change a bit of any result, else one prompt at a time.

    Attributes
    ----------
    together
        Whether prompts share batches.
    repeatable
        Whether a single answer is drawn again bit for bit, whichever prompts share its batch.

    Raises
    ------
    CannotOpen
        If the model keeps its state in something else than keys and values, as state-space models do.
    """

    name = "prefix"
    in_memory = True

    def __init__(self, source: Source, options: Options):
        self.checkpoint = Model.of(source, options.device, options.dtype)
        self.max_rows = options.max_rows
        self.forward = RowModel(self.checkpoint.load(options.device, options.dtype))
        if not self.forward.keeps_keys():
            raise CannotOpen(
                str(source), self.name, "the model keeps no key-value cache", "transformers"
            )
        on_gpu = self.forward.device.type != "cpu"
        # A GPU gives no bitwise guarantee anyway, so prompts share batches there for speed.
        self.together = on_gpu or self.forward.rows_are_independent()
        self.repeatable = self.together and not on_gpu
        if not self.together:
            logger.info(
                "prefix engine: rows of a batch change each other's last bits, so prompts run one at a time"
            )

    def answer(self, prompts: Sequence[Prompt], settings: Settings) -> Iterator[Answers]:
        check_prompts(prompts, settings, self.checkpoint.context, self.checkpoint.vocabulary)
        yield from Decoding(self, prompts, settings).run()

    def watched(
        self, prompts: Sequence[tuple[int, ...]], samples: int, tokens: int
    ) -> Iterator[EngineStep]:
        asked, settings = asked_to_watch(prompts, samples, tokens)
        decoding = Decoding(self, asked, settings)
        decoding.endless()
        decoding.watch = []
        for _ in decoding.run():
            yield from decoding.watch
            decoding.watch.clear()

    def whole_model(self) -> PreTrainedModel:
        return self.forward.model


class Decoding:
    """One call of `answer`: prompts wait until the running rows reach their length, then join.

    Attributes
    ----------
    max_rows
        The rows that may run at once; halved whenever the memory does not suffice.
    frontier
        The rows that run, and the samples on them.
    pending
        The branches that wait: prompts that have not begun, and branches that had to yield.
    unfinished
        By prompt, the number of samples without a finished answer.
    leaves
        By prompt, the finished answers.
    watch
        Takes the steps of the engine, where there is such a list.
    """

    watch: list[EngineStep] | None = None

    def __init__(self, engine: PrefixEngine, prompts: Sequence[Prompt], settings: Settings):
        self.engine = engine
        self.prompts = prompts
        self.settings = settings
        self.forward = engine.forward
        self.checkpoint = engine.checkpoint
        self.max_rows = engine.max_rows

        self.frontier = Frontier(
            self.checkpoint.end_ids, settings.max_new_tokens, self.forward.vocabulary
        )
        self.pending = [self._whole(index) for index in range(len(prompts))]
        self.unfinished = [len(branch.number) for branch in self.pending]
        self.leaves: list[list[FinishedAnswer]] = [[] for _ in prompts]

        # The forecast: the largest rows per sample of finished branches; a quarter until one is finished.
        self.done_rows = 0.25
        self.done_samples = 1

    def _whole(self, index: int) -> PrefixBatch:
        """The branch of all answers to a prompt, at its start."""
        prompt = self.prompts[index]
        samples = len(numbers_of(self.settings, prompt))
        first = GREEDY if self.settings.greedy else 0  # places in the table of draws
        return PrefixBatch(
            prompt=index,
            tokens=np.array([prompt.token_ids], np.int64),
            confidence=np.zeros(1),
            number=np.arange(first, first + samples),
            row=np.zeros(samples, np.int64),
        )

    def endless(self) -> None:
        """Let no token end an answer."""
        self.frontier = Frontier((), self.settings.max_new_tokens, self.forward.vocabulary)

    def run(self) -> Iterator[Answers]:
        """Each prompt's answers, when all of them are drawn.

        Where the memory does not suffice, the running branches begin again with half the rows.

        Raises
        ------
        LetheError
            If the memory does not suffice for a single row.
        """
        longest = max((len(prompt.token_ids) for prompt in self.prompts), default=0)
        self.cache = RowCache(longest + self.settings.max_new_tokens)
        while self.pending or len(self.frontier):
            try:
                with torch.inference_mode():
                    self._join()
                    self._step()
                exhausted = None
            except (torch.OutOfMemoryError, RuntimeError, MemoryError) as error:
                plain = not isinstance(error, (torch.OutOfMemoryError, MemoryError))
                if plain and "DefaultCPUAllocator" not in str(error):  # so torch says it on the CPU
                    raise
                exhausted = str(error) or type(error).__name__
            if exhausted:
                self._halve(exhausted)
            yield from self._finished()

    def _join(self) -> None:
        """Start the branches that are as long as the running rows, while the forecast leaves rows.

        Nothing runs at first, and after the last running branch has ended: then the shortest pending ones begin.
        """
        if not len(self.frontier):
            self.frontier.clear(min(branch.length for branch in self.pending))
        as_long = [branch for branch in self.pending if branch.length == self.frontier.length]
        for branch in as_long:
            if len(self.frontier) and not self._fits(branch):
                break

            # The next step reads the last token itself.
            if branch.length > 1:
                self._prefill(branch.tokens[:, :-1])
            prompt = self.prompts[branch.prompt]
            table = random_numbers(self.settings, prompt)
            self.frontier.join(branch, len(prompt.token_ids), table[branch.number])
            self.pending.remove(branch)

    def _prefill(self, tokens: np.ndarray) -> None:
        """Fill the slots behind those of the running rows with the keys of rows of tokens."""
        for start in range(0, len(tokens), PREFILL_ROWS):
            rows = tokens[start : start + PREFILL_ROWS]
            self.cache.fill(len(self.frontier) + start, self.forward.prefill(rows))

    def _fits(self, branch: PrefixBatch) -> bool:
        """Whether the forecast rows suffice for one more branch; if not, the youngest branch must yield."""
        forecast = self._forecast(branch)
        for key, running in self.frontier.running.items():
            rows = int(np.count_nonzero(self.frontier.owner == key))
            if rows >= running.most_rows:  # else the branch is past its peak
                rows = max(rows, self._forecast(running.start))
            forecast += rows
        return self.engine.together and forecast <= self.max_rows

    def _forecast(self, branch: PrefixBatch) -> int:
        """The rows that a branch is expected to have at its peak."""
        rows = int(len(branch.number) * self.done_rows / self.done_samples)
        return max(len(branch.tokens), rows)

    def _step(self) -> None:
        """Read one token of all rows, and draw the next one of all samples."""
        frontier = self.frontier
        self.cache.set_length(frontier.length - 1)
        logits = self.forward.step(frontier.tokens[:, -1], self.cache)
        if self.watch is not None:
            self.watch += steps_of(frontier.tokens, logits)

        # (samples,) who takes the likeliest token in place of the drawn one
        top, drawn = self._draw(logits)
        forced = frontier.number == GREEDY
        if self.settings.adaptive_threshold is not None:
            mean = (frontier.confidence + top) / (frontier.steps_done() + 1)  # (rows,)
            forced |= (mean > self.settings.adaptive_threshold)[frontier.row]
        rows, row_of_sample = np.unique(frontier.row[forced], return_inverse=True)
        likeliest = logits[torch.from_numpy(rows).to(logits.device)].argmax(-1)
        drawn[forced] = likeliest.cpu().numpy()[row_of_sample]

        frontier.grow(top, drawn)
        self._relieve()
        sources, targets = frontier.settle()
        self.cache.copy(len(frontier), sources, targets)

    def _draw(self, logits: torch.Tensor) -> tuple[np.ndarray, np.ndarray]:
        """(rows,) the top probabilities at temperature 1, and (samples,) the drawn tokens.

        ``logits`` (rows, V) are read a block of rows at a time, which bounds the memory of the weights.
        """
        settings = self.settings
        row_of_sample = self.frontier.row
        draws = self.frontier.draws()
        drawn = np.empty(len(draws), np.int64)
        tops = []
        n_rows = max(1, WEIGHTS_AT_ONCE // logits.shape[1])
        for start in range(0, len(logits), n_rows):
            end = start + n_rows
            block = logits[start:end]
            top, weights = weigh(block, settings.temperature, settings.top_k, settings.top_p)
            tops.append(check_numbers(top))

            samples = np.flatnonzero((row_of_sample >= start) & (row_of_sample < end))
            row_in_block = torch.from_numpy(row_of_sample[samples] - start).to(logits.device)
            draw_of_sample = torch.from_numpy(draws[samples]).to(logits.device)
            drawn[samples] = draw(weights, row_in_block, draw_of_sample).cpu().numpy()
        return torch.cat(tops).double().cpu().numpy(), drawn

    def _relieve(self) -> None:
        """Let rows wait where more than `max_rows` live.

        A branch that is too wide by itself is split, then the youngest branches yield. The bits of no draw change: each
        sample keeps its own row of the table of draws.
        """
        frontier = self.frontier
        for key in list(frontier.running):
            if np.count_nonzero(frontier.owner == key) > self.max_rows:
                done, parts = frontier.split(key, max(1, self.max_rows // 2))
                self._keep_leaves(done)
                self.pending += parts

        while len(frontier) > self.max_rows:
            self.pending.append(frontier.abandon(max(frontier.running)))

    def _halve(self, message: str) -> None:
        """Start all running branches again, with half the rows; raises `LetheError` where there is one row."""
        rows = min(len(self.frontier), self.max_rows)
        if rows <= 1:
            raise LetheError(f"Out of memory with a single live row: {message}")
        self.max_rows = rows // 2
        logger.warning(
            "out of memory with %d live rows: continuing with at most %d", rows, self.max_rows
        )

        # Everything that holds memory goes, before a branch begins again.
        self.pending += [self.frontier.abandon(key) for key in list(self.frontier.running)]
        self.cache.layers.clear()
        gc.collect()
        if self.forward.device.type == "cuda":
            torch.cuda.empty_cache()

    def _finished(self) -> Iterator[Answers]:
        """The answers to the prompts whose last branch has just ended; its rows improve the forecast."""
        for running in self.frontier.finished():
            self.done_rows += running.most_rows
            self.done_samples += len(running.start.number)
            self._keep_leaves(running)
            if not self.unfinished[running.start.prompt]:
                yield self._answers(running.start.prompt)

    def _keep_leaves(self, running: Running) -> None:
        """Keep the finished answers of a branch that is no longer running."""
        self.leaves[running.start.prompt] += running.leaves
        self.unfinished[running.start.prompt] -= sum(len(leaf.number) for leaf in running.leaves)

    def _answers(self, index: int) -> Answers:
        """The answers to a prompt whose leaves are all there, which are then forgotten."""
        prompt = self.prompts[index]
        leaves = self.leaves[index]
        self.leaves[index] = []
        numbers = numbers_of(self.settings, prompt)
        leaf_of_sample = np.empty(len(numbers), np.int64)
        for place, leaf in enumerate(leaves):
            leaf_of_sample[leaf.number + self.settings.greedy] = place
        drawn = [leaves[place] for place in leaf_of_sample]
        return answers_of(
            self.checkpoint,
            prompt,
            numbers,
            [leaf.tokens for leaf in drawn],
            [leaf.finish_reason for leaf in drawn],
            [leaf.mean_confidence for leaf in drawn],
        )


def numbers_of(settings: Settings, prompt: Prompt) -> list[int]:
    """The numbers of the answers to a prompt in the order of the output: the greedy one first."""
    if prompt.only is None:
        return settings.of(prompt).sample_numbers()
    numbers = sorted(set(prompt.only))
    if settings.greedy:
        numbers.insert(0, GREEDY)
    return numbers


def random_numbers(settings: Settings, prompt: Prompt) -> np.ndarray:
    """(n + 1, steps) the random numbers of the answers to a prompt.

    The last row is the greedy answer's, whose number is -1 and which draws nothing. Batches are stacked, so that all their
    samples share rows.
    """
    steps = settings.max_new_tokens
    tables = []
    if prompt.only is None:
        for batch in settings.of(prompt).batches():
            table = random_table(settings.stream(prompt.prompt_id, batch.first), batch.end, steps)
            tables.append(table[batch.start :])
    else:
        tables.append(_rows_of(settings, prompt.prompt_id, sorted(set(prompt.only))))
    tables.append(np.zeros((1, steps), np.int64))
    return np.concatenate(tables)


def _rows_of(settings: Settings, prompt_id: str, numbers: Sequence[int]) -> np.ndarray:
    """The random numbers of single answers: the rows that they have in the tables of their batches."""
    places_of_batch: dict[int, list[int]] = {}
    for number in numbers:
        place = number % settings.batch
        places_of_batch.setdefault(number - place, []).append(place)
    tables = [np.zeros((0, settings.max_new_tokens), np.int64)]
    for first, places in places_of_batch.items():
        stream = settings.stream(prompt_id, first)
        table = random_table(stream, max(places) + 1, settings.max_new_tokens)
        tables.append(table[places])
    return np.concatenate(tables)


@dataclass(frozen=True, eq=False)
class PrefixBatch:
    """Work that can start at any time: equally long prefixes of one prompt, and the samples that follow them.

    Attributes
    ----------
    prompt
        The place of the prompt among those of the call.
    tokens
        (rows, length) those of the prompt included.
    confidence
        (rows,) the sum of the top probabilities so far.
    number
        (samples,) the row of each sample in the prompt's `random_numbers`; -1 for the greedy answer.
    row
        (samples,) the prefix that a sample follows.
    """

    prompt: int
    tokens: np.ndarray
    confidence: np.ndarray
    number: np.ndarray
    row: np.ndarray

    @property
    def length(self) -> int:
        """The number of tokens of each prefix."""
        return self.tokens.shape[1]


@dataclass(frozen=True)
class FinishedAnswer:
    """A finished answer and the samples that drew it.

    Attributes
    ----------
    tokens
        The generated tokens, the end token included.
    number
        (samples,) the samples, numbered as in `PrefixBatch`.
    mean_confidence
        The mean top probability over the tokens, in (0, 1].
    stopped
        Whether the model ended the answer itself, not the largest number of tokens.
    """

    tokens: tuple[int, ...]
    number: np.ndarray
    mean_confidence: float
    stopped: bool

    @property
    def finish_reason(self) -> str:
        return STOPPED if self.stopped else CUT_OFF


@dataclass
class Running:
    """A running branch: its start, in case of a restart, its finished leaves, and its rows at their peak."""

    start: PrefixBatch
    leaves: list[FinishedAnswer] = field(default_factory=list)
    most_rows: int = 0


class Frontier:
    """Flat arrays over the live rows of all running branches, all equally long, and over the samples that follow them.

    Attributes
    ----------
    running
        The running branches, by a key that counts up: the largest key is the youngest branch.
    tokens
        (rows, length) those of the prompts included.
    owner
        (rows,) the key of the row's branch.
    prompt_length
        (rows,) the number of tokens of the row's prompt.
    confidence
        (rows,) the sum of the top probabilities so far.
    parent
        (rows,) the slot of the row's parent in the cache, between `grow` and `settle`.
    row
        (samples,) the row that a sample follows.
    number
        (samples,) its number, as in `PrefixBatch`.
    lane
        (samples,) its row of ``table``.
    table
        (lanes, steps) the draws; lanes of ended samples stay until the next branch joins.
    """

    def __init__(self, end_ids: tuple[int, ...], max_new_tokens: int, vocabulary: int):
        self.end_ids = np.array(end_ids, int)
        self.max_new_tokens = max_new_tokens
        self.vocabulary = vocabulary
        self.running: dict[int, Running] = {}
        self._joined = 0
        self.clear(0)

    def clear(self, length: int) -> None:
        """Remove all rows and samples; the next rows have so many tokens."""
        self.tokens = np.zeros((0, length), np.int64)
        self.owner = self.prompt_length = self.parent = np.zeros(0, np.int64)
        self.confidence = np.zeros(0)
        self.row = self.number = self.lane = np.zeros(0, np.int64)
        self.table = np.zeros((0, self.max_new_tokens), np.int64)

    @property
    def length(self) -> int:
        """The number of tokens of each row."""
        return self.tokens.shape[1]

    def __len__(self) -> int:
        return len(self.tokens)

    def join(self, branch: PrefixBatch, prompt_length: int, table: np.ndarray) -> None:
        """Run a branch whose prefixes are as long as the rows.

        Parameters
        ----------
        prompt_length
            The number of tokens of its prompt.
        table
            (samples, steps) the draws of its samples.
        """
        key = self._joined
        rows = len(branch.tokens)
        self._joined += 1
        self.running[key] = Running(branch, most_rows=rows)

        # Samples first: their rows stand behind those that run already.
        self.row = np.concatenate([self.row, branch.row + len(self)])
        self.number = np.concatenate([self.number, branch.number])
        self.table = np.concatenate([self.table[self.lane], table])
        self.lane = np.arange(len(self.table))

        self.tokens = np.concatenate([self.tokens, branch.tokens])
        self.confidence = np.concatenate([self.confidence, branch.confidence])
        self.owner = np.append(self.owner, np.full(rows, key))
        self.parent = np.arange(len(self))
        self.prompt_length = np.append(self.prompt_length, np.full(rows, prompt_length))

    def steps_done(self) -> np.ndarray:
        """(rows,) the number of generated tokens."""
        return self.length - self.prompt_length

    def draws(self) -> np.ndarray:
        """(samples,) the draw of each sample's next token."""
        return self.table[self.lane, self.steps_done()[self.row]]

    def grow(self, top_probability: np.ndarray, drawn: np.ndarray) -> None:
        """Put every sample on the row of its new token; finished answers become leaves of their branch.

        Parameters
        ----------
        top_probability
            (rows,) the largest next-token probability at temperature 1.
        drawn
            (samples,) the new tokens.
        """
        # A child is a pair of a row and a token, written as one whole number.
        children, row = np.unique(self.row * self.vocabulary + drawn, return_inverse=True)
        parent, token = np.divmod(children, self.vocabulary)
        self.row = row.reshape(-1)
        self.parent = parent
        self.tokens = np.column_stack([self.tokens[parent], token])
        self.owner = self.owner[parent]
        self.prompt_length = self.prompt_length[parent]
        self.confidence = (self.confidence + top_probability)[parent]

        stopped = np.isin(token, self.end_ids)
        finished = stopped | (self.steps_done() == self.max_new_tokens)
        if finished.any():
            self._shed(finished, stopped)
        for key, rows in zip(*np.unique(self.owner, return_counts=True), strict=True):
            self.running[key].most_rows = max(self.running[key].most_rows, rows)

    def _shed(self, finished: np.ndarray, stopped: np.ndarray) -> None:
        """Move the ``finished`` (rows,) rows to the leaves of their branches; ``stopped`` (rows,): by an end token."""
        samples = np.flatnonzero(finished[self.row])
        samples = samples[np.argsort(self.row[samples], kind="stable")]
        next_row = np.flatnonzero(np.diff(self.row[samples])) + 1
        samples_of_rows = np.split(samples, next_row)
        means = self.confidence / self.steps_done()
        for row, followers in zip(np.flatnonzero(finished), samples_of_rows, strict=True):
            generated = self.tokens[row, self.prompt_length[row] :]
            leaf = FinishedAnswer(
                tokens=tuple(generated.tolist()),
                number=self.number[followers],
                mean_confidence=float(means[row]),
                stopped=bool(stopped[row]),
            )
            self.running[self.owner[row]].leaves.append(leaf)
        self._keep(~finished)

    def _keep(self, rows: np.ndarray) -> None:
        """Drop the other rows, and the samples that follow them. ``rows``: (rows,) of bool."""
        samples = rows[self.row]
        self.row = (np.cumsum(rows) - 1)[self.row[samples]]
        self.number = self.number[samples]
        self.lane = self.lane[samples]
        self._take(rows)

    def _take(self, rows: np.ndarray) -> None:
        """Choose rows, by place or mask, in every array over rows."""
        for name in ("tokens", "owner", "prompt_length", "confidence", "parent"):
            setattr(self, name, getattr(self, name)[rows])

    def finished(self) -> list[Running]:
        """Remove and return the branches without a live row."""
        done = [key for key in self.running if key not in set(self.owner.tolist())]
        return [self.running.pop(key) for key in done]

    def split(self, key: int, most_rows: int) -> tuple[Running, list[PrefixBatch]]:
        """Remove a branch that has too many rows.

        Returns
        -------
        tuple
            Its finished part, and the rest as branches of up to ``most_rows`` rows, in the order of their tokens.
        """
        rows = np.flatnonzero(self.owner == key)
        rows = rows[np.lexsort(self.tokens[rows].T[::-1])]
        starts = range(0, len(rows), most_rows)
        parts = [self._branch(rows[start : start + most_rows]) for start in starts]
        self._keep(self.owner != key)
        return self.running.pop(key), parts

    def _branch(self, rows: np.ndarray) -> PrefixBatch:
        """A branch of some rows of one running branch."""
        position = np.full(len(self), -1)
        position[rows] = np.arange(len(rows))
        samples = position[self.row] >= 0
        running = self.running[self.owner[rows[0]]]
        return PrefixBatch(
            running.start.prompt,
            self.tokens[rows],
            self.confidence[rows],
            self.number[samples],
            row=position[self.row[samples]],
        )

    def abandon(self, key: int) -> PrefixBatch:
        """Remove an unfinished branch; returns the branch as it was when it joined."""
        self._keep(self.owner != key)
        return self.running.pop(key).start

    def settle(self) -> tuple[np.ndarray, np.ndarray]:
        """Give every child a slot below the number of children, and order the rows by slot.

        Returns
        -------
        tuple of numpy.ndarray
            (sources, targets), the slots of the cache that must be copied, and where to.
        """
        order, sources, targets = slots(self.parent)
        self._take(order)
        self.row = np.argsort(order)[self.row]
        return sources, targets
