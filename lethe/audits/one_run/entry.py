"""The code that the one-run audits of params.yaml share: their keys, and the path from guesses to a verdict."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from lethe.audits.protocol import AuditResult
from lethe.config.fields import Alpha, Count, Delta, NameIn, Seed
from lethe.config.schema import AuditParams
from lethe.registry import ONE_RUN_METHODS

if TYPE_CHECKING:
    from lethe.statistics.one_run.channel import Family
    from lethe.statistics.one_run.counts import Guesses
    from lethe.statistics.one_run.summary import ClaimVerdict


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

    from lethe.statistics.one_run.counts import release
    from lethe.statistics.one_run.summary import audit_runs
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
    said = f"{epsilon_found(whole, decides)} by {decides.method}; {_said(whole.verdict)}"
    bound = whole.bound(decides)
    return AuditResult(
        headline, whole.as_json(), {"guesses": table}, (said,), {"epsilon_lower": bound} if bound else {}
    )


def _said(verdict: ClaimVerdict | None) -> str:
    if verdict is None:
        return "nothing was claimed"
    return f"claimed {verdict.claimed_epsilon:.4g}, {'' if verdict.contradicted else 'not '}contradicted"
