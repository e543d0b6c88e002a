"""The wheel of the repository: it installs only `lethe`, and its commands work in a folder without a pipeline."""

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.cases import cases
from tests.lethe.small_checkpoint import ROWS, save_small_checkpoint
from tests.small import ROOT, environment

SOURCES = ("lethe", "flows", "stages", "pyproject.toml", "README.md", "LICENSE")


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    """The wheel, built from a copy of the sources and unpacked."""
    folder = tmp_path_factory.mktemp("wheel")
    for name in SOURCES:
        source = ROOT / name
        target = folder / "sources" / name
        target.parent.mkdir(exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, target)
    command = [
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--disable-pip-version-check",
    ]
    subprocess.run(
        [sys.executable, "-m", *command, "--wheel-dir", folder, folder / "sources"],
        check=True,
        timeout=300,
    )
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "installed")
    return folder / "installed"


@pytest.fixture
def run(installed, tmp_path):
    """Python in an empty folder, with the unpacked wheel first on its path and the repository not on it.

    With ``only``, a folder with a sitecustomize, Python begins with that.
    """

    def run(*arguments: str, only: Path | None = None) -> subprocess.CompletedProcess:
        path = os.pathsep.join(str(folder) for folder in (only, installed) if folder)
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=tmp_path,
            env={**environment(), "PYTHONPATH": path, "LETHE_CACHE": str(tmp_path / "cache")},
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
    save_small_checkpoint(tmp_path / "tiny")
    (tmp_path / "forget.jsonl").write_text(json.dumps(ROWS[0]) + "\n")
    options = (
        "--model",
        "tiny",
        "--data",
        "forget.jsonl",
        "--n",
        "8",
        "--max-new-tokens",
        "4",
        "--json",
    )
    done = run("-m", "lethe", "eval", *options)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert (result["n"], result["n_questions"]) == (8, 1)
    assert "Who is Ada?" in (tmp_path / result["report"]).read_text()


FINDER = """
import sys
from importlib.machinery import PathFinder


class Finder:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        absent = top not in {modules} and top not in sys.stdlib_module_names and not top.startswith("_")
        if absent and PathFinder.find_spec(top):
            raise ModuleNotFoundError(f"No module named {{top!r}}", name=top)


sys.meta_path.insert(0, Finder())
"""


def needed(packages: set[str], names: list[str]) -> set[str]:
    """The packages ``names`` and all that they need, added to ``packages``."""
    for name in map(canonicalize_name, names):
        if name not in packages:
            packages.add(name)
            required = []
            for wanted in map(Requirement, metadata.requires(name) or []):
                if wanted.marker is None or wanted.marker.evaluate({"extra": ""}):
                    required.append(wanted.name)
            needed(packages, required)
    return packages


@pytest.fixture(scope="module")
def light(installed, tmp_path_factory) -> Path:
    """A folder whose sitecustomize hides every package that `pip install lethe` would not bring."""
    (about,) = installed.glob("lethe-*.dist-info")
    wanted = [Requirement(line) for line in metadata.Distribution.at(about).requires or []]
    packages = needed(set(), [package.name for package in wanted if package.marker is None])
    providers = metadata.packages_distributions()
    modules = {
        name for name, by in providers.items() if packages & set(map(canonicalize_name, by))
    } | {"lethe"}
    folder = tmp_path_factory.mktemp("light")
    (folder / "sitecustomize.py").write_text(FINDER.format(modules=sorted(modules)))
    return folder


@cases
def test_a_log_needs_no_model_and_no_pipeline(run, light, tmp_path, call):
    shutil.copytree(ROOT / "tests/contract/inputs", tmp_path, dirs_exist_ok=True)
    done = run("-m", "lethe", *call.split(), only=light)
    assert done.returncode in (0, 1), done.stderr
    assert "Traceback" not in done.stderr


@cases
def test_a_command_names_the_extra_that_it_needs(run, light, tmp_path, call, extra):
    shutil.copytree(ROOT / "tests/contract/inputs", tmp_path, dirs_exist_ok=True)
    (tmp_path / "m").mkdir()
    done = run("-m", "lethe", *call.split(), only=light)
    assert done.returncode == 2
    assert re.search(rf"the extra {extra} .*lethe\[{extra}\]", done.stderr)


@pytest.mark.parametrize("command", ["run", "serve", "sweep", "study"])
def test_a_command_of_a_pipeline_says_where_it_works(run, tmp_path, command):
    done = run("-m", "lethe", command, "--preset", "x")
    assert done.returncode == 2
    assert os.fspath(tmp_path) in done.stderr
    assert "dvc.yaml" in done.stderr
