"""What one evaluation outside the pipeline is asked: the settings of `lethe.evaluate` and `lethe eval`."""

from typing import Literal

from pydantic import field_validator

from lethe.config import fields
from lethe.config.measuring import (
    EXACT,
    MEMORY,
    METRICS,
    SAMPLE,
    Chance,
    Drawing,
    EngineName,
    Parts,
    ScorerParams,
)
from lethe.config.schema import ReportSettings
from lethe.config.twins import OfModel

# To each question before the first word is tried. Every other number rests on them, so half as many would widen those, while
# *forgot* needs more than twice as many anyway: only a model that leaks would end sooner (docs/evidence.md).
FIRST_ANSWERS = 256
MOST_ANSWERS = 32_768  # to each question whose word stays open
UNMARKED = [""]  # the marks of thinking with which everything is answer


class EvaluationSettings(fields.Direct, Drawing):
    """The settings, checked: a value out of range raises `BadValue`, which names the argument.

    `lethe.evaluate` explains each. None stands for what the model, its questions or its answers decide: ``prompt`` for a
    template, ``scorer`` for the sign of a leak, ``thinking`` for the marks, ``tau`` for the tolerance; an ``n`` of None draws
    until the word is certain.
    """

    n: fields.Draws | None = None
    answers_at_most: fields.Draws | None = None
    alpha: fields.Alpha = METRICS.alpha
    max_thinking_tokens: fields.Natural = SAMPLE.max_thinking_tokens
    prompt: fields.Place | None = None
    engine: EngineName = SAMPLE.engine
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = SAMPLE.dtype
    memory: int = MEMORY
    scorer: str | None = None
    above: float = EXACT.above
    thinking: list[str] | None = None
    tau: Chance | None = None
    seed: fields.Seed = SAMPLE.seed
    skip_too_long: bool = False
    language: fields.Place | None = None
    calibration: fields.Place | None = None
    labels: fields.Place | None = None
    twin_scores: tuple[OfModel, ...] = ()  # declared beside the score of the whole answer
    # the name of a judge with its checked parameters, whose verdicts decide
    judge: tuple[str, ScorerParams] | None = None

    @field_validator("thinking")
    @classmethod
    def _two_marks_or_none(cls, marks: list[str] | None) -> list[str] | None:
        if marks is None or marks == UNMARKED:
            return marks
        if len(marks) != 2 or "" in marks:
            raise ValueError("two marks, the first before the thinking, or one empty text")
        return marks

    @property
    def parts(self) -> Parts | None:
        """The marks of thinking that were given; None where none were, or everything is answer."""
        if self.thinking is None or self.thinking == UNMARKED:
            return None
        first, second = self.thinking
        return Parts(thinking=(first, second))

    @property
    def report(self) -> ReportSettings:
        """The settings of the verdict: one tolerance for leaks and for mean scores, where one was given."""
        if self.tau is None:
            return ReportSettings(base=None, retrain=None)
        return ReportSettings(base=None, retrain=None, tau=self.tau, tau_graded=self.tau)
