"""Answers beside a Retrain: every number but the words takes the first answers, and the words count all of them."""

import json

import numpy as np
import pandas as pd
import pytest

from lethe.config.measuring import ScoreSettings
from lethe.errors import MissingArtifact
from lethe.io.artifacts import Tables, first_rows, write_parts
from lethe.io.files import SCHEMA_VERSION, write_json, write_jsonl
from lethe.io.tables import read_table
from lethe.measure.answers import AnswerCounts, AnswerTables, counts_at_any_time
from lethe.steps import score

FIRST = 4
ROW = {"id": "q", "question": "Who?", "answer": "Ada", "keywords": ["Ada"]}
STREAM_OF_RETRAIN = "b" * 16


def generations(texts, greedy=True):
    start = -1 if greedy else 0
    numbers = np.arange(start, start + len(texts), dtype=np.int32)
    return pd.DataFrame(
        {
            "prompt_id": "q",
            "sample": numbers,
            "text": texts,
            "tokens": np.ones(len(texts), np.int32),
            "finish_reason": ["length" if text == "cut" else "stop" for text in texts],
            "mean_confidence": 0.5,
        }
    )


def write_model(root, name, texts, stop, stream, beside=None):
    folder = root / "generations" / name
    write_parts(folder / "forget.parquet", [generations(texts)])
    about = {"schema": SCHEMA_VERSION, "stop": stop, "stream": stream}
    about["splits"] = {"forget": {"questions": 1, "n": FIRST if stop == "word" else len(texts) - 1}}
    if beside is not None:
        table = generations(beside, greedy=False)
        write_parts(folder / "beside/retrain.parquet", [table])
        about["word"] = {"beside": {"retrain": {"stream": STREAM_OF_RETRAIN}}}
    write_json(folder / "about.json", about)
    write_json(
        root / "likelihood" / name / "none.json", {"schema": SCHEMA_VERSION, "reason": "none"}
    )


def scored_run(root, stop="word", stream="a" * 16, beside=("Ada", "no", "no")):
    write_jsonl(root / "dataset/forget.jsonl", [ROW])
    leaks = ["Ada", "no", "Ada", "cut", "no"]  # the greedy answer, and four first ones
    later = ["Ada", "cut"]
    write_model(root, "mine", [*leaks, *later], stop, stream, beside)
    write_model(root, "retrain", ["no", "Ada", "no", "no", "no"], stop, "c" * 16)
    for name in ("mine", "retrain"):
        score.run(name, ScoreSettings(scorers=["keyword_leak"]), root)
    return root


@pytest.fixture
def root(tmp_path):
    return scored_run(tmp_path)


@pytest.mark.parametrize("kind", ["generations", "scores"])
def test_a_table_has_the_first_answers_and_the_greedy_one(root, kind):
    tables = Tables(root / kind / "mine", "")

    assert tables["forget"]["sample"].tolist() == [-1, 0, 1, 2, 3]
    (part,) = tables.parts("forget", ["prompt_id"])
    assert list(part) == ["prompt_id"]
    assert len(part) == 1 + FIRST


def test_answers_joined_with_scores_are_the_first_ones(root):
    files = tuple(root / kind / "mine/forget.parquet" for kind in ("generations", "scores"))

    joined = AnswerTables({"forget": files})["forget"]

    assert joined["sample"].tolist() == [-1, 0, 1, 2, 3]
    assert joined["keyword_leak"].tolist() == [1, 0, 1, 0, 0]


def test_the_file_keeps_every_answer(root):
    place = root / "generations/mine/forget.parquet"

    table = read_table(place)

    assert table["sample"].tolist() == [-1, 0, 1, 2, 3, 4, 5]
    assert len(first_rows(table, place)) == 1 + FIRST


def test_with_a_fixed_number_every_answer_is_a_first_one(tmp_path):
    root = scored_run(tmp_path, stop="fixed", beside=None)

    assert len(Tables(root / "scores/mine", "")["forget"]) == 7


def test_the_word_counts_all_answers_and_those_of_retrain_beside_them(root):
    found = counts_at_any_time(root, "mine", "keyword_leak", ["retrain"])

    assert found.model == {"q": AnswerCounts(leaks=2, n=6, missing=0, cut=2, cut_clean=2)}
    assert found.retrains == {"retrain": {"q": AnswerCounts(leaks=1, n=3)}}
    assert found.independent


def test_beside_a_model_of_a_fixed_number_are_the_answers_of_retrains_stage(tmp_path):
    root = scored_run(tmp_path, stop="fixed", beside=None)

    found = counts_at_any_time(root, "mine", "keyword_leak", ["retrain"])

    assert found.retrains == {"retrain": {"q": AnswerCounts(leaks=1, n=4)}}
    assert found.independent


def test_a_retrain_that_was_not_asked_counts_nothing(tmp_path):
    root = scored_run(tmp_path, beside=())

    found = counts_at_any_time(root, "mine", "keyword_leak", ["retrain"])

    assert found.retrains == {"retrain": {"q": AnswerCounts()}}


@pytest.mark.parametrize("stream", ["shared", STREAM_OF_RETRAIN])
def test_models_of_one_stream_are_not_independent(tmp_path, stream):
    root = scored_run(tmp_path, stream=stream)

    assert not counts_at_any_time(root, "mine", "keyword_leak", ["retrain"]).independent


def test_scores_without_the_column_count_nothing(root):
    assert counts_at_any_time(root, "mine", "exact_match") is None


def test_counts_of_a_model_that_was_not_scored_name_the_stage(root):
    (root / "scores/mine/forget.parquet").unlink()

    with pytest.raises(MissingArtifact, match="score@mine"):
        counts_at_any_time(root, "mine", "keyword_leak")


def test_the_record_of_scores_counts_the_missing_ones_of_first_answers(tmp_path):
    root = scored_run(tmp_path)

    about = json.loads((root / "scores/mine/about.json").read_text())

    assert about["missing"] == {"forget": {"keyword_leak": 0}}
