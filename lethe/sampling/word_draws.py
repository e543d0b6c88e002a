"""Draws until the word on a model is certain: its answers, and those of the Retrains beside it, as
`lethe.statistics.policy` asks.

Every table has its answers in chunks of one grid: the first answers, then batches. So a Retrain's chunk that one model
asked for is in the store when another asks for it, and a killed process finds its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Self

import numpy as np
import pandas as pd

from lethe.config.measuring import Parts, SampleSettings
from lethe.errors import plural
from lethe.io import artifacts
from lethe.io.artifacts import Row
from lethe.progress import goals, progress
from lethe.sampling.answer import Answers
from lethe.sampling.engine import AnswerStore, Engine, Prompt, Settings
from lethe.sampling.tasks import SplitTask, table_of
from lethe.sampling.toward_word import goals_of, sentence_of
from lethe.sampling.word_rule import Rule
from lethe.scoring import parts as answer_parts
from lethe.scoring.scorer import Scorer, applies, open_scorer
from lethe.scoring.verdicts import FOLDER, AnsweredRow
from lethe.statistics.anytime import named
from lethe.statistics.policy import End, Evidence, Policy, Tally

Shorten = Callable[[pd.DataFrame], pd.DataFrame]


@dataclass(frozen=True)
class Judging:
    """How an answer is judged: by the rule's scorer, of the text that the stage score reads.

    The verdicts of a model judge are kept by content, from where the stages judge and score read them.

    Attributes
    ----------
    rule
        The rule of draws, with its scorer.
    items
        The row of the dataset, by the id of the question.
    parts
        How thinking and answer are told apart; None: the whole text is judged.
    """

    rule: Rule
    items: Mapping[str, Row]
    parts: Parts | None

    @cached_property
    def scorer(self) -> Scorer:
        """The scorer, opened when the first answer is judged."""
        return open_scorer(self.rule.scores_by, self.rule.params, FOLDER)

    def scores(self, answers: Answers, shorten: Shorten) -> np.ndarray:
        """The scores of the sampled answers to a question, NaN for a missing one."""
        if self.parts is None:  # then nothing shortens an answer either
            texts = answers.texts[answers.samples[0] == artifacts.GREEDY :]
        else:
            table = table_of([answers])
            sampled = table[table["sample"] != artifacts.GREEDY]
            texts = list(answer_parts.answers_of(shorten(sampled), self.parts)["text"])
        (scores,) = self.scorer.score([AnsweredRow(texts, self.items[answers.prompt_id])])
        return scores


class Drawer:
    """The answers of a model to the questions, which are drawn in chunks, and their counts.

    Parameters
    ----------
    task
        The prompts, and how answers to them are drawn.
    grid
        Where chunks begin.
    opened
        Opens the engine and the store once an answer is asked for: a Retrain that nobody asks is not loaded.
    judging
        Says which answers leak.
    shorten
        Cuts the answers of a table to the budgets of their parts.

    Attributes
    ----------
    n, leaks, missing
        By question: the answers that were drawn, those that leak, and those without a verdict.
    chunks
        By question, the settings of each chunk that was drawn, by which the store finds the answers.
    """

    def __init__(
        self,
        task: SplitTask,
        grid: Grid,
        opened: Callable[[], tuple[Engine, AnswerStore]],
        judging: Judging,
        shorten: Shorten,
    ):
        self.task = task
        self.grid = grid
        self.judging = judging
        self.shorten = shorten
        self._open = opened
        self.n = dict.fromkeys([prompt.prompt_id for prompt in task.prompts], 0)
        self.leaks = dict(self.n)
        self.missing = dict(self.n)
        self.chunks: dict[str, list[Settings]] = {name: [] for name in self.n}

    @cached_property
    def opened(self) -> tuple[Engine, AnswerStore]:
        """The engine and the store, opened at the first use."""
        return self._open()

    def draw(self, more: Mapping[str, int], label: str) -> None:
        """Draw so many more answers to each question, and count the leaks among them.

        Parameters
        ----------
        more
            The number of further answers by question; 0 where it is absent.
        label
            Names the work in the display of progress.
        """
        prompts_of_chunk: dict[Chunk, list[Prompt]] = {}
        for prompt in self.task.prompts:
            n = self.n[prompt.prompt_id]
            for chunk in self.grid.chunks(n, n + more.get(prompt.prompt_id, 0)):
                prompts_of_chunk.setdefault(chunk, []).append(prompt)

        for chunk, prompts in sorted(prompts_of_chunk.items()):
            engine, store = self.opened
            settings = self._settings(chunk)
            drawn = store.answer(engine, prompts, settings)
            for answers in progress(drawn, label, "questions", len(prompts)):
                self._count(answers, settings)

    def _settings(self, chunk: Chunk) -> Settings:
        """How the answers of a chunk are drawn; the greedy one comes with the first chunk."""
        greedy = self.task.settings.greedy and chunk.start == 0
        update = {"first_sample": chunk.start, "n": chunk.size, "greedy": greedy}
        return self.task.settings.model_copy(update=update)

    def _count(self, answers: Answers, settings: Settings) -> None:
        """Add the answers of a chunk to a question to the counts."""
        scores = self.judging.scores(answers, self.shorten)
        name = answers.prompt_id
        self.n[name] += len(scores)
        self.leaks[name] += int(np.nansum(scores))
        self.missing[name] += int(np.isnan(scores).sum())
        self.chunks[name].append(settings)

    def tally(self, questions: Sequence[str]) -> Tally:
        """The counts of some questions, (m,) each."""
        leaks = [self.leaks[name] for name in questions]
        n = [self.n[name] for name in questions]
        missing = [self.missing[name] for name in questions]
        return Tally.of(leaks, n, missing)

    def parts(self) -> Iterator[pd.DataFrame]:
        """The table of the drawn answers, in parts of whole questions, by sample; the only part is empty without any."""
        held: list[Answers] = []
        rows = 0
        is_first = True
        for prompt in self.task.prompts:
            of_question = []
            for settings in self.chunks[prompt.prompt_id]:
                of_question.append(self.opened[1].stored(prompt, settings))
            more = sum(len(answers.samples) for answers in of_question)
            if held and rows + more > artifacts.ROWS:
                yield self.shorten(table_of(held))
                held = []
                rows = 0
                is_first = False
            held += of_question
            rows += more
        if held:
            yield self.shorten(table_of(held))
        elif is_first:
            yield table_of([Answers("", [], [], [], [], [])])


@dataclass(frozen=True, order=True)
class Chunk:
    """The answers numbered ``start`` to ``start + size - 1``."""

    start: int
    size: int


@dataclass(frozen=True)
class Grid:
    """Where chunks begin: at 0, and from ``first`` on every ``batch`` answers."""

    first: int
    batch: int

    @classmethod
    def of(cls, sample: SampleSettings) -> Self:
        return cls(sample.at_first, sample.batch)

    def chunks(self, start: int, end: int) -> list[Chunk]:
        """The chunks of the answers numbered ``start`` to ``end - 1``.

        >>> Grid(first=1000, batch=128).chunks(0, 1256)
        [Chunk(start=0, size=1000), Chunk(start=1000, size=128), Chunk(start=1128, size=128)]
        """
        edges = [edge for edge in range(self.first, end, self.batch) if edge > start]
        begins = [start, *edges]
        ends = [*edges, end]
        chunks = []
        for begin, until in zip(begins, ends, strict=True):
            if until > begin:
                chunks.append(Chunk(begin, until - begin))
        return chunks


@dataclass
class Reached:
    """The largest evidence at the looks of a rule of draws: a word or a name once given stays (Ville).

    Looks are those of the rule alone: the path of a page has others.

    Attributes
    ----------
    tolerance
        By how much a model may leak beyond Retrain.
    goal
        What ln of an e-value must reach for a word, or for the name of a question.
    scorer
        The scorer of the rule, without which the evidence says nothing.
    forgot
        ln of the e-value against "beyond the tolerance", by question.
    leaks
        ln of the mean of the e-values against "within the tolerance".
    named_at
        By question, its number of answers when it was first named as one that leaks.
    """

    tolerance: float
    goal: float
    scorer: str
    forgot: dict[str, float] = field(default_factory=dict)
    leaks: float = -math.inf
    named_at: dict[str, int] = field(default_factory=dict)

    def look(self, items: Sequence[str], model: Tally, evidence: Evidence) -> None:
        """Keep what is larger at this look, whose e-values are of one moment."""
        is_named = named(evidence.log_e_leaks, self.goal)
        for place, item in enumerate(items):
            log_e = float(evidence.log_e_forgot[place])
            self.forgot[item] = max(log_e, self.forgot.get(item, log_e))
            if is_named[place]:
                self.named_at.setdefault(item, int(model.n[place]))
        self.leaks = max(self.leaks, float(evidence.log_e_mean))


@dataclass(frozen=True)
class ToWord:
    """The draws of a model that have ended, those of the Retrains beside it by name, and why they ended.

    ``reached`` is the largest evidence on the way; None without a look.
    """

    subject: Drawer
    beside: Mapping[str, Drawer]
    ended: End
    reached: Reached | None = None

    def tables_beside(self) -> dict[str, Iterator[pd.DataFrame]]:
        """The answers of each Retrain, as the parts of a table."""
        return {name: drawer.parts() for name, drawer in self.beside.items()}

    def record(self) -> dict[str, object]:
        """What the file beside the answers says of it."""
        drawn = list(self.subject.n.values())
        beside = {}
        for name, drawer in self.beside.items():
            stream = drawer.task.settings.stream_of
            beside[name] = {"stream": stream or "shared", "total": sum(drawer.n.values())}
        numbers = {"least": min(drawn), "most": max(drawn), "total": sum(drawn)}
        value: dict[str, object] = {"ended": self.ended, "drawn": numbers, "beside": beside}
        if self.reached is not None:
            value["reached"] = asdict(self.reached)
        return value

    def sentence(self) -> str:
        """How many answers it took, in words."""
        drawn = list(self.subject.n.values())
        least = min(drawn)
        most = max(drawn)
        to_each = f"{most:,} to each question"
        if least < most:
            to_each = f"{least:,} to {most:,} to a question"
        ends = {
            "capped": "the cap is reached",
            "leaks": "enough for leaks",
            "forgot": "enough for forgot, unless answers are cut off",
        }
        beside = ""
        if self.beside:
            of_retrain = sum(sum(drawer.n.values()) for drawer in self.beside.values())
            beside = f", and {of_retrain:,} of Retrain"
        return f"{plural(sum(drawn), 'answer')} ({to_each}){beside}: {ends[self.ended]}"


def draw_to_word(
    subject: Drawer,
    beside: Mapping[str, Drawer],
    policy: Policy,
    judging: Judging,
    label: str,
) -> ToWord:
    """Draw answers of a model, and of each Retrain, until the word is certain or every question is at the cap.

    A question that the scorer cannot judge gets the first answers alone. What is drawn next is a function of the counts so
    far, so that a killed process, whose answers the store has, takes the same path.

    Parameters
    ----------
    subject
        The model under test.
    beside
        The Retrains, by name.
    policy
        Says from the counts what is drawn next, and when the word is certain.
    judging
        Says which answers leak.
    label
        Names the work in the display of progress.
    """
    scorer = judging.rule.scorer
    names = list(subject.n)
    judged = [name for name in names if applies(judging.rule.scores_by, judging.items[name])]
    subject.draw(dict.fromkeys(names, policy.first), label)
    if not judged:
        return ToWord(subject, beside, "capped")
    reached = Reached(policy.tolerance, policy.goal, scorer)
    with goals(label) as show:
        while True:
            of_model = subject.tally(judged)
            of_retrains = [drawer.tally(judged) for drawer in beside.values()]
            step = policy.next(of_model, of_retrains)
            reached.look(judged, of_model, step.evidence)
            show(goals_of(judged, of_model, step), sentence_of(judged, step))
            if step.ended is not None:
                return ToWord(subject, beside, step.ended, reached)

            subject.draw(dict(zip(judged, step.model.tolist(), strict=True)), label)
            for (name, drawer), asked in zip(beside.items(), step.retrains.tolist(), strict=True):
                drawer.draw(dict(zip(judged, asked, strict=True)), f"{label}, {name}")
