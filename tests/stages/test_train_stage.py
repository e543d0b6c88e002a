"""Training by DVC alone: the same bytes whatever the environment asks for, after a kill, and by two processes."""

import copy
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.numpy import load_file

from lethe.instruction_set import VARIABLES
from lethe.io.files import read_json
from tests import golden
from tests.small import environment, make_repository, run, small_params, write_params

pytestmark = pytest.mark.slow
MODEL = "models/base/model.safetensors"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder where DVC trained Base while every variable asked for kernels that give other bytes."""
    folder = make_repository(tmp_path_factory.mktemp("trained") / "lethe", small_params())
    kernels = dict.fromkeys(VARIABLES, "") | {
        "ATEN_CPU_CAPABILITY": "default",
        "MKL_CBWR": "SSE4_2",
    }
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
    first = subprocess.Popen(
        stage, cwd=folder, env=environment(), stdout=subprocess.PIPE, text=True
    )
    assert first.stdout.readline() == "third step\n"
    first.kill()
    first.communicate()
    models = folder / "data/models"
    assert not (models / "base").exists()
    run(folder, "stages.train", "base")
    assert (folder / "data" / MODEL).read_bytes() == (trained / "data" / MODEL).read_bytes()
    assert {path.name for path in models.iterdir()} == {".gitkeep", "base"}


def test_two_processes_take_the_steps_of_one_that_takes_them_in_two_parts(tmp_path):
    params = small_params()
    params["data"]["authors"] = {"count": 20, "heldout": 2, "world_facts": 2}
    params["train"]["recipe"] |= {"epochs": 1}
    params["unlearn"]["methods"]["npo_entropy"] |= {"epochs": 2}
    folder = make_repository(tmp_path / "lethe", params, git=False)
    run(folder, "stages.prepare")
    run(folder, "stages.train", "base")
    found = []
    for compute in ({"accumulate": 2}, {"processes": 2}):
        other = copy.deepcopy(params)
        other["unlearn"]["recipe"]["compute"] = compute
        write_params(folder, other)
        run(folder, "stages.unlearn", "npo_entropy")
        made = folder / "data/models/npo_entropy"
        found.append(
            (load_file(made / "model.safetensors"), read_json(made / "training.json")["steps"])
        )
    for in_parts, by_processes in zip(found[0][1], found[1][1], strict=True):
        assert by_processes == pytest.approx(in_parts, rel=1e-4, abs=1e-5)
    assert all(
        abs(found[1][0][name] - weights).max() < 2e-4 for name, weights in found[0][0].items()
    )

    other["unlearn"]["methods"]["npo_entropy"]["lr"] = 1e30
    write_params(folder, other)
    failed = run(
        folder, "stages.unlearn", "npo_entropy", check=False, timeout=120
    )  # both processes end
    assert failed.returncode == 1
    assert load_file(made / "model.safetensors").keys() == found[1][0].keys()
    assert read_json(made / "training.json")["steps"] == found[1][1], "the folder is as it was"
