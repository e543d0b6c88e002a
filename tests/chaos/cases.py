"""The cases of `make chaos`: who is killed, by which signal, when, and how much of the pipeline is stale before."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

VICTIMS = ("flow", "server", "dvc", "stage", "worker")  # worker: of a Dask cluster, which runs the stages
SIGNALS = (signal.SIGKILL, signal.SIGTERM)
MARK = "LETHE_CHAOS"  # in the environment of every process of a case, also of those that left their parent


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
