"""`lethe study tofu-table-1`: goes through the steps, skips those that are done, and commits nothing itself."""

from collections.abc import Callable, Mapping
from functools import partial

from lethe.io.files import Json
from lethe.progress import tell
from studies.steps import Steps
from studies.steps import read_outcomes as of_steps
from studies.tofu_table.design import Design, Step, steps
from studies.tofu_table.work import Place, Work

NAME = "tofu-table-1"


def run(
    design: Design,
    place: Place,
    keep: bool,
    limit: int | None = None,
    said: Callable[[str], None] = tell,
) -> list[str]:
    """Do the steps that have no outcome yet, at most ``limit`` of them, and return their names."""

    def seeds(step: Step) -> list[int]:
        params = design.params(step.forget or design.forget_sets[0])
        return [params.train.recipe.seed, params.unlearn.recipe.seed, params.sample.seed]

    study = Steps(
        NAME,
        listed=partial(steps, design),
        seeds=seeds,
        work=lambda step, outcomes: Work(design, place, outcomes).do(step),
    )
    return study.run(keep, limit, said)


def read_outcomes(keep: bool) -> dict[str, Mapping[str, Json]]:
    """The values of the steps that are done, by their names."""
    return of_steps(NAME, keep)
