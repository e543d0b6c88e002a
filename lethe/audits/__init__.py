"""The result of every audit and game: the stage writes it, MLflow and the report show it.

Finished models stay on disk, so that a killed game resumes. Each is a folder under a scratch
folder, whose name is the `lethe.identity.cache_key` of everything that decides the model: the
points, the recipe, the seed, the code. A folder moves to its place when it is complete, so every
folder of that name is a finished model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from lethe.io.files import flat_numbers
from lethe.process import cores, die_with_parent
from lethe.progress import progress, tell
from lethe.results import table
from lethe.statistics.bound import Bound

if TYPE_CHECKING:
    import pandas as pd


Headline = Mapping[str, object]


@dataclass(frozen=True)
class AuditResult:
    """The result of one entry of ``audits`` or ``games``. ``headline`` holds the plain values that
    `dvc metrics` and MLflow show; a game adds one table of plain values per method. ``details`` are
    for the report's section. Each of ``tables`` becomes one Parquet file in the entry's folder.
    ``sentences`` are the lines that the stage prints. ``bounds`` are those of the headline by their
    dotted keys.
    """

    headline: Headline
    details: Mapping[str, object] = field(default_factory=dict)
    tables: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    sentences: tuple[str, ...] = ()
    bounds: Mapping[str, Bound] = field(default_factory=dict)


def write_rows(stage: str, name: str, result: AuditResult, root: Path) -> None:
    """Write the table of an audit or game: every number of its headline and details by dotted key,
    and the record whole.
    """
    rows = table.Rows(name)
    numbers = flat_numbers(result.headline)
    for key, value in flat_numbers(result.details).items():
        numbers.setdefault(key, value)
    keys = dict.fromkeys((*numbers, *result.bounds))  # an infinite bound is no finite number
    for key in keys:
        bound = result.bounds.get(key)
        if bound is None:
            rows.add("audit", "number", "run", numbers[key], item=key)
        elif bound.side == "lower":
            rows.add("audit", "number", "run", lower=bound, item=key)
        else:
            rows.add("audit", "number", "run", upper=bound, item=key)
    record = dict(result.headline)
    if stage != "game":
        record |= result.details
    rows.add("audit", "record", "run", evidence=record)
    table.write(table.place(root, stage, name), rows.rows)


SCRATCH = Path(".lethe/scratch/game")
# Of a function, one tuple of arguments per call, and a label.
Runner = Callable[[Callable, Sequence[tuple], str], list]


def in_processes(
    function: Callable, arguments: Sequence[tuple], label: str, at_once: int | None = None
) -> list:
    """Call a function with each tuple of arguments, in ``at_once`` processes (None: one per core);
    return the results in the same order. The first error ends all calls.
    """
    at_once = min(at_once or cores(), len(arguments))
    if len(arguments) > 1:
        tell(
            f"{label}: {len(arguments)} tasks, {at_once} at once; the first that end tell the time."
        )
    if at_once <= 1:
        return [function(*values) for values in progress(arguments, label, unit="tasks")]
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor, as_completed

    # Spawned, not forked: a forked child of a process that has used torch's threads can hang.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(at_once, mp_context=context, initializer=die_with_parent) as pool:
        try:
            futures = [pool.submit(function, *values) for values in arguments]
            for future in progress(as_completed(futures), label, "tasks", len(futures), at_once):
                future.result()
            return [future.result() for future in futures]
        except BaseException:  # cancel the calls that have not started
            pool.shutdown(wait=False, cancel_futures=True)
            raise
