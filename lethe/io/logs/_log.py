"""The content of another tool's log, in one form for all tools, and the table that the readers fill."""

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import pandas as pd

from lethe.errors import BadFile, BadValue, shortened
from lethe.io.facts import Facts, Meaning
from lethe.io.files import Json

KEYS = ("prompt_id", "sample")
MOST_COLUMNS = (
    1000  # untrusted dictionaries give one score per key; more columns would exhaust the memory
)
MOST_PLANNED = 5_000_000  # the most answers that a log may plan: each becomes a row, and the number is untrusted
LARGEST_SAMPLE = 2**31
OWN_COLUMNS = frozenset(
    (*KEYS, "index", "model", "prompt", "text", "answers", "planned", "score", "reason")
)
UNSCORED, NOT_WRITTEN = "unscored", "not written"
SENTENCES = (
    "deterministic",
    "repeated",
    "unfinished",
    "engine",
)  # the facts of a log beside its scores


@dataclass(frozen=True)
class Log:
    """A log; ``judges``: the prompts of a score that the tool gives not all; ``refused``: why a score cannot be read."""

    path: Path
    tool: str
    answers: pd.DataFrame
    scores: tuple[str, ...]
    prompts: pd.DataFrame
    problems: pd.DataFrame
    missing: Mapping[str, int]
    format: str = ""  # the name of the `Format` that read it
    judges: Mapping[str, frozenset[str]] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    task: str | None = None
    model: str | None = None
    sampling: Mapping[str, Json] = field(default_factory=dict)
    draws: str = "unknown"
    stopping: str = "fixed"
    refusal: str | None = None
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    stated: Mapping[str, Json] = field(default_factory=dict)
    facts: Facts = field(default_factory=Facts)

    def lines(self, *own: tuple[str, str | None]) -> list[str]:
        """Return lines for people: the run, a reader's ``own`` facts (None is left out), warnings and notes."""
        facts = [
            ("tool", f"{self.tool} (format {self.format})"),
            ("task", self.task or "not stated"),
            ("model", self.model or "not stated"),
            (
                "sampling",
                ", ".join(f"{name} {value}" for name, value in self.sampling.items())
                or "not stated",
            ),
            *own,
            ("warning", self._of_decoding()),
            ("warning", self.facts.repeated),
            *(("warning", one) for one in self.warnings),
            *(("note", one) for one in self.notes),
        ]
        return [f"{name:<9} {text}" for name, text in facts if text]

    def _of_decoding(self) -> str | None:
        """What greedy decoding means for a reader of the numbers; of copies the refusal says it."""
        if self.facts.deterministic is None or self.refusal:
            return None
        return f"{self.facts.deterministic}: one greedy answer says nothing of repeated draws"

    def summary(self) -> dict[str, object]:
        return {
            "format": self.format,
            "tool": self.tool,
            "task": self.task,
            "model": self.model,
            "sampling": dict(self.sampling),
            "prompts": len(self.prompts),
            "answers": len(self.answers),
            "missing": dict(self.missing),
            "scores": self.score_counts(),
            "draws": self.draws,
            "stopping": self.stopping,
            "refusal": self.refusal,
            "score_means": dict(self.facts.means),
            **{name: getattr(self.facts, name) for name in SENTENCES},
            "warnings": list(self.warnings),
            "notes": list(self.notes),
            "per_prompt": self.prompts[["prompt_id", "answers", "planned"]].to_dict("records"),
            "stated": dict(self.stated),
        }

    def score_counts(self) -> dict[str, dict[str, float | None]]:
        counts: dict[str, dict[str, float | None]] = {}
        for name in self.scores:
            column = self._judged(self.answers, name)[name]
            values = column.dropna()
            mean = float(values.mean()) if len(values) else None
            counts[name] = {
                "scored": len(values),
                "unscored": len(column) - len(values),
                "mean": mean,
            }
        return counts

    def _judged(self, table: pd.DataFrame, score: str) -> pd.DataFrame:
        return table[table["prompt_id"].isin(self.judges[score])] if score in self.judges else table

    def scored(self, score: str) -> pd.DataFrame:
        """Return every planned answer with ``score``: `prompt_id, sample, score, reason`, in order of sampling.

        The score is NaN, with a reason, where an answer was not scored, ended with an error or at a limit (the missing rest
        of a cut answer might have leaked), was withdrawn, or was never written. A prompt that the tool does not score by
        ``score`` is left out.
        """
        score = score if score in self.scores else _column(score)
        if score in self.refused:
            raise BadFile(self.path, f"score {score!r} cannot be read: {self.refused[score]}")
        if score not in self.scores:
            legal = "one of " + ", ".join(map(repr, self.scores)) if self.scores else NO_SCORES
            raise BadValue("--score", score, legal)
        table = self._judged(self.answers, score)[[*KEYS, score]].rename(columns={score: "score"})
        problems = self._judged(self.problems, score)
        about = problems[problems["score"].isna() | (problems["score"] == score)]
        table = table.merge(
            about.drop(columns="score").drop_duplicates([*KEYS]), on=[*KEYS], how="outer"
        )
        unscored = table["score"].isna() & table["reason"].isna()
        reasons = table["reason"].mask(unscored, UNSCORED).astype(object)
        table["reason"] = reasons.where(reasons.notna(), None)
        table["score"] = table["score"].mask(table["reason"].notna())
        place = pd.Series(range(len(self.prompts)), index=self.prompts["prompt_id"])
        order = pd.DataFrame({"prompt": table["prompt_id"].map(place), "sample": table["sample"]})
        return table.loc[order.sort_values(["prompt", "sample"]).index].reset_index(drop=True)


class Format(NamedTuple):
    """A format: ``recognises`` takes the first JSON object of a file, and ``read`` its `Source`."""

    name: str
    holds: str
    recognises: Callable[[Mapping[str, Json]], bool]
    read: Callable[..., Log]


NO_SCORES = "left out: the log holds no scores (score its texts with `lethe score`)"


class Table:
    """The answers of a log while a reader collects them; ``more``: further columns; ``first``: the least sample number."""

    def __init__(self, path: Path, more: Iterable[str] = (), first: int = 1):
        self.path, self.more, self.first = path, tuple(more), first
        self._rows: dict[tuple[str, int], dict[str, Json]] = {}
        self._scores: dict[tuple[str, int], dict[str, float]] = {}
        self._columns: dict[str, str] = {}  # of a score's name
        self._problems: list[tuple[str, int, str, str | None]] = []
        self._lost: set[tuple[str, int]] = set()  # answers with a problem
        self._prompts: dict[str, dict[str, Json]] = {}
        self._absent: Counter[str] = Counter()
        self._planned = 0
        self._excused: set[tuple[str, int]] = set()
        self._judges: dict[str, set[str]] = {}

    def prompt(
        self,
        prompt_id: str,
        prompt: str | None = None,
        planned: int | None = None,
        scores: Mapping[str, float] = MappingProxyType({}),
    ) -> None:
        """Add a prompt; the log lists prompts in the order of these calls. A second call adds new information."""
        self._whole(prompt_id, "a prompt's name", prompt_id)
        entry = self._prompts.setdefault(prompt_id, {"prompt": None, "planned": None, "scores": {}})
        if entry["prompt"] is None and prompt is not None:
            self._whole(prompt_id, "the prompt", prompt)
            entry["prompt"] = prompt
        if planned is not None:
            self._planned += planned - (entry["planned"] or 0)
            entry["planned"] = planned
            if self._planned > MOST_PLANNED:
                raise BadFile(
                    self.path,
                    f"plans {self._planned:,} answers; at most {MOST_PLANNED:,} can be read",
                )
        entry["scores"] |= {_column(name): value for name, value in scores.items()}
        self._count(entry["scores"])

    def answer(
        self,
        prompt_id: str,
        sample: int,
        text: Json,
        scores: Mapping[str, float],
        missing: str = "no generation",
        **more: object,
    ) -> None:
        """Add an answer; where the log has null in place of its text, the answer is empty and ``missing`` says why."""
        key = (prompt_id, sample)
        named = f"answer {sample} of prompt {prompt_id[:80]!r}"
        if prompt_id not in self._prompts:
            self.prompt(prompt_id)
        if not self.first <= sample < LARGEST_SAMPLE:
            raise BadFile(self.path, f"{named}: answers are numbered from {self.first}")
        if key in self._rows:
            raise BadFile(self.path, f"{named} appears twice")
        if text is None:
            self.problem(prompt_id, sample, missing)
        elif not isinstance(text, str):
            raise BadFile(self.path, f"{named} is {type(text).__name__}, expected a text")
        for name, value in {"the text": text, **more}.items():
            self._whole(prompt_id, name, value)
        self._rows[key] = {**more, "text": text or ""}
        self._scores[key] = {}
        self.score(prompt_id, sample, scores)

    def score(self, prompt_id: str, sample: int, scores: Mapping[str, float]) -> None:
        own = self._scores[prompt_id, sample]
        for name, value in scores.items():
            if name not in self._columns:
                self._whole(prompt_id, "a score's name", name)
                self._columns[name] = _column(name)
                self._count(self._columns)
            own[self._columns[name]] = value

    def judge(self, prompt_id: str, scores: Iterable[str]) -> None:
        """Note that the tool scores a prompt by ``scores``; a score without any note is one of every prompt."""
        for name in scores:
            self._judges.setdefault(_column(name), set()).add(prompt_id)

    def problem(self, prompt_id: str, sample: int, reason: str, score: str | None = None) -> None:
        """Note why an answer, or one score of it, is missing. The first reason of an answer counts: an answer that a filter
        took away also has no text, and is one missing answer."""
        if score is None:
            if (prompt_id, sample) in self._lost:
                return
            self._lost.add((prompt_id, sample))
        self._problems.append((prompt_id, sample, reason, score))

    def excuse(self, prompt_id: str, sample: int) -> None:
        """Excuse a planned answer that a stopping rule skipped, so that the answer does not count as missing."""
        self._excused.add((prompt_id, sample))

    def absent(self, reason: str, count: int = 1) -> None:
        self._absent[reason] += count

    def __contains__(self, key: tuple[str, int]) -> bool:
        return key in self._rows

    def _count(self, columns: Mapping[str, object]) -> None:
        if len(columns) > MOST_COLUMNS:
            raise BadFile(
                self.path, f"holds more than {MOST_COLUMNS} scores; no table can show them"
            )

    def _whole(self, prompt_id: str, name: str, value: object) -> None:
        """Refuse a lone surrogate: JSON can hold it, but no UTF-8 file and no terminal can."""
        if isinstance(value, str):
            try:
                value.encode()
            except UnicodeEncodeError:
                problem = f"prompt {shortened(prompt_id)}: {name} holds a lone surrogate"
                raise BadFile(self.path, problem) from None

    def _equal_texts(self) -> bool:
        """Whether several prompts have several answers each and never two different answers, like greedy repeats."""
        texts: dict[str, list[str]] = {}
        for (prompt_id, _), row in self._rows.items():
            texts.setdefault(prompt_id, []).append(row["text"])
        several = [own for own in texts.values() if len(own) > 1]
        return bool(several) and all(len(set(own)) == 1 for own in several)

    def most(self) -> int:
        return max(Counter(prompt_id for prompt_id, _ in self._rows).values(), default=0)

    def log(
        self,
        tool: str,
        *,
        means: Callable[[str], Meaning],
        greedy_by: str | None = None,
        repeats: str | None = None,
        may_repeat: str | None = None,
        unfinished: str | None = None,
        engine: str | None = None,
        scores: Iterable[str] | None = None,
        draws: str = "unknown",
        refusal: str | None = None,
        warnings: Iterable[str] = (),
        notes: Iterable[str] = (),
        sampling: Mapping[str, Json] = MappingProxyType({}),
        **about: Json,
    ) -> Log:
        """Return the log of these answers; ``scores`` orders the columns, and ``means`` says what a 1 of a score says.

        ``greedy_by`` is a setting that makes the decoding greedy, where ``sampling`` does not show it; several answers to a
        prompt are then copies of the first. ``repeats`` says why the answers are no new draws, and ``may_repeat`` names a
        setting that repeats an answer on some servers: it did, where all answers to each question are the same.
        """
        same_texts = self._equal_texts()
        if may_repeat and same_texts:
            repeats = repeats or f"All answers to each question are the same text, and {may_repeat}"
        setting = greedy_by or greedy(sampling)
        if setting and self.most() > 1:
            draws, refusal = "copies", f"{setting}: the {self.most()} answers {COPIES}"
        names = list(dict.fromkeys(self._columns if scores is None else scores))
        stated = Facts(
            {_column(name): means(name) for name in names},
            deterministic=f"The log states greedy decoding ({setting})" if setting else None,
            repeated=repeats,
            unfinished=unfinished,
            engine=engine,
        )
        same = [SAME_TEXTS] if same_texts and not refusal else []
        return replace(
            self._tables(tool.strip(), names),
            draws=draws,
            refusal=refusal,
            warnings=(*warnings, *same),
            notes=tuple(notes),
            sampling=sampling,
            facts=stated,
            **about,
        )

    def _tables(self, tool: str, scores: Iterable[str]) -> Log:
        if not self._rows:
            raise BadFile(self.path, "holds no answers")
        names = tuple(dict.fromkeys(map(_column, scores)))
        place = {prompt_id: number for number, prompt_id in enumerate(self._prompts)}
        keys = sorted(self._rows, key=lambda key: (place[key[0]], key[1]))
        answers = pd.DataFrame(keys, columns=[*KEYS]).astype({"sample": "int64"})
        for name in (*self.more, "text"):
            answers[name] = [self._rows[key].get(name) for key in keys]
        columns = {name: [self._scores[key].get(name, math.nan) for key in keys] for name in names}
        answers = pd.concat(
            [answers, pd.DataFrame(columns, dtype="float64", index=answers.index)], axis=1
        )
        explained = {
            (prompt_id, sample) for prompt_id, sample, _, _ in self._problems
        } | self._excused
        for prompt_id, prompt in self._prompts.items():
            planned = ((prompt_id, sample) for sample in range(1, (prompt["planned"] or 0) + 1))
            lost = (key for key in planned if key not in self._rows and key not in explained)
            self._problems += [(*key, NOT_WRITTEN, None) for key in lost]
        problems = pd.DataFrame(self._problems, columns=[*KEYS, "reason", "score"]).astype(
            {"sample": "int64"}
        )
        judges = {
            name: frozenset(self._judges[name])
            for name in names
            if name in self._judges and len(self._judges[name]) < len(self._prompts)
        }
        missing = self._missing(answers, names, judges)
        return Log(
            self.path, tool, answers, names, self._prompt_table(), problems, missing, judges=judges
        )

    def _prompt_table(self) -> pd.DataFrame:
        counts = Counter(prompt_id for prompt_id, _ in self._rows)
        excused = Counter(prompt_id for prompt_id, _ in self._excused - self._rows.keys())
        rows = []
        for prompt_id, entry in self._prompts.items():
            planned = (
                counts[prompt_id]
                if entry["planned"] is None
                else entry["planned"] - excused[prompt_id]
            )
            head = {"prompt_id": prompt_id, "prompt": entry["prompt"], "answers": counts[prompt_id]}
            rows.append({**head, "planned": planned, **entry["scores"]})
        return pd.DataFrame(rows)

    def _missing(
        self, answers: pd.DataFrame, names: tuple[str, ...], judges: Mapping[str, frozenset[str]]
    ) -> dict[str, int]:
        lacking = answers[list(names)].isna()
        for name, prompts in judges.items():
            lacking[name] &= answers["prompt_id"].isin(prompts)
        empty = answers.loc[lacking.any(axis=1), [*KEYS]].itertuples(index=False, name=None)
        distinct = dict.fromkeys(problem[:3] for problem in self._problems)
        explained = {key[:2] for key in distinct}
        counts = Counter(reason for *_, reason in distinct) + self._absent
        counts[UNSCORED] += sum(key not in explained for key in empty)
        return {reason: count for reason, count in counts.items() if count}


def _column(name: str) -> str:
    """Return the column for a score's name: an untrusted log may name a score like a column of the table."""
    return f"{name} (score)" if name in OWN_COLUMNS else name


def number(value: object) -> float:
    """Return a score as float: true is 1, and a value that is not a finite number is NaN (missing)."""
    if isinstance(value, (bool, int, float)):
        try:
            value_as_float = float(value)
        except OverflowError:
            return math.nan
        return value_as_float if math.isfinite(value_as_float) else math.nan
    return math.nan


def as_object(value: Json) -> dict[str, Json]:
    return value if isinstance(value, dict) else {}


def as_list(value: Json) -> list[Json]:
    return value if isinstance(value, list) else []


def as_text(value: Json) -> str | None:
    return value if isinstance(value, str) else None


def conversation(messages: Sequence[tuple[Json, Json]]) -> str:
    if len(messages) == 1 and isinstance(messages[0][1], str):
        return messages[0][1]
    named = [{"role": role, "content": text} for role, text in messages]
    return json.dumps(named, ensure_ascii=False)


def greedy(settings: Mapping[str, object]) -> str | None:
    if str(settings.get("do_sample")).lower() == "false":
        return "do_sample false"
    for name, legal in (("temperature", 0.0), ("top_k", 1.0), ("top_p", 0.0)):
        if _setting(settings.get(name)) == legal:
            return f"{name} {settings[name]}"
    return None


COPIES = "to a question are copies of one greedy answer, not independent draws"
SAME_TEXTS = (
    "all answers to each question are the same text, as under greedy decoding, with a cache, or with a seed that each "
    "request carries"
)


def chosen(settings: Mapping[str, object]) -> list[str]:
    """Return the settings that select one answer from several, so that the answer is not a draw of the model."""
    several = [name for name in ("best_of", "num_beams") if (_setting(settings.get(name)) or 0) > 1]
    return [
        f"{name} {settings[name]}: an answer is the best of several, not one draw of the model"
        for name in several
    ]


def _setting(value: Json) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None
