"""The stage `sources`: an edit of a module runs again the stages that can load the module, and no other."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from dvc.repo import Repo

from lethe.instruction_set import CHOICE, VARIABLES
from lethe.io.cache import Sources
from stages import sources as hashed
from tests.cases import cases
from tests.small import ROOT, make_repository, python, run, small_params

STAGES = {path.stem for path in (ROOT / "stages").glob("[a-z]*.py")}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The real graph of stages, whose commands only make their outputs."""
    params = small_params()
    params["unlearn"]["methods"]["grad_diff"] = yaml.safe_load((ROOT / "params.yaml").read_text())[
        "unlearn"
    ]["methods"]["grad_diff"]
    folder = make_repository(tmp_path_factory.mktemp("sources") / "lethe", params, git=False)
    (folder / ".dvc/config.local").write_text("[core]\n    no_scm = true\n")
    graph = yaml.safe_load((folder / "dvc.yaml").read_text())
    for name, stage in graph["stages"].items():
        own = stage.get("do", stage)
        if name != "sources":
            outs = [*own["outs"], *own.get("metrics", ())]
            own["cmd"] = [f"mkdir -p $(dirname {out}) && echo '{{}}' > {out}" for out in outs]
    (folder / "dvc.yaml").write_text(yaml.safe_dump(graph, sort_keys=False))
    run(folder, "dvc", "repro")
    return folder


def stale(folder) -> set[str]:
    hashed.run(folder, folder / "data/sources.json")
    with Repo(str(folder)) as repo:
        return {name.rpartition(":")[2] for name in repo.status()} - {"sources"}


def names(folder) -> list[str]:
    with Repo(str(folder)) as repo:
        return [stage.name for stage in repo.index.stages if stage.name != "sources"]


def test_every_stage_of_dvc_yaml_has_a_script_and_takes_its_own_hash():
    stages = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]
    assert set(stages) == STAGES
    for name in STAGES - {"sources"}:
        own = stages[name].get("do", stages[name])
        (hashes,) = [
            entry["data/sources.json"] for entry in own["params"] if isinstance(entry, dict)
        ]
        assert hashes[0] == name
    assert len((ROOT / "dvc.yaml").read_text().splitlines()) <= 300


@cases
def test_an_edit_runs_exactly_the_stages_whose_closure_has_the_module(folder, module):
    sources = Sources(folder)
    members = {
        "unlearn@npo_entropy": ("lethe.unlearning.methods.npo", "lethe.unlearning.methods"),
        "unlearn@grad_diff": ("lethe.unlearning.methods.ascent", "lethe.unlearning.methods"),
        "prepare": ("lethe.data.kinds.authors", "lethe.data.kinds"),
    }
    expected = set()
    for stage in names(folder):
        member, package = members.get(stage, (None, ""))
        modules = [f"stages.{stage.partition('@')[0]}", *([member] if member else [])]
        if module in sources.closure(*modules, by_name=True, without=(package,) if package else ()):
            expected.add(stage)
    place = sources.place(module)
    content = place.read_bytes()
    place.write_bytes(content + b"\n# edited\n")
    try:
        assert stale(folder) == expected
    finally:
        place.write_bytes(content)


def test_a_template_counts_with_the_modules_beside_it(folder):
    place = folder / "lethe/report/style.css"
    content = place.read_bytes()
    place.write_bytes(content + b"\n")
    try:
        assert stale(folder) == {"report"}
    finally:
        place.write_bytes(content)
    assert stale(folder) == set()


def test_a_stage_fixes_its_kernels_before_it_loads_a_numerical_library(project):
    """Afterwards the fix would end in a traceback; so the stage comes as far as the name that params.yaml lacks."""
    clean = {name: value for name, value in os.environ.items() if name not in {*VARIABLES, CHOICE}}
    command = [sys.executable, "-m", "stages.attack", "none"]
    ended = subprocess.run(
        command, cwd=project, env=clean, capture_output=True, text=True, check=False
    )
    assert (ended.returncode, "attack" in ended.stderr) == (2, True), ended.stderr
    script = "import sys, stages.attack; print([name for name in ('numpy', 'torch') if name in sys.modules])"
    assert python(project, "-c", script).stdout.strip() == "['numpy']"


def start(folder: Path) -> subprocess.CompletedProcess:
    (folder / "stages").symlink_to(ROOT / "stages")
    # -S: without site-packages, as a system's python is.
    command = [sys.executable, "-S", "-m", "stages.metrics", "nothing"]
    clean = {
        key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "DVC"))
    }
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
