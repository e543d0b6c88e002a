"""What a sweep shows of a claim: the sentence is chosen by a test of the sweep's own numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from lethe.config.fields import Name, Place, Section
from lethe.statistics.trend import Trend, trend

LEVEL = 0.05  # of the two directions together, for one claim
Expected = Literal["falls", "rises", "unrelated"]
SweepVerdict = Literal["held", "the opposite held", "did not show", "a relation showed", "no relation showed"]
Row = Mapping[str, object]  # one model at one point: the point's settings and the model's numbers


class SweepClaim(Section):
    """A claim on how an effect changes with a cause, each a key of params.yaml or a metric."""

    says: Annotated[str, Field(min_length=1)]
    cause: Place
    effect: Place
    expected: Expected
    within: Place | None = None  # points are compared where this key has the same value


class Figure(Section):
    """What a figure shows: a mark per point, of one model, with the control's mean as a dashed line."""

    x: Place
    y: Place
    model: Name
    control: Name | None
    series: Place | None
    series_label: Annotated[str, Field(min_length=1)] | None = None  # the name of ``series`` in the legend
    title: Annotated[str, Field(min_length=1)]
    x_label: Annotated[str, Field(min_length=1)]
    y_label: Annotated[str, Field(min_length=1)]


@dataclass(frozen=True)
class SweepOutcome:
    """A claim with what came out."""

    says: str
    verdict: SweepVerdict
    trend: Trend
    sentence: str


def outcome(claim: SweepClaim, model: str, rows: Sequence[Row]) -> SweepOutcome:
    """Test one claim on the rows of one model; rows that lack the cause or the effect are left out."""
    own = [
        (cause, effect, repr(row.get(claim.within)) if claim.within else "")
        for row in rows
        if row.get("model") == model
        and (cause := number(row.get(claim.cause))) is not None
        and (effect := number(row.get(claim.effect))) is not None
    ]
    found = trend([one[0] for one in own], [one[1] for one in own], [one[2] for one in own])
    falls, rises = found.p_falls <= LEVEL / 2, found.p_rises <= LEVEL / 2
    verdict: SweepVerdict
    if claim.expected == "unrelated":
        verdict = "a relation showed" if falls or rises else "no relation showed"
    elif falls or rises:
        verdict = "held" if falls == (claim.expected == "falls") else "the opposite held"
    else:
        verdict = "did not show"
    told = "all values equal" if found.tau is None else f"Kendall's tau {found.tau:.2f}"
    p = min(1.0, 2 * min(found.p_falls, found.p_rises))
    proves = ", which is no proof that there is none" if verdict == "no relation showed" else ""
    sentence = (
        f"{claim.says}: {verdict} over {found.points} points{proves} ({told}, p = {p:.2g} by permutations; "
        f"a claim is tested at {LEVEL:g})."
    )
    return SweepOutcome(claim.says, verdict, found, sentence)


def number(value: object) -> float | None:
    """A finite number; None for anything else."""
    if (
        isinstance(value, bool)
        or not isinstance(value, (int, float))
        or value != value
        or abs(value) == float("inf")
    ):
        return None
    return float(value)
