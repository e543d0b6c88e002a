"""garak's reports and promptfoo's results: status, missing generations, repeats, caches, seeds, and their own counts."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lethe.errors import BadFile
from lethe.evaluation.scores import read_any_scores
from lethe.io.logs import read_log
from tests.lethe.io.logs.small_logs import (
    garak_attempt,
    garak_eval,
    garak_log,
    promptfoo_log,
    promptfoo_row,
    write_lines,
)

DAN, OTHER = "dan.DAN", "mitigation.MitigationBypass"


def test_an_attempt_of_two_lines_counts_once(tmp_path):
    rows = [*garak_attempt(0, ["a", None, ""], {DAN: [1.0, None, 0.0]}), garak_eval(DAN, 1, 1, 1)]
    log = read_log(garak_log(tmp_path / "r.jsonl", rows))
    assert log.answers[["prompt_id", "sample", "text"]].values.tolist() == [
        ["dan.Dan_10_0/0", 1, "a"],
        ["dan.Dan_10_0/0", 3, ""],
    ]
    assert log.missing == {"no generation": 1}
    table = log.scored(DAN)
    assert table["score"].tolist()[::2] == [1.0, 0.0]
    assert math.isnan(table["score"][1])
    assert log.prompts["prompt"].tolist() == ["Who 0?"]
    assert not log.warnings
    assert log.stopping == "fixed"


def test_results_that_are_fewer_than_the_generations_refuse_their_detector_alone(tmp_path):
    rows = garak_attempt(0, ["a", None, "b"], {DAN: [1.0, 0.0], OTHER: [1.0, None, 0.0]})
    path = garak_log(tmp_path / "r.jsonl", rows)
    log = read_log(path)
    assert log.scores == (OTHER,)
    assert log.scored(OTHER)["score"].count() == 2
    with pytest.raises(BadFile, match="2 results"):
        read_any_scores(path, None, DAN)


@pytest.mark.parametrize(("seed", "answers"), [(5, 1), (None, 3)])
def test_equal_generations_under_a_seed_are_one_draw(tmp_path, seed, answers):
    rows = garak_attempt(0, ["a", "a", "a"], {DAN: [1.0, 1.0, 1.0]})
    log = read_log(garak_log(tmp_path / "r.jsonl", rows, seed=seed))
    assert len(log.answers) == answers
    assert len(log.warnings) == 1
    assert log.draws == ("copies" if seed else "unknown")
    assert len(log.scored(DAN)) == answers


def test_another_threshold_is_a_warning_and_other_numbers_of_results_refuse(tmp_path):
    rows = garak_attempt(0, ["a", "b"], {DAN: [0.4, 0.7]})
    assert not read_log(garak_log(tmp_path / "a.jsonl", [*rows, garak_eval(DAN, 1, 1, 0)])).warnings
    log = read_log(garak_log(tmp_path / "b.jsonl", [*rows, garak_eval(DAN, 0, 2, 0)]))
    assert "eval_threshold" in log.warnings[0]
    assert log.scores == (DAN,)
    log = read_log(garak_log(tmp_path / "c.jsonl", [*rows, garak_eval(DAN, 30, 20, 0)]))
    assert log.scores == ()
    assert "50 results" in log.refused[DAN]


def test_an_attempt_without_its_second_line_is_missing(tmp_path):
    rows = [*garak_attempt(0, ["a"], {DAN: [1.0]}), garak_attempt(1, ["b", "c"], {})[0]]
    log = read_log(garak_log(tmp_path / "r.jsonl", rows, ended=False))
    assert log.missing == {"not judged": 2}
    assert log.stopping == "unfinished"
    assert log.notes
    assert len(log.scored(DAN)) == 3
    assert log.scored(DAN)["score"].count() == 1


@settings(deadline=None, max_examples=40)
@given(
    st.lists(
        st.lists(
            st.tuples(st.text(max_size=2) | st.none(), st.sampled_from([0.0, 0.5, 1.0])), min_size=1, max_size=5
        ),
        min_size=1,
        max_size=4,
    )
)
def test_every_generation_is_an_answer_or_missing(tmp_path_factory, attempts):
    folder = tmp_path_factory.mktemp("garak")
    rows = []
    for seq, pairs in enumerate(attempts):
        rows += garak_attempt(seq, [text for text, _ in pairs], {DAN: [score for _, score in pairs]})
    path = garak_log(folder / "r.jsonl", [*garak_attempt(99, ["x"], {DAN: [1.0]}), *rows])
    table = read_log(path).scored(DAN)
    assert len(table) == 1 + sum(map(len, attempts))
    expected = [score for pairs in attempts for text, score in pairs if text is not None]
    assert table["score"].dropna().tolist() == [1.0, *expected]


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
