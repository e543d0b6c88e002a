"""The comparison with the golden values names what differs, and says by its exit status whether anything does."""

import dataclasses
import json
import sys
from pathlib import Path

import pytest

from lethe.results import table
from tests import golden

ROW = table.Result(
    *("m", "question", "leak", "sampled"), item="q", estimate=0.1, lower=0.0, upper=1e-300, alpha_upper=0.05, n=8
)


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({"method": "m", "covers": "all", "assumes": "a", "text": "word", "evidence": {"leaks": 1}}, True),
        ({"upper": 2e-300}, False),
        ({"estimate": None}, False),
        ({"lower": -0.0}, False),
        ({"alpha_lower": 0.0}, False),
        ({"item": "p"}, False),
        ({"at": 1.0}, False),
        ({"n": 9}, False),
    ],
)
def test_the_numbers_of_a_row_count_and_its_words_do_not(tmp_path, change, same):
    place = table.place(tmp_path, "metrics", "m")
    table.write(place, [ROW])
    before = golden.hashes(tmp_path)
    table.write(place, [dataclasses.replace(ROW, **change)])
    assert list(before) == ["results/metrics/m.parquet"]
    assert (golden.hashes(tmp_path) == before) is same


@pytest.mark.parametrize(("content", "status"), [(ROW, 0), (dataclasses.replace(ROW, n=9), 1), (None, 2)])
def test_the_exit_status(tmp_path, monkeypatch, capsys, content, status):
    place = table.place(tmp_path, "metrics", "base")
    table.write(place, [ROW])
    monkeypatch.setattr(golden, "FILE", tmp_path / "golden.json")
    Path(golden.FILE).write_text(json.dumps({"demonstration": golden.hashes(tmp_path)}))
    place.unlink() if content is None else table.write(place, [content])
    monkeypatch.setattr(sys, "argv", ["golden", "--data", str(tmp_path)])
    assert golden.main() == status
    assert ("results/metrics/base.parquet: other values" in capsys.readouterr().out) == (status == 1)


@pytest.mark.parametrize("pipeline", golden.PIPELINES)
def test_the_committed_file_holds_every_kind_of_file(pipeline):
    names = golden.committed(pipeline)
    assert all(any(Path(name).match(pattern) for name in names) for pattern in golden.CONTENT)
