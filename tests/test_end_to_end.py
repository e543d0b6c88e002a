"""The main job from params to report, with the small params; then a rerun, and a run with one changed param."""

import json
import os
import platform
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from lethe.results import table
from lethe.results.quantities import MOST
from tests import golden
from tests.small import environment, make_repository, run, small_params

# The whole small run takes minutes; `make test` has the tiny pipeline.
pytestmark = pytest.mark.slow

SECRET = "s3cr3t-0f-the-env1r0nment"
SECRETS = {
    **dict.fromkeys(
        ("AWS_SECRET_ACCESS_KEY", "HF_TOKEN", "OPENAI_API_KEY", "PGPASSWORD", "MY_TOKEN"), SECRET
    ),
    **dict.fromkeys(
        ("MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN", "DVC_STUDIO_TOKEN"), SECRET
    ),
    "MLFLOW_TRACKING_URI": f"http://user:{SECRET}@127.0.0.1:9",
}


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    folder = make_repository(tmp_path_factory.mktemp("clone") / "lethe", small_params())
    with pytest.MonkeyPatch.context() as patch:
        for name, value in SECRETS.items():
            patch.setenv(name, value)
        for name in [name for name in os.environ if name.startswith("PREFECT_")]:
            patch.delenv(name)  # of other tests of this process, whose server the run would take
        done = run(folder, "lethe", "run")
    assert "data/report/index.html" in done.stdout + done.stderr
    (folder.parent / "printed").write_text(done.stdout + done.stderr)
    return folder


def test_no_secret_of_the_environment_is_written_or_printed(repository):
    """Neither artifacts, logs, caches, the records of MLflow and Prefect, nor the terminal has one."""
    files = [
        path for path in [*repository.rglob("*"), repository.parent / "printed"] if path.is_file()
    ]
    names = {path.name for path in files}
    assert {"mlflow.db", "prefect.db", "index.html", "server.log"} <= names
    found = [str(path) for path in files if SECRET.encode() in path.read_bytes()]
    assert found == []
    assert "127.0.0.1:9 does not answer" in (repository.parent / "printed").read_text()


def lock(folder: Path) -> dict:
    return yaml.safe_load((folder / "dvc.lock").read_text())["stages"]


def test_the_run_ends_with_a_report_and_numbers_that_make_sense(repository):
    page = (repository / "data/report/index.html").read_text()
    assert "npo_entropy_at" in page
    results = table.read(repository / "data")
    assert set(results.by_model) == set(small_params()["models"])
    for name in results.by_model:
        values = results.model(name).values
        assert values["mean"] <= values["m_mu_worst"] <= 1
        assert values["binary_mean"] <= values["m_bin_pooled"] <= values["m_bin_worst"] <= 1
        assert values["tree_lower_worst"] <= values["tree_upper_worst"] <= 1
        assert len(results.questions(name)) == values["n_questions"]
    likely = {name: results.model(name).values["forget_probability"] for name in results.by_model}
    assert likely["base"] > max(likely["retrain"], likely["npo_entropy_at"])


def test_dvc_shows_few_numbers_per_model_in_130_columns(repository):
    shown = run(repository, "dvc", "metrics", "show").stdout.splitlines()
    assert len(shown) == 1 + 2 * len(small_params()["models"])  # of bounds, and of traces
    assert max(map(len, shown)) <= 130
    told = json.loads(run(repository, "dvc", "metrics", "show", "--json").stdout)[""]["data"]
    numbers = [set(file["data"]) - {"schema"} for file in told.values()]
    assert {len(names) for names in numbers} <= set(range(1, MOST + 1))
    assert "m_bin_worst" in told["data/metrics/base.json"]["data"]


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the golden values are those of x86-64")
def test_every_machine_makes_the_same_values(repository):
    assert golden.differences(golden.hashes(repository / "data"), golden.committed("small")) == []


def test_after_the_run_nothing_is_stale_and_nothing_runs_again(repository):
    assert "up to date" in run(repository, "dvc", "status").stdout
    before = lock(repository)
    done = run(repository, "dvc", "repro")
    assert "Running stage" not in done.stdout
    again = json.loads(run(repository, "lethe", "run", "--json").stdout)
    assert set(again["stages"]) == set(before)
    assert {stage["why"] for stage in again["stages"].values()} == {"clean"}
    assert lock(repository) == before


def test_a_killed_sampling_resumes_to_the_same_answers(repository, tmp_path):
    """kill -9 in the middle of sampling: the finished questions are kept, the result is that of an undisturbed run."""
    other = make_repository(tmp_path / "lethe", small_params())
    for name in ("dataset", "models"):
        subprocess.run(
            ["cp", "-r", str(repository / "data" / name), str(other / "data")], check=True
        )
    stage = [sys.executable, "-m", "stages.sample", "base"]
    first = subprocess.Popen(stage, cwd=other, env=environment())
    scratch = other / ".lethe/scratch"
    deadline = time.monotonic() + 120
    while not list(scratch.rglob("*.json")):
        assert time.monotonic() < deadline
        assert first.poll() is None, "sampling was over before a question was kept"
        time.sleep(0.01)
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    assert not (other / "data/generations/base").exists()
    run(other, "stages.sample", "base")
    for split in ("forget", "retain", "world"):
        place = f"data/generations/base/{split}.parquet"
        assert (other / place).read_bytes() == (repository / place).read_bytes()
    assert not list(scratch.rglob("*.json"))
