"""Stages for which params.yaml asks nothing, `exact: null` and `extract: null`: this process writes their tables.

DVC records each as if its command had run, so that `dvc status` and `dvc repro` agree, but no process starts.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import io
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from flows import dvc_child, workspace
from lethe.config.schema import Params

if TYPE_CHECKING:
    from flows.workers import Workers

MAY_BE_NULL = ("exact", "extract")  # the groups of stages that a null section leaves without work
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
        group, _, name = stage.partition("@")
        printed = io.StringIO()
        with ALONE, dvc_child.opened(workspace.PARAMS_COPY) as repo, repo.lock:
            repo.scm_context.quiet = True
            recorded = repo.stage.load_one(name=stage)
            with contextlib.redirect_stdout(printed):
                importlib.import_module(f"stages.{group}").run(self.params, Path("data"), name)
            recorded.save()
            recorded.commit()
            recorded.dump(update_pipeline=False)
        for line in printed.getvalue().splitlines():
            say(stage, line)
        return workspace.Reproduced("ran")
