"""The flow of a meta-evaluation on Dask: the first models before all others, in batches, and what failed by name."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from lethe import config
from studies.meta_evaluation.flow import batches, write_params
from studies.meta_evaluation.pool import pool_of
from studies.meta_evaluation.settings import validate
from tests.small import ROOT
from tests.studies.small_meta import small_document

CHILD = """
import sys, time
from pathlib import Path
place, *names = sys.argv[1:]
for name in names:
    if name == "broken":
        sys.exit("the model is broken")
    if name not in ("base", "retrain"):
        assert Path("base").exists() and Path("retrain").exists(), "the others came first"
    time.sleep(0.05)
    Path(name).write_text(place)
"""
DRIVER = """
import sys
from pathlib import Path
from types import SimpleNamespace
from studies.meta_evaluation.flow import run
root, *rest = sys.argv[1:]
run(Path(root), Path("params.yaml"), SimpleNamespace(first=["base", "retrain"], rest=rest), 2, 2, None)
"""


@pytest.fixture
def drive(tmp_path, prefect):
    """Run the flow over stub models in a folder of its own."""
    (tmp_path / "flows").mkdir()
    (tmp_path / "flows/__init__.py").touch()
    (tmp_path / "flows/meta_child.py").write_text(CHILD)
    environment = {**os.environ, **prefect, "PYTHONPATH": str(ROOT), "DASK_LOGGING__DISTRIBUTED": "error"}

    def run(*rest: str) -> subprocess.CompletedProcess:
        command = [sys.executable, "-c", DRIVER, str(tmp_path), *rest]
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300, check=False
        )

    return run


def test_every_model_is_worked_and_a_failure_is_named(drive, tmp_path):
    done = drive("a", "b", "c", "broken", "d")
    assert done.returncode == 1
    assert "c, broken: the model is broken" in done.stderr
    assert "continues with what is left" in done.stderr
    assert {"base", "retrain", "a", "b", "c", "d"} <= {path.name for path in tmp_path.iterdir()}
    assert "5 of 5 batches" in done.stdout + done.stderr


def test_batches_are_in_order_and_complete():
    assert list(batches("abcde", 2)) == [["a", "b"], ["c", "d"], ["e"]]


def test_the_params_of_a_run_are_read_as_they_were_written(tmp_path):
    document = small_document()
    place = write_params(tmp_path, "tiny", document)
    read, given = validate(config.read_yaml(tmp_path / place), "p"), validate(document, "p")
    assert read == given
    assert [model.name for model in pool_of(read)] == [model.name for model in pool_of(given)]
