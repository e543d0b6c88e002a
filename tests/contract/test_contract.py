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
    called,
    differences,
    lay_out,
    make_model,
    result_of,
)
from tests.contract.terminal import GOLDEN, printed

RESULTS = json.loads(RECORDED.read_text(encoding="utf-8"))


def test_every_case_is_recorded():
    assert list(RESULTS) == [case.name for case in CASES]


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_a_command_keeps_its_contract(case, tmp_path, model):
    found = result_of(case, tmp_path, model)
    assert list(differences(RESULTS[case.name], found, case.tolerance)) == []


@pytest.fixture(scope="session")
def model(tmp_path_factory) -> Path:
    return make_model(tmp_path_factory.mktemp("contract") / "model")


MEASURING = ("bounds", "exact", "audit", "label", "eval", "compare", "score tofu-log")
# What the user typed, and what a gate says: at the level of its try, which the rows' evidence gives.
GIVEN = ("tau", "gate", "tries")
SUCCEED = [
    case
    for case in CASES
    if case.call.startswith(MEASURING) and "--table" not in case.call and not case.in_repository
]


def numbers(value: Any, key: str = "") -> Iterator[float]:
    """The real numbers in a value of JSON, without those under a key that is left out."""
    if key in GIVEN:
        return
    if isinstance(value, dict):
        for name, one in value.items():
            yield from numbers(one, name)
    elif isinstance(value, list):
        for one in value:
            yield from numbers(one)
    elif isinstance(value, float) and math.isfinite(value):
        yield value


def in_table(value: Any) -> Iterator[float]:
    """The numbers of a row, those of its evidence included."""
    if isinstance(value, str) and value[:1] in ("{", "["):
        value = json.loads(value)
    if isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            yield from in_table(one)
    elif isinstance(value, int | float) and math.isfinite(value):
        yield value


def shown(value: float) -> str:
    return f"{value:.12g}"


@pytest.mark.parametrize("case", SUCCEED, ids=[case.name for case in SUCCEED])
def test_a_number_of_json_is_a_number_of_the_table(case, tmp_path, model):
    folder = tmp_path / "of the case"
    folder.mkdir()
    lay_out(folder, model)
    with contextlib.chdir(folder):
        for call in case.before:
            called(call)
        done = called(
            case.call if case.call.startswith("eval") else f"{case.call} --table rows.parquet"
        )
    files = [*folder.glob("rows.parquet"), *folder.glob("data/eval/*/results/*/*.parquet")]
    if not done.stdout:
        assert not files
        return
    rows = [row for file in files for row in pq.read_table(file).to_pylist()]
    known = {shown(value) for row in rows for value in in_table(row)}
    printed = {shown(value) for value in numbers(json.loads(done.stdout))}
    assert printed
    assert printed - known == set()


def test_the_commands_print_the_golden_words(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("LETHE_CACHE", str(tmp_path / "cache"))
    now, golden = printed(tmp_path).splitlines(), GOLDEN.read_text(encoding="utf-8").splitlines()
    differing = [pair for pair in zip(golden, now, strict=False) if pair[0] != pair[1]]
    assert differing == []
    assert len(now) == len(golden)
