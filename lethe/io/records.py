"""The losses of an audit's records, and whether the rows of its table are one of each record, of one model."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lethe.errors import BadFile, BadRow, shortened
from lethe.io.column_names import ALONE, columns_of, meant
from lethe.io.copies import REFUTED, log_chance
from lethe.io.facts import MODELS
from lethe.io.files import read_text
from lethe.io.ids import as_texts
from lethe.io.packed import suffix_of
from lethe.io.tables import (
    TABLE_SUFFIXES,
    file_line,
    looks_like_a_number,
    numeric_column,
    read_table,
)

if TYPE_CHECKING:
    import pandas as pd

# Columns that name the record of a row.
RECORDS = ("id", "uuid", "canary", "canary_id", "record", "record_id", "example_id")
# Columns that say which model, or which training run, a row is of.
RUNS = (*MODELS, "seed", "run", "run_id", "trial")
# Columns that say whether a record was trained on.
SETS = ("split", "member", "is_member", "membership")
# Numbers that are not whole and differ: records and groups that share as many, in one order, are copies.
FEWEST_SHARED = 5
BLOCK = 20  # rows one after the other that stand twice


@dataclass(frozen=True)
class RecordLosses:
    """The losses of one side of an audit, and the model and the training run that the file states.

    Attributes
    ----------
    values
        (n,) finite losses.
    run_of_column
        The single value of each column of `RUNS`, by the name that the column means.
    lines_before
        The number of lines before the first loss; None: the lines are those of a table.
    """

    values: np.ndarray
    run_of_column: Mapping[str, str] = field(default_factory=dict)
    lines_before: int | None = None


def read_losses(path: Path) -> RecordLosses:
    """Read finite losses from a table with a column ``loss``, or from a plain file with one number per line."""
    run_of_column: dict[str, str] = {}
    suffix = suffix_of(path)
    plain = suffix not in TABLE_SUFFIXES
    if suffix == ".csv" and path.is_file():  # a CSV whose first line is a number is a plain file
        plain = looks_like_a_number(read_text(path).split("\n", 1)[0])
    if plain:
        losses = _plain_losses(path)
    else:
        table = read_table(path, required=["loss"])
        check_records(path, table)
        _check_one_set(path, table)
        run_of_column = _runs(table)
        losses = numeric_column(table, "loss", path)
    if not len(losses):
        raise BadFile(path, "holds no losses", "Give one loss per line, or a column `loss`.")
    if len(losses) == 1:
        raise BadFile(path, "holds a single loss", "Give at least 2 losses.")
    broken = np.flatnonzero(~np.isfinite(losses))
    if broken.size:
        place = int(broken[0])
        line = place + 1 if plain else file_line(path, place)
        raise BadRow(path, line, f"loss: got {losses[place]}, expected a finite number")
    return RecordLosses(losses, run_of_column, 0 if plain else None)


def _runs(table: pd.DataFrame) -> dict[str, str]:
    """The single value of each column that says which model, or which training run, the rows are of."""
    run_of_column = {}
    for label in columns_of(table.columns, RUNS):
        values = as_texts(table[label].dropna()).unique().tolist()
        name = meant(str(label), RUNS)
        if name is not None and len(values) == 1:
            run_of_column[name] = values[0]
    return run_of_column


def check_same_run(
    path: Path, first: Mapping[str, str], other_path: Path, other: Mapping[str, str]
) -> None:
    """Refuse two files of one audit that state different models or training runs (`RecordLosses.run_of_column`)."""
    for name in first.keys() & other.keys():
        if first[name] != other[name]:
            here, there = shortened(other[name]), shortened(first[name])
            problem = (
                f"is of {name} {here} and {path} of {name} {there}, and an audit is of one model"
            )
            raise BadFile(other_path, problem, "Give the losses of one model.")


def _check_one_set(path: Path, table: pd.DataFrame) -> None:
    """Refuse losses of members and of others in one file."""
    for label in columns_of(table.columns, SETS, ALONE):
        values = as_texts(table[label].dropna()).unique().tolist()
        if 1 < len(values) < len(table):
            named = " and ".join(map(shortened, values[:2]))
            problem = f"has {len(values)} values of {label} ({named}), and a file has the losses of one set"
            raise BadFile(path, problem, "Give the members and the others in a file each.")


def _plain_losses(path: Path) -> np.ndarray:
    content = read_text(path).rstrip()
    if not content:
        return np.array([])
    losses = []
    for number, line in enumerate(content.split("\n"), start=1):
        if not looks_like_a_number(line):
            raise BadRow(path, number, f"got {line.strip()[:40]!r}, expected a number")
        losses.append(float(line))
    return np.array(losses)


def check_records(path: Path, table: pd.DataFrame) -> None:
    """Refuse a record that stands twice, and rows of several models: an audit is of one model and of single records."""
    for label in columns_of(table.columns, RECORDS, ALONE):
        is_copy = (as_texts(table[label]).duplicated() & table[label].notna()).to_numpy()
        if is_copy.any():
            line = file_line(path, int(np.argmax(is_copy)))
            raise BadRow(path, line, f"{label} repeats an earlier row", "Give one row per record.")
    check_one_model(path, table, RUNS)


def check_one_model(path: Path, table: pd.DataFrame, names: tuple[str, ...] = MODELS) -> None:
    """Refuse rows with several values of a column of these ``names``, unless each row has its own."""
    for label in columns_of(table.columns, names):
        values = as_texts(table[label].dropna()).unique().tolist()
        if 1 < len(values) < len(table):
            named = " and ".join(map(shortened, values[:2]))
            problem = f"has {len(values)} values of {label} ({named}), and an audit is of one model"
            raise BadFile(path, problem, "Give a file for each.")


def check_equally_often(path: Path, rows: Iterable[Hashable]) -> None:
    """Refuse rows that all stand equally often, and twice or more, by more than chance: their records were written again."""
    times_of_row = Counter(rows)
    times = set(times_of_row.values())
    if len(times) != 1 or min(times) < 2:
        return
    (n,) = times
    if log_chance(len(times_of_row), n) <= math.log(REFUTED):
        problem = f"its {n * len(times_of_row):,} rows are {len(times_of_row):,}, and each stands {n} times"
        raise BadFile(path, problem, "Give one row per record.")


def check_no_block_twice(path: Path, values: np.ndarray, lines_before: int | None = None) -> None:
    """Refuse `BLOCK` rows one after the other that stand a second time, in their order: a part was written twice.

    Parameters
    ----------
    values
        (rows,) a number of each row. Rows without `FEWEST_SHARED` different numbers that are not whole may stand together
        by chance, and are no copies.
    lines_before
        The number of lines before the first row; None: the lines are those of the table ``path``.
    """
    n_blocks = len(values) - BLOCK + 1
    if n_blocks < 2:
        return
    _, codes = np.unique(values, return_inverse=True)

    # Only blocks of one hash are compared. A hash is a polynomial of the codes, whose overflow is no fault.
    hashes = np.zeros(n_blocks, dtype=np.uint64)
    for place in range(BLOCK):
        hashes = hashes * np.uint64(0x9E3779B97F4A7C15)
        hashes += codes[place : place + n_blocks].astype(np.uint64) + np.uint64(1)
    _, first_of_block, block_of_row = np.unique(hashes, return_index=True, return_inverse=True)
    earlier = first_of_block[block_of_row]

    for start in np.flatnonzero(np.arange(n_blocks) - earlier >= BLOCK):
        first = int(earlier[start])
        block = codes[first : first + BLOCK]
        again = codes[start : start + BLOCK]
        if not np.array_equal(block, again) or not _is_telling(values[first : first + BLOCK]):
            continue
        length = BLOCK
        while start + length < len(codes) and codes[first + length] == codes[start + length]:
            length += 1
        places = (first, first + length - 1, int(start))
        if lines_before is None:
            lines = [file_line(path, place) for place in places]
        else:
            lines = [lines_before + place + 1 for place in places]
        problem = f"lines {lines[0]} to {lines[1]} stand again from line {lines[2]} on"
        raise BadFile(path, problem, "Give one row per record.")


def copied_group(
    groups: Mapping[str, Sequence[float]],
) -> tuple[str, str] | None:
    """The names of two groups with the same numbers, the later one first; None where no group is a copy.

    Equal numbers say so where `FEWEST_SHARED` of them are different and not whole.
    """
    first_of_numbers: dict[tuple[float, ...], str] = {}
    for name, numbers in groups.items():
        if not _is_telling(np.asarray(numbers, dtype=np.float64)):
            continue
        first = first_of_numbers.setdefault(tuple(numbers), name)
        if first != name:
            return name, first
    return None


def _is_telling(numbers: np.ndarray) -> bool:
    """Whether other records, or another model, would not have these numbers by chance."""
    is_real = np.isfinite(numbers) & (numbers % 1 != 0)
    return len(np.unique(numbers[is_real])) >= FEWEST_SHARED
