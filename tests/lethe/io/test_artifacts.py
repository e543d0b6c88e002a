import json
import subprocess
import sys
import threading

import pytest

from lethe.errors import BadFile, BadInput, BadRow, MissingColumn
from lethe.io import atomic, json_files, tables


def test_a_failing_writer_leaves_the_old_file_and_no_rest(tmp_path):
    place = tmp_path / "value.json"
    json_files.write_json(place, {"a": 1})
    with pytest.raises(RuntimeError), atomic.atomic_file(place) as temporary:
        temporary.write_text("half")
        raise RuntimeError
    assert json.loads(place.read_text()) == {"a": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["value.json"]


@pytest.fixture(params=["exchanged", "moved"])
def either_way(request, monkeypatch):
    """With renameat2 and where a system lacks it."""
    if request.param == "moved":
        monkeypatch.setattr(atomic, "_exchanged", lambda one, other: False)
    return request.param


def test_a_folder_takes_the_place_of_whatever_stood_there(tmp_path, either_way):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/old").write_text("old")
    (tmp_path / "file").write_text("old")
    (tmp_path / "kept").mkdir()
    (tmp_path / "link").symlink_to("kept")
    for name in ("folder", "file", "link"):
        with atomic.atomic_folder(tmp_path / name) as temporary:
            (temporary / "new").write_text("new")
        assert [path.name for path in (tmp_path / name).iterdir()] == ["new"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder", "kept", "link"]
    assert not list((tmp_path / "kept").iterdir())


def test_a_reader_always_finds_a_whole_folder(tmp_path):
    place, done, broken = tmp_path / "model", threading.Event(), []

    def read():
        while not done.is_set():
            try:
                (place / "last").read_text()
            except FileNotFoundError as error:
                broken.append(error)

    def write():
        with atomic.atomic_folder(place) as temporary:
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
from lethe.io.atomic import atomic_file, atomic_folder
with {kind}({place!r}) as temporary:
    (temporary / "x" if {kind} is atomic_folder else temporary).write_text("half")
    print("writing", flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("kind", ["atomic_file", "atomic_folder"])
def test_a_killed_writer_leaves_the_old_one_and_the_next_write_its_rest_alone_if_it_lives(tmp_path, kind):
    place = tmp_path / "place"

    def write(text):
        with getattr(atomic, kind)(place) as temporary:
            (temporary / "x" if kind == "atomic_folder" else temporary).write_text(text)

    def content():
        return (place / "x" if kind == "atomic_folder" else place).read_text()

    write("old")
    (tmp_path / ".place.mine.tmp").write_text("of the user")
    code = WRITER.format(kind=kind, place=str(place))
    writers = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(2)]
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
    with atomic.files_into(place) as temporary:
        (temporary / "result.json").write_text("new")
    assert {path.name: path.read_text() for path in place.iterdir()} == {
        "thesis.txt": "years of work",
        "result.json": "new",
    }
    with pytest.raises(RuntimeError), atomic.files_into(place) as temporary:
        (temporary / "result.json").write_text("half")
        raise RuntimeError
    assert (place / "result.json").read_text() == "new"
    assert len(list(place.iterdir())) == 2


@pytest.mark.parametrize("place", ["file", "file/below", "mine"])
def test_a_place_that_can_hold_no_file_of_that_name_is_refused(tmp_path, place):
    (tmp_path / "file").write_text("of the user")
    (tmp_path / "mine/result.json").mkdir(parents=True)
    with pytest.raises(BadFile), atomic.files_into(tmp_path / place) as temporary:
        (temporary / "result.json").write_text("new")
    assert (tmp_path / "file").read_text() == "of the user"
    assert (tmp_path / "mine/result.json").is_dir()


def test_json_never_holds_what_is_not_finite(tmp_path):
    place = tmp_path / "x.json"
    json_files.write_json(place, {"a": float("nan"), "b": [float("inf"), 1.5]})
    assert json.loads(place.read_text()) == {"a": None, "b": [None, 1.5]}


def test_a_broken_line_is_named_by_file_and_line(tmp_path):
    place = tmp_path / "rows.jsonl"
    place.write_text('{"a": 1}\n\n{"a": \n')
    with pytest.raises(BadRow, match=r"rows\.jsonl, line 3"):
        json_files.read_jsonl(place)
    place.write_bytes(b'{"a": 1}\n{"a": "\xff"}\n')
    with pytest.raises(BadRow, match="line 2: not valid UTF-8"):
        json_files.read_jsonl(place)
    place.write_text('{"a": 1}\n[2]\n')
    with pytest.raises(BadRow, match="line 2: got list"):
        json_files.read_jsonl(place)


def test_table_errors_say_what_to_do(tmp_path):
    place = tmp_path / "t.csv"
    with pytest.raises(BadFile, match="no such file"):
        tables.read_table(place)
    place.write_text("")
    with pytest.raises(BadFile, match="is empty"):
        tables.read_table(place)
    place.write_text("value\n1\n")
    with pytest.raises(MissingColumn, match="column 'score'"):
        tables.read_table(place, required=["score"])
    place.write_text("score\n1\nabc\n")
    with pytest.raises(BadRow, match="line 3: column score: got"):
        tables.numeric_column(tables.read_table(place), "score", place)
    with pytest.raises(BadFile, match=r"'.xls'.* \.csv, \.parquet, \.jsonl"):
        (tmp_path / "t.xls").write_text("x")
        tables.read_table(tmp_path / "t.xls")
    (tmp_path / "t.parquet").write_text("not parquet")
    with pytest.raises(BadFile, match="cannot be read"):
        tables.read_table(tmp_path / "t.parquet")


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("t.csv", "score\n.1\n\nx\n", "line 4: column score: got 'x'"),
        ("t.csv", '\n\nnote,score\n"two\nlines",.1\nb,x\n', "line 6: column score: got 'x'"),
        ("t.jsonl", '{"score": 1}\n\n\n{"score": "x"}\n', "line 4: column score: got 'x'"),
        ("t.jsonl", '{"score": [1]}', r"line 1: column score: got \[1\]"),
        ("t.jsonl", f'{{"score": 1}}\n{{"score": {"9" * 5000}}}', "line 2: "),
        ("t.jsonl", '{"score": ' + "[" * 100_000, "line 1: nested too deeply"),
        ("t.jsonl", '{"score": 1, "label": {"a": 1}}', "line 1: column label: got {'a': 1}, expected a label"),
        ("t.jsonl", '{"score": 1, "score": 2}', "line 1: .*'score'"),
        ("t.csv", "score,score\n1,2\n", "two columns are called 'score'"),
        ("t.csv", "label;score\na;1\n", "Commas separate the columns"),
        ("t.csv", "score\n1_0\n", "line 2: column score: got '1_0'"),
        ("t.csv", "score, label\n1,a\n", "its column ' label' is not spelt 'label'"),
        ("t.csv", "Score,label\n1,a\n", "its column 'Score' is not spelt 'score'"),
        ("t.jsonl", '{"score": 1, "Label": "a"}', "its column 'Label' is not spelt 'label'"),
        ("t.jsonl", r'{"score": 1, "label": "\uD83D"}', r"line 1: .*\\ud83d"),
    ],
)
def test_a_broken_table_is_told_with_the_line_an_editor_shows(tmp_path, name, text, said):
    place = tmp_path / name
    place.write_text(text)
    with pytest.raises(BadInput, match=said):
        tables.numeric_column(tables.read_table(place, ["score"], text=["label"]), "score", place)


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
