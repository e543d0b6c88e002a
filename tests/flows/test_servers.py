"""`lethe ui` and `lethe serve`: this folder alone, on 127.0.0.1, nothing left behind."""

import asyncio
import fcntl
import json
import signal
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from flows import prefect_page, server
from tests.flows.faults import answering_server
from tests.flows.miniature import Repository, command_of, processes_of, wait_until


@dataclass(frozen=True)
class Served:
    """A running `lethe ui`, in a folder with a module that has the name of a library."""

    pid: int
    port: int
    folder: Path
    told: list[str]
    answered: int | None  # the status of an answer as soon as the addresses were told


@pytest.fixture(scope="module")
def served(tmp_path_factory) -> Iterator[Served]:
    from mlflow import MlflowClient

    folder = tmp_path_factory.mktemp("ui") / "folder"
    folder.mkdir()
    client = MlflowClient(tracking_uri=f"sqlite:///{folder / 'mlflow.db'}")
    client.create_experiment("lethe", artifact_location=(folder / ".lethe/mlruns").as_uri())
    (folder / "mlflow.py").write_text(f"open({str(folder / 'RAN')!r}, 'w')")
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
    repository = Repository(folder, {"PREFECT_HOME": str(folder), "PREFECT_API_URL": ""})
    process = repository.start("ui", "--port", str(port))
    try:
        told: list[str] = []
        while len(told) < 2:
            line = process.stdout.readline()
            assert line, "the server ended"
            if "/#/experiments/" in line:  # MLflow's lines stand between
                told.append(line)
        yield Served(process.pid, port, folder, told, answer(port))
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    assert answer(port) is None


@pytest.mark.slow
def test_serves_on_this_machine_only(served):
    assert sockets_of(served.pid) == {f"127.0.0.1:{served.port}"}
    for line in served.told:
        assert f"http://127.0.0.1:{served.port}/#/experiments/1/runs?" in line


@pytest.mark.slow
def test_the_addresses_of_the_runs_are_told_when_they_answer(served):
    assert served.answered == 200


@pytest.mark.slow
def test_the_page_of_the_runs_is_served_by_no_code_of_the_folder(served):
    assert not (served.folder / "RAN").exists()


@pytest.mark.slow
def test_a_strangers_page_cannot_ask_the_server_of_the_runs(served):
    address = f"http://127.0.0.1:{served.port}/api/2.0/mlflow/experiments/create"
    created = {"name": "stranger"}

    rebound = httpx.post(address, json=created, headers={"Host": f"stranger.test:{served.port}"})
    other_origin = httpx.post(address, json=created, headers={"Origin": "http://stranger.test"})

    assert rebound.status_code == 403
    assert other_origin.status_code == 403


def test_says_what_is_missing(tmp_path):
    repository = Repository(tmp_path, {"PREFECT_HOME": str(tmp_path), "PREFECT_API_URL": ""})
    result = repository.lethe("ui")
    assert result.returncode == 1
    assert "mlflow.db is missing" in result.stderr


def test_port_in_use(tmp_path):
    (tmp_path / "mlflow.db").touch()
    repository = Repository(tmp_path, {"PREFECT_HOME": str(tmp_path), "PREFECT_API_URL": ""})
    with socket.create_server(("127.0.0.1", 0)) as held:
        result = repository.lethe("ui", "--port", str(held.getsockname()[1]))
    assert result.returncode == 2
    assert "--port" in result.stderr


def answer(port: int) -> int | None:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=30) as reply:
            return reply.status
    except (urllib.error.URLError, OSError):
        return None


def sockets_of(pid: int) -> set[str]:
    import psutil

    processes = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    connections = [
        connection for process in processes for connection in process.net_connections("inet")
    ]
    return {f"{c.laddr.ip}:{c.laddr.port}" for c in connections if c.status == psutil.CONN_LISTEN}


def test_a_server_that_does_not_answer_is_named_without_its_password(monkeypatch):
    monkeypatch.setattr(server.OwnServer, "running", None)  # a session's server would be waited for
    with answering_server(503) as port:
        monkeypatch.setenv("PREFECT_API_URL", f"http://ann:secret@127.0.0.1:{port}/api/")
        server.require()  # the server answers, so the flow itself will tell
    for address in (
        f"http://ann:secret@127.0.0.1:{port}/api",
        "http://ann:secret@127.0.0.1:port/api",
    ):
        monkeypatch.setenv("PREFECT_API_URL", address)
        with pytest.raises(server.Unreachable) as refused:
            server.require()
        assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("status", "lost"),
    [(500, True), (503, True), (429, True), (408, True), (404, False), (409, False), (422, False)],
)
def test_only_a_server_that_is_gone_or_busy_is_lost(status, lost):
    from flows import pipeline

    request = httpx.Request("GET", "http://127.0.0.1/api")
    error = httpx.HTTPStatusError(
        "x", request=request, response=httpx.Response(status, request=request)
    )
    assert (pipeline.lost(error) is not None) == lost
    wrapped = RuntimeError("Prefect's own")
    wrapped.__cause__ = error
    assert (pipeline.lost(wrapped) is not None) == lost


def test_one_server_makes_the_tables_and_the_others_wait(tmp_path):
    first = server.first_tables(tmp_path)
    assert first is not None
    found: list[object] = []
    other = threading.Thread(target=lambda: found.append(server.first_tables(tmp_path)))
    other.start()
    (tmp_path / "prefect.db").write_text("whole")
    assert not found
    server.tables_made(first)
    other.join(10)
    assert found == [None]
    assert (tmp_path / "prefect.db").read_text() == "whole"


def test_tables_of_a_killed_server_are_made_anew(tmp_path):
    killed = server.first_tables(tmp_path)
    (tmp_path / "prefect.db").write_text("half")
    (tmp_path / "prefect.db-wal").touch()
    killed.close()  # as the kernel does
    again = server.first_tables(tmp_path)
    assert again is not None
    assert not list(tmp_path.glob("prefect.db*"))
    again.close()


def test_runs_on_schedule_and_tells_what_changed(small):
    small.use_its_own_server()
    small.environment |= {"PREFECT_RUNNER_POLL_FREQUENCY": "1"}
    process = small.python("-c", SERVE)
    try:
        wait_until(lambda: last_run(small).get("complete"), seconds=600)
        (small.folder / "params.yaml").write_text(
            small.params().replace("alpha: 0.01", "alpha: 0.0625")
        )
        wait_until(lambda: last_run(small).get("changes"), seconds=600)
        assert {"model": "npo", "metric": "mean", "before": 4.0, "after": 6.0} in last_run(small)[
            "changes"
        ]
        wait_until(lambda: last_run(small)["stages"]["metrics@npo"]["why"] == "clean", seconds=600)
        # A signal that meets the end of a run falls into code that can only print it.
        wait_until(
            lambda: not any("spawn_main" in command_of(pid) for pid in processes_of(small)),
            seconds=600,
        )
    finally:
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=300)
    assert "npo mean: 4 -> 6" in err
    assert "Traceback" not in err
    wait_until(lambda: not list(processes_of(small)), seconds=30)


def test_no_stage_survives_the_death_of_the_server(small):
    small.use_its_own_server()
    small.environment |= {"PREFECT_RUNNER_POLL_FREQUENCY": "1"}
    (small.folder / "slow").write_text("dataset")
    process = small.python("-c", SERVE)
    wait_until(lambda: (small.folder / "alive").exists(), seconds=600)
    process.kill()
    process.communicate()
    wait_until(
        lambda: not any("step.py" in command_of(pid) for pid in processes_of(small)), seconds=10
    )
    wait_until(lambda: not list(processes_of(small)), seconds=30)


@pytest.mark.parametrize("cron", ["every day", "0 3 * * * *", "0 0 31 2 *"])
def test_bad_cron(small, cron):
    small.environment["PREFECT_API_URL"] = "http://127.0.0.1:9/api"  # it is not asked
    result = small.lethe("serve", "--cron", cron)
    assert result.returncode == 2
    assert "--cron" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_second_schedule_of_one_folder_is_refused(small):
    (small.folder / ".lethe").mkdir(exist_ok=True)
    with open(small.folder / ".lethe/serve.lock", "w") as lock:
        lock.write("4711")
        lock.flush()
        fcntl.flock(lock, fcntl.LOCK_EX)
        result = small.lethe("serve", "--cron", "0 3 * * *")
    assert result.returncode == 1
    assert "process 4711" in result.stderr


def test_a_dead_server_is_named(small):
    small.environment["PREFECT_API_URL"] = "http://user:secret@127.0.0.1:9/api"
    for arguments in (["serve", "--cron", "0 3 * * *"], ["run"]):
        result = small.lethe(*arguments)
        assert result.returncode == 1
        assert "http://127.0.0.1:9/api" in result.stderr
        assert "secret" not in result.stderr
        assert "Traceback" not in result.stderr


# What `lethe serve` does, at a sixth field, which the command does not take.
SERVE = """
from pathlib import Path
from flows import workspace
from flows.server import temporary_server

workspace.prepare(Path.cwd())
with workspace.only_schedule(Path.cwd()), temporary_server(Path.cwd(), schedules=True):
    from flows import pipeline, schedule
    from prefect.client.schemas.schedules import CronSchedule

    schedule.serve(CronSchedule(cron="* * * * * */10"), pipeline.Schedule())
"""


def last_run(repository) -> dict:
    path = repository.folder / ".lethe/last_run.json"
    return json.loads(path.read_text()) if path.exists() else {}


@dataclass(frozen=True)
class OwnApi:
    """The Prefect server of a run: its addresses, the key of Lethe's own clients, and the file that tells it the user."""

    base: str
    address: str
    key: tuple[str, str]
    key_file: Path


@pytest.fixture
def own_api(prefect) -> OwnApi:
    name, _, password = prefect[server.CLIENT_KEY].partition(":")
    address = prefect["PREFECT_API_URL"]
    base = address.removesuffix("/api")
    file = prefect_page.key_file(Path(prefect["PREFECT_HOME"]), base)
    return OwnApi(base, f"{address}/flows/", (name, password), file)


@pytest.mark.parametrize(
    ("settings", "hears"),
    [
        ({}, False),
        ({"PREFECT_API_URL": "http://team/api"}, True),
        ({"PREFECT_API_URL": "http://team/api", server.CLIENT_KEY: "ann:secret"}, True),
        ({"PREFECT_API_URL": "http://127.0.0.1:1/api", server.CLIENT_KEY: "lethe:random"}, False),
    ],
)
def test_a_server_of_the_users_hears_also_of_a_run_with_nothing_to_do(monkeypatch, settings, hears):
    for name in ("PREFECT_API_URL", server.CLIENT_KEY):
        monkeypatch.delenv(name, raising=False)
    for name, value in settings.items():
        monkeypatch.setenv(name, value)

    assert server.is_a_users() is hears


def test_the_server_of_a_run_answers_its_own_clients_alone(own_api):
    created = {"name": "stranger"}

    without_key = httpx.post(own_api.address, json=created, timeout=60)
    with_key = httpx.post(own_api.address, json=created, auth=own_api.key, timeout=60)

    assert without_key.status_code == 401
    assert with_key.status_code == 201


@pytest.mark.parametrize(
    "header", [{"Host": "stranger.test"}, {"Origin": "http://stranger.test"}, {"Origin": "null"}]
)
def test_the_server_of_a_run_answers_no_page_even_with_the_key(own_api, header):
    refused = httpx.post(
        own_api.address, json={"name": "x"}, auth=own_api.key, headers=header, timeout=60
    )

    assert refused.status_code in (400, 403)
    assert "access-control-allow-origin" not in refused.headers


HERE = "127.0.0.1:4200"


@pytest.mark.parametrize(
    ("kind", "headers", "answered"),
    [
        ("http", [("host", HERE)], True),
        ("websocket", [("host", HERE), ("origin", f"http://{HERE}")], True),
        ("http", [], False),
        ("http", [("host", "127.0.0.1")], False),
        ("http", [("host", "127.0.0.1:1")], False),
        ("http", [("host", "localhost:4200")], False),
        ("http", [("host", "[::1]:4200")], False),
        ("http", [("host", f"{HERE}.stranger.test")], False),
        ("http", [("host", HERE), ("host", "stranger.test")], False),
        ("http", [("host", "stranger.test"), ("x-forwarded-host", HERE)], False),
        ("websocket", [("host", HERE), ("origin", f"https://{HERE}")], False),
        ("http", [("host", HERE), ("origin", "null")], False),
        ("http", [("host", HERE), ("origin", f"http://{HERE}"), ("origin", "http://x")], False),
    ],
)
def test_a_request_names_the_server_of_a_run_once_and_no_other_page(kind, headers, answered):
    reached = []

    async def app(scope, receive, send):
        reached.append(scope)

    async def ignored(message):
        pass

    pages = prefect_page.OwnPagesAlone(app, origin=f"http://{HERE}")
    raw = [(name.encode(), value.encode()) for name, value in headers]
    scope = {"type": kind, "headers": raw, "extensions": {"websocket.http.response": {}}}
    asyncio.run(pages(scope, ignored, ignored))

    assert bool(reached) is answered


def test_its_own_page_asks_the_server_of_a_run_and_needs_the_key(own_api):
    created = {"name": "watched"}
    headers = {"Origin": own_api.base}

    without_key = httpx.post(own_api.address, json=created, headers=headers, timeout=60)
    with_key = httpx.post(
        own_api.address, json=created, headers=headers, auth=own_api.key, timeout=60
    )

    assert without_key.status_code == 401
    assert with_key.status_code in (200, 201)


def test_the_page_of_a_run_loads_nothing_from_elsewhere_and_stands_in_no_frame(own_api):
    page = httpx.get(f"{own_api.base}/login", timeout=120)

    assert page.status_code == 200
    assert "<html" in page.text
    policy = page.headers["content-security-policy"]
    assert policy.startswith("default-src 'self' ")
    assert "frame-ancestors 'none'" in policy
    settings = httpx.get(f"{own_api.base}/ui-settings", timeout=60).json()
    assert settings["auth"] == "BASIC"
    assert settings["api_url"] == f"{own_api.base}/api"


def test_only_the_user_can_read_the_key_of_the_page(own_api):
    assert own_api.key_file.read_text() == f"{':'.join(own_api.key)}\n"
    assert own_api.key_file.stat().st_mode & 0o777 == 0o600


def test_the_key_of_the_page_goes_with_the_server(small):
    small.use_its_own_server()
    home = small.prefect_home

    process = small.waiting("dataset")
    during = set(home.glob("key-*"))
    _, told = small.go_on(process)

    keys = [path for path in during if str(path) in told]
    assert len(keys) == 1
    assert not keys[0].exists()
    assert f"http://127.0.0.1:{keys[0].name.removeprefix('key-')}/login?redirect=" in told


def test_a_request_cannot_give_the_flows_the_address_of_a_scheduler():
    from flows import pipeline

    assert pipeline.scheduled_pipeline.parameters.properties == {}
    assert "scheduler" not in pipeline.pipeline.parameters.properties


@pytest.mark.slow
def test_the_key_is_in_the_environment_while_the_server_lives(tmp_path, monkeypatch):
    """A key of the user's, for another server, comes back."""
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path))
    monkeypatch.setenv(server.CLIENT_KEY, "of:another")
    monkeypatch.setattr(server, "OwnServer", FakeServer)

    with server.temporary_server(tmp_path):
        within = server.os.environ[server.CLIENT_KEY]

    assert within.startswith("lethe:")
    assert len(within) > 40
    assert server.os.environ[server.CLIENT_KEY] == "of:another"


class FakeServer:
    def __init__(self, *arguments: object):
        pass

    def stop(self) -> None:
        pass
