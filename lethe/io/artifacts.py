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
from lethe.identity import content_digest
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
    """What a model is asked: a question, and what stands before it."""

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
    twins: NotRequired[list[str] | None]
    secret: NotRequired[str | None]


def read_split(split: str, folder: str | os.PathLike = "data/dataset") -> list[Row]:
    """Return the rows of a split of the dataset; `MissingArtifact` where stage prepare did not write it."""
    path = Path(folder) / f"{split}.jsonl"
    if not path.is_file():
        raise MissingArtifact(path, "stage prepare")
    about = path.with_name("about.json")
    if about.is_file():
        files.read_artifact(about)  # JSON lines carry no version
    return [cast(Row, row) for _, row in files.read_jsonl(path)]


def version_of_questions(folder: Path) -> str | None:
    """The digest of the forget questions of a dataset's folder; None where it has none."""
    path = folder / "forget.jsonl"
    return content_digest(path) if path.is_file() else None


def read_items(split: str, root: Path) -> dict[str, Row]:
    """Return the rows of a split by their ids; ``root`` is the folder of all artifacts."""
    return {row["id"]: row for row in read_split(split, root / "dataset")}


def write_splits(
    splits: Mapping[str, Sequence[Row]],
    kind: str,
    folder: str | os.PathLike,
    aim: Aim = "forget",
    generated_twins: bool = False,
) -> None:
    """Write the splits of a dataset and ``about.json`` to ``folder``; an empty split gets no file.

    ``generated_twins``: whether the generator of the true values drew the twins of the forget set.
    """
    about: dict[str, object] = {"schema": files.SCHEMA_VERSION, "kind": kind}
    if aim != "forget":
        about["aim"] = aim
    if generated_twins:
        about["generated_twins"] = True
    about["rows"] = {split: len(rows) for split, rows in splits.items()}
    with files.atomic_folder(folder) as temporary:
        for split, rows in splits.items():
            if rows:  # later stages treat an empty split as a missing split
                files.write_jsonl(temporary / f"{split}.jsonl", rows)
        files.write_json(temporary / "about.json", about)


# Below the folder of a model: the answers to follow-up questions, a row per answer and ``turn`` (from 2), and the second
# sample of a language of prompts.
TURNS = "turns/forget.parquet"
SECOND = "prompts/forget.parquet"
# A folder below that of a model: the forget answers of each Retrain that were drawn beside this model's.
BESIDE = "beside"


def measured(root: Path) -> list[str]:
    """Return the models with results of stage metrics."""
    return sorted(path.stem for path in (root / "results" / "metrics").glob("*.parquet"))


@dataclass(frozen=True)
class Reference:
    """What one production of a language asks for in place of the row's answer: a reverse query, for the person.

    Attributes
    ----------
    wording
        The wording that asks for it.
    question
        The question in these words.
    answer
        What answers it.
    """

    wording: str
    question: str
    answer: str

    def of(self, row: Row) -> Row:
        """The row that the answers of this production are scored against; the answer is the only keyword."""
        asked = dict(row)
        asked.pop("paraphrased_answer", None)
        asked.pop("perturbed_answer", None)
        asked.pop("twins", None)
        asked |= {"question": self.question, "answer": self.answer, "keywords": [self.answer]}
        return cast("Row", asked)


References = Mapping[str, Mapping[str, Reference]]  # by the question's id, by the production's name


def read_references(folder: str | os.PathLike) -> References:
    """Return the references that a language of prompts wrote to ``folder``; none where it wrote none."""
    path = Path(folder, "language.json")
    if not path.is_file():
        return {}
    references: dict[str, dict[str, Reference]] = {}
    for question, by_production in files.read_artifact(path).get("references", {}).items():
        references[question] = {}
        for production, fields in by_production.items():
            references[question][production] = Reference(**fields)
    return references


def expected(row: Mapping[str, object], references: References) -> str:
    """The row's answer for a reader, with the answers that single wordings ask for instead."""
    asked = references.get(str(row["id"]), {}).values()
    others = dict.fromkeys(f"{reference.wording}: {reference.answer}" for reference in asked)
    if not others:
        return str(row["answer"])
    return f"{row['answer']} ({'; '.join(others)})"


def write_parts(path: str | os.PathLike, parts: Iterable[pd.DataFrame]) -> int:
    """Write a table part by part, with the schema version in its metadata; return the number of rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = 0
    writer = None
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
    """Yield the parts of a table of answers, in the order of the file; an empty table has one empty part.

    No part ends within the rows of a prompt.

    Parameters
    ----------
    columns
        Those to read; None: all of the file.
    rows
        About how many rows a part has; None: `ROWS`.

    Raises
    ------
    BadFile
        If the file is damaged, lacks a column, or has the rows of one prompt in two places.
    """
    path = Path(path)
    with _opened(path) as file:
        check_columns(path, columns or (PROMPT,), file.schema_arrow.names)
        seen: set[str] = set()
        batches = _batches(path, file, columns)
        for table in _whole_prompts(batches, file.schema_arrow, columns, rows or ROWS):
            part = table.to_pandas().reset_index(drop=True)
            prompts = part[PROMPT].unique().tolist()
            again = seen.intersection(prompts)
            if again:
                problem = f"the rows of prompt {again.pop()!r} are in two places"
                raise BadFile(path, problem, "Sort the table by prompt_id.")
            seen.update(prompts)
            yield part


def rows_of(path: str | os.PathLike) -> int:
    """Return the number of rows of a table, without reading them."""
    with _opened(Path(path)) as file:
        return int(file.metadata.num_rows)


def columns_of(path: str | os.PathLike) -> list[str]:
    """Return the names of the columns of a table, without reading the rows."""
    with _opened(Path(path)) as file:
        return list(file.schema_arrow.names)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[pq.ParquetFile]:
    """An open table; raises `BadFile` where it is missing, damaged, or of another release's schema."""
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
    """The rows of a table as they come, wherever prompts end; raises `BadFile` where they are damaged."""
    names = list(columns) if columns else None
    try:
        for batch in file.iter_batches(batch_size=ROWS, columns=names, use_threads=False):
            batch.validate(full=True)  # or a damaged text is found when somebody reads it
            yield batch
    except Exception as error:  # as above
        raise broken_parquet(path, error) from None


def _whole_prompts(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, columns: Sequence[str] | None, rows: int
) -> Iterator[pa.Table]:
    """The rows of ``batches`` in tables of about ``rows`` rows, none of which ends within a prompt."""
    import pyarrow as pa

    if columns is not None:
        schema = pa.schema([schema.field(name) for name in columns], schema.metadata)
    pending = pa.Table.from_batches([], schema)
    is_first = True
    for batch in batches:
        pending = pa.concat_tables([pending, pa.Table.from_batches([batch], schema)])
        while pending.num_rows > rows:
            cut = _end_of_prompt(pending, rows)
            if not cut:
                break  # one prompt has all pending rows: its end is in a later batch
            yield pending.slice(0, cut)
            pending = pending.slice(cut).combine_chunks()
            is_first = False
    if pending.num_rows or is_first:
        yield pending


def _end_of_prompt(table: pa.Table, rows: int) -> int:
    """The last place up to ``rows`` where a prompt ends, or the first beyond; 0 if no prompt ends before the table does."""
    import pyarrow.compute as pc

    prompts = table[PROMPT].combine_chunks()
    changes = pc.not_equal(prompts[1:], prompts[:-1]).to_numpy(zero_copy_only=False)
    ends = np.flatnonzero(changes) + 1
    if not len(ends):
        return 0
    place = int(np.searchsorted(ends, rows, side="right"))
    return int(ends[max(place - 1, 0)])


def record_of_draws(path: str | os.PathLike) -> Mapping[str, files.Json]:
    """The record of the draws (`about.json`) of a table of scores or answers in a folder of Lethe's runs; else empty."""
    folder = Path(path).resolve().parent
    beside = folder.parent.parent / "generations" / folder.name
    for place in (beside, folder):
        if place.parent.name == "generations" and (place / "about.json").is_file():
            return files.read_artifact(place / "about.json")
    return {}


def followed_scorer(path: str | os.PathLike) -> str | None:
    """The column of scores whose leaks the draws of a table followed; None where no rule drew more than the first answers."""
    reached = record_of_draws(path).get("word", {}).get("reached")
    return None if reached is None else str(reached["scorer"])


def at_first(path: str | os.PathLike) -> int | None:
    """How many answers to a question of a table came whatever happened, where a rule drew more; None: all of them.

    With `sample.stop: word` the word rests on all answers (`lethe.measure.answers.counts_at_any_time`). Everything else
    needs a number of answers that was fixed beforehand, and takes these (`first_rows`).
    """
    kind = Path(path).resolve().parent.parent.name
    if Path(path).stem != "forget" or kind not in ("generations", "scores"):
        return None
    record = record_of_draws(path)
    return record["splits"]["forget"]["n"] if record.get("stop") == "word" else None


def first_rows(table: pd.DataFrame, path: str | os.PathLike) -> pd.DataFrame:
    """The rows of a table that was read of ``path`` on which every number but the words rests (`at_first`)."""
    n = at_first(path)
    if n is None:
        return table
    return table[table[SAMPLE] < n].reset_index(drop=True)


def first_parts(
    path: str | os.PathLike, columns: Sequence[str] | None = None
) -> Iterator[pd.DataFrame]:
    """`read_parts` of the rows that `first_rows` keeps."""
    if columns is None or SAMPLE in columns or at_first(path) is None:
        for part in read_parts(path, columns):
            yield first_rows(part, path)
        return
    for part in read_parts(path, [*columns, SAMPLE]):
        yield first_rows(part, path)[list(columns)]


class Tables(Mapping[str, "pd.DataFrame"]):
    """The Parquet tables of a folder by name, each read when asked for and not kept.

    Of the forget set they have the answers whose number was fixed beforehand (`at_first`). There is no table where a file
    `NO_TABLES` says why.

    Raises
    ------
    MissingArtifact
        If there is neither; it names the stage ``made_by`` that writes the folder.
    """

    def __init__(self, folder: str | os.PathLike, made_by: str):
        self.paths = {path.stem: path for path in sorted(Path(folder).glob("*.parquet"))}
        if not self.paths and not Path(folder, NO_TABLES).is_file():
            raise MissingArtifact(folder, made_by)

    def __getitem__(self, name: str) -> pd.DataFrame:
        return first_rows(read_table(self.paths[name]), self.paths[name])

    def parts(self, name: str, columns: Sequence[str] | None = None) -> Iterator[pd.DataFrame]:
        """Yield a table part by part, of whole prompts."""
        return first_parts(self.paths[name], columns)

    def columns(self, name: str) -> list[str]:
        """Return the columns of a table, without reading its rows."""
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
    """Yield the parts of a table of a folder, or a table in memory as one part; ``columns`` are all by default."""
    if isinstance(tables, Tables):
        yield from tables.parts(name, columns)
    elif columns is None:
        yield tables[name]
    else:
        yield tables[name][list(columns)]


def columns_in(tables: Mapping[str, pd.DataFrame], name: str) -> list[str]:
    """The columns of a table; none where it is not there."""
    if name not in tables:
        return []
    if isinstance(tables, Tables):
        return tables.columns(name)
    return list(tables[name])


def joined_parts(
    drawn: Path,
    scores: Path,
    columns: Sequence[str] | None = None,
    same: bool | None = None,
    to_the_word: bool = False,
) -> Iterator[pd.DataFrame]:
    """Yield generations joined with their scores, a part at a time; an answer without a row of scores has missing ones.

    Parameters
    ----------
    drawn, scores
        The two tables.
    columns
        Those that are kept beside `KEYS`; None: all.
    same
        Whether both files have the same answers in the same order, as where stage score wrote the scores; None: the files
        are compared (`same_answers`).
    to_the_word
        Whether what a rule drew after the first answers (`at_first`) is read, too.

    Raises
    ------
    BadFile
        If two rows are of one answer.
    """
    of_answers = _wanted(drawn, columns)
    of_scores = _wanted(scores, columns)
    if same is None:
        same = same_answers(drawn, scores)
    if not same:
        answers = _whole(drawn, of_answers)
        kept = answers if to_the_word else first_rows(answers, drawn)
        yield kept.merge(_whole(scores, of_scores), on=[*KEYS], how="left")
        return

    # Row by row, without a search for keys.
    parts_of = read_parts if to_the_word else first_parts
    pairs = zip(parts_of(drawn, of_answers), parts_of(scores, of_scores), strict=True)
    for part, scored in pairs:
        added = {name: scored[name].to_numpy() for name in scored if name not in KEYS}
        yield part.assign(**added)


def _wanted(path: Path, columns: Sequence[str] | None) -> list[str] | None:
    """The columns of a file to read: the keys and those of ``columns`` that it has; None is all."""
    if columns is None:
        return None
    return [*KEYS, *(name for name in columns_of(path) if name in columns and name not in KEYS)]


def _whole(path: Path, columns: list[str] | None) -> pd.DataFrame:
    """A table in memory; raises `BadFile` where two rows are of one answer."""
    table = read_table(path)
    refuse_doubles(path, table)
    if columns is None:
        return table
    return table[columns]


def same_answers(drawn: Path, scores: Path) -> bool:
    """Whether two files have the same answers in the same order; `BadFile` where two rows are of one answer."""
    if rows_of(drawn) != rows_of(scores):
        return False
    parts = zip(read_parts(drawn, KEYS), read_parts(scores, KEYS), strict=False)
    for left, right in parts:  # which have as many rows in all
        if len(left) != len(right):
            return False
        for key in KEYS:
            if (left[key].to_numpy() != right[key].to_numpy()).any():
                return False
        refuse_doubles(drawn, left)
    return True


def refuse_doubles(path: Path, table: pd.DataFrame, keys: Sequence[str] = KEYS) -> None:
    """Raise `BadFile` where two rows of a table have the same ``keys``."""
    doubled = table.duplicated(list(keys))
    if doubled.any():
        first = table.loc[doubled, list(keys)].iloc[0]
        answer = ", ".join(f"{key} {value}" for key, value in first.items())
        raise BadFile(path, f"two rows are of one answer ({answer})", "Keep one row per answer.")
