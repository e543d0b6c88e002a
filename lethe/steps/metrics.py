"""Stage `metrics@MODEL`: high-probability bounds on the whole output distribution, from the scores."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from lethe.config.evaluating import JudgeEntry, Metrics
from lethe.io.artifacts import GREEDY, SECOND, metrics_files, read_split, read_tables
from lethe.io.atomic import SCHEMA_VERSION, atomic_folder
from lethe.io.json_files import write_json
from lethe.io.parts import Tables
from lethe.io.schema import read_artifact
from lethe.io.tables import read_table

if TYPE_CHECKING:
    from lethe.evaluation.labelled import LabelledMeasures


def run(
    name: str, metrics: Metrics, root: Path = Path("data"), judges: Mapping[str, JudgeEntry] | None = None
) -> None:
    """Measure ``root/scores/name``; write the files of `metrics_files` and ``root/curves/name``.

    ``root/curves/name/bounds.json`` holds the guarantee of each bound. A metrics file cannot hold the guarantees, because
    `dvc metrics show` prints every leaf of a metrics file as a column. ``per_question.json`` has leak@k of each question,
    and ``leak_at_k.json`` that of the worst question and of the mean over the questions.
    """
    from lethe.evaluation.exact_bounds import tree_metrics
    from lethe.evaluation.headline import split
    from lethe.evaluation.likelihood_metrics import likelihood_metrics
    from lethe.evaluation.measure import measure, measure_stopped
    from lethe.evaluation.prompt_language import measure_language
    from lethe.io.calibration import read_calibration
    from lethe.scoring import applies
    from lethe.statistics.judge_error import Calibration
    from lethe.statistics.sequential import Decision
    from lethe.text import label

    generations = Tables(root / "generations" / name, f"sample@{name}")
    scores = Tables(root / "scores" / name, f"score@{name}")
    forget = read_split("forget", root / "dataset")
    questions = {row["id"]: row["question"] for row in forget}
    binary, calibration = metrics.binary, None
    if metrics.calibration is not None:
        labelled = read_calibration(metrics.calibration, missing="worst")
        calibration = Calibration.of(labelled.labels, labelled.verdicts)
    inapplicable: set[str] = set()
    early = root / "generations" / name / "sequential.json"
    if early.is_file():
        stopped = read_artifact(early)
        decisions = {row.pop("prompt_id"): Decision(**row) for row in stopped["decisions"]}
        measures = measure_stopped(name, generations, scores, questions, metrics, decisions, stopped["decided_by"])
    else:
        judge = (judges or {}).get(binary or "")
        scorer = judge.judge if judge else binary
        inapplicable = {row["id"] for row in forget if scorer and not applies(scorer, row)}
        measures = measure(name, generations, scores, questions, metrics, inapplicable, calibration)
    read = _labelled(name, generations, scores, metrics, root)
    likelihoods = read_tables(root / "scores" / name / "likelihood", f"score@{name}")
    given = likelihood_metrics(likelihoods, scores, metrics.alpha)
    trees, tree_bounds = tree_metrics(root, name)
    of_answers = read.bounds() if read else {}
    each = read.question_bounds() if read else []
    guarantees, of_language = measures.guarantees(given.bounds() | tree_bounds | of_answers, each), None
    described = root / "generations" / name / "language.json"
    if described.is_file():
        second = root / "scores" / name / SECOND
        of_language = measure_language(
            generations["forget"],
            scores["forget"],
            read_table(second) if second.is_file() else None,
            read_artifact(described),
            metrics,
            inapplicable,
            calibration,
        )
        guarantees = of_language.guarantees(measures.guarantees(of_answers, each), given.bounds() | tree_bounds)
    with atomic_folder(root / "curves" / name) as folder:
        for curve, rows in _with_labels(measures.curves(), read).items():
            write_json(folder / f"{curve}.json", rows)
        write_json(folder / "bounds.json", {"schema": SCHEMA_VERSION, **guarantees})
        if of_language:
            write_json(folder / "language.json", {"schema": SCHEMA_VERSION, **of_language.as_dict()})
    flat = {"schema": SCHEMA_VERSION, **measures.flat(), **given.flat(), **measures.further_flat(), **trees}
    flat |= of_language.flat() if of_language else {}
    flat |= read.flat() if read else {}
    for path, values in zip(metrics_files(root, name), split(flat), strict=True):
        write_json(path, values)
    worst = measures.bounds()["anytime_upper_worst" if measures.stopped else "m_mu_worst"]
    worst = worst.in_language() if of_language else worst
    print(f"{name}: {worst.sentence(f'the mean {label(metrics.leak)}', 'the forget questions')}")
    for sentence in read.sentences("the forget questions") if read else ():
        print(f"{name}: {sentence}")


def _labelled(
    name: str, generations: Tables, scores: Tables, metrics: Metrics, root: Path
) -> LabelledMeasures | None:
    """The bounds by a person's labels of this model's answers; None without a file of labels."""
    folder = metrics.labels.folder
    place = Path(folder or "", f"{name}.jsonl")
    if folder is None or not place.is_file():
        return None
    from lethe.evaluation.labelled import measure
    from lethe.evaluation.labelling import Queue, draws_of, refuse_references
    from lethe.evaluation.labels import read_labels

    refuse_references(root / "generations" / name)
    drawn = generations["forget"]
    table = drawn[drawn["sample"] != GREEDY].sort_values("sample", kind="stable")
    if metrics.binary is not None:
        verdicts = scores["forget"][["prompt_id", "sample", metrics.binary]].rename(
            columns={metrics.binary: "verdict"}
        )
        table = table.merge(verdicts, on=["prompt_id", "sample"], how="left", validate="one_to_one")
    draws = draws_of(table, {})
    queue = Queue(draws, metrics.labels.mass, metrics.labels.rest if draws.verdicts else 0)
    return measure(draws, queue, read_labels(place), metrics.alpha)


def _with_labels(
    curves: dict[str, list[dict[str, object]]], labelled: LabelledMeasures | None
) -> dict[str, list[dict[str, object]]]:
    """The curves, with what labels say in the row of each question."""
    found = labelled.rows() if labelled else {}
    rows = [row | found.get(str(row["prompt_id"]), {}) for row in curves["per_question"]]
    return curves | {"per_question": rows}
