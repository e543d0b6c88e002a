"""Stage `metrics@MODEL`: high-probability bounds on the whole output distribution, from the scores."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from lethe.config.measuring import NO_BINARY, JudgeEntry, Metrics
from lethe.errors import ParamsClash
from lethe.io.artifacts import GREEDY, KEYS, SECOND, Tables, read_items, read_split
from lethe.io.facts import scorer_of
from lethe.io.files import SCHEMA_VERSION, Json, read_artifact, write_json
from lethe.io.judged_answers import read_calibration
from lethe.io.label_places import filled
from lethe.io.tables import read_table
from lethe.labels.bounds import measure_labels
from lethe.labels.draws import draws_of, refuse_references
from lethe.labels.labels import read_labels
from lethe.labels.queue import Queue
from lethe.measure.anytime import add_counts
from lethe.measure.likelihood_metrics import likelihood_metrics
from lethe.measure.measure import measure, measure_language
from lethe.registry import JUDGES
from lethe.results import quantities, table
from lethe.results.licence import licensed, of_drawing, of_verdicts, reasons_of
from lethe.results.table import Result, Rows, in_language
from lethe.scoring.scorer import applies
from lethe.statistics.judge_error import Calibration


def run(
    name: str,
    metrics: Metrics,
    root: Path = Path("data"),
    judges: Mapping[str, JudgeEntry] | None = None,
    truncated: str = "counts",
) -> None:
    """Measure ``root/scores/name``; write ``root/results/metrics/name.parquet``, and its headline for `dvc metrics`.

    Parameters
    ----------
    name
        The model, as the entry of ``models`` calls it.
    metrics
        The scorers, the level, the thresholds, and where labels and a calibration lie.
    root
        The folder of all artifacts.
    judges
        The judges by name, one of which may be the 0/1 scorer.
    truncated
        "missing" or "counts": how an answer counts that ended at the token limit.
    """
    judges = judges or {}
    unjudged = _inapplicable(metrics, root, judges)
    measured = _rows(name, metrics, root, unjudged, truncated)
    measured = _with_parameters(measured, root / "scores" / name, judges)
    judge = _deciding_judge(metrics, judges)
    if judge is not None and not _is_calibrated(measured):
        measured = of_verdicts(measured, judge)

    # What may be claimed of them depends on how the answers were drawn.
    about = _about(root / "generations" / name)
    rows = licensed(name, measured, of_drawing(about, measured))
    rows = table.as_served(rows, about.get("served"))
    table.write(table.place(root, "metrics", name), rows)

    numbers = table.Numbers([row for row in rows if row.scope == "model"])
    shown = {key: numbers.values[key] for key in quantities.headline(numbers.values)}
    reasons = reasons_of(numbers)
    if reasons:
        shown["refused"] = len(reasons)
    write_json(root / "metrics" / f"{name}.json", {"schema": SCHEMA_VERSION, **shown})

    for reason in reasons:
        print(f"{name}: nothing is claimed of its answers. {reason}")
    questions = "the forget questions"
    if unjudged:
        questions = "the judged forget questions"
    worst_bounds = quantities.worst_bounds()
    for row in numbers.rows:
        _, _, upper = row.names()
        bound = row.upper_bound
        if bound and upper in worst_bounds:
            print(f"{name}: {bound.sentence(row.kind.label, questions)}")


def _about(folder: Path) -> dict[str, Json]:
    """The record of a folder's draws or verdicts; empty where there is none."""
    place = folder / "about.json"
    if not place.is_file():
        return {}
    return read_artifact(place)


def _inapplicable(metrics: Metrics, root: Path, judges: Mapping[str, JudgeEntry]) -> set[str]:
    """The forget questions that the 0/1 scorer cannot judge."""
    judge = judges.get(metrics.binary or "")
    scorer = judge.judge if judge else metrics.binary
    if not scorer:
        return set()
    forget = read_split("forget", root / "dataset")
    return {row["id"] for row in forget if not applies(scorer, row)}


def _with_parameters(
    rows: Sequence[Result], scores: Path, judges: Mapping[str, JudgeEntry]
) -> list[Result]:
    """The rows with the parameters of the scorers that judged: with others they say nothing of the same events."""
    parameters_of_scorer = dict(_about(scores).get("parameters", {}))
    for judge, entry in judges.items():
        parameters_of_scorer[judge] = entry.model_dump(mode="json", exclude={"labelled"})
    stated = []
    for row in rows:
        if (row.scope, row.quantity) == ("model", "answers"):
            used = {}
            for scorer in (row.facts.get("score"), row.facts.get("leak")):
                if scorer is not None and parameters_of_scorer.get(scorer):
                    used[scorer] = parameters_of_scorer[scorer]
            row = replace(row, evidence={**row.facts, "parameters": used})
        stated.append(row)
    return stated


def _deciding_judge(metrics: Metrics, judges: Mapping[str, JudgeEntry]) -> str | None:
    """The judge whose verdicts decide the word; None where a rule of text does."""
    deciding = metrics.binary or metrics.leak
    for name, entry in judges.items():
        if deciding in [name + ending for ending in entry.endings]:
            return name
    if scorer_of(deciding) in JUDGES:
        return scorer_of(deciding)
    return None


def _is_calibrated(rows: Sequence[Result]) -> bool:
    """Whether a person's labels say how the verdicts relate to leaks, or stand in their place."""
    return any(row.basis in ("judged", "labelled") for row in rows)


def _rows(
    name: str,
    metrics: Metrics,
    root: Path,
    inapplicable: set[str],
    truncated: str,
) -> list[Result]:
    """All rows of a model, before it is asked whether anything may be claimed of them.

    In a language of prompts a question is asked in many words, so its rows say that they are of the language.
    """
    generations = Tables(root / "generations" / name, f"sample@{name}")
    scores = Tables(root / "scores" / name, f"score@{name}")
    calibration = _calibration(metrics, root)

    # The sampled answers: the first ones, then all of them, then those that a person labelled.
    of_answers = Rows(name)
    of_answers.rows = measure(
        name, generations, scores, metrics, inapplicable, calibration, truncated
    )
    if metrics.binary is not None:
        cut_is_missing = truncated == "missing"
        add_counts(of_answers, root, metrics.binary, metrics.alpha, inapplicable, cut_is_missing)
    _add_labelled(of_answers, generations, scores, metrics, root)

    rows = Rows(name)
    likelihoods = Tables(root / "scores" / name / "likelihood", f"score@{name}")
    if likelihoods:
        likelihood_metrics(rows, likelihoods, scores, metrics.alpha)

    described = root / "generations" / name / "language.json"
    if not described.is_file():
        return of_answers.rows + rows.rows
    second = root / "scores" / name / SECOND
    measure_language(
        rows,
        generations["forget"],
        scores["forget"],
        second=read_table(second) if second.is_file() else None,
        described=read_artifact(described),
        metrics=metrics,
        inapplicable=inapplicable,
        calibration=calibration,
    )
    return [*map(in_language, of_answers.rows), *rows.rows]


def _calibration(metrics: Metrics, root: Path) -> Calibration | None:
    """The judge's measured error; None where none is asked for, or where its place is empty."""
    calibration = filled(metrics.calibration)
    if calibration is None:
        return None
    if metrics.binary is None:  # the settings allow the place of the calibration while it is empty
        raise ParamsClash("metrics", f"calibration is {calibration!r}, {NO_BINARY}")
    judge = _about(root / "judged" / metrics.binary).get("identity")
    labelled = read_calibration(calibration, missing="worst", judge=judge)
    return Calibration.of(labelled.labels, labelled.verdicts, judge=labelled.judge)


def _add_labelled(
    rows: Rows,
    generations: Tables,
    scores: Tables,
    metrics: Metrics,
    root: Path,
) -> None:
    """Add the bounds by a person's labels, where the folder of labels has a file of the model."""
    folder = filled(metrics.labels.folder)
    place = Path(folder or "", f"{rows.model}.jsonl")
    if folder is None or not place.is_file():
        return
    refuse_references(root / "generations" / rows.model)

    # The draws, with the verdicts as the judge that labels correct.
    answers = generations["forget"]
    drawn = answers[answers["sample"] != GREEDY].sort_values("sample", kind="stable")
    if metrics.binary is not None:
        verdicts = scores["forget"][[*KEYS, metrics.binary]]
        verdicts = verdicts.rename(columns={metrics.binary: "verdict"})
        drawn = drawn.merge(verdicts, on=[*KEYS], how="left", validate="one_to_one")

    asked = {name: row["question"] for name, row in read_items("forget", root).items()}
    draws = draws_of(drawn, asked)
    queue = Queue(draws, metrics.labels.mass, metrics.labels.rest)
    measure_labels(rows, draws, queue, read_labels(place), metrics.alpha)
