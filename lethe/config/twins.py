"""The settings of the twin test, with every default."""

from typing import Annotated

from pydantic import Field

from lethe.config import fields

Candidates = Annotated[fields.Integer, Field(ge=2)]
Power = Annotated[fields.Real, Field(gt=0, lt=1)]


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


TWINS = Twins()
