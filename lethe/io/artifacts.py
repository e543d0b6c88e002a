"""Artifacts of stages, with errors that name the stage that makes what is missing; large tables, a part at a time.

Memory does not grow with the number of questions: a part holds whole questions and at most `ROWS` rows; only a question with
more answers makes a larger part. A part is one row group of the Parquet file, so a table of one part has the bytes that
`lethe.io.tables.write_parquet` gives it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NotRequired, TypedDict, cast

import numpy as np

from lethe.errors import BadFile, MissingArtifact, check_columns
from lethe.io import files
from lethe.io.tables import broken_parquet, read_table

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    import pyarrow.parquet as pq

Aim = Literal["forget", "refuse"]  # what a model should do about the forget set

NO_TABLES = "none.json"  # the reason why a folder holds no table
GREEDY = -1  # the sample number of a greedy answer; drawn answers count from 0
ROWS = 1 << 16  # of a part
PROMPT, SAMPLE = KEYS = ("prompt_id", "sample")
BUFFER = 1 << 20  # bytes read at once of each column


class Asked(TypedDict):
    question: str
    context: NotRequired[str | None]


class Row(Asked):
    """A question with its answer. ``id`` identifies the row in every table. A row may have further keys of the user."""

    id: str
    answer: str
    paraphrased_answer: NotRequired[str | None]
    paraphrased_question: NotRequired[str | None]
    author: NotRequired[str | None]
    keywords: NotRequired[list[str] | None]
    perturbed_answer: NotRequired[list[str] | None]
    followups: NotRequired[list[str] | None]


def read_split(split: str, folder: str | os.PathLike = "data/dataset") -> list[Row]:
    path = Path(folder) / f"{split}.jsonl"
    if not path.is_file():
        raise MissingArtifact(path, "stage prepare")
    if (about := path.with_name("about.json")).is_file():
        files.read_artifact(about)  # JSON lines carry no version
    return [cast(Row, row) for _, row in files.read_jsonl(path)]


def read_items(split: str, root: Path) -> dict[str, Row]:
    return {row["id"]: row for row in read_split(split, root / "dataset")}


def write_splits(
    splits: Mapping[str, Sequence[Row]], kind: str, folder: str | os.PathLike, aim: Aim = "forget"
) -> None:
    """Write the splits of a dataset and ``about.json`` to ``folder``; an empty split gets no file."""
    purpose = {} if aim == "forget" else {"aim": aim}
    with files.atomic_folder(folder) as temporary:
        for split, rows in splits.items():
            if rows:  # later stages treat an empty split as a missing split
                files.write_jsonl(temporary / f"{split}.jsonl", rows)
        counts = {split: len(rows) for split, rows in splits.items()}
        files.write_json(
            temporary / "about.json",
            {"schema": files.SCHEMA_VERSION, "kind": kind, **purpose, "rows": counts},
        )


# Below the folder of a model: the answers to follow-up questions, a row per answer and ``turn`` (from 2), and the second
# sample of a language of prompts.
TURNS, SECOND = "turns/forget.parquet", "prompts/forget.parquet"


def measured(root: Path) -> list[str]:
    return sorted(path.stem for path in (root / "results" / "metrics").glob("*.parquet"))


@dataclass(frozen=True)
class Reference:
    """What one production of a language asks for in place of the row's answer: a reverse query, for the person."""

    wording: str
    question: str
    answer: str

    def of(self, row: Row) -> Row:
        """The row that the answers of this production are scored against; the answer is the only keyword."""
        remaining = {
            key: value
            for key, value in row.items()
            if key not in ("paraphrased_answer", "perturbed_answer")
        }
        asked = {"question": self.question, "answer": self.answer, "keywords": [self.answer]}
        return cast("Row", remaining | asked)


References = Mapping[str, Mapping[str, Reference]]  # by the question's id, by the production's name


def read_references(folder: str | os.PathLike) -> References:
    path = Path(folder, "language.json")
    if not path.is_file():
        return {}
    by_question = files.read_artifact(path).get("references", {})
    return {
        name: {key: Reference(**own) for key, own in by_production.items()}
        for name, by_production in by_question.items()
    }


def expected(row: Mapping[str, object], references: References) -> str:
    """The row's answer for a reader, with the answers that single wordings ask for instead."""
    asked = references.get(str(row["id"]), {}).values()
    others = dict.fromkeys(f"{own.wording}: {own.answer}" for own in asked)
    return f"{row['answer']} ({'; '.join(others)})" if others else str(row["answer"])


def write_parts(path: str | os.PathLike, parts: Iterable[pd.DataFrame]) -> int:
    """Write a table part by part, with the schema version in its metadata; return the number of rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows, writer = 0, None
    with files.atomic_file(path) as temporary, contextlib.ExitStack() as stack:
        for part in parts:
            if writer is None:
                first = pa.Table.from_pandas(part, preserve_index=False).schema
                schema = first.with_metadata({**(first.metadata or {}), **files.STAMP})
                writer = stack.enter_context(pq.ParquetWriter(temporary, schema))
            table = pa.Table.from_pandas(part, schema=schema, preserve_index=False)
            writer.write_table(table.replace_schema_metadata(schema.metadata))
            rows += len(part)
        if writer is None:
            raise ValueError(f"{path}: a table needs at least one part")
    return rows


def read_parts(
    path: str | os.PathLike, columns: Sequence[str] | None = None, rows: int | None = None
) -> Iterator[pd.DataFrame]:
    """Yield the parts of a table of answers, in the order of the file; an empty table has one empty part."""
    path = Path(path)
    with _opened(path) as file:
        check_columns(path, columns or (PROMPT,), file.schema_arrow.names)
        seen: set[str] = set()
        for table in _whole_prompts(
            _batches(path, file, columns), file.schema_arrow, columns, rows or ROWS
        ):
            part = table.to_pandas().reset_index(drop=True)
            own = part[PROMPT].unique().tolist()
            if again := seen.intersection(own):
                raise BadFile(
                    path,
                    f"the rows of prompt {again.pop()!r} are in two places",
                    "Sort the table by prompt_id.",
                )
            seen.update(own)
            yield part


def rows_of(path: str | os.PathLike) -> int:
    with _opened(Path(path)) as file:
        return int(file.metadata.num_rows)


def columns_of(path: str | os.PathLike) -> list[str]:
    with _opened(Path(path)) as file:
        return list(file.schema_arrow.names)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[pq.ParquetFile]:
    import pyarrow.parquet as pq

    files.check_file(path)
    try:
        file = pq.ParquetFile(path, buffer_size=BUFFER, pre_buffer=False)
    except Exception as error:  # pyarrow raises several unrelated classes for a broken file
        raise broken_parquet(path, error) from None
    with file:
        files.check_metadata(path, file.schema_arrow.metadata)
        yield file


def _batches(
    path: Path, file: pq.ParquetFile, columns: Sequence[str] | None
) -> Iterator[pa.RecordBatch]:
    try:
        for batch in file.iter_batches(
            batch_size=ROWS, columns=list(columns) if columns else None, use_threads=False
        ):
            batch.validate(full=True)  # or a damaged text is found when somebody reads it
            yield batch
    except Exception as error:  # as above
        raise broken_parquet(path, error) from None


def _whole_prompts(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, columns: Sequence[str] | None, rows: int
) -> Iterator[pa.Table]:
    import pyarrow as pa

    wanted = (
        schema
        if columns is None
        else pa.schema([schema.field(name) for name in columns], schema.metadata)
    )
    pending, empty = pa.Table.from_batches([], wanted), True
    for batch in batches:
        pending = pa.concat_tables([pending, pa.Table.from_batches([batch], wanted)])
        while pending.num_rows > rows:
            cut = _end_of_prompt(pending, rows)
            if not cut:
                break  # one prompt has all pending rows: its end is in a later batch
            yield pending.slice(0, cut)
            pending, empty = pending.slice(cut).combine_chunks(), False
    if pending.num_rows or empty:
        yield pending


def _end_of_prompt(table: pa.Table, rows: int) -> int:
    """The last place up to ``rows`` where a prompt ends, or the first beyond; 0 if no prompt ends before the table does."""
    import pyarrow.compute as pc

    prompts = table[PROMPT].combine_chunks()
    changes = pc.not_equal(prompts[1:], prompts[:-1]).to_numpy(zero_copy_only=False)
    ends = np.flatnonzero(changes) + 1
    place = int(np.searchsorted(ends, rows, side="right"))
    if place:
        return int(ends[place - 1])
    return int(ends[0]) if len(ends) else 0


class Tables(Mapping[str, "pd.DataFrame"]):
    """The Parquet tables of a folder by name, each read when asked for and not kept; none where `NO_TABLES` says why."""

    def __init__(self, folder: str | os.PathLike, made_by: str):
        self.paths = {path.stem: path for path in sorted(Path(folder).glob("*.parquet"))}
        if not self.paths and not Path(folder, NO_TABLES).is_file():
            raise MissingArtifact(folder, made_by)

    def __getitem__(self, name: str) -> pd.DataFrame:
        return read_table(self.paths[name])

    def parts(self, name: str, columns: Sequence[str] | None = None) -> Iterator[pd.DataFrame]:
        return read_parts(self.paths[name], columns)

    def columns(self, name: str) -> list[str]:
        return columns_of(self.paths[name])

    def __contains__(self, name: object) -> bool:
        return name in self.paths  # a Mapping's own would read the table to see whether it is there

    def __iter__(self) -> Iterator[str]:
        return iter(self.paths)

    def __len__(self) -> int:
        return len(self.paths)


def parts_of(
    tables: Mapping[str, pd.DataFrame], name: str, columns: Sequence[str] | None = None
) -> Iterator[pd.DataFrame]:
    if isinstance(tables, Tables):
        yield from tables.parts(name, columns)
    else:
        yield tables[name] if columns is None else tables[name][list(columns)]


def columns_in(tables: Mapping[str, pd.DataFrame], name: str) -> list[str]:
    """The columns of a table; none where it is not there."""
    if name not in tables:
        return []
    return tables.columns(name) if isinstance(tables, Tables) else list(tables[name])


def joined_parts(
    drawn: Path, scores: Path, columns: Sequence[str] | None = None, same: bool | None = None
) -> Iterator[pd.DataFrame]:
    """Generations joined with their scores, a part at a time; an answer without a row of scores has missing ones."""
    keys = [*KEYS]
    wanted = [
        None
        if columns is None
        else [*keys, *(name for name in columns_of(path) if name in columns and name not in keys)]
        for path in (drawn, scores)
    ]
    if not (
        same_answers(drawn, scores) if same is None else same
    ):  # other scores than `score` wrote of these
        left, right = (read_table(path) for path in (drawn, scores))
        for path, table in ((drawn, left), (scores, right)):
            refuse_doubles(path, table)
        left, right = (
            table if names is None else table[names]
            for table, names in zip((left, right), wanted, strict=True)
        )
        yield left.merge(right, on=keys, how="left")
        return
    for left, right in zip(
        read_parts(drawn, wanted[0]), read_parts(scores, wanted[1]), strict=True
    ):
        yield left.assign(**{name: right[name].to_numpy() for name in right if name not in keys})


def same_answers(drawn: Path, scores: Path) -> bool:
    if rows_of(drawn) != rows_of(scores):
        return False
    pairs = zip(
        read_parts(drawn, KEYS), read_parts(scores, KEYS), strict=False
    )  # both have as many rows in all
    for left, right in pairs:
        if len(left) != len(right) or not all(
            (left[key].to_numpy() == right[key].to_numpy()).all() for key in KEYS
        ):
            return False
        refuse_doubles(drawn, left)
    return True


def refuse_doubles(path: Path, table: pd.DataFrame, keys: Sequence[str] = KEYS) -> None:
    doubled = table.duplicated(list(keys))
    if doubled.any():
        answer = ", ".join(
            f"{key} {value}" for key, value in table.loc[doubled, list(keys)].iloc[0].items()
        )
        raise BadFile(path, f"two rows are of one answer ({answer})", "Keep one row per answer.")
