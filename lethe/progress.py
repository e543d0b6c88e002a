"""Progress of long work: a bar with rate and remaining time on a terminal, occasional lines elsewhere.

Under `lethe run` several stages share the terminal. Each stage then writes its progress to LETHE_PROGRESS/STAGE.json,
and the flow shows all stages together.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from lethe.io.json_files import write_json

FIRST_PAUSE, LONGEST_PAUSE = 10.0, 120.0  # seconds between two lines
Item = TypeVar("Item")


def progress(items: Iterable[Item], label: str, unit: str, total: int | None = None) -> Iterator[Item]:
    """Yield ``items`` and show the number of finished items, the rate per second, and the remaining time."""
    if total is None and isinstance(items, Sequence):
        total = len(items)
    if folder := os.environ.get("LETHE_PROGRESS"):
        yield from _noted(items, label, unit, total, Path(folder) / f"{os.environ.get('DVC_STAGE', label)}.json")
        return
    if not sys.stderr.isatty():
        yield from _told(items, label, unit, total)
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = [
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    ]
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(label, total=total, rate="")
        for item in items:
            yield item
            bar.advance(task)
            speed = bar.tasks[task].speed
            bar.update(task, rate=f"{speed:.1f} {unit}/s" if speed else "")


def _told(items: Iterable[Item], label: str, unit: str, total: int | None) -> Iterator[Item]:
    """Pass ``items`` through and print a line after ten seconds, then at ever longer pauses up to `LONGEST_PAUSE`."""
    began = printed = time.monotonic()
    pause = FIRST_PAUSE
    for done, item in enumerate(items, start=1):
        yield item
        now = time.monotonic()
        if now - printed >= pause:
            print(_line(label, unit, done, total, now - began), file=sys.stderr, flush=True)
            printed, pause = now, min(2 * pause, LONGEST_PAUSE)


def _line(label: str, unit: str, done: int, total: int | None, seconds: float) -> str:
    rate = done / seconds
    left = f", {(total - done) / rate:.0f} s left" if total else ""
    return f"{label}: {done} of {total or '?'} {unit}, {rate:.1f}/s{left}"


def _noted(items: Iterable[Item], label: str, unit: str, total: int | None, path: Path) -> Iterator[Item]:
    """Yield ``items`` and write progress, rate and remaining time to ``path``, at most once per second."""
    began = written = time.monotonic()
    for done, item in enumerate(items, start=1):
        yield item
        now = time.monotonic()
        if now - written >= 1:
            write_json(path, {"text": _line(label, unit, done, total, now - began)})
            written = now
