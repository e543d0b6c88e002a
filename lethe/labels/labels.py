"""A person's labels of answers: facts about a question and a text, kept in a file of JSON lines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import BaseModel, Field, ValidationError

from lethe.errors import BadRow, shortened
from lethe.io.files import FIRST, KEY, SCHEMA_VERSION, read_jsonl, write_jsonl


class Answer(NamedTuple):
    prompt_id: str
    text: str


Part = Literal["mass", "rest"]


class Asked(NamedTuple):
    """The reason for a label: the mass or the rest, and the target (None where the file has none)."""

    part: Part
    target: float | None = None


class _Row(BaseModel, strict=True):
    prompt_id: str
    text: str
    label: int = Field(ge=0, le=1, description="0 (no leak) or 1 (leak)")
    part: Part = Field(description="mass or rest")
    target: float | None = Field(None, gt=0, le=1, description="a number above 0 and at most 1")


@dataclass
class Labels:
    """Labels by answer, in the order of labelling, each saved to ``path``: facts about a question and a text."""

    path: Path
    by_answer: dict[Answer, int] = field(default_factory=dict)
    asked: dict[Answer, Asked] = field(default_factory=dict)

    def add(self, answer: Answer, label: int, asked: Asked, questions: Mapping[str, str]) -> None:
        self.by_answer[answer] = label
        self.asked[answer] = asked
        self.write(questions)

    def undo(self, questions: Mapping[str, str]) -> bool:
        """Remove the last label; return whether there was one."""
        if not self.by_answer:
            return False
        del self.asked[self.by_answer.popitem()[0]]
        self.write(questions)
        return True

    def write(self, questions: Mapping[str, str]) -> None:
        rows: list[dict[str, object]] = []
        for answer, label in self.by_answer.items():
            asked = self.asked[answer]
            row: dict[str, object] = {
                "prompt_id": answer.prompt_id,
                "question": questions.get(answer.prompt_id, answer.prompt_id),
                "text": answer.text,
                "label": label,
                "part": asked.part,
                KEY: SCHEMA_VERSION,
            }
            if asked.target is not None:
                row["target"] = asked.target
            rows.append(row)
        write_jsonl(self.path, rows)


def read_labels(path: Path) -> Labels:
    """Read a person's labels; a missing file has no labels yet."""
    labels = Labels(path)
    if not path.exists():
        return labels
    for line, row in read_jsonl(path):
        version = row.get(KEY, FIRST)
        if version != SCHEMA_VERSION:
            problem = f"schema: got {shortened(version)}; must be {SCHEMA_VERSION}, which this release of Lethe reads"
            raise BadRow(path, line, problem, "Read the labels with the release that wrote them.")
        try:
            checked = _Row.model_validate(row)
        except ValidationError as error:
            key = str(error.errors()[0]["loc"][0])
            legal = _Row.model_fields[key].description or "text"
            problem = f"{key}: got {shortened(row.get(key))}; must be {legal}"
            raise BadRow(path, line, problem) from None
        answer = Answer(checked.prompt_id, checked.text)
        if answer in labels.by_answer:
            raise BadRow(path, line, "labels an answer a second time", "Remove one of the rows.")
        labels.by_answer[answer] = checked.label
        labels.asked[answer] = Asked(checked.part, checked.target)
    return labels
