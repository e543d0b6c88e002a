"""`lethe serve`: run the pipeline on a schedule."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flows.options import PullFlag, PushFlag, Scheduler


def command(
    cron: Annotated[str, typer.Option(help="The times in cron's form: minute hour day month weekday.")],
    jobs: Annotated[int | None, typer.Option(min=1, help="Stages run at once, as for `lethe run`.")] = None,
    pull: PullFlag = False,
    push: PushFlag = False,
    scheduler: Scheduler = None,
) -> None:
    """Run the pipeline on a schedule until Ctrl-C, one run at a time, and print after each run what changed.

    Times are local. A run without changes takes seconds.

    Example: `lethe serve --cron "0 3 * * *"`
    """
    from flows import inputs, remote, workspace
    from flows.server import temporary_server
    from lethe import config

    root = Path.cwd()
    workspace.prepare(root)
    inputs.check(config.load(), root)
    if pull or push:
        remote.require(root)
    with workspace.only_schedule(root), temporary_server(root, schedules=True):
        from flows import schedule

        schedule.serve(schedule.parse(cron), {"jobs": jobs, "pull": pull, "push": push, "scheduler": scheduler})
