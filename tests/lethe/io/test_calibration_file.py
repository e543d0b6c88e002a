"""Calibration files: what a user may write in each of the kinds of table, and errors that name the file and the line."""

import math
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lethe.errors import BadFile, BadRow, MissingColumn
from lethe.io.judged_answers import read_calibration
from lethe.statistics.judge_error import Calibration
from tests.lethe.audits.test_one_run import write

SUFFIXES = (".csv", ".parquet", ".jsonl")


def written(rows, path: Path) -> list[int]:
    """The same rows in each kind of table; None is a missing cell."""
    return write(
        path,
        [{"label": label, "answer": 'a, or "b"\'s', "verdict": verdict} for label, verdict in rows],
    )


verdicts = st.sampled_from([0, 1, None])
rows_of_both = st.lists(st.tuples(st.sampled_from([0, 1]), verdicts), max_size=30).flatmap(
    lambda rows: st.permutations([*rows, (0, 0), (1, 1)])
)


@given(rows_of_both, st.sampled_from(SUFFIXES))
@settings(max_examples=60)
def test_what_is_written_is_read(rows, suffix):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"labelled{suffix}")
        lines = written(rows, path)
        found = read_calibration(path, missing="worst")
        assert found.labels.tolist() == [label for label, _ in rows]
        assert [None if math.isnan(value) else value for value in found.verdicts] == [
            other for _, other in rows
        ]
        judged = [row for row in rows if row[1] is not None]
        dropped = read_calibration(path, missing="drop")
        assert list(zip(dropped.labels, dropped.verdicts, strict=True)) == judged
        if len(judged) < len(rows):
            place = next(place for place, (_, verdict) in enumerate(rows) if verdict is None)
            with pytest.raises(BadRow, match="verdict is missing") as told:
                read_calibration(path)
            assert told.value.row == lines[place]
            assert "--missing" in str(told.value)
        counts = Calibration.of(found.labels, found.verdicts)
        assert counts.leaks + counts.clean == len(rows)
        assert counts.leaks_called == rows.count((1, 1))
        assert counts.clean_unjudged == rows.count((0, None))


@given(
    rows_of_both,
    st.sampled_from(SUFFIXES),
    st.sampled_from(["label", "verdict"]),
    st.sampled_from([2, -1, 0.5, math.inf, 10**400])
    | st.floats(allow_nan=False).filter(lambda x: x not in (0, 1)),
    st.data(),
)
@settings(max_examples=60)
def test_a_cell_that_is_neither_0_nor_1_is_named_by_its_line(rows, suffix, column, value, data):
    place = data.draw(st.integers(0, len(rows)))
    if suffix == ".parquet" and isinstance(value, int) and value > 2**63:
        value = 7  # a Parquet column holds no such number
    rows.insert(place, (value, 1) if column == "label" else (1, value))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"labelled{suffix}")
        lines = written(rows, path)
        with pytest.raises(BadRow, match=f"{column}: got") as told:
            read_calibration(path, missing="drop")
        assert told.value.row == lines[place]
        assert str(path) in str(told.value)


def test_a_column_must_be_there_and_spelt(tmp_path):
    path = tmp_path / "labelled.csv"
    path.write_text("label,judged\n1,1\n")
    with pytest.raises(MissingColumn, match="verdict"):
        read_calibration(path)
    path.write_text("label,Verdict \n1,1\n")
    with pytest.raises(BadFile, match="not spelt 'verdict'"):
        read_calibration(path)
    with pytest.raises(BadFile, match="no such file"):
        read_calibration(tmp_path / "none.csv")


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_an_answer_that_several_people_labelled_is_one_answer(tmp_path, suffix):
    rows = [
        {"id": number, "annotator": name, "label": number % 2, "verdict": 1}
        for name in "AB"
        for number in range(10)
    ]
    write(tmp_path / f"f{suffix}", rows)
    write(tmp_path / f"one{suffix}", rows[:10])

    assert len(read_calibration(tmp_path / f"one{suffix}").labels) == 10
    with pytest.raises(BadFile, match="2 values of annotator"):
        read_calibration(tmp_path / f"f{suffix}")


def test_a_draw_that_is_labelled_twice_is_a_copy(tmp_path):
    rows = [{"prompt_id": "a", "sample": n % 5, "label": n % 2, "verdict": 1} for n in range(10)]
    write(tmp_path / "f.csv", rows)

    with pytest.raises(BadRow, match="repeat an earlier"):
        read_calibration(tmp_path / "f.csv")
