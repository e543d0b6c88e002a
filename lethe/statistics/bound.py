"""A bound with its guarantee: only this module words guarantees and rounds bounds.

A `Bound` keeps its guarantee from the function that proves it to the page, the command line, JSON
and MLflow. A rounded bound must never promise more than was proven, so an upper bound is rounded up
and a lower bound down.
"""

import html
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal
from enum import StrEnum
from typing import Any, Literal, Self, get_args

from lethe.errors import BadValue, check

Side = Literal["upper", "lower"]
SIDES = get_args(Side)
CERTAIN = 0.0  # the alpha of a bound that cannot fail
RANDOM = "in a random prompt of the language"
ROUNDING = {"upper": ROUND_CEILING, "lower": ROUND_FLOOR, None: ROUND_HALF_EVEN}


class Covers(StrEnum):
    """The scope of a bound: the claim that fails with probability at most alpha, and ``on``, how a
    clause ends on it.
    """

    on: str

    def __new__(cls, value: str, on: str = "") -> Self:
        member = str.__new__(cls, value)
        member._value_ = value
        member.on = on
        return member

    ONE_PROMPT = "one prompt", "on any one of {of} by itself"
    WORST_PROMPT = "the worst of the prompts", "on the worst of {of}"
    EVERY_PROMPT = "every prompt together", "on every one of {of} together"
    AVERAGE = "the average over the prompts", "on average over {of}"
    POPULATION = "the average over questions like these", "on average over all questions like {of}"
    CERTIFIED = "the list of certified prompts", "on every one of {of} that is certified"
    ONE_IN_LANGUAGE = f"one question, {RANDOM}", f"on any one of {{of}} by itself, {RANDOM}"
    WORST_IN_LANGUAGE = f"the worst of the questions, {RANDOM}", f"on the worst of {{of}}, {RANDOM}"
    EVERY_IN_LANGUAGE = (
        f"every question together, {RANDOM}",
        f"on every one of {{of}} together, {RANDOM}",
    )
    AVERAGE_IN_LANGUAGE = (
        f"the average over the questions, {RANDOM}",
        f"on average over {{of}}, {RANDOM}",
    )
    CERTIFIED_IN_LANGUAGE = (
        f"the list of certified questions, {RANDOM}",
        f"on every one of {{of}} that is certified, {RANDOM}",
    )
    PRODUCTIONS = (
        "every production of the language together",
        "on every production of the language together",
    )
    PROMPTS_OF_LANGUAGE = (
        "a random prompt of the language",
        "over {of}, in the prompts of the language",
    )
    MODELS = "models like those of the pools", "over models like those of the pools"
    HELD_OUT = (
        "the forget rows against the held-out rows",
        "between the forget rows and the held-out rows",
    )
    SEEDS = "models of other seeds", "on average over models of the method from other seeds"
    MODEL = "this model", "for this model"
    RUN = "the mechanism of the run", "for the mechanism of the run, by this method by itself"
    ATTACK = "one attack", "for any one attack by itself"
    RECIPE = "attacks drawn from the recipe", "over attacks drawn from the recipe"
    STRONGEST_ATTACK = "the strongest of the attacks", "for the strongest of the attacks"
    ADVERSARY = "any adversary", "against any adversary"


class Assumes(StrEnum):
    """The assumptions of bounds on sampled answers; a bound of another kind names its own
    assumption.
    """

    DRAWS = "independent draws of one prompt"
    DRAWS_IN_ORDER = "independent draws of one prompt, in sampling order"
    DRAWS_WITHIN = "independent draws within each prompt"
    DRAWS_WITHIN_IN_ORDER = "independent draws within each prompt, in sampling order"
    DRAWS_WITHIN_AND_BETWEEN = (
        "independent draws within each prompt and between them, equal n, binary scores"
    )
    QUESTIONS = "questions drawn independently from questions like them"
    VALUES = "independent values"


AMONG = re.compile(
    r"(?:any one of|the worst of|every one of|average over) \{of\}(?: by itself| together)?"
)
# The assumption of a bound for one fixed prompt, restated for draws that each have a random prompt.
ASSUMES_IN_LANGUAGE = {
    "independent draws of one prompt": "independent draws of prompt and answer together",
    "independent draws within each prompt": (
        "independent draws of prompt and answer together within each question"
    ),
    "independent answers to each question": (
        "independent draws of prompt and answer together to each question"
    ),
}


@dataclass(frozen=True, slots=True)
class Bound:
    """One bound, with its side, scope, error probability, assumption and method.

    An upper bound is at least the true value, a lower bound at most; the ``value``, unrounded, is a
    number or infinity. It fails with probability at most ``alpha``, which is `CERTAIN` (0) for a
    bound that cannot fail. ``n`` is the number of draws behind it; None where no single number
    applies.

    >>> rest = (Covers.ONE_PROMPT, Assumes.DRAWS, "Clopper-Pearson", 100)
    >>> bound = Bound(0.0757107937, "upper", 0.05, *rest)
    >>> bound.significant(), bound.percent()
    ('0.07572', '7.6%')
    >>> print(bound.level())
    with probability 0.95 (α = 0.05)
    >>> Bound(1.7e-6, "lower", CERTAIN, *rest).level()
    'with certainty'
    """

    value: float
    side: Side
    alpha: float
    covers: Covers
    assumes: str
    method: str
    n: int | None = None

    def __post_init__(self) -> None:
        is_level = 0 <= self.alpha < 1
        is_named = self.side in SIDES and isinstance(self.covers, Covers)
        if is_level and is_named and self.value > -math.inf:
            return  # a table of many prompts makes a million bounds
        check(self.value > -math.inf, "value", self.value, "a number, or infinity")  # nor NaN
        check(self.side in SIDES, "side", self.side, "upper or lower")
        legal = "a number between 0 and 1, or 0 for a bound that cannot fail"
        check(0 <= self.alpha < 1, "alpha", self.alpha, legal)
        if not isinstance(self.covers, Covers):
            scopes = ", ".join(repr(str(scope)) for scope in Covers)
            raise BadValue("covers", self.covers, f"one of {scopes}")

    def rounded(self, digits: int = 3) -> Decimal:
        """The value with ``digits`` decimals: an upper bound rounded up, a lower bound down."""
        return rounded(self.value, digits, self.side)

    def number(self, digits: int = 3) -> str:
        """`rounded` as text, with commas between thousands."""
        return _shown(self.rounded(digits), grouped=True)

    def percent(self, digits: int = 1) -> str:
        """The value as a percentage with ``digits`` decimals, rounded outward."""
        return as_percent(rounded(exact(self.value) * 100, digits, self.side))

    def significant(self, digits: int = 4) -> str:
        """The value with ``digits`` significant digits, for printed tables, whose columns hold
        values of any size.
        """
        return _shown(significant(self.value, digits, self.side))

    @property
    def certain(self) -> bool:
        """Whether the bound cannot fail."""
        return self.alpha == CERTAIN

    @property
    def relation(self) -> str:
        return "at most" if self.side == "upper" else "at least"

    @property
    def sign(self) -> str:
        return "<=" if self.side == "upper" else ">="

    def on(self, of: str = "the prompts") -> str:
        """The scope of the bound, as the end of a clause; ``of`` names the prompts."""
        words = self.covers.on
        if of.startswith("the 1 "):  # one prompt is the worst, the average and all of them
            words = AMONG.sub("{of}", words)
        return words.format(of=of)

    def level(self) -> str:
        """The probability with which the bound holds, as words."""
        return level(self.alpha)

    def guarantee(self, of: str = "the prompts") -> str:
        """Scope, probability and assumption, as the end of a clause."""
        return f"{self.on(of)}, {self.level()}, assuming {self.assumes}"

    def sentence(self, quantity: str = "", of: str = "the prompts", percent: bool = False) -> str:
        """The whole claim, such as "P(leak) is at most 0.08 on any one of ...", with its method."""
        shown = self.percent() if percent else self.significant()
        claim = f"{self.relation} {shown}"
        if quantity:
            claim = f"{quantity} is {claim}"
        method = self.method
        if self.n is not None:
            method = f"{method}, n = {self.n:,}"
        return f"{claim[:1].upper()}{claim[1:]} {self.guarantee(of)} ({method})."

    def as_dict(self) -> dict[str, object]:
        """Plain values for JSON; `from_dict` reads them."""
        return {field.name: _plain(getattr(self, field.name)) for field in fields(self)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """The bound that `as_dict` wrote; a null value is infinity, which JSON lacks."""
        value = math.inf if values["value"] is None else values["value"]
        return cls(**{**values, "value": value, "covers": Covers(values["covers"])})

    def in_language(self) -> Self:
        """The same bound, restated for draws that each consist of a random prompt of a declared
        language and its answer.
        """
        assumes = str(self.assumes)
        for plain, drawn in ASSUMES_IN_LANGUAGE.items():
            assumes = assumes.replace(plain, drawn)
        scope = self.covers.name.removesuffix("_PROMPT")  # ONE_PROMPT becomes ONE_IN_LANGUAGE
        covers = Covers.__members__.get(f"{scope}_IN_LANGUAGE", self.covers)
        return replace(self, covers=covers, assumes=assumes)

    def guarantee_dict(self) -> dict[str, object]:
        """`as_dict` without the value, for a file that holds the value under a key of its own."""
        guarantee = self.as_dict()
        del guarantee["value"]
        return guarantee

    def __str__(self) -> str:
        return self.sentence()

    def _repr_html_(self) -> str:
        title = html.escape(self.guarantee())
        return f'<p class="bound" title="{title}">{html.escape(self.sentence())}</p>'


def both_ends(lower: float, upper: float, *guarantee: Any) -> tuple[Bound, Bound]:
    """Two ends that share a guarantee: alpha, covers, assumes, method and n of `Bound`."""
    at_least = Bound(float(lower), "lower", *guarantee)
    at_most = Bound(float(upper), "upper", *guarantee)
    return at_least, at_most


@dataclass(frozen=True)
class Interval:
    """A two-sided interval: it contains the quantity with probability at least 1 - alpha."""

    value: float
    lower: float
    upper: float
    n: int
    alpha: float
    method: str
    assumes: str = "independent draws, identically distributed within a question"
    covers: Covers = Covers.AVERAGE

    def bounds(self) -> tuple[Bound, Bound]:
        """The lower and the upper end, each a bound at half of alpha."""
        return both_ends(
            self.lower, self.upper, self.alpha / 2, self.covers, self.assumes, self.method, self.n
        )


def level(alpha: float) -> str:
    """The probability, as text, with which a bound at ``alpha`` holds; rounding alpha up rounds the
    probability down.
    """
    if alpha == CERTAIN:
        return "with certainty"
    shown = significant(alpha, 3, "upper")
    return f"with probability {coverage(alpha)} (α = {_plain_decimal(shown)})"


def coverage(alpha: float) -> str:
    """1 - ``alpha`` as text, never rounded up."""
    return _complement(significant(alpha, 3, "upper"))


def joint_level(*alphas: float) -> str:
    """A lower bound, as text, of the probability that bounds at ``alphas`` hold together, under any
    dependence.
    """
    shown = sum((significant(alpha, 3, "upper") for alpha in alphas), Decimal(0))
    return f"with probability {_complement(min(shown, Decimal(1)))} at least"


def rounded(value: float | Decimal, digits: int, side: Side | None = None) -> Decimal:
    """The value with a fixed number of decimals: a bound rounded outward, an estimate to nearest."""
    number = exact(value)
    if not number.is_finite():
        return number
    step = Decimal(1).scaleb(-digits)
    # The default context has 28 digits, too few for a large number with many decimals.
    precision = max(28, number.adjusted() + digits + 3)
    return number.quantize(step, rounding=ROUNDING[side], context=Context(prec=precision))


def rounded_beside(
    value: float | Decimal, threshold: float, digits: int, side: Side | None = None
) -> Decimal:
    """`rounded`, with as many further decimals as keep the number on its side of a threshold.

    >>> rounded_beside(0.05002, 0.05, 4, "lower"), rounded(0.05002, 4, "lower")
    (Decimal('0.05002'), Decimal('0.0500'))
    """
    number = rounded(value, digits, side)
    is_above = exact(value) > exact(threshold)
    while (number > exact(threshold)) != is_above:
        digits += 1
        number = rounded(value, digits, side)
    return number


def in_full(value: float | Decimal) -> str:
    """The number with all its digits: a threshold that is rounded is another threshold.

    >>> in_full(0.01234561), in_full(1e-7), in_full(0.0)
    ('0.01234561', '0.0000001', '0')
    """
    return _plain_decimal(exact(value))


def significant(value: float | Decimal, digits: int = 4, side: Side | None = None) -> Decimal:
    """The value with a fixed number of significant digits, rounded as `rounded` does."""
    number = exact(value)
    if not number.is_finite():
        return number
    return Context(prec=digits, rounding=ROUNDING[side]).create_decimal(number)


def two_digits(number: Decimal, side: Side | None = None) -> Decimal:
    """The number with two significant digits, a whole one from 10 on, rounded as `rounded` does."""
    for _ in range(2):  # 9.97 becomes 10.0, then 10
        digits = max(0, 1 - number.adjusted()) if number else 0
        number = rounded(number, digits, side)
    return number


def exact(value: float | Decimal) -> Decimal:
    """The shortest decimal that parses to ``value``, which is also the number in the JSON."""
    if isinstance(value, Decimal):
        return value
    return Decimal(repr(float(value) + 0.0))  # no -0.0


def as_percent(rounded_percent: Decimal) -> str:
    """A rounded percentage as text; 0% and 100% have no decimals."""
    if rounded_percent in (0, 100):
        return f"{rounded_percent:.0f}%"
    return f"{rounded_percent:f}%"


def _complement(alpha: Decimal) -> str:
    """1 - alpha with all its digits; a value rounded to 1 would promise certainty."""
    return _plain_decimal(Context(prec=400).subtract(Decimal(1), alpha))


def _shown(value: Decimal, grouped: bool = False) -> str:
    if not value.is_finite():
        return "∞"
    if grouped:
        return f"{value:,}"
    if -7 < value.adjusted() < 15:
        return f"{value:f}"
    return f"{value:e}"


def _plain_decimal(value: Decimal) -> str:
    """The number as text, without an exponent and without trailing zeros."""
    return f"{value.normalize(Context(prec=400)):f}"


def _plain(value: object) -> object:
    """A field of a bound for JSON, which has no infinity."""
    if isinstance(value, StrEnum):
        return str(value)
    if value == math.inf:
        return None
    return value
