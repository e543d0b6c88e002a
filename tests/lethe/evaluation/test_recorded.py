"""What a run's artifacts say comes back from JSON as it was written."""

from __future__ import annotations

import json
import math

from hypothesis import given
from hypothesis import strategies as st

from lethe.evaluation.exact_bounds import Excess
from lethe.evaluation.prompt_language import ChoiceMeasure, LanguageMeasures, ProductionMeasure
from lethe.evaluation.recorded import leak_at_k, question_record
from lethe.io.json_files import plain
from lethe.statistics.bound import Assumes, Bound, Covers, Side

RATIO = st.floats(0, 1e6) | st.just(math.inf)
SHARE = st.floats(0, 1)


def bound(value: float, side: Side, covers: Covers = Covers.ONE_PROMPT) -> Bound:
    return Bound(value, side, 0.01, covers, Assumes.DRAWS, "made up", 64)


def kept(value: object) -> dict:
    """Through a file: infinities and NaN become null."""
    return json.loads(json.dumps(plain(value), allow_nan=False))


@given(st.lists(st.tuples(RATIO, SHARE, st.booleans()), max_size=4), RATIO)
def test_the_excess_over_retrain(rows, of_lowers):
    ratios, p_values, holds = zip(*rows, strict=True) if rows else ((), (), ())
    names = tuple(f"q{place}" for place in range(len(rows)))
    excess = Excess(names, ratios, p_values, holds, 10.0, 0.01, "Holm", "draws", of_lowers)
    assert Excess.of_json(kept(excess.as_json())) == excess


@given(st.lists(st.tuples(SHARE, st.integers(1, 99), st.booleans()), min_size=1, max_size=4), st.none() | SHARE)
def test_the_language_of_prompts(rows, share):
    productions = tuple(
        ProductionMeasure(
            f"p{place}",
            0.5,
            {"prefix": "x"},
            draws,
            0,
            mean,
            bound(mean / 2, "lower", Covers.PRODUCTIONS) if bounded else None,
            bound(mean, "upper", Covers.PRODUCTIONS) if bounded else None,
        )
        for place, (mean, draws, bounded) in enumerate(rows)
    )
    upper = None if share is None else bound(share, "upper", Covers.PROMPTS_OF_LANGUAGE)
    choices = (ChoiceMeasure("prefix", "x", 4, 0.25),)
    told = LanguageMeasures("l.yaml", "keyword_leak", True, productions, choices, share, None, upper)
    again = LanguageMeasures.of_json(kept(told.as_dict()))
    assert again == told
    assert again.worst == told.worst


@given(SHARE, SHARE, st.integers(1, 9))
def test_a_question_has_the_bounds_that_have_a_guarantee(m_bin, tail, n):
    guarantee = bound(0.0, "upper").guarantee_dict() | {"n": None}
    row = {
        "prompt_id": "a",
        "n": n,
        "m_bin": m_bin,
        "m_mu": 0.5,
        "m_gen": [{"x": 0.1, "bound": tail}, {"bound": 9}],
    }
    row["leak_at_k"] = [{"k": 1, "estimate": None, "lower": 0.0, "upper": m_bin}]
    known = {"m_bin": guarantee, "m_gen": guarantee, "anytime_upper": guarantee}
    record = question_record(row, known)
    assert {key: (one.value, one.n) for key, one in record.bounds.items()} == {
        "m_bin": (m_bin, n),
        "m_gen": (tail, n),
    }
    assert (record.m_mu, record.leak_at_k) == (0.5, ())  # a number without a guarantee is no bound
    assert record.has("m_mu")
    assert not record.has("anytime_upper")
    sides = {f"leak_at_k_{side}": guarantee | {"side": side} for side in ("lower", "upper")}
    (point,) = question_record(row, known | sides).leak_at_k
    assert (point.k, point.lower.value, point.upper.value, point.upper.n) == (1, 0.0, m_bin, n)


def test_a_band_needs_a_guarantee_on_either_side():
    rows = [{"of": of, "k": 10, "estimate": 0.5, "lower": 0.1, "upper": 0.9} for of in ("worst", "mean")]
    sides = {side: bound(0.0, side, Covers.WORST_PROMPT).guarantee_dict() for side in ("lower", "upper")}
    found = leak_at_k(rows, {"worst": sides, "mean": {"upper": sides["upper"]}})
    assert [point.upper.value for point in found["worst"]] == [0.9]
    assert found["mean"] == ()
