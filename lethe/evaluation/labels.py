"""A person's labels of answers, in a file that is complete after each label."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from lethe.errors import BadRow, shortened
from lethe.io.atomic import SCHEMA_VERSION
from lethe.io.json_files import FIRST, KEY, read_jsonl, write_jsonl

Part = Literal["mass", "rest"]


@dataclass(frozen=True)
class Answer:
    """One distinct answer to one question."""

    prompt_id: str
    text: str


@dataclass(frozen=True)
class Asked:
    """The reason for a label: the mass or the rest, and the target (None in files of earlier releases)."""

    part: Part
    target: float | None = None


@dataclass
class Labels:
    """Labels by answer, in the order of labelling; each new label is saved to ``path``.

    A label is a fact about a question and a text. It holds for every run in which the text occurs.
    """

    path: Path
    known: dict[Answer, int] = field(default_factory=dict)
    asked: dict[Answer, Asked] = field(default_factory=dict)

    def add(self, answer: Answer, label: int, asked: Asked, questions: Mapping[str, str]) -> None:
        """Add one label and write the file."""
        self.known[answer] = label
        self.asked[answer] = asked
        self.write(questions)

    def undo(self, questions: Mapping[str, str]) -> bool:
        """Remove the last label; return whether there was one."""
        if not self.known:
            return False
        answer, _ = self.known.popitem()
        del self.asked[answer]
        self.write(questions)
        return True

    @property
    def targets(self) -> list[float]:
        """The targets under which labels were requested, in order."""
        found = [asked.target for asked in self.asked.values() if asked.target is not None]
        return list(dict.fromkeys(found))

    def write(self, questions: Mapping[str, str]) -> None:
        """Write the whole file: one row per label, in the order of labelling."""
        write_jsonl(self.path, [self._row(answer, questions) for answer in self.known])

    def _row(self, answer: Answer, questions: Mapping[str, str]) -> dict[str, object]:
        asked = self.asked[answer]
        row = {
            "prompt_id": answer.prompt_id,
            "question": questions.get(answer.prompt_id, answer.prompt_id),
            "text": answer.text,
            "label": self.known[answer],
            "part": asked.part,
            KEY: SCHEMA_VERSION,
        }
        return row if asked.target is None else row | {"target": asked.target}


def read_labels(path: Path) -> Labels:
    """Read a person's labels; a missing file has no labels yet."""
    labels = Labels(path)
    for line, row in read_jsonl(path) if path.exists() else ():
        if (version := row.get(KEY, FIRST)) != SCHEMA_VERSION:
            problem = (
                f"schema: got {shortened(version)}; must be {SCHEMA_VERSION}, which this release of Lethe reads"
            )
            raise BadRow(path, line, problem, "Read the labels with the release that wrote them.")
        answer, asked = _answer(path, line, row), _asked(path, line, row)
        if isinstance(row.get("label"), bool) or row.get("label") not in (0, 1):
            raise BadRow(path, line, f"label: got {row.get('label')!r}; must be 0 (no leak) or 1 (leak)")
        if answer in labels.known:
            raise BadRow(path, line, "labels an answer a second time", "Remove one of the rows.")
        labels.known[answer] = int(row["label"])
        labels.asked[answer] = asked
    return labels


def _answer(path: Path, line: int, row: Mapping[str, Any]) -> Answer:
    prompt_id, text = row.get("prompt_id"), row.get("text")
    if not isinstance(prompt_id, str) or not isinstance(text, str):
        raise BadRow(path, line, "prompt_id and text must be texts")
    return Answer(prompt_id, text)


def _asked(path: Path, line: int, row: Mapping[str, Any]) -> Asked:
    part, target = row.get("part"), row.get("target")
    if part not in ("mass", "rest"):
        raise BadRow(path, line, f"part: got {part!r}; must be mass or rest")
    if target is None:
        return Asked(part)
    if isinstance(target, bool) or not isinstance(target, int | float) or not 0 < target <= 1:
        raise BadRow(path, line, f"target: got {target!r}; must be a number above 0 and at most 1")
    return Asked(part, float(target))
