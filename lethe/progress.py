"""Progress of long work: one line that changes on a terminal, occasional lines elsewhere. Under `lethe run` each stage writes
its progress to LETHE_PROGRESS/STAGE.json, and the flow shows all stages together. `tell` says beforehand what work takes.
"""

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from lethe.errors import visible
from lethe.io.files import write_json

FIRST_PAUSE, LONGEST_PAUSE = 10.0, 120.0  # seconds between two lines
AT_TERMINAL = 0.25  # seconds between two states of the line of a terminal
GOALS_SHOWN = 8  # on a terminal: those that are farthest from their goal
if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
Item = TypeVar("Item")
Show = Callable[[str], object]


def duration(seconds: float) -> str:
    """Return seconds in words: hours or minutes from one and a half on, else whole seconds, at least 1."""
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
    items: Iterable[Item],
    label: str,
    unit: str,
    total: int | None = None,
    at_once: int = 1,
) -> Iterator[Item]:
    """Yield ``items`` and show the number of finished items, the rate per second, and the remaining time, which is first
    known when the items that run ``at_once`` have ended."""
    if total is None and isinstance(items, Sequence):
        total = len(items)
    about = (label, unit, total, at_once)
    path = _file_of_stage(label)
    if path is not None:
        yield from _paced(items, about, 1.0, 1.0, lambda line: write_json(path, {"text": line}))
        return
    if not sys.stderr.isatty():
        yield from _paced(items, about, FIRST_PAUSE, LONGEST_PAUSE, tell)
        return
    from rich.text import Text

    with _console().status(Text(label)) as status:
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
            shown = now
            pause = min(2 * pause, longest)


def _file_of_stage(label: str) -> Path | None:
    """The file in which a flow reads this stage's progress; None without a flow."""
    folder = os.environ.get("LETHE_PROGRESS")
    if not folder:
        return None
    return Path(folder) / f"{os.environ.get('DVC_STAGE', label)}.json"


@cache
def _console() -> "Console":
    """The console of standard error, the same for all lines: they then stand below each other."""
    from rich.console import Console

    return Console(stderr=True)


@dataclass(frozen=True)
class Goal:
    """How much of what it needs a piece of work has, as a ``share`` in [0, 1], and a ``note`` on it."""

    name: str
    share: float
    note: str


@contextlib.contextmanager
def goals(label: str) -> Iterator[Callable[[Sequence[Goal], str], None]]:
    """Give a function that shows, whenever it is called, a sentence and a bar for each goal that is farthest from its end.

    A flow gets the sentence. Nothing is shown where standard error is no terminal.
    """
    path = _file_of_stage(label)
    if path is not None:
        yield lambda _, sentence: write_json(path, {"text": f"{label}: {sentence}"})
        return
    if not sys.stderr.isatty():
        yield lambda _, sentence: None
        return
    from rich.console import Group
    from rich.live import Live
    from rich.text import Text

    with Live(Text(label), console=_console(), transient=True) as live:

        def show(reached: Sequence[Goal], sentence: str) -> None:
            head = Text(visible(f"{label}: {sentence}"))
            live.update(Group(head, _bars(reached)), refresh=True)

        yield show


def _bars(reached: Sequence[Goal]) -> "Table":
    """A line for each of the farthest goals: its name, a bar, its note."""
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    bars = Table.grid(padding=(0, 1))
    farthest = sorted(reached, key=lambda goal: goal.share)
    for goal in farthest[:GOALS_SHOWN]:
        bar = ProgressBar(total=1.0, completed=goal.share, width=30)
        bars.add_row(Text(visible(goal.name)), bar, Text(visible(goal.note)))
    return bars
