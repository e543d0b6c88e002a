"""The content of another tool's log, in one form for all tools, and the table that the readers fill."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from lethe.errors import BadFile, BadValue, shortened

if TYPE_CHECKING:
    import pandas as pd

KEYS = ("prompt_id", "sample")
MOST_COLUMNS = 1000  # untrusted dictionaries give one score per key; more columns would exhaust the memory
MOST_PLANNED = 5_000_000  # the most answers that a log may plan: each becomes a row, and the number is untrusted
LARGEST_SAMPLE = 2**31
OWN_COLUMNS = frozenset((*KEYS, "index", "model", "prompt", "text", "answers", "planned", "score", "reason"))
UNSCORED, NOT_WRITTEN = "unscored", "not written"


@dataclass(frozen=True)
class Log:
    """A log of another tool.

    ``judges`` maps a score to its prompts, where the tool does not score every prompt by it. ``refused`` maps a score that
    cannot be read to the reason.
    """

    path: Path
    format: str
    tool: str
    answers: pd.DataFrame
    scores: tuple[str, ...]
    prompts: pd.DataFrame
    problems: pd.DataFrame
    missing: Mapping[str, int]
    judges: Mapping[str, frozenset[str]] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    task: str | None = None
    model: str | None = None
    sampling: Mapping[str, Any] = field(default_factory=dict)
    draws: str = "unknown"
    stopping: str = "fixed"
    refusal: str | None = None
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    stated: Mapping[str, Any] = field(default_factory=dict)

    def lines(self, *own: tuple[str, str | None]) -> list[str]:
        """Return lines for people: the run, a reader's ``own`` facts (None is left out), warnings and notes."""
        facts = [
            ("tool", f"{self.tool} (format {self.format})"),
            ("task", self.task or "not stated"),
            ("model", self.model or "not stated"),
            ("sampling", ", ".join(f"{name} {value}" for name, value in self.sampling.items()) or "not stated"),
            *own,
            *(("warning", one) for one in self.warnings),
            *(("note", one) for one in self.notes),
        ]
        return [f"{name:<9} {text}" for name, text in facts if text]

    def summary(self) -> dict[str, object]:
        """Return the log without its answers, under the keys of `lethe log --json`."""
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
            "warnings": list(self.warnings),
            "notes": list(self.notes),
            "per_prompt": self.prompts[["prompt_id", "answers", "planned"]].to_dict("records"),
            "stated": dict(self.stated),
        }

    def score_counts(self) -> dict[str, dict[str, float | None]]:
        """Return, for each score, the number of answers with a value, the number without a value, and the mean."""
        counts: dict[str, dict[str, float | None]] = {}
        for name in self.scores:
            column = self._judged(self.answers, name)[name]
            values = column.dropna()
            mean = float(values.mean()) if len(values) else None
            counts[name] = {"scored": len(values), "unscored": len(column) - len(values), "mean": mean}
        return counts

    def _judged(self, table: pd.DataFrame, score: str) -> pd.DataFrame:
        """Return the rows of the prompts that the tool scores by ``score``."""
        return table[table["prompt_id"].isin(self.judges[score])] if score in self.judges else table

    def scored(self, score: str) -> pd.DataFrame:
        """Return every planned answer with ``score``: `prompt_id, sample, score, reason`, in order of sampling.

        The score is NaN, with a reason, where an answer was not scored, ended with an error or at a limit (the missing rest
        of a cut answer might have leaked), was withdrawn, or was never written. A prompt that the tool does not score by
        ``score`` is left out.
        """
        import pandas as pd

        score = score if score in self.scores else _column(score)
        if score in self.refused:
            raise BadFile(self.path, f"score {score!r} cannot be read: {self.refused[score]}")
        if score not in self.scores:
            raise BadValue(
                "--score", score, "one of " + ", ".join(map(repr, self.scores)) if self.scores else NO_SCORES
            )
        table = self._judged(self.answers, score)[[*KEYS, score]].rename(columns={score: "score"})
        problems = self._judged(self.problems, score)
        about = problems[problems["score"].isna() | (problems["score"] == score)]
        table = table.merge(about.drop(columns="score").drop_duplicates([*KEYS]), on=[*KEYS], how="outer")
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
    recognises: Callable[[Mapping[str, Any]], bool]
    read: Callable[[Any], Log]


NO_SCORES = "left out: the log holds no scores (score its texts with `lethe score`)"


class Table:
    """The answers of a log, while a reader collects the answers.

    ``more`` names the columns between `sample` and `text`; ``first`` is the least number of an answer. Errors name the
    prompt and the answer.
    """

    def __init__(self, path: Path, more: Iterable[str] = (), first: int = 1):
        self.path, self.more, self.first = path, tuple(more), first
        self._rows: dict[tuple[str, int], dict[str, Any]] = {}
        self._scores: dict[tuple[str, int], dict[str, float]] = {}
        self._columns: dict[str, str] = {}  # of a score's name
        self._problems: list[tuple[str, int, str, str | None]] = []
        self._prompts: dict[str, dict[str, Any]] = {}
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
                raise BadFile(self.path, f"plans {self._planned:,} answers; at most {MOST_PLANNED:,} can be read")
        entry["scores"] |= {_column(name): value for name, value in scores.items()}
        self._count(entry["scores"])

    def answer(self, prompt_id: str, sample: int, text: str, scores: Mapping[str, float], **more: object) -> None:
        """Add an answer; a missing score may be NaN or absent."""
        key = (prompt_id, sample)
        if prompt_id not in self._prompts:
            self.prompt(prompt_id)
        if not self.first <= sample < LARGEST_SAMPLE:
            problem = f"prompt {prompt_id[:80]!r}: answers are numbered from {self.first}, got {sample}"
            raise BadFile(self.path, problem)
        if key in self._rows:
            raise BadFile(self.path, f"answer {sample} of prompt {prompt_id[:80]!r} appears twice")
        for name, value in {"the text": text, **more}.items():
            self._whole(prompt_id, name, value)
        self._rows[key] = {**more, "text": text}
        self._scores[key] = {}
        self.score(prompt_id, sample, scores)

    def score(self, prompt_id: str, sample: int, scores: Mapping[str, float]) -> None:
        """Add scores to an answer."""
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
        """Mark an answer as missing, in all scores or in one score."""
        self._problems.append((prompt_id, sample, reason, score))

    def excuse(self, prompt_id: str, sample: int) -> None:
        """Excuse a planned answer that a stopping rule skipped, so that the answer does not count as missing."""
        self._excused.add((prompt_id, sample))

    def absent(self, reason: str, count: int = 1) -> None:
        """Count missing answers without a sample number, such as behaviors that were never tried."""
        self._absent[reason] += count

    def __contains__(self, key: tuple[str, int]) -> bool:
        return key in self._rows

    def _count(self, columns: Mapping[str, Any]) -> None:
        if len(columns) > MOST_COLUMNS:
            raise BadFile(self.path, f"holds more than {MOST_COLUMNS} scores; no table can show them")

    def _whole(self, prompt_id: str, name: str, value: Any) -> None:
        """Refuse a lone surrogate: JSON can hold it, but no UTF-8 file and no terminal can."""
        if isinstance(value, str):
            try:
                value.encode()
            except UnicodeEncodeError:
                problem = f"prompt {shortened(prompt_id)}: {name} holds a lone surrogate"
                raise BadFile(self.path, problem) from None

    def equal_texts(self) -> bool:
        """Whether several prompts have several answers each and never two different answers, like greedy repeats."""
        texts: dict[str, list[str]] = {}
        for (prompt_id, _), row in self._rows.items():
            texts.setdefault(prompt_id, []).append(row["text"])
        several = [own for own in texts.values() if len(own) > 1]
        return bool(several) and all(len(set(own)) == 1 for own in several)

    def most(self) -> int:
        """Return the largest number of answers of any prompt."""
        return max(Counter(prompt_id for prompt_id, _ in self._rows).values(), default=0)

    def finish(self, scores: Iterable[str] | None = None) -> dict[str, Any]:
        """Return `answers`, `scores`, `prompts`, `problems` and `missing` of the `Log`; ``scores`` orders the columns."""
        import pandas as pd

        if not self._rows:
            raise BadFile(self.path, "holds no answers")
        names = tuple(dict.fromkeys(self._columns.values() if scores is None else map(_column, scores)))
        place = {prompt_id: number for number, prompt_id in enumerate(self._prompts)}
        keys = sorted(self._rows, key=lambda key: (place[key[0]], key[1]))
        answers = pd.DataFrame(keys, columns=[*KEYS]).astype({"sample": "int64"})
        for name in (*self.more, "text"):
            answers[name] = [self._rows[key].get(name) for key in keys]
        columns = {name: [self._scores[key].get(name, math.nan) for key in keys] for name in names}
        answers = pd.concat([answers, pd.DataFrame(columns, dtype="float64", index=answers.index)], axis=1)
        explained = {(prompt_id, sample) for prompt_id, sample, _, _ in self._problems} | self._excused
        for prompt_id, prompt in self._prompts.items():
            planned = ((prompt_id, sample) for sample in range(1, (prompt["planned"] or 0) + 1))
            lost = (key for key in planned if key not in self._rows and key not in explained)
            self._problems += [(*key, NOT_WRITTEN, None) for key in lost]
        problems = pd.DataFrame(self._problems, columns=[*KEYS, "reason", "score"]).astype({"sample": "int64"})
        judges = {
            name: frozenset(self._judges[name])
            for name in names
            if name in self._judges and len(self._judges[name]) < len(self._prompts)
        }
        return {
            "answers": answers,
            "scores": names,
            "prompts": self._prompt_table(),
            "problems": problems,
            "missing": self._missing(answers, names, judges),
            "judges": judges,
        }

    def _prompt_table(self) -> pd.DataFrame:
        import pandas as pd

        counts = Counter(prompt_id for prompt_id, _ in self._rows)
        excused = Counter(prompt_id for prompt_id, _ in self._excused - self._rows.keys())
        rows = []
        for prompt_id, entry in self._prompts.items():
            planned = counts[prompt_id] if entry["planned"] is None else entry["planned"] - excused[prompt_id]
            head = {"prompt_id": prompt_id, "prompt": entry["prompt"], "answers": counts[prompt_id]}
            rows.append({**head, "planned": planned, **entry["scores"]})
        return pd.DataFrame(rows)

    def _missing(
        self, answers: pd.DataFrame, names: tuple[str, ...], judges: Mapping[str, frozenset[str]]
    ) -> dict[str, int]:
        reasons: dict[str, set[tuple[str, int]]] = {}
        for prompt_id, sample, reason, _ in self._problems:
            reasons.setdefault(reason, set()).add((prompt_id, sample))
        explained = {key for keys in reasons.values() for key in keys}
        lacking = answers[list(names)].isna()
        for name, prompts in judges.items():
            lacking[name] &= answers["prompt_id"].isin(prompts)
        empty = answers[lacking.any(axis=1)]
        unscored = sum(key not in explained for key in zip(empty["prompt_id"], empty["sample"], strict=True))
        counts = Counter({reason: len(keys) for reason, keys in reasons.items()}) + self._absent
        counts[UNSCORED] += unscored
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


def as_object(value: Any) -> dict[str, Any]:
    """Return a part of an untrusted log; an empty object where the part is missing or no object."""
    return value if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def as_text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def conversation(messages: Sequence[tuple[Any, Any]]) -> str:
    """Return the text of one message; several messages, as (role, text), become JSON."""
    if len(messages) == 1 and isinstance(messages[0][1], str):
        return messages[0][1]
    named = [{"role": role, "content": text} for role, text in messages]
    return json.dumps(named, ensure_ascii=False)


def greedy(settings: Mapping[str, object]) -> str | None:
    """Return the setting that makes every repeat of a prompt a copy of the first, or None."""
    if settings.get("do_sample") is False:
        return "do_sample false"
    for name, legal in (("temperature", 0.0), ("top_k", 1.0), ("top_p", 0.0)):
        if _setting(settings.get(name)) == legal:
            return f"{name} {settings[name]}"
    return None


def copies(reason: str, repeats: int) -> str:
    """Return the reason for which greedy repeats are not independent draws."""
    return f"{reason}: the {repeats} answers to a question are copies of one greedy answer, not independent draws"


SAME_TEXTS = (
    "all answers to each question are the same text, as under greedy decoding, with a cache, or with a seed that each "
    "request carries"
)


def chosen(settings: Mapping[str, object]) -> list[str]:
    """Return the settings that select one answer from several, so that the answer is not a draw of the model."""
    several = [name for name in ("best_of", "num_beams") if (_setting(settings.get(name)) or 0) > 1]
    return [
        f"{name} {settings[name]}: an answer is the best of several, not one draw of the model" for name in several
    ]


def _setting(value: Any) -> float | None:
    """Convert a number; numbers from a command line are text."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None
