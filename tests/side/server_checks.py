"""An MLflow and a Prefect server on PostgreSQL take the runs of two clones at once; `tests.benchmarks servers` runs these."""

import contextlib
import glob
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.flows.faults import answers, free_port
from tests.flows.miniature import Repository, make, wait_until


def _binaries() -> Path | None:
    """The folder of PostgreSQL's programs: that of the path, else the newest that Debian installed; None without one."""
    on_path = shutil.which("initdb")
    if on_path:
        return Path(on_path).resolve().parent
    installed = sorted(glob.glob("/usr/lib/postgresql/*/bin"), reverse=True)
    return Path(installed[0]) if installed else None


BINARIES = _binaries()


@pytest.fixture(scope="module")
def postgresql() -> Iterator[str]:
    """A new PostgreSQL on 127.0.0.1 with the databases mlflow and prefect; yields its address without a scheme."""
    if BINARIES is None:
        pytest.fail("PostgreSQL is missing: `apt-get install postgresql`")
    # PostgreSQL refuses root, and its user may not look into pytest's folders.
    place = Path(tempfile.mkdtemp(prefix="lethe-postgresql-"))
    other = ["runuser", "-u", "postgres", "--"] if os.getuid() == 0 else []
    if other:
        shutil.chown(place, "postgres")
    port = free_port()

    def call(name: str, *arguments: str) -> None:
        command = [*other, str(BINARIES / name), *arguments]
        done = subprocess.run(
            command, cwd="/", stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        assert done.returncode == 0, done.stderr

    call("initdb", "-D", f"{place}/data", "-A", "trust", "-U", "lethe", "-N")
    options = f"-p {port} -k {place} -c listen_addresses=127.0.0.1"
    call("pg_ctl", "-D", f"{place}/data", "-o", options, "-l", f"{place}/log", "-w", "start")
    try:
        for database in ("mlflow", "prefect"):
            call("createdb", "-h", "127.0.0.1", "-p", str(port), "-U", "lethe", database)
        yield f"lethe@127.0.0.1:{port}"
    finally:
        call("pg_ctl", "-D", f"{place}/data", "-m", "immediate", "-w", "stop")
        shutil.rmtree(place)


@contextlib.contextmanager
def server(place: Path, path: str, command: list[str], **extra: str) -> Iterator[str]:
    """A server of docs/team.md; ``{port}`` in the command becomes a free port, and ``path`` answers when it is up."""
    port = free_port()
    environment = {
        key: value for key, value in os.environ.items() if not key.startswith(("MLFLOW", "PREFECT"))
    }
    with open(place / f"{command[0]}.log", "w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", *(part.format(port=port) for part in command)],
            cwd=place,
            env=environment | extra,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    address = f"http://127.0.0.1:{port}"
    try:
        wait_until(lambda: answers(address + path), 180)
        yield address
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.fixture(scope="module")
def servers(postgresql, tmp_path_factory) -> Iterator[dict[str, str]]:
    place = tmp_path_factory.mktemp("servers")
    mlflow = (
        "mlflow server --host 127.0.0.1 --port {port} --artifacts-destination artifacts".split()
    )
    mlflow += ["--backend-store-uri", f"postgresql://{postgresql}/mlflow"]
    prefect = "prefect server start --host 127.0.0.1 --port {port}".split()
    store = {
        "PREFECT_HOME": str(place / "prefect"),
        "PREFECT_API_DATABASE_CONNECTION_URL": f"postgresql+asyncpg://{postgresql}/prefect",
    }
    with (
        server(place, "/health", mlflow, MLFLOW_SERVER_ENABLE_JOB_EXECUTION="false") as tracking,
        server(place, "/api/health", prefect, **store) as records,
    ):
        yield {"MLFLOW_TRACKING_URI": tracking, "PREFECT_API_URL": records + "/api"}


def two_clones(place: Path, servers: dict[str, str]) -> list[Repository]:
    """Two miniature repositories whose results differ, with the two servers in their environment."""
    found = []
    for name, alpha in (("one", "0.0625"), ("two", "0.125")):
        (place / name).mkdir()
        repository = make(
            place / name / "mini", {"PREFECT_HOME": str(place / name / "prefect")}, methods=["npo"]
        )
        (repository.folder / "params.yaml").write_text(
            repository.params().replace("alpha: 0.01", f"alpha: {alpha}")
        )
        repository.environment |= servers
        found.append(repository)
    return found


def runs_of_mlflow(address: str) -> list:
    from mlflow import MlflowClient

    client = MlflowClient(address)
    runs = []
    for experiment in client.search_experiments():
        runs += client.search_runs([experiment.experiment_id])
    return runs


def runs_of_prefect(address: str) -> list[tuple[str, str]]:
    """The tag of the folder and the state of every flow run that the server has."""
    command = "from prefect import get_client\nwith get_client(sync_client=True) as client:\n"
    command += "    for run in client.read_flow_runs(): print(run.tags[0], run.state_type.value)"
    environment = os.environ | {"PREFECT_API_URL": address, "PREFECT_LOGGING_LEVEL": "CRITICAL"}
    told = subprocess.run(
        [sys.executable, "-c", command], env=environment, capture_output=True, text=True, check=True
    )
    return [tuple(line.rsplit(" ", 1)) for line in told.stdout.splitlines()]


def test_runs_of_two_clones_at_once_are_all_recorded(servers, tmp_path):
    clones = two_clones(tmp_path, servers)
    for _ in range(2):  # the second time nothing is stale, and nothing is logged again
        started = [repository.start("run") for repository in clones]
        for process in started:
            _, err = process.communicate(timeout=300)
            assert process.returncode == 0, err
            assert "Traceback" not in err
    recorded = runs_of_prefect(servers["PREFECT_API_URL"])
    folders = [str(repository.folder) for repository in clones]
    assert sorted((tag.rpartition(":")[2], state) for tag, state in recorded) == [
        (folder, "COMPLETED") for folder in sorted(folders) for _ in range(2)
    ]
    logged = runs_of_mlflow(servers["MLFLOW_TRACKING_URI"])
    assert {run.info.status for run in logged} == {"FINISHED"}
    means = [run.data.metrics["mean"] for run in logged if "mean" in run.data.metrics]
    assert sorted(means) == [len("0.125"), len("0.0625")]  # what the miniature's step measures
    for repository in clones:
        assert not (repository.folder / "mlflow.db").exists()
