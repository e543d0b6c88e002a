"""A bound keeps its side and its guarantee in every form; what is out of range is named (cases.yaml has the calls)."""

import doctest
import importlib
import json
import math
import pkgutil
from decimal import Decimal, localcontext

import numpy as np
import pytest
from hypothesis import assume, given, settings
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
from lethe.statistics.one_run.counts import ReleasedGuesses, release
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


def decimal(value: str | float | Decimal) -> Decimal:
    """The exact number that is shown, or that ``repr`` writes."""
    return Decimal(repr(value)) if isinstance(value, float) else Decimal(value)


def is_outward(shown: str | Decimal, value: float | Decimal, side: str) -> bool:
    """Whether the shown end claims no more than the value."""
    if side == "upper":
        return decimal(shown) >= decimal(value)
    return decimal(shown) <= decimal(value)


@given(values, sides, digits)
def test_no_form_of_a_bound_claims_more_than_was_proven(value, side, digits):
    proven = bound(value, side)

    assert is_outward(proven.rounded(digits), value, side)
    assert is_outward(proven.number(digits).replace(",", ""), value, side)
    assert is_outward(proven.percent(digits)[:-1], decimal(value) * 100, side)
    assert is_outward(proven.significant(digits + 1), value, side)


@given(st.floats(1e-300, 0.5))
def test_the_printed_probability_is_never_above_the_proven_one(alpha):
    words = level(alpha)

    probability = words.split()[2]
    shown_alpha = words.split("= ")[1].rstrip(")")
    assert Decimal(shown_alpha) >= decimal(alpha)
    with localcontext(prec=400):
        assert Decimal(probability) + Decimal(shown_alpha) == 1


@pytest.mark.parametrize(
    "part",
    [
        "at most 0.07572",
        "the worst of the prompts",
        "0.95",
        "0.05",
        Assumes.DRAWS,
        "Clopper-Pearson",
        "100",
    ],
)
def test_the_sentence_holds_every_part_of_the_guarantee(part):
    assert part in bound(covers=Covers.WORST_PROMPT).sentence("the leak probability")


def test_the_sentence_of_a_lower_end_says_at_least():
    assert "at least" in bound(side="lower").sentence("the mean")


@given(values, sides, st.sampled_from(list(Covers)))
def test_a_bound_survives_json(value, side, covers):
    whole = bound(value, side, covers=covers)

    read = Bound.from_dict(json.loads(json.dumps(whole.as_dict())))

    assert read == whole


@given(values, sides, st.sampled_from(list(Covers)))
def test_a_value_and_its_guarantee_make_the_bound(value, side, covers):
    whole = bound(value, side, covers=covers)

    guarantee = whole.guarantee_dict()

    assert set(guarantee) == {"side", "alpha", "covers", "assumes", "method", "n"}
    assert Bound.from_dict({"value": value, **guarantee}) == whole


ALWAYS_TRUE = bound(1.73e-6, "lower", CERTAIN)


def test_only_a_bound_that_cannot_fail_is_certain():
    assert ALWAYS_TRUE.certain
    assert not bound().certain


def test_a_bound_that_cannot_fail_says_so():
    assert ALWAYS_TRUE.level() == "with certainty"


@pytest.mark.parametrize("words", [ALWAYS_TRUE.sentence(), ALWAYS_TRUE.guarantee()])
def test_a_bound_that_cannot_fail_names_no_probability(words):
    assert "probability" not in words
    assert "α" not in words


def test_a_bound_that_cannot_fail_survives_json():
    assert Bound.from_dict(json.loads(json.dumps(ALWAYS_TRUE.as_dict()))) == ALWAYS_TRUE


signed = st.lists(st.floats(-1, 1, width=32), min_size=3, max_size=6)


def are_outward(shown_low: str, shown_high: str, ends: tuple[Bound, Bound]) -> bool:
    low, high = ends
    return is_outward(shown_low, low.value, "lower") and is_outward(shown_high, high.value, "upper")


@settings(max_examples=50)
@given(signed, signed, st.sampled_from([0.01, 0.05]))
def test_the_interval_of_a_quality_is_two_bounds(advantages, others, alpha):
    as_many_others = others[: len(advantages)] + advantages[len(others) :]
    for other in (as_many_others, advantages[::-1]):
        assume(np.ptp(np.add(advantages, other)) > 1e-9)  # else no attack has an interval
    original = {"a": np.array([advantages]), "b": np.array([advantages[::-1]])}
    swapped = {"a": np.array([as_many_others]), "b": np.array([advantages])}

    found = unlearning_quality(original, swapped, alpha=alpha)

    of_attack = found.by_attack["a"]
    for quality, covers in ((found, Covers.STRONGEST_ATTACK), (of_attack, Covers.ATTACK)):
        ends = quality.bounds()
        low, high = ends
        assert (low.value, high.value) == (quality.ci_low, quality.ci_high)
        assert (low.side, low.alpha, low.covers) == ("lower", alpha, covers)
        assert (high.side, high.alpha, high.covers) == ("upper", alpha, covers)
        assert (low.assumes, low.method) == (quality.assumes, quality.method)
        shown_low, shown_high = _interval(ends).split(" to ")
        assert are_outward(shown_low, shown_high, ends)


@pytest.mark.parametrize("others", [[0.5, 0.5, 0.5], [0.3, 0.2, 0.1]])
def test_a_quality_of_seeds_with_one_value_has_no_bounds(others):
    original = {"a": np.array([np.subtract(0.5, others)])}
    swapped = {"a": np.array([others])}

    found = unlearning_quality(original, swapped, alpha=0.05)

    assert found.bounds() is None
    assert found.ci_low is None
    assert found.ci_high is None


@pytest.fixture(scope="module")
def one_run() -> OneRunAudit:
    family = family_of("gaussian", q=None, steps=None, delta0=None, delta=1e-5)
    return audit_runs([ReleasedGuesses(1000, 100, 3)], family, delta=1e-5, alpha=0.05)


def test_every_method_of_a_one_run_audit_gives_a_bound(one_run):
    for row in one_run.results:
        epsilon = one_run.bound(row)
        assert (epsilon.value, epsilon.side) == (row.epsilon_lower, "lower")
        assert (epsilon.alpha, epsilon.covers) == (0.05, Covers.RUN)


def test_no_sentence_of_a_one_run_audit_claims_more_than_was_proven(one_run):
    for row in one_run.results:
        shown = epsilon_statement(one_run, row).rsplit(" ", 1)[1]
        assert float(shown) <= row.epsilon_lower


@pytest.mark.parametrize(("method", "nominal"), [("chernoff", True), ("exact", False)])
def test_only_a_method_without_a_proof_assumes_its_nominal_level(one_run, method, nominal):
    row = next(row for row in one_run.results if row.method == method)

    assert ("nominal" in one_run.bound(row).assumes) == nominal


@pytest.mark.parametrize("infinite", [True, False])
def test_infinity_and_a_rejected_family_are_told_apart(one_run, infinite):
    row = MethodBound("exact", None, None, (), "", infinite=infinite)

    epsilon = one_run.bound(row)

    if infinite:
        assert epsilon.value == math.inf
    else:
        assert epsilon is None


def test_a_view_of_an_audit_without_a_curve_names_none(one_run):
    assert "curve" not in views.one_run(rows_of(one_run))


binary_scores = st.lists(st.sampled_from([0.0, 1.0]), min_size=5, max_size=30)


def difference_of(scores):
    return difference(np.array(scores), np.array([*scores[::-1], 1.0]), 0.05, binary=True)


@settings(max_examples=25)
@given(binary_scores)
def test_a_difference_is_two_bounds(scores):
    found = difference_of(scores)

    low, high = found.bounds(Covers.AVERAGE)

    assert (low.value, low.side) == (found.low, "lower")
    assert (high.value, high.side) == (found.high, "upper")
    assert (low.alpha, low.covers) == (0.05, Covers.AVERAGE)
    assert (low.assumes, low.method) == (found.assumes, found.method)


@settings(max_examples=25)
@given(binary_scores)
def test_no_table_shows_a_difference_narrower_than_it_is(scores):
    found = difference_of(scores)
    ends = found.bounds(Covers.AVERAGE)
    evidence = {"a": found.a, "b": found.b, "holds": False}
    compared = result("m", "model", "comparison", "compared", evidence={"unpointed": []})
    row = result(
        "m", "question", "difference", "compared", found.difference, *ends, evidence=evidence
    )

    table = Comparison((compared, row)).table()[1]

    shown_low, shown_high = [end.number(4) for end in row.ends]
    assert are_outward(shown_low, shown_high, ends)
    assert are_outward(str(table[0][4]), str(table[0][5]), ends)


MODULES = [
    found.name for found in pkgutil.walk_packages(lethe.statistics.__path__, "lethe.statistics.")
]


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_hold(name):
    assert not doctest.testmod(importlib.import_module(name)).failed


GOOD = Calibration(leaks=200, leaks_called=190, clean=300, clean_called=15)
RUN = ReleasedGuesses(10, 5, 0)
NO_MASSES = Masses((), ())
NO_ANSWERS = Remainder()


# Calls with arguments that YAML cannot write; all other names are those of `lethe.statistics`.
CALLS = {"bound": bound, "calibrated": Calibration.of, **LOWER}


def call(function):
    CALLS[function.__name__] = function
    return function


@call
def released(bits=(0, 1, 0), guesses=(0, 1, 1), scores=(1.0, 2.0, 3.0), r=2):
    return release(bits, guesses, scores, r)


@call
def exceeding(leaks, n, tau):
    return share_exceeding(Rate.of(leaks, n), tau, 0.05, "upper")


@call
def apart(a, b, *options):
    return difference(np.array(a), np.array(b), *options)


@call
def on_average(a, b, *options):
    rows_of_a = [np.array(row) for row in a]
    rows_of_b = [np.array(row) for row in b]
    return mean_of_differences(rows_of_a, rows_of_b, *options)


@call
def unseen(alpha):
    return leak_interval(NO_MASSES, NO_ANSWERS, alpha)


@call
def beside_retrain(questions, factor):
    retrains = [(NO_MASSES, NO_ANSWERS)] * questions
    return against_retrain(np.zeros(1), retrains, factor, 0.01)


@call
def updated(scores):
    return SequentialTest(0.1, 0.2, 0.05, 10).update(np.array(scores))


@call
def stopped(scores):
    return StoppedSamples([np.array(scores)])


@call
def audited(delta=None, curve=False):
    if curve:
        return audit_runs([RUN], gaussian().channel(1.0), delta=0, alpha=0.05, curve=True)
    return audit(RUN, gaussian(), delta=delta)


@call
def atoms(p, q):
    return Atoms(np.array(p), np.array(q))


@call
def beyond():
    return log_p_value("exact", RUN, gaussian(), 101.0, 0.0)


@call
def rate_each(leaks, n, missing=0, alpha=0.05, ks=(1,)):
    return Rate.of(leaks, n, missing).each(alpha, ks)


@call
def rate_worst(leaks, n, missing=0, alpha=0.05, ks=(1,)):
    return Rate.of(leaks, n, missing).worst(alpha, ks)


@call
def rate_mean(leaks, n, missing=0, alpha=0.05, ks=(1,)):
    return Rate.of(leaks, n, missing).mean(alpha, ks)


@call
def judged_each(called, alpha=0.05):
    return Rate.of(called, 9, judge=GOOD).each(alpha)


@call
def judged_worst(called, alpha=0.05):
    return Rate.of(called, 9, judge=GOOD).worst(alpha)


@call
def judged_average(called, alpha=0.05):
    return Rate.of(called, 9, judge=GOOD).average(alpha)


@call
def judged_mean(called, alpha=0.05):
    return Rate.of(called, 9, judge=GOOD).mean(alpha)


def function_of(name: str):
    if name in CALLS:
        return CALLS[name]
    module, function = name.rsplit(".", 1)
    return getattr(importlib.import_module(f"lethe.statistics.{module}"), function)


@cases
def test_what_is_out_of_range_is_named(functions, arguments, named):
    for name in functions.split():
        function = function_of(name)
        with pytest.raises(BadValue, match=named):
            if isinstance(arguments, dict):
                function(**arguments)
            else:
                function(*arguments)
