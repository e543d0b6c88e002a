"""A bound keeps its side at any number of digits, and its guarantee through every form it takes."""

import json
import math
from decimal import Decimal, localcontext

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lethe.errors import BadValue
from lethe.statistics.bound import CERTAIN, Assumes, Bound, Covers, level

sides = st.sampled_from(["upper", "lower"])
values = st.floats(0, 1e6)
digits = st.integers(0, 20)


def bound(value=0.0757107937, side="upper", alpha=0.05, covers=Covers.ONE_PROMPT):
    return Bound(value, side, alpha, covers, Assumes.DRAWS, "Clopper-Pearson", 100)


def not_inside(shown: str | Decimal, value: float | Decimal, side: str) -> bool:
    shown, value = Decimal(shown), value if isinstance(value, Decimal) else Decimal(repr(value))
    return shown >= value if side == "upper" else shown <= value


@given(values, sides, digits)
def test_no_form_of_a_bound_claims_more_than_was_proven(value, side, digits):
    shown = bound(value, side)
    assert not_inside(shown.rounded(digits), value, side)
    assert not_inside(shown.number(digits).replace(",", ""), value, side)
    assert not_inside(shown.percent(digits)[:-1], Decimal(repr(value)) * 100, side)
    assert not_inside(shown.significant(digits + 1), value, side)


@given(st.floats(1e-300, 0.5))
def test_the_printed_probability_is_never_above_the_proven_one(alpha):
    told = level(alpha)
    probability, shown = told.split()[2], told.split("= ")[1].rstrip(")")
    assert Decimal(shown) >= Decimal(repr(alpha))
    with localcontext(prec=400):
        assert Decimal(probability) + Decimal(shown) == 1


def test_the_sentence_holds_every_part_of_the_guarantee():
    told = bound(covers=Covers.WORST_PROMPT).sentence("the leak probability")
    for part in (
        "at most 0.07572",
        "the worst of the prompts",
        "0.95",
        "0.05",
        Assumes.DRAWS,
        "Clopper-Pearson",
        "100",
    ):
        assert part in told
    assert "at least" in bound(side="lower").sentence("the mean")


@given(values, sides, st.sampled_from(list(Covers)))
def test_a_bound_survives_json(value, side, covers):
    whole = bound(value, side, covers=covers)
    assert Bound.from_dict(json.loads(json.dumps(whole.as_dict()))) == whole
    rest = whole.guarantee_dict()
    assert set(rest) == {"side", "alpha", "covers", "assumes", "method", "n"}
    assert Bound.from_dict({"value": value, **rest}) == whole


@pytest.mark.parametrize(
    "changes",
    [
        {"value": math.nan},
        {"value": -math.inf},
        {"side": "two-sided"},
        {"alpha": -0.01},
        {"alpha": 1.0},
        {"covers": "all"},
    ],
)
def test_what_is_no_bound_is_refused(changes):
    with pytest.raises(BadValue, match=next(iter(changes))):
        bound(**changes)


def test_a_bound_that_cannot_fail_says_so_and_survives_json():
    certain = bound(1.73e-6, "lower", CERTAIN)
    assert certain.certain
    assert not bound().certain
    assert certain.level() == "with certainty"
    for text in (certain.sentence(), certain.guarantee()):
        assert "probability" not in text
        assert "α" not in text
    assert Bound.from_dict(json.loads(json.dumps(certain.as_dict()))) == certain
