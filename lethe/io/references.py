"""Answers that single wordings of a language of prompts ask for, in place of the answer of the question's row.

A reverse query asks for the person and not for the fact: its answers are scored against the person's name. The file
``language.json`` beside the generations holds them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from lethe.io.artifacts import Row
from lethe.io.schema import read_artifact


@dataclass(frozen=True)
class Reference:
    """What one production asks for: the wording's name, the question in its words, and the answer."""

    wording: str
    question: str
    answer: str

    def of(self, row: Row) -> Row:
        """The row that the answers of this production are scored against; the answer is the only keyword."""
        kept = {key: value for key, value in row.items() if key not in ("paraphrased_answer", "perturbed_answer")}
        asked = {"question": self.question, "answer": self.answer, "keywords": [self.answer]}
        return cast("Row", kept | asked)


References = Mapping[str, Mapping[str, Reference]]  # by the question's id, by the production's name


def read_references(folder: str | os.PathLike) -> References:
    """The references of a folder of generations; empty where every wording asks for the answer of its row."""
    path = Path(folder, "language.json")
    if not path.is_file():
        return {}
    known = read_artifact(path).get("references", {})
    return {name: {key: Reference(**own) for key, own in found.items()} for name, found in known.items()}


def expected(row: Mapping[str, object], references: References) -> str:
    """The row's answer for a reader, with the answers that single wordings ask for instead."""
    asked = references.get(str(row["id"]), {}).values()
    others = dict.fromkeys(f"{own.wording}: {own.answer}" for own in asked)
    return f"{row['answer']} ({'; '.join(others)})" if others else str(row["answer"])
