"""Sides of a comparison as they are read: from a log, a table, a data folder, an evaluation, or a git revision."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lethe.comparison.revisions import folder_of_revision
from lethe.comparison.run_params import (
    PARAMS,
    declared_binary,
    first_metric,
    read_params,
    scorer_of,
    section_of,
    template_of,
)
from lethe.comparison.sides import ALIASES, FREE, SETTINGS, QuestionScores, Scored, Side
from lethe.errors import BadFile, BadValue
from lethe.io import csv_form
from lethe.io.artifacts import GREEDY, Row, first_rows, read_split, record_of_draws
from lethe.io.facts import LeakIs
from lethe.io.files import Json, read_artifact
from lethe.io.ids import as_texts
from lethe.io.logs import is_log
from lethe.io.logs._log import EARLY
from lethe.io.packed import suffix_of
from lethe.io.tables import JUDGE, checked_form, read_table
from lethe.measure.order import refuted_by_order
from lethe.measure.score_files import ReadScores, could_stop, read_any_scores, read_scores
from lethe.measure.scores import PromptScores
from lethe.results import table as results
from lethe.results.licence import Source, of_drawing, reasons_of, refusals
from lethe.results.table import Numbers, Result

if TYPE_CHECKING:
    import pandas as pd

SERVED = "{model} at {endpoint}, as served between {first} and {last}"
RENAME_IT = "Rename the column of the questions, such as {0!r}, to 'prompt_id'."


def read_side(
    source: str,
    score: str | None = None,
    filter: str | None = None,
    models: Sequence[str] = (),
    leak_is: LeakIs | None = None,
) -> Side:
    """Read one side of a comparison.

    Parameters
    ----------
    source
        A log, a table of scores, a folder of artifacts, one of its models (FOLDER:MODEL), or a git revision of this folder.
    score
        The score to compare by; None for the usual one.
    filter
        The filter of an lm-eval log.
    models
        The models of a folder or revision; empty for all.
    leak_is
        Which end of a file's score is a leak, where the user says it.

    Raises
    ------
    BadFile, BadValue
        If there is no such source, score or model.
    """
    path = Path(source)
    folder, _, model = source.rpartition(":")
    if folder and model and not path.exists() and Path(folder).is_dir():
        if models:
            raise BadValue("--model", models[0], f"left out beside {source}, which names a model")
        return read_model(Path(folder), model, source, score)
    if path.is_dir():
        return _folder(
            path,
            path.parent,
            source,
            "folder",
            score,
            models,
        )
    if path.is_file():
        if is_log(path):
            return _log(path, score, filter, leak_is)
        return _table(path, score, leak_is)
    with folder_of_revision(source) as root:
        return _folder(
            root / "data",
            root,
            source,
            "revision",
            score,
            models,
        )


def read_model(
    folder: Path,
    model: str,
    name: str,
    score: str | None = None,
    params: Mapping[str, Json] | None = None,
) -> Side:
    """Read one model of a folder of artifacts as a side called ``name``; the ``params`` are those of the params.yaml beside
    the folder, unless they are named."""
    return _folder(
        folder,
        folder.parent,
        name,
        "folder",
        score,
        [model],
        params,
    )


def models_under_test(folder: Path) -> list[str]:
    """The models with scores in a folder but the models for comparison, in the order of the params.yaml beside it."""
    scored = _scored_in(folder)
    params = read_params(folder.parent / PARAMS)
    report = section_of(params, "report")
    retrains = report.get("retrain")
    if not isinstance(retrains, list):
        retrains = [retrains]
    references = [report.get("base"), *retrains]
    names = dict.fromkeys([*section_of(params, "models"), *scored])
    return [name for name in names if name in scored and name not in references]


def _scored_in(folder: Path) -> list[str]:
    """The models of a folder of artifacts with scores of the forget set."""
    tables = (folder / "scores").glob("*/forget.parquet")
    return sorted(table.parent.name for table in tables)


def _log(path: Path, score: str | None, filter: str | None, leak_is: LeakIs | None) -> Side:
    """The side of a log of another tool."""
    read = read_any_scores(path, None, score, filter, leak_is=leak_is).pointed()
    scored = read.log
    assert scored is not None  # the file is a log
    log = scored.log
    text_of_prompt = {}
    for name, text in zip(log.prompts["prompt_id"], log.prompts["prompt"], strict=True):
        if isinstance(text, str):
            text_of_prompt[name] = text
    questions = {}
    for prompt in read.prompts:
        text = text_of_prompt.get(prompt.prompt_id)
        questions[prompt.prompt_id] = QuestionScores(prompt.scores, text)
    settings = {ALIASES.get(key, key): value for key, value in log.sampling.items()}
    stopped = log.stopping == EARLY
    known = _known(read, stopped)
    has_single_answers = all(prompt.n == 1 for prompt in read.prompts)
    if has_single_answers:
        known = replace(known, deterministic=None)  # what is compared then are the questions
    return Side(
        name=str(path),
        kind="log",
        metric=scored.score,
        models={log.model or "": Scored(questions, settings)},
        stopped=stopped,
        refused=tuple(refusals(known)),
        stated=read.stated,
    )


def _table(path: Path, score: str | None, leak_is: LeakIs | None) -> Side:
    """The side of a table of scores."""
    read = read_scores(path, "worst", score, leak_is=leak_is, asks=RENAME_IT).pointed()
    questions = {}
    for prompt in read.prompts:
        text = read.texts.get(prompt.prompt_id)
        questions[prompt.prompt_id] = QuestionScores(prompt.scores, text)
    stopped = could_stop(path, read)
    known = _known(read, stopped).joined(of_drawing(record_of_draws(path), ()))
    sampling = {ALIASES.get(key, key): value for key, value in read.stated.facts.sampling.items()}
    # A seed in a column says nothing of how the draws of two tables depend on each other.
    law = {key: value for key, value in sampling.items() if key not in FREE}
    judges = _judges(path)
    return Side(
        name=str(path),
        kind="table",
        metric=read.stated.score,
        models={"": Scored(questions, law)},
        scorer={JUDGE: ", ".join(judges)} if judges else {},
        stopped=stopped,
        refused=tuple(refusals(known)),
        stated=read.stated,
    )


def _judges(path: Path) -> tuple[str, ...]:
    """The judges that a table of scores names in its column `judge`, sorted; empty where it has none."""
    if suffix_of(path) in csv_form.SUFFIXES and JUDGE not in checked_form(path).header:
        return ()  # most tables, which need not be read again
    table = read_table(path, text=[JUDGE])
    if JUDGE not in table:
        return ()
    return tuple(sorted(as_texts(table[JUDGE].dropna()).unique().tolist()))


def _known(read: ReadScores, stopped: bool) -> Source:
    """What is known of a file's scores, but which end of them is a leak: a difference is one of the score as recorded."""
    below = _below_own_mean(read.prompts, stopped)
    return replace(read.stated.source(), score_means="leak", below_own_mean=below)


def _below_own_mean(prompts: Sequence[PromptScores], stopped: bool) -> tuple[str, ...]:
    """The prompts of which an upper bound lies below their own mean; none of a run that stopped early, at any order."""
    if stopped:
        return ()
    return refuted_by_order(prompts)


def _folder(
    folder: Path,
    project: Path,
    name: str,
    kind: str,
    score: str | None,
    models: Sequence[str],
    params: Mapping[str, Json] | None = None,
) -> Side:
    """The side of a folder of artifacts; ``params`` are those of params.yaml in ``project``, where they are not named."""
    where = name if kind == "revision" else str(folder)
    scored = _chosen(_scored_in(folder), models, name, where)
    if params is None:
        params = read_params(project / PARAMS)
    evaluated = _record_in(folder / "evaluated.json")  # of `lethe eval`
    scorers = read_artifact(folder / "scores" / scored[0] / "about.json").get("scorers", [])
    metric = score or first_metric(params, scorers, name)
    asked = {row["id"]: row for row in read_split("forget", folder / "dataset")}
    sample = section_of(params, "sample")
    rule = {key: sample[key] for key in ("truncated",) if key in sample}

    by_model = {}
    could_be_stopped = False
    is_unknown = False
    reasons: dict[str, None] = {}  # in their order, each reason once
    for model in scored:
        drawn = _record_in(folder / "generations" / model / "about.json")
        could_be_stopped |= drawn.get("stop") == "sequential"
        is_unknown |= "stop" not in drawn
        reasons |= dict.fromkeys(_refused(folder, model, drawn))
        place = folder / "scores" / model / "forget.parquet"
        table = first_rows(read_table(place), place)
        if metric not in table:
            raise BadValue("--score", metric, f"one of {', '.join(map(repr, scorers))} ({name})")
        settings = {key: drawn[key] for key in SETTINGS if key in drawn}
        served = ""
        if drawn.get("served"):
            served = SERVED.format_map(drawn["served"])
        by_model[model] = Scored(_questions(table, metric, asked), rule | settings, served)
    scored_by = evaluated if "score" in evaluated else params
    return Side(
        name=name,
        kind=kind,
        metric=metric,
        models=by_model,
        template=evaluated.get("prompt", template_of(params, project)),
        scorer=scorer_of(scored_by, metric),
        stopped=could_be_stopped or is_unknown,
        binary=declared_binary(params, metric),
        unknown_stop=is_unknown and not could_be_stopped,
        refused=tuple(reasons),
    )


def _chosen(scored: list[str], models: Sequence[str], name: str, where: str) -> list[str]:
    """The models with scores that were named, or all; raises a sentence where there is none, or a name is unknown."""
    if not scored:
        remedy = "Name a pipeline's data folder or a folder of `lethe eval`."
        raise BadFile(name, "holds no scores/MODEL/forget.parquet", remedy)
    for model in models:
        if model not in scored:
            raise BadValue("--model", model, f"one of {', '.join(scored)} in {where}")
    if not models:
        return scored
    return [model for model in scored if model in models]


def _record_in(path: Path) -> dict[str, Json]:
    """The content of a record; empty where there is no such file."""
    if not path.is_file():
        return {}
    return read_artifact(path)


def _refused(folder: Path, model: str, drawn: Mapping[str, Json]) -> list[str]:
    """Why nothing may be claimed of a model's answers, by the record of its draws and by its results where there are any."""
    place = results.place(folder, "metrics", model)
    rows: list[Result] = []
    if place.is_file():
        rows = results.read_rows(place)
    numbers = Numbers([row for row in rows if row.scope == "model"])
    return list(reasons_of(numbers)) or refusals(of_drawing(drawn, rows))


def _questions(
    table: pd.DataFrame, metric: str, asked: Mapping[str, Row]
) -> dict[str, QuestionScores]:
    """The scores of each question: first those of the dataset in its order, then the others in the order of the table."""
    drawn = table[table["sample"] != GREEDY].sort_values("sample", kind="stable")
    scores = {}
    for name, values in drawn.groupby("prompt_id", sort=False)[metric]:
        scores[str(name)] = values.to_numpy(dtype=np.float64)
    questions = {}
    for name, row in asked.items():
        if name in scores:
            questions[name] = _answers(scores[name], row)
    for name, values in scores.items():
        if name not in asked:
            questions[name] = QuestionScores(values)
    return questions


def _answers(scores: np.ndarray, row: Row) -> QuestionScores:
    """The scores of a question of the dataset, with what must be alike on both sides."""
    parts = map(row.get, ("keywords", "context", "followups"))
    return QuestionScores(scores, row["question"], (row["answer"], *parts))
