"""How a stage starts and ends: it dies with its parent, and a user's mistake is one sentence, not a traceback."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable

from stages.errors import LetheError

PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Ask the kernel for SIGTERM when the parent dies, so that a killed pipeline leaves no stage writing.

    Linux only; elsewhere a stage outlives a parent that is killed with SIGKILL. The parent may have died before we
    asked: then we belong to another process already and leave at once.
    """
    if not sys.platform.startswith("linux"):
        return
    parent = os.getppid()
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent or parent == 1:
        sys.exit(1)


def run_stage(main: Callable[..., None]) -> None:
    """Run ``main`` with the command line's arguments; print a `LetheError` as its sentence and leave with its status."""
    die_with_parent()
    try:
        main(*sys.argv[1:])
    except LetheError as error:
        print(f"{sys.argv[0]}: {error}", file=sys.stderr)
        sys.exit(error.exit_status)
