"""A plain table of answers as a log: numbers of samples, the greedy answer, missing texts, scores."""

from __future__ import annotations

import pandas as pd
import pytest

from lethe.api.logs import score_log
from lethe.errors import BadRow, MissingColumn
from lethe.io.logs import is_log, read_log
from lethe.io.tables import write_parquet
from tests.lethe.io.logs.small_logs import write_lines

ROWS = [
    {"prompt_id": "a", "sample": -1, "text": "greedy"},
    {"prompt_id": "a", "sample": 0, "text": "It is Ron."},
    {"prompt_id": "b", "sample": 0, "text": ""},
    {"prompt_id": "a", "sample": 1, "text": None},
]


@pytest.mark.parametrize("ending", ["csv", "parquet", "jsonl"])
def test_a_table_is_read_and_scored(tmp_path, ending):
    path = tmp_path / f"answers.{ending}"
    table = pd.DataFrame(ROWS)
    if ending == "csv":
        table.to_csv(path, index=False)
    else:
        write_parquet(path, table) if ending == "parquet" else write_lines(path, ROWS)
    log = read_log(path)
    assert not is_log(path)
    assert log.format == "table"
    assert "greedy" in log.notes[0]
    if ending == "csv":  # which cannot tell an empty text from none
        assert log.answers["text"].tolist() == ["It is Ron.", "", ""]
    else:
        assert log.answers[["prompt_id", "sample", "text"]].values.tolist() == [
            ["a", 0, "It is Ron."],
            ["b", 0, ""],
        ]
        assert log.missing == {"no text": 1}
    data = [{"id": name, "question": "Who?", "answer": "Ron", "keywords": ["Ron"]} for name in "ab"]
    scores = score_log(path, data=data, scorer="keyword_leak").to_frame()
    assert scores[["prompt_id", "sample"]].values.tolist() == [["a", 0], ["a", 1], ["b", 0]]
    assert scores["keyword_leak"][0] == 1.0


def test_rows_without_numbers_are_numbered(tmp_path):
    rows = [{"prompt_id": 7, "text": text, "judge": score} for text, score in (("a", 1), ("b", None))]
    log = read_log(write_lines(tmp_path / "answers.jsonl", rows))
    assert log.answers["sample"].tolist() == [1, 2]
    assert log.scores == ("judge",)
    assert log.missing == {"unscored": 1}


def test_what_lethe_writes_beside_its_texts_is_no_score(tmp_path):
    row = ROWS[1] | {"tokens": [1, 2], "finish_reason": "length", "mean_confidence": 0.5, "question": "Who?"}
    log = read_log(write_lines(tmp_path / "answers.jsonl", [row]))
    assert log.scores == ()
    assert len(log.notes) == 1
    assert log.prompts["prompt"].tolist() == ["Who?"]


def test_the_judged_answers_of_jailbreakbench(shared):
    log = read_log(shared / "data/human-labels/classifier_comparison.csv")
    assert (len(log.answers), log.prompts["prompt"].notna().all()) == (100, True)
    assert {"human_majority", "gpt_4"} < set(log.scores)


def test_broken_tables(tmp_path):
    (tmp_path / "a.csv").write_text("prompt_id,answer\na,b\n")
    with pytest.raises(MissingColumn, match="text"):
        read_log(tmp_path / "a.csv")
    with pytest.raises(BadRow, match="sample"):
        read_log(write_lines(tmp_path / "a.jsonl", [ROWS[1] | {"sample": 0.5}]))
    with pytest.raises(BadRow, match="text"):
        read_log(write_lines(tmp_path / "a.jsonl", [ROWS[1] | {"text": 5}, ROWS[2]]))
