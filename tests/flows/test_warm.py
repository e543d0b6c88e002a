"""The process that a stage is a fork of: what a stage sees and how it ends are those of `python -m stages.NAME`."""

import contextlib
import json
import os
import signal
import sys

import pytest

from flows.warm import COMMAND, Warm
from flows.workspace import Processes, child_environment
from lethe.process import cores
from tests.small import ROOT, fresh_copy, python

STAGE = """
import atexit, json, os, pathlib, sys, tempfile

def main():
    how, *rest = sys.argv[1:]
    atexit.register(pathlib.Path("ended", how).touch)
    seen = {
        "arguments": rest,
        "module": sys.modules["__main__"].__spec__.name,
        "environment": dict(os.environ),
        "command": pathlib.Path("/proc/self/cmdline").read_text().rstrip(chr(0)).split(chr(0)),
    }
    pathlib.Path(how + ".json").write_text(json.dumps(seen))
    if how == "status":
        sys.exit(2)
    if how == "words":
        sys.exit("it cannot be")
    if how == "error":
        raise KeyError("lost")
    if how == "killed":
        os.kill(os.getpid(), 9)

main()
"""
DRIVER = """
import json, os, sys
from flows.warm import Host

reading, writing = os.pipe()
statuses = {}
for how in ("nothing", "status", "words", "error", "killed"):
    host = Host(writing)
    statuses[how] = host.run(f"python -m stages.odd {how} npo", {"MARK": how, "PATH": os.environ["PATH"]})
Host(writing).run("python -m", {})
unused = Host(writing)
unused.close()
print(json.dumps(statuses))
"""


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """A folder in which stages ran as forks, their exit statuses, and what they printed as errors."""
    folder = tmp_path_factory.mktemp("forks")
    (folder / "stages").mkdir()
    (folder / "ended").mkdir()
    (folder / "stages/__init__.py").touch()
    (folder / "stages/odd.py").write_text(STAGE)
    (folder / "driver.py").write_text(DRIVER)
    search = f"{folder}:{ROOT}"

    done = python(folder, "driver.py", "-" * 300, PYTHONPATH=search)

    return folder, json.loads(done.stdout), done.stderr


def test_a_forked_stage_ends_with_the_status_of_its_own_process(ended):
    _, statuses, _ = ended

    killed = 128 + signal.SIGKILL
    assert statuses == {"nothing": 0, "status": 2, "words": 1, "error": 1, "killed": killed}


def test_a_forked_stage_prints_why_it_ended(ended):
    _, _, errors = ended

    assert "it cannot be" in errors
    assert "KeyError" in errors
    # of a command without a module, which this process refuses before any stage
    assert "ValueError" in errors


def test_what_is_due_at_the_end_of_a_process_is_done_in_a_forked_stage(ended):
    folder, _, _ = ended

    assert {path.name for path in (folder / "ended").iterdir()} == {
        "nothing",
        "status",
        "words",
        "error",
    }


def test_a_forked_stage_sees_its_command_and_its_environment_alone(ended):
    folder, _, _ = ended

    seen = json.loads((folder / "nothing.json").read_text())

    assert seen["arguments"] == ["npo"]
    assert seen["module"] == "stages.odd"
    assert seen["command"][1:] == ["-m", "stages.odd", "nothing", "npo"]
    assert set(seen["environment"]) - {"LC_CTYPE"} == {"MARK", "PATH"}


@pytest.mark.parametrize(
    ("command", "forked"),
    [
        ("python -m stages.report", True),
        ("python -m stages.sample npo_entropy-2.5", True),
        ("python -m stages.sample 'npo'", False),
        ("python -m stages.sample npo && touch done", False),
        ("OMP_NUM_THREADS=2 python -m stages.sample npo", False),
        ("python step.py", False),
    ],
)
def test_a_command_with_more_than_a_stage_and_its_name_goes_to_the_shell(command, forked):
    assert bool(COMMAND.fullmatch(command)) == forked


def copy_outside_git(folder):
    """A pipeline that can run, of which DVC expects no git."""
    fresh_copy(folder)
    (folder / ".dvc/config.local").write_text("[core]\n    no_scm = true\n")
    return folder


NO_ROOM_AT_FIRST = """
import errno, os

fork = os.fork

def refuse():
    os.fork = fork
    raise OSError(errno.EAGAIN, "no room")

os.fork = refuse
"""


def test_a_fork_that_fails_costs_its_stage_alone_and_says_why(monkeypatch, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(NO_ROOM_AT_FIRST)
    monkeypatch.chdir(copy_outside_git(tmp_path / "copy"))
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{ROOT}")

    with contextlib.closing(Processes()) as processes:
        first = processes.reproduce("sources", lambda stage, line: None)
        started = processes._warm.process.pid
        second = processes.reproduce("sources", lambda stage, line: None)
        kept = processes._warm.process.pid

    assert (first.state, second.state, kept) == ("failed", "ran", started)
    assert "no room" in first.tail


def test_a_process_that_cannot_start_says_why(monkeypatch, tmp_path):
    (tmp_path / "dvc").mkdir()
    (tmp_path / "dvc/__init__.py").write_text("raise ImportError('half installed')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{ROOT}")

    with contextlib.closing(Processes()) as processes:
        ended = processes.reproduce("sources", lambda stage, line: None)

    assert ended.state == "failed"
    assert "half installed" in ended.tail


def test_cores_are_counted_where_no_system_says_which_are_ours(monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity")

    assert cores() == os.cpu_count()


@pytest.mark.slow
@pytest.mark.parametrize("system", ["linux", "darwin"])
def test_a_job_is_answered_on_every_system(system, monkeypatch, tmp_path):
    """By a fork, or by a process of its own."""
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.chdir(copy_outside_git(tmp_path / "copy"))
    answer, writing = os.pipe()
    lines, printing = os.pipe()
    warm = Warm({**child_environment(), "PYTHONPATH": str(ROOT)})

    warm.submit({"stage": "sources", "pull": False}, (printing, writing))
    os.close(writing)
    os.close(printing)

    with open(answer, encoding="utf-8") as file:
        assert json.load(file)["state"] == "ran"
    warm.close()
    os.close(lines)
