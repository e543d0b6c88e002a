"""The reader of guesses, over files of every kind: the right counts, or an error that names file, row and column."""

import csv
import json
import math
from dataclasses import dataclass

import numpy as np
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
BROKEN = {"bit": [2, -1, 0.5, None, math.inf], "guess": [2, 0.5, None], "score": [None, math.nan]}
SUFFIXES = st.sampled_from([".csv", ".jsonl", ".parquet"])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("guesses")


def write_parquet(path, rows, columns):
    pd.DataFrame(rows, columns=columns).to_parquet(path)
    return list(range(1, len(rows) + 1))


def write(path, rows, columns=None, blanks=()):
    """``rows`` as dicts, the columns in their order; a blank line before each row numbered in ``blanks``.

    Returns the line of each row.
    """
    columns = columns or list(rows[0])
    if path.suffix == ".parquet":
        return write_parquet(path, rows, columns)

    is_csv = path.suffix == ".csv"
    lines_of_rows = []
    lines_written = 0
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        if is_csv:
            writer.writerow(columns)
            lines_written += 1
        for number, row in enumerate(rows):
            if number in blanks:
                file.write("\n")
                lines_written += 1
            cells = {name: row[name] for name in columns}
            if is_csv:
                writer.writerow(cells.values())
            else:
                file.write(json.dumps(cells) + "\n")
            lines_written += 1
            lines_of_rows.append(lines_written)
    return lines_of_rows


@dataclass(frozen=True)
class Row:
    """A guess of a bit, and how sure it is."""

    bit: int
    guess: int
    score: float

    @property
    def is_error(self):
        return self.bit != self.guess

    @property
    def is_false_positive(self):
        return self.bit == 0 and self.guess == 1


def as_dicts(rows):
    return [{"bit": row.bit, "guess": row.guess, "score": row.score, "note": "a"} for row in rows]


BITS = st.integers(0, 1)
ROW = st.builds(Row, bit=BITS, guess=BITS, score=SCORES)
ROWS = st.lists(ROW, min_size=1, max_size=12)
GUESS = ROW.filter(lambda row: row.score > -math.inf)
NO_GUESS = st.builds(Row, bit=BITS, guess=BITS, score=st.just(-math.inf))


@given(
    rows=ROWS,
    suffix=SUFFIXES,
    columns=st.permutations([*COLUMNS, "note"]),
    blanks=st.sets(st.integers(0, 11)),
)
@settings(max_examples=60)
def test_a_file_gives_its_rows(folder, rows, suffix, columns, blanks):
    path = folder / f"legal{suffix}"
    write(path, as_dicts(rows), columns, blanks)

    guesses = read_guesses(path)

    read = zip(guesses.bits, guesses.guesses, guesses.scores, strict=True)
    assert [Row(*cells) for cells in read] == rows


def released(rows, r, seed=0):
    bits = np.array([row.bit for row in rows])
    guesses = np.array([row.guess for row in rows])
    return release(bits, guesses, np.array([row.score for row in rows]), r, seed)


def n_offered(rows):
    return sum(row.score > -math.inf for row in rows)


@given(rows=ROWS, data=st.data())
def test_a_number_of_released_rows_that_are_not_there_is_refused(rows, data):
    r = data.draw(st.sampled_from([-1, 0, len(rows) + 1, 14]))

    with pytest.raises(BadValue, match=rf"^r: got {r}; .* 1 to n = {len(rows)}"):
        released(rows, r)


@given(rows=ROWS, no_guess=NO_GUESS, data=st.data())
def test_more_rows_than_guesses_are_refused(rows, no_guess, data):
    rows = [*rows, no_guess]
    offered = n_offered(rows)
    r = data.draw(st.integers(offered + 1, len(rows)))

    with pytest.raises(BadValue, match=rf"^r: got {r}; must be at most {offered}, the number"):
        released(rows, r)


@given(rows=ROWS, guess=GUESS, seed=st.integers(0, 3), data=st.data())
def test_the_surest_rows_are_released_whatever_the_order_of_ties(rows, guess, seed, data):
    rows = [*rows, guess]
    r = data.draw(st.integers(1, n_offered(rows)))
    cut = sorted((row.score for row in rows), reverse=True)[r - 1]
    above = [row for row in rows if row.score > cut]
    tied = [row for row in rows if row.score == cut]
    left = r - len(above)
    errors_above = sum(row.is_error for row in above)
    errors_tied = sum(row.is_error for row in tied)
    right_tied = len(tied) - errors_tied

    counts = released(rows, r, seed)

    assert (counts.n, counts.r) == (len(rows), r)
    fewest = errors_above + max(0, left - right_tied)
    assert fewest <= counts.errors <= errors_above + min(left, errors_tied)
    assert 0 <= counts.false_positives <= min(counts.negatives, counts.errors)
    if left == len(tied):  # no tie is cut
        assert counts.errors == errors_above + errors_tied
        assert counts.negatives == sum(row.bit == 0 for row in above + tied)
        assert counts.false_positives == sum(row.is_false_positive for row in above + tied)


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

    place, _, problem = str(caught.value).partition(": ")
    assert place == f"{path}, line {lines[row]}"
    assert column in problem
