import json

import pytest

from stages import artifacts
from stages.errors import BadFile, BadRow, MissingColumn


def test_a_failing_writer_leaves_the_old_file_and_no_rest(tmp_path):
    place = tmp_path / "value.json"
    artifacts.write_json(place, {"a": 1})
    with pytest.raises(RuntimeError), artifacts.atomic_file(place) as temporary:
        temporary.write_text("half")
        raise RuntimeError
    assert json.loads(place.read_text()) == {"a": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["value.json"]


def test_a_failing_folder_writer_leaves_the_old_folder(tmp_path):
    place = tmp_path / "model"
    with artifacts.atomic_folder(place) as temporary:
        (temporary / "x").write_text("old")
    with pytest.raises(RuntimeError), artifacts.atomic_folder(place) as temporary:
        (temporary / "x").write_text("new")
        raise RuntimeError
    assert (place / "x").read_text() == "old"
    with artifacts.atomic_folder(place) as temporary:
        (temporary / "y").write_text("newer")
    assert [path.name for path in place.iterdir()] == ["y"]
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_json_never_holds_what_is_not_finite(tmp_path):
    place = tmp_path / "x.json"
    artifacts.write_json(place, {"a": float("nan"), "b": [float("inf"), 1.5]})
    assert json.loads(place.read_text()) == {"a": None, "b": [None, 1.5]}


def test_a_broken_line_is_named_by_file_and_line(tmp_path):
    place = tmp_path / "rows.jsonl"
    place.write_text('{"a": 1}\n\n{"a": \n')
    with pytest.raises(BadRow, match=r"rows\.jsonl, line 3"):
        artifacts.read_jsonl(place)
    place.write_bytes(b'{"a": 1}\n{"a": "\xff"}\n')
    with pytest.raises(BadRow, match="line 2: not valid UTF-8"):
        artifacts.read_jsonl(place)
    place.write_text('{"a": 1}\n[2]\n')
    with pytest.raises(BadRow, match="line 2: got list"):
        artifacts.read_jsonl(place)


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_tables_keep_row_order_and_types(tmp_path, suffix):
    import pandas as pd

    frame = pd.DataFrame({"score": [0.25, None, 1.0], "prompt_id": ["b", "a", "b"]})
    place = tmp_path / f"t{suffix}"
    if suffix == ".csv":
        frame.to_csv(place, index=False)
    elif suffix == ".jsonl":
        frame.to_json(place, orient="records", lines=True)
    else:
        artifacts.write_parquet(place, frame)
    table = artifacts.read_table(place, required=["score"])
    assert list(table.prompt_id) == ["b", "a", "b"]
    values = artifacts.numeric_column(table, "score", place)
    assert values[0] == 0.25
    assert values[1] != values[1]
    assert values[2] == 1.0


def test_table_errors_say_what_to_do(tmp_path):
    place = tmp_path / "t.csv"
    with pytest.raises(BadFile, match="no such file"):
        artifacts.read_table(place)
    place.write_text("")
    with pytest.raises(BadFile, match="is empty"):
        artifacts.read_table(place)
    place.write_text("value\n1\n")
    with pytest.raises(MissingColumn, match="no column 'score'; its columns are value"):
        artifacts.read_table(place, required=["score"])
    place.write_text("score\n1\nabc\n")
    with pytest.raises(BadRow, match=r"line 3: column score: got 'abc'"):
        artifacts.numeric_column(artifacts.read_table(place), "score", place)
    with pytest.raises(BadFile, match=r"legal are \.csv"):
        (tmp_path / "t.xls").write_text("x")
        artifacts.read_table(tmp_path / "t.xls")
    (tmp_path / "t.parquet").write_text("not parquet")
    with pytest.raises(BadFile, match="cannot be read as Parquet"):
        artifacts.read_table(tmp_path / "t.parquet")
