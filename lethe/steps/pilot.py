"""The speed and memory of a model's answers as a pilot measures them, for `lethe plan --preset`.

Each pilot has a process of its own, `python -m lethe.steps.pilot`: the memory is that of one model, and a model for which
the machine is too small ends its own process alone.
"""

import json
import pickle
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from lethe.config import Params
from lethe.config.measuring import ModelEntry
from lethe.data.rows import load_splits
from lethe.errors import BadInput
from lethe.models.checkpoints import prepare_torch
from lethe.sampling import tasks
from lethe.sampling.engine import Options, open_engine
from lethe.sampling.forecast import forecast
from lethe.steps.costs import size_of


@dataclass(frozen=True)
class Pilot:
    """The seconds of an answer and, beyond its answers, of a question at most; and the memory in ``bytes`` of a process with
    this model and its rows, without the Retrains that stage `sample` opens beside it."""

    per_answer: float
    per_question: float
    bytes: int

    def seconds(self, answers: int, questions: int) -> float:
        return self.per_answer * answers + self.per_question * questions


def pilots(params: Params) -> dict[str, Pilot]:
    """A pilot of each model whose folder is here, by the path of its entry; of a served or damaged one there is none.

    A pilot draws and discards 80 answers to the middle question. Little work, and vLLM, have none, as in `forecast`.
    """
    try:
        load_splits(params.data)
    except BadInput:
        return {}
    found: dict[str, Pilot] = {}
    for model in params.models.values():
        if model.served or model.path in found or size_of(Path(model.path)) is None:
            continue
        pilot = _in_a_process(params, model)
        if pilot is not None:
            found[model.path] = pilot
    return found


def _in_a_process(params: Params, model: ModelEntry) -> Pilot | None:
    """The pilot of a model; None where its process fails: the run says what is wrong with the model."""
    command = [sys.executable, "-m", "lethe.steps.pilot"]
    done = subprocess.run(command, input=pickle.dumps((params, model)), capture_output=True)
    if done.returncode != 0:
        return None
    measured = json.loads(done.stdout.splitlines()[-1])
    return None if measured is None else Pilot(**measured)


def _pilot(params: Params, model: ModelEntry) -> Pilot | None:
    source = Path(model.path)
    rows = {"forget": load_splits(params.data)["forget"]}
    sample = params.sample.model_copy(update={"n": params.sample.most})
    work = tasks.tasks(source, rows, sample, model)
    prepare_torch()
    options = Options.from_params(sample, adaptive=model.adaptive_threshold is not None)
    expected = forecast(open_engine(sample.engine, source, options), work, ())
    if expected is None:
        return None
    return Pilot(expected.per_answer, expected.per_question, expected.memory)


def main() -> None:
    """Run the pilot that the process above describes, and print what it measured as JSON."""
    params, model = pickle.load(sys.stdin.buffer)  # of the process that started this one
    measured = _pilot(params, model)
    print(json.dumps(None if measured is None else asdict(measured)))


if __name__ == "__main__":
    main()
