"""`lethe table`: several runs in one table, printed or written."""

import json
from pathlib import Path

import pytest

from tests.lethe.certificates.small_run import write_run
from tests.lethe.cli.calls import Command
from tests.lethe.small_checkpoint import ROWS

command = Command("table")


@pytest.fixture
def runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, leaks in (("one", 1), ("two", 3)):
        scores = [1.0] * leaks + [0.0] * 40
        write_run(Path(name), Path("mine"), {"a": scores, "b": scores}, ROWS)
    return tmp_path


def test_two_runs_of_one_model_are_two_rows(runs):
    done = command.result("one", "two", "--column", "n")

    assert list(done["models"]) == ["mine", "two: mine"]


def test_a_table_is_written_as_it_would_be_printed(runs):
    printed = command.call("one", "--column", "n", "--to", "latex").stdout
    command.call("one", "--column", "n", "--to", "latex", "--out", "t.tex")

    assert Path("t.tex").read_text() == printed


def test_no_run_is_a_sentence(runs):
    assert "at least one folder" in command.refused()


@pytest.mark.parametrize(
    ("key", "value"), [("questions", "0" * 32), ("max_new_tokens", 999), ("temperature", 0.3)]
)
def test_rows_that_were_asked_another_way_are_named(runs, key, value):
    alike = command.result("one", "two", "--column", "n")["text"]
    record = Path("two/generations/mine/about.json")
    record.write_text(json.dumps(json.loads(record.read_text()) | {key: value}))

    assert "differ in" not in alike
    assert f"differ in {key}:" in command.result("one", "two", "--column", "n")["text"]
