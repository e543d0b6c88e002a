"""Judges: scorers that own a model. Each module holds one class ``Judge`` derived from `Judge`.

``score.scorers`` lists judges by name, like text scorers, with parameters under the name:
``score.scorers: [rouge_l, {NAME: {model: data/judge, batch: 64}}]``. To have DVC track a judge's model folder, list the
judge under ``judges`` instead, which gives the judge its own stage:
``judges: {mine: {judge: NAME, model: data/judge, labelled: null}}``. A judge reads each pair of question and answer once, in
batches that span questions; rows that ask the same are one question.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Annotated, ClassVar, Literal, NamedTuple, TypeVar

import numpy as np
from pydantic import Field

from lethe.config.fields import Count, Place, WithParams
from lethe.config.measuring import ScorerParams
from lethe.io.files import Json
from lethe.models import checkpoints
from lethe.models.encoding import PublishedPrompt, open_ids
from lethe.models.first_token import FirstToken, clipped, neutral

CLIPPED = 512  # tokens of a generation that a published classifier reads


class ModelParams(ScorerParams):
    """The parameters of every judge that reads a first token: a model folder and how to run it."""

    model: Place
    batch: Count = 32
    engine: Literal["transformers", "vllm"] = "transformers"
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    clip: Annotated[int, Field(ge=1)] = CLIPPED


P = TypeVar("P", bound=ScorerParams)
M = TypeVar("M", bound=ModelParams)


class JudgedAnswer(NamedTuple):
    """An answer to be judged, and the question's row of the dataset."""

    text: str
    item: Mapping[str, Json]


Asked = JudgedAnswer  # the name by which judges of other packages import it


class Judge(WithParams[P]):
    """A scorer that owns a model, a batch size and a device."""

    Params: ClassVar[type[ScorerParams]] = ScorerParams
    BINARY: ClassVar[bool] = False
    COLUMNS: ClassVar[tuple[str, ...]] = ("",)
    # Parameters that decide no verdict. The content of the model's folder does, and is hashed by itself.
    UNDECISIVE: ClassVar[frozenset[str]] = frozenset({"model", "batch"})
    IS_SERVED: ClassVar[bool] = False  # neither this machine nor its libraries decide a verdict

    @property
    def batch(self) -> int:
        """The number of answers per call of `judge`."""
        return int(getattr(self.params, "batch", 64))

    @classmethod
    def applies(cls, item: Mapping[str, object]) -> bool:
        """Whether answers to this row can be judged."""
        return True

    def read_of(self, item: Mapping[str, object]) -> Mapping[str, object]:
        """The part of a question's row that decides a verdict. Equal answers to rows with an equal part are judged once."""
        return item

    @classmethod
    def binary(cls, params: ScorerParams) -> bool:
        """Whether the first column holds only 0 and 1 with these parameters."""
        return cls.BINARY

    @classmethod
    def around(cls, params: P) -> str:
        """The text that a prompt puts around question and answer, which `lethe plan` counts; "" where there is none."""
        return ""

    def record(self) -> dict[str, object]:
        """What else decides a verdict, besides the parameters and the model, such as the prompt's name and hash."""
        return {}

    def prepare(self, asked: Iterable[JudgedAnswer]) -> None:
        """Take notice of every answer that will be asked, before the first and before `record`. A judge that runs by vLLM
        opens its model for the longest of them; without this call, for the model's whole context."""

    def plan(self, asked: Sequence[JudgedAnswer]) -> str:
        """What judging these answers takes at most, said before the first is judged; "" where it costs nothing."""
        return ""

    def unjudged(self) -> dict[str, int]:
        """How many answers got no verdict so far, by the reason, from a judge that knows it."""
        return {}

    def judge(self, asked: Sequence[JudgedAnswer]) -> np.ndarray:
        """The scores in [0, 1], of shape (len(asked),) or (len(asked), columns); NaN where there is no verdict."""
        raise NotImplementedError(f"{type(self).__module__} does not define the method `judge`")


class WordJudge(Judge[M]):
    """A judge whose reply begins with one of a few words, each with a score. The generation in a prompt is clipped and
    neutralised. If the model's most likely token begins none of the words, every column is NaN: no verdict."""

    def __init__(self, params: M):
        super().__init__(params)
        self.values = self.words()
        self.room: int | None = None  # tokens of the longest prompt with its verdict
        self.special = True  # whether the tokenizer adds its own special tokens around the prompt
        if params.engine == "vllm":
            self.tokenizer = checkpoints.load_tokenizer(checkpoints.check(params.model))
        else:
            self.tokenizer = self.reader.tokenizer

    @cached_property
    def reader(self) -> FirstToken:
        params = self.params
        return FirstToken(
            params.model, list(self.values), params.engine, params.dtype, room=self.room
        )

    def prepare(self, asked: Iterable[JudgedAnswer]) -> None:
        if self.params.engine == "vllm":
            longest = max((len(self._prompt(answer)) for answer in asked), default=0)
            self.room = longest + 1

    def record(self) -> dict[str, object]:
        record = super().record()
        if self.reader.rows is not None:
            record["rows_at_once"] = self.reader.rows
        return record

    def words(self) -> Mapping[str, float]:
        """The words that a verdict begins with, and the score of each."""
        raise NotImplementedError

    def text(self, asked: JudgedAnswer, generation: str) -> str:
        """The prompt that asks the model to judge one answer."""
        raise NotImplementedError

    def scores(self, probabilities: np.ndarray, score: float) -> tuple[float, ...]:
        """The columns of one answer, from the words' probabilities and ``score``, the score of the most likely word."""
        raise NotImplementedError

    def judge(self, asked: Sequence[JudgedAnswer]) -> np.ndarray:
        shares_of_words, words = self.reader.read([self._prompt(answer) for answer in asked])
        values = list(self.values.values())
        scores = np.full((len(asked), len(self.COLUMNS)), np.nan)
        for row, word in enumerate(words):
            if word >= 0:
                scores[row] = self.scores(shares_of_words[row], values[word])
        return scores

    def _prompt(self, answer: JudgedAnswer) -> tuple[int, ...]:
        """The tokens that ask the model to judge an answer."""
        generation = clipped(answer.text, self.tokenizer, self.params.clip)
        prompt = self.text(answer, neutral(generation, self.tokenizer))
        return open_ids(self.tokenizer, prompt, self.special)


class PublishedJudge(WordJudge[M]):
    """A judge whose prompt the package judgezoo publishes; it reads the question and its context."""

    published_prompt: Callable[[], PublishedPrompt]

    def __init__(self, params: M):
        # Before the model is loaded: the package may be missing.
        self.published = type(self).published_prompt()
        super().__init__(params)

    def read_of(self, item: Mapping[str, object]) -> Mapping[str, object]:
        return question_of(item)

    @classmethod
    def around(cls, params: M) -> str:
        published = cls.published_prompt()
        return "\n".join(filter(None, (published.system, published.user)))

    def record(self) -> dict[str, object]:
        return super().record() | self.published.record()


def question_of(item: Mapping[str, object]) -> dict[str, object]:
    """The question of a row, and its context where it has one: two rows that differ in either are two questions."""
    asked = {"question": item["question"]}
    if item.get("context"):
        asked["context"] = item["context"]
    return asked


def expected(probabilities: np.ndarray, values: Sequence[float]) -> float:
    """The mean score under the words' probabilities, normalised to sum to 1."""
    return float(probabilities @ np.asarray(values) / probabilities.sum())
