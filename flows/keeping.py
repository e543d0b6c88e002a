"""Prefect's record of a run, which may be lost: the stages go on without their server, and one sentence says so."""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
from collections.abc import Callable, Iterator

from prefect.states import State

from lethe.errors import LetheError, behind

GONE = "The Prefect server stopped answering ({reason}): the run goes on, and Prefect's record of it stays incomplete."
BUSY = (408, 429)  # a server with too much to do


@dataclasses.dataclass
class Record:
    """What this process knows of the flow run: its last state, and whether the server has gone."""

    state: State | None = None
    gone: bool = False
    error: Exception | None = None  # of the flow itself


RECORD: contextvars.ContextVar[Record | None] = contextvars.ContextVar("RECORD", default=None)


class Lost(LetheError):
    """The server went before any stage ran."""

    def __init__(self, reason: str):
        super().__init__(
            f"The Prefect server stopped answering before the run began ({reason}). Run the command again."
        )


@contextlib.contextmanager
def record() -> Iterator[Record]:
    """Hold the record of one flow run."""
    held = Record()
    token = RECORD.set(held)
    try:
        yield held
    finally:
        RECORD.reset(token)


def write(what: Callable[[], object], tell: Callable[[str], None]) -> None:
    """Write to Prefect's record, unless its server has gone; ``tell`` gets one sentence the first time."""
    held = RECORD.get() or Record()
    if held.gone:
        return
    try:
        what()
    except Exception as error:
        if (reason := lost(error)) is None:
            raise
        held.gone = True
        tell(GONE.format(reason=reason))


def lost(error: BaseException | None) -> str | None:
    """Return why the server did not take a request, if ``error`` comes of a server that is gone or busy; otherwise None."""
    import httpx

    while error is not None:
        if isinstance(error, httpx.HTTPStatusError):
            # Any other status is the answer of a server that lives, about a request that is wrong.
            if (status := error.response.status_code) >= 500 or status in BUSY:
                return f"status {status}"
        elif isinstance(error, httpx.HTTPError):
            return " ".join(str(error).split()) or type(error).__name__
        error = behind(error)
    return None
