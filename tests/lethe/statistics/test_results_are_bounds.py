"""Results with a guarantee give a `Bound`: its value is the result's own, and every reader rounds it outward."""

import math
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lethe.evaluation.compared import Compared, Comparison
from lethe.report.game_page import _interval
from lethe.statistics.bound import Bound, Covers
from lethe.statistics.mean_difference import difference
from lethe.statistics.one_run.audit import MethodBound, OneRunAudit, audit_runs
from lethe.statistics.one_run.counts import Counts
from lethe.statistics.unlearning_game import unlearning_quality
from lethe.text import epsilon_found

signed = st.lists(st.floats(-1, 1, width=32), min_size=3, max_size=6)


def outward(low: str, high: str, ends: tuple[Bound, Bound]) -> bool:
    return Decimal(low) <= Decimal(repr(ends[0].value)) and Decimal(high) >= Decimal(repr(ends[1].value))


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
        assert [(end.side, end.alpha, end.covers) for end in ends] == [
            ("lower", alpha, covers),
            ("upper", alpha, covers),
        ]
        assert (low.assumes, low.method) == (each.assumes, each.method)
        assert outward(*_interval(ends).split(" to "), ends)


@pytest.fixture(scope="module")
def one_run() -> OneRunAudit:
    from lethe.audits.one_run import family_of

    family = family_of("gaussian", q=None, steps=None, delta0=None, delta=1e-5)
    return audit_runs([Counts(1000, 100, 3)], family, delta=1e-5, alpha=0.05)


def test_every_method_of_a_one_run_audit_gives_a_bound(one_run):
    for row in one_run.results:
        bound = one_run.bound(row)
        assert (bound.value, bound.side, bound.alpha, bound.covers) == (
            row.epsilon_lower,
            "lower",
            0.05,
            Covers.RUN,
        )
        assert float(epsilon_found(one_run, row).rsplit(" ", 1)[1]) <= row.epsilon_lower
    nominal = [row.method for row in one_run.results if "nominal" in one_run.bound(row).assumes]
    assert "chernoff" in nominal
    assert "exact" not in nominal


def test_infinity_and_a_rejected_family_are_told_apart(one_run):
    assert one_run.bound(MethodBound("exact", None, None, (), "", infinite=True)).value == math.inf
    assert one_run.bound(MethodBound("exact", None, None, (), "")) is None


@settings(max_examples=25)
@given(st.lists(st.sampled_from([0.0, 1.0]), min_size=5, max_size=30))
def test_a_difference_is_two_bounds_on_the_page_and_in_the_table(scores):
    from lethe.report.pages import _row

    one = difference(np.array(scores), np.array([*scores[::-1], 1.0]), 0.05, binary=True)
    low, high = ends = one.bounds(Covers.AVERAGE)
    assert (low.value, high.value, low.side, high.side) == (one.low, one.high, "lower", "upper")
    assert (low.alpha, low.covers, low.assumes, low.method) == (0.05, Covers.AVERAGE, one.assumes, one.method)
    found = Compared("q", "", "leak", one, False)
    shown = _row(found, 1.0)
    assert outward(*shown["cells"][3:5], ends)
    table = Comparison("a", "b", 0.05, "leak", (found,), one, (), ()).table()[1]
    assert outward(*map(str, table[0][4:6]), ends)
