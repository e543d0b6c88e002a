"""The whole pipeline with params that take seconds per stage, for the end-to-end tests."""

import importlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from lethe import identity
from lethe.identity import library  # a test replaces the module's own
from lethe.tracking import MEASURING

ROOT = Path(__file__).parent.parent
COPIED = (
    *(
        "lethe",
        "stages",
        "flows",
        "studies",
        "dvc.yaml",
        "params.yaml",
        ".dvcignore",
        "pyproject.toml",
    ),
    *("data/source/README.md", "data/labels/calibration.csv", "data/labels/answers.jsonl"),
)
# Folders of data/ that stages read and no stage need fill.
MAY_BE_EMPTY = ("attacks", "audits", "games", "judged", "models")


def small_params() -> dict[str, Any]:
    """The committed params, with smaller values for everything that takes time."""
    params = yaml.safe_load((ROOT / "params.yaml").read_text())
    params["data"]["authors"] = {"count": 20, "heldout": 4, "world_facts": 5}
    params["train"]["recipe"] |= {
        "vocabulary": 400,
        "hidden": 32,
        "layers": 1,
        "feed_forward": 64,
        "epochs": 8,
    }
    methods = params["unlearn"]["methods"]
    methods["npo_entropy"] |= {"epochs": 4}
    params["unlearn"]["methods"] = {"npo_entropy": methods["npo_entropy"]}
    params["models"] = {
        name: params["models"][name] for name in ("base", "retrain", "npo_entropy_at")
    }
    params["sample"] |= {
        "stop": "fixed",
        "n": 64,
        "utility_n": 4,
        "utility_questions": 5,
        "max_new_tokens": 16,
    }
    params["exact"] |= {"rows": 60}
    params["report"]["models"] = None
    return params


def tiny_params() -> dict[str, Any]:
    """`small_params`, small enough for every stage to take less than a second."""
    params = small_params()
    params["data"]["authors"] = {"count": 20, "heldout": 4, "world_facts": 4}
    params["train"]["recipe"]["epochs"] = 3
    params["unlearn"]["methods"]["npo_entropy"]["epochs"] = 2
    params["sample"] |= {"n": 32, "utility_n": 3, "utility_questions": 3, "max_new_tokens": 8}
    params["extract"] = {"suffix": 8, "near": 1, "beam": 2, "further": 0, "samples": 4}
    return params


def stages_of(params: dict[str, Any]) -> list[str]:
    """The stages of a pipeline without judges, attacks, audits and games, in an order in which they can run."""
    return [
        "prepare",
        *(f"train@{name}" for name in params["train"]["models"]),
        *(f"unlearn@{name}" for name in params["unlearn"]["methods"]),
        "references",
        *(f"{stage}@{name}" for name in params["models"] for stage in MEASURING),
        *("compare", "report"),
    ]


def make_repository(folder: Path, params: dict[str, Any], git: bool = True) -> Path:
    """A copy of the project's sources with these params, under git and DVC as a clone would be."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in COPIED:
        source, target = ROOT / name, folder / name
        if source.is_dir():
            # With compiled modules, which stay valid: a copy keeps the times of its sources.
            shutil.copytree(source, target)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target)
    (folder / ".dvc").mkdir()
    shutil.copy(ROOT / ".dvc/config", folder / ".dvc/config")
    for name in MAY_BE_EMPTY:
        (folder / "data" / name).mkdir()
        (folder / "data" / name / ".gitkeep").touch()
    write_params(folder, params)
    if git:
        shutil.copy(ROOT / ".gitignore", folder / ".gitignore")
        for command in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "copy"]):
            subprocess.run(
                ["git", "-c", "user.name=t", "-c", "user.email=t@t", *command],
                cwd=folder,
                check=True,
            )
    return folder


def fresh_copy(folder: Path) -> Path:
    return make_repository(folder, yaml.safe_load((ROOT / "params.yaml").read_text()), git=False)


def write_params(folder: Path, params: dict[str, Any]) -> None:
    (folder / "params.yaml").write_text(yaml.safe_dump(params, sort_keys=False))


def environment(*without: str) -> dict[str, str]:
    """The environment of a fresh shell with this interpreter first on the path, ``without`` what begins so."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    kept = {key: value for key, value in os.environ.items() if not key.startswith(without)}
    return kept | {"PATH": path, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}


def python(
    folder: Path, *arguments: str, check: bool = True, timeout: float = 600, **more: str
) -> subprocess.CompletedProcess:
    """Run this interpreter in a folder, with ``more`` in its environment."""
    told = {"capture_output": True, "text": True, "timeout": timeout, "check": False}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment() | more, **told
    )
    if check and done.returncode:
        raise AssertionError(
            f"{arguments} left with {done.returncode}:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        )
    return done


def run(folder: Path, *command: str, **how: Any) -> subprocess.CompletedProcess:
    return python(folder, "-m", *command, **how)


def run_in_one_process(folder: Path, *stages: str, timeout: float = 600) -> None:
    """Run stages of the copy one after another as `tests.one_process` does."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT))
        run(folder, "tests.one_process", *stages, timeout=timeout)


def touched(module: str) -> identity.Sources:
    """The library's sources, with one more comment in one module."""
    known = library()
    sources = identity.Sources(ROOT)
    sources.sources = {**known.sources, module: known.source(module) + b"\n# touched\n"}
    sources.places = known.places
    # Parsed already; the module itself is parsed anew.
    sources.imported = _without(known.imported, module)
    sources.constants = _without(known.constants, module)
    sources.passed_on = _without(known.passed_on, module)
    return sources


def _without(parsed: dict[str, Any], module: str) -> dict[str, Any]:
    return {name: found for name, found in parsed.items() if name != module}


def work(stage: str) -> None:
    name, _, key = stage.partition("@")
    importlib.import_module(f"stages.{name}").main(*([key] if key else []))


def one_after_another(function: Callable, arguments: Sequence[tuple], label: str) -> list:
    """The work of a game or landscape in this process."""
    return [function(*call) for call in arguments]
