"""A sample of `make fuzz`: some hundred broken files for all readers; and the files that once broke a reader."""

import gzip
import json
import os
import subprocess
import sys
import zipfile

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lethe.config import read_yaml
from lethe.config.load import parse
from lethe.data import images
from lethe.errors import BadFile, BadParam, BadRow, MissingColumn, visible
from lethe.io.artifacts import read_parts
from lethe.io.logs import read_log
from lethe.io.tables import read_arrow, read_table
from lethe.labels.draws import read_draws
from lethe.wording import LONGEST
from tests.fuzz.mutations import BOMB
from tests.lethe.io.logs.small_logs import entries, header, pack, sample
from tests.small import ROOT


@pytest.mark.slow
def test_some_hundred_broken_files_are_read_or_refused():
    """A process of its own: the memory of earlier tests does not count, and a killed reader fails this test alone."""
    command = [sys.executable, "-m", "tests.fuzz", "--cases", "800", "--seed", "18"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr
    assert "0 failed" in done.stdout


def test_a_yaml_file_of_aliases_is_refused_at_once(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_text(BOMB)
    with pytest.raises(BadFile, match="more than 100,000 values"):
        read_yaml(path)


def test_a_sentence_quotes_a_file_in_one_short_visible_line(tmp_path):
    path = tmp_path / "a.csv"
    for column in ("\x1b[31mred", "\u202ebidi", "two\nlines", "a" * 100_000):
        said = str(MissingColumn(path, "score", [column]))
        assert visible(said) == said
        assert "\n" not in said
        assert len(said) <= LONGEST + 5
        assert said.startswith(f"{path}: no column 'score'")


@pytest.mark.parametrize("values", [[[], [1]], ["x", "y"], [{"a": 1}, {"a": 2}]])
def test_a_sample_that_is_no_number_is_refused_by_its_row(tmp_path, values):
    path = tmp_path / "drawn.parquet"
    pd.DataFrame({"prompt_id": ["a", "a"], "sample": values, "text": ["x", "y"]}).to_parquet(path)
    with pytest.raises(BadRow, match="line 1: column sample"):
        read_draws(path, None, None, None)


@pytest.mark.parametrize(
    ("lists", "reason"),
    [(20_000_000, "zip bomb"), (1_200_000, "JSON values; a log expands far less")],
)
def test_a_small_archive_of_many_values_is_refused_before_they_are_made(tmp_path, lists, reason):
    answer = json.dumps(sample()).encode()
    answer = answer[:-1] + b', "more": [' + b"[]," * lists + b"[]]}"
    head = json.dumps(header(["q"], epochs=1)).encode()
    path = tmp_path / "a.eval"
    path.write_bytes(pack([("header.json", head), ("samples/q_epoch_1.json", answer)], 8))
    assert path.stat().st_size < 1 << 16

    with pytest.raises(BadFile, match=reason):
        read_log(path)


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_a_table_of_a_hundred_thousand_columns_is_refused_at_once(tmp_path, form):
    names = [f"c{number}" for number in range(100_000)]
    path = tmp_path / f"a.{form}"
    if form == "csv":
        path.write_text(f"{','.join(names)}\n{','.join('0' * len(names))}\n")
    elif form == "jsonl":
        path.write_text(json.dumps(dict.fromkeys(names, 0)) + "\n")
    else:
        pq.write_table(pa.table({name: [0] for name in names[:5000]}), path)

    with pytest.raises(BadFile, match=r"columns; .* at most 2,000"):
        read_table(path)


def test_a_small_parquet_file_of_many_rows_is_refused_before_it_expands(tmp_path):
    path = tmp_path / "a.parquet"
    rows = pa.table({"prompt_id": pa.nulls(60_000_000), "score": pa.nulls(60_000_000)})
    pq.write_table(rows, path)
    assert path.stat().st_size < 1 << 20

    with pytest.raises(BadFile, match="120,000,000 cells"):
        read_table(path)


@pytest.mark.parametrize("method", [8, 93])
def test_an_entry_that_expands_without_end_is_refused_unread(tmp_path, method):
    path = tmp_path / "a.eval"
    known = dict(entries(header(["q"]), [sample("q", 1), sample("q", 2)]))
    known["header.json"] = b" " * (65 << 20) + known["header.json"]
    path.write_bytes(pack(list(known.items()), method))
    with zipfile.ZipFile(path) as opened:
        assert (
            opened.getinfo("header.json").file_size
            > 1000 * opened.getinfo("header.json").compress_size
        )
    with pytest.raises(BadFile, match="zip bomb"):
        read_log(path)


@pytest.mark.parametrize(
    "text", ["2001-99-99", "[" * 600, "9" * 5000, "&a [*a", "{a:, [1,{b}, 2]}"]
)
def test_a_broken_value_of_an_assignment_is_refused(text):
    with pytest.raises(BadParam, match="a value in YAML"):
        parse(f"sample.n={text}")


def test_a_text_of_a_parquet_file_that_is_no_utf8_is_refused(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    texts = pa.Array.from_buffers(
        pa.string(), 1, [None, pa.py_buffer(np.array([0, 2], np.int32)), pa.py_buffer(b"\xe2a")]
    )
    path = tmp_path / "scores.parquet"
    pq.write_table(pa.table({"prompt_id": texts, "score": [0.5]}), path)
    with pytest.raises(BadFile, match="damaged"):
        read_table(path)
    with pytest.raises(BadFile, match="damaged"):
        list(read_parts(path))


def test_a_folder_in_the_place_of_a_table_is_refused(tmp_path):
    (tmp_path / "rows.parquet").mkdir()
    with pytest.raises(BadFile, match=r"rows\.parquet: is a folder"):
        read_arrow(tmp_path / "rows.parquet")


def test_a_gzipped_image_file_is_unzipped_within_a_bound(tmp_path, monkeypatch):
    zipped = tmp_path / "train-images-idx3-ubyte.gz"
    zipped.write_bytes(gzip.compress(bytes(100))[:10] + b"\xff" * 12)
    with pytest.raises(BadFile, match="cannot be unzipped"):
        images._idx(zipped.with_suffix(""), 3)
    monkeypatch.setattr(images, "LARGEST", 99)
    zipped.write_bytes(gzip.compress(bytes(100)))
    with pytest.raises(BadFile, match="expands to more than"):
        images._idx(zipped.with_suffix(""), 3)
