"""The base of the judges that read their verdict from a language model's first token."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, TypeVar

import numpy as np
from pydantic import Field

from lethe.config.evaluating import ScorerParams
from lethe.config.fields import Count, Place
from lethe.models.first_token import FirstToken, clipped, neutral
from lethe.scoring import judges
from lethe.scoring.judges import Asked

CLIPPED = 512  # tokens of a generation that a published classifier reads


class ModelParams(ScorerParams):
    """The parameters of every judge that reads a first token: a model folder and how to run it."""

    model: Place
    batch: Count = 32
    engine: Literal["transformers", "vllm"] = "transformers"
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    clip: Annotated[int, Field(ge=1)] = CLIPPED


P = TypeVar("P", bound=ModelParams)


class WordJudge(judges.Judge[P]):
    """A judge whose reply begins with one of a few words, each with a score.

    `text` builds the prompt around a generation that is already clipped and neutralised. `scores` turns the words'
    probabilities and the score of the most likely word into one row of columns. If the model's most likely token begins
    none of the words, every column is NaN: no verdict.
    """

    def __init__(self, params: P):
        super().__init__(params)
        self.values = self.words()
        self.reader = FirstToken(params.model, list(self.values), params.engine, params.dtype)
        self.tokenizer = self.reader.tokenizer
        self.special = True  # whether the tokenizer adds its own special tokens around the prompt

    @property
    def batch(self) -> int:
        return self.params.batch

    def words(self) -> Mapping[str, float]:
        """The words that a verdict begins with, and the score of each."""
        raise NotImplementedError

    def text(self, asked: Asked, generation: str) -> str:
        """The prompt that asks the model to judge one answer."""
        raise NotImplementedError

    def scores(self, probabilities: np.ndarray, said: float) -> tuple[float, ...]:
        """The columns of one answer, from the words' probabilities and ``said``, the score of the most likely word."""
        raise NotImplementedError

    def judge(self, asked: Sequence[Asked]) -> np.ndarray:
        prompts = [
            self.tokenizer(
                self.text(one, neutral(clipped(one.text, self.tokenizer, self.params.clip), self.tokenizer)),
                add_special_tokens=self.special,
            )["input_ids"]
            for one in asked
        ]
        first_tokens, values = self.reader.read(prompts), list(self.values.values())
        nothing = (np.nan,) * len(self.COLUMNS)
        return np.array(
            [
                nothing if said < 0 else self.scores(shares, values[said])
                for shares, said in zip(first_tokens.probabilities, first_tokens.said, strict=True)
            ],
            dtype=np.float64,
        )


def expected(probabilities: np.ndarray, values: Sequence[float]) -> float:
    """The mean score under the words' probabilities, normalised to sum to 1."""
    return float(probabilities @ np.asarray(values) / probabilities.sum())
