"""A bound keeps its side and its guarantee in every form; what is out of range is named (cases.yaml has the calls)."""

import doctest
import importlib
import json
import math
import pkgutil
from decimal import Decimal, localcontext
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lethe.statistics
from lethe.audits.kinds.guesses import family_of, rows_of
from lethe.comparison.comparison import Comparison
from lethe.errors import BadValue
from lethe.report.game_page import _interval
from lethe.results import views
from lethe.results.table import result
from lethe.statistics.answer_tree import Masses, Remainder, against_retrain, leak_interval
from lethe.statistics.bound import CERTAIN, Assumes, Bound, Covers, level
from lethe.statistics.judge_error import Calibration
from lethe.statistics.leak_rates import Rate, share_exceeding
from lethe.statistics.mean_difference import difference, mean_of_differences
from lethe.statistics.one_run.audit import MethodBound, OneRunAudit, audit, audit_runs, log_p_value
from lethe.statistics.one_run.channel import gaussian
from lethe.statistics.one_run.counts import Counts, release
from lethe.statistics.one_run.tradeoff import Atoms
from lethe.statistics.sequential import SequentialTest, StoppedSamples
from lethe.statistics.unlearning_game import unlearning_quality
from lethe.text import epsilon_statement
from tests.cases import cases
from tests.lethe.statistics.epsilon_star.coverage import LOWER

sides = st.sampled_from(["upper", "lower"])
values = st.floats(0, 1e6)
digits = st.integers(0, 40)


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
    parts = (
        "at most 0.07572",
        "the worst of the prompts",
        "0.95",
        "0.05",
        Assumes.DRAWS,
        "Clopper-Pearson",
        "100",
    )
    assert [part for part in parts if part not in told] == []
    assert "at least" in bound(side="lower").sentence("the mean")


@given(values, sides, st.sampled_from(list(Covers)))
def test_a_bound_survives_json(value, side, covers):
    whole = bound(value, side, covers=covers)
    assert Bound.from_dict(json.loads(json.dumps(whole.as_dict()))) == whole
    rest = whole.guarantee_dict()
    assert set(rest) == {"side", "alpha", "covers", "assumes", "method", "n"}
    assert Bound.from_dict({"value": value, **rest}) == whole


def test_a_bound_that_cannot_fail_says_so_and_survives_json():
    certain = bound(1.73e-6, "lower", CERTAIN)
    assert certain.certain
    assert not bound().certain
    assert certain.level() == "with certainty"
    for text in (certain.sentence(), certain.guarantee()):
        assert "probability" not in text
        assert "α" not in text
    assert Bound.from_dict(json.loads(json.dumps(certain.as_dict()))) == certain


signed = st.lists(st.floats(-1, 1, width=32), min_size=3, max_size=6)


def outward(low: str, high: str, ends: tuple[Bound, Bound]) -> bool:
    return Decimal(low) <= Decimal(repr(ends[0].value)) and Decimal(high) >= Decimal(
        repr(ends[1].value)
    )


@settings(max_examples=50)
@given(signed, signed, st.sampled_from([0.01, 0.05]))
def test_the_interval_of_a_quality_is_two_bounds(one, two, alpha):
    found = unlearning_quality(
        {"a": np.array([one]), "b": np.array([one[::-1]])},
        {"a": np.array([two[: len(one)] + one[len(two) :]]), "b": np.array([one])},
        alpha=alpha,
    )
    for each, covers in ((found, Covers.STRONGEST_ATTACK), (found.by_attack["a"], Covers.ATTACK)):
        low, high = ends = each.bounds()
        assert (low.value, high.value) == (each.ci_low, each.ci_high)
        for end, side in zip(ends, ("lower", "upper"), strict=True):
            assert (end.side, end.alpha, end.covers) == (side, alpha, covers)
        assert (low.assumes, low.method) == (each.assumes, each.method)
        assert outward(*_interval(ends).split(" to "), ends)


@pytest.fixture(scope="module")
def one_run() -> OneRunAudit:
    family = family_of("gaussian", q=None, steps=None, delta0=None, delta=1e-5)
    return audit_runs([Counts(1000, 100, 3)], family, delta=1e-5, alpha=0.05)


def test_every_method_of_a_one_run_audit_gives_a_bound(one_run):
    for row in one_run.results:
        bound = one_run.bound(row)
        guarantee = (bound.value, bound.side, bound.alpha, bound.covers)
        assert guarantee == (row.epsilon_lower, "lower", 0.05, Covers.RUN)
        assert float(epsilon_statement(one_run, row).rsplit(" ", 1)[1]) <= row.epsilon_lower
    nominal = {row.method for row in one_run.results if "nominal" in one_run.bound(row).assumes}
    assert "chernoff" in nominal
    assert "exact" not in nominal


def test_infinity_and_a_rejected_family_are_told_apart(one_run):
    assert one_run.bound(MethodBound("exact", None, None, (), "", infinite=True)).value == math.inf
    assert one_run.bound(MethodBound("exact", None, None, (), "")) is None
    assert "curve" not in views.one_run(rows_of(one_run))


@settings(max_examples=25)
@given(st.lists(st.sampled_from([0.0, 1.0]), min_size=5, max_size=30))
def test_a_difference_is_two_bounds_on_the_page_and_in_the_table(scores):
    one = difference(np.array(scores), np.array([*scores[::-1], 1.0]), 0.05, binary=True)
    low, high = ends = one.bounds(Covers.AVERAGE)
    assert (low.value, high.value, low.side, high.side) == (one.low, one.high, "lower", "upper")
    assert (low.alpha, low.covers, low.assumes, low.method) == (
        0.05,
        Covers.AVERAGE,
        one.assumes,
        one.method,
    )
    rows = [result("m", "model", "comparison", "compared", evidence={"unpointed": []})]
    facts = {"a": one.a, "b": one.b, "holds": False}
    rows.append(
        result(
            "m", "question", "difference", "compared", one.difference, *one.bounds(), evidence=facts
        )
    )
    assert outward(*(end.number(4) for end in rows[1].ends), ends)
    table = Comparison(tuple(rows)).table()[1]
    assert outward(*map(str, table[0][4:6]), ends)


MODULES = [
    found.name for found in pkgutil.walk_packages(lethe.statistics.__path__, "lethe.statistics.")
]


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_hold(name):
    assert not doctest.testmod(importlib.import_module(name)).failed


GOOD = Calibration(leaks=200, leaks_called=190, clean=300, clean_called=15)
RUN, NOTHING = Counts(10, 5, 0), (Masses((), ()), Remainder())


def altered(**changes):
    given = {"value": 0.5, "side": "upper", "alpha": 0.05, "covers": Covers.ONE_PROMPT}
    return Bound(**given | changes, assumes=Assumes.DRAWS, method="Clopper-Pearson", n=100)


def rated(claim, leaks, n, missing=0, alpha=0.05, ks=(1,)):
    return claim(Rate.of(leaks, n, missing), alpha, ks)


def audited(delta=None, curve=False):
    if curve:
        return audit_runs([RUN], gaussian().channel(1.0), delta=0, alpha=0.05, curve=True)
    return audit(RUN, gaussian(), delta=delta)


# Calls with arguments that YAML cannot write; all other names are those of `lethe.statistics`.
OWN = {
    "bound": altered,
    "calibrated": Calibration.of,
    "released": lambda **one: release(
        **{"bits": [0, 1, 0], "guesses": [0, 1, 1], "scores": [1.0, 2.0, 3.0], "r": 2} | one
    ),
    "exceeding": lambda leaks, n, tau: share_exceeding(Rate.of(leaks, n), tau, 0.05, "upper"),
    "apart": lambda a, b, *more: difference(np.array(a), np.array(b), *more),
    "on_average": lambda a, b, *more: mean_of_differences(
        [*map(np.array, a)], [*map(np.array, b)], *more
    ),
    "unseen": partial(leak_interval, *NOTHING),
    "beside_retrain": lambda questions, factor: against_retrain(
        np.zeros(1), [NOTHING] * questions, factor, 0.01
    ),
    "updated": lambda scores: SequentialTest(0.1, 0.2, 0.05, 10).update(np.array(scores)),
    "stopped": lambda scores: StoppedSamples([np.array(scores)]),
    "audited": audited,
    "atoms": lambda p, q: Atoms(np.array(p), np.array(q)),
    "beyond": partial(log_p_value, "exact", RUN, gaussian(), 101.0, 0.0),
    **{f"rate_{name}": partial(rated, getattr(Rate, name)) for name in ("each", "worst", "mean")},
    **{
        f"judged_{name}": lambda called, alpha=0.05, name=name: getattr(
            Rate.of(called, 9, judge=GOOD), name
        )(alpha)
        for name in ("each", "worst", "average", "mean")
    },
    **LOWER,
}


@cases
def test_what_is_out_of_range_is_named(functions, given, named):
    for name in functions.split():
        module, _, own = name.rpartition(".")
        function = OWN.get(name) or getattr(
            importlib.import_module(f"lethe.statistics.{module}"), own
        )
        with pytest.raises(BadValue, match=named):
            function(**given) if isinstance(given, dict) else function(*given)
