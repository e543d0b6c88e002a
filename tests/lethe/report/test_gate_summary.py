"""The summary of a gate for a CI: rounded up, escaped, appended."""

import re

import pytest

from lethe.errors import BadFile
from lethe.report.gate_summary import append, text_of
from lethe.results.gate import GatedQuestion
from tests.lethe.cli.calls import Command

GATE = {"tau": 0.05, "closed": False, "bound": 0.024011, "prompt_id": "q1", "reason": "It holds."}


def test_the_bound_is_rounded_up():
    assert "npo | **passed** | 0.0241 | q1" in text_of("npo", GATE)


def test_questions_are_counted_by_what_is_shown_of_them():
    questions = [GatedQuestion("a", 0.0, 0.01), GatedQuestion("b", 0.0, 0.2)]

    row = text_of("npo", GATE, questions).splitlines()[4]

    assert row.endswith("| 1 | 0 | 1")


def test_an_id_is_text_and_no_markup():
    gate = GATE | {"prompt_id": "a|b\n<b>*x*"}

    row = text_of("npo", gate).splitlines()[4]
    assert r"| a\|b &lt;b&gt;\*x\* |" in row


def test_steps_of_a_job_append_to_one_file(tmp_path):
    for model in ("one", "two"):
        append(tmp_path / "s.md", model, GATE)

    assert (tmp_path / "s.md").read_text().count("**passed**") == 2


def test_a_file_that_cannot_be_written_is_named(tmp_path):
    with pytest.raises(BadFile, match="cannot be written"):
        append(tmp_path / "no" / "s.md", "m", GATE)


def test_bounds_append_a_closed_gate(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("lethe.io.tries.FOLDER", tmp_path / "tries")
    (tmp_path / "scores.csv").write_text("score\n" + "0\n" * 97 + "1\n" * 3)
    bounds = Command("bounds", "scores.csv")

    done = bounds.call("--fail-above", 0.01, "--summary", "s.md")

    assert done.exit_code == 1
    assert "scores.csv | **closed** |" in (tmp_path / "s.md").read_text()
    assert "--summary" in bounds.refused("--summary", "s.md")


def test_a_threshold_is_the_number_that_was_asked_for():
    assert "leaks at most 0.01234561" in text_of("npo", GATE | {"tau": 0.01234561})


def test_a_bound_below_its_threshold_is_not_shown_above_it():
    assert "| 0.012345 |" in text_of("npo", GATE | {"tau": 0.012345, "bound": 0.012345})


@pytest.mark.parametrize("name", ["$a$", "@team", ":bomb:", "#12", "https://a.b", "www.a.b"])
def test_a_sign_that_github_reads_after_markdown_stands_alone(name):
    row = text_of("npo", GATE | {"prompt_id": name}).splitlines()[4]

    assert name not in row
    assert re.sub("</?span>", "", row).endswith(f"| {name} | 0 | 0 | 0")


def test_a_gate_without_a_bound_counts_its_questions_as_open():
    left = [{"id": "a", "word": "open", "lower": None, "upper": None}]

    row = text_of("npo", GATE | {"bound": None, "closed_by": left}).splitlines()[4]

    assert row.endswith("| 0 | 0 | 1")
