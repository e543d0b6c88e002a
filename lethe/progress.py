"""Progress of long work: one line that changes on a terminal, occasional lines elsewhere. Under `lethe run` each stage writes
its progress to LETHE_PROGRESS/STAGE.json, and the flow shows all stages together. `tell` says beforehand what work takes.
"""

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from lethe.errors import visible
from lethe.io.files import write_json

FIRST_PAUSE, LONGEST_PAUSE = 10.0, 120.0  # seconds between two lines
AT_TERMINAL = 0.25  # seconds between two states of the line of a terminal
Item = TypeVar("Item")
Show = Callable[[str], object]


def duration(seconds: float) -> str:
    for size, unit in ((3600, "h"), (60, "min")):
        if seconds >= 1.5 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{max(1, round(seconds))} s"


def memory_used() -> int:
    """The most bytes that this process has used: of the GPU where there is one, otherwise of the machine."""
    torch = sys.modules.get("torch")
    if torch and torch.cuda.is_available():
        return torch.cuda.max_memory_allocated()
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def tell(sentence: str) -> None:
    """Say on standard error what work will take, or what a user should know of it, before it starts."""
    print(visible(sentence), file=sys.stderr)


def progress(
    items: Iterable[Item], label: str, unit: str, total: int | None = None, at_once: int = 1
) -> Iterator[Item]:
    """Yield ``items`` and show the number of finished items, the rate per second, and the remaining time, which is first
    known when the items that run ``at_once`` have ended."""
    if total is None and isinstance(items, Sequence):
        total = len(items)
    about = (label, unit, total, at_once)
    if folder := os.environ.get("LETHE_PROGRESS"):
        path = Path(folder) / f"{os.environ.get('DVC_STAGE', label)}.json"
        yield from _paced(items, about, 1.0, 1.0, lambda line: write_json(path, {"text": line}))
        return
    if not sys.stderr.isatty():
        yield from _paced(items, about, FIRST_PAUSE, LONGEST_PAUSE, tell)
        return
    from rich.console import Console
    from rich.text import Text

    with Console(stderr=True).status(Text(label)) as status:
        yield from _paced(
            items, about, AT_TERMINAL, AT_TERMINAL, lambda line: status.update(Text(visible(line)))
        )


def _paced(
    items: Iterable[Item],
    about: tuple[str, str, int | None, int],
    pause: float,
    longest: float,
    show: Show,
) -> Iterator[Item]:
    """Show a line after a pause, then at ever longer pauses up to ``longest``."""
    (label, unit, total, at_once), began = about, time.monotonic()
    shown = began
    for done, item in enumerate(items, start=1):
        yield item
        now = time.monotonic()
        if now - shown >= pause and done >= at_once:
            rate = done / (now - began)
            form = ".1f" if rate >= 1 else ".2g"
            left = f", {duration((total - done) / rate)} left" if total and done < total else ""
            show(f"{label}: {done} of {total or '?'} {unit}, {rate:{form}}/s{left}")
            shown, pause = now, min(2 * pause, longest)
