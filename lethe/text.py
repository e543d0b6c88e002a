"""Numbers and untrusted texts in a form for readers."""

from __future__ import annotations

import math
import unicodedata
from decimal import Decimal
from typing import TYPE_CHECKING

from lethe.errors import plural as plural
from lethe.statistics.bound import Bound, Side, as_percent, exact, rounded, two_digits

if TYPE_CHECKING:
    from lethe.statistics.one_run.audit import MethodBound, OneRunAudit

NONE = "–"
LONGEST = 600  # characters of an answer that a reader sees
VISIBLE = {"\n": "↵", "\r": "␍", "\t": "⇥", "\x7f": "␡"}
# Control, format (bidirectional overrides, zero width), surrogate, private, unassigned, line and paragraph breaks
INVISIBLE = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}

SCORERS = {
    "rouge_l": "ROUGE-L recall",
    "rouge_l_f": "ROUGE-L F",
    "rouge_l_precision": "ROUGE-L precision",
    "rouge_1": "ROUGE-1 recall",
    "rouge_1_f": "ROUGE-1 F",
    "rouge_1_precision": "ROUGE-1 precision",
}


def label(scorer: str | None) -> str:
    """Return a scorer's name for readers; "leak" without a scorer."""
    if scorer is None:
        return "leak"
    return SCORERS.get(scorer, scorer.replace("_", " "))


def number(value: float | None, digits: int = 3, side: Side | None = None) -> str:
    if value is None:
        return NONE
    return f"{rounded(value, digits, side):,}"


def queries(until: tuple[float, float]) -> str:
    """Return the number of queries for an even chance of a leak, as a range."""
    first, last = (f"{n:,.0f}" if math.isfinite(n) else "never" for n in until)
    return first if first == last else f"{first} to {last}"


def epsilon_statement(audit: OneRunAudit, result: MethodBound) -> str:
    """Return the statement of one method of a one-run audit on epsilon."""
    bound = audit.bound(result)
    if bound is None:
        return "no member of the family explains so few errors"
    return (
        "epsilon is infinite"
        if result.infinite
        else f"epsilon is {bound.relation} {bound.number()}"
    )


def share(value: float | None, side: Side | None = None) -> str:
    """Return a share as a percentage with two significant digits, above 50% with one decimal; a bound is rounded outward."""
    if value is None:
        return NONE
    whole = exact(value) * 100
    if side is None and 0 < 100 - whole < Decimal("0.0001"):
        return "> 99.9%"
    if (rest := 100 - whole) < 50:
        digits = 1 - rest.adjusted() if 0 < rest < Decimal("0.1") else 1
        percent = rounded(whole, digits, side)
        return as_percent(percent if digits == 1 else percent.normalize())
    percent = two_digits(whole, side)
    return as_percent(percent) if percent.adjusted() > -8 or not percent else f"{percent:.1e}%"


def shares(lower: Bound, upper: Bound) -> tuple[str, str]:
    """Return both ends of a share; from 10% on, the lower one has a decimal where the upper one has."""
    low = (
        lower.percent()
        if lower.value >= 0.1 and upper.value > 0.5
        else share(lower.value, lower.side)
    )
    return low, share(upper.value, upper.side)


def count(value: float | None) -> str:
    return NONE if value is None else f"{value:,.0f}"


def listing(names: list[str]) -> str:
    """Return names as a list in words: "a, b and c"."""
    return (
        names[0]
        if len(names) == 1
        else f"{', '.join(names[:-1])} and {names[-1]}"
        if names
        else "none"
    )


def upper_first(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]


def named(character: str) -> str | None:
    """Return the visible name of an invisible character, one sign or U+XXXX; None for a visible character."""
    if unicodedata.category(character) not in INVISIBLE:
        return None
    if character in VISIBLE:
        return VISIBLE[character]
    return chr(0x2400 + ord(character)) if character < " " else f"U+{ord(character):04X}"
