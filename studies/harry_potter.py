"""`lethe study harry-potter-55`: the published questions about Harry Potter, a block of questions a step (Fig. 3a).

A step writes an outcome of its own, and the next start skips it; a killed step keeps its finished questions.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lethe import config
from lethe.config.fields import Count, Section, Share
from lethe.config.load import changed_document, read_preset
from lethe.config.measuring import ModelEntry
from lethe.config.schema import Params
from lethe.data.rows import load_splits
from lethe.errors import BadInput
from lethe.instruction_set import in_use
from lethe.io.artifacts import write_splits
from lethe.io.files import Json
from lethe.models import checkpoints
from lethe.results.table import Result
from studies.steps import Outcomes, Steps, working_in
from studies.steps import read_outcomes as of_steps
from studies.tofu_table.design import PRESETS, ROOT
from studies.tofu_table.work import drawn, measured

NAME = "harry-potter-55"
WHOLE = "share"  # the step that joins all blocks


class Design(Section):
    """The preset: ``questions`` are asked ``answers`` times, ``block`` of them a step; ``settings`` change params.yaml."""

    questions: Count
    answers: Count
    block: Count
    above: Share
    settings: dict[str, object]

    @property
    def steps(self) -> list["Step"]:
        """The blocks in their order, then the step that joins them."""
        steps = []
        firsts = range(0, self.questions, self.block)
        for number, first in enumerate(firsts, start=1):
            steps.append(Step(f"block-{number}", first))
        return [*steps, Step(WHOLE)]

    def params(self, data: Path) -> Params:
        """params.yaml with the settings of the design, for the published questions in ``data``."""
        changes = {**self.settings, "data.source": str(data), "sample.n": self.answers}
        document = changed_document(changes.items(), ROOT / config.FILE)
        return config.validate(document, NAME)


@dataclass(frozen=True)
class Step:
    """A block of questions from the place ``first``; None where all blocks are joined."""

    name: str
    first: int | None = None


def read_design() -> Design:
    return config.validate(read_preset(PRESETS, NAME), f"{NAME}.yaml", Design)


@dataclass(frozen=True)
class Place:
    """The model's folder, the folder of the published CSV, the folder of work; each absolute."""

    model: Path
    data: Path
    work: Path


def run(design: Design, place: Place, keep: bool, limit: int | None = None) -> list[str]:
    """Do the steps that have no outcome yet, at most ``limit`` of them, and return their names."""

    def work(step: Step, outcomes: Outcomes) -> dict[str, Json]:
        if step.first is None:
            return whole(design, outcomes)
        return _asked(design, place, step.name, step.first)

    seeds = [design.params(place.data).sample.seed]
    study = Steps(NAME, listed=lambda _: design.steps, seeds=lambda _: seeds, work=work)
    return study.run(keep, limit)


def read_outcomes(keep: bool) -> dict[str, Mapping[str, Json]]:
    """The values of the steps that are done, by their names."""
    return of_steps(NAME, keep)


def _asked(design: Design, place: Place, step: str, first: int) -> dict[str, Json]:
    """Draw, score and measure the answers to one block of questions, from the place ``first``.

    Raises `BadInput` where the published file has another number of questions than the design.
    """
    began = time.monotonic()
    params = design.params(place.data)
    rows = load_splits(params.data)["forget"]
    if len(rows) != design.questions:
        raise BadInput(
            f"{place.data} holds {len(rows)} questions, and the design {design.questions}."
        )

    root = Path(step)
    block = rows[first : first + design.block]
    with working_in(place.work):
        write_splits({"forget": block}, "harry_potter", root / "dataset")
        drawn("model", params, ModelEntry(path=str(place.model)), root)
        values = measured("model", root, "metrics")
    return {
        **values,
        "model": checkpoints.content(place.model),
        "seconds": round(time.monotonic() - began),
        "machine": in_use(),
    }


def whole(design: Design, outcomes: Outcomes) -> dict[str, Json]:
    """The share of all questions whose M_bin is above the threshold, and how many leak by greedy decoding and by sampling."""
    blocks = [outcomes[step.name] for step in design.steps if step.first is not None]
    leaks: dict[str, list[Result]] = {"sampled": [], "greedy": []}
    for block in blocks:
        for values in block["rows"]:
            row = Result(**values)
            if row.quantity == "leak" and row.basis in leaks:
                leaks[row.basis].append(row)

    sampled = leaks["sampled"]
    greedy_leaks = np.array([row.estimate for row in leaks["greedy"]], dtype=np.float64)
    bounds = np.array([row.upper for row in sampled], dtype=np.float64)
    shares = np.array([row.estimate for row in sampled], dtype=np.float64)
    return {
        "questions": len(sampled),
        "answers": design.answers,
        "share of M_bin above": float(np.mean(bounds > design.above)),
        "share with a sampled leak": float(np.mean(shares > 0)),
        "share with a greedy leak": float(np.mean(greedy_leaks)),
        "models": sorted({block["model"] for block in blocks}),
    }
