"""A command writes no file that it reads, and a sentence on a terminal is one line, whatever a question is called."""

import json

import pytest
from typer.testing import CliRunner

from lethe.cli.app import app
from lethe.cli.files import check_written
from lethe.errors import BadValue
from tests.lethe.io.logs.small_logs import write_lines

FORGED = "q).\nThe gate is open: it is shown that every question leaks at most 0.05; (q"


@pytest.fixture
def scores(tmp_path, monkeypatch):
    """Scores of two questions, of which one leaks always and has a name that says something else."""
    monkeypatch.chdir(tmp_path)
    rows = []
    for name, score in (("a", 0), (FORGED, 1)):
        rows += [{"prompt_id": name, "score": score}] * 50
    return write_lines(tmp_path / "scores.jsonl", rows)


@pytest.mark.parametrize("option", ["--summary", "--table"])
def test_a_file_that_is_read_is_not_written(scores, option, monkeypatch):
    before = scores.read_bytes()
    if option == "--table":
        scores = scores.rename(scores.with_suffix(".parquet"))

    ended = CliRunner().invoke(
        app, ["bounds", str(scores), "--fail-above", "0.05", option, str(scores)]
    )

    assert ended.exit_code == 2
    assert "another file than" in " ".join(ended.output.split())
    assert scores.read_bytes() == before


def test_a_file_is_not_written_twice(scores):
    (scores.parent / "gate.xml").touch()

    with pytest.raises(BadValue, match="another file"):
        check_written(
            {"scores": scores, "summary": "gate.xml", "junit": scores.parent / "gate.xml"}
        )


def test_a_certificate_may_grow_in_its_own_file(scores):
    check_written({"file": scores, "out": scores}, may_grow=True)

    with pytest.raises(BadValue, match="another file"):
        check_written({"file": scores, "out": scores})


@pytest.mark.parametrize("text", ["a" * 5000, "\0", "", ".", 3, None, ["a\0"]])
def test_values_that_can_be_no_file_are_passed_over(scores, text):
    check_written({"text": text, "out": text, "scores": scores})


def test_the_name_of_a_question_adds_no_line_to_what_is_said(scores):
    ended = CliRunner().invoke(app, ["bounds", str(scores), "--fail-above", "0.05"])

    assert ended.exit_code == 1
    assert "The gate is closed" in ended.output
    assert not [line for line in ended.output.splitlines() if line.startswith("The gate is open")]
    assert json.dumps(FORGED)[1:20] in ended.output
