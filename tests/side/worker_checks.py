"""Two machines that see one folder and share no network interface run one pipeline; `tests.benchmarks workers` runs this.

Each worker of the Dask cluster lives in a network namespace of its own: it reaches the scheduler and no server of the flow on
127.0.0.1. A user who may not make namespaces gets the same cluster on 127.0.0.1.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.chaos.pipeline_copy import Copy, environment, smallest_params
from tests.flows.miniature import wait_until
from tests.small import make_repository

MACHINES = ("flow", "one", "two")
LIMIT = 1500  # seconds of one run
# How many tasks each worker has executed.
WORKED = (
    "import json, sys; from distributed import Client; client = Client(sys.argv[1]); "
    "print(json.dumps(list(client.run(lambda dask_worker: dask_worker.state.executed_count).values())))"
)


@dataclass(frozen=True)
class Machine:
    """A namespace with an address of its own."""

    address: str
    namespace: str | None = None

    def command(self, *arguments: str) -> list[str]:
        if self.namespace is None:
            return list(arguments)
        return ["ip", "netns", "exec", self.namespace, *arguments]


@contextmanager
def machines(folder: Path) -> Iterator[dict[str, Machine]]:
    """The three machines, joined by a bridge in the flow's namespace, where this user may make namespaces."""
    for name in MACHINES:
        (folder / name).mkdir(parents=True)
    names = {name: f"lethe-{os.getpid()}-{name}" for name in MACHINES}
    if (
        os.getuid()
        or subprocess.run(["ip", "netns", "add", names["flow"]], capture_output=True).returncode
    ):
        yield {name: Machine("127.0.0.1") for name in MACHINES}
        return
    flow = names["flow"]

    def ip(*arguments: str, inside: str | None = None) -> None:
        subprocess.run(
            ["ip", *(["-n", inside] if inside else []), *arguments], check=True, capture_output=True
        )

    found = {}
    try:
        ip("link", "set", "lo", "up", inside=flow)
        ip("link", "add", "bridge", "type", "bridge", inside=flow)
        ip("address", "add", "10.18.0.1/24", "dev", "bridge", inside=flow)
        ip("link", "set", "bridge", "up", inside=flow)
        found["flow"] = Machine("10.18.0.1", flow)
        for number, name in enumerate(MACHINES[1:], 2):
            ip("netns", "add", names[name])
            ip(
                "link",
                "add",
                name,
                "type",
                "veth",
                "peer",
                "name",
                "eth",
                "netns",
                names[name],
                inside=flow,
            )
            ip("link", "set", name, "master", "bridge", "up", inside=flow)
            ip("address", "add", f"10.18.0.{number}/24", "dev", "eth", inside=names[name])
            for device in ("lo", "eth"):
                ip("link", "set", device, "up", inside=names[name])
            found[name] = Machine(f"10.18.0.{number}", names[name])
        yield found
    finally:
        for name in names.values():
            subprocess.run(["ip", "netns", "delete", name], capture_output=True)


def pipeline(folder: Path) -> Path:
    params = smallest_params()
    params["unlearn"]["methods"] = {}
    params["models"] = {"retrain": params["models"]["retrain"]}
    params["train"]["models"] = {"retrain": params["train"]["models"]["retrain"]}
    return make_repository(folder, params, git=False)


def run(command: list[str], folder: Path) -> dict[str, str]:
    variables = environment(folder.parent) | {"LETHE_TRACKING": "off"}
    done = subprocess.run(
        command, cwd=folder, env=variables, capture_output=True, text=True, timeout=LIMIT
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    return {name: end["why"] for name, end in json.loads(done.stdout)["stages"].items()}


def start(stack: ExitStack, machine: Machine, folder: Path, *command: str) -> Path:
    """Start a process of a machine until the stack ends; return the file of what it prints."""
    variables = {"PATH": os.environ["PATH"], "HOME": str(folder), "LANG": "C.UTF-8"}
    log = folder / f"{command[1].rpartition('.')[2]}.log"
    with open(log, "w") as out:
        process = subprocess.Popen(
            machine.command(sys.executable, *command),
            cwd=folder,
            env=variables,
            stdout=out,
            stderr=subprocess.STDOUT,
        )

    def end() -> None:
        process.kill()
        process.wait()

    stack.callback(end)
    return log


@pytest.mark.timeout(3600)
def test_two_machines_that_see_one_folder_make_the_bytes_of_one(tmp_path):
    lethe = (sys.executable, "-m", "lethe", "run", "--json")
    began = time.monotonic()
    local = pipeline(tmp_path / "alone/pipeline")
    assert set(run(list(lethe), local).values()) == {"ran"}

    print(f"\nalone: {time.monotonic() - began:.0f} s", flush=True)
    with machines(tmp_path / "machines") as found, ExitStack() as stack:
        flow = found["flow"]
        place = tmp_path / "machines/flow"
        print(f"network namespaces: {'no' if flow.namespace is None else 'yes'}", flush=True)
        scheduler = f"tcp://{flow.address}:8786"
        listening = ("--host", flow.address, "--port", "8786", "--no-dashboard")
        start(stack, flow, place, "-m", "distributed.cli.dask_scheduler", *listening)
        limits = ("--nthreads", "1", "--no-nanny", "--no-dashboard", "--local-directory", ".")
        for name in MACHINES[1:]:
            reached = (*limits, "--host", found[name].address)
            folder = tmp_path / "machines" / name
            log = start(
                stack, found[name], folder, "-m", "distributed.cli.dask_worker", scheduler, *reached
            )
            wait_until(lambda log=log: "Registered to" in log.read_text(), 120)
        shared = pipeline(place / "pipeline")
        ends = run(flow.command(*lethe, "--scheduler", scheduler), shared)
        asking = flow.command(sys.executable, "-c", WORKED, scheduler)
        told = subprocess.run(asking, capture_output=True, text=True, check=True).stdout
    assert set(ends.values()) == {"ran"}
    assert all(count > 0 for count in json.loads(told)), "both machines worked"
    expected = Copy(local, {}).hashes()
    assert Copy(shared, {}).hashes() == expected
    print(f"{len(ends)} stages, {len(expected)} files: the bytes of the local run")


def test_a_worker_has_an_address_of_its_own(tmp_path):
    with machines(tmp_path / "machines") as found:
        if found["one"].namespace is None:
            pytest.skip("this user may not make namespaces")
        names = found["one"].command("ip", "-o", "-4", "address")
        told = subprocess.run(names, capture_output=True, text=True, check=True).stdout
    assert "10.18.0.2/24" in told
    assert "10.18.0.1/24" not in told
