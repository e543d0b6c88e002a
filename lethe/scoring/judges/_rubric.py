"""A rubric: the text with which a general model is asked to judge an answer."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lethe.errors import BadFile
from lethe.io.files import Json, read_text
from lethe.models.encoding import filled, message_of
from lethe.scoring.judges import question_of

NEEDED = ("question", "generation")
FOLDER = Path(__file__).parent / "rubrics"


@dataclass(frozen=True)
class Rubric:
    """A text with ``{question}`` and ``{generation}``, and optionally ``{answer}``, the reference, and ``{context}``.

    Without ``{context}`` the context of a question stands before the question, as the model got it.
    """

    name: str
    text: str

    @classmethod
    def read(cls, place: str) -> Rubric:
        """Return the rubric in a file; `BadFile` unless each needed place stands in it once."""
        text = read_text(place)
        for name in NEEDED:
            mark = f"{{{name}}}"
            times = text.count(mark)
            if times != 1:
                problem = f"holds {mark} {times} times, expected once"
                raise BadFile(place, problem, f"Write {mark} where the {name} goes.")
        return cls(Path(place).name, text)

    @property
    def compares(self) -> bool:
        """Whether the rubric asks for the reference answer."""
        return self.text.count("{answer}") == 1

    def read_of(self, item: Mapping[str, object]) -> dict[str, object]:
        """The part of a question's row that the rubric shows to the judge."""
        return {**question_of(item), **self._reference(item)}

    def filled(self, item: Mapping[str, Json], generation: str) -> str:
        """The text about one answer."""
        values = {"question": message_of(item), "generation": generation}
        if "{context}" in self.text:
            values["question"] = item["question"]
            values["context"] = item.get("context") or ""
        return filled(self.text, **values, **self._reference(item))

    def record(self) -> dict[str, object]:
        """The name and the hash of the rubric, which tell versions apart."""
        return {"prompt": self.name, "prompt_sha256": sha256_of(self.text)}

    def _reference(self, item: Mapping[str, Json]) -> dict[str, str]:
        if not self.compares:
            return {}
        return {"answer": item.get("answer") or ""}


def sha256_of(text: str) -> str:
    """The hash by which a rubric is known."""
    return hashlib.sha256(text.encode()).hexdigest()


def words_as_text(words: object) -> object:
    """The words of a verdict as texts: YAML reads a bare yes or no as a truth value, and a digit as a number."""
    if isinstance(words, list):
        return [_as_text(word) for word in words]
    if isinstance(words, dict):
        return {_as_text(word): score for word, score in words.items()}
    return words


def _as_text(word: object) -> str:
    if isinstance(word, bool):
        return "yes" if word else "no"
    return str(word)
