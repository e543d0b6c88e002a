"""Stage `metrics@MODEL`: high-probability bounds on the whole output distribution, from the scores."""

from collections.abc import Mapping
from pathlib import Path

from lethe.config.measuring import NO_BINARY, JudgeEntry, Metrics
from lethe.errors import ParamsClash
from lethe.io.artifacts import GREEDY, KEYS, SECOND, Tables, read_split
from lethe.io.files import SCHEMA_VERSION, read_artifact, write_json
from lethe.io.judged_answers import read_calibration
from lethe.io.label_places import filled
from lethe.io.tables import read_table
from lethe.labels.bounds import measure_labels
from lethe.labels.draws import draws_of, refuse_references
from lethe.labels.labels import read_labels
from lethe.labels.queue import Queue
from lethe.measure.likelihood_metrics import likelihood_metrics
from lethe.measure.measure import measure, measure_language, measure_stopped
from lethe.results import quantities, table
from lethe.results.licence import licensed, of_drawing, reasons_of
from lethe.results.table import Result, Rows, in_language
from lethe.scoring.scorer import applies
from lethe.statistics.judge_error import Calibration
from lethe.statistics.sequential import Decision


def run(
    name: str,
    metrics: Metrics,
    root: Path = Path("data"),
    judges: Mapping[str, JudgeEntry] | None = None,
    truncated: str = "counts",
) -> None:
    """Measure ``root/scores/name``; write ``root/results/metrics/name.parquet``, and its headline for `dvc metrics`."""
    rows = _rows(name, metrics, root, judges or {}, truncated)
    place = root / "generations" / name / "about.json"
    about = read_artifact(place) if place.is_file() else {}
    rows = licensed(name, rows, of_drawing(about, rows))
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
    unjudged = len(_inapplicable(metrics, root, judges or {}))
    questions = "the judged forget questions" if unjudged else "the forget questions"
    for row in numbers.rows:
        if row.names()[2] in quantities.worst_bounds() and (bound := row.upper_bound):
            print(f"{name}: {bound.sentence(row.kind.label, questions)}")


def _inapplicable(metrics: Metrics, root: Path, judges: Mapping[str, JudgeEntry]) -> set[str]:
    """The forget questions that the 0/1 scorer cannot judge."""
    judge = judges.get(metrics.binary or "")
    scorer = judge.judge if judge else metrics.binary
    forget = read_split("forget", root / "dataset")
    return {row["id"] for row in forget if scorer and not applies(scorer, row)}


def _rows(
    name: str, metrics: Metrics, root: Path, judges: Mapping[str, JudgeEntry], truncated: str
) -> list[Result]:
    generations = Tables(root / "generations" / name, f"sample@{name}")
    scores = Tables(root / "scores" / name, f"score@{name}")
    tables, calibration, of_answers = (generations, scores), _calibration(metrics, root), Rows(name)
    inapplicable = _inapplicable(metrics, root, judges)
    early = root / "generations" / name / "sequential.json"
    if early.is_file():
        stopped = read_artifact(early)
        decisions = {row.pop("prompt_id"): Decision(**row) for row in stopped["decisions"]}
        of_answers.rows = measure_stopped(name, *tables, metrics, decisions, stopped["decided_by"])
    else:
        of_answers.rows = measure(name, *tables, metrics, inapplicable, calibration, truncated)
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
        read_table(second) if second.is_file() else None,
        read_artifact(described),
        metrics,
        inapplicable,
        calibration,
    )
    return [in_language(row) for row in of_answers.rows] + rows.rows


def _calibration(metrics: Metrics, root: Path) -> Calibration | None:
    calibration = filled(metrics.calibration)
    if calibration is None:
        return None
    if metrics.binary is None:  # the settings allow the place of the calibration while it is empty
        raise ParamsClash("metrics", f"calibration is {calibration!r}, {NO_BINARY}")
    about = root / "judged" / (metrics.binary or "") / "about.json"
    judge = read_artifact(about).get("identity") if about.is_file() else None
    labelled = read_calibration(calibration, missing="worst", judge=judge)
    return Calibration.of(labelled.labels, labelled.verdicts, judge=labelled.judge)


def _add_labelled(
    rows: Rows, generations: Tables, scores: Tables, metrics: Metrics, root: Path
) -> None:
    folder = filled(metrics.labels.folder)
    place = Path(folder or "", f"{rows.model}.jsonl")
    if folder is None or not place.is_file():
        return
    if (root / "generations" / rows.model / "sequential.json").is_file():
        raise ParamsClash(
            "metrics.labels.folder",
            f"{place} labels answers of questions that could stop early; then sample.stop must be 'fixed'",
        )
    refuse_references(root / "generations" / rows.model)
    drawn = generations["forget"]
    table = drawn[drawn["sample"] != GREEDY].sort_values("sample", kind="stable")
    if metrics.binary is not None:
        verdicts = scores["forget"][[*KEYS, metrics.binary]].rename(
            columns={metrics.binary: "verdict"}
        )
        table = table.merge(verdicts, on=[*KEYS], how="left", validate="one_to_one")
    draws = draws_of(table, {})
    queue = Queue(draws, metrics.labels.mass, metrics.labels.rest)
    measure_labels(rows, draws, queue, read_labels(place), metrics.alpha)
