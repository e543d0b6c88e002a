"""A stage is started by a person: as a script or a module, with `--help`, with a wrong number of names."""

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from stages import entry
from tests.small import ROOT

STAGES = sorted(path.stem for path in (ROOT / "stages").glob("[a-z]*.py") if path.stem != "stages")


class Started(Exception):
    """In place of a new process: what it would run."""


@pytest.mark.parametrize("stage", STAGES)
def test_a_script_starts_its_stage_as_the_module_does(stage, monkeypatch):
    def execv(_, command):
        raise Started(command[1:])

    script = str(ROOT / "stages" / f"{stage}.py")
    monkeypatch.setattr(os, "execv", execv)
    monkeypatch.setattr(sys, "path", [str(ROOT / "stages"), *sys.path])
    monkeypatch.setattr(sys, "argv", [script, "npo"])
    monkeypatch.setenv("PYTHONPATH", "before")
    monkeypatch.delitem(sys.modules, "stages")

    with pytest.raises(Started) as started:
        runpy.run_path(script, run_name="__main__")

    assert started.value.args[0] == ["-m", f"stages.{stage}", "npo"]
    assert os.environ["PYTHONPATH"].split(os.pathsep) == [str(ROOT), "before"]


def of_all(settings, root):
    raise AssertionError("the stage ran")


def of_a_name(settings, root, name):
    raise AssertionError("the stage ran")


@pytest.mark.parametrize(
    ("run", "arguments", "status", "said"),
    [
        (of_a_name, ["--help"], 0, "usage: python stages/sample.py NAME\n\n"),
        (of_all, ["-h"], 0, "usage: python stages/sample.py\n\n"),
        (of_a_name, [], 2, "usage: python stages/sample.py NAME; got no name."),
        (of_a_name, ["a", "b"], 2, "usage: python stages/sample.py NAME; got a b."),
        (of_all, ["a"], 2, "usage: python stages/sample.py; got a."),
    ],
)
def test_help_and_a_wrong_number_of_names_are_told(
    run, arguments, status, said, monkeypatch, capsys
):
    monkeypatch.setattr(sys, "argv", ["/x/stages/sample.py", *arguments])

    with pytest.raises(SystemExit) as left:
        entry(run, "__main__")

    assert left.value.code == status
    printed = capsys.readouterr()
    assert said in (printed.err if status else printed.out)


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["sample", "sources"])
def test_a_script_tells_its_usage_in_a_process_of_its_own(stage, tmp_path):
    script = str(Path(ROOT) / "stages" / f"{stage}.py")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}

    done = subprocess.run(
        [sys.executable, script, "--help"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"usage: python stages/{stage}.py")
    assert f"Stage `{stage}" in done.stdout
