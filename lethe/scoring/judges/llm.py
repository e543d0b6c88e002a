"""The user's own rubric, applied by any local chat model whose reply begins with one of a few words.

The rubric is a text file with ``{question}``, ``{generation}`` and optionally ``{answer}``, the reference, and ``{context}``,
the text that the question is about; without ``{context}`` it stands before the question, as the model got it. The first
column holds the score of the most likely word; the second, with the ending ``_p``, holds the mean score under the words'
probabilities.
"""

from collections.abc import Mapping
from typing import Annotated

import numpy as np
from pydantic import Field, field_validator

from lethe.config.fields import Place, Share
from lethe.config.measuring import ScorerParams
from lethe.io.files import read_text
from lethe.models.chat_template import filled_in
from lethe.scoring.judges import JudgedAnswer, ModelParams, WordJudge, expected
from lethe.scoring.judges._rubric import Rubric, sha256_of, words_as_text


class Params(ModelParams):
    """``rubric`` is the text file; ``words`` are the words that a reply may begin with, and the score of each."""

    rubric: Place
    words: Annotated[dict[str, Share], Field(min_length=2)] = Field({"yes": 1.0, "no": 0.0})

    @field_validator("words", mode="before")
    @classmethod
    def _words_are_text(cls, words: object) -> object:
        return words_as_text(words)

    @property
    def prompt_sha256(self) -> str:
        """The hash of the rubric's content, so that an edit of the file makes the stage run again."""
        return sha256_of(read_text(self.rubric))


class Judge(WordJudge[Params], params=Params):
    """A local model that reads the user's rubric; ``_p`` is the mean score under the probabilities of its words."""

    COLUMNS = ("", "_p")

    def __init__(self, params: Params):
        self.rubric = Rubric.read(params.rubric)
        super().__init__(params)
        self.chats = bool(self.tokenizer.chat_template)
        self.special = not self.chats  # a chat template already contains the special tokens

    def read_of(self, item: Mapping[str, object]) -> Mapping[str, object]:
        return self.rubric.read_of(item)

    @classmethod
    def binary(cls, params: ScorerParams) -> bool:
        return isinstance(params, Params) and set(params.words.values()) <= {0.0, 1.0}

    @classmethod
    def around(cls, params: Params) -> str:
        return read_text(params.rubric)

    def record(self) -> dict[str, object]:
        return super().record() | self.rubric.record()

    def words(self) -> Mapping[str, float]:
        return self.params.words

    def text(self, asked: JudgedAnswer, generation: str) -> str:
        text = self.rubric.filled(asked.item, generation)
        if not self.chats:
            return text
        return filled_in(self.tokenizer, [{"role": "user", "content": text}])

    def scores(self, probabilities: np.ndarray, score: float) -> tuple[float, ...]:
        return score, expected(probabilities, list(self.values.values()))
