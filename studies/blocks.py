"""A study that asks a model published questions, a block of them a step.

A step writes an outcome of its own, and the next start skips it; a killed step keeps its finished questions.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from lethe import config
from lethe.config.fields import Count, Section, Share
from lethe.config.load import changed_document, read_preset
from lethe.config.measuring import ModelEntry
from lethe.config.schema import Params
from lethe.errors import BadInput
from lethe.io.artifacts import Row, write_splits
from lethe.io.files import Json
from lethe.models import checkpoints
from lethe.results.table import Result
from studies.steps import Clock, Outcomes, Steps, working_in
from studies.tofu_table.design import PRESETS, ROOT
from studies.tofu_table.work import drawn, measured


class Design(Section):
    """The preset: ``questions`` are asked ``answers`` times, ``block`` of them a step; ``settings`` change params.yaml.

    A question's M_bin is counted where it is ``above``.
    """

    questions: Count
    answers: Count
    block: Count
    above: Share
    settings: dict[str, object]

    def params(self, data: Path) -> Params:
        """params.yaml with the settings of the design, for the published questions in ``data``."""
        changes = {**self.settings, "data.source": str(data), "sample.n": self.answers}
        document = changed_document(changes.items(), ROOT / config.FILE)
        return config.validate(document, "the design of the study")


@dataclass(frozen=True)
class Step:
    """A block of questions from the place ``first``; None where a step asks nothing."""

    name: str
    first: int | None = None


@dataclass(frozen=True)
class Place:
    """The model's folder, the folder of the published CSV, the folder of work; each absolute."""

    model: Path
    data: Path
    work: Path


Work = Callable[[Design, Place, Outcomes], dict[str, Json]]


@dataclass(frozen=True)
class BlockStudy:
    """A study and its questions.

    ``questions`` returns the rows of the published file. ``before`` and ``after`` are the steps around the blocks, which ask
    nothing, by their names.
    """

    name: str
    questions: Callable[[Params], list[Row]]
    after: Mapping[str, Work]
    before: Mapping[str, Work] = field(default_factory=dict)

    def read_design(self) -> Design:
        return config.validate(read_preset(PRESETS, self.name), f"{self.name}.yaml", Design)

    def steps(self, design: Design) -> list[Step]:
        """All steps in their order."""
        steps = [Step(name) for name in self.before]
        firsts = range(0, design.questions, design.block)
        for number, first in enumerate(firsts, start=1):
            steps.append(Step(f"block-{number}", first))
        return steps + [Step(name) for name in self.after]

    def run(self, design: Design, place: Place, keep: bool, limit: int | None = None) -> list[str]:
        """Do the steps that have no outcome yet, at most ``limit`` of them, and return their names."""
        around = {**self.before, **self.after}

        def work(step: Step, outcomes: Outcomes) -> dict[str, Json]:
            if step.first is None:
                return around[step.name](design, place, outcomes)
            return self._asked(design, place, step.name, step.first)

        seeds = [design.params(place.data).sample.seed]
        steps = self.steps(design)
        return Steps(self.name, lambda _: steps, lambda _: seeds, work).run(keep, limit)

    def _asked(self, design: Design, place: Place, step: str, first: int) -> dict[str, Json]:
        """Draw, score and measure the answers to one block of questions, from the place ``first``.

        Raises `BadInput` where the published file has another number of questions than the design.
        """
        clock = Clock()
        params = design.params(place.data)
        rows = self.questions(params)
        if len(rows) != design.questions:
            raise BadInput(
                f"{place.data} holds {len(rows)} questions, and the design {design.questions}."
            )

        root = Path(step)
        block = rows[first : first + design.block]
        with working_in(place.work):
            write_splits({"forget": block}, params.data.kind, root / "dataset")
            drawn("model", params, ModelEntry(path=str(place.model)), root)
            values = measured("model", root, "metrics")
        return {**values, "model": checkpoints.content(place.model), **clock.cost()}


@dataclass(frozen=True)
class Leaks:
    """Of the questions of all blocks, (m,): whether the greedy answer leaks, and the row of the sampled answers."""

    greedy: np.ndarray
    sampled: list[Result]

    @classmethod
    def of(cls, outcomes: Outcomes) -> "Leaks":
        greedy: dict[str | None, float | None] = {}
        sampled: list[Result] = []
        for values in outcomes.values():
            for fields in values.get("rows", ()):
                row = Result(**fields)
                if row.quantity == "leak" and row.basis == "greedy":
                    greedy[row.item] = row.estimate
                if row.quantity == "leak" and row.basis == "sampled":
                    sampled.append(row)
        return cls(np.array([greedy[row.item] for row in sampled], dtype=np.float64), sampled)

    def is_above(self, threshold: float) -> np.ndarray:
        """(m,) whether a question's M_bin is above a threshold."""
        bounds = np.array([row.upper for row in self.sampled], dtype=np.float64)
        return bounds > threshold


def shares(design: Design, outcomes: Outcomes) -> dict[str, Json]:
    """The share of all questions whose M_bin is above the threshold, and how many leak by greedy decoding and by sampling."""
    leaks = Leaks.of(outcomes)
    estimates = np.array([row.estimate for row in leaks.sampled], dtype=np.float64)
    return {
        "questions": len(leaks.sampled),
        "answers": design.answers,
        "share of M_bin above": float(np.mean(leaks.is_above(design.above))),
        "share with a sampled leak": float(np.mean(estimates > 0)),
        "share with a greedy leak": float(np.mean(leaks.greedy)),
        "models": sorted({values["model"] for values in outcomes.values() if "model" in values}),
    }
