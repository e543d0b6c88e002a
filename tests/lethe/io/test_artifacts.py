"""Artifacts: written whole or not at all, read in parts, with the version of their schema."""

import dataclasses
import json
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lethe.errors import BadFile, BadInput, BadRow, OtherSchema
from lethe.io import artifacts, files, records, tables
from lethe.io import files as schema
from lethe.io.artifacts import (
    Tables,
    joined_parts,
    read_parts,
    read_split,
    rows_of,
    write_parts,
    write_splits,
)
from lethe.io.files import SCHEMA_VERSION, read_json, restored, write_json
from lethe.io.tables import read_arrow, read_table, write_parquet
from lethe.labels.labels import AnswerText, LabelReason, Labels, read_labels
from lethe.results import table
from lethe.statistics.bound import Assumes, Bound, Covers
from tests.cases import cases
from tests.lethe.cli.calls import Command


def test_a_failing_writer_leaves_the_old_file_and_no_rest(tmp_path):
    place = tmp_path / "value.json"
    files.write_json(place, {"a": 1})
    with pytest.raises(RuntimeError), files.atomic_file(place) as temporary:
        temporary.write_text("half")
        raise RuntimeError
    assert json.loads(place.read_text()) == {"a": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["value.json"]


@pytest.fixture(params=["exchanged", "moved"])
def either_way(request, monkeypatch):
    """With renameat2 and where a system lacks it."""
    if request.param == "moved":
        monkeypatch.setattr(files, "_exchanged", lambda source, target: False)
    return request.param


def test_a_folder_takes_the_place_of_whatever_stood_there(tmp_path, either_way):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/old").write_text("old")
    (tmp_path / "file").write_text("old")
    (tmp_path / "kept").mkdir()
    (tmp_path / "link").symlink_to("kept")
    for name in ("folder", "file", "link"):
        with files.atomic_folder(tmp_path / name) as temporary:
            (temporary / "new").write_text("new")
        assert [path.name for path in (tmp_path / name).iterdir()] == ["new"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder", "kept", "link"]
    assert not list((tmp_path / "kept").iterdir())


def test_a_reader_always_finds_a_whole_folder(tmp_path):
    place = tmp_path / "model"
    done = threading.Event()
    broken = []

    def read():
        while not done.is_set():
            try:
                (place / "last").read_text()
            except FileNotFoundError as error:
                broken.append(error)

    def write():
        with files.atomic_folder(place) as temporary:
            for name in ("first", "last"):
                (temporary / name).write_text(name)

    write()
    reader = threading.Thread(target=read)
    reader.start()
    for _ in range(300):
        write()
    done.set()
    reader.join()
    assert not broken


WRITER = """
import sys, time
from lethe.io.files import atomic_file, atomic_folder
with {kind}({place!r}) as temporary:
    (temporary / "x" if {kind} is atomic_folder else temporary).write_text("half")
    print("writing", flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("kind", ["atomic_file", "atomic_folder"])
def test_a_killed_writer_leaves_the_old_one_and_the_next_write_its_rest_alone_if_it_lives(
    tmp_path, kind
):
    place = tmp_path / "place"

    def write(text):
        with getattr(files, kind)(place) as temporary:
            (temporary / "x" if kind == "atomic_folder" else temporary).write_text(text)

    def content():
        return (place / "x" if kind == "atomic_folder" else place).read_text()

    write("old")
    (tmp_path / ".place.mine.tmp").write_text("of the user")
    code = WRITER.format(kind=kind, place=str(place))
    writers = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    try:
        assert [writer.stdout.readline() for writer in writers] == ["writing\n"] * 2
        writers[0].kill()
        writers[0].wait()
        assert content() == "old"
        assert len(list(tmp_path.glob(".place.lethe-*.tmp"))) == 2
        write("new")
        assert content() == "new"
        assert len(list(tmp_path.glob(".place.lethe-*.tmp"))) == 1
    finally:
        for writer in writers:
            writer.kill()
            writer.wait()
            writer.stdout.close()
    write("newer")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".place.mine.tmp", "place"]


def test_files_go_into_a_folder_that_keeps_its_own(tmp_path):
    place = tmp_path / "mine"
    place.mkdir()
    (place / "thesis.txt").write_text("years of work")
    (place / "result.json").write_text("old")
    with files.files_into(place) as temporary:
        (temporary / "result.json").write_text("new")
    assert {path.name: path.read_text() for path in place.iterdir()} == {
        "thesis.txt": "years of work",
        "result.json": "new",
    }
    with pytest.raises(RuntimeError), files.files_into(place) as temporary:
        (temporary / "result.json").write_text("half")
        raise RuntimeError
    assert (place / "result.json").read_text() == "new"
    assert len(list(place.iterdir())) == 2


@pytest.mark.parametrize("place", ["file", "file/below", "mine"])
def test_a_place_that_can_hold_no_file_of_that_name_is_refused(tmp_path, place):
    (tmp_path / "file").write_text("of the user")
    (tmp_path / "mine/result.json").mkdir(parents=True)
    with pytest.raises(BadFile), files.files_into(tmp_path / place) as temporary:
        (temporary / "result.json").write_text("new")
    assert (tmp_path / "file").read_text() == "of the user"
    assert (tmp_path / "mine/result.json").is_dir()


def test_json_never_holds_what_is_not_finite(tmp_path):
    place = tmp_path / "x.json"
    files.write_json(place, {"a": float("nan"), "b": [float("inf"), 1.5]})
    assert json.loads(place.read_text()) == {"a": None, "b": [None, 1.5]}


def test_a_line_that_is_no_utf8_and_a_file_that_is_not_there_are_named(tmp_path):
    place = tmp_path / "rows.jsonl"
    with pytest.raises(BadFile, match="no such file"):
        tables.read_table(place)
    place.write_bytes(b'{"a": 1}\n{"a": "\xff"}\n')
    with pytest.raises(BadRow, match="line 2: not valid UTF-8"):
        files.read_jsonl(place)


@pytest.mark.parametrize(
    ("value", "said"), [("9" * 5000, "line 2: "), ("[" * 100_000, "line 2: nested too deeply")]
)
def test_a_value_beyond_reason_is_told_by_its_line(tmp_path, value, said):
    place = tmp_path / "t.jsonl"
    place.write_text(f'{{"score": 1}}\n{{"score": {value}}}')
    with pytest.raises(BadInput, match=said):
        tables.read_table(place, ["score"])


@cases
def test_a_broken_table_is_told_with_the_line_an_editor_shows(tmp_path, name, text, said):
    place = tmp_path / name
    place.write_text(text)
    with pytest.raises(BadInput, match=said):
        table = tables.read_table(place, ["score"], text=["label"])
        tables.numeric_column(table, "score", place, words=True)


@pytest.mark.parametrize("cell", ["yes", "No", "true", "TRUE"])
@pytest.mark.parametrize("others", ["", "0.5\n", "1\n"])
def test_a_word_is_no_number_where_no_words_are_expected(tmp_path, cell, others):
    place = tmp_path / "t.csv"
    place.write_text(f"loss\n{cell}\n{others}")

    with pytest.raises(BadRow, match=f"line 2: .*got '?(?i:{cell})'?, expected a number"):
        records.read_losses(place)


@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
def test_labels_are_taken_as_they_stand_and_a_byte_order_mark_is_none(tmp_path, suffix):
    place = tmp_path / f"t{suffix}"
    labels = ["NA", "null", "None", "nan"]
    lines = ["score,label", *(f"NA,{label}" for label in labels)]
    if suffix == ".jsonl":
        lines = [json.dumps({"score": None, "label": label}) for label in labels]
    place.write_text("\n".join(lines), encoding="utf-8-sig")
    table = tables.read_table(place, required=["score"], text=["label"])
    assert table["label"].tolist() == labels
    assert table["score"].isna().all()


def answers_to(counts: list[int]) -> pd.DataFrame:
    """Answers to questions q0, q1, ...: so many to each."""
    ids = [f"q{place}" for place, count in enumerate(counts) for _ in range(count)]
    sample = np.array([number for count in counts for number in range(count)], dtype=np.int32)
    text = [f"{prompt_id} {number}" for prompt_id, number in zip(ids, sample, strict=True)]
    return pd.DataFrame(
        {"prompt_id": ids, "sample": sample, "text": text, "score": np.arange(len(ids)) / 7}
    )


@settings(max_examples=60)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=12), st.integers(1, 20), st.integers(1, 30))
def test_parts_are_whole_questions_and_together_the_table(tmp_path_factory, counts, rows, group):
    whole = answers_to(counts)
    path = tmp_path_factory.mktemp("parts") / "t.parquet"
    whole.to_parquet(path, row_group_size=group)
    found = list(read_parts(path, rows=rows))
    pd.testing.assert_frame_equal(pd.concat(found, ignore_index=True), whole)
    ids = [set(part["prompt_id"]) for part in found]
    assert sum(map(len, ids)) == len(counts)  # no question in two parts
    assert all(
        len(part) <= rows or len(ids_of_part) == 1
        for part, ids_of_part in zip(found, ids, strict=True)
    )
    write_parts(path.with_name("again.parquet"), found)
    pd.testing.assert_frame_equal(read_table(path.with_name("again.parquet")), whole)


def test_a_question_in_two_places_is_refused(tmp_path):
    twice = pd.concat([answers_to([3, 3]), answers_to([2])], ignore_index=True)
    twice.to_parquet(tmp_path / "t.parquet")
    with pytest.raises(BadFile, match="'q0' are in two places"):
        list(read_parts(tmp_path / "t.parquet", rows=3))


@settings(max_examples=40)
@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=10),
    st.randoms(use_true_random=False),
    st.integers(1, 4),
)
def test_rows_of_prompts_are_those_of_the_table_in_any_order(
    tmp_path_factory, counts, random, group
):
    whole = answers_to(counts)
    path = tmp_path_factory.mktemp("parts") / "t.parquet"
    write_parquet(path, whole)
    assert rows_of(path) == sum(counts)
    asked = [*whole["prompt_id"].unique(), "unknown"]
    random.shuffle(asked)
    for start in range(0, len(asked), group):
        prompts = asked[start : start + group]
        expected = whole[whole["prompt_id"].isin(prompts)].reset_index(drop=True)
        pd.testing.assert_frame_equal(
            read_arrow(path, prompts).to_pandas(), expected, check_dtype=bool(len(expected))
        )


@pytest.mark.parametrize("order", ["same", "turned", "lacking"])
def test_generations_and_scores_join_as_pandas_joins_them(tmp_path, monkeypatch, order):
    monkeypatch.setattr(artifacts, "ROWS", 7)
    whole = answers_to([3] * 8)
    scores = whole[["prompt_id", "sample"]].assign(leak=np.arange(24) % 2.0)
    scores = {"same": scores, "turned": scores.iloc[::-1], "lacking": scores.iloc[:-2]}[
        order
    ].reset_index(drop=True)
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
    whole = answers_to([3, 3])
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
    answers_to([50, 50]).to_parquet(path)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(BadFile, match=told) as refused:
        read(path)
    assert not re.search("arrow|thrift|snappy|buffer|magic", str(refused.value), re.IGNORECASE)


ROWS = [
    {"id": key, "question": "Who?", "answer": "Ada.", "keywords": ["Ada"]} for key in ("a", "b")
]


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> Path:
    """Read only: a folder of artifacts with one file of each form."""
    root = tmp_path_factory.mktemp("run")
    write_splits({"forget": ROWS}, "jsonl", root / "dataset")
    drawn = [(row["id"], sample) for row in ROWS for sample in range(-1, 4)]
    answers = pd.DataFrame(drawn, columns=["prompt_id", "sample"]).assign(
        text="Ada.", finish_reason="stop"
    )
    scores = answers[["prompt_id", "sample"]].assign(rouge_l=1.0, keyword_leak=1.0)
    bound = Bound(1.0, "upper", 0.01, Covers.WORST_PROMPT, Assumes.DRAWS, "m", 4)
    rows = table.Rows("mine")
    rows.add("model", "leak_worst", "sampled", None, None, bound)
    table.write(table.place(root, "metrics", "mine"), rows.rows)
    for kind, frame in (("generations", answers), ("scores", scores)):
        write_parquet(root / kind / "mine/forget.parquet", frame)
        write_json(
            root / kind / "mine/about.json", {"schema": SCHEMA_VERSION, "scorers": ["rouge_l"]}
        )
    score = {"scorers": ["rouge_l"], "keyword_match": "word"}
    write_json(
        root / "evaluated.json",
        {"schema": SCHEMA_VERSION, "model": "mine", "prompt": "p", "score": score},
    )
    return root


@pytest.fixture
def root(written, tmp_path) -> Path:
    return Path(shutil.copytree(written, tmp_path / "run"))


def compared(root: Path) -> object:
    return Command("compare").result(root, root)


READERS: dict[str, Callable[[Path], object]] = {
    "dataset/about.json": lambda root: read_split("forget", root / "dataset"),
    "results/metrics/mine.parquet": table.read,
    "generations/mine/forget.parquet": lambda root: dict(
        Tables(root / "generations/mine", "stage sample")
    ),
    "scores/mine/forget.parquet": lambda root: dict(Tables(root / "scores/mine", "stage score")),
    "generations/mine/about.json": lambda root: schema.read_artifact(
        root / "generations/mine/about.json"
    ),
    "scores/mine/about.json": compared,
    "evaluated.json": compared,
}


def set_version(path: Path, version: object) -> None:
    if path.suffix == ".json":
        write_json(path, read_json(path) | {"schema": version})
        return
    arrow = pq.read_table(path)
    pq.write_table(
        arrow.replace_schema_metadata({**arrow.schema.metadata, b"lethe_schema": str(version)}),
        path,
    )


@pytest.mark.parametrize("version", [0, SCHEMA_VERSION + 1])
@pytest.mark.parametrize("place", READERS)
def test_another_version_is_refused_with_what_to_do(root, place, version):
    set_version(root / place, version)
    if READERS[place] is compared:
        said = Command("compare").refused(root, root)
    else:
        with pytest.raises(OtherSchema) as error:
            READERS[place](root)
        assert (error.value.version, error.value.read) == (version, SCHEMA_VERSION)
        said = str(error.value)
    assert [
        word for word in (str(root / place), "`dvc repro`", "`lethe run`") if word not in said
    ] == []
    assert ("newer release" in said) == (version > SCHEMA_VERSION)


@pytest.mark.parametrize("told", [b"2", b"\xff\x1b[31m", b"", b"9" * 5000])
def test_a_users_parquet_has_no_version_and_a_strange_one_is_refused(tmp_path, told):
    path = tmp_path / "scores.parquet"
    pd.DataFrame({"score": [0.5]}).to_parquet(path)
    assert read_table(path)["score"].tolist() == [0.5]
    pq.write_table(
        pa.table({"score": [0.5]}).replace_schema_metadata({b"lethe_schema": told}), path
    )
    with pytest.raises(OtherSchema) as error:
        read_table(path)
    assert str(error.value).isprintable()


def test_labels_carry_a_version_and_those_without_are_read(tmp_path):
    path = tmp_path / "mine.jsonl"
    Labels(path).add(AnswerText("q", "Ron"), 1, LabelReason("mass", 0.9), {"q": "Who?"})
    assert json.loads(path.read_text())["schema"] == SCHEMA_VERSION
    path.write_text('{"prompt_id": "q", "text": "Ron", "label": 1, "part": "mass"}\n')
    assert read_labels(path).by_answer == {AnswerText("q", "Ron"): 1}
    path.write_text('{"schema": 2, "prompt_id": "q", "text": "Ron", "label": 1, "part": "mass"}\n')
    with pytest.raises(BadRow, match="1: schema: got 2; must be 1"):
        read_labels(path)


@dataclasses.dataclass(frozen=True)
class Kept:
    number: int


def test_a_reader_of_a_kind_is_made_once(monkeypatch):
    made = []

    class Counted(pydantic.TypeAdapter):
        def __init__(self, kind):
            made.append(kind)
            super().__init__(kind)

    monkeypatch.setattr(pydantic, "TypeAdapter", Counted)

    first, second = (restored(Kept, {"number": number}) for number in (1, 2))

    assert [first, second] == [Kept(1), Kept(2)]
    assert made == [Kept]
