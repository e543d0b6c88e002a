"""The content of another tool's log, in one form for all tools."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from lethe.errors import BadFile, BadValue
from lethe.io.facts import Facts
from lethe.io.files import Json
from lethe.io.row_ends import ENDS

KEYS = ("prompt_id", "sample")
EARLY = "early"  # what a log says of a run that a rule could stop
OWN_COLUMNS = frozenset(
    (*KEYS, "index", "model", "prompt", "text", "answers", "planned", "score", "reason")
)
OPEN_UNLEARNING = "open-unlearning"  # a log of several tasks, whose prompts are named TASK/INDEX
UNSCORED = "unscored"
NO_SCORES = "left out: the log holds no scores (score its texts with `lethe score`)"


@dataclass(frozen=True)
class Log:
    """A log of another tool, or a plain table: its answers, their scores, and what it says of its run.

    Attributes
    ----------
    path
        The file that was read.
    tool
        The tool that wrote it, with its version where it states one.
    answers
        A table with `prompt_id, sample, text`, further texts of the format, and a column of float64 per score, NaN where
        missing.
    scores
        The names of the scores.
    prompts
        A table with `prompt_id, prompt, answers, planned` (counts) and the scores of whole prompts.
    problems
        A table with `prompt_id, sample, reason, score`: why an answer, or only one ``score`` of it, is missing.
    missing
        The number of missing answers by reason.
    format
        The name of the `Format` that read it.
    judges
        The prompts of each score that the tool gives to some prompts only.
    refused
        Why a score cannot be read, by its name.
    task, model
        What was asked, and who answered; None where it is not stated.
    sampling
        The settings of decoding that it states.
    draws
        "sampled", "copies", "choices", "selected" or "unknown": what several answers to a prompt are.
    stopping
        "fixed", "early" or "unfinished": how the number of answers came about.
    refusal
        Why no guarantee of draws can be had from it; None where one may be.
    warnings, notes
        Sentences for people.
    stated
        What the tool itself says of its results.
    facts
        What decides on claims from it.
    """

    path: Path
    tool: str
    answers: pd.DataFrame
    scores: tuple[str, ...]
    prompts: pd.DataFrame
    problems: pd.DataFrame
    missing: Mapping[str, int]
    format: str = ""
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

    def lines(self, *more: tuple[str, str | None]) -> list[str]:
        """Return lines for people: the run, ``more`` facts of the caller (None is left out), warnings and notes."""
        sampling = ", ".join(f"{name} {value}" for name, value in self.sampling.items())
        facts = [
            ("tool", f"{self.tool} (format {self.format})"),
            ("task", self.task or "not stated"),
            ("model", self.model or "not stated"),
            ("sampling", sampling or "not stated"),
            *more,
            ("warning", self._of_decoding()),
            ("warning", self.facts.repeated),
            ("warning", self.facts.mixed),
        ]
        facts += [("warning", sentence) for sentence in (*self.facts.refused, *self.warnings)]
        facts += [("note", sentence) for sentence in self.notes]
        lines = []
        for name, text in facts:
            if text:
                lines.append(f"{name:<9} {text}")
        return lines

    def _of_decoding(self) -> str | None:
        """What greedy decoding means for a reader of the numbers; of copies the refusal says it."""
        if self.facts.deterministic is None or self.refusal:
            return None
        return f"{self.facts.deterministic}: one greedy answer says nothing of repeated draws"

    def summary(self) -> dict[str, object]:
        """Return what `lethe log --json` shows: the run, counts of prompts, answers, missing answers and scores, facts."""
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
            "deterministic": self.facts.deterministic,
            "repeated": self.facts.repeated,
            "unfinished": self.facts.unfinished,
            "engine": self.facts.engine,
            "warnings": list(self.warnings),
            "notes": list(self.notes),
            "per_prompt": self.prompts[["prompt_id", "answers", "planned"]].to_dict("records"),
            "stated": dict(self.stated),
        }

    def score_counts(self) -> dict[str, dict[str, float | None]]:
        """Return, of each score, how many answers have it and lack it, and its mean over those that have it."""
        counts: dict[str, dict[str, float | None]] = {}
        for name in self.scores:
            column = self._judged(self.answers, name)[name]
            values = column.dropna()
            mean = None
            if len(values):
                mean = float(values.mean())
            unscored = len(column) - len(values)
            counts[name] = {"scored": len(values), "unscored": unscored, "mean": mean}
        return counts

    def table(self) -> pd.DataFrame:
        """Return the answers with a row for each that never came.

        Where an answer is missing, `finish_reason` says why, and no score stands. The column is absent where none is
        missing.
        """
        table = self.answers
        of_scores = self.problems.dropna(subset="score")
        lost = self.problems[self.problems["score"].isna()].drop_duplicates([*KEYS])
        if len(lost):
            reasons = lost[[*KEYS, "reason"]].rename(columns={"reason": ENDS[0]})
            table = self._in_order(table.merge(reasons, on=[*KEYS], how="outer"))

        # A score is missing where its answer is, or where it has a problem of its own.
        keys = pd.MultiIndex.from_frame(table[[*KEYS]])
        columns = {}
        for name in self.scores:
            concerned = pd.concat([lost, of_scores[of_scores["score"] == name]])
            is_missing = keys.isin(pd.MultiIndex.from_frame(concerned[[*KEYS]]))
            columns[name] = table[name].mask(is_missing)
        return table.assign(**columns)

    def _in_order(self, table: pd.DataFrame) -> pd.DataFrame:
        """A table by prompts, in their order, and by samples."""
        place_of_prompt = pd.Series(range(len(self.prompts)), index=self.prompts["prompt_id"])
        places = table["prompt_id"].map(place_of_prompt)
        order = pd.DataFrame({"prompt": places, "sample": table["sample"]})
        return table.loc[order.sort_values(["prompt", "sample"]).index].reset_index(drop=True)

    def _judged(self, table: pd.DataFrame, score: str) -> pd.DataFrame:
        """The rows of the prompts that the tool scores by ``score``."""
        if score not in self.judges:
            return table
        return table[table["prompt_id"].isin(self.judges[score])]

    def scored(self, score: str) -> pd.DataFrame:
        """Return every planned answer with ``score``: `prompt_id, sample, score, reason`, in order of sampling.

        The score is NaN, with a reason, where an answer was not scored, ended with an error or at a limit (the missing rest
        of a cut answer might have leaked), was withdrawn, or was never written. A prompt that the tool does not score by
        ``score`` is left out.

        Raises
        ------
        BadValue
            If the log has no such score.
        BadFile
            If the reader refused the score.
        """
        if score not in self.scores:
            score = column_of_score(score)
        if score in self.refused:
            raise BadFile(self.path, f"score {score!r} cannot be read: {self.refused[score]}")
        if score not in self.scores:
            legal = NO_SCORES
            if self.scores:
                legal = "one of " + ", ".join(map(repr, self.scores))
            raise BadValue("--score", score, legal)

        answers = self._judged(self.answers, score)[[*KEYS, score]]
        problems = self._judged(self.problems, score)
        concerned = problems["score"].isna() | (problems["score"] == score)
        reasons = problems[concerned].drop(columns="score").drop_duplicates([*KEYS])

        table = answers.rename(columns={score: "score"}).merge(reasons, on=[*KEYS], how="outer")
        unscored = table["score"].isna() & table["reason"].isna()
        reason = table["reason"].mask(unscored, UNSCORED).astype(object)
        table["reason"] = reason.where(reason.notna(), None)
        table["score"] = table["score"].mask(table["reason"].notna())
        return self._in_order(table)


def column_of_score(name: str) -> str:
    """Return the column for a score's name: an untrusted log may name a score like a column of the table."""
    if name in OWN_COLUMNS:
        return f"{name} (score)"
    return name


def is_request(first: Mapping[str, Json]) -> bool:
    """Whether an object is a line of the input file of an OpenAI batch."""
    return first.keys() >= {"custom_id", "method", "body"}


class Format(NamedTuple):
    """A format: ``recognises`` takes the first JSON object of a file, and ``read`` its `JsonFile`."""

    name: str
    holds: str
    recognises: Callable[[Mapping[str, Json]], bool]
    read: Callable[..., Log]
