"""Answers in logs whose tool states why they ended: one that nothing ended is missing, by kind."""

import pandas as pd
import pytest

from lethe.io.logs import read_log
from tests.lethe.io.logs.small_logs import eval_log, header, sample, write_json

KINDS = {"error": 1, "tool_calls": 1}


def answers(stated):
    return [
        {"prompt_id": "q", "sample": place, "text": "Ron", "finish_reason": end, "leak": 0}
        for place, end in enumerate(stated)
    ]


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_an_answer_of_a_table_without_a_known_end_is_missing_by_kind(tmp_path, suffix):
    place, table = tmp_path / f"t.{suffix}", answers(["stop", "error", "length", "tool_calls"])
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
