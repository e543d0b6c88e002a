"""promptfoo's results: repeats in order of completion, the cache, errors, and metrics of some tests."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lethe.errors import BadFile
from lethe.evaluation.scores import read_any_scores
from lethe.io.logs import read_log
from tests.lethe.io.logs.small_logs import promptfoo_log, promptfoo_row, write_lines


def test_rows_in_order_of_completion_are_the_repeats_of_their_test(tmp_path):
    rows = [
        promptfoo_row(3, "d", False),
        promptfoo_row(0, "a"),
        promptfoo_row(2, "c"),
        promptfoo_row(1, "b", False),
    ]
    log = read_log(promptfoo_log(tmp_path / "out.json", rows))
    assert log.answers[["prompt_id", "sample", "text", "success"]].values.tolist() == [
        ["0/0", 1, "a", 1.0],
        ["0/0", 2, "b", 0.0],
        ["0/1", 1, "c", 1.0],
        ["0/1", 2, "d", 0.0],
    ]
    assert log.prompts["prompt"].tolist() == ["Capital of France?", "Capital of Gaul?"]
    assert log.tool == "promptfoo 0.121.20"
    assert log.scores[0] == "success"
    assert log.missing == {}
    lines = read_log(write_lines(tmp_path / "out.jsonl", rows))
    assert lines.answers.equals(log.answers)


def test_a_one_line_document_is_not_taken_for_lines(tmp_path):
    path = promptfoo_log(tmp_path / "out.json", [promptfoo_row(0, "a"), promptfoo_row(1, "b")])
    path.write_text(json.dumps(json.loads(path.read_text())))
    assert len(read_log(path).answers) == 2


def test_errors_and_lost_repeats_are_missing(tmp_path):
    failed = promptfoo_row(1, None, False, failureReason=2, response={"error": "down"}, namedScores={})
    log = read_log(
        promptfoo_log(tmp_path / "out.json", [promptfoo_row(0, "a", False), failed, promptfoo_row(2, "b")])
    )
    assert log.missing == {"error": 1, "not written": 1}
    assert log.scored("success")["reason"].tolist() == [None, "error", None, "not written"]
    assert log.scored("format")["score"].count() == 2


def test_rows_of_the_cache_are_no_draws(tmp_path):
    cached = {"response": {"output": "a", "cached": True}}
    rows = [promptfoo_row(0, "a"), promptfoo_row(1, "a", **cached), promptfoo_row(2, "b"), promptfoo_row(3, "c")]
    path = promptfoo_log(tmp_path / "out.json", rows)
    log = read_log(path)
    assert log.prompts["answers"].tolist() == [1, 2]
    assert log.missing == {}
    assert "cached" in log.warnings[0]
    rows[0] |= cached  # nothing new was drawn for this test
    log = read_log(promptfoo_log(path, rows))
    assert log.missing == {"cached": 1}
    assert len(log.scored("success")) == 3
    for row in rows:
        row |= cached
    with pytest.raises(BadFile, match="cached"):
        read_any_scores(promptfoo_log(path, rows), None)


def test_a_metric_scores_the_tests_that_name_it(tmp_path):
    rows = [promptfoo_row(0, "a"), promptfoo_row(2, "b", namedScores={})]
    rows[1]["testCase"]["assert"] = [{"type": "assert-set", "assert": [{"type": "contains", "metric": "inner"}]}]
    path = promptfoo_log(tmp_path / "out.json", rows, repeat=1)
    assert [prompt.prompt_id for prompt in read_any_scores(path, None, "format").prompts] == ["0/0"]
    inner = read_any_scores(path, None, "inner")
    assert [prompt.prompt_id for prompt in inner.prompts] == ["0/1"]
    assert inner.log.missing == 1
    assert read_log(path).scored("score")["score"].tolist() == [1.0, 1.0]


@settings(deadline=None, max_examples=30)
@given(
    st.lists(st.tuples(st.booleans(), st.booleans()), min_size=4, max_size=4), st.randoms(use_true_random=False)
)
def test_the_order_of_completion_does_not_count(tmp_path_factory, given_rows, chance: random.Random):
    path = tmp_path_factory.mktemp("promptfoo") / "out.json"
    rows = []
    for test, (passes, cached) in enumerate(given_rows):
        output = {"response": {"output": f"a{test}", "cached": cached and test > 0}}
        rows.append(promptfoo_row(test, "", passes, **output))
    log = read_log(promptfoo_log(path, rows))
    chance.shuffle(rows)
    again = read_log(promptfoo_log(path, rows))
    assert log.answers.equals(again.answers)
    assert log.missing == again.missing
    assert len(log.answers) == sum(not row["response"]["cached"] for row in rows)
