"""One unlearning game as a Prefect flow: split, learn, unlearn, attack, quality.

Each model and each method's attack is a task. The models of all pairs, halves, seeds and methods are trained in parallel,
one process per core. A killed flow keeps its finished models, and the next flow reuses them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any, cast

from prefect import flow, task
from prefect.artifacts import create_table_artifact
from prefect.cache_policies import NO_CACHE
from prefect.task_runners import ThreadPoolTaskRunner

from lethe.audits.finished_models import Runner, workers
from lethe.audits.protocol import AuditResult
from lethe.config.schema import GameParams
from lethe.process import cores
from lethe.steps import game as step

RUNNER: ThreadPoolTaskRunner[Any] = ThreadPoolTaskRunner(max_workers=cores())


@flow(name="game", task_runner=RUNNER, validate_parameters=False)  # type: ignore[arg-type]  # its own futures
def play(name: str, settings: GameParams) -> AuditResult:
    """Play the game ``settings`` (an entry of `lethe.config.schema.Params.games`) into data/games/NAME."""
    with workers() as pool:
        result = step.play(name, settings, run=_in_tasks(pool))
    step.write(name, result)
    methods = cast("Mapping[str, Mapping[str, object]]", result.headline.get("methods", {}))
    rows = [{"method": method, **row} for method, row in methods.items()]
    create_table_artifact(key="unlearning-quality", table=rows, description=f"Game {name}")
    return result


def _in_tasks(pool: ProcessPoolExecutor) -> Runner:
    """Return a runner of a game's work: one task per call, each executed by a process of the pool."""

    def run(function: Callable, arguments: Sequence[tuple], label: str) -> list:
        # Submitted here, not by the tasks: a worker process ends with the thread that started it.
        work = [pool.submit(function, *one) for one in arguments]

        @task(name=label, cache_policy=NO_CACHE, persist_result=False)
        def await_work(number: int) -> Any:
            return work[number].result()

        return [done.result() for done in [await_work.submit(number) for number in range(len(work))]]

    return run
