"""`lethe serve`: the pipeline at the times of a cron line, one run at a time, until a signal ends it."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import warnings
import zlib
from datetime import datetime

from prefect import get_client
from prefect.client.schemas.schedules import CronSchedule
from prefect.exceptions import ObjectNotFound
from prefect.server.schemas.schedules import CronSchedule as Calendar
from tzlocal import get_localzone_name

from flows.overview import standard
from flows.pipeline import SCHEDULE, Schedule, folder_tag, scheduled_pipeline
from flows.server import page, require
from lethe.errors import BadValue

FIELDS = 5  # Prefect also takes six, with seconds, and names such as @daily


def parse_cron(cron: str) -> CronSchedule:
    """A schedule in this machine's time zone; raises `BadValue` unless it has five legal fields."""
    try:
        if len(cron.split()) != FIELDS:
            raise ValueError
        return CronSchedule(cron=cron, timezone=get_localzone_name())
    except ValueError:
        legal = "five fields: minute hour day month weekday, for example '0 3 * * *' (every day at three)"
        raise BadValue("--cron", cron, legal) from None


def next_time(schedule: CronSchedule) -> datetime:
    """The next time of a schedule; raises `BadValue` for a date that never comes."""
    try:
        return asyncio.run(Calendar(cron=schedule.cron, timezone=schedule.timezone).get_dates(1))[0]
    except (ValueError, IndexError):
        raise BadValue("--cron", schedule.cron, "a date that the calendar has") from None


def serve(schedule: CronSchedule, how: Schedule) -> None:
    """Run the pipeline at its times, one run at a time, until a signal ends it."""
    following = next_time(schedule)
    require()
    standard().print(
        f"Runs at {schedule.cron} ({schedule.timezone}), first on {following:%Y-%m-%d %H:%M}; Ctrl-C ends it."
    )
    if page():
        standard().print(page())
    # The name is unique to this folder, because several folders may share Prefect's server.
    name = f"schedule-{zlib.crc32(folder_tag().encode()):08x}"
    # The runs that were due while no process served the schedule go: a single run does the work of all of them.
    with get_client(sync_client=True) as client, contextlib.suppress(ObjectNotFound):
        client.delete_deployment(
            client.read_deployment_by_name(f"{scheduled_pipeline.name}/{name}").id
        )
    # Prefect's own handler of SIGTERM causes this warning; the end of the process does what the handler leaves undone.
    warnings.filterwarnings("ignore", message="coroutine 'Runner.astop' was never awaited")
    os.environ[SCHEDULE] = json.dumps(dataclasses.asdict(how))  # for the processes of the runs
    scheduled_pipeline.serve(
        name=name,
        schedules=[schedule],
        limit=1,
        pause_on_shutdown=False,  # the next start resumes the schedule
        tags=[folder_tag()],
        print_starting_message=False,
    )
