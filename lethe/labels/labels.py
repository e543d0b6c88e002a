"""A person's labels of answers: facts about a question and a text, kept in a file of JSON lines."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import BaseModel, Field, ValidationError

from lethe.errors import BadFile, BadRow, shortened
from lethe.io.files import FIRST, KEY, SCHEMA_VERSION, read_jsonl, write_jsonl


class AnswerText(NamedTuple):
    """An answer as a person reads it: a text to a question, however often it was drawn."""

    prompt_id: str
    text: str


def digest_of(answer: AnswerText, questions: Mapping[str, str]) -> str:
    """What names an answer on a page or a server: a digest of its question's id, of the question, and of the text.

    Another dataset may have the same id, and a label of its answer is a label of another question.
    """
    question = questions.get(answer.prompt_id, answer.prompt_id)
    return hashlib.sha256(json.dumps([*answer, question]).encode()).hexdigest()


Part = Literal["mass", "rest"]


class LabelReason(NamedTuple):
    """The reason for a label: the mass or the rest, the target, and the number of random draws of the rest (None where the
    file has none)."""

    part: Part
    target: float | None = None
    rest: int | None = None


class _LabelRow(BaseModel, strict=True):
    prompt_id: str
    question: str | None = None
    text: str
    label: int = Field(ge=0, le=1, description="0 (no leak) or 1 (leak)")
    part: Part = Field(description="mass or rest")
    target: float | None = Field(None, gt=0, le=1, description="a number above 0 and at most 1")
    rest: int | None = Field(None, ge=0, description="0 or more")


@dataclass
class Labels:
    """Labels by answer, in the order of labelling, each saved to ``path``: facts about a question and a text."""

    path: Path
    by_answer: dict[AnswerText, int] = field(default_factory=dict)
    asked: dict[AnswerText, LabelReason] = field(default_factory=dict)
    questions: dict[AnswerText, str] = field(
        default_factory=dict
    )  # as they were when the file was written

    def check_questions(self, questions: Mapping[str, str]) -> None:
        """Raise `BadFile` where a label of the file is of another question than the one that has its id now."""
        for answer, asked in self.questions.items():
            question = questions.get(answer.prompt_id, asked)
            if asked not in (question, answer.prompt_id):
                name = shortened(answer.prompt_id)
                problem = (
                    f"labels answers to {shortened(asked)}, and {name} is now {shortened(question)}"
                )
                remedy = (
                    "Name another file (--labels), or label again after this file is moved away."
                )
                raise BadFile(self.path, problem, remedy)

    def add(
        self,
        answer: AnswerText,
        label: int,
        asked: LabelReason,
        questions: Mapping[str, str],
    ) -> None:
        self.check_questions(questions)
        self.by_answer[answer] = label
        self.asked[answer] = asked
        self.write(questions)

    def undo(self, questions: Mapping[str, str], number: int) -> bool:
        """Remove the label ``number``, from 1, if it is the last; return whether it was.

        So an undo that arrives twice removes one label.
        """
        if not self.by_answer or number != len(self.by_answer):
            return False
        answer, _ = self.by_answer.popitem()
        del self.asked[answer]
        self.questions.pop(answer, None)
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
            if asked.rest is not None:
                row["rest"] = asked.rest
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
            checked = _LabelRow.model_validate(row)
        except ValidationError as error:
            key = str(error.errors()[0]["loc"][0])
            legal = _LabelRow.model_fields[key].description or "text"
            problem = f"{key}: got {shortened(row.get(key))}; must be {legal}"
            raise BadRow(path, line, problem) from None
        answer = AnswerText(checked.prompt_id, checked.text)
        if answer in labels.by_answer:
            raise BadRow(path, line, "labels an answer a second time", "Remove one of the rows.")
        labels.by_answer[answer] = checked.label
        labels.asked[answer] = LabelReason(checked.part, checked.target, checked.rest)
        if checked.question is not None:
            labels.questions[answer] = checked.question
    return labels
