"""`lethe eval` on rows with twins: the word on a trace beside the verdict."""

import json

import numpy as np
import pytest

from lethe.data.drawing import draw, write
from lethe.data.twin_kinds import kind_of
from lethe.results import table
from tests.lethe.cli.calls import Command
from tests.lethe.small_checkpoint import ROWS

K = 20
command = Command("eval", "--n", 8, "--max-new-tokens", 4, "--name", "x", "--data")
call, result, refused = command.call, command.result, command.refused


@pytest.fixture
def drawn(tmp_path, monkeypatch):
    """Rows of a sealed draw, with the record and the key beside them."""
    monkeypatch.chdir(tmp_path)
    templates = []
    for place in range(6):
        question = f"Which number has drawer {place}?"
        templates.append({"id": f"d{place}", "question": question, "answer": "It is {secret}."})
    rng = np.random.default_rng(0)
    with monkeypatch.context() as patch:  # the same draw at every run of the tests
        patch.setattr("lethe.data.drawing.fresh_key", lambda nonce: bytes(32))
        patch.setattr(np.random, "default_rng", lambda: rng)
        made = draw(templates, kind_of("pattern ######", None), K)
    rows, _, _ = write(made, tmp_path / "drawn" / "rows.jsonl")
    return rows


def test_rows_with_twins_are_tested_beside_the_verdict(checkpoint, drawn):
    values = result(drawn, "--model", checkpoint)

    trace = values["trace"]
    assert trace["word"] in ("trace", "open")
    assert trace["ids"] == [f"d{place}" for place in range(6)]
    assert set(trace["candidates"]) == {K}
    assert trace["level"] == trace["alpha"] == 0.01


def test_declared_scores_share_the_level_of_the_word(checkpoint, drawn):
    values = result(drawn, "--model", checkpoint, "--twin-scores", "min_k", "--twin-scores", "loss")

    trace = values["trace"]
    assert trace["level"] == pytest.approx(0.01 / 3)
    assert [score["score"] for score in trace["scores"]] == ["min_k", "loss"]
    assert all(0 < score["p"] <= 1 for score in trace["scores"])


def test_a_score_that_needs_another_model_is_refused(checkpoint, drawn):
    assert "twin_scores" in refused(drawn, "--model", checkpoint, "--twin-scores", "reference")


def test_the_record_beside_the_rows_says_how_the_secrets_were_drawn(checkpoint, drawn):
    trace = result(drawn, "--model", checkpoint)["trace"]

    record = json.loads((drawn.parent / "twins.json").read_text())
    assert trace["design"] == "drawn"
    assert trace["commitment"] == record["commitment"]


def test_the_word_stands_below_the_verdict(checkpoint, drawn):
    said = " ".join(call(drawn, "--model", checkpoint).output.split())

    assert "x: open: p " in said or "x: trace: its" in said


def test_a_seal_that_does_not_open_is_refused_before_an_answer_is_drawn(checkpoint, drawn):
    (drawn.parent / "twins.key").write_text("1" * 64)

    assert "not open the seal" in refused(drawn, "--model", checkpoint)
    assert not list(drawn.parent.parent.rglob("generations"))


def test_rows_without_twins_have_no_trace_and_leave_none_of_an_earlier_evaluation(
    checkpoint, drawn
):
    result(drawn, "--model", checkpoint)
    plain = drawn.with_name("plain.jsonl")
    plain.write_text("".join(json.dumps(row) + "\n" for row in ROWS))

    values = result(plain, "--model", checkpoint)

    assert values["trace"] is None
    assert not table.place(drawn.parent.parent / "data/eval/x", "twins", "x").exists()
