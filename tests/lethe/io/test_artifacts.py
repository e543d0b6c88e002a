import json
import subprocess
import sys
import threading

import pytest

from lethe.errors import BadFile, BadInput, BadRow
from lethe.io import files, tables
from tests.cases import cases


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
        monkeypatch.setattr(files, "_exchanged", lambda one, other: False)
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
    place, done, broken = tmp_path / "model", threading.Event(), []

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
def test_a_killed_writer_leaves_the_old_one_and_the_next_write_its_rest_alone_if_it_lives(tmp_path, kind):
    place = tmp_path / "place"

    def write(text):
        with getattr(files, kind)(place) as temporary:
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
