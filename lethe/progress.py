"""Progress of long work: a bar on a terminal, occasional lines elsewhere. Under `lethe run` each stage writes its progress
to LETHE_PROGRESS/STAGE.json, and the flow shows all stages together.
"""

import functools
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from lethe.io.files import write_json

FIRST_PAUSE, LONGEST_PAUSE = 10.0, 120.0  # seconds between two lines
Item = TypeVar("Item")
Show = Callable[[str], object]


def progress(items: Iterable[Item], label: str, unit: str, total: int | None = None) -> Iterator[Item]:
    """Yield ``items`` and show the number of finished items, the rate per second, and the remaining time."""
    if total is None and isinstance(items, Sequence):
        total = len(items)
    about = (label, unit, total)
    if folder := os.environ.get("LETHE_PROGRESS"):
        path = Path(folder) / f"{os.environ.get('DVC_STAGE', label)}.json"
        yield from _paced(items, about, 1.0, 1.0, lambda line: write_json(path, {"text": line}))
        return
    if not sys.stderr.isatty():
        show = functools.partial(print, file=sys.stderr, flush=True)
        yield from _paced(items, about, FIRST_PAUSE, LONGEST_PAUSE, show)
        return
    from rich.console import Console
    from rich.progress import MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    further = (MofNCompleteColumn(), TextColumn("{task.fields[rate]}"), TimeElapsedColumn())
    with Progress(*Progress.get_default_columns(), *further, console=Console(stderr=True)) as bar:
        task = bar.add_task(label, total=total, rate="")
        for item in items:
            yield item
            bar.advance(task)
            speed = bar.tasks[task].speed
            bar.update(task, rate=f"{speed:.1f} {unit}/s" if speed else "")


def _paced(
    items: Iterable[Item], about: tuple[str, str, int | None], pause: float, longest: float, show: Show
) -> Iterator[Item]:
    """Show a line after a pause, then at ever longer pauses up to ``longest``."""
    (label, unit, total), began = about, time.monotonic()
    shown = began
    for done, item in enumerate(items, start=1):
        yield item
        now = time.monotonic()
        if now - shown >= pause:
            rate = done / (now - began)
            form = ".1f" if rate >= 1 else ".2g"
            left = f", {(total - done) / rate:.0f} s left" if total else ""
            show(f"{label}: {done} of {total or '?'} {unit}, {rate:{form}}/s{left}")
            shown, pause = now, min(2 * pause, longest)
