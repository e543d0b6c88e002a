"""Tables of answers a part at a time: the same rows, whole questions, the bytes of a table written at once."""

import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lethe.errors import BadFile
from lethe.io import artifacts
from lethe.io.artifacts import joined_parts, read_parts, rows_of, write_parts
from lethe.io.tables import read_arrow, read_table, write_parquet


def table(counts: list[int]) -> pd.DataFrame:
    """Answers to questions q0, q1, ...: so many to each."""
    ids = [f"q{place}" for place, count in enumerate(counts) for _ in range(count)]
    sample = np.array([number for count in counts for number in range(count)], dtype=np.int32)
    text = [f"{one} {number}" for one, number in zip(ids, sample, strict=True)]
    return pd.DataFrame({"prompt_id": ids, "sample": sample, "text": text, "score": np.arange(len(ids)) / 7})


@settings(max_examples=60)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=12), st.integers(1, 20), st.integers(1, 30))
def test_parts_are_whole_questions_and_together_the_table(tmp_path_factory, counts, rows, group):
    whole = table(counts)
    path = tmp_path_factory.mktemp("parts") / "t.parquet"
    whole.to_parquet(path, row_group_size=group)
    found = list(read_parts(path, rows=rows))
    pd.testing.assert_frame_equal(pd.concat(found, ignore_index=True), whole)
    ids = [set(part["prompt_id"]) for part in found]
    assert sum(map(len, ids)) == len(counts)  # no question in two parts
    assert all(len(part) <= rows or len(own) == 1 for part, own in zip(found, ids, strict=True))
    write_parts(path.with_name("again.parquet"), found)
    pd.testing.assert_frame_equal(read_table(path.with_name("again.parquet")), whole)


def test_a_question_in_two_places_is_refused(tmp_path):
    twice = pd.concat([table([3, 3]), table([2])], ignore_index=True)
    twice.to_parquet(tmp_path / "t.parquet")
    with pytest.raises(BadFile, match="'q0' are in two places"):
        list(read_parts(tmp_path / "t.parquet", rows=3))


@settings(max_examples=40)
@given(st.lists(st.integers(1, 5), min_size=1, max_size=10), st.randoms(use_true_random=False), st.integers(1, 4))
def test_rows_of_prompts_are_those_of_the_table_in_any_order(tmp_path_factory, counts, random, group):
    whole = table(counts)
    path = tmp_path_factory.mktemp("parts") / "t.parquet"
    write_parquet(path, whole)
    assert rows_of(path) == sum(counts)
    asked = [*whole["prompt_id"].unique(), "unknown"]
    random.shuffle(asked)
    for start in range(0, len(asked), group):
        own = asked[start : start + group]
        expected = whole[whole["prompt_id"].isin(own)].reset_index(drop=True)
        pd.testing.assert_frame_equal(read_arrow(path, own).to_pandas(), expected, check_dtype=bool(len(expected)))


@pytest.mark.parametrize("order", ["same", "turned", "lacking"])
def test_generations_and_scores_join_as_pandas_joins_them(tmp_path, monkeypatch, order):
    monkeypatch.setattr(artifacts, "ROWS", 7)
    whole = table([3] * 8)
    scores = whole[["prompt_id", "sample"]].assign(leak=np.arange(24) % 2.0)
    scores = {"same": scores, "turned": scores.iloc[::-1], "lacking": scores.iloc[:-2]}[order].reset_index(
        drop=True
    )
    drawn, scored = tmp_path / "drawn.parquet", tmp_path / "scores.parquet"
    write_parquet(drawn, whole.drop(columns="score"))
    write_parquet(scored, scores)
    expected = whole.drop(columns="score").merge(scores, on=["prompt_id", "sample"], how="left")
    found = list(joined_parts(drawn, scored))
    assert len(found) == (4 if order == "same" else 1)
    pd.testing.assert_frame_equal(pd.concat(found, ignore_index=True), expected)
    some = pd.concat(joined_parts(drawn, scored, ["leak"]), ignore_index=True)
    pd.testing.assert_frame_equal(some, expected[["prompt_id", "sample", "leak"]])


@pytest.mark.parametrize("which", ["both", "drawn", "scores"])
def test_an_answer_that_is_there_twice_is_refused(tmp_path, which):
    whole = table([3, 3])
    doubled = pd.concat([whole.iloc[:2], whole.iloc[1:]], ignore_index=True)
    for name in ("drawn", "scores"):
        write_parquet(tmp_path / f"{name}.parquet", doubled if which in (name, "both") else whole)
    file = "scores" if which == "scores" else "drawn"
    with pytest.raises(BadFile, match=rf"{file}\.parquet: two rows.*prompt_id q0, sample 1"):
        list(joined_parts(tmp_path / "drawn.parquet", tmp_path / "scores.parquet", ["text"]))


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (lambda content: b"", "empty"),
        (lambda content: b"text" * 99, "begins with b'text'"),
        (lambda content: content[:-30], "cut off"),
        (lambda content: content[:40] + b"\xff" * (len(content) - 240) + content[-200:], "damaged"),
    ],
)
@pytest.mark.parametrize("read", [read_table, lambda path: list(read_parts(path))])
def test_a_broken_file_is_told_in_words_of_its_own(tmp_path, damage, told, read):
    path = tmp_path / "t.parquet"
    table([50, 50]).to_parquet(path)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(BadFile, match=told) as refused:
        read(path)
    assert not re.search("arrow|thrift|snappy|buffer|magic", str(refused.value), re.IGNORECASE)
