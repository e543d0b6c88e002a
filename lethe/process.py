"""Start and end of a stage: a stage ends with its parent, and a user's mistake prints one sentence, not a traceback."""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from lethe.errors import LetheError, ParamsChanged, of_the_machine, visible
from lethe.instruction_set import fix_instruction_set

PR_SET_PDEATHSIG = 1
PARAMS = "LETHE_PARAMS"  # names the copy of params.yaml that `lethe run` made when it began
SHELLS = ("sh", "bash", "dash", "zsh", "fish", "ksh", "busybox")

# These switch off the usage statistics of every library. MLflow and Prefect both read DO_NOT_TRACK, with only this value.
NO_TELEMETRY = {
    "DO_NOT_TRACK": "true",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
}


def cores() -> int:
    """Return the number of processor cores that this process may use."""
    return len(os.sched_getaffinity(0))


def no_telemetry() -> None:
    """Switch off the usage statistics of every library, in this process and in its children."""
    os.environ.update(NO_TELEMETRY)


def run_stage(main: Callable[..., None]) -> None:
    """Run ``main`` with the command line's arguments; on a `LetheError`, print its sentence and exit with its status."""
    die_with_parent()
    no_telemetry()
    same_numbers()
    try:
        before = _values_of_stage()
        main(*sys.argv[1:])
        if _values_of_stage() != before:
            raise ParamsChanged
    except LetheError as error:
        _leave(error)
    except Exception as error:
        if (sentence := of_the_machine(error)) is None:
            raise
        _leave(sentence)


def _leave(error: LetheError) -> NoReturn:
    name = os.environ.get("DVC_STAGE") or Path(sys.argv[0]).stem
    print(visible(f"{name}: {error}"), file=sys.stderr)
    sys.exit(error.exit_status)


def _values_of_stage() -> dict[str, Any]:
    """Return the values of params.yaml that DVC records for this stage when the stage ends.

    The result is empty if DVC does not run the stage, and under `lethe run`, where the stages and DVC read a copy.
    """
    name, listing, file = os.environ.get("DVC_STAGE"), Path("dvc.yaml"), Path("params.yaml")
    if not name or PARAMS in os.environ or not listing.is_file() or not file.is_file():
        return {}
    from ruamel.yaml import YAML

    group, _, key = name.partition("@")
    stage = YAML(typ="safe").load(listing)["stages"].get(group, {})
    keys = [
        each.replace("${key}", key) for each in stage.get("do", stage).get("params", []) if isinstance(each, str)
    ]
    values = YAML(typ="safe").load(file)
    return {each: _value(values, each.split(".")) for each in keys}


def _value(values: Any, parts: list[str]) -> Any:
    for part in parts:
        values = values.get(part) if isinstance(values, dict) else None
    return values


def same_numbers() -> None:
    """Fix the instruction set before a numerical library loads; print a notice where the numbers will differ."""
    if warning := fix_instruction_set():
        print(warning, file=sys.stderr)


def die_with_parent() -> None:
    """End this process when its parent dies, so that a killed pipeline leaves no running stage.

    The kernel sends SIGTERM when the parent dies. DVC starts a stage through the user's shell. Most shells replace
    themselves by the command, but a shell that remains would outlive DVC and keep the stage alive, so the function also
    watches the shell's parent. This works only on Linux: elsewhere a stage survives the SIGKILL of its parent.
    """
    if not sys.platform.startswith("linux"):
        return
    parent = os.getppid()
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    name, grandparent = _process(parent)
    # The parent may have died before the request. Then another process has adopted this one, in the end process 1. Process 1
    # is a stage's real parent only in a container whose only program is DVC.
    if os.getppid() != parent or (parent == 1 and not name.startswith(("dvc", "python"))):
        sys.exit(1)
    if name in SHELLS and "DVC_STAGE" in os.environ:
        watch(grandparent)


def _process(pid: int) -> tuple[str, int]:
    """Return the name and the parent of a process."""
    # "pid (name) state ppid ...": the name itself may contain blanks and brackets.
    before, _, after = Path(f"/proc/{pid}/stat").read_text().rpartition(")")
    return before.partition("(")[2], int(after.split()[1])


def watch(pid: int) -> None:
    """Send SIGTERM to this process once ``pid`` has died, and SIGKILL if this process still runs ten seconds later."""
    try:
        handle = os.pidfd_open(pid)
    except OSError:  # the process is already dead
        sys.exit(1)

    def wait() -> None:
        select.select([handle], [], [])
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(10)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=wait, daemon=True).start()


def processor_seconds() -> float:
    """Processor seconds of this process, to which other work adds nothing; seconds of the clock where a GPU works."""
    import time

    import torch

    if torch.cuda.is_available():
        torch.cuda.synchronize()
        return time.perf_counter()
    return time.process_time()
