"""The process that a stage is a fork of: what a stage sees and how it ends are those of `python -m stages.NAME`."""

import json
import os
import signal
import sys

import pytest

from flows.warm import COMMAND, Warm
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


@pytest.mark.parametrize("system", ["linux", "darwin"])
def test_a_job_is_answered_on_every_system(system, monkeypatch, tmp_path):
    """By a fork, or by a process of its own."""
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.chdir(fresh_copy(tmp_path / "copy"))
    answer, writing = os.pipe()
    lines, printing = os.pipe()
    warm = Warm({**os.environ, "PYTHONPATH": str(ROOT)})

    warm.submit({"stage": "prepare", "pull": False}, (printing, writing))
    os.close(writing)
    os.close(printing)

    with open(answer, encoding="utf-8") as file:
        assert json.load(file)["state"] in ("ran", "failed")
    warm.close()
    os.close(lines)
