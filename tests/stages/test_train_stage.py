"""Training by DVC alone: the same bytes whatever the environment asks for, and after a kill."""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lethe.instruction_set import VARIABLES
from tests import golden
from tests.small import environment, make_repository, run, small_params

pytestmark = pytest.mark.slow
MODEL = "models/base/model.safetensors"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder where DVC trained Base while every variable asked for kernels that give other bytes."""
    folder = make_repository(tmp_path_factory.mktemp("trained") / "lethe", small_params())
    kernels = dict.fromkeys(VARIABLES, "") | {"ATEN_CPU_CAPABILITY": "default", "MKL_CBWR": "SSE4_2"}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in kernels.items():
            patch.setenv(name, value)
        run(folder, "dvc", "repro", "train@base")
    return folder


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the golden values are those of x86-64")
def test_the_environment_may_ask_for_other_kernels(trained):
    assert golden.hashes(trained / "data") == {MODEL: golden.committed("small")[MODEL]}


STOPPED_AT_THE_THIRD_STEP = """
import time
from lethe.models import training
from stages import train

def steps(*arguments, **options):
    for number, step in enumerate(every(*arguments, **options), start=1):
        if number == 3:
            print("third step", flush=True)
            time.sleep(600)
        yield step

every, training.progress = training.progress, steps
train.main("base")
"""


def test_a_killed_training_leaves_nothing_and_runs_again(trained, tmp_path):
    """kill -9 in the middle of training: no model is left, and the next run makes the same model."""
    folder = make_repository(tmp_path / "lethe", small_params())
    shutil.copytree(trained / "data/dataset", folder / "data/dataset")
    stage = [sys.executable, "-c", STOPPED_AT_THE_THIRD_STEP]
    first = subprocess.Popen(stage, cwd=folder, env=environment(), stdout=subprocess.PIPE, text=True)
    assert first.stdout.readline() == "third step\n"
    first.kill()
    first.communicate()
    models = folder / "data/models"
    assert not (models / "base").exists()
    run(folder, "stages.train", "base")
    assert (folder / "data" / MODEL).read_bytes() == (trained / "data" / MODEL).read_bytes()
    assert {path.name for path in models.iterdir()} == {".gitkeep", "base"}
