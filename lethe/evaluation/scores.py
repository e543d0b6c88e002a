"""Scores of sampled answers as prompts: arrays, a user's file, or the log of another tool."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import numpy as np

from lethe.errors import BadFile, BadInput, BadRow, BadValue, MissingColumn, plural, shortened
from lethe.io.artifacts import GREEDY
from lethe.io.logs import is_log, read_log
from lethe.io.logs._log import Log
from lethe.io.logs.benchmarks import OPEN_UNLEARNING

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import ArrayLike

    from lethe.results.table import Rows

ALL = "all"  # the name of a single prompt without a name

Missing = Literal["worst", "drop"]


@dataclass(frozen=True)
class PromptScores:
    """One prompt's scores in sampling order; each of the ``missing`` scores is NaN, or omitted if they were dropped."""

    prompt_id: str
    scores: np.ndarray
    missing: int = 0


class Plain(NamedTuple):
    """Statistics of scores, without a guarantee; NaN if there is no score. The ED score is the mean plus rho times the sd."""

    mean: float
    sd: float
    max: float
    ed_score: float

    @classmethod
    def of(cls, judged: np.ndarray, rho: float) -> Plain:
        if not len(judged):
            return cls(math.nan, math.nan, math.nan, math.nan)
        average, sd = float(judged.mean()), float(judged.std())
        return cls(average, sd, float(judged.max()), average + rho * sd)


def plain_rows(rows: Rows, prompt: PromptScores, rho: float, greedy: float | None = None) -> None:
    """Add the statistics of a prompt's scores, which have no guarantee, and the score of its greedy answer if given."""
    plain = Plain.of(prompt.scores[~np.isnan(prompt.scores)], rho)
    place: dict[str, Any] = {"item": prompt.prompt_id, "split": "forget"}
    rows.add("question", "answers", "sampled", len(prompt.scores), **place)
    rows.add("question", "unscored", "sampled", prompt.missing, **place)
    if greedy is not None:
        rows.add("question", "score", "greedy", greedy, **place)
    rows.add("question", "score", "sampled", plain.mean, **place)
    for quantity in ("sd", "max", "ed_score"):
        rows.add("question", quantity, "sampled", getattr(plain, quantity), **place)


Scores: TypeAlias = "Sequence[PromptScores] | Mapping[str, ArrayLike] | ArrayLike"


def as_prompts(scores: Scores, missing: Missing | None = None) -> list[PromptScores]:
    """Return named prompts from scores in any accepted form; a NaN is an error unless ``missing`` states its treatment."""
    if isinstance(scores, Mapping):
        named = [(str(name), _numbers(own)) for name, own in scores.items()]
    elif isinstance(scores, Sequence) and scores and isinstance(scores[0], PromptScores):
        return list(scores)  # made by a reader of files, which has already counted the missing scores
    else:
        values = _numbers(scores)
        if values.ndim > 2:
            raise BadValue("scores", f"shape {values.shape}", "n scores, or an array of shape (prompts, n)")
        named = [(ALL, values)] if values.ndim < 2 else [(str(place), row) for place, row in enumerate(values)]
    prompts = []
    for name, own in named:
        absent = np.isnan(own)
        if absent.any() and missing is None:
            raise BadValue("scores", "NaN", "numbers in [0, 1]", "Say how it counts: missing='worst' or 'drop'.")
        kept = own[~absent] if missing == "drop" else own
        if kept.ndim != 1 or not kept.size:
            raise BadValue("scores", f"shape {kept.shape} for {name!r}", "at least one score of each prompt")
        prompts.append(PromptScores(name, kept, int(absent.sum())))
    if not prompts:
        raise BadValue("scores", "none", "at least one prompt")
    return prompts


def _numbers(scores: object) -> np.ndarray:
    try:
        return np.asarray(scores, dtype=np.float64)
    except (TypeError, ValueError):  # words, or lists of several lengths
        raise BadValue(
            "scores", scores, "numbers in [0, 1], equally many per prompt or a dict by prompt"
        ) from None


def mean(values: Iterable[float] | np.ndarray) -> float:
    """The mean of the values that are not NaN; NaN if there are none."""
    given = np.asarray(values if isinstance(values, np.ndarray) else list(values), dtype=np.float64)
    return float(np.nanmean(given)) if np.isfinite(given).any() else math.nan


def read_scores(
    path: Path, missing: str | None, column: str = "score", by: str | None = None
) -> list[PromptScores]:
    """Return the prompts of a file, which its column ``by`` names, in order of first appearance.

    The column "A=B" is 1 where the columns A and B agree.
    """
    import pandas as pd

    from lethe.io.tables import file_line, numeric_column, read_table

    name, columns = by or "prompt_id", column.split("=")
    try:
        table = read_table(path, required=[*columns, by] if by else columns, text=[name], optional=["sample"])
    except MissingColumn as error:
        others = [one for one in error.present if one not in (name, "sample", "text")]
        if error.column not in columns or not (others or "text" in error.present):
            raise
        score = f"lethe score {path} --scorer keyword_leak --data FORGET.jsonl"
        remedy = (
            f"Name its column of scores: --score {others[0]}." if others else f"Score its texts first: {score}."
        )
        raise BadFile(
            path, f"no column {error.column!r}; its columns are {', '.join(error.present)}", remedy
        ) from None
    if table.empty:
        raise BadFile(path, "holds no rows", "Give one row per sampled answer.")
    values, *rest = (numeric_column(table, one, path) for one in columns)
    for other in rest:
        values = np.where(np.isnan(values) | np.isnan(other), np.nan, values == other)
    lines = np.arange(len(table))
    if "sample" in table:
        lines = np.flatnonzero((table["sample"] != GREEDY) & (table["sample"] != str(GREEDY)))
        values, table = values[lines], table.iloc[lines]
        if table.empty:
            raise BadFile(path, "holds the greedy answers (sample -1) only", "Give one row per sampled answer.")

    def refuse(wrong: np.ndarray, problem: str, remedy: str = "") -> None:
        if wrong.any():
            place = int(np.argmax(wrong))
            raise BadRow(path, file_line(path, int(lines[place])), problem.format(values[place]), remedy)

    absent = np.isnan(values)
    if missing is None:
        refuse(absent, f"{column} is missing", "Say how it counts: --missing worst or --missing drop.")
    refuse(~absent & ~((values >= 0) & (values <= 1)), f"{column}: got {{}}; must be a number in [0, 1]")
    names = table[name] if name in table else pd.Series([ALL] * len(table))
    refuse(names.isna().to_numpy(), f"{name} is missing")
    codes, labels = pd.factorize(names)
    same, labels = pd.factorize(np.array([str(label) for label in labels], dtype=object))
    codes = same[codes]  # 7 and "7" are one prompt: JSON lines may hold both
    order = np.argsort(codes, kind="stable")
    parts = np.split(values[order], np.flatnonzero(np.diff(codes[order])) + 1)
    counts = np.bincount(codes, weights=absent).astype(int).tolist()
    if missing == "drop":
        parts = [part[~np.isnan(part)] if count else part for part, count in zip(parts, counts, strict=True)]
    for label, part in zip(labels, parts, strict=True):
        if not len(part):
            raise BadFile(
                path, f"prompt {label!r} has no score left", "Remove the prompt, or use --missing worst."
            )
    return [PromptScores(label, *rest) for label, *rest in zip(labels, parts, counts, strict=True)]


EARLY = "early"


@dataclass(frozen=True)
class LogScores:
    """One score of a log, as prompts.

    ``reasons`` counts the planned answers without this score, by reason. If ``dropped``, the prompts omit these answers;
    otherwise each of them is NaN and counts against each bound.
    """

    log: Log
    score: str
    prompts: list[PromptScores]
    reasons: Mapping[str, int]
    dropped: bool

    @property
    def missing(self) -> int:
        return sum(self.reasons.values())

    @property
    def stopped_early(self) -> bool:
        """Whether a stopping rule looked at the answers during the run, so that only anytime-valid values hold."""
        return self.log.stopping == EARLY

    def as_json(self) -> dict[str, object]:
        """The key ``log`` of `lethe bounds --json`."""
        log = self.log
        return {
            **{name: getattr(log, name) for name in ("format", "tool", "task", "model", "draws", "stopping")},
            **{name: list(getattr(log, name)) for name in ("scores", "warnings", "notes")},
            "sampling": dict(log.sampling),
            "answers": len(log.answers),
            "prompts": {"scored": len(self.prompts), "of": len(log.prompts)},
            "missing": self.missing,
            "missing_by_reason": dict(self.reasons),
            "missing_counts": "dropped" if self.dropped else "worst",
            "score": self.score,
        }

    def sentences(self) -> list[str]:
        log, prompts = self.log, plural(len(self.log.prompts), "prompt")
        others = ", ".join(name for name in log.scores if name != self.score)
        reasons = ", ".join(f"{count} {reason}" for reason, count in self.reasons.items())
        counted = "are left out, as if missing at random" if self.dropped else "count against each bound"
        scored = (
            f"{self.score} is a score of {len(self.prompts)} of {prompts}; the bounds are those of these prompts"
        )
        return log.lines(
            ("answers", f"{len(log.answers)} to {prompts}"),
            ("score", self.score + (f" (others, by --score: {others})" if others else "")),
            ("missing", f"{reasons}; these {counted}" if reasons else "nothing"),
            ("note", scored if self.score in log.judges else None),
        )


@dataclass(frozen=True)
class GivenScores:
    """The prompts of a table of scores or of a ``log``; ``missing`` is the treatment of a missing score."""

    prompts: list[PromptScores]
    missing: Missing | None
    log: LogScores | None = None


def read_any_scores(
    path: Path,
    missing: Missing | None,
    score: str | None = None,
    filter: str | None = None,
    by: str | None = None,
) -> GivenScores:
    """Read a table of scores, whose column ``by`` names the prompt, or a log of another tool; the content decides which."""
    if not is_log(path):
        if filter is not None:
            raise BadValue("--filter", filter, "left out: the file is a table of scores, not an lm-eval log")
        return GivenScores(read_scores(path, missing, score or "score", by), missing)
    if by is not None:
        raise BadValue("by", by, "left out: the file is a log, which names its prompts")
    found = scores_of(read_log(path, filter), score, missing)
    return GivenScores(found.prompts, missing or ("worst" if found.missing else None), found)


def scores_of(log: Log, score: str | None = None, missing: Missing | None = None) -> LogScores:
    """Return one score of a log as prompts, in the log's order."""
    if log.refusal is not None:
        raise BadFile(
            log.path, f"no bound holds for its answers ({log.refusal})", "Draw the answers again by sampling."
        )
    if score is None and not log.scores:
        raise BadFile(
            log.path, "holds answers without scores", "Score its texts with `lethe score LOG --data ROWS`."
        )
    name = log.scores[0] if score is None else score
    table = _of_its_task(log, name)
    values = table["score"].to_numpy(dtype=np.float64)
    outside = ~np.isnan(values) & ~((values >= 0) & (values <= 1))
    if outside.any():
        row = table.iloc[int(np.argmax(outside))]
        others = ", ".join(one for one in log.scores if one != name)
        raise BadFile(
            log.path,
            f"score {shortened(name)} of answer {row['sample']} to prompt {shortened(row['prompt_id'])}: got "
            f"{row['score']:g}; must be a number in [0, 1]",
            f"Name another score with --score: {others}." if others else "Score the texts with `lethe score`.",
        )
    reasons = Counter(reason for reason in table["reason"] if reason is not None)
    drop = missing == "drop" and bool(reasons)
    prompts = []
    for prompt_id, rows in table.groupby("prompt_id", sort=False).indices.items():
        own = values[np.sort(rows)]
        absent = np.isnan(own)
        if drop and absent.all():
            raise BadInput(f"{log.path}: prompt {shortened(prompt_id)} has no score left. Use --missing worst.")
        prompts.append(PromptScores(str(prompt_id), own[~absent] if drop else own, int(absent.sum())))
    return LogScores(log, name, prompts, reasons, dropped=drop)


def _of_its_task(log: Log, name: str) -> pd.DataFrame:
    """The planned answers with a score; of a log of several tasks, the answers of the task that has the score.

    Such a log of open-unlearning calls its prompts TASK/INDEX and its scores TASK.METRIC.
    """
    table = log.scored(name)
    tasks = (log.task or "").split(", ") if log.format == OPEN_UNLEARNING.name else []
    if len(tasks) < 2:
        return table
    own = table["prompt_id"].str.startswith(tuple(f"{task}/" for task in tasks if name.startswith(f"{task}.")))
    return table[own].reset_index(drop=True)
