"""Progress of long work: a bar with a rate and an estimate on a terminal, nothing elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

Item = TypeVar("Item")


def progress(items: Iterable[Item], label: str, unit: str, total: int | None = None) -> Iterator[Item]:
    """Pass ``items`` through, showing how many of ``total`` are done, how many a second, and how long it will take."""
    if not sys.stderr.isatty():
        yield from items
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

    if total is None and isinstance(items, Sequence):
        total = len(items)
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
