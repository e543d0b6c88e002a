"""The rows that `dvc plots` draws: one file per plot for all models, so that a new model needs no new entry.

A plot has one panel per checkpoint: the checkpoint with each of its sampling settings, and Base and Retrain for
comparison. A panel therefore has few lines, and the legend can distinguish ten models. The templates give colours in the
order in which models first appear, so every file names all models in one order.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from lethe.config.schema import Params
from lethe.evaluation.run import Model, Question, Run

TRAINED = "trained from the start"  # the panel of the losses of training rather than unlearning


def plots(run: Run) -> dict[str, list[dict[str, object]]]:
    """Rows by file name; the column ``panel`` groups the lines, the column ``model`` distinguishes them."""
    placed = list(panels(run))
    trained = run.params.train.models if isinstance(run.params, Params) else {}
    return {
        "m_gen.json": [
            {"panel": panel, "model": model.name, **asdict(point)}
            for panel, model in placed
            for point in model.m_gen
        ],
        "per_question.json": [
            {"panel": panel, **row} for panel, model in placed for row in _questions(model.name, model.questions)
        ],
        "training_loss.json": [*_named(placed), *_losses(run, trained)],
    }


def _named(placed: Sequence[tuple[str, Model]]) -> Iterator[dict[str, object]]:
    """A row without a point for each model, in the order of the other plots."""
    for name in dict.fromkeys(model.name for _, model in placed):
        yield {"panel": TRAINED, "model": name, "step": None, "loss": None}


def _losses(run: Run, trained: Collection[str]) -> Iterator[dict[str, object]]:
    for name, steps in run.training.items():
        for row in steps:
            yield {
                "panel": TRAINED if name in trained else name,
                "model": name,
                "step": row["step"],
                "loss": row["loss"],
            }


def panels(run: Run) -> Iterator[tuple[str, Model]]:
    """Each panel with each of its models; without a model under test there is one panel of all models."""
    references = [model for model in run.models if model.role != "subject"]
    checkpoints = {model.path: Path(model.path).name for model in run.subjects}
    if len(set(checkpoints.values())) < len(checkpoints):  # two checkpoints with the same name
        checkpoints = {path: path for path in checkpoints}
    for path, panel in checkpoints.items():
        for model in [*references, *(model for model in run.subjects if model.path == path)]:
            yield panel, model
    if not checkpoints:
        yield from (("all models", model) for model in references)


def _questions(name: str, questions: Sequence[Question]) -> list[dict[str, object]]:
    """Bounds in descending order of M_bin, or of M_µ without a 0/1 score; ``place`` is the rank."""
    key = "m_bin" if any(row.value("m_bin") is not None for row in questions) else "m_mu"
    values = [(row.value("m_bin") if key == "m_bin" else row.value("m_mu"), row.prompt_id) for row in questions]
    known = sorted(((bound, prompt) for bound, prompt in values if bound is not None), key=lambda one: -one[0])
    return [
        {"model": name, "place": place, "prompt_id": prompt, "bound": bound, "metric": key}
        for place, (bound, prompt) in enumerate(known, start=1)
    ]
