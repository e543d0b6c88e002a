"""The audit of a run as a report: the bound of every method, the verdict on a claim, and p-values over epsilon."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields, replace

from lethe.errors import BadValue
from lethe.statistics.bound import Bound, Covers
from lethe.statistics.one_run.audit import (
    MethodResult,
    applicable,
    audit,
    audit_null,
    load_method,
    log_p_value,
    parameter_at,
)
from lethe.statistics.one_run.channel import Channel, Family
from lethe.statistics.one_run.counts import Counts
from lethe.statistics.one_run.methods import DEFAULT

POINTS = 16  # points of the p-value curve
BEYOND = 1.25  # the curve extends to this multiple of the strongest null rejected or claimed


@dataclass(frozen=True)
class MethodBound:
    """One method's result on the run: the strongest bound over all r, with a p-value corrected for their number.

    ``epsilon_lower`` is None where the whole family is rejected. ``rejected`` applies to a single null, given as
    a trade-off function.
    """

    method: str
    epsilon_lower: float | None
    p_value: float | None
    assumes: tuple[str, ...]
    note: str
    infinite: bool = False
    rejected: bool | None = None

    def as_json(self) -> dict[str, object]:
        """The row under the keys of `lethe audit one-run --json`; ``infinite``: JSON writes infinity as null."""
        row = {key: getattr(self, key) for key in ("method", "epsilon_lower", "p_value")}
        row |= {"assumes": list(self.assumes), "note": self.note}
        if self.infinite:
            row["infinite"] = True
        if self.rejected is not None:
            row["rejected"] = self.rejected
        return row


@dataclass(frozen=True)
class ClaimVerdict:
    """Whether the method fixed beforehand contradicts a claimed epsilon, and the list of all methods that do."""

    claimed_epsilon: float
    method: str
    contradicted: bool
    contradicted_by: list[str]


@dataclass(frozen=True)
class OneRunAudit:
    """One run audited by one or more methods.

    ``r`` and ``errors`` are lists where several r were declared. ``curve`` has a row per epsilon with the family's
    parameter and a p-value per method.
    """

    results: list[MethodBound]
    n: int
    r: int | list[int]
    errors: int | list[int]
    delta: float
    alpha: float
    verdict: ClaimVerdict | None = None
    curve: list[dict[str, float]] | None = None

    def bound(self, found: MethodBound) -> Bound | None:
        """One method's lower bound on epsilon with its guarantee; None where the whole family is rejected."""
        value = math.inf if found.infinite else found.epsilon_lower
        if value is None:
            return None
        assumes = ", ".join(flag.replace("_", " ") for flag in found.assumes)
        if not load_method(found.method).CONSERVATIVE:
            assumes += ", at a nominal level that this published bound does not always keep"
        return Bound(value, "lower", self.alpha, Covers.RUN, assumes, found.method, self.n)

    def as_json(self) -> dict[str, object]:
        """The audit under the keys of `lethe audit one-run --json`."""
        whole = {name: getattr(self, name) for name in self._plain()}
        whole = {"results": [row.as_json() for row in self.results], **whole}
        if self.verdict is not None:
            whole["verdict"] = asdict(self.verdict)
        if self.curve is not None:
            whole["curve"] = self.curve
        return whole

    @classmethod
    def _plain(cls) -> list[str]:
        """The fields that JSON holds unchanged, also for a subclass."""
        return [field.name for field in fields(cls) if field.name not in ("results", "verdict", "curve")]


def audit_runs(
    runs: Sequence[Counts],
    nulls: Family | Channel,
    *,
    delta: float,
    alpha: float,
    method: str = "all",
    null: float | None = None,
    claimed: float | None = None,
    curve: bool = False,
) -> OneRunAudit:
    """Audit one run released at one r, or at several r declared beforehand, each at its share of ``alpha``.

    Parameters
    ----------
    runs : sequence of Counts
        The counts of the run at each r.
    nulls : Family or Channel
        A family of nulls, or a single trade-off function.
    delta : float
        The delta of epsilon, in [0, 1).
    alpha : float
        Error probability of each lower bound over all r, strictly between 0 and 1.
    method : str
        The name of one method, or "all" for every method that applies.
    null : float, optional
        The parameter of the p-values; by default that of the family member that ``claimed`` at ``delta`` describes.
    claimed : float, optional
        A claimed epsilon to test.
    curve : bool
        Whether to compute p-values over a range of epsilons; only for a family.

    Returns
    -------
    OneRunAudit

    Raises
    ------
    BadValue
        If an argument lies outside its range, or a method does not apply.
    """
    level = alpha / len(runs)
    if isinstance(nulls, Family):
        if null is None and claimed is not None:
            null = parameter_at(nulls, claimed, delta)
        audits = [
            audit(run, nulls, delta=delta, alpha=level, methods=_methods(method, run, runs), null=null)
            for run in runs
        ]
    else:
        audits = [
            audit_null(run, nulls, delta=delta, alpha=level, methods=_methods(method, run, runs)) for run in runs
        ]
    best = _strongest(audits)
    if curve and not isinstance(nulls, Family):
        raise BadValue("curve", "one trade-off function", "a family of nulls")
    results = [_bound(result, single_null=isinstance(nulls, Channel), declared=len(runs)) for result in best]
    return OneRunAudit(
        results=results,
        n=runs[0].n,
        r=_one_or_all([run.r for run in runs]),
        errors=_one_or_all([run.errors for run in runs]),
        delta=delta,
        alpha=alpha,
        verdict=None if claimed is None else verdict(results, claimed),
        curve=p_value_curve(runs, nulls, best, delta, null) if curve and isinstance(nulls, Family) else None,
    )


def verdict(results: Sequence[MethodBound], claimed: float) -> ClaimVerdict:
    """Whether the claim is contradicted, by the method fixed beforehand: exact, or the only requested one.

    The verdict also lists every method that contradicts the claim; the most favourable of several methods would not be a
    test at alpha. A family that is rejected as a whole contradicts every claim within it.
    """
    above = [row.method for row in results if row.epsilon_lower is None or row.epsilon_lower > claimed]
    names = [row.method for row in results]
    decides = DEFAULT if DEFAULT in names else names[0]
    return ClaimVerdict(claimed, decides, decides in above, above)


def p_value_curve(
    runs: Sequence[Counts], family: Family, results: Iterable[MethodResult], delta: float, null: float | None
) -> list[dict[str, float]]:
    """Rows of epsilon, the family's parameter and one p-value per method: the smallest over all r, times their number."""
    marks = [family.strength(p) for p in [null, *(result.parameter for result in results)] if p]
    top = min(BEYOND * max(marks, default=1.0), family.strongest)
    rows = []
    for step in range(1, POINTS + 1):
        parameter = family.strength(top * step / POINTS)
        epsilon = family.channel(top * step / POINTS).epsilon(delta)
        if not math.isfinite(epsilon):
            break
        row = {"epsilon": epsilon, family.parameter: parameter}
        for result in results:
            able = [run for run in runs if result.method in applicable(run)]
            least = min(math.exp(log_p_value(result.method, run, family, parameter, delta)) for run in able)
            row[result.method] = min(1.0, len(runs) * least)
        rows.append(row)
    return rows


def _methods(method: str, run: Counts, runs: Sequence[Counts]) -> list[str] | None:
    """The methods to run; a method requested by name must apply to at least one r."""
    if method == "all":
        return None
    able = any(method in applicable(other) for other in runs)
    return [method] if method in applicable(run) or not able else []


def _strongest(audits: list[tuple[MethodResult, ...]]) -> list[MethodResult]:
    """For each method, the result at the r with the largest bound; p-value: the smallest over all r, times their number."""
    found: dict[str, list[MethodResult]] = {}
    for result in (result for results in audits for result in results):
        found.setdefault(result.method, []).append(result)
    strongest = []
    for several in found.values():
        best = max(several, key=lambda result: math.inf if result.value is None else result.value)
        p_values = [result.p_value for result in several if result.p_value is not None]
        if best.p_value is not None:
            best = replace(best, p_value=min(1.0, len(audits) * min(p_values)))
        strongest.append(best)
    return strongest


def _bound(result: MethodResult, single_null: bool, declared: int) -> MethodBound:
    several = f"r = {result.r}, of {declared} each at alpha / {declared}; "
    return MethodBound(
        method=result.method,
        epsilon_lower=None if result.value is None else float(result.value),
        p_value=None if result.p_value is None else float(result.p_value),
        assumes=result.assumes,
        note=result.note if declared == 1 else several + result.note,
        infinite=result.value == math.inf,
        rejected=result.p_value <= declared * result.alpha if single_null and result.p_value is not None else None,
    )


def _one_or_all(values: list[int]) -> int | list[int]:
    return values[0] if len(values) == 1 else values
