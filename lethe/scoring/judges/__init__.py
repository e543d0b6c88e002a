"""Judges: scorers that own a model. Each module holds one class ``Judge`` derived from `Judge`.

``score.scorers`` lists judges by name, like text scorers, with parameters under the name:
``score.scorers: [rouge_l, {NAME: {model: data/judge, batch: 64}}]``. To have DVC track a judge's model folder, list the
judge under ``judges`` instead, which gives the judge its own stage:
``judges: {mine: {judge: NAME, model: data/judge, labelled: null}}``. A judge reads each pair of question and answer once, in
batches that span questions; rows that ask the same are one question.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np

from lethe.config.evaluating import ScorerParams

P = TypeVar("P", bound=ScorerParams)


@dataclass(frozen=True)
class Asked:
    """One answer to judge: its text and its question's row of the dataset."""

    text: str
    item: Mapping[str, Any]


class Judge(Generic[P]):
    """A scorer that owns a model, a batch size and a device."""

    Params: ClassVar[type[ScorerParams]] = ScorerParams
    BINARY: ClassVar[bool] = False
    COLUMNS: ClassVar[tuple[str, ...]] = ("",)

    def __init_subclass__(cls, params: type[ScorerParams] | None = None, **others: object):
        super().__init_subclass__(**others)
        if params is not None:
            cls.Params = params

    def __init__(self, params: P):
        self.params = params

    @property
    def batch(self) -> int:
        """The number of answers per call of `judge`."""
        return 64

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

    def judge(self, asked: Sequence[Asked]) -> np.ndarray:
        """The scores in [0, 1], of shape (len(asked),) or (len(asked), columns); NaN where there is no verdict."""
        raise NotImplementedError(f"{type(self).__module__} does not define the method `judge`")
