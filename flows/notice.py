"""What a scheduled run tells others of a change, and the command that it tells."""

import dataclasses
import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

from flows.record import RunRecord
from lethe.io.files import plain

PATIENCE = 60  # seconds for the command of params


def notice(news: RunRecord, root: Path) -> dict[str, object]:
    """What a scheduled run tells others, as JSON: when it ended, what changed, and where the report lies."""
    return {
        "schema": 1,
        "folder": str(root.resolve()),
        "finished": news.finished,
        "compared_with": news.compared_with,
        "worse": any(alarm.worse for alarm in news.alarms),
        "changes": [dataclasses.asdict(alarm) for alarm in news.alarms],
        "report": news.report and str((root / news.report).resolve()),
    }


def notify(command: Sequence[str], value: dict[str, object]) -> str:
    """Give ``command``, without a shell, the change as JSON; returns a sentence if that failed, else nothing."""
    text = json.dumps(plain(value), allow_nan=False) + "\n"
    try:
        done = subprocess.run(
            list(command),
            input=text,
            text=True,
            capture_output=True,
            timeout=PATIENCE,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"notify.command: {command[0]} could not tell anyone ({error})."
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1][:200]
        return f"notify.command: {command[0]} ended with exit status {done.returncode} ({last})."
    return ""
