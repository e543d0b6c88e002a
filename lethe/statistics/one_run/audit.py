"""The audit: every method's epsilon lower bound and p-value, with its assumptions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from lethe.errors import BadValue
from lethe.registry import ONE_RUN_METHODS
from lethe.statistics.one_run.channel import Channel, Family, bracket_root
from lethe.statistics.one_run.counts import Counts
from lethe.statistics.one_run.methods import Method

ASSUMPTIONS = {
    "product_channel": "given the bits, the observations of the bits are independent: no shared batch, coin or noise scale",
    "family": "the mechanism's trade-off function is a member of the family",
    "r_fixed": "r was fixed before the guesses were seen (or declared in a list, each at its share of alpha)",
    "iid_bits": "the bits are independent fair coins",
}
INFINITE = "epsilon is infinite at delta = {:g}"


@dataclass(frozen=True)
class MethodResult:
    """The verdict of a single method on one run.

    ``value`` is the lower bound on epsilon at ``delta`` (confidence 1 - ``alpha``): the epsilon of the least private
    rejected member of the family, 0 if no member is rejected, None if every member is rejected. ``parameter`` is the
    parameter of that member. ``p_value`` is the p-value of the requested null; None if no null was given.
    """

    method: str
    value: float | None
    parameter: float | None
    p_value: float | None
    n: int
    r: int
    errors: int
    delta: float
    alpha: float
    assumes: tuple[str, ...]
    note: str
    side: str = "lower"


def load_method(name: str) -> Method:
    """The method ``name``; raises `BadValue` for an unknown name."""
    if name not in ONE_RUN_METHODS:
        raise BadValue("method", name, ", ".join([*ONE_RUN_METHODS, "all"]))
    member = ONE_RUN_METHODS[name]
    if isinstance(member, Method):
        return member
    return Method(**{field: getattr(member, field) for field in Method.__annotations__ if hasattr(member, field)})


def not_conservative() -> list[str]:
    """The methods whose rejection rate can exceed their level although their assumptions hold."""
    return [name for name in ONE_RUN_METHODS if not load_method(name).CONSERVATIVE]


def applicable(counts: Counts) -> list[str]:
    """The methods that apply to these counts, in the registry's order."""
    return [name for name in ONE_RUN_METHODS if load_method(name).refusal(counts) is None]


def audit(
    counts: Counts,
    family: Family,
    *,
    delta: float,
    alpha: float = 0.05,
    methods: Iterable[str] | None = None,
    null: float | None = None,
) -> tuple[MethodResult, ...]:
    """Audit one run by one or more methods.

    Parameters
    ----------
    counts : Counts
        Bits, released guesses and errors of the run.
    family : Family
        The nulls, ordered by strength.
    delta : float
        The delta of epsilon, in [0, 1).
    alpha : float
        Error probability of each lower bound, strictly between 0 and 1.
    methods : iterable of str, optional
        Names of methods; by default all that apply to the counts.
    null : float, optional
        The parameter of the family (mu, epsilon or sigma) for the p-value.

    Returns
    -------
    tuple of MethodResult
        One result per method; ``assumes`` names the assumptions, which `ASSUMPTIONS` explains.

    Raises
    ------
    BadValue
        If an argument lies outside its range, or a method does not apply.
    """
    check_levels(delta, alpha)
    names = applicable(counts) if methods is None else list(methods)
    channel = None if null is None else family.channel(_strength(family, null))
    return tuple(_run(name, counts, family, delta, alpha, channel) for name in names)


def audit_null(
    counts: Counts, channel: Channel, *, delta: float, alpha: float = 0.05, methods: Iterable[str] | None = None
) -> tuple[MethodResult, ...]:
    """Test one null: ``value`` is its epsilon if the null is rejected (``p_value`` at most ``alpha``), else 0."""
    check_levels(delta, alpha)
    results = []
    for name in applicable(counts) if methods is None else methods:
        method = _applying(name, counts)
        log_p = _log_p(method, counts, channel, delta)
        value = channel.epsilon(delta) if log_p <= math.log(alpha) else 0.0
        note = method.NOTE if math.isfinite(value) else f"{INFINITE.format(delta)}; {method.NOTE}"
        results.append(_result(name, method, counts, delta, alpha, value, None, math.exp(log_p), note))
    return tuple(results)


def check_levels(delta: float, alpha: float) -> None:
    """Raise `BadValue` unless 0 <= ``delta`` < 1 and 0 < ``alpha`` < 1."""
    if not 0 <= delta < 1:
        raise BadValue("delta", delta, "a number of at least 0 and below 1")
    if not 0 < alpha < 1:
        raise BadValue("alpha", alpha, "a number strictly between 0 and 1")


def log_p_value(method: str, counts: Counts, family: Family, null: float, delta: float) -> float:
    """ln of a method's p-value for one member of a family."""
    return _log_p(_applying(method, counts), counts, family.channel(_strength(family, null)), delta)


def parameter_at(family: Family, epsilon: float, delta: float) -> float:
    """The parameter of the least private member that is (epsilon, delta)-DP: the null of that claim."""
    if not (math.isfinite(epsilon) and epsilon > 0):
        raise BadValue("claimed epsilon", epsilon, "a finite number above 0")
    strength = largest_rejected(
        lambda s: family.channel(s).epsilon(delta) - epsilon, family.strongest, family.tolerance
    )
    return family.strength(min(strength or 0.0, family.strongest))


def _run(
    name: str, counts: Counts, family: Family, delta: float, alpha: float, null: Channel | None
) -> MethodResult:
    method = _applying(name, counts)
    strength = largest_rejected(*_test(method, counts, family, delta, math.log(alpha)), family.tolerance)
    value: float | None = 0.0
    parameter: float | None = None
    note = method.NOTE
    if strength == math.inf:
        value = None
        note = f"family rejected: no member of {family.name} explains so few errors; {note}"
    elif strength is not None and method.FAMILY_FREE:
        value = strength
    elif strength is not None:
        value, parameter = family.channel(strength).epsilon(delta), family.strength(strength) if strength else None
        if value == math.inf:
            note = f"{INFINITE.format(delta)}; {note}"
    p = None if null is None else math.exp(_log_p(method, counts, null, delta))
    return _result(name, method, counts, delta, alpha, value, parameter, p, note)


def _result(
    name: str,
    method: Method,
    counts: Counts,
    delta: float,
    alpha: float,
    value: float | None,
    parameter: float | None,
    p: float | None,
    note: str,
) -> MethodResult:
    return MethodResult(
        method=name,
        value=value,
        parameter=parameter,
        p_value=p,
        n=counts.n,
        r=counts.r,
        errors=counts.errors,
        delta=delta,
        alpha=alpha,
        assumes=method.ASSUMES,
        note=note,
    )


def _applying(name: str, counts: Counts) -> Method:
    method = load_method(name)
    if error := method.refusal(counts):
        raise error
    return method


def _log_p(method: Method, counts: Counts, channel: Channel, delta: float) -> float:
    if method.FAMILY_FREE:
        return method.log_p_value(counts, channel.highest_epsilon(delta), delta)
    return method.log_p_value(counts, channel)


def _test(
    method: Method, counts: Counts, family: Family, delta: float, log_alpha: float
) -> tuple[Callable[[float], float], float]:
    """Return ln p - ln alpha as a function of the strength (rejected if at most 0), and the largest strength."""
    if method.FAMILY_FREE:
        return lambda epsilon: method.log_p_value(counts, epsilon, delta) - log_alpha, method.STRONGEST
    if rejects := method.rejects:
        return lambda s: -1.0 if rejects(counts, family.channel(s), log_alpha) else 1.0, family.strongest
    return lambda s: method.log_p_value(counts, family.channel(s)) - log_alpha, family.strongest


def largest_rejected(test: Callable[[float], float], strongest: float, tolerance: float) -> float | None:
    """The lower end of the bracket around the largest rejected strength; None if none is rejected, infinite if all are."""
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


def _strength(family: Family, null: float) -> float:
    strength = family.strength(null) if math.isfinite(null) and null >= 0 else math.nan
    if not strength <= family.strongest:  # the search ends there; beyond it, e^mu overflows
        edge, falls = family.strength(family.strongest), family.strength(2.0) < family.strength(1.0)
        raise BadValue(
            "null", null, f"a finite {family.parameter} {f'from {edge:g}' if falls else f'from 0 to {edge:g}'}"
        )
    return strength
