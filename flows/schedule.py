"""The pipeline on a schedule, in Prefect's runner."""

from __future__ import annotations

import asyncio
import contextlib
import warnings
import zlib
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from prefect import get_client
from prefect.client.schemas.schedules import CronSchedule
from prefect.exceptions import ObjectNotFound

from flows.overview import standard
from flows.pipeline import folder_tag, pipeline
from flows.server import require
from lethe.errors import BadValue

FIELDS = 5  # Prefect also takes six, with seconds, and names such as @daily


def parse(cron: str) -> CronSchedule:
    """Return the schedule of a cron line of exactly five fields, in local time; raises `BadValue`."""
    from tzlocal import get_localzone_name

    try:
        if len(cron.split()) != FIELDS:
            raise ValueError
        return CronSchedule(cron=cron, timezone=get_localzone_name())
    except ValueError:
        legal = "five fields: minute hour day month weekday, for example '0 3 * * *' (every day at three)"
        raise BadValue("--cron", cron, legal) from None


def next_time(schedule: CronSchedule) -> datetime:
    """Return the next local time of a schedule by Prefect's own calendar; raises `BadValue` if there is none."""
    from prefect.server.schemas.schedules import CronSchedule as Calendar

    try:
        return asyncio.run(Calendar(cron=schedule.cron, timezone=schedule.timezone).get_dates(1))[0]
    except (ValueError, IndexError):
        raise BadValue("--cron", schedule.cron, "a date that the calendar has") from None


def serve(schedule: CronSchedule, how: Mapping[str, Any]) -> None:
    """Run the pipeline at its times, one run at a time, until a signal ends it; ``how``: arguments of `pipeline`."""
    following = next_time(schedule)
    require()
    standard().print(
        f"Runs at {schedule.cron} ({schedule.timezone}), first on {following:%Y-%m-%d %H:%M}; Ctrl-C ends it."
    )
    # The name is unique to this folder, because several folders may share Prefect's server.
    name = f"schedule-{zlib.crc32(folder_tag().encode()):08x}"
    forget_missed_runs(name)
    # Prefect's own handler of SIGTERM causes this warning; the end of the process does what the handler leaves undone.
    warnings.filterwarnings("ignore", message="coroutine 'Runner.astop' was never awaited")
    pipeline.serve(
        name=name,
        schedules=[schedule],
        limit=1,
        pause_on_shutdown=False,  # the next start resumes the schedule
        parameters={**how, "scheduled": True},
        tags=[folder_tag()],
        print_starting_message=False,
    )


def forget_missed_runs(name: str) -> None:
    """Delete the runs that were due while no process served the schedule: a single run does the work of all of them."""
    with get_client(sync_client=True) as client, contextlib.suppress(ObjectNotFound):
        client.delete_deployment(client.read_deployment_by_name(f"{pipeline.name}/{name}").id)
