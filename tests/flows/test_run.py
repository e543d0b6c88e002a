"""`lethe run` from outside, on the miniature repository."""

import json
import os
import signal
import time

import pytest

from tests.cases import cases
from tests.flows.miniature import (
    Repository,
    command_of,
    ends,
    flow_runs,
    mlflow_runs,
    one_branch,
    processes_of,
    recorded,
    task_runs,
    wait_until,
)

STAGES = {
    "prepare", "unlearn@grad_diff", "unlearn@npo", "metrics@grad_diff", "metrics@npo", "report",
}  # fmt: skip


def logged(repository: Repository) -> list[str]:
    names = [run.info.run_name for run in mlflow_runs(repository)]
    return sorted(name if name.startswith("pipeline") else name.split(" ")[0] for name in names)


def test_run_cached_rerun_one_changed_branch_and_one_that_fails(repository):
    repository.use_its_own_server()
    del repository.environment["PREFECT_HOME"]
    repository.prefect_home = repository.folder / ".lethe/prefect"
    first = repository.lethe("run", "--json")
    assert first.returncode == 0, first.stderr
    assert ends(first.stdout) == dict.fromkeys(STAGES, "ran")
    assert "report | MLflow: 2 new runs." in first.stderr
    assert "Time: unknown" in first.stderr
    children = [name for name in logged(repository) if not name.startswith("pipeline")]
    assert children == ["grad_diff", "npo"]
    assert repository.dvc("status").stdout.startswith("Data and pipelines are")

    assert list(repository.home.iterdir()) == []
    (repository.folder / ".lethe/prefect/server.log").unlink()
    again = repository.lethe("run", "--json")
    assert ends(again.stdout) == dict.fromkeys(STAGES, "clean")
    assert not (repository.folder / ".lethe/prefect/server.log").exists(), "no server started"
    assert len(logged(repository)) == len(children) + 1
    assert json.loads(again.stdout)["changes"] == []
    assert "Time:" not in again.stderr

    prompt = repository.folder / "lethe/models/prompts/qa.txt"  # which the preset names
    prompt.parent.mkdir(parents=True)
    prompt.write_text("{question}")
    settings = ("-S", "unlearn.methods.npo.lr=1e-5", "--preset", "game-authors")
    changed = repository.lethe("run", *settings, "--json")
    assert "params.yaml changes: unlearn.methods.npo.lr: 0.0005 -> 1e-05" in changed.stderr
    assert "params.original.yaml params.yaml` undoes" in changed.stderr
    assert "unknown for 1 " in changed.stderr
    assert (repository.folder / "params.yaml").read_text().startswith("# The head comment stays.\n")
    branch = {name for name, end in ends(changed.stdout).items() if end != "clean"}
    assert branch == {"unlearn@npo", "metrics@npo", "report", "game@authors"}
    flows, tasks = recorded(repository)
    assert len(flows) == 2, "the run with nothing to do left no flow"
    cached = [run for run in tasks[len(STAGES) :] if run.state_name == "Cached"]
    assert {run.name for run in cached} == STAGES - branch
    new = sorted(logged(repository))
    for name in logged(repository):
        if name in children:
            children.remove(name)
            new.remove(name)
    assert [name for name in new if not name.startswith("pipeline")] == ["authors", "npo"]

    before = logged(repository)
    (repository.folder / "fail").write_text("models/npo")
    failed = repository.lethe("run", "-S", "unlearn.methods.npo.lr=2e-5", "--json")
    assert (ends(failed.stdout)["unlearn@npo"], ends(failed.stdout)["metrics@npo"]) == (
        "failed",
        "blocked",
    )
    after = logged(repository)
    assert after.count("npo") == before.count("npo"), (
        "its numbers are still those of the run before"
    )


def test_failure_takes_its_branch_only_and_the_rerun_mends_it(repository):
    repository.environment["LETHE_TRACKING"] = "off"
    (repository.folder / "fail").write_text("models/npo")
    failed = repository.lethe("run", "--json")
    assert failed.returncode == 2, "bad input of a stage is bad input of the pipeline"
    assert ends(failed.stdout) == {
        "prepare": "ran",
        "unlearn@grad_diff": "ran",
        "metrics@grad_diff": "ran",
        "unlearn@npo": "failed",
        "metrics@npo": "blocked",
        "report": "blocked",
    }
    assert "unlearn@npo: rows.jsonl: line 3 is broken." in failed.stderr
    assert "Traceback" not in failed.stderr
    states = {task.name: task.state_name for task in task_runs(repository)}
    assert states == {
        "prepare": "Completed",
        "unlearn@grad_diff": "Completed",
        "metrics@grad_diff": "Completed",
        "unlearn@npo": "Failed",
        "metrics@npo": "UpstreamFailed",
        "report": "UpstreamFailed",
    }
    (repository.folder / "fail").unlink()
    assert {name for name, end in repository.ran().items() if end == "clean"} == {
        "prepare", "unlearn@grad_diff", "metrics@grad_diff",
    }  # fmt: skip


@pytest.mark.parametrize("victim", ["stage", "dvc"])
def test_a_killed_process_of_a_stage_leaves_no_orphan_and_the_rerun_is_right(small, victim):
    process = small.waiting("models/npo")
    stage = pid_of(small, "step.py")
    dvc = parent_of(parent_of(stage))  # the shell is between them

    os.kill({"stage": stage, "dvc": dvc}[victim], signal.SIGKILL)

    assert_it_ends_and_runs_again(small, process, status=1, state="Failed")


@pytest.mark.slow
def test_a_killed_run_leaves_no_orphan_and_the_rerun_is_right(tmp_path):
    """A run with a server of its own, as a user has it: no other server need start for this test."""
    alone = one_branch(tmp_path / "mini", {"PREFECT_HOME": str(tmp_path / "prefect")})
    process = alone.waiting("models/npo")

    os.kill(process.pid, signal.SIGKILL)

    assert_it_ends_and_runs_again(alone, process, status=-signal.SIGKILL, state="Crashed")


def assert_it_ends_and_runs_again(repository, process, status, state):
    process.communicate(timeout=180)
    assert process.returncode == status
    wait_until(lambda: not list(processes_of(repository)), seconds=30)
    quiet = (repository.folder / "alive").read_text()
    time.sleep(0.3)
    assert (repository.folder / "alive").read_text() == quiet, "a stage went on writing"
    (repository.folder / "slow").unlink()
    assert repository.ran()["unlearn@npo"] == "ran"
    assert repository.dvc("status").stdout.startswith("Data and pipelines are")
    first, second = (run.state_name for run in flow_runs(repository))
    assert (first, second) == (state, "Completed")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_in_order(small, number):
    if number == signal.SIGTERM:
        small.use_its_own_server()
    process = small.waiting("models/npo")
    process.send_signal(number)
    out, err = process.communicate(timeout=180)
    assert process.returncode == 128 + number
    assert "Stopped by SIG" in err
    assert (ends(out)["unlearn@npo"], ends(out)["metrics@npo"]) == ("stopped", "not started")
    assert "metrics@npo" not in err
    assert flow_runs(small)[-1].state_name == "Cancelled"
    assert not list(processes_of(small))


def test_a_stage_that_waits_for_a_core_does_not_run_on_the_page_of_prefect(repository):
    """Both methods are due, and there is one core."""
    process = repository.waiting("data/models/", "--jobs", "1", LETHE_TRACKING="off")
    states = {}

    def both_are_shown() -> bool:
        states.update({task.name: task.state_name for task in task_runs(repository)})
        shown = [states.get(f"unlearn@{name}", "Pending") for name in ("grad_diff", "npo")]
        return "Running" in shown and "Pending" not in shown

    try:
        wait_until(both_are_shown, seconds=60)
        wait_until(lambda: both_are_shown() and "AwaitingConcurrencySlot" in states.values(), 60)
    finally:
        _, err = repository.go_on(process)

    assert process.returncode == 0, err
    assert {task.state_name for task in task_runs(repository)} == {"Completed"}


def test_only_one_run_at_a_time(small):
    process = small.waiting("dataset")
    try:
        before = small.params()
        second = small.lethe("run", "-S", "metrics.alpha=0.05")
        assert second.returncode == 1
        assert f"process {process.pid}" in second.stderr
        assert small.params() == before, "the stages of the first run read it when they start"
    finally:
        process.terminate()
        process.communicate(timeout=180)


def test_an_edit_of_params_during_a_run_is_for_the_next_run(small):
    process = small.waiting("models/npo")
    (small.folder / "params.yaml").write_text(
        small.params().replace("alpha: 0.01", "alpha: 0.0625")
    )
    _, err = small.go_on(process)
    assert process.returncode == 0, err
    assert "params.yaml changed during the run" in err
    assert metrics_of(small) == ("0.01", 0.01)
    assert recorded_alpha(small) == 0.01
    again = small.lethe("run", "--json")
    assert {name for name, end in ends(again.stdout).items() if end == "ran"} == {"metrics@npo"}
    assert metrics_of(small) == ("0.0625", 0.0625)
    assert recorded_alpha(small) == 0.0625


def test_under_dvc_itself_a_stage_whose_values_change_fails(small):
    (small.folder / "slow").write_text("metrics/npo")
    assert small.dvc("config", "--local", "core.no_scm", "true").returncode == 0
    process = small.python("-m", "dvc", "repro")
    wait_until(lambda: (small.folder / "alive").exists())
    text = small.params()
    (small.folder / "params.yaml").write_text(text.replace("alpha: 0.01", "alpha: 0.0625"))
    out = "".join(small.go_on(process))
    assert process.returncode != 0
    assert "params.yaml changed while the stage" in out
    assert "metrics@npo" not in (small.folder / "dvc.lock").read_text()
    assert "unlearn@npo" in (small.folder / "dvc.lock").read_text()


def metrics_of(repository: Repository) -> tuple[str, float]:
    found = json.loads((repository.folder / "data/metrics/npo.json").read_text())
    return found["text"], found["alpha"]


def recorded_alpha(repository: Repository) -> float:
    import yaml

    lock = yaml.safe_load((repository.folder / "dvc.lock").read_text())
    return lock["stages"]["metrics@npo"]["params"]["params.yaml"]["metrics"]["alpha"]


def test_git_keeps_a_changed_run_as_an_experiment(small):
    small.git("init", "-q")
    small.git("config", "user.name", "Test")
    small.git("config", "user.email", "test@example.org")
    small.commit("start")
    result = small.lethe("run", "-S", "metrics.alpha=0.05", "--name", "stricter", "--json")
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["experiment"] == "stricter", result.stderr
    assert "stricter" in small.dvc("exp", "list").stdout
    assert "alpha: 0.05" in (small.folder / "params.yaml").read_text()


def test_only_the_wanted_stages_run_and_the_first_line_says_how_many(small):
    part = small.lethe("run", "unlearn@npo", "--json")
    assert ends(part.stdout) == {"prepare": "ran", "unlearn@npo": "ran"}, part.stderr
    assert "most 2 run: 1 prepare, 1" in part.stderr
    assert not json.loads(part.stdout)["complete"]
    whole = small.lethe("run", "--json")
    assert ends(whole.stdout) == {"prepare": "clean", "unlearn@npo": "clean", "metrics@npo": "ran"}
    assert "most 1 run: 1" in whole.stderr


def test_without_git_the_first_change_keeps_the_original(small):
    before = small.params()
    for alpha in ("0.05", "0.02"):
        assert small.lethe("run", "-S", f"metrics.alpha={alpha}").returncode == 0
    assert (small.folder / ".lethe/params.original.yaml").read_text() == before


@cases
def test_bad_settings_change_nothing(small, arguments, told):
    before = small.params()
    assert told in small.refused("run", *arguments)
    assert small.params() == before
    assert not (small.folder / "dvc.lock").exists()


def pid_of(repository: Repository, text: str) -> int:
    return next(pid for pid in processes_of(repository) if command_of(pid).split()[1:2] == [text])


def parent_of(pid: int) -> int:
    with open(f"/proc/{pid}/stat") as line:
        return int(line.read().rpartition(")")[2].split()[1])


def test_it_talks_to_this_machine_only(small):
    """Nothing of a run listens or connects beyond 127.0.0.1."""
    import psutil

    small.use_its_own_server()
    process = small.waiting("metrics")
    try:
        everyone = [
            psutil.Process(process.pid),
            *psutil.Process(process.pid).children(recursive=True),
        ]
        connections = [found for running in everyone for found in running.net_connections("inet")]
    finally:
        small.go_on(process)
    assert process.returncode == 0
    assert any(found.status == psutil.CONN_LISTEN for found in connections)  # Prefect's server
    assert {end.ip for found in connections for end in (found.laddr, found.raddr) if end} == {
        "127.0.0.1"
    }
