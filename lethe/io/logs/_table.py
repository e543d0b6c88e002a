"""The table that the readers of logs fill: every prompt, answer and score of a log, and what is missing."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pandas as pd

from lethe.errors import BadFile, shortened
from lethe.io import ids
from lethe.io.copies import repeated_texts
from lethe.io.facts import Facts, Meaning, several_models
from lethe.io.files import Json
from lethe.io.logs._decoding import chosen, greedy
from lethe.io.logs._json import as_text
from lethe.io.logs._log import KEYS, UNSCORED, Log, column_of_score
from lethe.io.row_ends import kind_of

# Untrusted dictionaries give one score per key; more columns would exhaust the memory.
MOST_COLUMNS = 1000
# The most answers that a log may plan or lack: each becomes a row, and the number is untrusted.
MOST_PLANNED = 5_000_000
LARGEST_SAMPLE = 2**31
NOT_WRITTEN = "not written"
COPIES = "to a question are by this setting copies of one greedy answer, not independent draws"
SAME_TEXTS = (
    "all answers to each question are the same text, as under greedy decoding, with a cache, or with a seed that each "
    "request carries"
)
# Of a prompt that a tool asks in several forms.
SEVERAL = "with several wordings, whose answers are not draws for one prompt"
EMPTY: Mapping[str, Any] = MappingProxyType({})


class Key(NamedTuple):
    """The place of an answer: its question and its number."""

    prompt_id: str
    sample: int


class Problem(NamedTuple):
    """Why an answer is missing, or only one ``score`` of it."""

    prompt_id: str
    sample: int
    reason: str
    score: str | None


@dataclass
class LoggedAnswer:
    """An answer of a table: ``more`` are its texts of further columns."""

    text: str
    more: Mapping[str, object]
    scores: dict[str, float] = field(default_factory=dict)


@dataclass
class LoggedPrompt:
    """A prompt of a table: how many answers its run planned, and the scores of the prompt as a whole."""

    text: str | None = None
    planned: int | None = None
    scores: dict[str, float] = field(default_factory=dict)


class Table:
    """The answers of a log while a reader collects them.

    ``more`` are further columns of texts; ``first`` is the least number of a sample.
    """

    def __init__(self, path: Path, more: Iterable[str] = (), first: int = 1):
        self.path = path
        self.more = tuple(more)
        self.first = first
        self._answers: dict[Key, LoggedAnswer] = {}
        self._prompts: dict[str, LoggedPrompt] = {}
        self._problems: list[Problem] = []
        self._lost: set[Key] = set()  # answers with a problem
        self._excused: set[Key] = set()
        self._column_of_score: dict[str, str] = {}
        self._prompts_by_score: dict[str, set[str]] = {}
        self._absent: Counter[str] = Counter()
        self._planned = 0
        self._ids: list[object] = []  # the names of questions as the file writes them
        self._models_of_prompt: dict[str, dict[str, None]] = {}
        self._renamed: str | None = None  # the first prompt that stands for two texts

    def prompt(
        self,
        prompt_id: str,
        prompt: str | None = None,
        planned: int | None = None,
        scores: Mapping[str, float] = EMPTY,
    ) -> None:
        """Add a prompt; the log lists prompts in the order of these calls. A second call adds new information."""
        self._check_text(prompt_id, "a prompt's name", prompt_id)
        entry = self._prompts.setdefault(prompt_id, LoggedPrompt())
        if entry.text is None and prompt is not None:
            self._check_text(prompt_id, "the prompt", prompt)
            entry.text = prompt
        if prompt is not None and prompt != entry.text:
            self._renamed = self._renamed or prompt_id
        if planned is not None:
            self._planned += planned - (entry.planned or 0)
            entry.planned = planned
            self._check_planned(self._planned)
        for name, value in scores.items():
            entry.scores[column_of_score(name)] = value
        self._check_count(entry.scores)

    def name(self, identity: object) -> str:
        """Return the name of a question as text; `log` refuses names that differ only in what cannot be seen."""
        self._ids.append(identity)
        return ids.id_text(identity)

    def answered_by(self, prompt_id: str, model: str | None) -> None:
        """Note the model that answered a prompt; answers of several to one prompt carry no claim."""
        if model is not None:
            self._models_of_prompt.setdefault(prompt_id, {})[model] = None

    def models(self) -> str | None:
        """The names of the models that answered."""
        names: dict[str, None] = {}
        for models in self._models_of_prompt.values():
            names |= models
        return ", ".join(names) or None

    def _mixed(self) -> str | None:
        """Why the answers to a question are no draws of one model to one question, None where they may be."""
        for prompt_id, models in self._models_of_prompt.items():
            if len(models) > 1:
                return several_models(prompt_id, list(models))
        if self._renamed is not None:
            return f"Prompt {shortened(self._renamed)} stands for questions of several texts"
        return None

    def answer(
        self,
        prompt_id: str,
        sample: int,
        text: Json,
        scores: Mapping[str, float],
        missing: str = "no generation",
        **more: object,
    ) -> None:
        """Add an answer; where the log has null in place of its text, the answer is empty and ``missing`` says why.

        Raises `BadFile` where the number is out of range or was added before, or the text is no text.
        """
        key = Key(prompt_id, sample)
        if prompt_id not in self._prompts:
            self.prompt(prompt_id)
        if not self.first <= sample < LARGEST_SAMPLE:
            raise self._broken(key, f": answers are numbered from {self.first}")
        if key in self._answers:
            raise self._broken(key, " appears twice")
        if text is None:
            self.problem(prompt_id, sample, missing)
        elif not isinstance(text, str):
            raise self._broken(key, f" is {type(text).__name__}, expected a text")
        self.answered_by(prompt_id, as_text(more.get("model")))
        self._check_text(prompt_id, "the text", text)
        for name, value in more.items():
            self._check_text(prompt_id, name, value)
        self._answers[key] = LoggedAnswer(text or "", more)
        self.score(prompt_id, sample, scores)

    def _broken(self, key: Key, problem: str) -> BadFile:
        return BadFile(self.path, f"answer {key.sample} of prompt {key.prompt_id[:80]!r}{problem}")

    def score(self, prompt_id: str, sample: int, scores: Mapping[str, float]) -> None:
        """Add scores to an answer that was added before."""
        answer = self._answers[Key(prompt_id, sample)]
        for name, value in scores.items():
            if name not in self._column_of_score:
                self._check_text(prompt_id, "a score's name", name)
                self._column_of_score[name] = column_of_score(name)
                self._check_count(self._column_of_score)
            answer.scores[self._column_of_score[name]] = value

    def judge(self, prompt_id: str, scores: Iterable[str]) -> None:
        """Note that the tool scores a prompt by ``scores``; a score without any note is one of every prompt."""
        for name in scores:
            self._prompts_by_score.setdefault(column_of_score(name), set()).add(prompt_id)

    def problem(
        self,
        prompt_id: str,
        sample: int,
        reason: str,
        score: str | None = None,
    ) -> None:
        """Note why an answer, or one score of it, is missing. The first reason of an answer counts: an answer that a filter
        took away also has no text, and is one missing answer."""
        key = Key(prompt_id, sample)
        if score is None:
            if key in self._lost:
                return
            self._lost.add(key)
        self._problems.append(Problem(prompt_id, sample, reason, score))
        self._check_planned(len(self._problems))

    def note_end(self, prompt_id: str, sample: int, answer: Mapping[str, Json]) -> None:
        """Note that an answer is missing where it states that no model ended it."""
        kind = kind_of(answer)
        if kind:
            self.problem(prompt_id, sample, kind)

    def excuse(self, prompt_id: str, sample: int) -> None:
        """Excuse a planned answer that a stopping rule skipped, so that the answer does not count as missing."""
        self._excused.add(Key(prompt_id, sample))

    def absent(self, reason: str, count: int = 1) -> None:
        """Count missing answers of which no question is known."""
        self._absent[reason] += count

    def __contains__(self, key: tuple[str, int]) -> bool:
        return key in self._answers

    def _check_planned(self, count: int) -> None:
        """Refuse a log that plans more answers than can be rows."""
        if count > MOST_PLANNED:
            problem = f"plans {count:,} answers; at most {MOST_PLANNED:,} can be read"
            raise BadFile(self.path, problem)

    def _check_count(self, columns: Mapping[str, object]) -> None:
        """Refuse a log that has more scores than can be columns."""
        if len(columns) > MOST_COLUMNS:
            problem = f"holds more than {MOST_COLUMNS} scores; no table can show them"
            raise BadFile(self.path, problem)

    def _check_text(self, prompt_id: str, name: str, value: object) -> None:
        """Refuse a lone surrogate: JSON can hold it, but no UTF-8 file and no terminal can."""
        if not isinstance(value, str):
            return
        try:
            value.encode()
        except UnicodeEncodeError:
            problem = f"prompt {shortened(prompt_id)}: {name} holds a lone surrogate"
            raise BadFile(self.path, problem) from None

    def _has_equal_texts(self) -> bool:
        """Whether a prompt has several answers and none has two different answers, like greedy repeats."""
        first_texts: dict[str, str] = {}
        for key, answer in self._answers.items():
            if answer.text != first_texts.setdefault(key.prompt_id, answer.text):
                return False
        return self.most() > 1

    def _counts(self) -> Counter[str]:
        """The number of answers by prompt."""
        return Counter(key.prompt_id for key in self._answers)

    def most(self) -> int:
        """Return how many answers the prompt with the most answers has."""
        return max(self._counts().values(), default=0)

    def log(
        self,
        tool: str,
        *,
        means: Callable[[str], Meaning],
        greedy_by: str | None = None,
        repeats: str | None = None,
        may_repeat: str | None = None,
        unfinished: str | None = None,
        mixed: str | None = None,
        selected: Iterable[str] = (),
        engine: str | None = None,
        scores: Iterable[str] | None = None,
        draws: str = "unknown",
        stopping: str = "fixed",
        refusal: str | None = None,
        warnings: Iterable[str] = (),
        notes: Iterable[str] = (),
        task: str | None = None,
        model: str | None = None,
        sampling: Mapping[str, Json] = EMPTY,
        stated: Mapping[str, Json] = EMPTY,
        refused: Mapping[str, str] = EMPTY,
        reasons: Iterable[str] = (),
    ) -> Log:
        """Return the log of these answers; ``scores`` orders the columns, and ``means`` says what a 1 of a score says.

        ``greedy_by`` is a setting that makes the decoding greedy, where ``sampling`` does not show it; several answers to a
        prompt are then copies of the first. ``repeats`` says why the answers are no new draws, and ``may_repeat`` names a
        setting that repeats an answer on some servers: it did, where all answers to each question are the same. ``mixed``
        says why answers to a question are of several models or to several questions, where their names do not show it, and
        ``selected`` why an answer is no single draw, where ``sampling`` does not. ``reasons`` say, in whole sentences, why
        nothing could be claimed of the file that this one was made from.

        Raises `BadFile` where no answer was added, or names of questions differ only in what cannot be seen.
        """
        if not self._answers:
            raise BadFile(self.path, "holds no answers")
        found = ids.alike(self._ids)
        if found is not None:
            raise BadFile(self.path, found.problem("the questions"), ids.REMEDY)
        same_texts = self._has_equal_texts()
        setting = greedy_by or greedy(sampling)
        selected = dict.fromkeys((*chosen(sampling), *selected))
        deterministic = None
        if setting:
            deterministic = f"The log states greedy decoding ({setting})"
            if self.most() > 1:
                draws = "copies"
                refusal = f"{setting}: the {self.most()} answers {COPIES}"
        if same_texts and not refusal:
            warnings = (*warnings, SAME_TEXTS)
        if scores is None:
            scores = self._column_of_score
        meanings = {column_of_score(name): means(name) for name in scores}

        columns = tuple(meanings)
        judges = self._judges(columns)
        answers = self._answer_table(columns)
        repeats = repeats or repeated_texts(answers, "prompt_id", "text", may_repeat)
        self._add_unwritten()
        problems = pd.DataFrame(self._problems, columns=[*Problem._fields])
        return Log(
            self.path,
            tool.strip(),
            answers,
            columns,
            self._prompt_table(),
            problems.astype({"sample": "int64"}),
            self._missing(answers, columns, judges),
            judges=judges,
            refused=refused,
            task=task,
            model=model,
            sampling=sampling,
            draws=draws,
            stopping=stopping,
            refusal=refusal,
            warnings=tuple(warnings),
            notes=tuple(notes),
            stated=stated,
            facts=Facts(
                meanings,
                deterministic,
                repeats,
                unfinished,
                engine,
                self._mixed() or mixed,
                (*reasons, *(f"{sentence}." for sentence in selected)),
            ),
        )

    def _answer_table(self, scores: Iterable[str]) -> pd.DataFrame:
        """The table of answers with these scores, by prompts in their order and by samples."""
        place_of_prompt = {prompt_id: place for place, prompt_id in enumerate(self._prompts)}
        keys = sorted(self._answers, key=lambda key: (place_of_prompt[key.prompt_id], key.sample))
        answers = [self._answers[key] for key in keys]

        table = pd.DataFrame(keys, columns=[*KEYS]).astype({"sample": "int64"})
        for name in self.more:
            table[name] = [answer.more.get(name) for answer in answers]
        table["text"] = [answer.text for answer in answers]

        columns = {}
        for name in scores:
            columns[name] = [answer.scores.get(name, math.nan) for answer in answers]
        scored = pd.DataFrame(columns, dtype="float64", index=table.index)
        return pd.concat([table, scored], axis=1)

    def _add_unwritten(self) -> None:
        """Add the problem of each planned answer that the log neither holds nor explains."""
        known = self._answers.keys() | self._excused
        known |= {Key(problem.prompt_id, problem.sample) for problem in self._problems}
        for prompt_id, prompt in self._prompts.items():
            for sample in range(1, (prompt.planned or 0) + 1):
                if (prompt_id, sample) not in known:
                    self._problems.append(Problem(prompt_id, sample, NOT_WRITTEN, None))

    def _judges(self, scores: Iterable[str]) -> dict[str, frozenset[str]]:
        """The prompts of each score that the tool gives to some prompts only."""
        judges = {}
        for name in scores:
            prompts = self._prompts_by_score.get(name, self._prompts)
            if len(prompts) < len(self._prompts):
                judges[name] = frozenset(prompts)
        return judges

    def _prompt_table(self) -> pd.DataFrame:
        """The table of prompts; an answer that a stopping rule skipped was not planned."""
        counts = self._counts()
        excused = Counter(key.prompt_id for key in self._excused - self._answers.keys())
        rows = []
        for prompt_id, prompt in self._prompts.items():
            planned = counts[prompt_id]
            if prompt.planned is not None:
                planned = prompt.planned - excused[prompt_id]
            row = {
                "prompt_id": prompt_id,
                "prompt": prompt.text,
                "answers": counts[prompt_id],
                "planned": planned,
            }
            rows.append(row | prompt.scores)
        return pd.DataFrame(rows)

    def _missing(
        self, answers: pd.DataFrame, names: Sequence[str], judges: Mapping[str, frozenset[str]]
    ) -> dict[str, int]:
        """Count the missing answers by reason; an answer with two reasons counts with both."""
        counts: Counter[str] = Counter()
        explained = set()
        for prompt_id, sample, reason in dict.fromkeys(problem[:3] for problem in self._problems):
            counts[reason] += 1
            explained.add((prompt_id, sample))
        counts += self._absent

        lacking = answers[[*names]].isna()
        for name, prompts in judges.items():
            lacking[name] &= answers["prompt_id"].isin(prompts)
        unscored = answers.loc[lacking.any(axis=1), [*KEYS]]
        for key in unscored.itertuples(index=False, name=None):
            if key not in explained:
                counts[UNSCORED] += 1
        return dict(counts)
