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
    """Return a number with ``digits`` decimals; one that is a bound of a ``side`` is rounded outward. None is a dash."""
    if value is None:
        return NONE
    return f"{rounded(value, digits, side):,}"


def yes_or_no(value: float) -> str:
    """Return a truth value, or a number that is 0 or 1, as a word."""
    if value:
        return "yes"
    return "no"


def queries(until: tuple[float, float]) -> str:
    """Return the number of queries for an even chance of a leak, as a range."""
    ends = []
    for n in until:
        if math.isfinite(n):
            ends.append(f"{n:,.0f}")
        else:
            ends.append("never")
    return " to ".join(dict.fromkeys(ends))  # equal ends are written once


def epsilon_statement(audit: OneRunAudit, result: MethodBound) -> str:
    """Return the statement of one method of a one-run audit on epsilon."""
    bound = audit.bound(result)
    if bound is None:
        return "no member of the family explains so few errors"
    if result.infinite:
        return "epsilon is infinite"
    return f"epsilon is {bound.relation} {bound.number()}"


def share(value: float | None, side: Side | None = None) -> str:
    """Return a share as a percentage with two significant digits, above 50% with one decimal; a bound is rounded outward."""
    if value is None:
        return NONE
    whole = exact(value) * 100
    if side is None and 0 < 100 - whole < Decimal("0.0001"):
        return "> 99.9%"
    rest = 100 - whole
    if 0 < rest < Decimal("0.1"):
        digits = 1 - rest.adjusted()
        return as_percent(rounded(whole, digits, side).normalize())
    if rest < 50:
        return as_percent(rounded(whole, 1, side))
    percent = two_digits(whole, side)
    if percent and percent.adjusted() <= -8:
        return f"{percent:.1e}%"
    return as_percent(percent)


def shares(lower: Bound, upper: Bound) -> tuple[str, str]:
    """Return both ends of a share; from 10% on, the lower one has a decimal where the upper one has."""
    high = share(upper.value, upper.side)
    if lower.value >= 0.1 and upper.value > 0.5:
        return lower.percent(), high
    return share(lower.value, lower.side), high


def count(value: float | None) -> str:
    """Return a whole number with separators of thousands; None is a dash."""
    if value is None:
        return NONE
    return f"{value:,.0f}"


def listing(names: list[str]) -> str:
    """Return names as a list in words: "a, b and c"."""
    if not names:
        return "none"
    *first, last = names
    if not first:
        return last
    return f"{', '.join(first)} and {last}"


def upper_first(sentence: str) -> str:
    """A sentence with its first letter in upper case."""
    return sentence[:1].upper() + sentence[1:]


def named(character: str) -> str | None:
    """Return the visible name of an invisible character, one sign or U+XXXX; None for a visible character."""
    if unicodedata.category(character) not in INVISIBLE:
        return None
    if character in VISIBLE:
        return VISIBLE[character]
    if character < " ":
        return chr(0x2400 + ord(character))
    return f"U+{ord(character):04X}"
