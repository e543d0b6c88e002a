"""`lethe study tofu-table-1`: goes through the steps, skips those that are done, and commits nothing itself."""

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from lethe.progress import tell
from studies import outcome
from studies.tofu_table.design import Design, Outcomes, Step, steps
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
    done: list[str] = []
    outcomes = read_outcomes(keep)
    while limit is None or len(done) < limit:
        step = next_step(design, outcomes)
        if step is None:
            break
        said(f"{NAME}: {step.name}")
        study = _study(design, step, keep)
        values = Work(design, place, outcomes).do(step)
        study.finish(values)
        done.append(step.name)
        outcomes = read_outcomes(keep)
    return done


def next_step(design: Design, outcomes: Outcomes) -> Step | None:
    """The first step without an outcome; None when all are done."""
    for step in steps(design, outcomes):
        if step.name not in outcomes:
            return step
    return None


def read_outcomes(keep: bool) -> dict[str, outcome.Json]:
    """The values of the steps that are done, by their names."""
    folder: Path = (outcome.FOLDER if keep else outcome.ELSEWHERE.absolute()) / NAME
    return {path.stem: outcome.read(path)["values"] for path in sorted(folder.glob("*.json"))}


def _study(design: Design, step: Step, keep: bool) -> outcome.Study:
    params = design.params(step.forget or design.forget_sets[0])
    seeds = [params.train.recipe.seed, params.unlearn.recipe.seed, params.sample.seed]
    settings = {"preset": NAME, **asdict(step)}
    return outcome.Study(f"{NAME}/{step.name}", f"lethe study {NAME}", seeds, settings, keep)
