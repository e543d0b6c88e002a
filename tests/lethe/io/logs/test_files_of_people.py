"""Answers in the files that servers, scripts and test runners write: which question they answer, and what is missing."""

import json

import pytest

import lethe
from lethe.errors import BadFile, BadRow
from lethe.io.logs import read_log
from tests.lethe.io.logs.small_logs import (
    completion,
    deepeval_case,
    eee_line,
    eee_log,
    openai_batch_line,
    openai_request,
    write_json,
    write_lines,
)


def answers(log):
    return log.answers[["prompt_id", "sample", "text"]].values.tolist()


def batch(tmp_path, requests, lines):
    write_lines(tmp_path / "input.jsonl", requests)
    return read_log(write_lines(tmp_path / "batch_output.jsonl", lines))


def test_requests_of_one_question_are_its_answers_in_the_order_of_the_input(tmp_path):
    requests = [openai_request(name, "Who?", temperature=1) for name in ("r1", "r2")]
    lines = [openai_batch_line("r2", "b"), openai_batch_line("r1", "a")]

    log = batch(tmp_path, [*requests, openai_request("r3", "Where?", temperature=1)], lines)

    assert answers(log) == [["r1", 0, "a"], ["r1", 1, "b"]]
    assert log.prompts["prompt"].tolist() == ["Who?", "Where?"]
    assert log.problems.values.tolist() == [["r3", 0, "not written", None]]
    assert log.sampling == {"temperature": 1}


def test_greedy_requests_of_a_batch_are_copies(tmp_path):
    requests = [openai_request("r", "Who?", temperature=0, n=2)]

    log = batch(tmp_path, requests, [openai_batch_line("r", "a", "a")])

    assert (log.draws, log.refusal is None) == ("copies", False)


def test_two_input_files_are_none(tmp_path):
    write_lines(tmp_path / "other.jsonl", [openai_request("r", "Where?")])

    log = batch(tmp_path, [openai_request("r", "Who?")], [openai_batch_line("r", "a")])

    assert log.prompts["prompt"].tolist() == [None]
    assert "2 files beside it have" in log.notes[0]


def test_the_input_of_a_batch_is_no_log(tmp_path):
    path = write_lines(tmp_path / "input.jsonl", [openai_request("r", "Who?")])

    with pytest.raises(BadFile, match="in the output file"):
        read_log(path)


def test_a_list_of_answers_has_the_scores_beside_it(tmp_path):
    rows = [
        {"id": 7, "question": "Who?", "responses": ["Ron", None], "leaked": [True, None]},
        {"id": 8, "question": "Where?", "responses": [{"text": "x", "leaked": 0, "tokens": 3}]},
    ]

    log = read_log(write_json(tmp_path / "a.json", rows))

    assert answers(log) == [["7", 1, "Ron"], ["8", 1, "x"]]
    assert log.answers["leaked"].tolist() == [1.0, 0.0]
    assert (log.scores, log.facts.meaning("leaked")) == (("leaked",), "leak")
    assert log.missing == {"no text": 1}


def test_a_list_of_scores_has_one_for_each_answer(tmp_path):
    path = write_lines(tmp_path / "a.jsonl", [{"id": 1, "responses": ["a", "b"], "leaked": [1]}])

    with pytest.raises(BadRow, match="`leaked` has 1 number for 2 answers"):
        read_log(path)


def test_requests_of_vllm_with_one_prompt_are_one_question(tmp_path):
    def output(number, *texts):
        outputs = [
            {"index": n, "text": text, "finish_reason": "stop"} for n, text in enumerate(texts)
        ]
        return {
            "request_id": number,
            "prompt": "Who?",
            "prompt_token_ids": [1, 2],
            "outputs": outputs,
        }

    log = read_log(write_json(tmp_path / "a.json", [output("0", "a"), output("1", "b", "c")]))

    assert answers(log) == [["0", 1, "a"], ["0", 2, "b"], ["0", 3, "c"]]
    assert (log.tool, log.scores) == ("vLLM", ())


def test_an_answer_that_an_error_ended_is_missing_in_a_list(tmp_path):
    outputs = [{"text": "Ro", "finish_reason": "abort"}, {"text": "", "finish_reason": "stop"}]

    log = read_log(write_json(tmp_path / "a.json", [{"prompt": "Who?", "outputs": outputs}]))

    assert answers(log) == [["question 1", 2, ""]]
    assert log.missing == {"abort": 1}


def test_a_response_of_lm_studio_is_named_by_its_request(tmp_path):
    request = {"messages": [{"role": "user", "content": "Who?"}], "temperature": 0.7}
    rows = [{"request": request, "response": completion(text, stats={})} for text in ("a", "b")]

    log = read_log(write_lines(tmp_path / "a.jsonl", rows))

    assert answers(log) == [["question 1", 1, "a"], ["question 1", 2, "b"]]
    assert (log.tool, log.model, log.sampling) == ("LM Studio", "m", {"temperature": 0.7})


def test_one_response_is_one_question_and_several_without_a_name_are_refused(tmp_path):
    alone = read_log(write_json(tmp_path / "a.json", completion("a", "b")))

    assert answers(alone) == [["question", 1, "a"], ["question", 2, "b"]]
    path = write_lines(tmp_path / "b.jsonl", [completion("a"), completion("b")])
    with pytest.raises(BadFile, match=r"2 responses of 2 name.*`prompt_id` or `prompt`"):
        read_log(path)


def test_cases_of_deepeval_with_one_input_are_one_question(tmp_path):
    cases = [deepeval_case("case_0", "Ron", 0.9), deepeval_case("case_1", None, 0.1)]

    log = read_log(write_json(tmp_path / "a.json", {"testCases": cases}))

    assert answers(log)[0] == ["case_0", 1, "Ron"]
    assert log.scores == ("success", "Leak [GEval]")
    assert (log.facts.meaning("success"), log.missing) == ("pass", {"no output": 1})


def test_results_of_evaluate_are_those_of_a_test_run(tmp_path):
    metric = {"name": "Toxicity", "score": 0.25, "error": None}
    case = {"name": "c", "input": "Who?", "actual_output": "a", "success": True}

    log = read_log(
        write_json(tmp_path / "a.json", {"test_results": [case | {"metrics_data": [metric]}]})
    )

    assert log.answers["Toxicity"].tolist() == [0.25]
    assert log.facts.meaning("Toxicity") == "unknown"


def test_lines_of_every_eval_ever_with_one_sample_are_its_answers(tmp_path):
    rows = [
        eee_line("a", "Ron", 1.0, metadata={"lethe.sample": "4"}),
        eee_line("a", "x", 0.0, metadata={"lethe.sample": "5"}),
        eee_line("a", "Ron", 0.5, metadata={"lethe.sample": "4"}, evaluation_result_id="rouge_l"),
        eee_line("b", "", 0.0, error="timeout"),
    ]

    log = read_log(eee_log(tmp_path / "u_samples.jsonl", rows, temperature=1.0))

    assert answers(log) == [["a", 4, "Ron"], ["a", 5, "x"]]
    assert log.answers["leak/sampled"].tolist() == [1.0, 0.0]
    assert log.answers["rouge_l"].tolist()[0] == 0.5
    assert (log.missing["error"], log.sampling) == (1, {"temperature": 1.0})


def test_the_aggregate_beside_the_lines_says_greedy(tmp_path):
    rows = [eee_line("a", "Ron", 1.0), eee_line("a", "Ron", 1.0)]

    log = read_log(eee_log(tmp_path / "u_samples.jsonl", rows, temperature=0))

    assert log.draws == "copies"


def test_the_last_word_of_the_assistant_is_the_answer_of_a_conversation(tmp_path):
    messages = [{"role": "assistant", "content": text} for text in ("first", "last")]
    line = eee_line("a", "", 1.0, output=None, messages=messages)

    assert answers(read_log(write_lines(tmp_path / "a.jsonl", [line]))) == [["a", 1, "last"]]


def test_bounds_of_a_list_of_answers_say_what_was_understood(tmp_path):
    rows = [{"id": "a", "responses": ["x"] * 40, "leaked": [0] * 40}]
    path = tmp_path / "a.json"
    path.write_text(json.dumps(rows))

    document = lethe.bounds(path).as_json()

    assert document["understood"] == "log of a list of answers per question, leaked: 1 = leak"
    assert document["worst_prompt"]["bound"] == pytest.approx(0.1087, abs=1e-4)
