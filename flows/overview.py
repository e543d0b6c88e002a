"""Progress of a pipeline for people: a line for each start and end of a stage, and on a terminal the running stages."""

from __future__ import annotations

import contextlib
import json
import time
from pathlib import Path

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from lethe.errors import plural, visible


def standard() -> Console:
    """Return the console for progress: standard error, without markup; standard output is for results."""
    return Console(stderr=True, soft_wrap=True, highlight=False, markup=False)


class Overview:
    """Plain lines in the order of events; on a terminal, the running stages with their progress below the lines."""

    def __init__(self, total: int, notes: Path, console: Console):
        self.console = console
        self.total = total
        self.done = 0
        self.running: dict[str, float] = {}  # stage -> when it started
        self.began = time.monotonic()
        self.notes = notes  # the folder of the stages' progress

    def live(self) -> contextlib.AbstractContextManager[object]:
        if not self.console.is_terminal:
            return contextlib.nullcontext()
        return Live(
            get_renderable=self._lines, console=self.console, refresh_per_second=4, transient=True
        )

    def tell(self, sentence: str) -> None:
        if sentence:
            self.console.print(Text(visible(sentence)))

    def say(self, stage: str, line: str) -> None:
        self.tell(f"  {stage} | {line}")

    def passed(self, stage: str, end: str) -> None:
        """Show that a stage need not run, and why."""
        self.done += 1
        if end not in ("clean", "not started"):
            self.tell(f"{stage} {end}")

    def started(self, stage: str, stale: list[str]) -> None:
        """Show that a stage runs, and what changed about it."""
        self._note(stage).unlink(missing_ok=True)  # of an earlier run
        self.running[stage] = time.monotonic()
        why = "; ".join(stale[:3])
        if len(stale) > 3:
            why += f" and {len(stale) - 3} more"
        self.tell(f"{stage} starts ({why or 'what it reads changed'})")

    def ended(self, stage: str, end: str) -> float:
        seconds = time.monotonic() - self.running.pop(stage)
        self.done += 1
        self.tell(f"{stage} {end} after {seconds:.1f} s ({self.done} of {self.total})")
        return seconds

    def _lines(self) -> Group:
        now = time.monotonic()
        lines = []
        for stage, since in self.running.items():
            lines.append(Text(f"{stage} {_clock(now - since)} {self._progress(stage)}"))
        whole = f"{self.done} of {plural(self.total, 'stage')}, {_clock(now - self.began)}"
        return Group(*lines, Text(whole, style="bold"))

    def _progress(self, stage: str) -> str:
        try:
            return json.loads(self._note(stage).read_text())["text"]
        except OSError:
            return ""

    def _note(self, stage: str) -> Path:
        return self.notes / f"{stage}.json"


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
