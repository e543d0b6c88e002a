"""The wheel of the repository: it installs only `lethe`, and its commands work in a folder without a pipeline."""

import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.cases import cases
from tests.lethe.small_checkpoint import ROWS, save_small_checkpoint
from tests.small import ROOT, environment

pytestmark = pytest.mark.slow

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
    """Python in an empty folder, with the unpacked wheel first on its path and the repository not on it."""

    def run(*arguments: str) -> subprocess.CompletedProcess:
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=tmp_path,
            env={
                **environment(),
                "PYTHONPATH": str(installed),
                "LETHE_CACHE": str(tmp_path / "cache"),
            },
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


# Reads arguments of `lethe` as lists of JSON, a line each, and runs each call in a fork, which has the imports of all.
FORKS = """
import json, os, sys
from lethe.instruction_set import fix_instruction_set
fix_instruction_set()
import pandas, pyarrow.parquet, scipy.stats, lethe.api.bounding, lethe.cli.hooks.bounding
from lethe.cli import app
for number, line in enumerate(sys.stdin):
    child = os.fork()
    if not child:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for descriptor, name in ((1, "out"), (2, "err")):
            os.dup2(os.open(f"{number}.{name}", os.O_WRONLY | os.O_CREAT), descriptor)
        sys.argv = ["lethe", *json.loads(line)]
        try:
            app.main()
        finally:
            sys.stdout.flush()
    _, status = os.waitpid(child, 0)
    print(os.waitstatus_to_exitcode(status), flush=True)
"""


@pytest.fixture(scope="module")
def forks(installed, light, tmp_path_factory) -> Iterator[Callable[[str], tuple[int, str]]]:
    """Exit status and errors of a call in a folder of inputs, without the packages that `light` hides."""
    folder = tmp_path_factory.mktemp("inputs")
    shutil.copytree(ROOT / "tests/contract/inputs", folder, dirs_exist_ok=True)
    (folder / "m").mkdir()
    path = os.pathsep.join(map(str, (light, installed)))
    process = subprocess.Popen(
        [sys.executable, "-c", FORKS],
        cwd=folder,
        env={**environment(), "PYTHONPATH": path, "LETHE_CACHE": str(folder / "cache")},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    numbers = itertools.count()

    def call(command: str) -> tuple[int, str]:
        process.stdin.write(json.dumps(command.split()) + "\n")
        process.stdin.flush()
        status = int(process.stdout.readline())
        return status, (folder / f"{next(numbers)}.err").read_text()

    yield call
    process.stdin.close()
    process.wait(timeout=60)


@cases
def test_a_log_needs_no_model_and_no_pipeline(forks, call):
    status, errors = forks(call)

    assert status in (0, 1), errors
    assert "Traceback" not in errors


@cases
def test_a_command_names_the_extra_that_it_needs(forks, call, extra):
    status, errors = forks(call)

    assert status == 2
    assert re.search(rf"the extra {extra} .*lethe\[{extra}\]", errors)


@pytest.mark.parametrize("command", ["run", "serve", "sweep", "study"])
def test_a_command_of_a_pipeline_says_where_it_works(run, tmp_path, command):
    done = run("-m", "lethe", command, "--preset", "x")
    assert done.returncode == 2
    assert os.fspath(tmp_path) in done.stderr
    assert "dvc.yaml" in done.stderr
