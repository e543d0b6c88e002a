"""Start and end of a stage: a stage ends with its parent, and a user's mistake prints one sentence, not a traceback."""

import ctypes
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NoReturn

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
    """Return the number of cores that this process may use, which may be fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def no_telemetry() -> None:
    """Switch off the usage statistics of every library, for this process and those that it starts."""
    os.environ.update(NO_TELEMETRY)


@cache
def begin_stage() -> None:
    """Prepare this process before it imports a library that reads its environment; a second call does nothing."""
    die_with_parent()
    no_telemetry()
    same_numbers()


def run_stage(main: Callable[..., None]) -> None:
    """Run a stage's main function with the arguments of the command line; leave with the status of what goes wrong.

    Raises
    ------
    SystemExit
        With status 2 for wrong input and 1 for other errors that one sentence states. Any other error keeps its traceback.
    """
    begin_stage()
    try:
        before = _values_of_stage()
        main(*sys.argv[1:])
        if _values_of_stage() != before:
            raise ParamsChanged
    except LetheError as error:
        _leave(error)
    except Exception as error:
        of_machine = of_the_machine(error)
        if of_machine is None:
            raise
        _leave(of_machine)


def _leave(error: LetheError) -> NoReturn:
    name = os.environ.get("DVC_STAGE") or Path(sys.argv[0]).stem
    print(visible(f"{name}: {error}"), file=sys.stderr)
    sys.exit(error.exit_status)


def _values_of_stage() -> dict[str, object]:
    """Return the values of params.yaml that DVC records for this stage; none under `lethe run`, which made a copy."""
    name = os.environ.get("DVC_STAGE")
    listing = Path("dvc.yaml")
    file = Path("params.yaml")
    if not name or PARAMS in os.environ or not listing.is_file() or not file.is_file():
        return {}
    from ruamel.yaml import YAML

    group, _, key = name.partition("@")
    stage = YAML(typ="safe").load(listing)["stages"].get(group, {})
    params = stage.get("do", stage).get("params", [])
    settings = YAML(typ="safe").load(file)
    values: dict[str, object] = {}
    for listed in params:
        if isinstance(listed, str):
            dotted = listed.replace("${key}", key)
            values[dotted] = _value_of(settings, dotted)
    return values


def _value_of(settings: object, dotted: str) -> object:
    """The value of a dotted key; None where there is none."""
    value = settings
    for part in dotted.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def same_numbers() -> None:
    """Fix the instruction set before a numerical library loads; print a notice where the numbers will differ."""
    warning = fix_instruction_set()
    if warning is not None:
        print(warning, file=sys.stderr)


def die_with_parent() -> None:
    """End this process when its parent dies, so that a killed pipeline leaves no running stage (on Linux alone).

    The kernel sends SIGTERM then. A shell between DVC and the stage that does not make way for it would outlive DVC, so the
    shell's parent is watched too.
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
    """The name of a process and the number of its parent."""
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


# The settings of a stranger's repository may name commands that git runs.
RUNS_NOTHING = {"core.fsmonitor": "false", "core.hooksPath": os.devnull}
OF_A_FILTER = {"clean": "", "smudge": "", "process": "", "required": "false"}


def git(*arguments: str, root: Path = Path()) -> str | None:
    """What git prints about the repository of ``root``, or None where it fails; no command of the repository runs.

    A filter of the repository does not run either, so a file that one changes may count as changed. No object is fetched.
    """
    settings = dict(RUNS_NOTHING)
    for name in _filters(root):
        for key, value in OF_A_FILTER.items():
            settings[f"filter.{name}.{key}"] = value
    return _git(arguments, root, settings)


def _filters(root: Path) -> set[str]:
    """The names of the filters that any settings of git define."""
    listed = _git(("config", "--null", "--name-only", "--get-regexp", r"^filter\."), root, {})
    names: set[str] = set()
    for key in (listed or "").split("\0"):
        if key.count(".") > 1:
            names.add(key.removeprefix("filter.").rpartition(".")[0])
    return names


def _git(arguments: Sequence[str], root: Path, settings: Mapping[str, str]) -> str | None:
    # As variables, since a name with = in it cannot be told on the command line.
    count = os.environ.get("GIT_CONFIG_COUNT", "0")
    first = int(count) if count.isdecimal() else 0  # after the settings of the user's environment
    total = first + len(settings)
    environment = {"GIT_ALLOW_PROTOCOL": "none", "GIT_CONFIG_COUNT": str(total)}
    for place, (key, value) in enumerate(settings.items(), start=first):
        environment[f"GIT_CONFIG_KEY_{place}"] = key
        environment[f"GIT_CONFIG_VALUE_{place}"] = value
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *arguments],
            env=os.environ | environment,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=30,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    if done.returncode != 0:
        return None
    return done.stdout.strip()
