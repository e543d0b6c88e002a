"""One case of `make chaos`: who is killed by which signal and when, the run after it, and what must hold of both."""

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.chaos.pipeline_copy import LIMIT, MARK, Copy, behind
from tests.flows.miniature import cluster as workers_of

SETTLE = 30  # seconds in which every process of a case must have ended
TRIES = 5  # a run that ended before its moment is started again, for half the time


VICTIMS = (
    "flow",
    "server",
    "dvc",
    "stage",
    "worker",
)  # worker: of a Dask cluster, which runs the stages
SIGNALS = (signal.SIGKILL, signal.SIGTERM)


@dataclass(frozen=True)
class Case:
    """One case; ``share`` of the time that the stale part is expected to take has passed when the victim is killed."""

    number: int
    victim: str
    signal: signal.Signals
    stale_from: str  # this stage and all that read its outputs have no outputs when the run begins
    share: float
    tracking: bool  # whether MLflow takes the results


def case(number: int, seed: int, stages: Sequence[str], victims: Sequence[str] = VICTIMS) -> Case:
    """The case of this number: victims and signals in turn, the rest drawn from the seed."""
    chance = random.Random(f"{seed}-{number}")
    turn = number // len(victims)
    return Case(
        number=number,
        victim=victims[number % len(victims)],
        signal=SIGNALS[turn % len(SIGNALS)],
        stale_from=chance.choice(list(stages)),
        share=chance.random(),
        tracking=turn == 4,
    )


def marked(mark: str) -> dict[int, list[str]]:
    """The living processes whose environment has the mark, with their command lines."""
    found = {}
    needle = f"{MARK}={mark}".encode()
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        place = Path(entry.path)
        try:
            if needle not in (place / "environ").read_bytes().split(b"\0"):
                continue
            state = (place / "stat").read_text().rpartition(")")[2].split()[0]
            command = (place / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:  # the process has ended
            continue
        if state != "Z":
            found[int(entry.name)] = command
    return found


def is_a(victim: str, command: Sequence[str]) -> bool:
    """Whether a command line is that of a victim other than the flow and the workers, which the caller started."""
    module = command[2] if len(command) > 2 and command[1] == "-m" else ""
    if victim == "server":
        return module == "flows.server"
    if victim == "dvc":
        return module == "flows.dvc_child"
    return module.startswith("stages.") or (len(command) > 1 and command[1] == "step.py")


def expected_status(case: Case) -> tuple[int, ...]:
    """The exit statuses that a run with this victim may have."""
    if (
        case.victim == "flow"
    ):  # a signal that comes before Python's handlers are set ends the process itself
        return (
            (-case.signal, 128 + case.signal) if case.signal == signal.SIGTERM else (-case.signal,)
        )
    if case.victim in ("server", "worker"):
        return (0,)
    return (0, 1)  # 0: the victim had done its work already


def disturb(
    case: Case,
    copy: Copy,
    graph: Mapping[str, list[str]],
    reference: Mapping[str, str],
    seconds: Mapping[str, float],
    overhead: float,
    server: Mapping[str, str],
) -> dict[str, Any]:
    """Run one case in ``copy``.

    ``graph``: the stages with those that each reads; ``reference``: the hashes of an undisturbed run; ``seconds``: of its
    stages; ``overhead``: of a run with nothing to do; ``server``: the address of a Prefect server for the runs whose own is
    no victim. Returns a row of the table; ``wrong`` is empty where all held.
    """
    stale = behind(graph, case.stale_from)
    expected = overhead + sum(seconds[name] for name in stale) / 2
    share = case.share
    mark = f"{os.getpid()}-{case.number}"
    extra = {} if case.tracking else {"LETHE_TRACKING": "off"}
    of_victim = {} if case.victim in ("flow", "server") else dict(server)
    for _ in range(TRIES):
        copy.forget(stale)
        if case.number % 3 == 0:  # the server makes its tables anew, and may be killed at that
            shutil.rmtree(copy.folder / ".lethe/prefect", ignore_errors=True)
        with _cluster(case, copy, mark) as (address, cluster):
            began = time.monotonic()
            run = copy.start(
                mark, *(["--scheduler", address] if address else []), **extra, **of_victim
            )
            after = share * expected * (2 if address else 1)
            killed = _kill(case, run, began + after, mark, cluster)
            after = time.monotonic() - began
            wrong = _end(run)
            took = time.monotonic() - began
            wrong += _orphans(mark, {process.pid for process in cluster})
        if killed or wrong:
            break
        share /= 2
    out, err = copy.said()
    status = run.returncode
    if not killed:
        wrong.append("the run ended before every moment that was tried")
    if status not in expected_status(case):
        wrong.append(f"exit status {status}, expected one of {expected_status(case)}: {_last(err)}")
    wrong += _printed(out, err)
    began = time.monotonic()
    again = copy.start(mark, **extra, **server)
    wrong += _end(again)
    again_took = time.monotonic() - began
    out, again_err = copy.said()
    wrong += _orphans(mark, set()) + _printed(out, again_err)
    if again.returncode:
        wrong.append(f"the rerun ended with exit status {again.returncode}: {_last(again_err)}")
    elif not json.loads(out)["complete"]:
        wrong.append("the rerun is not complete")
    wrong += differences(reference, copy.hashes())
    return {
        **{key: getattr(case, key) for key in ("number", "victim", "stale_from")},
        "signal": case.signal.name,
        "killed_after": round(after, 1),
        "killed": killed,
        "status": status,
        "seconds": round(took, 1),
        "rerun_status": again.returncode,
        "rerun_seconds": round(again_took, 1),
        "wrong": wrong,
    }


@contextlib.contextmanager
def _cluster(case: Case, copy: Copy, mark: str) -> Iterator[tuple[str, list[subprocess.Popen]]]:
    if case.victim != "worker":
        yield "", []
        return
    place = copy.folder.parent / "cluster"
    shutil.rmtree(place, ignore_errors=True)
    with workers_of(place, **{MARK: mark}) as cluster:
        yield cluster


def _kill(
    case: Case, run: subprocess.Popen, moment: float, mark: str, cluster: list[subprocess.Popen]
) -> str:
    """Kill the victim at the moment, or as soon as it lives after that; return its command, "" if the run ended before."""
    chance = random.Random(f"victim {case.number}")
    while run.poll() is None:
        if time.monotonic() < moment:
            time.sleep(min(0.02, max(0.0, moment - time.monotonic())))
            continue
        if case.victim in ("flow", "worker"):
            process = run if case.victim == "flow" else chance.choice(cluster[1:])
            process.send_signal(case.signal)
            return case.victim if case.victim == "flow" else f"worker {cluster.index(process)}"
        living = [
            (pid, command) for pid, command in marked(mark).items() if is_a(case.victim, command)
        ]
        if living:
            pid, command = chance.choice(sorted(living))
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, case.signal)
                return " ".join(command[2:]).strip()
        time.sleep(0.05)
    return ""


def _end(run: subprocess.Popen) -> list[str]:
    """Wait for a run; one that does not end is ended here and counted as wrong."""
    try:
        run.wait(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        run.kill()
        run.wait()
        return [f"it did not end within {LIMIT} s"]
    return []


def _orphans(mark: str, leave: set[int]) -> list[str]:
    """The processes of a case that live on; they are ended here."""
    until = time.monotonic() + SETTLE
    while left := {pid: command for pid, command in marked(mark).items() if pid not in leave}:
        if time.monotonic() > until:
            break
        time.sleep(0.3)
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return [f"orphan {pid}: {' '.join(command)[:200]}" for pid, command in left.items()]


def _printed(out: str, err: str) -> list[str]:
    return [f"a traceback: {_last(text)}" for text in (out, err) if "Traceback" in text]


def _last(text: str) -> str:
    return " / ".join(text.strip().splitlines()[-3:])[-600:]


def differences(reference: Mapping[str, str], found: Mapping[str, str]) -> list[str]:
    """The files that differ from the undisturbed run's, in words."""
    said = [f"{name} is missing" for name in reference if name not in found]
    said += [f"{name} is left over" for name in found if name not in reference]
    return said + [
        f"{name} has other bytes"
        for name in reference
        if found.get(name, "") not in ("", reference[name])
    ]
