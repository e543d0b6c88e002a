"""The settings of the twin test, with every default."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from lethe.config import fields

Candidates = Annotated[fields.Integer, Field(ge=2)]
Power = Annotated[fields.Real, Field(gt=0, lt=1)]
OfModel = Literal["loss", "zlib", "min_k", "min_k_plus_plus"]  # of an answer under one model
Score = Literal[OfModel, "reference", "learned"]
REFERENCE: Score = "reference"  # needs the scores of the control
LEARNED: Score = "learned"  # needs rows that a model learned, and rows that it did not


class Twins(fields.Section):
    """How many candidates a secret has, which model controls the test, and when the word is *no trace found*."""

    k: Candidates = 20  # more candidates find fewer known secrets, and no smaller lift
    control: fields.Place | None = "retrain"  # a model that cannot know the draws
    control_alpha: fields.Alpha = (
        0.001  # where the control rejects at this level, no model has a word
    )
    power: Power = 0.95  # with this probability a trace would have been found
    known: fields.Share = 0.34  # of the secrets: *no trace found* says that no more are known
    key: fields.Place | None = None  # the sealed key of the user's draws; generated rows need none
    scores: tuple[Score, ...] = ()  # declared further scores, each with an equal part of alpha

    @model_validator(mode="after")
    def check_scores(self) -> Self:
        if len(set(self.scores)) < len(self.scores):
            raise ValueError("scores: got a score twice; each must stand once")
        if REFERENCE in self.scores and self.control is None:
            raise ValueError("scores: reference needs a control, whose scores it subtracts")
        return self

    @property
    def n_scores(self) -> int:
        """How many scores share a model's level: that of the whole answer, and the declared ones."""
        return 1 + len(self.scores)


TWINS = Twins()
