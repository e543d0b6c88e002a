"""The stage `sources`: an edit runs again the entries whose output it can change, and no other."""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from dvc.repo import Repo

from lethe import config
from lethe.identity import Sources
from lethe.instruction_set import CHOICE, VARIABLES
from lethe.io.label_places import ANSWERS
from lethe.io.logs import READERS
from lethe.io.yaml import read_yaml
from stages import sources as hashed
from tests.cases import cases
from tests.small import ROOT, make_repository, python, run, small_params, stages_of, tiny_params

STAGES = {path.stem for path in (ROOT / "stages").glob("[a-z]*.py")} - {"sources", "stages"}
# Entries of the sections that the demonstration leaves empty, each with a member that another stage does not use.
MORE = {
    "attacks": {"noisy": {"path": "data/models/base", "after": {"kind": "noise"}}},
    "audits": {
        "told": {
            "kind": "guesses",
            "source": "data/source",
            "r": [10],
            "delta": 0.0,
            "alpha": 0.05,
            "method": "all",
            "seed": 0,
            "mechanism": "gaussian",
            "claimed_epsilon": None,
        }
    },
    "judges": {"said": {"judge": "nli", "model": "data/models/base", "labelled": ANSWERS}},
}


def params_of_all_stages() -> dict[str, Any]:
    params = small_params()
    methods = read_yaml(ROOT / "params.yaml")["unlearn"]["methods"]
    params["unlearn"]["methods"]["grad_diff"] = methods["grad_diff"]
    params["models"]["grad_diff"] = {"path": "data/models/grad_diff"}
    params["extract"] = {"near": 1}
    weights = {name: {"path": f"data/models/{name}"} for name in ("base", "retrain")}
    weights["npo_entropy_at"] = {"path": "data/models/npo_entropy"}
    weights["grad_diff"] = {"path": "data/models/grad_diff"}
    params["utility"] |= {"tasks": ["mmlu"], "models": weights}
    params["games"] = read_yaml(ROOT / "flows/presets/game-authors.yaml")["games"]
    return params | MORE


# An adapter with its base model inside, as DVC tracks it, of files that no command reads here.
ADAPTER = Path("data/adapted")


def params_with_adapter() -> dict[str, Any]:
    params = params_of_all_stages()
    params["models"]["adapted"] = {"path": str(ADAPTER)}
    params["utility"]["models"]["adapted"] = {"path": str(ADAPTER)}
    return params


def make_adapter(folder: Path) -> None:
    base = folder / ADAPTER / "base"
    base.mkdir(parents=True)
    (base / "config.json").write_text("{}")
    (base / "model.safetensors").write_bytes(bytes(64))
    settings = {"base_model_name_or_path": "base"}
    (base.parent / "adapter_config.json").write_text(json.dumps(settings))
    (base.parent / "adapter_model.safetensors").write_bytes(bytes(8))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The real graph of stages, whose commands only make their outputs, after one run."""
    place = tmp_path_factory.mktemp("sources") / "lethe"
    folder = make_repository(place, params_with_adapter(), git=False)
    make_adapter(folder)
    (folder / ".dvc/config.local").write_text("[core]\n    no_scm = true\n")
    graph = yaml.safe_load((folder / "dvc.yaml").read_text())
    for name, stage in graph["stages"].items():
        definition = stage.get("do", stage)
        if name == "sources":
            continue
        outs = [*definition["outs"], *definition.get("metrics", ())]
        definition["cmd"] = [f"mkdir -p $(dirname {out}) && echo '{{}}' > {out}" for out in outs]
    (folder / "dvc.yaml").write_text(yaml.safe_dump(graph, sort_keys=False))
    return folder


@pytest.fixture(scope="module")
def identities(folder) -> dict[str, Any]:
    return identities_of(folder)


def identities_of(folder: Path) -> dict[str, Any]:
    run(folder, "stages.sources")
    return json.loads((folder / "data/sources.json").read_text())


def identities_here(folder: Path) -> dict[str, Any]:
    return hashed.identities(folder, config.load(folder / "params.yaml"))


@contextlib.contextmanager
def edited(folder: Path, file: str, change: str) -> Iterator[None]:
    """An edit of a file of the copy: "OLD -> NEW" replaces text, any other text is added at the end."""
    place = folder / file
    before = place.read_bytes() if place.is_file() else None
    content = (before or b"").decode()
    old, arrow, new = change.partition(" -> ")
    if arrow:
        assert content.count(old) == 1, f"{file} holds {old!r} {content.count(old)} times"
        content = content.replace(old, new)
    else:
        content += f"\n{change}\n"
    place.write_text(content)
    try:
        yield
    finally:
        if before is None:
            place.unlink()
        else:
            place.write_bytes(before)


def changed_stages(before: dict[str, Any], after: dict[str, Any]) -> set[str]:
    """The stages of which an entry changed; ``unlearn@npo_entropy`` where others of its entries did not."""
    changed = set()
    for stage, entries in after.items():
        if before[stage] == entries:
            continue
        if isinstance(entries, str):
            changed.add(stage)
            continue
        names = {name for name in entries if before[stage][name] != entries[name]}
        changed |= {stage} if names == set(entries) else {f"{stage}@{name}" for name in names}
    return changed


def test_every_stage_of_dvc_yaml_has_a_script_and_takes_its_own_identity():
    stages = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]

    assert set(stages) == STAGES | {"sources"}
    for name in STAGES:
        definition = stages[name].get("do", stages[name])
        (taken,) = [
            entry["data/sources.json"] for entry in definition["params"] if isinstance(entry, dict)
        ]
        assert taken == ([f"{name}.${{key}}"] if "foreach" in stages[name] else [name])
    assert len((ROOT / "dvc.yaml").read_text().splitlines()) <= 300


@pytest.mark.slow
@pytest.mark.parametrize("stage", sorted(STAGES))
def test_no_stage_depends_on_a_reader_of_another_tools_log(stage):
    readers = {f"lethe.io.logs.{name}" for name in READERS}

    assert not readers.intersection(Sources(ROOT).closure(f"stages.{stage}"))


@pytest.mark.parametrize("stage", ["sample", "score", "compare", "report"])
def test_the_words_of_results_count_though_the_module_of_errors_passes_them_on(stage):
    closure = Sources(ROOT).closure(f"stages.{stage}")

    assert "lethe.wording" in closure
    assert "lethe.errors" not in closure


@pytest.mark.slow
@cases
def test_an_edit_changes_the_identity_of_the_stages_whose_output_it_can_change(
    folder, identities, file, change, stages
):
    of_settings = file.startswith("lethe/config/") or not (folder / file).exists()

    with edited(folder, file, change):
        # Settings and lists of members are those of the process; for an edit of other code this process does.
        after = identities_of(folder) if of_settings else identities_here(folder)

    every, _, but = stages.partition(" but ")
    expected = STAGES - set(but.split()) if every == "all" else set(stages.split())
    assert changed_stages(identities, after) == expected


@pytest.mark.slow
@cases
def test_an_edit_makes_dvc_run_exactly_the_entries_whose_identity_it_changes(
    folder, file, change, entries
):
    run(folder, "dvc", "repro")

    with edited(folder, file, change):
        identities_of(folder)
        stale = stale_entries(folder)

    assert stale == set(entries.split())
    identities_of(folder)
    assert stale_entries(folder) == set()


def stale_entries(folder: Path) -> set[str]:
    """The entries that `dvc status` calls changed."""
    with Repo(str(folder)) as repo:
        return {name.rpartition(":")[2] for name in repo.status()} - {"sources"}


@pytest.mark.slow
@pytest.mark.parametrize("file", ["base/model.safetensors", "base/config.json"])
def test_one_byte_of_an_adapters_base_makes_dvc_run_exactly_the_stages_that_read_the_model(
    folder, file
):
    run(folder, "dvc", "repro")
    place = folder / ADAPTER / file
    before = place.read_bytes()
    assert stale_entries(folder) == set()

    place.write_bytes(b"\1" + before[1:])
    stale = stale_entries(folder)
    place.write_bytes(before)

    readers = ("sample", "likelihood", "exact", "extract", "epsilon_star", "twins", "utility")
    assert stale == {f"{stage}@adapted" for stage in readers}


@pytest.mark.slow
def test_a_stage_runs_no_code_that_its_identity_lacks(tmp_path):
    """`tests.traced` runs the stages and prints, for each, the files and the computed settings that it used unhashed."""
    params = tiny_params() | {"attacks": MORE["attacks"]}
    params["attacks"]["noisy"]["n"] = 4
    folder = make_repository(tmp_path / "lethe", params, git=False)
    stages = [*stages_of(params), "attack@noisy"]

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT))
        done = run(folder, "tests.traced", *stages)

    unhashed = json.loads(done.stdout.splitlines()[-1])
    assert unhashed == {stage: [] for stage in stages}


@pytest.mark.slow
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
    python = tmp_path / ".venv/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\necho "$@"\n')
    python.chmod(0o755)
    done = start(tmp_path)
    assert done.stdout.split()[-3:] == ["-m", "stages.metrics", "nothing"], done.stderr


def test_without_one_it_says_what_to_do(tmp_path):
    done = start(tmp_path)
    assert done.returncode == 1
    assert "Activate" in done.stderr
    assert "Traceback" not in done.stderr
