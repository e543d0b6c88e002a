"""Two machines that share no folder and no network interface run one pipeline; `tests.benchmarks workers` runs this.

Each worker of the Dask cluster lives in a network namespace of its own and sees neither the flow's folder nor that of the
other worker; all results pass through an S3 server. A user who may not make namespaces gets the same cluster on 127.0.0.1.
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
from tests.side.s3_checks import BUCKET, KEYS
from tests.small import ROOT, make_repository

MACHINES = ("flow", "one", "two")
LIMIT = 1500  # seconds of one run
CREATE = f"import sys; from tests.side.s3_checks import bucket; bucket(sys.argv[1]).create_bucket(Bucket={BUCKET!r})"


@dataclass(frozen=True)
class Machine:
    """A namespace with an address of its own, in which ``hidden`` folders are empty."""

    address: str
    namespace: str | None = None
    hidden: tuple[Path, ...] = ()

    def command(self, *arguments: str) -> list[str]:
        if self.namespace is None:
            return list(arguments)
        mounts = [f"mount -t tmpfs hidden '{folder}'" for folder in self.hidden]
        script = " && ".join([*mounts, 'exec "$@"'])
        return [
            "ip",
            "netns",
            "exec",
            self.namespace,
            "unshare",
            "-m",
            "sh",
            "-c",
            script,
            "sh",
            *arguments,
        ]


@contextmanager
def machines(folder: Path) -> Iterator[dict[str, Machine]]:
    """The three machines, joined by a bridge in the flow's namespace, where this user may make namespaces."""
    folders = {name: folder / name for name in MACHINES}
    for place in folders.values():
        place.mkdir(parents=True)
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
            hidden = tuple(place for other, place in folders.items() if other != name)
            found[name] = Machine(f"10.18.0.{number}", names[name], hidden)
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
    own = environment(folder.parent) | KEYS | {"LETHE_TRACKING": "off"}
    done = subprocess.run(
        command, cwd=folder, env=own, capture_output=True, text=True, timeout=LIMIT
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    return {name: end["why"] for name, end in json.loads(done.stdout)["stages"].items()}


def start(stack: ExitStack, machine: Machine, folder: Path, *command: str) -> Path:
    """Start a process of a machine until the stack ends; return the file of what it prints."""
    own = {"PATH": os.environ["PATH"], "HOME": str(folder), "LANG": "C.UTF-8", **KEYS}
    log = folder / f"{command[1].rpartition('.')[2]}.log"
    with open(log, "w") as out:
        process = subprocess.Popen(
            machine.command(sys.executable, *command),
            cwd=folder,
            env=own,
            stdout=out,
            stderr=subprocess.STDOUT,
        )

    def end() -> None:
        process.kill()
        process.wait()

    stack.callback(end)
    return log


@pytest.mark.timeout(3600)
def test_two_machines_without_a_shared_folder_make_the_bytes_of_one(tmp_path):
    lethe = (sys.executable, "-m", "lethe", "run", "--json")
    began = time.monotonic()
    local = pipeline(tmp_path / "alone/pipeline")
    assert set(run(list(lethe), local).values()) == {"ran"}

    print(f"\nalone: {time.monotonic() - began:.0f} s", flush=True)
    with machines(tmp_path / "machines") as found, ExitStack() as stack:
        flow, place = found["flow"], tmp_path / "machines/flow"
        print(f"network namespaces: {'no' if flow.namespace is None else 'yes'}", flush=True)
        store, scheduler = f"http://{flow.address}:9000", f"tcp://{flow.address}:8786"
        start(stack, flow, place, "-m", "moto.server", "-H", flow.address, "-p", "9000")
        made = flow.command(sys.executable, "-c", CREATE, store)
        wait_until(lambda: subprocess.run(made, cwd=ROOT, capture_output=True).returncode == 0, 120)
        listening = ("--host", flow.address, "--port", "8786", "--no-dashboard")
        start(stack, flow, place, "-m", "distributed.cli.dask_scheduler", *listening)
        own = ("--nthreads", "1", "--no-nanny", "--no-dashboard", "--local-directory", ".")
        for name in MACHINES[1:]:
            reached = (*own, "--host", found[name].address)
            folder = tmp_path / "machines" / name
            log = start(
                stack, found[name], folder, "-m", "distributed.cli.dask_worker", scheduler, *reached
            )
            wait_until(lambda log=log: "Registered to" in log.read_text(), 120)
        shared = pipeline(place / "pipeline")
        with open(shared / ".dvc/config", "a") as config:
            config.write(f"    remote = team\n['remote \"team\"']\n    url = s3://{BUCKET}/lethe\n")
            config.write(f"    endpointurl = {store}\n")
        ends = run(flow.command(*lethe, "--scheduler", scheduler), shared)
        worked = [
            name
            for name in MACHINES[1:]
            if list((tmp_path / "machines" / name).rglob("lethe-cache"))
        ]
    assert set(ends.values()) == {"ran"}
    assert worked == list(MACHINES[1:])
    expected = Copy(local, {}).hashes()
    assert Copy(shared, {}).hashes() == expected
    print(f"{len(ends)} stages, {len(expected)} files: the bytes of the local run")


def test_a_worker_reaches_no_folder_of_another_machine(tmp_path):
    with machines(tmp_path / "machines") as found:
        if found["one"].namespace is None:
            pytest.skip("this user may not make namespaces")
        (tmp_path / "machines/flow/secret").touch()
        look = found["one"].command("ls", str(tmp_path / "machines/flow"))
        assert subprocess.run(look, capture_output=True, text=True, check=True).stdout == ""
        names = found["one"].command("ip", "-o", "-4", "address")
        told = subprocess.run(names, capture_output=True, text=True, check=True).stdout
        assert "10.18.0.2/24" in told
        assert "10.18.0.1/24" not in told
