"""Stage `judge@NAME`: one judge's verdicts on the answers of every model, and its error on answers that a person labelled."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from lethe.config import Params
from lethe.errors import plural
from lethe.io.artifacts import (
    BESIDE,
    SECOND,
    Tables,
    followed_scorer,
    read_items,
    read_references,
)
from lethe.io.files import SCHEMA_VERSION, atomic_folder, write_json
from lethe.io.judged_answers import LabelledAnswer, read_labelled
from lethe.io.label_places import filled
from lethe.io.tables import read_table, write_parquet
from lethe.models.checkpoints import prepare_torch
from lethe.registry import JUDGES
from lethe.scoring.judges import Judge
from lethe.scoring.table import asked_of
from lethe.scoring.verdicts import (
    FOLDER,
    AnsweredRow,
    VerdictStore,
    distinct_answers,
    every_answer,
    identity,
    judged,
)
from lethe.statistics.judge_error import Calibration
from stages import entry


def run(settings: Params, root: Path, name: str) -> None:
    """Judge the answers of every model with one entry of ``judges``; finished verdicts are kept, so a killed run resumes."""
    prepare_torch()
    chosen = settings.judges[name]
    judge: Judge = JUDGES[chosen.judge](chosen.params)
    files: list[JudgedFile] = []
    for model in settings.models:
        files += _drawn(root, model, name)
    asked: list[AnsweredRow] = []
    for answers in files:
        asked += answers.asked
    # of all models together: equal answers are judged once
    distinct = distinct_answers(judge, asked)
    labelled: list[LabelledAnswer] = []
    place = filled(chosen.labelled)
    if place is not None:
        labelled = read_labelled(place)
    judge.prepare(every_answer(judge, [*asked, *map(_asked, labelled)]))
    store = VerdictStore(judge, FOLDER)
    verdicts = iter(judged(judge, distinct, store, f"judge {name}"))
    columns = [name + ending for ending in chosen.endings]
    n_answers = 0
    n_missing = 0
    with atomic_folder(root / "judged" / name) as folder:
        for answers in files:
            values = np.full((len(answers.rows), len(columns)), np.nan)
            for places in answers.places:
                values[places] = next(verdicts)
            n_answers += len(values)
            n_missing += int(np.isnan(values[:, 0]).sum())
            scored = answers.rows.assign(**dict(zip(columns, values.T, strict=True)))
            write_parquet(folder / answers.model / answers.file, scored)
        about = {
            "schema": SCHEMA_VERSION,
            "judge": chosen.judge,
            "model": chosen.model,
            "identity": identity(judge),
            **judge.record(),
            "answers": n_answers,
            "distinct": len(distinct.answers),
            "missing": n_missing,
        }
        if labelled:
            about |= _calibrate(judge, labelled, folder / "calibration.csv", store)
        write_json(folder / "about.json", about)
    print(
        f"{name}: {plural(n_answers, 'answer')}, {about['distinct']} distinct, {n_missing} without a verdict"
    )


@dataclass(frozen=True)
class JudgedFile:
    """One file of generations: its rows, what a judge is asked of each question, and the places of its rows."""

    model: str
    file: str
    rows: pd.DataFrame  # prompt_id, sample and, where there is one, prompt
    asked: list[AnsweredRow]
    places: list[np.ndarray]


def _drawn(root: Path, model: str, judge: str) -> list[JudgedFile]:
    """The answers of a model, a file a split, and those to a second prompt where there are some.

    Where the draws followed the verdicts of ``judge``, they are all answers, and those of Retrains that were drawn beside.
    """
    generations = root / "generations" / model
    references = read_references(generations)
    table_of_file: dict[str, pd.DataFrame] = {}
    for split, drawn in Tables(generations, f"sample@{model}").items():
        table_of_file[f"{split}.parquet"] = drawn
    if (generations / SECOND).is_file():
        table_of_file[SECOND] = read_table(generations / SECOND)
    forget = generations / "forget.parquet"
    if followed_scorer(forget) == judge:
        table_of_file[forget.name] = read_table(forget)
        for path in sorted((generations / BESIDE).glob("*.parquet")):
            table_of_file[f"{BESIDE}/{path.name}"] = read_table(path)
    files: list[JudgedFile] = []
    for file, drawn in table_of_file.items():
        split = "forget" if file.startswith(BESIDE) else Path(file).stem
        items = read_items(split, root)
        places, asked = asked_of(drawn, items, references)
        names = [column for column in ("prompt_id", "sample", "prompt") if column in drawn]
        rows = drawn[names].reset_index(drop=True)
        files.append(JudgedFile(model, file, rows, asked, places))
    return files


def _asked(labelled: LabelledAnswer) -> AnsweredRow:
    return AnsweredRow([labelled.text], labelled.item)


def _calibrate(
    judge: Judge, answers: Sequence[LabelledAnswer], place: Path, store: VerdictStore
) -> dict[str, object]:
    """Judge what a person labelled, write both to ``place``, and return the counts and error rates."""
    verdicts: list[float] = []
    for verdict in judged(judge, list(map(_asked, answers)), store, "calibrate"):
        verdicts.append(float(verdict[0, 0]))
    labels = [answer.label for answer in answers]
    error = Calibration.of(labels, verdicts)
    compared = pd.DataFrame({"label": labels, "verdict": verdicts, "judge": identity(judge)})
    compared.to_csv(place, index=False)
    print(
        f"labelled answers: sensitivity {error.sensitivity:.3f}, false positive rate {error.false_positive:.3f}"
    )
    return {
        "labelled": len(labels),
        "sensitivity": error.sensitivity,
        "false_positive": error.false_positive,
    }


main = entry(run, __name__)
