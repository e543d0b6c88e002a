"""A one-run audit of a file of guesses, with the columns bit, guess and score."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from lethe.audits.one_run.entry import OneRunParams, audited
from lethe.audits.one_run.guesses import Mechanism, misfit
from lethe.audits.protocol import AuditResult
from lethe.config.fields import Count, Delta, Positive, Real


class Params(OneRunParams):
    """The entry of a one-run audit of a file: the mechanism, its parameters, and a claimed epsilon."""

    kind: Literal["guesses"]
    mechanism: Mechanism
    q: Annotated[Real, Field(gt=0, le=1)] | None = None
    steps: Count | None = None
    delta0: Delta | None = None
    claimed_epsilon: Positive | None

    @model_validator(mode="after")
    def _has_what_its_mechanism_needs(self) -> Params:
        if wrong := misfit(self.mechanism, q=self.q, steps=self.steps, delta0=self.delta0):
            if wrong.lacking:
                raise ValueError(f"the mechanism {self.mechanism} needs {wrong.name}, which the entry lacks")
            raise ValueError(f"the mechanism {self.mechanism} takes no {wrong.name}")
        return self


def audit(settings: Params) -> AuditResult:
    """Test the guesses of the file against the family of nulls, and against the claim if the entry has one."""
    from lethe.audits.one_run.guesses import family_of, read_guesses

    family = family_of(
        settings.mechanism, delta=settings.delta, q=settings.q, steps=settings.steps, delta0=settings.delta0
    )
    return audited(read_guesses(Path(settings.source)), family, settings.claimed_epsilon, settings)
