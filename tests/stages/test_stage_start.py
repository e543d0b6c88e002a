"""How every stage starts: no numerical library before the instruction set is fixed, and in a python with the libraries."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.small import ROOT

STAGES = sorted(path.stem for path in (ROOT / "stages").glob("*.py") if path.stem != "__init__")


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_loads_no_numerical_library_before_it_runs(stage, project):
    script = f"import sys, stages.{stage}\nprint([m for m in ('numpy', 'scipy', 'torch') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], cwd=project, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def start(folder: Path) -> subprocess.CompletedProcess:
    (folder / "stages").symlink_to(ROOT / "stages")
    # -S: without site-packages, as a system's python is.
    command = [sys.executable, "-S", "-m", "stages.metrics", "nothing"]
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "DVC"))}
    return subprocess.run(command, cwd=folder, env=clean, capture_output=True, text=True)


def test_the_environment_of_the_folder_takes_over(tmp_path):
    own = tmp_path / ".venv/bin/python"
    own.parent.mkdir(parents=True)
    own.write_text('#!/bin/sh\necho "$@"\n')
    own.chmod(0o755)
    done = start(tmp_path)
    assert done.stdout.split()[-3:] == ["-m", "stages.metrics", "nothing"], done.stderr


def test_without_one_it_says_what_to_do(tmp_path):
    done = start(tmp_path)
    assert done.returncode == 1
    assert "Activate" in done.stderr
    assert "Traceback" not in done.stderr
