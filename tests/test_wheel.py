"""The wheel of the repository: it installs only `lethe`, and its commands work in a folder without a pipeline."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import types
import zipfile
from pathlib import Path

import pytest

from tests.small import ROOT, environment

SOURCES = ("lethe", "flows", "stages", "pyproject.toml", "README.md", "LICENSE")


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    """The wheel, built from a copy of the sources and unpacked."""
    folder = tmp_path_factory.mktemp("wheel")
    for name in SOURCES:
        source, target = ROOT / name, folder / "sources" / name
        target.parent.mkdir(exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, target)
    command = ["pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--disable-pip-version-check"]
    subprocess.run(
        [sys.executable, "-m", *command, "--wheel-dir", folder, folder / "sources"], check=True, timeout=300
    )
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "installed")
    return folder / "installed"


@pytest.fixture
def run(installed, tmp_path):
    """Python in an empty folder, with the unpacked wheel first on its path and the repository not on it."""

    def run(*arguments: str) -> subprocess.CompletedProcess:
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=tmp_path,
            env={**environment(), "PYTHONPATH": str(installed), "LETHE_CACHE": str(tmp_path / "cache")},
            capture_output=True,
            text=True,
            timeout=120,
        )

    return run


def test_it_installs_lethe_alone_with_every_file(installed):
    (about,) = installed.glob("lethe-*.dist-info")
    assert sorted(path.name for path in installed.iterdir()) == ["lethe", about.name]
    assert (about / "top_level.txt").read_text().split() == ["lethe"]
    assert "lethe = lethe.cli.app:main" in (about / "entry_points.txt").read_text()
    packed = {str(path.relative_to(installed)) for path in installed.rglob("*") if path.is_file()}
    tracked = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "lethe").rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    assert tracked - packed == set()


def test_the_library_is_that_of_the_wheel(run, installed):
    done = run("-c", "import lethe; print(lethe.__file__)")
    assert Path(done.stdout.strip()) == installed / "lethe" / "__init__.py", done.stderr


def test_bounds_work_in_an_empty_folder(run, tmp_path):
    (tmp_path / "scores.csv").write_text("score\n" + "0\n" * 97 + "1\n" * 3)
    done = run("-m", "lethe", "bounds", "scores.csv", "--alpha", "0.05", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["worst_prompt"]["bound"] == pytest.approx(0.0757107937)


def test_a_model_is_evaluated_in_an_empty_folder(run, tmp_path):
    import torch

    from lethe.models import checkpoints

    recipe = types.SimpleNamespace(
        vocabulary=300, hidden=16, layers=1, heads=2, kv_heads=1, feed_forward=32, context=512
    )
    with torch.random.fork_rng():
        checkpoints.save(tmp_path / "tiny", *checkpoints.fresh(recipe, ["Ada is a painter."]))
    row = {"id": "a", "question": "Who is Ada?", "answer": "Ada is a painter.", "keywords": ["painter"]}
    (tmp_path / "forget.jsonl").write_text(json.dumps(row) + "\n")
    options = ("--model", "tiny", "--data", "forget.jsonl", "--n", "8", "--max-new-tokens", "4", "--json")
    done = run("-m", "lethe", "eval", *options)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert (result["n"], result["n_questions"]) == (8, 1)
    assert "Who is Ada?" in (tmp_path / result["report"]).read_text()


@pytest.mark.parametrize("command", ["run", "serve", "sweep", "study"])
def test_a_command_of_a_pipeline_says_where_it_works(run, tmp_path, command):
    done = run("-m", "lethe", command, "--preset", "x")
    assert done.returncode == 2
    assert os.fspath(tmp_path) in done.stderr
    assert "dvc.yaml" in done.stderr
