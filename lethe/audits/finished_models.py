"""Finished models on disk, so that a killed game resumes, and one process per core to make them.

Each model is a folder under a scratch folder. The folder's name is the `lethe.io.cache.cache_key` of everything that
decides the model: the points, the recipe, the seed, the code. A folder moves to its place when it is complete, so every
folder of that name is a finished model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from lethe.process import cores, die_with_parent
from lethe.progress import progress

SCRATCH = Path(".lethe/scratch/game")
Runner = Callable[[Callable, Sequence[tuple], str], list]  # function, one tuple of arguments per call, label


def in_processes(function: Callable, arguments: Sequence[tuple], label: str, at_once: int | None = None) -> list:
    """Call a function with each tuple of arguments; return the results in the same order.

    ``at_once`` processes (None: one per core) share the calls. The first error ends all of them.
    """
    if min(at_once or cores(), len(arguments)) <= 1:
        return [function(*one) for one in progress(arguments, label, unit="tasks")]
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor, as_completed

    # Spawned, not forked: a forked child of a process that has used torch's threads can hang.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(at_once or cores(), mp_context=context, initializer=die_with_parent) as pool:
        try:
            futures = [pool.submit(function, *one) for one in arguments]
            for future in progress(as_completed(futures), label, unit="tasks", total=len(futures)):
                future.result()
            return [future.result() for future in futures]
        except BaseException:  # cancel the calls that have not started
            pool.shutdown(wait=False, cancel_futures=True)
            raise
