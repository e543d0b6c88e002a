"""A CSV of scores, read block by block, so that neither the rows nor their texts stand in memory all at once.

A row keeps its score, its place among the prompts and the number of its answer. What rows state of their draws is kept once
for each prompt, with the number of rows that state it. A table with anything else in it (an id that looks like another, a
quote within a cell without quotes, scores in two forms) is left to the reader of whole tables, which understands it, or says
where it is wrong.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lethe.errors import BadFile, BadRow
from lethe.io import csv_form
from lethe.io.artifacts import GREEDY
from lethe.io.cells import MISSING, NoNumber, NumberColumn, numbers_of
from lethe.io.copies import judging, naming, stand_equally_often
from lethe.io.csv_form import CsvForm
from lethe.io.ids import alike_in
from lethe.io.packed import opened, suffix_of
from lethe.io.row_ends import ending_in_cells, without_end
from lethe.io.row_facts import column_of_texts, stating
from lethe.io.tables import check_names, checked_form, parsed
from lethe.io.unseen import seen

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

BLOCK = 16 << 20  # bytes
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
QUOTE, LINE_END = b'"\n'
BLANK = np.uint64(0)  # in place of the hash of an empty text
# Distinct ones; a seed in each row is another in each. Also the most texts of scores.
MOST_STATEMENTS = 200_000


class Unusual(Exception):
    """The reader of whole tables must see this table."""


@dataclass(frozen=True)
class ScoreRows:
    """The rows of a table of scores in their order.

    Attributes
    ----------
    header
        The names of all columns.
    prompts
        The ids in the order of their first row.
    codes
        (rows,) the place of each row's id among them.
    numbers
        The scores, NaN where missing or where the file says that no model ended the answer.
    samples
        (rows,) the numbers of the answers; None where the table has none.
    broken
        (rows,) whether no model ended the answer.
    statements
        Each distinct statement on draws with its prompt; its `sample` is -1 for a greedy answer and else 0. Empty where no
        column states any.
    times
        (statements,) the number of rows that make each.
    """

    header: tuple[str, ...]
    prompts: list[str]
    codes: np.ndarray
    numbers: NumberColumn
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
        try:
            return _read(path, _Rows(form, name, score))
        except Unusual:  # a score may be yes, or in percent
            return _read(path, _Rows(form, name, score, reads_texts=True))
    except (Unusual, BadFile, BadRow):
        return None


def _read(path: Path, rows: _Rows) -> ScoreRows:
    """The rows of a file, once all blocks are added."""
    for block in _blocks(path, rows.form):
        rows.add(block)
    return rows.joined()


def _blocks(path: Path, form: CsvForm) -> Iterator[bytes]:
    """The rows below the header in blocks of whole rows, whose lines have one kind of end."""
    with opened(path) as file:
        header = b"".join(file.readline() for _ in range(form.line))
        header = header.removeprefix(BYTE_ORDER_MARK)
        _check_text(header)
        if _end_of_rows(header, form.separator) != len(header):
            raise Unusual
        rest = b""
        while block := file.read(BLOCK):
            lines = rest + block
            end = _end_of_rows(lines, form.separator)
            if not end:  # a row longer than a block, or another end of lines
                raise Unusual
            _check_text(lines[:end])
            yield lines[:end]
            rest = lines[end:]
        if rest:
            _check_text(rest)
            _end_of_rows(rest + b"\n", form.separator)
            yield rest


def _check_text(lines: bytes) -> None:
    """Raises `Unusual` for a zero byte, a carriage return that ends no line, and a byte that is no UTF-8.

    So does a byte order mark at the start, which pyarrow drops from each block and other readers keep in the cell.
    """
    if b"\0" in lines or lines.count(b"\r") != lines.count(b"\r\n"):
        raise Unusual
    if lines.startswith(BYTE_ORDER_MARK):
        raise Unusual
    if not lines.isascii():
        try:
            lines.decode()
        except UnicodeDecodeError:
            raise Unusual from None


def _end_of_rows(lines: bytes, separator: str) -> int:
    """Where the last whole row ends, 0 where none does; raises `Unusual` for a quote that all readers do not read alike.

    Such a quote begins a cell, ends one, or stands in one twice; the second of two is counted as one that begins.
    """
    if QUOTE not in lines:
        return lines.rfind(b"\n") + 1
    text = np.frombuffer(lines, dtype=np.uint8)
    quotes = np.flatnonzero(text == QUOTE)
    ends = np.flatnonzero(text == LINE_END)

    # A line end behind an even number of quotes ends a row.
    whole = ends[np.searchsorted(quotes, ends) % 2 == 0]
    if not whole.size:
        raise Unusual
    end = int(whole[-1]) + 1

    # What stands outside of each quote; before the first cell that is the last end of a line.
    quotes = quotes[quotes < end]
    before = quotes[::2] - 1
    behind = quotes[1::2] + 1
    beside = np.append(before, behind)
    legal = b'"\r\n' + separator.encode()
    if not np.isin(text[:end][beside], list(legal)).all():
        raise Unusual
    return end


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
    """The rows of a table as its blocks are added; with ``reads_texts`` each score is first the place of its text."""

    def __init__(self, form: CsvForm, name: str, score: str, reads_texts: bool = False):
        import pyarrow as pa

        self.form = form
        self.name = name
        self.score = score

        # Columns by their meaning: what rows state of their draws, why answers ended, and the answers themselves.
        self.stating = stating(form.header, name, score)
        self.ending = ending_in_cells(column for column in form.header if column != score)
        self.texts = {column: _Texts() for column in (name, *self.stating, *self.ending)}
        self.has_samples = "sample" in form.header
        self.answer = column_of_texts(form.header, name, score)

        # a cell that begins as a hexadecimal number, which is one to pyarrow alone
        separator = re.escape(form.separator)
        self.hexadecimal = re.compile(rf"(?:^|[\n{separator}])[ \t\"]*0[xX]".encode())

        # The type of each column that is read; a column of two meanings would need two.
        types: dict[str, pa.DataType] = {score: pa.float64()}
        if self.has_samples:
            types["sample"] = pa.int64()
        has_two_meanings = types.keys() & self.texts.keys() or name in (*self.stating, *self.ending)
        has_names = bool(naming(form.header, name) or judging(form.header))
        if has_two_meanings or has_names or score == "sample":
            raise Unusual
        if reads_texts:
            self.texts[score] = _Texts()
        types |= dict.fromkeys(self.texts, pa.dictionary(pa.int32(), pa.string()))
        if self.answer is not None:
            types.setdefault(self.answer, pa.dictionary(pa.int32(), pa.string()))
        self.types = types

        # What the blocks so far hold, an array for each.
        self.hashes: list[np.ndarray] = []
        self.codes: list[np.ndarray] = []
        self.scores: list[np.ndarray] = []
        self.samples: list[np.ndarray] = []
        self.broken: list[np.ndarray] = []
        self.times_of: dict[tuple[int, ...], int] = {}

    def add(self, lines: bytes) -> None:
        """Add a block of lines; raises `Unusual` where a cell is not as the columns before."""
        import pyarrow as pa

        may_be_hexadecimal = b"0x" in lines or b"0X" in lines
        if self.has_samples and may_be_hexadecimal and self.hexadecimal.search(lines):
            raise Unusual
        try:
            table = self._table(lines)
        except pa.ArrowException:
            raise Unusual from None
        if not len(table):
            return

        codes = self.texts[self.name].codes(table[self.name])
        self.codes.append(codes)
        self.broken.append(self._broken(table))
        self.scores.append(self._scores(table[self.score]))

        is_greedy = np.zeros(len(table), dtype=bool)
        if self.has_samples:
            samples = self._samples(table["sample"])
            self.samples.append(samples)
            is_greedy = samples == GREEDY
        if self.answer is not None:
            hashes = self._hashes(table[self.answer])
            hashes[is_greedy] = BLANK
            self.hashes.append(hashes)
        if self.stating:
            columns = [self.texts[column].codes(table[column]) for column in self.stating]
            self._add_statements(codes, is_greedy, *columns)

    def _table(self, lines: bytes) -> pa.Table:
        """The columns of a block that are read; raises `pa.ArrowException` where a cell is of another type."""
        import pyarrow as pa
        from pyarrow import csv as arrow_csv

        has_quotes = QUOTE in lines
        return arrow_csv.read_csv(
            pa.BufferReader(lines),
            read_options=arrow_csv.ReadOptions(
                column_names=self.form.header, block_size=len(lines) + 1
            ),
            parse_options=arrow_csv.ParseOptions(
                delimiter=self.form.separator,
                quote_char=has_quotes and '"',
                newlines_in_values=has_quotes,
            ),
            convert_options=arrow_csv.ConvertOptions(
                column_types=self.types, include_columns=list(self.types), null_values=list(MISSING)
            ),
        )

    def _scores(self, column: pa.ChunkedArray) -> np.ndarray:
        """The scores of a block, (rows,), NaN where missing; or the places of their texts."""
        if self.score in self.texts:
            texts = self.texts[self.score]
            if len(texts.place_of) > MOST_STATEMENTS:
                raise Unusual
            return texts.codes(column)
        values = column.to_numpy()
        is_missing = np.isnan(values)
        if np.count_nonzero(is_missing) != column.null_count:
            raise Unusual  # a text that only one of the two readers takes for no number
        return values

    @staticmethod
    def _hashes(column: pa.ChunkedArray) -> np.ndarray:
        """A number for each text of a block, (rows,), which equal texts share; `BLANK` where nothing is said."""
        import pandas as pd

        encoded = column.combine_chunks()
        texts = np.array([*encoded.dictionary.to_pylist(), ""], dtype=object)
        hashes = pd.util.hash_array(texts, categorize=False)
        is_blank = [text.strip() in MISSING for text in texts]
        hashes[is_blank] = BLANK
        return hashes[encoded.indices.fill_null(len(texts) - 1).to_numpy(zero_copy_only=False)]

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
        """The numbers of the answers of a block, (rows,), in 32 bits where they fit."""
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
        codes = _concatenated(self.codes)
        if self.answer is not None:
            hashes = _concatenated(self.hashes)
            is_written = hashes != BLANK
            if stand_equally_often(codes[is_written], hashes[is_written]):
                raise Unusual
        numbers = self._numbers()
        broken = _concatenated(self.broken)
        numbers.values[broken] = np.nan
        return ScoreRows(
            header=self.form.header,
            prompts=prompts,
            codes=codes,
            numbers=numbers,
            samples=samples,
            broken=broken,
            statements=self._statements(prompts),
            times=np.array(list(self.times_of.values()), dtype=np.int64),
        )

    def _numbers(self) -> NumberColumn:
        """All scores, texts as the reader of whole tables reads them; the last word for 1 counts, so that order is kept."""
        values = _concatenated(self.scores)
        if self.score not in self.texts:
            return NumberColumn(values)
        texts = list(self.texts[self.score].place_of)
        last_row = np.zeros(len(texts))
        last_row[values] = np.arange(len(values))
        order = np.argsort(last_row)
        table = self._parsed([self.score], [(texts[place],) for place in order])
        try:
            numbers = numbers_of(table[self.score])
        except NoNumber:
            raise Unusual from None
        return replace(numbers, values=numbers.values[np.argsort(order)][values])

    def _statements(self, prompts: Sequence[str]) -> pd.DataFrame:
        """The distinct statements as the reader of whole tables reads the columns that have these texts."""
        texts = [list(self.texts[column].place_of) for column in self.stating]
        rows = []
        for prompt, is_greedy, *codes in self.times_of:
            cells = [texts[place][code] for place, code in enumerate(codes)]
            rows.append((prompts[prompt], GREEDY if is_greedy else 0, *cells))
        return self._parsed([self.name, "sample", *self.stating], rows)

    def _parsed(self, header: Sequence[str], rows: Iterable[Sequence[object]]) -> pd.DataFrame:
        """These cells as the reader of whole tables reads them."""
        written = io.StringIO()
        csv.writer(written, lineterminator="\n").writerows([header, *rows])
        written.seek(0)
        return parsed(written, CsvForm(",", tuple(header), line=1), [self.name])


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
