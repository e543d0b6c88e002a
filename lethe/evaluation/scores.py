"""Scores of sampled answers as prompts: arrays, a user's file, or another tool's log, whose texts can be scored; records
for Inspect.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
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
from lethe.io.artifacts import GREEDY, Row
from lethe.io.files import read_artifact
from lethe.io.logs import is_log, read_log
from lethe.io.logs._log import KEYS, Log, greedy
from lethe.io.logs.benchmarks import OPEN_UNLEARNING
from lethe.results.licence import Source
from lethe.results.table import Numbers

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import ArrayLike

    from lethe.results.table import Rows

ALL = "all"  # the name of a single prompt without a name

Missing = Literal["worst", "drop"]


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
        named = [(str(name), _numbers(own)) for name, own in scores.items()]
    elif isinstance(scores, Sequence) and scores and isinstance(scores[0], PromptScores):
        return list(
            scores
        )  # made by a reader of files, which has already counted the missing scores
    else:
        values = _numbers(scores)
        check(
            values.ndim < 3,
            "scores",
            f"shape {values.shape}",
            "n scores, or an array of shape (prompts, n)",
        )
        named = (
            [(ALL, values)]
            if values.ndim < 2
            else [(str(place), row) for place, row in enumerate(values)]
        )
    prompts = []
    for name, own in named:
        absent = np.isnan(own)
        if absent.any() and missing is None:
            raise BadValue(
                "scores",
                "NaN",
                "numbers in [0, 1]",
                "Say how it counts: missing='worst' or 'drop'.",
            )
        counted = own[~absent] if missing == "drop" else own
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
    given = np.asarray(values if isinstance(values, np.ndarray) else list(values), dtype=np.float64)
    return float(np.nanmean(given)) if np.isfinite(given).any() else math.nan


def read_scores(
    path: Path, missing: str | None, column: str = "score", by: str | None = None
) -> list[PromptScores]:
    """Return the prompts of a file in order of first appearance; the column "A=B" is 1 where the columns A and B agree."""
    import pandas as pd

    from lethe.io.tables import file_line, numeric_column, read_table

    name, columns = by or "prompt_id", column.split("=")
    try:
        table = read_table(
            path, required=[*columns, by] if by else columns, text=[name], optional=["sample"]
        )
    except MissingColumn as error:
        others = [one for one in error.present if one not in (name, "sample", "text")]
        if error.column not in columns or not (others or "text" in error.present):
            raise
        score = f"lethe score {path} --scorer keyword_leak --data FORGET.jsonl"
        own = " or ".join(others)
        remedy = (
            f"Name its column of scores: --score {own}"
            if others
            else f"Score its texts first: {score}"
        )
        problem = f"no column {error.column!r}; its columns are {', '.join(error.present)}"
        raise BadFile(path, problem, f"{remedy}.") from None
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
            raise BadFile(
                path,
                "holds the greedy answers (sample -1) only",
                "Give one row per sampled answer.",
            )

    def refuse(wrong: np.ndarray, problem: str, remedy: str = "") -> None:
        if wrong.any():
            place = int(np.argmax(wrong))
            raise BadRow(
                path, file_line(path, int(lines[place])), problem.format(values[place]), remedy
            )

    absent = np.isnan(values)
    if missing is None:
        refuse(
            absent, f"{column} is missing", "Say how it counts: --missing worst or --missing drop."
        )
    refuse(
        ~absent & ~((values >= 0) & (values <= 1)),
        f"{column}: got {{}}; must be a number in [0, 1]",
    )
    names = table[name] if name in table else pd.Series([ALL] * len(table))
    refuse(names.isna().to_numpy(), f"{name} is missing")
    samples = np.asarray(table.get("sample", np.arange(len(table))))
    copies = pd.DataFrame({"prompt": names.astype(str).to_numpy(), "sample": samples}).duplicated()
    copies = copies.to_numpy() & ~pd.isna(samples)
    refuse(copies, f"{name} and sample repeat an earlier line", "Leave out the copy.")
    codes, labels = pd.factorize(names)
    same, labels = pd.factorize(np.array([str(label) for label in labels], dtype=object))
    codes = same[codes]  # 7 and "7" are one prompt: JSON lines may hold both
    prompts = _split(labels, codes, values, samples if "sample" in table else None, missing)
    if empty := [prompt.prompt_id for prompt in prompts if not prompt.n]:
        remedy = "Remove the prompt, or use --missing worst."
        raise BadFile(path, f"prompt {empty[0]!r} has no score left", remedy)
    return prompts


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
        prompts.append(PromptScores(labels[place], values[kept], int(absent.sum()), names))
    return prompts


EARLY, UNFINISHED = "early", "unfinished"
STOPPED = "stopped"  # the column of a table that says that a rule could stop its draws


def could_stop(path: Path) -> bool:
    """Whether a rule could stop the draws of a table of scores, by its column `stopped` or the record of Lethe's own run."""
    from lethe.io.tables import read_table

    about = (
        path.resolve().parent.parent.parent
        / "generations"
        / path.resolve().parent.name
        / "about.json"
    )
    if about.is_file() and read_artifact(about).get("stop") == "sequential":
        return True
    if (
        path.suffix.lower() == ".parquet"
    ):  # a look at the columns, since the table was read once already
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
            **{
                name: getattr(log, name)
                for name in ("format", "tool", "task", "model", "draws", "stopping")
            },
            **{name: list(getattr(log, name)) for name in ("scores", "warnings", "notes")},
            "sampling": dict(log.sampling),
            "answers": len(log.answers),
            "prompts": {"scored": len(self.prompts), "of": len(log.prompts)},
            "missing": self.missing,
            "missing_by_reason": dict(self.reasons),
            "missing_counts": "dropped" if self.dropped else "worst",
            "score": self.score,
        }

    def licence_facts(self) -> Source:
        """What the log says that refutes a claim."""
        log = self.log
        unfinished = "The log says that its run did not end" if log.stopping == UNFINISHED else None
        setting = greedy(log.sampling)
        deterministic = None if setting is None else f"The log states greedy decoding ({setting})"
        return Source(
            repeated_answers=repeated_texts(log.answers),
            deterministic=deterministic,
            unfinished=unfinished,
        )

    def sentences(self) -> list[str]:
        log, prompts = self.log, plural(len(self.log.prompts), "prompt")
        others = ", ".join(name for name in log.scores if name != self.score)
        reasons = ", ".join(f"{count} {reason}" for reason, count in self.reasons.items())
        counted = (
            "are left out, as if missing at random" if self.dropped else "count against each bound"
        )
        about = f"of {len(self.prompts)} of {prompts}; the bounds are those of these prompts"
        return log.lines(
            ("answers", f"{len(log.answers)} to {prompts}"),
            ("score", self.score + (f" (others, by --score: {others})" if others else "")),
            ("missing", f"{reasons}; these {counted}" if reasons else "nothing"),
            ("note", f"{self.score} is a score {about}" if self.score in log.judges else None),
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
) -> tuple[list[PromptScores], Missing | None, LogScores | None]:
    """Read a table of scores, or a log of another tool, as the content decides: the prompts, the treatment of a missing
    score, and the log.
    """
    if not is_log(path):
        legal = "left out: the file is a table of scores, not an lm-eval log"
        check(filter is None, "--filter", filter, legal)
        return read_scores(path, missing, score or "score", by), missing, None
    check(by is None, "by", by, "left out: the file is a log, which names its prompts")
    scored = scores_of(read_log(path, filter), score, missing)
    return scored.prompts, missing or ("worst" if scored.missing else None), scored


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
        others = ", ".join(one for one in log.scores if one != name)
        remedy = (
            f"Name another score with --score: {others}."
            if others
            else "Score the texts with `lethe score`."
        )
        place = f"score {shortened(name)} of answer {row['sample']} to prompt {shortened(row['prompt_id'])}"
        raise BadFile(
            log.path, f"{place}: got {row['score']:g}; must be a number in [0, 1]", remedy
        )
    reasons = Counter(reason for reason in table["reason"] if reason is not None)
    drop = missing == "drop" and bool(reasons)
    prompts = []
    for prompt_id, rows in table.groupby("prompt_id", sort=False).indices.items():
        own = values[np.sort(rows)]
        absent = np.isnan(own)
        if drop and absent.all():
            raise BadInput(
                f"{log.path}: prompt {shortened(prompt_id)} has no score left. Use --missing worst."
            )
        prompts.append(
            PromptScores(str(prompt_id), own[~absent] if drop else own, int(absent.sum()))
        )
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
        each, n = [(name, self.table[name].dropna()) for name in self.scorers], len(self.table)
        return [
            (name, len(own), n - len(own), float(own.mean()) if len(own) else None)
            for name, own in each
        ]

    def warnings(self) -> list[str]:
        """The reasons why bounds from the table would not hold, and the log's own warnings."""
        reasons = [self.log.refusal] if self.log.refusal else []
        if self.log.stopping == "early":
            reasons.append(
                "a rule could stop the run early, so bounds for a fixed number of answers do not hold"
            )
        return [f"{one}; a table of scores does not show this" for one in reasons] + list(
            self.log.warnings
        )


def score_log(log: Log, rows: Sequence[Row], scorers: Sequence[str], source: str) -> ScoredLog:
    from lethe.scoring import score_answers

    items, matched_by = _matched(log, rows, source)
    table = _texts(log)
    scores = score_answers(table, items, scorers)
    texts = bool((table["text"].fillna("").str.strip() != "").any())
    if texts and (mute := [name for name in scorers if scores[name].isna().all()]):
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
    by_id, matched = {row["id"]: row for row in rows}, {}
    if set(log.prompts["prompt_id"]) <= by_id.keys():
        return by_id, "id"
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
    asked = [(row["question"].strip(), row) for row in rows]
    ends = [
        (prompt.rfind(text) + len(text), len(text), row) for text, row in asked if text in prompt
    ]
    return max(ends, key=lambda end: end[:2])[2] if ends else None


def score_records(scored: ScoredLog) -> list[Record]:
    """Return one record per scored answer, whose value with several scorers is an object, as Inspect's ``metrics`` must be
    then; a missing answer has none, so Inspect leaves it unscored.
    """
    ids = inspect_ids(scored.log.prompts["prompt_id"])
    records: list[Record] = []
    for row in scored.table.dropna(subset=list(scored.scorers)).to_dict("records"):
        first, *others = scored.scorers
        value = {name: row[name] for name in scored.scorers} if others else row[first]
        records.append({"id": ids[row["prompt_id"]], "epoch": row["sample"], "value": value})
    return records


def bound_records(questions: Mapping[str, Numbers], metric: str) -> list[Record]:
    """Return one record per prompt, for all its epochs: the value is the upper bound, ``explanation`` the guarantee."""
    ids = inspect_ids(questions)
    records: list[Record] = []
    for name, own in questions.items():
        bounds = Numbers([row for row in own.rows if row.at is None]).bounds
        facts = {key: bound.value for key, bound in bounds.items()}
        counts = {key: own.values[key] for key in ("n", "missing")}
        shown = {"value": bounds[metric].value, "explanation": bounds[metric].sentence(metric)}
        records.append({"id": ids[name], **shown, "metadata": {**facts, **counts}})
    return records


def inspect_ids(prompt_ids: Iterable[str]) -> dict[str, str]:
    """The id of each prompt in Inspect, which compares ids as text; the log reader quotes a text that is also a number."""
    ids = {prompt_id: prompt_id for prompt_id in prompt_ids}
    for prompt_id in ids:
        bare = prompt_id[1:-1]
        if prompt_id.startswith('"') and prompt_id.endswith('"') and bare in ids:
            both = f"The log has the id {bare} as a number and as text"
            raise BadInput(
                f"{both}, which Inspect's precomputed scores cannot distinguish. Rename one in the dataset."
            )
    return ids
