"""Stage `judge@NAME`: one judge's verdicts on the answers of every model, and its error on answers that a person labelled."""

from pathlib import Path

import numpy as np
import pandas as pd

from lethe.config import Params
from lethe.errors import plural
from lethe.io.artifacts import SECOND, Tables, read_items, read_references
from lethe.io.files import SCHEMA_VERSION, atomic_folder, write_json
from lethe.io.judged_answers import read_labelled
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
    store = VerdictStore(judge, FOLDER)
    tables: list[tuple[str, str, pd.DataFrame, list[np.ndarray]]] = []
    questions: list[AnsweredRow] = []
    for model in settings.models:
        generations = root / "generations" / model
        references = read_references(generations)
        drawn_of = {
            f"{split}.parquet": drawn
            for split, drawn in Tables(generations, f"sample@{model}").items()
        }
        if (generations / SECOND).is_file():
            drawn_of[SECOND] = read_table(generations / SECOND)
        for file, drawn in drawn_of.items():
            items = read_items(Path(file).stem, root)
            places, asked = asked_of(drawn, items, references)
            names = [column for column in ("prompt_id", "sample", "prompt") if column in drawn]
            tables.append((model, file, drawn[names].reset_index(drop=True), places))
            questions += asked
    distinct = distinct_answers(
        judge, questions
    )  # of all models together: equal answers are judged once
    verdicts = iter(judged(judge, distinct, store, f"judge {name}"))
    columns = [name + ending for ending in chosen.endings]
    counts, missing = 0, 0
    with atomic_folder(root / "judged" / name) as folder:
        for model, file, table, places in tables:
            values = np.full((len(table), len(columns)), np.nan)
            for rows in places:
                values[rows] = next(verdicts)
            counts, missing = counts + len(values), missing + int(np.isnan(values[:, 0]).sum())
            own = table.assign(**dict(zip(columns, values.T, strict=True)))
            write_parquet(folder / model / file, own)
        about = {
            "schema": SCHEMA_VERSION,
            "judge": chosen.judge,
            "model": chosen.model,
            "identity": identity(judge),
            **judge.record(),
            "answers": counts,
            "distinct": len(distinct.answers),
            "missing": missing,
        }
        if (labelled := filled(chosen.labelled)) is not None:
            about |= _calibrate(judge, Path(labelled), folder / "calibration.csv", store)
        write_json(folder / "about.json", about)
    print(
        f"{name}: {plural(counts, 'answer')}, {about['distinct']} distinct, {missing} without a verdict"
    )


def _calibrate(judge: Judge, labelled: Path, place: Path, store: VerdictStore) -> dict[str, object]:
    answers = read_labelled(labelled)
    verdicts = [
        float(one[0, 0])
        for one in judged(
            judge, [AnsweredRow([own.text], own.item) for own in answers], store, "calibrate"
        )
    ]
    labels = [own.label for own in answers]
    error = Calibration.of(labels, verdicts)
    pd.DataFrame({"label": labels, "verdict": verdicts, "judge": identity(judge)}).to_csv(
        place, index=False
    )
    print(
        f"labelled answers: sensitivity {error.sensitivity:.3f}, false positive rate {error.false_positive:.3f}"
    )
    return {
        "labelled": len(labels),
        "sensitivity": error.sensitivity,
        "false_positive": error.false_positive,
    }


main = entry(run, __name__)
