"""A sample of `make fuzz`: some hundred broken files for all readers; and the files that once broke a reader."""

from __future__ import annotations

import gzip
import json
import os
import random
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from lethe.audits.unlearning_game import swap
from lethe.config import read_yaml
from lethe.config.yaml import parse_value
from lethe.data import images
from lethe.errors import LONGEST, BadFile, BadParam, BadRow, MissingColumn, shortened, visible
from lethe.evaluation.labels import read_draws
from lethe.io.logs import read_log
from lethe.io.parts import read_parts
from lethe.io.tables import read_table
from studies.landscape import classification
from tests.fuzz import __main__ as fuzz
from tests.fuzz.mutations import BOMB, mutated
from tests.fuzz.readers import readers
from tests.lethe.data import benchmark_files
from tests.lethe.io.logs.small_logs import entries, header, pack, sample
from tests.small import ROOT


def test_some_hundred_broken_files_are_read_or_refused():
    """A process of its own: the memory of earlier tests does not count, and a killed reader fails this test alone."""
    command = [sys.executable, "-m", "tests.fuzz", "--cases", "300", "--first", "0", "--seed", "18"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr
    assert "0 failed" in done.stdout


def reader_of(error: BaseException | None) -> fuzz.Reader:
    def read(path: Path) -> None:
        if error is not None:
            raise error

    return fuzz.Reader("r", "a.txt", b"x", read)


class Loud(BadFile):
    """An error that bypasses the escapes of `BadInput`."""

    def __str__(self) -> str:
        return "a\x1b[31mb"


def test_the_fuzzer_finds_what_it_looks_for(tmp_path, monkeypatch):
    path = tmp_path / "a.txt"
    assert fuzz.problem(reader_of(None), path) == (None, False)
    assert fuzz.problem(reader_of(BadFile(path, "is broken")), path) == (None, True)
    assert "control character" in str(fuzz.problem(reader_of(Loud(path, "x")), path)[0])
    assert "KeyError" in str(fuzz.problem(reader_of(KeyError("a")), path)[0])
    monkeypatch.setattr(fuzz, "MEMORY", -1)
    assert "MiB of memory" in str(fuzz.problem(reader_of(None), path)[0])

    def forever(path: Path) -> object:
        while True:
            pass

    monkeypatch.setattr(fuzz, "SECONDS", 0.05)
    assert "processor time" in str(fuzz.problem(fuzz.Reader("r", "a.txt", b"x", forever), path)[0])


def test_a_case_is_repeated_by_its_number(tmp_path):
    known = readers(tmp_path)
    for number in range(20):
        first, again = fuzz.case(number, 3, known), fuzz.case(number, 3, known)
        assert (first[0].name, first[1]) == (again[0].name, again[1])
    assert {one.kind for one in known} == {"text", "bytes", "zip", "parquet"}
    changed = [mutated(one.content, one.kind, random.Random(5)) != one.content for one in known]
    assert sum(changed) > len(known) / 2


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


def test_an_integer_of_thousands_of_digits_is_quoted():
    assert shortened(16**5000) == "an integer of thousands of digits"
    assert shortened({"weight": 16**5000}) == "an entry with an integer of thousands of digits"


@pytest.mark.parametrize("values", [[[], [1]], ["x", "y"], [{"a": 1}, {"a": 2}]])
def test_a_sample_that_is_no_number_is_refused_by_its_row(tmp_path, values):
    path = tmp_path / "drawn.parquet"
    pd.DataFrame({"prompt_id": ["a", "a"], "sample": values, "text": ["x", "y"]}).to_parquet(path)
    with pytest.raises(BadRow, match="line 1: column sample"):
        read_draws(path, None, None, None)


@pytest.mark.parametrize("method", [8, 93])
def test_an_entry_that_expands_without_end_is_refused_unread(tmp_path, method):
    path = tmp_path / "a.eval"
    known = dict(entries(header(["q"]), [sample("q", 1), sample("q", 2)]))
    known["header.json"] = b" " * (65 << 20) + known["header.json"]
    path.write_bytes(pack(list(known.items()), method))
    with zipfile.ZipFile(path) as opened:
        assert opened.getinfo("header.json").file_size > 1000 * opened.getinfo("header.json").compress_size
    with pytest.raises(BadFile, match="zip bomb"):
        read_log(path)


@pytest.mark.parametrize("text", ["2001-99-99", "[" * 600, "9" * 5000, "&a [*a", "{a:, [1,{b}, 2]}"])
def test_a_broken_value_of_an_assignment_is_refused(text):
    with pytest.raises(BadParam, match="a value in YAML"):
        parse_value("sample.n", text)


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


def test_a_list_in_place_of_a_member_is_refused_by_its_row(tmp_path):
    path = tmp_path / "predictions.parquet"
    row = {"split": "original", "member": [], "attack": "a", "accept": 1.0}
    pd.DataFrame([row]).to_parquet(path)
    with pytest.raises(BadRow, match="member"):
        swap.audit(path)


def test_an_index_of_thousands_of_digits_is_refused_by_its_line(tmp_path):
    benchmark_files.write_benchmark("jailbreakbench", tmp_path)
    path = tmp_path / "harmful-behaviors.csv"
    path.write_text(path.read_text().replace('"0"', f'"{"9" * 5000}"'))
    with pytest.raises(BadRow, match=r"line 2: column 'Index': got '999.*"):
        benchmark_files.load("jailbreakbench", tmp_path)


def test_a_gzipped_image_file_is_unzipped_within_a_bound(tmp_path, monkeypatch):
    zipped = tmp_path / "train-images-idx3-ubyte.gz"
    zipped.write_bytes(gzip.compress(bytes(100))[:10] + b"\xff" * 12)
    with pytest.raises(BadFile, match="cannot be unzipped"):
        images._idx(zipped.with_suffix(""), 3)
    monkeypatch.setattr(images, "LARGEST", 99)
    zipped.write_bytes(gzip.compress(bytes(100)))
    with pytest.raises(BadFile, match="expands to more than"):
        images._idx(zipped.with_suffix(""), 3)


@pytest.mark.parametrize("value", [10**400, -(10**400)])
def test_a_certificate_with_an_e_value_beyond_floats_is_refused(tmp_path, value):
    (known,) = [one for one in readers(tmp_path) if one.name == "certificate"]
    told = json.loads(known.content)
    path = tmp_path / "a.json"
    path.write_text(json.dumps(told | {"e_process": told["e_process"] | {"log_e_value": value}}))
    with pytest.raises(BadFile, match="match the counts"):
        known.read(path)


def test_integers_beyond_64_bits_in_a_table_of_people_are_no_crash(tmp_path):
    path = tmp_path / "adult.csv"
    rows = [f"{10**30 + age},Private,{'<=50K' if age % 2 else '>50K'}" for age in range(8)]
    path.write_text("\n".join(["age,work,income", *rows]) + "\n")
    features, labels, classes, _ = classification._adult(str(path), None, np.random.default_rng(0))
    assert (len(features), sorted(set(labels)), classes) == (8, [0, 1], 2)


def test_several_calls_add_up_and_failed_cases_run_again(tmp_path, monkeypatch):
    broken = {3, 7}
    monkeypatch.setattr(fuzz, "readers", lambda folder: [reader_of(None)])
    monkeypatch.setattr(fuzz, "problem", lambda reader, path: ("broken" if taken.pop() in broken else None, False))
    taken: list[int] = []
    monkeypatch.setattr(fuzz, "case", lambda number, seed, known: (taken.append(number), (known[0], b""))[1])
    place = tmp_path / "kept" / "seed-0.json"
    first = fuzz.go_on(place, 100, 0, tmp_path, minutes=0)
    assert first.done == 1  # the time was over after one case
    second = fuzz.go_on(place, 9, 0, tmp_path)
    assert (second.done, second.read["r"], sorted(second.failed)) == (9, 9, [3, 7])
    broken.remove(3)  # mended
    monkeypatch.setattr(fuzz, "state_of_the_code", lambda: "another")
    third = fuzz.go_on(place, 12, 0, tmp_path)
    assert (third.done, third.read["r"], sorted(third.failed)) == (12, 12, [7])
    assert list(third.code) == [0, 9]
    assert fuzz.Count.kept(place) == third
