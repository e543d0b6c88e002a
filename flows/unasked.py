"""Stages for which params.yaml asks nothing (`exact`, `extract` or `twins` is null): this process writes their tables.

DVC records each as if its command had run, so that `dvc status` and `dvc repro` agree, but no process starts.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import io
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from flows import dvc_child, workspace
from lethe.config.schema import Params
from lethe.errors import LetheError

if TYPE_CHECKING:
    from flows.workers import Workers

# The groups of stages that a null section leaves without work.
MAY_BE_NULL = ("exact", "extract", "twins")
ALONE = threading.Lock()  # standard output and DVC's files are those of the whole process


@dataclasses.dataclass(frozen=True)
class Asked:
    """Brings stages up to date: those with work by ``others``, the others in this process."""

    others: workspace.Processes | Workers
    params: Params

    @property
    def stopped(self) -> bool:
        return self.others.stopped

    def reproduce(self, stage: str, say: Callable[[str, str], None]) -> workspace.Reproduced:
        """Bring one stage up to date; ``say(stage, line)`` gets each line that the stage prints."""
        group = stage.partition("@")[0]
        if group in MAY_BE_NULL and getattr(self.params, group) is None:
            return self._write(stage, say)
        return self.others.reproduce(stage, say)

    def _write(self, stage: str, say: Callable[[str, str], None]) -> workspace.Reproduced:
        from dvc.exceptions import DvcException

        if self.stopped:
            return workspace.Reproduced("stopped")
        try:
            lines = dvc_child.once_free(lambda: self._written(stage), lambda: self.stopped)
        except (LetheError, DvcException, OSError) as error:
            if self.stopped:
                return workspace.Reproduced("stopped")
            return workspace.Reproduced("failed", 1, " ".join(str(error).split()))
        for line in lines:
            say(stage, line)
        return workspace.Reproduced("ran")

    def _written(self, stage: str) -> list[str]:
        """Write and record one stage; return what it printed."""
        group, _, name = stage.partition("@")
        with ALONE, dvc_child.opened(workspace.PARAMS_COPY, wait=False) as repo, repo.lock:
            repo.scm_context.quiet = True
            recorded = repo.stage.load_one(name=stage)
            printed = _OfThisThread(sys.stdout)
            with contextlib.redirect_stdout(printed):
                importlib.import_module(f"stages.{group}").run(self.params, Path("data"), name)
            recorded.save()
            recorded.commit()
            recorded.dump(update_pipeline=False)
        return printed.kept.getvalue().splitlines()


class _OfThisThread(io.TextIOBase):
    """Takes the place of standard output: ``kept`` is what this thread writes, and what others write is passed on."""

    def __init__(self, others: TextIO):
        self.kept = io.StringIO()
        self._others = others
        self._thread = threading.get_ident()

    def write(self, text: str) -> int:
        if threading.get_ident() == self._thread:
            return self.kept.write(text)
        return self._others.write(text)

    def flush(self) -> None:
        self._others.flush()

    def isatty(self) -> bool:
        return self._others.isatty()
