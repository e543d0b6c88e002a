"""The models under test of one run beside each other: a side for each of them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from lethe.comparison.ranking import rank
from lethe.comparison.read_side import models_under_test, read_model
from lethe.comparison.sides import Scored, Side
from lethe.errors import BadInput, plural
from lethe.io.files import Json, read_artifact
from lethe.results.table import Result

AT_LEAST = 2  # models that can be compared


def sides_of_folder(
    folder: Path, score: str | None = None, models: Sequence[str] = ()
) -> list[Side]:
    """A side for each model under test of a folder of artifacts, or for each of ``models``.

    Raises `BadInput` for fewer than two models.
    """
    names = list(models) or models_under_test(folder)
    if len(names) < AT_LEAST:
        tested = plural(len(names), "model")
        raise BadInput(
            f"{folder}: got {tested} to compare ({', '.join(names) or 'none'}); a comparison within a run takes two or more. "
            "Name two sides, such as data:npo data:retrain, or models (--model)."
        )
    sides = [read_model(folder, name, name, score) for name in names]
    return judged(sides)


def ranked_rows(
    folder: Path,
    models: Iterable[str],
    score: str,
    params: Mapping[str, Json],
    alpha: float,
) -> list[Result]:
    """The rows of the ranking of ``models`` by a score; none for fewer than two models that the scorer judged.

    ``params`` has the sections of params.yaml that say which scores are 0 and 1.
    """
    names = scored_by(folder, models, score)
    sides = [read_model(folder, name, name, score, params) for name in names]
    sides = judged(sides)
    if len(sides) < AT_LEAST:
        return []
    for side in sides:
        if not side.models[side.name].questions:
            return []
    return rank(sides, alpha).rows()


def scored_by(folder: Path, models: Iterable[str], score: str) -> list[str]:
    """Those of ``models`` that a scorer judged."""
    names = []
    for model in models:
        place = folder / "scores" / model
        record = place / "about.json"
        answers = place / "forget.parquet"
        if not record.is_file() or not answers.is_file():
            continue
        if score in read_artifact(record)["scorers"]:
            names.append(model)
    return names


def judged(sides: Sequence[Side]) -> list[Side]:
    """The sides without the questions of which no side has a judged answer, such as those without keywords."""
    judged_questions: set[str] = set()
    for side in sides:
        for model in side.models.values():
            for name, answers in model.questions.items():
                if not np.isnan(answers.scores).all():
                    judged_questions.add(name)
    kept = []
    for side in sides:
        models = {}
        for name, model in side.models.items():
            models[name] = _with_questions(model, judged_questions)
        kept.append(replace(side, models=models))
    return kept


def _with_questions(model: Scored, names: set[str]) -> Scored:
    """The answers of a model to the questions ``names``."""
    questions = {name: answers for name, answers in model.questions.items() if name in names}
    return replace(model, questions=questions)
