"""A one-run audit of a file of guesses with the columns bit, guess and score, and what every one-run audit shares."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, model_validator

from lethe.audits import AuditResult
from lethe.audits.one_run import Mechanism, misfit
from lethe.config.fields import Alpha, Count, Delta, NameIn, Positive, Real, Seed
from lethe.config.schema import AuditParams
from lethe.registry import ONE_RUN_METHODS

if TYPE_CHECKING:
    from lethe.statistics.one_run.channel import Family
    from lethe.statistics.one_run.counts import Guesses


class OneRunParams(AuditParams):
    """The keys of a one-run audit: the r fixed in advance share alpha; ``method`` or exact judges the claim."""

    r: Annotated[list[Count], Field(min_length=1)]
    delta: Delta
    alpha: Alpha
    method: Annotated[str, NameIn((ONE_RUN_METHODS,), also=("all",), quoted=True)]
    seed: Seed


def audited(guesses: Guesses, family: Family, claimed: float | None, settings: OneRunParams) -> AuditResult:
    """Release the most confident guesses and audit them."""
    import pandas as pd

    from lethe.statistics.one_run.audit import audit_runs
    from lethe.statistics.one_run.counts import release
    from lethe.text import epsilon_found

    runs = [release(guesses.bits, guesses.guesses, guesses.scores, r, settings.seed) for r in settings.r]
    whole = audit_runs(
        runs,
        family,
        delta=settings.delta,
        alpha=settings.alpha,
        claimed=claimed,
        curve=True,
        method=settings.method,
    )
    decides = whole.results[0]  # exact, if it ran
    headline = {"kind": settings.kind, "mechanism": family.name, "claimed_epsilon": claimed}
    headline |= {key: getattr(decides, key) for key in ("method", "epsilon_lower", "p_value")}
    headline["contradicted"] = whole.verdict.contradicted if whole.verdict else None
    table = pd.DataFrame({"bit": guesses.bits, "guess": guesses.guesses, "score": guesses.scores})
    verdict = whole.verdict
    claim = "nothing was claimed"
    if verdict is not None:
        claim = f"claimed {verdict.claimed_epsilon:.4g}, {'' if verdict.contradicted else 'not '}contradicted"
    sentence = f"{epsilon_found(whole, decides)} by {decides.method}; {claim}"
    bound = whole.bound(decides)
    return AuditResult(
        headline, whole.as_json(), {"guesses": table}, (sentence,), {"epsilon_lower": bound} if bound else {}
    )


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
            raise ValueError(f"{wrong[0]}: {wrong[1]}")
        return self


def audit(settings: Params) -> AuditResult:
    """Test the guesses of the file against the family of nulls, and against the claim if the entry has one."""
    from lethe.audits.one_run import family_of, read_guesses

    family = family_of(
        settings.mechanism, delta=settings.delta, q=settings.q, steps=settings.steps, delta0=settings.delta0
    )
    return audited(read_guesses(Path(settings.source)), family, settings.claimed_epsilon, settings)
