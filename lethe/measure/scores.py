"""Scores of sampled answers as prompts: arrays, a user's file, or another tool's log, whose texts can be scored; records
for Inspect.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from lethe.errors import (
    BadFile,
    BadInput,
    BadRow,
    BadValue,
    MissingColumn,
    check,
    plural,
    shortened,
)
from lethe.io import ids
from lethe.io.artifacts import GREEDY, Row
from lethe.io.facts import DOCUMENTED, Facts, LeakIs, of_column
from lethe.io.files import Json, read_artifact
from lethe.io.logs import is_log, read_log
from lethe.io.logs._log import KEYS, Log
from lethe.io.logs.benchmarks import OPEN_UNLEARNING
from lethe.io.tables import file_line, is_ours, numeric_column, read_table, sample_names
from lethe.measure.stated import Stated
from lethe.progress import tell
from lethe.registry import ROUGE
from lethe.results.table import Numbers

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import ArrayLike

    from lethe.results.table import Rows

ALL = "all"  # the name of a single prompt without a name

Missing = Literal["worst", "drop"]
NAME_IT = "Name the column of the questions with --by {0} (in Python by='{0}')."


@dataclass(frozen=True)
class PromptScores:
    """One prompt's scores in sampling order; each of the ``missing`` scores is NaN, or omitted if they were dropped.

    ``samples`` are the names of the answers, in the order of the scores; None where the source has none.
    """

    prompt_id: str
    scores: np.ndarray
    missing: int = 0
    samples: np.ndarray | None = None

    @property
    def n(self) -> int:
        return len(self.scores)


def plain_statistics(scores: np.ndarray, rho: float) -> dict[str, float]:
    """Statistics of the judged scores, without a guarantee; NaN if there is none."""
    judged = scores[~np.isnan(scores)]
    if not len(judged):
        return dict.fromkeys(("score", "sd", "max", "ed_score"), math.nan)
    average, sd = float(judged.mean()), float(judged.std())
    return {"score": average, "sd": sd, "max": float(judged.max()), "ed_score": average + rho * sd}


def plain_rows(rows: Rows, prompt: PromptScores, rho: float, greedy: float | None = None) -> None:
    """Add the statistics of a prompt's scores, which have no guarantee, and the score of its greedy answer if given."""
    add = partial(rows.add, "question", item=prompt.prompt_id, split="forget")
    add("answers", "sampled", prompt.n)
    add("unscored", "sampled", prompt.missing)
    if greedy is not None:
        add("score", "greedy", greedy)
    for quantity, value in plain_statistics(prompt.scores, rho).items():
        add(quantity, "sampled", value)


Scores: TypeAlias = "Sequence[PromptScores] | Mapping[str, ArrayLike] | ArrayLike"


def as_prompts(scores: Scores, missing: Missing | None = None) -> list[PromptScores]:
    """Return named prompts from scores in any accepted form; a NaN is an error unless ``missing`` states its treatment."""
    if isinstance(scores, Mapping):
        found = ids.alike(scores)
        if found is not None:
            raise BadFile("scores", found.problem("the prompts"), ids.REMEDY)
        named = [(ids.id_text(name), _numbers(values)) for name, values in scores.items()]
    elif isinstance(scores, Sequence) and scores and isinstance(scores[0], PromptScores):
        # made by a reader of files, which has already counted the missing scores
        return list(scores)
    else:
        array = _numbers(scores)
        shapes = "n scores, or an array of shape (prompts, n)"
        check(array.ndim < 3, "scores", f"shape {array.shape}", shapes)
        if array.ndim < 2:
            named = [(ALL, array)]
        else:
            named = [(str(place), row) for place, row in enumerate(array)]
    prompts = []
    for name, values in named:
        absent = np.isnan(values)
        if absent.any() and missing is None:
            raise BadValue(
                "scores",
                "NaN",
                "numbers in [0, 1]",
                "Say how it counts: missing='worst' or 'drop'.",
            )
        counted = values[~absent] if missing == "drop" else values
        if counted.ndim != 1 or not counted.size:
            raise BadValue(
                "scores", f"shape {counted.shape} for {name!r}", "at least one score of each prompt"
            )
        prompts.append(PromptScores(name, counted, int(absent.sum())))
    check(prompts, "scores", "none", "at least one prompt")
    return prompts


def _numbers(scores: object) -> np.ndarray:
    try:
        return np.asarray(scores, dtype=np.float64)
    except (TypeError, ValueError):  # words, or lists of several lengths
        legal = "numbers in [0, 1], equally many per prompt or a dict by prompt"
        raise BadValue("scores", scores, legal) from None


def mean(values: Iterable[float | None] | np.ndarray) -> float:
    """The mean of the values that are there; NaN if there are none."""
    if not isinstance(values, np.ndarray):
        values = list(values)
    numbers = np.asarray(values, dtype=np.float64)
    return float(np.nanmean(numbers)) if np.isfinite(numbers).any() else math.nan


@dataclass(frozen=True)
class ReadScores:
    """The scores of a file as prompts, with what the file states of them and, of a log, the log itself.

    ``missing`` is how a missing score counts: as asked, and "worst" for a log that has some.
    """

    prompts: list[PromptScores]
    stated: Stated
    missing: Missing | None = None
    log: LogScores | None = None

    def pointed(self) -> ReadScores:
        """The scores with a leak at their high end: turned where the user says that a low score is a leak."""
        if not self.stated.inverted:
            return self
        turned = [replace(prompt, scores=1 - prompt.scores) for prompt in self.prompts]
        return replace(self, prompts=turned)


def read_scores(
    path: Path,
    missing: Missing | None,
    column: str = "score",
    by: str | None = None,
    leak_is: LeakIs | None = None,
    asks: str = NAME_IT,
) -> ReadScores:
    """Return the prompts of a file in order of first appearance; the column "A=B" is 1 where the columns A and B agree.

    A table without `prompt_id` whose other columns repeat is a question to the user, which ends in ``asks``.
    """
    columns = column.split("=")
    table = _table_of_scores(path, columns, by)
    name = by or ids.PROMPT
    stated = Stated(column, facts_of_columns(columns, path), leak_is)
    if name not in table:
        # the agreement of two columns is about all rows, whatever they answer
        if len(columns) == 1:
            stated = replace(stated, ids_not_understood=_unused_ids(path, table, columns, asks))
        table = table.assign(**{name: ALL})
    values = _agreement(path, table, columns)
    lines = np.arange(len(table))
    if "sample" in table:
        table = table.assign(sample=sample_names(table["sample"]))
        lines = np.flatnonzero(table["sample"] != str(GREEDY))
        values, table = values[lines], table.iloc[lines]
        if table.empty:
            remedy = "Give one row per sampled answer."
            raise BadFile(path, "holds the greedy answers (sample -1) only", remedy)
    _check_cells(_Cells(path, table, values, lines), name, column, missing)
    samples = table["sample"].to_numpy() if "sample" in table else None
    return ReadScores(_grouped(path, values, table[name], samples, missing), stated, missing)


def of_frame(
    table: pd.DataFrame,
    missing: Missing | None,
    column: str = DOCUMENTED,
    by: str | None = None,
    leak_is: LeakIs | None = None,
) -> ReadScores:
    """As `read_scores`, of a table in memory, for which no line can be named."""
    name = by or ids.PROMPT
    columns = ", ".join(map(str, table.columns)) or "none"
    if column not in table:
        problem = f"scores: no column {column!r}; its columns are {columns}"
        raise BadInput(f"{problem}. Rename the column of scores.")
    check(by is None or by in table, "by", by, f"one of {columns}")
    stated = Stated(column, facts_of_columns([column]), leak_is)
    if name not in table:
        unused = _unused_ids("scores", table, [column])
        stated = replace(stated, ids_not_understood=unused)
        table = table.assign(**{name: ALL})
    found = ids.alike_in(table[name])
    if found is not None:
        raise BadFile("scores", found.problem(name), ids.REMEDY)
    drawn = table
    if "sample" in table:
        drawn = table[sample_names(table["sample"]) != str(GREEDY)]
    groups = drawn.groupby(ids.as_text(drawn[name]), sort=False, dropna=False)[column]
    scores = {str(prompt): values.to_numpy() for prompt, values in groups}
    return ReadScores(as_prompts(scores, missing), stated, missing)


def _table_of_scores(path: Path, columns: Sequence[str], by: str | None) -> pd.DataFrame:
    """The rows of a file that has these columns of scores; a file without them is asked for the right ones."""
    name = by or ids.PROMPT
    required = [*columns, by] if by else columns
    try:
        table = read_table(path, required=required, ids=[name], optional=["sample"])
    except MissingColumn as error:
        others = [column for column in error.present if column not in (name, "sample", "text")]
        if error.column not in columns or not (others or "text" in error.present):
            raise
        score = f"lethe score {path} --scorer keyword_leak --data FORGET.jsonl"
        remedy = f"Score its texts first: {score}"
        if others:
            remedy = f"Name its column of scores: --score {' or '.join(others)}"
        problem = f"no column {error.column!r}; its columns are {', '.join(error.present)}"
        raise BadFile(path, problem, f"{remedy}.") from None
    if table.empty:
        raise BadFile(path, "holds no rows", "Give one row per sampled answer.")
    return table


def _unused_ids(
    path: Path | str, table: pd.DataFrame, columns: Sequence[str], asks: str = NAME_IT
) -> str | None:
    """Ask the user where a column repeats, as the names of questions do; say which column else looks like ids."""
    found = ids.candidates(table, columns)
    repeating = [name for name in found if ids.repeats(table[name])]
    if repeating:
        named = ", ".join(map(repr, repeating))
        problem = f"no column {ids.PROMPT!r}, and rows share a value of {named}, as answers to one question do"
        raise BadFile(path, problem, asks.format(repeating[0]))
    return f"The column {found[0]!r} looks like ids and was not used" if found else None


def _agreement(path: Path, table: pd.DataFrame, columns: Sequence[str]) -> np.ndarray:
    """The values of one column, or 1 where several columns agree."""
    values, *rest = (numeric_column(table, column, path) for column in columns)
    for other in rest:
        values = np.where(np.isnan(values) | np.isnan(other), np.nan, values == other)
    return values


@dataclass(frozen=True)
class _Cells:
    """The scores of a file and their rows; ``lines`` are the places of the rows in the file."""

    path: Path
    table: pd.DataFrame
    values: np.ndarray
    lines: np.ndarray

    def refuse(self, wrong: np.ndarray, problem: str, remedy: str = "") -> None:
        if wrong.any():
            place = int(np.argmax(wrong))
            line = file_line(self.path, int(self.lines[place]))
            raise BadRow(self.path, line, problem.format(self.values[place]), remedy)


def _check_cells(cells: _Cells, name: str, column: str, missing: Missing | None) -> None:
    """Refuse a missing score without a rule, a score out of range, a missing id, and an answer that stands twice."""
    table, values = cells.table, cells.values
    absent = np.isnan(values)
    if missing is None:
        how = "Say how it counts: --missing worst or --missing drop."
        cells.refuse(absent, f"{column} is missing", how)
    outside = ~absent & ~((values >= 0) & (values <= 1))
    cells.refuse(outside, f"{column}: got {{}}; must be a number in [0, 1]")
    cells.refuse(table[name].isna().to_numpy(), f"{name} is missing")
    if "sample" in table:
        copies = table.duplicated([name, "sample"]) & table["sample"].notna()
        repeats = f"{name} and sample repeat an earlier line"
        cells.refuse(copies.to_numpy(), repeats, "Leave out the copy.")


def _grouped(
    path: Path,
    values: np.ndarray,
    names: pd.Series,
    samples: np.ndarray | None,
    missing: Missing | None,
) -> list[PromptScores]:
    """The scores by prompt, in the order of the file."""
    import pandas as pd

    codes, labels = pd.factorize(names)
    prompts = _split(labels, codes, values, samples, missing)
    empty = [prompt.prompt_id for prompt in prompts if not prompt.n]
    if empty:
        remedy = "Remove the prompt, or use --missing worst."
        raise BadFile(path, f"prompt {empty[0]!r} has no score left", remedy)
    return prompts


def facts_of_columns(columns: Sequence[str], path: Path | None = None) -> Facts:
    """What a table states of its columns; that two columns agree says that they match."""
    if len(columns) > 1:
        return Facts({"=".join(columns): "match"})
    ours = path is not None and is_ours(path)
    return Facts({name: "leak" if ours else of_column(name) for name in columns})


def _split(
    labels: np.ndarray,
    codes: np.ndarray,
    values: np.ndarray,
    samples: np.ndarray | None,
    missing: str | None,
) -> list[PromptScores]:
    """The scores of each prompt, whose place among the ``labels`` the ``codes`` name."""
    order = np.argsort(codes, kind="stable")
    begins = np.flatnonzero(np.diff(codes[order])) + 1
    prompts = []
    for place, rows in enumerate(np.split(order, begins)):
        absent = np.isnan(values[rows])
        kept = rows[~absent] if missing == "drop" else rows
        names = None if samples is None else samples[kept]
        prompts.append(PromptScores(str(labels[place]), values[kept], int(absent.sum()), names))
    return prompts


EARLY = "early"
STOPPED = "stopped"  # the column of a table that says that a rule could stop its draws


def record_of_draws(path: Path) -> Mapping[str, Json]:
    """The record of the draws (`about.json`) of a table of scores or answers in a folder of Lethe's runs; else empty."""
    folder = path.resolve().parent
    beside = folder.parent.parent / "generations" / folder.name
    for place in (beside, folder):
        if place.parent.name == "generations" and (place / "about.json").is_file():
            return read_artifact(place / "about.json")
    return {}


def could_stop(path: Path) -> bool:
    """Whether a rule could stop the draws of a table of scores, by its column `stopped` or the record of Lethe's own run."""
    if record_of_draws(path).get("stop") == "sequential":
        return True
    # a look at the columns, since the table was read once already
    if path.suffix.lower() == ".parquet":
        from pyarrow.parquet import read_schema

        named = STOPPED in read_schema(path).names
    else:
        with path.open("rb") as file:
            named = path.suffix.lower() != ".csv" or STOPPED.encode() in file.readline()
    return named and says_stopped(read_table(path))


def says_stopped(table: pd.DataFrame) -> bool:
    return STOPPED in table and bool(
        table[STOPPED].astype(str).str.lower().isin(("true", "1", "1.0")).any()
    )


@dataclass(frozen=True)
class LogScores:
    """One score of a log, as prompts; ``reasons`` counts the planned answers without it, which are left out if ``dropped``,
    and otherwise NaN, so that they count against each bound.
    """

    log: Log
    score: str
    prompts: list[PromptScores]
    reasons: Mapping[str, int]
    dropped: bool

    @property
    def missing(self) -> int:
        return sum(self.reasons.values())

    def facts(self) -> dict[str, object]:
        """What is recorded of the log among the settings of its bounds."""
        log = self.log
        return {
            "format": log.format,
            "tool": log.tool,
            "task": log.task,
            "model": log.model,
            "draws": log.draws,
            "stopping": log.stopping,
            "scores": list(log.scores),
            "warnings": list(log.warnings),
            "notes": list(log.notes),
            "sampling": dict(log.sampling),
            "answers": len(log.answers),
            "prompts": {"scored": len(self.prompts), "of": len(log.prompts)},
            "missing": self.missing,
            "missing_by_reason": dict(self.reasons),
            "missing_counts": "dropped" if self.dropped else "worst",
            "score": self.score,
        }

    def sentences(self) -> list[str]:
        log = self.log
        prompts = plural(len(log.prompts), "prompt")
        score = self.score
        others = ", ".join(name for name in log.scores if name != self.score)
        if others:
            score += f" (others, by --score: {others})"
        missing = "nothing"
        reasons = ", ".join(f"{count} {reason}" for reason, count in self.reasons.items())
        if reasons:
            counted = "count against each bound"
            if self.dropped:
                counted = "are left out, as if missing at random"
            missing = f"{reasons}; these {counted}"
        note = None
        if self.score in log.judges:
            of_prompts = f"{len(self.prompts)} of {prompts}"
            note = f"{self.score} is a score of {of_prompts}; the bounds are those of these prompts"
        return log.lines(
            ("answers", f"{len(log.answers)} to {prompts}"),
            ("score", score),
            ("missing", missing),
            ("note", note),
        )


# Of a question whose answers count as copies: so many answers, and so many words of their one text. A model that always
# refuses in one sentence, or that answers in a word, draws such copies too; one that does so with another long text for each
# question is not known.
FEWEST_COPIES, FEWEST_WORDS = 4, 8


def repeated_texts(answers: pd.DataFrame) -> str | None:
    """Why the answers of a log are copies by their texts alone, as of a cache or of one seed; None where they are not.

    The answers to every question are one text of at least `FEWEST_WORDS` words, `FEWEST_COPIES` times or more, and no two
    questions have the same text.
    """
    texts = answers[answers["text"].str.strip() != ""].groupby("prompt_id", sort=False)["text"]
    counts, distinct, first = texts.size(), texts.nunique(), texts.first()
    several = counts >= FEWEST_COPIES
    long = first.str.split().str.len() >= FEWEST_WORDS
    if len(counts) < 2 or not (several & (distinct == 1) & long).all() or first.duplicated().any():
        return None
    fewest = f"{int(counts.min())} or more answers to each of {plural(len(counts), 'question')}"
    return f"The {fewest} are one text each time, as from a cache or with one seed"


def read_any_scores(
    path: Path,
    missing: Missing | None,
    score: str | None = None,
    filter: str | None = None,
    by: str | None = None,
    leak_is: LeakIs | None = None,
) -> ReadScores:
    """Read a table of scores, or a log of another tool, as the content decides."""
    if not is_log(path):
        legal = "left out: the file is a table of scores, not an lm-eval log"
        check(filter is None, "--filter", filter, legal)
        return read_scores(path, missing, score or DOCUMENTED, by, leak_is)
    check(by is None, "by", by, "left out: the file is a log, which names its prompts")
    scored = scores_of(read_log(path, filter), score, missing)
    facts = scored.log.facts
    if facts.repeated is None:
        facts = replace(facts, repeated=repeated_texts(scored.log.answers))
    stated = Stated(scored.score, facts, leak_is)
    if missing is None and scored.missing:
        missing = "worst"
    return ReadScores(scored.prompts, stated, missing, scored)


def scores_of(log: Log, score: str | None = None, missing: Missing | None = None) -> LogScores:
    """Return one score of a log as prompts, in the log's order."""
    if log.refusal is not None:
        problem = f"no bound holds for its answers ({log.refusal})"
        raise BadFile(log.path, problem, "Draw the answers again by sampling.")
    if score is None and not log.scores:
        remedy = "Score its texts with `lethe score LOG --data ROWS`."
        raise BadFile(log.path, "holds answers without scores", remedy)
    name = log.scores[0] if score is None else score
    table = log.scored(name)
    tasks = (log.task or "").split(", ") if log.format == OPEN_UNLEARNING.name else []
    if len(tasks) > 1:  # such a log calls its prompts TASK/INDEX and its scores TASK.METRIC
        of_score = tuple(f"{task}/" for task in tasks if name.startswith(f"{task}."))
        table = table[table["prompt_id"].str.startswith(of_score)].reset_index(drop=True)
    values = table["score"].to_numpy(dtype=np.float64)
    outside = ~np.isnan(values) & ~((values >= 0) & (values <= 1))
    if outside.any():
        row = table.iloc[int(np.argmax(outside))]
        others = ", ".join(score for score in log.scores if score != name)
        remedy = "Score the texts with `lethe score`."
        if others:
            remedy = f"Name another score with --score: {others}."
        place = f"score {shortened(name)} of answer {row['sample']} to prompt {shortened(row['prompt_id'])}"
        raise BadFile(
            log.path, f"{place}: got {row['score']:g}; must be a number in [0, 1]", remedy
        )
    reasons = Counter(reason for reason in table["reason"] if reason is not None)
    drop = missing == "drop" and bool(reasons)
    prompts = []
    for prompt_id, rows in table.groupby("prompt_id", sort=False).indices.items():
        scores = values[np.sort(rows)]
        absent = np.isnan(scores)
        if drop and absent.all():
            raise BadInput(
                f"{log.path}: prompt {shortened(prompt_id)} has no score left. Use --missing worst."
            )
        if drop:
            scores = scores[~absent]
        prompts.append(PromptScores(str(prompt_id), scores, missing=int(absent.sum())))
    return LogScores(log, name, prompts, reasons, dropped=drop)


Record = Mapping[str, object]


@dataclass(frozen=True)
class ScoredLog:
    """The table of scores of a log: ``prompt_id, sample`` and one column per scorer, NaN where an answer is missing; prompts
    and rows are ``matched_by`` "id" or "question".
    """

    log: Log
    table: pd.DataFrame
    scorers: tuple[str, ...]
    matched_by: str

    def rows(self) -> list[tuple[str, int, int, float | None]]:
        """Name, scored answers, missing answers and mean of each scorer; the mean is None if no answer has a score."""
        rows = []
        for name in self.scorers:
            present = self.table[name].dropna()
            average = float(present.mean()) if len(present) else None
            rows.append((name, len(present), len(self.table) - len(present), average))
        return rows

    def warnings(self) -> list[str]:
        """The reasons why bounds from the table would not hold, and the log's own warnings."""
        reasons = [self.log.refusal] if self.log.refusal else []
        if self.log.stopping == "early":
            reasons.append(
                "a rule could stop the run early, so bounds for a fixed number of answers do not hold"
            )
        warnings = [f"{reason}; a table of scores does not show this" for reason in reasons]
        return warnings + list(self.log.warnings)


def score_log(log: Log, rows: Sequence[Row], scorers: Sequence[str], source: str) -> ScoredLog:
    from lethe.scoring.table import score_answers
    from lethe.scoring.text import rouge

    items, matched_by = _matched(log, rows, source)
    table = _texts(log)
    scores = score_answers(table, items, scorers)
    if {*ROUGE, "above"} & {*scorers}:
        answered = {prompt_id: items[prompt_id] for prompt_id in log.prompts["prompt_id"]}
        for sentence in rouge.doubts({row["id"]: row for row in answered.values()}.values()):
            tell(sentence)
    texts = bool((table["text"].fillna("").str.strip() != "").any())
    mute = [name for name in scorers if scores[name].isna().all()]
    if texts and mute:
        problem = f"cannot judge any text of {log.path}. Give keywords or answers in {source}."
        raise BadInput(f"scorer {mute[0]}: {problem}")
    return ScoredLog(log, scores, tuple(scorers), matched_by)


def _texts(log: Log) -> pd.DataFrame:
    """Every planned answer in the log's order; the text of a missing answer is None."""
    import pandas as pd

    lost = log.problems[log.problems["score"].isna()][[*KEYS]].drop_duplicates()
    table = log.answers[[*KEYS, "text"]].merge(lost, on=[*KEYS], how="outer", indicator=True)
    table["text"] = table["text"].where(table["_merge"] == "left_only", None)
    place = pd.Series(range(len(log.prompts)), index=log.prompts["prompt_id"])
    ordered = table.assign(prompt=table["prompt_id"].map(place)).sort_values(["prompt", "sample"])
    return ordered[[*KEYS, "text"]].reset_index(drop=True)


def _matched(log: Log, rows: Sequence[Row], source: str) -> tuple[Mapping[str, Row], str]:
    by_id = {row["id"]: row for row in rows}
    if set(log.prompts["prompt_id"]) <= by_id.keys():
        return by_id, "id"
    found = ids.alike([*log.prompts["prompt_id"], *by_id])
    matched = {}
    if found is not None:
        raise BadFile(log.path, f"{found.problem('id')} (in it and in {source})", ids.REMEDY)
    for prompt_id, prompt in zip(log.prompts["prompt_id"], log.prompts["prompt"], strict=True):
        row = _last_question(prompt, rows) if isinstance(prompt, str) else None
        if row is None:
            raise BadInput(
                f"{log.path}: prompt {shortened(prompt_id)} belongs to no row of {source}: no row has this id, and its text "
                f"({shortened(prompt)}) contains no row's question. Add the row, or use the prompt's id as the row's id."
            )
        matched[prompt_id] = row
    return matched, "question"


def _last_question(prompt: str, rows: Sequence[Row]) -> Row | None:
    """The row whose question ends last in the prompt, because few-shot examples precede the question."""
    last: Row | None = None
    last_place = (-1, -1)  # where the question ends, and its length, which decides among equal ends
    for row in rows:
        text = row["question"].strip()
        place = (prompt.rfind(text) + len(text), len(text))
        if text in prompt and place > last_place:
            last, last_place = row, place
    return last


def score_records(scored: ScoredLog) -> list[Record]:
    """Return one record per scored answer, whose value with several scorers is an object, as Inspect's ``metrics`` must be
    then; a missing answer has none, so Inspect leaves it unscored.
    """
    records: list[Record] = []
    for row in scored.table.dropna(subset=list(scored.scorers)).to_dict("records"):
        value: object = {name: row[name] for name in scored.scorers}
        if len(scored.scorers) == 1:
            value = row[scored.scorers[0]]
        records.append({"id": row["prompt_id"], "epoch": row["sample"], "value": value})
    return records


def bound_records(questions: Mapping[str, Numbers], metric: str, stated: Stated) -> list[Record]:
    """Return one record per prompt, for all its epochs: the value is the upper bound, ``explanation`` the guarantee."""
    records: list[Record] = []
    for name, numbers in questions.items():
        bounds = Numbers([row for row in numbers.rows if row.at is None]).bounds
        facts = {key: bound.value for key, bound in bounds.items()}
        counts = {key: numbers.values[key] for key in ("n", "missing")}
        shown = {"value": bounds[metric].value, "explanation": bounds[metric].sentence(metric)}
        metadata = {**facts, **counts, **stated.as_json()}
        records.append({"id": name, **shown, "metadata": metadata})
    return records
