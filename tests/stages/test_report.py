"""Stage `report` as DVC runs it: complete files, the same bytes again, a broken artifact named."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lethe import config
from tests.lethe.report.synthetic import write_run
from tests.small import ROOT


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("stage")
    models = config.read_yaml(ROOT / "params.yaml")["models"]
    write_run(root, questions=3, n=32, models={name: models[name] for name in ("base", "retrain", "npo")})
    return root


def report(root: Path) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "stages.report"],
        cwd=root,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
    )


def content(root: Path) -> dict[str, bytes]:
    folder = root / "data/report"
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_writes_complete_files(root):
    done = report(root)
    assert done.returncode == 0, done.stderr
    plots = {"plots/m_gen.json", "plots/per_question.json", "plots/training_loss.json"}
    assert {"index.html", "summary.json", *plots, "figures/questions-base.svg"} <= set(content(root))


def test_a_broken_artifact_is_named_and_the_old_report_stays(root):
    before = content(root) or (report(root) and content(root))
    path = root / "data/results/metrics/npo.parquet"
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    done = report(root)
    path.write_bytes(whole)
    assert done.returncode == 2
    assert "data/results/metrics/npo.parquet" in done.stderr
    assert "Traceback" not in done.stderr
    assert content(root) == before
