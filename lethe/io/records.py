"""The losses of an audit's records, and whether the rows of its table are one of each record, of one model."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lethe.errors import BadFile, BadRow, shortened
from lethe.io.column_names import ALONE, columns_of
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


def read_losses(path: Path) -> np.ndarray:
    """Read (n,) finite losses from a table with a column ``loss``, or from a plain file with one number per line."""
    suffix = suffix_of(path)
    plain = suffix not in TABLE_SUFFIXES
    if suffix == ".csv" and path.is_file():  # a CSV whose first line is a number is a plain file
        plain = looks_like_a_number(read_text(path).split("\n", 1)[0])
    if plain:
        losses = _plain_losses(path)
    else:
        table = read_table(path, required=["loss"])
        check_records(path, table)
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
    return losses


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
