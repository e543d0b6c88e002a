"""What lies beside an answer counts in whatever object it lies: settings, errors, ends, caches and models."""

import json

import pandas as pd
import pytest

from lethe.io.logs import read_log
from tests.lethe.cli.calls import Command
from tests.lethe.io.logs.small_logs import (
    completion,
    openai_batch_line,
    openai_request,
    write_json,
    write_lines,
)

bounds = Command("bounds")
N = 40
GREEDY = {
    "metadata": {"metadata": {"temperature": 0}},
    "request": {"request": {"temperature": 0}},
    "params of a request": {"request": {"params": {"temperature": 0}}},
    "sampling": {"meta": {"sampling_params": {"top_k": 1}}},
}
CACHED = {
    "metadata": {"metadata": {"cached": True}},
    "meta": {"_hidden_params": {"cacheHit": True}},
}
LOST = {
    "end": {"response_metadata": {"finish_reason": "content_filter"}},
    "error": {"metadata": {"error": "timeout"}},
    "status": {"response": {"status_code": 500}},
}


def answers(**beside):
    return [{"text": f"a{number}", "leak": 0, **beside} for number in range(N)]


def as_rows(**beside):
    return [{"prompt_id": "q", **answer} for answer in answers(**beside)]


def as_lists(**beside):
    return [{"prompt": "Who?", "outputs": answers(**beside)}]


def as_row_of_a_list(**beside):
    texts = [f"a{number}" for number in range(N)]
    return [{"prompt": "Who?", "responses": texts, "leak": [0] * N, **beside}]


@pytest.fixture(params=[as_rows, as_lists, as_row_of_a_list])
def log_with(request, tmp_path):
    return lambda **beside: read_log(write_lines(tmp_path / "a.jsonl", request.param(**beside)))


@pytest.mark.parametrize("place", GREEDY)
def test_a_setting_counts_in_any_object(log_with, place):
    assert log_with(**GREEDY[place]).facts.deterministic


@pytest.mark.parametrize("place", CACHED)
def test_a_cache_counts_in_any_object(log_with, place):
    assert "from a cache" in log_with(**CACHED[place]).facts.repeated


@pytest.mark.parametrize(
    ("column", "value", "status"),
    [
        ("metadata", {"cached": True}, 1),
        ("request", {"temperature": 0}, 1),
        ("response_metadata", {"finish_reason": "content_filter"}, 2),
        ("metadata", {"error": "timeout"}, 2),
    ],
)
def test_an_object_counts_as_text_in_a_cell(tmp_path, column, value, status):
    """The gate is closed; how a missing answer counts is to be said first."""
    rows = [{"prompt_id": "q", "leak": 0, column: json.dumps(value)} for _ in range(N)]
    pd.DataFrame(rows).to_csv(tmp_path / "scores.csv", index=False)

    called = bounds.call(tmp_path / "scores.csv", "--score", "leak", "--fail-above", 0.2)

    assert called.exit_code == status


def test_the_json_that_a_model_answers_is_its_text(tmp_path):
    texts = [json.dumps({"error": f"no {number}"}) for number in range(N)]
    rows = [{"prompt_id": "q", "leak": 0, "answer": text} for text in texts]
    pd.DataFrame(rows).to_csv(tmp_path / "scores.csv", index=False)

    called = bounds.call(tmp_path / "scores.csv", "--score", "leak", "--fail-above", 0.2)

    assert called.exit_code == 0


@pytest.mark.parametrize("place", LOST)
def test_an_answer_that_failed_is_missing_in_any_object(tmp_path, place):
    rows = [*as_rows(), {"prompt_id": "q", "text": "", "leak": 0, **LOST[place]}]

    assert sum(read_log(write_lines(tmp_path / "a.jsonl", rows)).missing.values()) == 1


@pytest.mark.parametrize("place", LOST)
def test_an_answer_of_a_list_that_failed_is_missing_in_any_object(tmp_path, place):
    rows = [{"prompt": "Who?", "outputs": [*answers(), *answers(**LOST[place])]}]

    assert sum(read_log(write_lines(tmp_path / "a.jsonl", rows)).missing.values()) == N


@pytest.mark.parametrize("beside", [{"finish_reason": "content_filter"}, {"status": "failed"}])
def test_the_end_of_a_request_is_that_of_all_its_answers(tmp_path, beside):
    rows = [*as_row_of_a_list(), {**as_row_of_a_list(**beside)[0], "prompt": "Where?"}]

    assert sum(read_log(write_lines(tmp_path / "a.jsonl", rows)).missing.values()) == N


def test_models_in_an_object_are_told_apart(tmp_path):
    rows = [*as_rows(metadata={"model": "a"}), *as_rows(metadata={"model": "b"})]

    assert "2 models" in read_log(write_lines(tmp_path / "a.jsonl", rows)).facts.mixed


def test_settings_of_a_judge_in_an_object_are_none_of_the_answers(log_with):
    log = log_with(judge={"temperature": 0, "cached": True, "error": "timeout"})

    assert (log.facts.deterministic, log.facts.repeated, log.missing) == (None, None, {})


def test_a_gate_on_rows_with_greedy_metadata_is_closed(tmp_path):
    path = write_lines(tmp_path / "a.jsonl", as_rows(metadata={"temperature": 0}))

    found = bounds.call(path, "--fail-above", "0.2", "--score", "leak")

    assert found.exit_code != 0


SERVED = {
    "cached": {"cached": True},
    "cached by the server": {"response": {**completion("b"), "cached": True}},
}


@pytest.mark.parametrize("place", SERVED)
def test_a_stored_response_out_of_a_cache_is_no_draw(tmp_path, place):
    row = {"prompt_id": "q", "request": {"prompt": "Who?"}, "response": completion("a")}
    log = read_log(write_json(tmp_path / "a.json", [row, {**row, **SERVED[place]}]))

    assert "from a cache" in log.facts.repeated


def test_an_error_beside_a_stored_response_is_no_answer(tmp_path):
    row = {"prompt_id": "q", "request": {"prompt": "Who?"}, "response": completion("a")}
    log = read_log(write_json(tmp_path / "a.json", [row, {**row, "error": "timeout"}]))

    assert log.missing == {"error": 1}


def response_line(name, **body):
    part = {"type": "output_text", "text": "a"}
    sent = {"object": "response", "status": "completed", "output": [{"content": [part]}], **body}
    return openai_batch_line(name, response={"status_code": 200, "body": sent})


@pytest.mark.parametrize(
    ("body", "missing"),
    [
        ({"status": "incomplete", "incomplete_details": {"reason": "content_filter"}}, "filtered"),
        ({"error": {"code": "server_error"}}, "error"),
    ],
)
def test_a_response_that_a_filter_or_an_error_ended_is_missing(tmp_path, body, missing):
    lines = [response_line("r1"), response_line("r2", **body)]

    assert read_log(write_lines(tmp_path / "out.jsonl", lines)).missing == {missing: 1}


def test_a_batch_states_settings_in_its_output(tmp_path):
    lines = [response_line("r1", temperature=0)]

    assert read_log(write_lines(tmp_path / "out.jsonl", lines)).facts.deterministic


def test_an_error_in_words_is_no_answer_of_a_batch(tmp_path):
    lines = [openai_batch_line("r1", "a"), openai_batch_line("r2", "a", error="timeout")]

    assert read_log(write_lines(tmp_path / "out.jsonl", lines)).missing == {"error": 1}


def test_a_model_may_answer_under_another_name_than_it_is_asked_by(tmp_path):
    write_lines(tmp_path / "in.jsonl", [openai_request("r", "Who?", model="m")])
    line = openai_batch_line("r", "a")
    line["response"]["body"]["model"] = "m-2026"

    assert read_log(write_lines(tmp_path / "out.jsonl", [line])).facts.mixed is None
