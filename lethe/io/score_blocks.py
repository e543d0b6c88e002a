"""A plain CSV of scores, read block by block, so that neither the rows nor their texts stand in memory all at once.

A row keeps its score, its place among the prompts and the number of its answer. What rows state of their draws is kept once
for each prompt, with the number of rows that state it. A table with anything else in it (a quoted cell, an id that looks
like another, a word as a score) is left to the reader of whole tables, which understands it, or says where it is wrong.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lethe.errors import BadFile, BadRow
from lethe.io import csv_form
from lethe.io.artifacts import GREEDY
from lethe.io.cells import MISSING
from lethe.io.csv_form import CsvForm
from lethe.io.ids import alike_in
from lethe.io.packed import opened, suffix_of
from lethe.io.row_ends import ending, without_end
from lethe.io.row_facts import stating
from lethe.io.tables import check_names, checked_form, parsed
from lethe.io.unseen import seen

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

BLOCK = 16 << 20  # bytes
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
MOST_STATEMENTS = 200_000  # distinct ones; a seed in each row is another in each


class Unusual(Exception):
    """The reader of whole tables must see this table."""


@dataclass(frozen=True)
class ScoreRows:
    """The rows of a table of scores in their order.

    ``prompts`` are the ids in the order of their first row, ``codes`` (rows,) the place of each row's id among them,
    ``values`` (rows,) the scores, NaN where missing or where the file says that no model ended the answer, and ``samples``
    (rows,) the numbers of the answers, if the table has them; ``broken``, (rows,), are the answers that no model ended.
    ``statements`` has each distinct statement on draws with its prompt, whose `sample` is -1 for a greedy answer and else 0,
    and ``times`` the number of its rows; no statement where no column states any.
    """

    prompts: list[str]
    codes: np.ndarray
    values: np.ndarray
    samples: np.ndarray | None
    broken: np.ndarray
    statements: pd.DataFrame
    times: np.ndarray


def read_score_rows(path: Path, name: str, score: str, required: Sequence[str]) -> ScoreRows | None:
    """The rows of a plain CSV by block; None where the reader of whole tables must see it.

    Parameters
    ----------
    path
        A CSV with any separator, also packed.
    name, score
        The columns of the questions and of the scores.
    required
        The columns by which the separator is known, of several that cut the header.
    """
    if suffix_of(path) not in csv_form.SUFFIXES or not path.is_file():
        return None
    try:
        form = checked_form(path, required)
        check_names(path, form.header, [*required, name, "sample"])
        if len(form.header) == 1 or not {name, score} <= set(form.header):
            return None
        rows = _Rows(form, name, score)
        for block in _blocks(path, form):
            rows.add(block)
        return rows.joined()
    except (Unusual, BadFile, BadRow):
        return None


def _blocks(path: Path, form: CsvForm) -> Iterator[bytes]:
    """The lines below the header in blocks of whole lines, without quotes, whose lines have one kind of end."""
    with opened(path) as file:
        header = b"".join(file.readline() for _ in range(form.line))
        _check_plain(header)
        rest = b""
        while block := file.read(BLOCK):
            end = block.rfind(b"\n") + 1
            if not end:  # a line longer than a block, or another end of lines
                raise Unusual
            lines = rest + block[:end]
            _check_plain(lines)
            yield lines
            rest = block[end:]
        if rest:
            _check_plain(rest)
            yield rest


def _check_plain(lines: bytes) -> None:
    """Raises `Unusual` for a quote, a zero byte, a carriage return that ends no line, and a byte that is no UTF-8."""
    if b'"' in lines or b"\0" in lines or lines.count(b"\r") != lines.count(b"\r\n"):
        raise Unusual
    if not lines.isascii():
        try:
            lines.decode()
        except UnicodeDecodeError:
            raise Unusual from None


@dataclass
class _Texts:
    """The distinct texts of a column in the order of their first row, each with its place."""

    place_of: dict[str, int] = field(default_factory=dict)

    def codes(self, column: pa.ChunkedArray) -> np.ndarray:
        """The place of each row's text, (rows,)."""
        encoded = column.combine_chunks()
        places = []
        for text in encoded.dictionary.to_pylist():
            places.append(self.place_of.setdefault(text, len(self.place_of)))
        return np.array(places, dtype=np.int32)[encoded.indices.to_numpy(zero_copy_only=False)]


class _Rows:
    """The rows of a table as its blocks are added."""

    def __init__(self, form: CsvForm, name: str, score: str):
        import pyarrow as pa
        from pyarrow import csv

        self.form = form
        self.name = name
        self.score = score
        self.stating = stating(form.header, name, score)
        self.ending = ending(column for column in form.header if column != score)
        self.texts = {column: _Texts() for column in (name, *self.stating, *self.ending)}
        self.has_samples = "sample" in form.header
        # a cell that begins as a hexadecimal number, which is one to pyarrow alone
        self.hexadecimal = re.compile(rf"(?:^|[\n{re.escape(form.separator)}])[ \t]*0[xX]".encode())
        types: dict[str, pa.DataType] = {score: pa.float64()}
        if self.has_samples:
            types["sample"] = pa.int64()
        if types.keys() & self.texts.keys() or name in (*self.stating, *self.ending):
            raise Unusual  # a column with two meanings
        types |= dict.fromkeys(self.texts, pa.dictionary(pa.int32(), pa.string()))
        self.convert = csv.ConvertOptions(
            column_types=types, include_columns=list(types), null_values=list(MISSING)
        )
        self.parse = csv.ParseOptions(delimiter=form.separator, quote_char=False)
        self.codes: list[np.ndarray] = []
        self.values: list[np.ndarray] = []
        self.samples: list[np.ndarray] = []
        self.broken: list[np.ndarray] = []
        self.times_of: dict[tuple[int, ...], int] = {}

    def add(self, lines: bytes) -> None:
        """Add a block of lines; raises `Unusual` where a cell is not as the columns before."""
        import pyarrow as pa
        from pyarrow import csv

        may_be_hexadecimal = b"0x" in lines or b"0X" in lines
        if self.has_samples and may_be_hexadecimal and self.hexadecimal.search(lines):
            raise Unusual
        read = csv.ReadOptions(column_names=self.form.header, block_size=len(lines) + 1)
        try:
            table = csv.read_csv(
                pa.BufferReader(lines),
                read_options=read,
                parse_options=self.parse,
                convert_options=self.convert,
            )
        except pa.ArrowException:
            raise Unusual from None
        if not len(table):
            return
        codes = self.texts[self.name].codes(table[self.name])
        self.codes.append(codes)
        broken = self._broken(table)
        self.broken.append(broken)
        self.values.append(np.where(broken, np.nan, self._scores(table)))
        is_greedy = np.zeros(len(table), dtype=bool)
        if self.has_samples:
            samples = self._samples(table["sample"])
            self.samples.append(samples)
            is_greedy = samples == GREEDY
        if self.stating:
            columns = [self.texts[column].codes(table[column]) for column in self.stating]
            self._add_statements(codes, is_greedy, *columns)

    def _scores(self, table: pa.Table) -> np.ndarray:
        """The scores of a block, (rows,), NaN where missing."""
        column = table[self.score]
        values = column.to_numpy()
        is_missing = np.isnan(values)
        if np.count_nonzero(is_missing) != column.null_count:
            raise Unusual  # a text that only one of the two readers takes for no number
        return values

    def _broken(self, table: pa.Table) -> np.ndarray:
        """Which answers of a block, (rows,), no model ended."""
        import pandas as pd

        if not self.ending:
            return np.zeros(len(table), dtype=bool)
        columns = [self.texts[name].codes(table[name]) for name in self.ending]
        _, first, row_of = np.unique(_key(columns), return_index=True, return_inverse=True)
        ends = {}
        for name, codes in zip(self.ending, columns, strict=True):
            texts = list(self.texts[name].place_of)
            distinct = [texts[code] for code in codes[first]]
            ends[name] = [None if text in MISSING else text for text in distinct]
        return without_end(pd.DataFrame(ends, dtype=object))[row_of]

    @staticmethod
    def _samples(column: pa.ChunkedArray) -> np.ndarray:
        if column.null_count:
            raise Unusual
        samples = column.to_numpy()
        if np.abs(samples).max() < 2**31:
            return samples.astype(np.int32)
        return samples

    def _add_statements(self, *columns: np.ndarray) -> None:
        """Count the distinct rows of these columns of codes, (rows,) each, in the order of their first row."""
        _, first, counts = np.unique(_key(columns), return_index=True, return_counts=True)
        order = np.argsort(first)
        statements = np.stack(columns, axis=1)[first[order]].tolist()
        for statement, count in zip(statements, counts[order].tolist(), strict=True):
            known = tuple(statement)
            self.times_of[known] = self.times_of.get(known, 0) + count
        if len(self.times_of) > MOST_STATEMENTS:
            raise Unusual

    def joined(self) -> ScoreRows:
        """All rows; raises `Unusual` where ids look alike, or an id is missing, or there is no row."""
        import pandas as pd

        prompts = list(self.texts[self.name].place_of)
        is_named = all(seen(prompt) for prompt in prompts)
        if not prompts or not is_named or alike_in(pd.Series(prompts)) is not None:
            raise Unusual
        samples = None
        if self.has_samples:
            samples = _concatenated(self.samples)
        return ScoreRows(
            prompts=prompts,
            codes=_concatenated(self.codes),
            values=_concatenated(self.values),
            samples=samples,
            broken=_concatenated(self.broken),
            statements=self._statements(prompts),
            times=np.array(list(self.times_of.values()), dtype=np.int64),
        )

    def _statements(self, prompts: Sequence[str]) -> pd.DataFrame:
        """The distinct statements as the reader of whole tables reads the columns that have these texts."""
        header = (self.name, "sample", *self.stating)
        texts = [list(self.texts[column].place_of) for column in self.stating]
        lines = [header]
        for prompt, is_greedy, *codes in self.times_of:
            cells = [texts[place][code] for place, code in enumerate(codes)]
            lines.append((prompts[prompt], str(GREEDY if is_greedy else 0), *cells))
        written = "\n".join(self.form.separator.join(line) for line in lines)
        form = CsvForm(self.form.separator, header, line=1)
        return parsed(io.StringIO(written), form, [self.name])


def _key(columns: Sequence[np.ndarray]) -> np.ndarray:
    """A number for each distinct row of these columns of codes, (rows,) each; raises `Unusual` where there are too many."""
    key = np.zeros(len(columns[0]), dtype=np.int64)
    sizes = [int(column.max()) + 1 for column in columns]
    if np.prod(sizes, dtype=np.float64) > 2**62:
        raise Unusual
    for column, size in zip(columns, sizes, strict=True):
        key = key * size + column
    return key


def _concatenated(parts: list[np.ndarray]) -> np.ndarray:
    """One array of the parts, which are given up, so that they stand in memory once more and not twice."""
    joined = np.concatenate(parts)
    parts.clear()
    return joined
