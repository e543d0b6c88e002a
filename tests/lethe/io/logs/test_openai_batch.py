"""OpenAI's batch output: what is an answer, and which kinds of requests bring none."""

import pytest

from lethe.errors import BadRow
from lethe.io.logs import read_log
from tests.lethe.io.logs.small_logs import openai_batch_line, write_lines


def log_of(tmp_path, *lines):
    return read_log(write_lines(tmp_path / "out.jsonl", list(lines)))


def with_choice(line, **change):
    line["response"]["body"]["choices"][1] |= change
    return line


def test_each_choice_is_an_answer_and_its_index_the_sample(tmp_path):
    line = openai_batch_line("q", "Turin", "No.")
    line["response"]["body"]["choices"].reverse()

    log = log_of(tmp_path, line)

    rows = log.answers[["prompt_id", "sample", "text"]].values.tolist()
    assert rows == [["q", 0, "Turin"], ["q", 1, "No."]]
    assert (log.format, log.model, log.scores) == ("openai-batch", "m", ())


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (
            {"response": None, "error": {"code": "batch_expired", "message": "late"}},
            "error batch_expired",
        ),
        ({"response": None, "error": {"code": "\x1b[31m"}}, "error"),
        ({"response": {"status_code": 429, "body": {"error": {}}}}, "status 429"),
        ({"response": {"status_code": 200, "body": {}}}, "no choices"),
        ({"response": None}, "no response"),
    ],
)
def test_a_request_that_brought_nothing_lacks_as_many_answers_as_the_others_have(
    tmp_path, change, reason
):
    log = log_of(tmp_path, openai_batch_line("q", "a", "b", "c"), openai_batch_line("r") | change)

    assert log.problems.values.tolist() == [["r", n, reason, None] for n in range(3)]
    assert len(log.prompts) == 2


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"finish_reason": "content_filter"}, "filtered"),
        ({"finish_reason": "tool_calls", "message": {"content": None}}, "tool_calls"),
        ({"finish_reason": "later"}, "unknown end"),
        ({"finish_reason": None}, "no end stated"),
        ({"message": {"content": None}}, "null content"),
        ({"message": {"content": None, "refusal": "I cannot."}}, "refused"),
    ],
)
def test_only_a_known_end_makes_an_answer(tmp_path, change, reason):
    log = log_of(tmp_path, with_choice(openai_batch_line("q", "a", "b"), **change))

    assert log.answers["text"].tolist() == ["a"]
    assert log.problems["reason"].tolist() == [reason]


def test_an_answer_of_the_responses_interface_is_read(tmp_path):
    content = [{"type": "output_text", "text": "Turin"}]
    output = [{"type": "reasoning"}, {"type": "message", "content": content}]
    body = {"object": "response", "status": "completed", "model": "m", "output": output}

    log = log_of(
        tmp_path, openai_batch_line("q") | {"response": {"status_code": 200, "body": body}}
    )

    assert log.answers["text"].tolist() == ["Turin"]


@pytest.mark.parametrize("name", [None, 7, True])
def test_a_request_without_a_text_as_its_id_is_refused_by_its_line(tmp_path, name):
    with pytest.raises(BadRow, match="line 2: `custom_id`"):
        log_of(tmp_path, openai_batch_line("q", "a"), openai_batch_line("r", "a", custom_id=name))


def test_a_request_that_stands_twice_is_refused(tmp_path):
    with pytest.raises(BadRow, match="line 2: request 'q'"):
        log_of(tmp_path, openai_batch_line("q", "a"), openai_batch_line("q", "b"))
