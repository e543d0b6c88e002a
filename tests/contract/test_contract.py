"""Each command of the contract gives the recorded JSON, whose numbers are rows of its table, and prints the golden words."""

import contextlib
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.contract.commands import (
    CASES,
    RECORDED,
    Case,
    called,
    differences,
    make_model,
    result_of,
)
from tests.contract.terminal import GOLDEN, printed

RESULTS = json.loads(RECORDED.read_text(encoding="utf-8"))


def test_every_case_is_recorded():
    assert list(RESULTS) == [case.name for case in CASES]


MEASURING = ("bounds", "exact", "audit", "label", "eval", "compare", "score tofu-log")
GIVEN = ("tau",)  # what the user typed
SUCCEED = [
    case
    for case in CASES
    if case.call.startswith(MEASURING) and "--table" not in case.call and not case.in_repository
]


class Cases:
    """Runs each case once for all tests, in a folder of its own."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.model = make_model(root / "model")
        self.found: dict[str, dict[str, Any]] = {}

    def folder(self, case: Case) -> Path:
        return self.root / "cases" / case.name

    def result(self, case: Case) -> dict[str, Any]:
        """What the case gives; its rows are then a table too, which changes nothing of that."""
        if case.name not in self.found:
            self.folder(case).mkdir(parents=True)
            table = case in SUCCEED and not case.call.startswith("eval")
            more = " --table rows.parquet" if table else ""
            self.found[case.name] = result_of(case, self.folder(case), self.model, more)
        return self.found[case.name]


@pytest.fixture(scope="session")
def cases(tmp_path_factory) -> Cases:
    return Cases(tmp_path_factory.mktemp("contract"))


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_a_command_keeps_its_contract(case, cases):
    differing = differences(RESULTS[case.name], cases.result(case), case.tolerance)
    assert list(differing) == []


def numbers(value: Any, key: str = "") -> Iterator[float]:
    """The real numbers in a value of JSON, without those under a key that is left out."""
    if key in GIVEN:
        return
    if isinstance(value, dict):
        for name, entry in value.items():
            yield from numbers(entry, name)
    elif isinstance(value, list):
        for entry in value:
            yield from numbers(entry)
    elif isinstance(value, float) and math.isfinite(value):
        yield value


def in_table(value: Any) -> Iterator[float]:
    """The numbers of a row, those of its evidence included."""
    if isinstance(value, str) and value[:1] in ("{", "["):
        value = json.loads(value)
    if isinstance(value, dict | list):
        for entry in value.values() if isinstance(value, dict) else value:
            yield from in_table(entry)
    elif isinstance(value, int | float) and math.isfinite(value):
        yield value


def shown(value: float) -> str:
    return f"{value:.12g}"


def with_table(call: str, name: str) -> str:
    """The call, which leaves its rows in a table of this name."""
    return f"{call} --name {name}" if call.startswith("eval") else f"{call} --table {name}.parquet"


def numbers_of_table(folder: Path, name: str) -> set[str]:
    files = [
        *folder.glob(f"{name}.parquet"),
        *folder.glob(f"data/eval/{name}/results/*/*.parquet"),
    ]
    rows = [row for file in files for row in pq.read_table(file).to_pylist()]
    return {shown(value) for row in rows for value in in_table(row)}


@pytest.mark.parametrize("case", SUCCEED, ids=[case.name for case in SUCCEED])
def test_a_number_of_json_is_a_number_of_the_table(case, cases):
    """What a gate says is a number of the table at the level of its try."""
    output = cases.result(case)["output"]
    folder = cases.folder(case)
    if output is None:
        assert not list(folder.rglob("rows.parquet"))
        return
    name = output["model"] if case.call.startswith("eval") else "rows"
    known = numbers_of_table(folder, name)
    if "tries" in output or "gate" in output:
        level = (output.get("tries") or output["gate"]["tries"])["alpha"]
        with contextlib.chdir(folder):
            called(with_table(f"{case.call} --alpha {level!r}", "tried"))
        known |= numbers_of_table(folder, "tried") | {shown(level)}
        threshold = output.get("gate", {}).get("threshold")  # typed with the call
        known |= set() if threshold is None else {shown(threshold)}
    printed = {shown(value) for value in numbers(output)}
    assert printed
    assert printed - known == set()


def test_the_commands_print_the_golden_words(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("LETHE_CACHE", str(tmp_path / "cache"))
    now = printed(tmp_path).splitlines()
    golden = GOLDEN.read_text(encoding="utf-8").splitlines()
    differing = [pair for pair in zip(golden, now, strict=False) if pair[0] != pair[1]]
    assert differing == []
    assert len(now) == len(golden)
