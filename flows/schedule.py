"""The pipeline on a schedule, in Prefect's runner."""

from __future__ import annotations

import warnings

from prefect.client.schemas.schedules import CronSchedule

from flows.overview import standard
from flows.pipeline import folder_tag, pipeline
from stages.errors import BadValue


def parse(cron: str) -> CronSchedule:
    """A cron line in local time; raises `BadValue`."""
    from tzlocal import get_localzone_name

    try:
        return CronSchedule(cron=cron, timezone=get_localzone_name())
    except ValueError:
        legal = "five fields: minute hour day month weekday, for example '0 3 * * *' (every day at three)"
        raise BadValue("--cron", cron, legal) from None


def serve(schedule: CronSchedule, jobs: int | None) -> None:
    """Run the pipeline at its times, one run at a time, until a signal ends it."""
    standard().print(f"Runs at {schedule.cron} ({schedule.timezone}); Ctrl-C ends it.")
    # Prefect's own handler of SIGTERM makes this warning; all it leaves undone is done when the process ends.
    warnings.filterwarnings("ignore", message="coroutine 'Runner.astop' was never awaited")
    # Not paused at the end, so that the next start goes on; runs missed meanwhile are not made up for.
    pipeline.serve(
        name="schedule",
        schedules=[schedule],
        limit=1,
        pause_on_shutdown=False,
        parameters={"jobs": jobs, "scheduled": True},
        tags=[folder_tag()],
        print_starting_message=False,
    )
