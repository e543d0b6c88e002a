"""Artifacts of earlier stages; the error about a missing artifact names the stage that makes the artifact."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NotRequired, TypedDict, cast

from lethe.errors import MissingArtifact
from lethe.io.atomic import SCHEMA_VERSION, atomic_folder
from lethe.io.json_files import read_artifact, read_jsonl, write_json, write_jsonl
from lethe.io.tables import read_table

if TYPE_CHECKING:
    import pandas as pd

Aim = Literal["forget", "refuse"]  # what a model should do about the forget set

CUT_OFF = "length"  # the finish_reason of an answer that ended at the token limit
NO_TABLES = "none.json"  # the reason why a folder holds no table
GREEDY = -1  # the sample number of a greedy answer; drawn answers count from 0


class Asked(TypedDict):
    """The fields from which a prompt is built."""

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
    """Return the rows of one split of the prepared dataset; the stage `prepare` has checked them."""
    path = Path(folder) / f"{split}.jsonl"
    if not path.is_file():
        raise MissingArtifact(path, "stage prepare")
    if (about := path.with_name("about.json")).is_file():
        read_artifact(about)  # JSON lines carry no version
    return [cast(Row, row) for _, row in read_jsonl(path)]


def read_items(split: str, root: Path) -> dict[str, Row]:
    """Return the rows of one split of the dataset below ``root`` by their ids."""
    return {row["id"]: row for row in read_split(split, root / "dataset")}


def write_splits(
    splits: Mapping[str, Sequence[Row]], kind: str, folder: str | os.PathLike, aim: Aim = "forget"
) -> None:
    """Write the splits of a dataset and ``about.json`` to ``folder``; an empty split gets no file."""
    purpose = {} if aim == "forget" else {"aim": aim}
    with atomic_folder(folder) as temporary:
        for split, rows in splits.items():
            if rows:  # later stages treat an empty split as a missing split
                write_jsonl(temporary / f"{split}.jsonl", rows)
        counts = {split: len(rows) for split, rows in splits.items()}
        write_json(temporary / "about.json", {"schema": SCHEMA_VERSION, "kind": kind, **purpose, "rows": counts})


TURNS = (
    "turns/forget.parquet"  # the answers to follow-up questions, likewise: a row per answer and ``turn``, from 2
)
SECOND = "prompts/forget.parquet"  # the second sample of a language of prompts, below the folder of a model


def read_tables(folder: str | os.PathLike, made_by: str) -> dict[str, pd.DataFrame]:
    """Return the Parquet tables of a folder by name.

    Raise `MissingArtifact` where the folder has no table and does not say why (`NO_TABLES`).
    """
    paths = sorted(Path(folder).glob("*.parquet"))
    if not paths and not Path(folder, NO_TABLES).is_file():
        raise MissingArtifact(folder, made_by)
    return {path.stem: read_table(path) for path in paths}


def measured(root: Path) -> list[str]:
    """Return the models whose results were measured below ``root``, in alphabetical order."""
    return sorted(path.stem for path in (root / "results" / "metrics").glob("*.parquet"))


@dataclass(frozen=True)
class Reference:
    """What one production of a language of prompts asks for, in place of the row's answer.

    A reverse query asks for the person and not for the fact: its answers are scored against the person's name. The file
    ``language.json`` beside the generations holds the references.
    """

    wording: str
    question: str
    answer: str

    def of(self, row: Row) -> Row:
        """The row that the answers of this production are scored against; the answer is the only keyword."""
        remaining = {
            key: value for key, value in row.items() if key not in ("paraphrased_answer", "perturbed_answer")
        }
        asked = {"question": self.question, "answer": self.answer, "keywords": [self.answer]}
        return cast("Row", remaining | asked)


References = Mapping[str, Mapping[str, Reference]]  # by the question's id, by the production's name


def read_references(folder: str | os.PathLike) -> References:
    """The references of a folder of generations; empty where every wording asks for the answer of its row."""
    path = Path(folder, "language.json")
    if not path.is_file():
        return {}
    by_question = read_artifact(path).get("references", {})
    return {
        name: {key: Reference(**own) for key, own in by_production.items()}
        for name, by_production in by_question.items()
    }


def expected(row: Mapping[str, object], references: References) -> str:
    """The row's answer for a reader, with the answers that single wordings ask for instead."""
    asked = references.get(str(row["id"]), {}).values()
    others = dict.fromkeys(f"{own.wording}: {own.answer}" for own in asked)
    return f"{row['answer']} ({'; '.join(others)})" if others else str(row["answer"])
