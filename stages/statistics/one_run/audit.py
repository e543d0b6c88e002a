"""The audit: every method's epsilon lower bound and p-value, with what each assumes."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import ModuleType

from stages.errors import BadValue
from stages.statistics.one_run.channel import Family
from stages.statistics.one_run.counts import Counts
from stages.statistics.one_run.methods import METHODS
from stages.statistics.one_run.roots import bracket_root

ASSUMPTIONS = {
    "product_channel": "given the bits, what is seen of each is independent: no shared batch, coin or noise scale",
    "family": "the mechanism's trade-off function is a member of the family",
    "r_fixed": "r was fixed before the guesses were seen (or declared in a list, each at its share of alpha)",
    "iid_bits": "the bits are independent fair coins",
}
RELATIVE_TOLERANCE = 1e-11


@dataclass(frozen=True)
class MethodResult:
    """One method's verdict on one run.

    ``value``: the lower bound on epsilon at ``delta`` (confidence 1 - ``alpha``): that of the least private member of
    the family that is rejected, 0 if none is, None if every member is. ``parameter``: that member's parameter.
    ``p_value``: at the null asked for, else None.
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


def load_method(name: str) -> ModuleType:
    if name not in METHODS:
        raise BadValue("method", name, ", ".join([*METHODS, "all"]))
    return importlib.import_module(f"stages.statistics.one_run.methods.{METHODS[name]}")


def applicable(counts: Counts) -> list[str]:
    """The methods that apply to these counts, in the registry's order."""
    return [
        name
        for name in METHODS
        if (check := getattr(load_method(name), "refusal", None)) is None or not check(counts)
    ]


def audit(
    counts: Counts,
    family: Family,
    *,
    delta: float,
    alpha: float = 0.05,
    methods: Iterable[str] | None = None,
    null: float | None = None,
) -> tuple[MethodResult, ...]:
    """Audit one run by ``methods`` (default: all that apply).

    ``null``: the family's parameter (mu, epsilon, sigma) at which the p-value is wanted. Raises `BadValue`.
    """
    check_levels(delta, alpha)
    names = applicable(counts) if methods is None else list(methods)
    return tuple(_run(load_method(name), name, counts, family, delta, alpha, null) for name in names)


def check_levels(delta: float, alpha: float) -> None:
    if not 0 <= delta < 1:
        raise BadValue("delta", delta, "a number from 0 and below 1")
    if not 0 < alpha < 1:
        raise BadValue("alpha", alpha, "a number strictly between 0 and 1")


def log_p_value(method: str, counts: Counts, family: Family, null: float, delta: float) -> float:
    """ln of a method's p-value for the null with the family's parameter ``null``."""
    module = load_method(method)
    channel = family.channel(_strength(family, null))
    if module.FAMILY_FREE:
        return module.log_p_value(counts, channel.epsilon(delta), delta)
    return module.log_p_value(counts, channel)


def _run(module, name, counts, family, delta, alpha, null) -> MethodResult:
    if (check := getattr(module, "refusal", None)) and (error := check(counts)):
        raise error
    strength = largest_rejected(*_test(module, counts, family, delta, math.log(alpha)))
    value, parameter, note = 0.0, None, module.NOTE
    if strength == math.inf:
        value = None
        note = f"family rejected: no member of {family.name} explains so few errors; {note}"
    elif strength is not None and module.FAMILY_FREE:
        value = parameter = strength
    elif strength is not None:
        value, parameter = family.channel(strength).epsilon(delta), family.strength(strength) if strength else None
        if value == math.inf:
            note = f"epsilon is infinite at delta = {delta:g}; {note}"
    return MethodResult(
        method=name,
        value=value,
        parameter=parameter,
        p_value=None if null is None else math.exp(log_p_value(name, counts, family, null, delta)),
        n=counts.n,
        r=counts.r,
        errors=counts.errors,
        delta=delta,
        alpha=alpha,
        assumes=module.ASSUMES,
        note=note,
    )


def _test(module, counts, family, delta, log_alpha) -> tuple[Callable[[float], float], float]:
    """(ln p - ln alpha as a function of the strength: rejected where it is not above 0; the largest strength)."""
    if module.FAMILY_FREE:
        return lambda epsilon: module.log_p_value(counts, epsilon, delta) - log_alpha, module.STRONGEST
    if hasattr(module, "rejects"):
        return lambda s: -1.0 if module.rejects(counts, family.channel(s), log_alpha) else 1.0, family.strongest
    return lambda s: module.log_p_value(counts, family.channel(s)) - log_alpha, family.strongest


def largest_rejected(test: Callable[[float], float], strongest: float) -> float | None:
    """The lower end of the bracket around the largest rejected strength: None if none is, infinite if all are."""
    low, f_low = 0.0, test(0.0)
    if f_low > 0:
        return None
    high = min(1.0, strongest)
    while (f_high := test(high)) <= 0:
        if high >= strongest:
            return math.inf
        low, f_low, high = high, f_high, min(2 * high, strongest)
    while low == 0 and high > 1e-12 and (f_middle := test(high / 8)) > 0:
        high, f_high = high / 8, f_middle
    return bracket_root(test, low, high, f_low, f_high, RELATIVE_TOLERANCE * high)[0]


def _strength(family: Family, null: float) -> float:
    if not (math.isfinite(null) and null >= 0):
        raise BadValue("null", null, f"a finite {family.parameter} of at least 0")
    return family.strength(null)
