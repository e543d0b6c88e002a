"""The speed and memory of a model's answers as a pilot measures them, for `lethe plan --preset`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lethe.config import Params
from lethe.config.measuring import ModelEntry
from lethe.data.rows import load_splits
from lethe.errors import BadInput, LetheError
from lethe.io.artifacts import Row
from lethe.models.checkpoints import prepare_torch
from lethe.sampling import tasks
from lethe.sampling.engine import Options, open_engine
from lethe.sampling.forecast import forecast
from lethe.steps.costs import size_of


@dataclass(frozen=True)
class Pilot:
    """``seconds`` per answer to a forget question at most, and the memory in ``bytes`` of this process with its rows."""

    seconds: float
    bytes: int


def pilots(params: Params) -> dict[str, Pilot]:
    """A pilot of each model whose folder is here, by the path of its entry; of a served or damaged one there is none.

    A pilot draws and discards 80 answers to the middle question. Little work, and vLLM, have none, as in `forecast`.
    """
    try:
        forget = load_splits(params.data)["forget"]
    except BadInput:
        return {}
    found: dict[str, Pilot] = {}
    for model in params.models.values():
        if model.served or model.path in found or not Path(model.path).is_dir():
            continue
        try:
            pilot = _pilot(params, model, {"forget": forget})
        except LetheError:  # the run says what is wrong with it
            continue
        if pilot is not None:
            found[model.path] = pilot
    return found


def _pilot(params: Params, model: ModelEntry, rows: Mapping[str, list[Row]]) -> Pilot | None:
    source = Path(model.path)
    if size_of(source) is None:
        return None
    sample = params.sample.model_copy(update={"n": params.sample.most})
    (task,) = tasks.tasks(source, rows, sample, model)
    prepare_torch()
    options = Options.from_params(sample, adaptive=model.adaptive_threshold is not None)
    expected = forecast(open_engine(sample.engine, source, options), [task], ())
    if expected is None:
        return None
    answers = len(task.prompts) * (task.settings.n + task.settings.greedy)
    return Pilot(expected.seconds / answers, expected.memory)
