"""The reader of guesses, over files of every kind: the right counts, or an error that names file, row and column."""

import csv
import json
import math

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lethe.audits.kinds.guesses import read_guesses
from lethe.errors import BadRow, BadValue
from lethe.statistics.one_run.counts import release

COLUMNS = ("bit", "guess", "score")
SCORES = st.sampled_from([-math.inf, -2.0, 0.0, 0.5, 3.0, math.inf]) | st.floats(
    width=16, allow_nan=False
)
ROWS = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1), SCORES), min_size=1, max_size=12)
BROKEN = {"bit": [2, -1, 0.5, None, math.inf], "guess": [2, 0.5, None], "score": [None, math.nan]}
SUFFIXES = st.sampled_from([".csv", ".jsonl", ".parquet"])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("guesses")


def write(path, rows, columns=None, blanks=()):
    """``rows`` as dicts, the columns in the order given; a blank line before each row numbered in ``blanks``.

    Returns the line of each row.
    """
    columns = columns or list(rows[0])
    if path.suffix == ".parquet":
        pd.DataFrame(rows, columns=columns).to_parquet(path)
        return list(range(1, len(rows) + 1))
    places, line = [], int(path.suffix == ".csv")
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        if line:
            writer.writerow(columns)
        for number, row in enumerate(rows):
            file.write("\n" * (number in blanks))
            line += 1 + (number in blanks)
            places.append(line)
            if path.suffix == ".csv":
                writer.writerow([row[name] for name in columns])
            else:
                file.write(json.dumps({name: row[name] for name in columns}) + "\n")
    return places


def as_dicts(rows):
    return [dict(zip(COLUMNS, row, strict=True)) | {"note": "a"} for row in rows]


@given(
    rows=ROWS,
    suffix=SUFFIXES,
    columns=st.permutations([*COLUMNS, "note"]),
    blanks=st.sets(st.integers(0, 11)),
    r=st.integers(-1, 14),
    seed=st.integers(0, 3),
)
@settings(max_examples=60)
def test_a_file_gives_the_counts_of_its_rows(folder, rows, suffix, columns, blanks, r, seed):
    path = folder / f"legal{suffix}"
    write(path, as_dicts(rows), columns, blanks)
    read = read_guesses(path)
    assert list(zip(read.bits, read.guesses, read.scores, strict=True)) == rows
    if not 1 <= r <= len(rows):
        with pytest.raises(BadValue, match=rf"^r: got {r}; .* 1 to n = {len(rows)}"):
            release(read.bits, read.guesses, read.scores, r, seed)
        return
    offered = sum(score > -math.inf for *_, score in rows)
    if r > offered:
        with pytest.raises(
            BadValue, match=rf"^r: got {r}; must be at most {offered}, the number of guesses"
        ):
            release(read.bits, read.guesses, read.scores, r, seed)
        return
    counts = release(read.bits, read.guesses, read.scores, r, seed)
    # Whatever order the ties at the cut fall into, what lies above it is released and what lies below is not.
    cut = sorted((score for *_, score in rows), reverse=True)[r - 1]
    above = [bit != guess for bit, guess, score in rows if score > cut]
    tied = [bit != guess for bit, guess, score in rows if score == cut]
    left = r - len(above)
    assert (
        sum(above) + max(0, left - tied.count(False))
        <= counts.errors
        <= sum(above) + min(left, sum(tied))
    )
    assert (counts.n, counts.r) == (len(rows), r)
    assert 0 <= counts.false_positives <= min(counts.negatives, counts.errors)
    if left == len(tied):
        released = [row for row in rows if row[2] >= cut]
        assert counts.errors == sum(above) + sum(tied)
        assert counts.negatives == sum(bit == 0 for bit, *_ in released)
        assert counts.false_positives == sum(bit == 0 and guess == 1 for bit, guess, _ in released)


@given(rows=ROWS, suffix=SUFFIXES, blanks=st.sets(st.integers(0, 11)), data=st.data())
@settings(max_examples=60)
def test_a_broken_cell_is_named_by_file_line_and_column(folder, rows, suffix, blanks, data):
    column = data.draw(st.sampled_from(COLUMNS))
    words = [] if suffix == ".parquet" else ["yes", "0x1"]  # a column of Parquet has one type
    value = data.draw(st.sampled_from([*BROKEN[column], *words]))
    row = data.draw(st.integers(0, len(rows) - 1))
    table = as_dicts(rows)
    table[row][column] = value
    path = folder / f"broken{suffix}"
    lines = write(path, table, [*COLUMNS, "note"], blanks)
    with pytest.raises(BadRow) as caught:
        read_guesses(path)
    assert str(caught.value).startswith(f"{path}, line {lines[row]}: ")
    assert column in str(caught.value).partition(": ")[2]
