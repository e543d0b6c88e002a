"""One case of `make chaos`: the run that is killed, the run after it, and what must hold of both."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.chaos.cases import Case, is_a, marked
from tests.chaos.pipeline_copy import LIMIT, Copy, behind

SETTLE = 30  # seconds in which every process of a case must have ended
TRIES = 5  # a run that ended before its moment is started again, for half the time


@dataclass
class Outcome:
    """How a case ended; ``wrong`` is empty where all held."""

    number: int
    victim: str
    signal: str
    stale_from: str
    killed_after: float  # seconds from the start of the run
    killed: str  # the command that was killed
    status: int  # of the killed run
    seconds: float
    rerun_status: int
    rerun_seconds: float
    lines: int  # on standard error of the killed run
    wrong: list[str] = field(default_factory=list)

    def as_line(self) -> str:
        return json.dumps(asdict(self))


def expected_status(case: Case) -> tuple[int, ...]:
    """The exit statuses that a run with this victim may have."""
    if case.victim == "flow":  # a signal that comes before Python's handlers are set ends the process itself
        return (-case.signal, 128 + case.signal) if case.signal == signal.SIGTERM else (-case.signal,)
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
    workers: Callable[[Path, str], contextlib.AbstractContextManager[tuple[str, list[subprocess.Popen]]]],
) -> Outcome:
    """Run one case in ``copy``.

    ``graph``: the stages with those that each reads; ``reference``: the hashes of an undisturbed run; ``seconds``: of its
    stages; ``overhead``: of a run with nothing to do; ``server``: the address of a Prefect server for the runs whose own is
    no victim; ``workers`` starts a cluster in a folder.
    """
    stale = behind(graph, case.stale_from)
    expected = overhead + sum(seconds[name] for name in stale) / 2
    share, mark = case.share, f"{os.getpid()}-{case.number}"
    extra = {} if case.tracking else {"LETHE_TRACKING": "off"}
    of_victim = {} if case.victim in ("flow", "server") else dict(server)
    for _ in range(TRIES):
        copy.forget(stale)
        if case.number % 3 == 0:  # the server makes its tables anew, and may be killed at that
            shutil.rmtree(copy.folder / ".lethe/prefect", ignore_errors=True)
        with _cluster(case, copy, mark, workers) as (address, cluster):
            began = time.monotonic()
            run = copy.start(mark, *(["--scheduler", address] if address else []), **extra, **of_victim)
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
    return Outcome(
        **{key: getattr(case, key) for key in ("number", "victim", "stale_from")},
        signal=case.signal.name,
        killed_after=round(after, 1),
        killed=killed,
        status=status,
        seconds=round(took, 1),
        rerun_status=again.returncode,
        rerun_seconds=round(again_took, 1),
        lines=err.count("\n"),
        wrong=wrong,
    )


@contextlib.contextmanager
def _cluster(case: Case, copy: Copy, mark: str, workers: Callable) -> Iterator[tuple[str, list[subprocess.Popen]]]:
    if case.victim != "worker":
        yield "", []
        return
    place = copy.folder.parent / "cluster"
    shutil.rmtree(place, ignore_errors=True)
    with workers(place, mark) as found:
        yield found


def _kill(case: Case, run: subprocess.Popen, moment: float, mark: str, cluster: list[subprocess.Popen]) -> str:
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
        living = [(pid, command) for pid, command in marked(mark).items() if is_a(case.victim, command)]
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
        f"{name} has other bytes" for name in reference if found.get(name, "") not in ("", reference[name])
    ]
