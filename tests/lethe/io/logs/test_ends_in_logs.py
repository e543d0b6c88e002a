"""Answers in logs whose tool states why they ended: one that nothing ended is missing, by kind."""

import json

import pandas as pd
import pytest

from lethe.io.logs import read_log
from tests.lethe.io.logs.small_logs import (
    eval_log,
    header,
    helm_log,
    promptfoo_log,
    promptfoo_row,
    sample,
    write_json,
    write_lines,
)

KINDS = {"error": 1, "tool_calls": 1}


def answers(stated):
    return [
        {"prompt_id": "q", "sample": place, "text": "Ron", "finish_reason": end, "leak": 0}
        for place, end in enumerate(stated)
    ]


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_an_answer_of_a_table_without_a_known_end_is_missing_by_kind(tmp_path, suffix):
    place = tmp_path / f"t.{suffix}"
    table = answers(["stop", "error", "length", "tool_calls"])
    getattr(pd.DataFrame(table), f"to_{suffix}")(place, index=False)

    log = read_log(place)

    assert log.missing == KINDS
    assert log.scored("leak")["score"].isna().tolist() == [False, True, False, True]


def test_a_table_that_states_no_end_has_no_missing_answers(tmp_path):
    pd.DataFrame(answers([None, None])).to_csv(tmp_path / "t.csv", index=False)

    assert not read_log(tmp_path / "t.csv").missing


def test_an_answer_of_inspect_without_a_known_end_is_missing_by_kind(tmp_path):
    samples = []
    for epoch, stated in enumerate(["stop", "tool_calls", "max_tokens"], start=1):
        output = {"choices": [{"stop_reason": stated}], "completion": "Ron"}
        samples.append(sample(epoch=epoch, output=output))
    place = eval_log(tmp_path / "log.eval", header(["q"], epochs=3), samples)

    log = read_log(place)

    assert log.missing["tool_calls"] == 1
    assert log.scored("match")["reason"].tolist()[:2] == [None, "tool_calls"]


@pytest.mark.parametrize(
    "output",
    [
        {},
        {"choices": [], "completion": ""},
        {"choices": [{"stop_reason": "unknown"}], "completion": ""},
        {"choices": [{"stop_reason": None}], "completion": ""},
        {"choices": [{"stop_reason": "stop"}], "completion": "Ron", "error": "500"},
    ],
)
def test_a_sample_of_inspect_that_no_model_answered_is_no_clean_answer(tmp_path, output):
    samples = [sample(epoch=1), sample(epoch=2, output=output)]

    log = read_log(eval_log(tmp_path / "log.eval", header(["q"]), samples))

    assert sum(log.missing.values()) == 1
    assert log.scored("match")["score"].isna().tolist() == [False, True]


@pytest.mark.parametrize("text", ["Ron", ""])
def test_an_answer_of_inspect_that_ends_at_once_is_an_answer(tmp_path, text):
    output = {"choices": [{"stop_reason": "stop"}], "completion": text}

    log = read_log(eval_log(tmp_path / "log.eval", header(["q"], 1), [sample(output=output)]))

    assert not log.missing


@pytest.mark.parametrize(("stated", "kind"), [("unknown", "unknown end"), (None, "no end stated")])
def test_an_unknown_end_beside_known_ones_is_no_end_of_an_answer(tmp_path, stated, kind):
    samples = []
    for epoch, stop in enumerate(["stop", stated, "content_filter"], start=1):
        output = {"choices": [{"stop_reason": stop}], "completion": "Ron"}
        samples.append(sample(epoch=epoch, output=output))

    log = read_log(eval_log(tmp_path / "log.eval", header(["q"], epochs=3), samples))

    assert log.missing == {kind: 1, "filtered": 1}


@pytest.mark.parametrize("stated", ["unknown", None])
def test_a_log_of_a_provider_that_states_no_end_holds_answers_and_says_so(tmp_path, stated):
    output = {"choices": [{"stop_reason": stated}], "completion": "Ron"}
    samples = [sample(epoch=epoch, output=output) for epoch in (1, 2)]

    log = read_log(eval_log(tmp_path / "log.eval", header(["q"]), samples))

    assert not log.missing
    assert any("stated end" in note for note in log.notes)


LOST = [
    {"error": "timeout"},
    {"stopReason": "abort"},
    {"done_reason": "load"},
    {"status": 500},
    {"finish_reason": "error"},
]


@pytest.mark.parametrize("lost", LOST, ids=lambda lost: next(iter(lost)))
@pytest.mark.parametrize("beside", [False, True], ids=["in the answer", "in a list beside"])
def test_an_answer_of_a_list_that_no_model_ended_is_missing(tmp_path, lost, beside):
    row = {"id": "q", "prompt": "Who?", "responses": [{"text": "Ron", "leaked": 0}] * 2}
    if beside:
        ((name, value),) = lost.items()
        row |= {"responses": ["Ron", ""], "leaked": [0, 0], name: [None, value]}
    else:
        row["responses"][1] = {"text": "", "leaked": 0, **lost}

    log = read_log(write_lines(tmp_path / "a.jsonl", [row]))

    assert sum(log.missing.values()) == 1


def test_an_error_of_promptfoo_beside_an_empty_output_is_no_clean_answer(tmp_path):
    response = {"output": "", "error": "API error"}
    rows = [promptfoo_row(0, "Ron"), promptfoo_row(1, "", response=response)]

    log = read_log(promptfoo_log(tmp_path / "p.json", rows))

    assert log.missing["error"] == 1


def test_an_answer_of_promptfoo_without_a_known_end_is_missing_by_kind(tmp_path):
    rows = []
    for place, stated in enumerate(["stop", "content_filter"]):
        response = {"output": "Ron", "finishReason": stated}
        rows.append(
            {
                "promptIdx": 0,
                "testIdx": place,
                "success": True,
                "score": 1,
                "vars": {},
                "testCase": {},
                "response": response,
                "provider": {"id": "p"},
                "prompt": {"raw": "Who?"},
            }
        )
    log = read_log(write_json(tmp_path / "p.json", {"results": {"results": rows}}))

    assert log.missing == {"filtered": 1}


def helm_with_ends(place, stated, text="Ron"):
    """A HELM run of one answer to each of some questions, whose completions state these ends."""
    path = helm_log(place / "scenario_state.json", [["Ron"]] * len(stated), num_outputs=1)
    run = json.loads(path.read_text())
    for state, end in zip(run["request_states"], stated, strict=True):
        state["result"]["completions"][0] |= {"finish_reason": end, "text": text}
    return write_json(path, run)


@pytest.mark.parametrize("stated", ["stop", "endoftext", "end_turn", "length", "MAX_TOKENS"])
@pytest.mark.parametrize("form", [lambda end: {"reason": end}, str], ids=["object", "text"])
def test_an_answer_of_helm_that_the_model_or_a_limit_ended_is_one(tmp_path, form, stated):
    log = read_log(helm_with_ends(tmp_path, [form(stated)]))

    assert not log.missing
    assert log.scored("exact_match")["score"].tolist() == [1.0]


@pytest.mark.parametrize(
    ("stated", "kind"),
    [
        ("content_filter", "filtered"),
        ("SAFETY", "filtered"),
        ("tool_calls", "tool_calls"),
        ("weather", "unknown end"),
        (3, "unknown end"),
    ],
)
@pytest.mark.parametrize("text", ["Ron", "", None])
@pytest.mark.parametrize("form", [lambda end: {"reason": end}, lambda end: end])
def test_an_answer_of_helm_without_a_known_end_is_missing_once_and_by_kind(
    tmp_path, form, stated, kind, text
):
    log = read_log(helm_with_ends(tmp_path, [{"reason": "stop"}, form(stated)], text))

    without_text = 2 if text is None else 1
    assert log.missing[kind] == 1
    assert sum(log.missing.values()) == without_text
    assert log.scored("exact_match")["score"].isna().tolist()[1]


@pytest.mark.parametrize("stated", [None, {}, {"reason": None}])
def test_an_answer_of_helm_that_states_no_end_is_read_as_it_stands(tmp_path, stated):
    log = read_log(helm_with_ends(tmp_path, [stated]))

    assert not log.missing
    assert log.scored("exact_match")["score"].tolist() == [1.0]
