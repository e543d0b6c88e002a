"""What a table states under another spelling of a column's name counts as under the documented one."""

import pandas as pd
import pytest

from tests.lethe.cli.calls import Command, written

bounds = Command("bounds")
N = 150
SAMPLES = [*range(N), *range(N)]


def refused_gate(tmp_path, column, values):
    """The output of a closed gate over answers without a leak to two questions, with one further column."""
    rows = pd.DataFrame({"prompt_id": ["a"] * N + ["b"] * N, "sample": SAMPLES, "leak": 0})
    path = written(tmp_path / "scores.csv", rows.assign(**{column: values}))
    found = bounds.call(path, "--missing", "worst", "--fail-above", "0.1")
    assert found.exit_code == 1
    return found.output


@pytest.mark.parametrize(
    "column",
    [
        *("response.finish_reason", "choices.0.finish_reason", "native_finish_reason"),
        *("output.finishReason", "answer_stop_reason", "end_reason", "terminationReason"),
    ],
)
def test_an_end_counts_however_its_column_is_spelled(tmp_path, column):
    said = refused_gate(tmp_path, column, ["content_filter", "stop"] * N)

    assert "not shown" in said


@pytest.mark.parametrize(
    ("column", "lost", "good"),
    [
        *[("errorMessage", "timeout", None), ("response.error", "timeout", None)],
        *[("error_code", "rate_limit", None), ("isError", True, False)],
        *[("timed_out", True, False), ("response.status_code", 500, 200)],
        *[("statusCode", 503, 200), ("http_code", 429, 200)],
    ],
)
def test_a_failed_request_counts_however_its_column_is_spelled(tmp_path, column, lost, good):
    said = refused_gate(tmp_path, column, [lost, good] * N)

    assert "not shown" in said


@pytest.mark.parametrize(
    ("column", "copy", "new"),
    [
        *[("fromCache", True, False), ("response.cached", True, False)],
        *[("is_cache_hit", True, False), ("x-cache", "HIT", "MISS")],
        *[("cache_status", "hit from edge", "miss"), ("cache", "hit", "miss")],
    ],
)
def test_a_copy_counts_however_its_column_is_spelled(tmp_path, column, copy, new):
    said = refused_gate(tmp_path, column, [copy, new] * N)

    assert "came from a cache" in said


def test_a_cache_that_is_only_switched_on_is_no_copy(tmp_path):
    rows = pd.DataFrame({"prompt_id": "a", "sample": range(N), "leak": 0, "cache": True})
    path = written(tmp_path / "scores.csv", rows)

    assert bounds.call(path, "--fail-above", "0.1").exit_code == 0


@pytest.mark.parametrize(
    "column", ["modelName", "response.model", "model_version", "checkpoint_path", "deployment"]
)
def test_two_models_count_however_their_column_is_spelled(tmp_path, column):
    said = refused_gate(tmp_path, column, ["m1", "m2"] * N)

    assert "answers of 2 models" in said


@pytest.mark.parametrize("column", ["questionText", "prompt_text", "user_prompt", "Lang"])
def test_two_questions_of_one_id_count_however_their_column_is_spelled(tmp_path, column):
    said = refused_gate(tmp_path, column, ["Who?", "Where?"] * N)

    assert "2 values of" in said


@pytest.mark.parametrize(
    ("column", "value"),
    [
        *[("params", '{"temperature": 0}'), ("generationConfig", '{"temperature": 0}')],
        *[("request.settings", ' {"do_sample": false}'), ("temperature (T)", 0)],
        *[("sampling_method", "greedy"), ("use_sampling", "false"), ("deterministic", True)],
    ],
)
def test_greedy_decoding_counts_however_it_is_written(tmp_path, column, value):
    said = refused_gate(tmp_path, column, value)

    assert "greedy decoding" in said


@pytest.mark.parametrize("column", ["beam_size", "nBeams", "best_of_n"])
def test_the_best_of_several_counts_however_its_column_is_spelled(tmp_path, column):
    said = refused_gate(tmp_path, column, 4)

    assert "best of several" in said


def test_stored_texts_count_however_their_column_is_spelled(tmp_path):
    texts = ["word " * 9 + "one"] * N + ["word " * 9 + "two"] * N

    assert "one text each time" in refused_gate(tmp_path, "generated_text", texts)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        *[("judge_model", ["m1", "m2"] * N), ("judge.finish_reason", "error")],
        *[("response_language", ["en", "de"] * N), ("judge_params", '{"temperature": 0}')],
    ],
)
def test_what_is_said_of_something_else_refutes_nothing(tmp_path, column, value):
    rows = pd.DataFrame({"prompt_id": ["a"] * N + ["b"] * N, "sample": SAMPLES, "leak": 0})
    path = written(tmp_path / "scores.csv", rows.assign(**{column: value}))

    assert bounds.call(path, "--fail-above", "0.1").exit_code == 0
