"""The user's own rubric, applied by any local chat model whose reply begins with one of a few words.

The rubric is a text file with ``{question}``, ``{generation}`` and optionally ``{answer}``, the reference, and ``{context}``,
the text that the question is about; without ``{context}`` it stands before the question, as the model got it. The first
column holds the score of the most likely word; the second, with the ending ``_p``, holds the mean score under the words'
probabilities.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import Field, field_validator

from lethe.config.fields import Place, Share
from lethe.config.measuring import ScorerParams
from lethe.errors import BadFile
from lethe.io.files import Json, read_text
from lethe.models.chat_template import filled_in
from lethe.models.encoding import filled, message_of
from lethe.scoring.judges import Asked, ModelParams, WordJudge, expected, question_of

NEEDED = ("question", "generation")


class Params(ModelParams):
    """``rubric`` is the text file; ``words`` are the words that a reply may begin with, and the score of each."""

    rubric: Place
    words: Annotated[dict[str, Share], Field(min_length=2)] = Field({"yes": 1.0, "no": 0.0})

    @field_validator("words", mode="before")
    @classmethod
    def _words_are_text(cls, words: object) -> object:
        # YAML reads a bare yes or no as a truth value, and a digit as a number.
        if not isinstance(words, dict):
            return words
        texts = {}
        for word, score in words.items():
            if isinstance(word, bool):
                word = "yes" if word else "no"
            texts[str(word)] = score
        return texts


class Judge(WordJudge[Params], params=Params):
    COLUMNS = ("", "_p")

    def __init__(self, params: Params):
        self.rubric = read_text(params.rubric)
        for name in NEEDED:
            if self.rubric.count(f"{{{name}}}") != 1:
                problem = (
                    f"holds {{{name}}} {self.rubric.count(f'{{{name}}}')} times, expected once"
                )
                raise BadFile(params.rubric, problem, f"Write {{{name}}} where the {name} goes.")
        super().__init__(params)
        self.chats = bool(self.tokenizer.chat_template)
        self.special = not self.chats  # a chat template already contains the special tokens

    def read_of(self, item: Mapping[str, object]) -> Mapping[str, object]:
        return {**question_of(item), **self._reference(item)}

    @classmethod
    def binary(cls, params: ScorerParams) -> bool:
        return isinstance(params, Params) and set(params.words.values()) <= {0.0, 1.0}

    @classmethod
    def around(cls, params: Params) -> str:
        return read_text(params.rubric)

    def record(self) -> dict[str, object]:
        digest = hashlib.sha256(self.rubric.encode()).hexdigest()
        return super().record() | {"prompt": Path(self.params.rubric).name, "prompt_sha256": digest}

    def words(self) -> Mapping[str, float]:
        return self.params.words

    def text(self, asked: Asked, generation: str) -> str:
        values = {"question": message_of(asked.item), "generation": generation}
        if "{context}" in self.rubric:
            values["question"] = asked.item["question"]
            values["context"] = asked.item.get("context") or ""
        text = filled(self.rubric, **values, **self._reference(asked.item))
        if not self.chats:
            return text
        return filled_in(self.tokenizer, [{"role": "user", "content": text}])

    def _reference(self, item: Mapping[str, Json]) -> dict[str, str]:
        return {"answer": item.get("answer") or ""} if self.rubric.count("{answer}") == 1 else {}

    def scores(self, probabilities: np.ndarray, score: float) -> tuple[float, ...]:
        return score, expected(probabilities, list(self.values.values()))
