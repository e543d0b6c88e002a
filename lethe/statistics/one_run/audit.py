"""The audit of a run: every method's epsilon lower bound, the verdict on a claim, and p-values over
epsilon.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from lethe.errors import BadValue
from lethe.registry import ONE_RUN_METHODS
from lethe.statistics.bound import Bound, Covers
from lethe.statistics.checks import check, check_share
from lethe.statistics.one_run.channel import Channel, Nulls, bracket_root
from lethe.statistics.one_run.counts import ReleasedGuesses
from lethe.statistics.one_run.methods import DEFAULT, Method

ASSUMPTIONS = {
    "product_channel": "given the bits, the observations of the bits are independent: no shared batch, coin or noise scale",
    "family": "the mechanism's trade-off function is a member of the family",
    "r_fixed": "r was fixed before the guesses were seen (or declared in a list, each at its share of alpha)",
    "iid_bits": "the bits are independent fair coins",
}
POINTS = 16  # points of the p-value curve
BEYOND = 1.25  # the curve extends to this multiple of the strongest null rejected or claimed


@dataclass(frozen=True)
class MethodBound:
    """One method's result on the run: of several r the strongest bound, with a p-value corrected
    for their number.

    ``epsilon_lower`` is the epsilon of the least private rejected member of the family, whose
    parameter is ``parameter``; 0 if no member is rejected, None if the whole family is. ``p_value``
    is that of the requested null. ``rejected`` applies to a single null, given as a trade-off
    function.
    """

    method: str
    epsilon_lower: float | None
    p_value: float | None
    assumes: tuple[str, ...]
    note: str
    infinite: bool = False
    rejected: bool | None = None
    parameter: float | None = field(default=None, compare=False)
    r: int = field(default=0, compare=False)


def load_method(name: str) -> Method:
    """The method of the registry, of a module with the fields of a `Method` too; `BadValue` for
    another name.
    """
    check(name in ONE_RUN_METHODS, "method", name, ", ".join([*ONE_RUN_METHODS, "all"]))
    member = ONE_RUN_METHODS[name]
    if isinstance(member, Method):
        return member
    present = [name for name in Method.__annotations__ if hasattr(member, name)]
    return Method(**{name: getattr(member, name) for name in present})


def not_conservative() -> list[str]:
    """The methods whose rejection rate can exceed their level although their assumptions hold."""
    return [name for name in ONE_RUN_METHODS if not load_method(name).CONSERVATIVE]


def applicable(counts: ReleasedGuesses) -> list[str]:
    """The methods that apply to these counts, in the registry's order."""
    return [name for name in ONE_RUN_METHODS if load_method(name).refusal(counts) is None]


def audit(
    counts: ReleasedGuesses,
    nulls: Nulls | Channel,
    *,
    delta: float,
    alpha: float = 0.05,
    methods: Iterable[str] | None = None,
    null: float | None = None,
) -> tuple[MethodBound, ...]:
    """Audit one run by one or more methods, by default by all that apply to the counts, each bound
    at ``alpha``.

    The nulls are a family, ordered by strength, or a single trade-off function, whose epsilon is
    the bound if it is rejected. ``null`` is the parameter of the family (mu, epsilon or sigma) for
    the p-value.

    Parameters
    ----------
    counts
        Bits, released guesses and errors of the run.
    nulls
        A family, or one trade-off function.
    delta
        In [0, 1); every bound is of the epsilon at this delta.
    alpha
        Level of each bound, in (0, 1).
    methods
        Names of the registry.
    null
        Parameter of the member whose p-value is wanted; None: no p-value.

    Raises
    ------
    BadValue
        If a method does not apply to the counts, or ``null`` is beyond the family.
    """
    check_levels(delta, alpha)
    if methods is None:
        methods = applicable(counts)
    channel = None
    if isinstance(nulls, Channel):
        channel = nulls
    elif null is not None:
        channel = nulls.channel(_strength(nulls, null))
    return tuple(_result(name, counts, nulls, channel, delta, alpha) for name in methods)


def _result(
    name: str,
    counts: ReleasedGuesses,
    nulls: Nulls | Channel,
    channel: Channel | None,
    delta: float,
    alpha: float,
) -> MethodBound:
    """The verdict of one method; ``channel`` is the null of the p-value."""
    method = _applying(name, counts)
    log_alpha = math.log(alpha)
    log_p = None
    if channel is not None:
        log_p = _log_p(method, counts, channel, delta)

    value: float | None = 0.0
    parameter = None
    note = method.NOTE
    if isinstance(nulls, Nulls):
        test, strongest = _test(method, counts, nulls, delta, log_alpha)
        strength = largest_rejected(test, strongest, nulls.tolerance)
        if strength == math.inf:
            value = None
            note = f"family rejected: no member of {nulls.name} explains so few errors; {note}"
        elif strength is not None and method.FAMILY_FREE:
            value = strength
        elif strength is not None:
            value = float(nulls.channel(strength).epsilon(delta))
            parameter = nulls.strength(strength) if strength else None
    elif log_p is not None and log_p <= log_alpha:
        value = float(nulls.epsilon(delta))

    infinite = value == math.inf
    if infinite:
        note = f"epsilon is infinite at delta = {delta:g}; {note}"
    p = None if log_p is None else math.exp(log_p)
    return MethodBound(
        name, value, p, method.ASSUMES, note, infinite, parameter=parameter, r=counts.r
    )


def check_levels(delta: float, alpha: float) -> None:
    """Raise `BadValue` unless ``delta`` is in [0, 1) and ``alpha`` in (0, 1)."""
    check(0 <= delta < 1, "delta", delta, "a number of at least 0 and below 1")
    check_share("alpha", alpha)


def log_p_value(
    method: str, counts: ReleasedGuesses, family: Nulls, null: float, delta: float
) -> float:
    """ln of a method's p-value for one member of a family."""
    channel = family.channel(_strength(family, null))
    return _log_p(_applying(method, counts), counts, channel, delta)


def parameter_at(family: Nulls, epsilon: float, delta: float) -> float:
    """The parameter of the least private member that is (epsilon, delta)-DP: the null of that
    claim.
    """
    is_legal = math.isfinite(epsilon) and epsilon > 0
    check(is_legal, "claimed epsilon", epsilon, "a finite number above 0")

    def excess(strength: float) -> float:
        return family.channel(strength).epsilon(delta) - epsilon

    strength = largest_rejected(excess, family.strongest, family.tolerance)
    return family.strength(min(strength or 0.0, family.strongest))


def _applying(name: str, counts: ReleasedGuesses) -> Method:
    method = load_method(name)
    error = method.refusal(counts)
    if error:
        raise error
    return method


def _log_p(method: Method, counts: ReleasedGuesses, channel: Channel, delta: float) -> float:
    if method.FAMILY_FREE:
        return method.log_p_value(counts, channel.highest_epsilon(delta), delta)
    return method.log_p_value(counts, channel)


def _test(
    method: Method, counts: ReleasedGuesses, family: Nulls, delta: float, log_alpha: float
) -> tuple[Callable[[float], float], float]:
    """Return ln p - ln alpha as a function of the strength (rejected if at most 0), and the largest
    strength.
    """
    if method.FAMILY_FREE:
        return lambda s: method.log_p_value(counts, s, delta) - log_alpha, method.STRONGEST
    rejects = method.rejects
    if rejects is None:
        return (
            lambda s: _log_p(method, counts, family.channel(s), delta) - log_alpha,
            family.strongest,
        )

    def sign(strength: float) -> float:
        if rejects(counts, family.channel(strength), log_alpha):
            return -1.0
        return 1.0

    return sign, family.strongest


def largest_rejected(
    test: Callable[[float], float], strongest: float, tolerance: float
) -> float | None:
    """The lower end of the bracket around the largest rejected strength; None if none is rejected,
    infinite if all are.

    Parameters
    ----------
    test
        At most 0 where a strength is rejected; it rises with the strength.
    strongest
        The end of the search.
    tolerance
        Relative width of the bracket.
    """
    low = 0.0
    if test(low) > 0:
        return None
    high = min(1.0, strongest)
    while test(high) <= 0:
        if high >= strongest:
            return math.inf
        low, high = high, min(2 * high, strongest)
    while low == 0 and high > 1e-12 and test(high / 8) > 0:
        high /= 8
    return bracket_root(test, low, high, tolerance * high)[0]


def _strength(family: Nulls, null: float) -> float:
    """The strength of the member with parameter ``null``; `BadValue` beyond the strongest, where
    e^mu overflows.
    """
    if math.isfinite(null) and null >= 0:
        strength = family.strength(null)
        if strength <= family.strongest:
            return strength
    edge = family.strength(family.strongest)
    parameter_falls = family.strength(2.0) < family.strength(1.0)
    legal = f"from {edge:g}" if parameter_falls else f"from 0 to {edge:g}"
    raise BadValue("null", null, f"a finite {family.parameter} {legal}")


@dataclass(frozen=True)
class ClaimVerdict:
    """Whether the method fixed beforehand contradicts a claimed epsilon, and the list of all
    methods that do.

    Methods that need independent channels count only where the caller says that the channels are
    independent. Where no other method ran, ``contradicted`` is None, and ``refused`` says why.
    """

    claimed_epsilon: float
    method: str
    contradicted: bool | None
    contradicted_by: list[str]
    refused: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class OneRunAudit:
    """One run audited by one or more methods; ``r`` and ``errors`` are lists where several r were
    declared.

    ``curve`` has a row per epsilon with the family's parameter and a p-value per method.
    """

    results: list[MethodBound]
    n: int
    r: int | list[int]
    errors: int | list[int]
    delta: float
    alpha: float
    verdict: ClaimVerdict | None = None
    curve: list[dict[str, float]] | None = None

    def bound(self, result: MethodBound) -> Bound | None:
        """One method's lower bound on epsilon with its guarantee; None where the whole family is
        rejected.
        """
        value = math.inf if result.infinite else result.epsilon_lower
        if value is None:
            return None
        assumes = ", ".join(flag.replace("_", " ") for flag in result.assumes)
        if not load_method(result.method).CONSERVATIVE:
            assumes += ", at a nominal level that this published bound does not always keep"
        return Bound(value, "lower", self.alpha, Covers.RUN, assumes, result.method, self.n)


def audit_runs(
    runs: Sequence[ReleasedGuesses],
    nulls: Nulls | Channel,
    *,
    delta: float,
    alpha: float,
    method: str = "all",
    null: float | None = None,
    claimed: float | None = None,
    curve: bool = False,
    independent: bool = False,
) -> OneRunAudit:
    """Audit one run released at one r, or at several r declared beforehand, each at its share of
    ``alpha``.

    ``method`` is the name of one method, or "all" for every one that applies; ``null`` is the
    parameter of the p-values, by default that of the family member that the ``claimed`` epsilon at
    ``delta`` describes. ``curve`` asks for p-values over a range of epsilons, of a family only.
    ``independent``: the bits pass independent channels.

    Parameters
    ----------
    runs
        The counts at each declared r.
    nulls
        A family, or one trade-off function.
    delta, alpha, null
        As in `audit`; alpha is that of all r together.
    method
        A name, or "all".
    claimed
        An epsilon to contradict.
    curve
        Whether p-values over a range of epsilons are wanted.
    independent
        Whether the caller states independent channels of the bits.

    Raises
    ------
    BadValue
        If a curve is asked of one trade-off function, or the method applies to no r.
    """
    family = nulls if isinstance(nulls, Nulls) else None
    declared = len(runs)
    if curve and family is None:
        raise BadValue("curve", "one trade-off function", "a family of nulls")
    if family is not None and null is None and claimed is not None:
        null = parameter_at(family, claimed, delta)

    by_method: dict[str, list[MethodBound]] = {}
    for run in runs:
        names = None if method == "all" else _requested(method, run, runs)
        for result in audit(
            run, nulls, delta=delta, alpha=alpha / declared, methods=names, null=null
        ):
            by_method.setdefault(result.method, []).append(result)
    results = []
    for of_method in by_method.values():
        results.append(_strongest(of_method, declared, alpha, family is None))

    points = None
    if curve and family is not None:
        points = p_value_curve(runs, family, results, delta, null)
    return OneRunAudit(
        results=results,
        n=runs[0].n,
        r=runs[0].r if declared == 1 else [run.r for run in runs],
        errors=runs[0].errors if declared == 1 else [run.errors for run in runs],
        delta=delta,
        alpha=alpha,
        verdict=None if claimed is None else verdict(results, claimed, independent),
        curve=points,
    )


def _requested(method: str, run: ReleasedGuesses, runs: Sequence[ReleasedGuesses]) -> list[str]:
    """``method`` if it applies to the run; if it applies to no run, the audit refuses it."""
    if method in applicable(run):
        return [method]
    if any(method in applicable(other) for other in runs):
        return []
    return [method]


NEEDS_INDEPENDENCE = "product_channel"
# The methods that may decide, the first that ran; those after exact hold under any dependence
# between the bits.
DECIDE = (DEFAULT, "mahloujifar", "steinke")


def deciding(results: Sequence[MethodBound], independent: bool) -> MethodBound | None:
    """The result of the method fixed beforehand: of those whose assumption on the channels the
    caller accepts, the first of `DECIDE`, else the first that ran. The most favourable of several
    would not be a test at alpha. None: none may decide.
    """
    able = {row.method: row for row in results if _may_decide(row, independent)}
    for name in DECIDE:
        if name in able:
            return able[name]
    return next(iter(able.values()), None)


def _may_decide(result: MethodBound, independent: bool) -> bool:
    return independent or NEEDS_INDEPENDENCE not in result.assumes


def verdict(results: Sequence[MethodBound], claimed: float, independent: bool) -> ClaimVerdict:
    """Whether the claim is contradicted, by the method of `deciding`. A family that is rejected as
    a whole contradicts every claim within it.
    """
    decides = deciding(results, independent)
    if decides is None:
        method = results[0].method
        reason = (
            f"{method} needs independent channels of the bits. State that they are (--independent, "
            "independent: true), or use the method mahloujifar or steinke."
        )
        return ClaimVerdict(claimed, method, None, [], [reason])
    above = []
    for row in results:
        rejects_claim = row.epsilon_lower is None or row.epsilon_lower > claimed
        if rejects_claim and _may_decide(row, independent):
            above.append(row.method)
    return ClaimVerdict(claimed, decides.method, decides.method in above, above)


def p_value_curve(
    runs: Sequence[ReleasedGuesses],
    family: Nulls,
    results: Iterable[MethodBound],
    delta: float,
    null: float | None,
) -> list[dict[str, float]]:
    """Rows of epsilon, the family's parameter and one p-value per method: the smallest over all r,
    times their number.
    """
    parameters = [null, *(result.parameter for result in results)]
    strengths = [family.strength(parameter) for parameter in parameters if parameter]
    top = min(BEYOND * max(strengths, default=1.0), family.strongest)
    rows = []
    for step in range(1, POINTS + 1):
        strength = top * step / POINTS
        parameter = family.strength(strength)
        epsilon = family.channel(strength).epsilon(delta)
        if not math.isfinite(epsilon):
            break
        row = {"epsilon": epsilon, family.parameter: parameter}
        for result in results:
            p_values = []
            for run in runs:
                if result.method in applicable(run):
                    log_p = log_p_value(result.method, run, family, parameter, delta)
                    p_values.append(math.exp(log_p))
            row[result.method] = min(1.0, len(runs) * min(p_values))
        rows.append(row)
    return rows


def _strongest(
    of_method: Sequence[MethodBound], declared: int, alpha: float, single_null: bool
) -> MethodBound:
    """The result at the r with the largest bound; its p-value is the smallest over all r, times
    their number.
    """
    best = max(of_method, key=_bound_or_infinity)
    p_values = [result.p_value for result in of_method if result.p_value is not None]
    p = rejected = None
    if p_values:
        p = min(1.0, declared * min(p_values))
    if single_null and p is not None:
        rejected = p <= declared * (alpha / declared)
    note = best.note
    if declared > 1:
        note = f"r = {best.r}, of {declared} each at alpha / {declared}; {note}"
    return replace(best, p_value=p, note=note, rejected=rejected)


def _bound_or_infinity(result: MethodBound) -> float:
    """The bound on epsilon; infinity where the whole family is rejected."""
    if result.epsilon_lower is None:
        return math.inf
    return result.epsilon_lower
