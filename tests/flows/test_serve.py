"""`lethe serve`: runs follow the schedule, report what changed, and leave nothing behind."""

import fcntl
import json
import signal
import subprocess
import sys

import pytest

from tests.flows.miniature import command_of, processes_of, wait_until


def test_runs_on_schedule_and_tells_what_changed(small):
    small.use_its_own_server()
    small.environment |= {"PREFECT_RUNNER_POLL_FREQUENCY": "1"}
    process = serve_every_ten_seconds(small)
    try:
        wait_until(lambda: last_run(small).get("complete"), seconds=600)
        (small.folder / "params.yaml").write_text(small.params().replace("alpha: 0.01", "alpha: 0.0625"))
        wait_until(lambda: last_run(small).get("changes"), seconds=600)
        assert {"model": "npo", "metric": "mean", "before": 4.0, "after": 6.0} in last_run(small)["changes"]
        wait_until(lambda: last_run(small)["stages"]["metrics@npo"]["why"] == "clean", seconds=600)
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
    process = serve_every_ten_seconds(small)
    wait_until(lambda: (small.folder / "alive").exists(), seconds=600)
    process.kill()
    process.communicate()
    wait_until(lambda: not any("step.py" in command_of(pid) for pid in processes_of(small)), seconds=10)
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


SERVE = """
from pathlib import Path
from flows import workspace
from flows.server import temporary_server

workspace.prepare(Path.cwd())
with workspace.only_schedule(Path.cwd()), temporary_server(Path.cwd(), schedules=True):
    from flows import schedule
    from prefect.client.schemas.schedules import CronSchedule

    schedule.serve(CronSchedule(cron="* * * * * */10"), {"jobs": None})
"""


def serve_every_ten_seconds(repository) -> subprocess.Popen:
    """What `lethe serve` does, at a sixth field, which the command does not take."""
    return subprocess.Popen(
        [sys.executable, "-c", SERVE],
        cwd=repository.folder,
        env=repository.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def last_run(repository) -> dict:
    path = repository.folder / ".lethe/last_run.json"
    return json.loads(path.read_text()) if path.exists() else {}
