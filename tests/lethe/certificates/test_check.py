"""The checker that anyone can read: it verifies true ends, refuses false ones, and needs the standard library alone."""

import json
import math
import random
import subprocess
import sys
import time
from copy import deepcopy
from fractions import Fraction
from math import comb
from pathlib import Path

import mpmath
import pytest
from scipy.stats import beta, gamma

from lethe.certificates import check
from lethe.certificates.check import BROKEN, VERIFIED, Witness, check_claim
from lethe.statistics import anytime
from lethe.statistics.answer_tree import Masses, Remainder, Rounding, leak_interval
from lethe.statistics.anytime import Counts
from tests.benchmarks import witnesses
from tests.fuzz import witnesses as fuzzed

CLAIM = {
    "metric": "leak_rate_worst_question_upper_0.99",
    "comparator": "<=",
    "threshold": "0.05",
    "passed": True,
    "lethe": {
        "word": "bounded",
        "quantity": "leak_worst",
        "basis": "sampled",
        "covers": "the worst of the prompts",
        "assumes": "independent draws within each prompt",
        "side": "upper",
        "bound": "0.024071",
        "alpha": "0.01",
        "confidence": "0.99",
        "method": "Clopper-Pearson",
        "certain": False,
        "witness": {"count": 76, "n": 4096},
    },
}
MILLIONTHS = 10**6
SOURCE = Path(check.__file__)


def changed(**added):
    claim = deepcopy(CLAIM)
    claim["lethe"] |= added
    return claim


def naive(count, n, p):
    terms = (comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(count + 1))
    return sum(terms, Fraction(0))


def ends_of(count, n, alpha):
    """Both ends of Clopper and Pearson in floating point."""
    low = 0.0 if count == 0 else float(beta.ppf(alpha, count, n - count + 1))
    high = 1.0 if count == n else float(beta.ppf(1 - alpha, count + 1, n - count))
    return low, high


@pytest.mark.parametrize("n", [1, 2, 5, 12])
def test_the_tail_is_that_of_the_sum_of_fractions(n):
    close = Fraction(1, 10**30)
    for count in range(n):
        for p in (Fraction(1, 3), Fraction(1, 2), Fraction(99, 100)):
            tail = naive(count, n, p)
            if not 0 < tail < 1:
                continue

            assert check.upper_end_holds(Witness(count, n), p, min(tail * (1 + close), 1 - close))
            assert not check.upper_end_holds(Witness(count, n), p, tail * (1 - close))


def test_the_bounds_of_the_arcsine_enclose_it():
    mpmath.mp.dps = 60
    for square in (Fraction(1, 10**12), Fraction(1, 7), Fraction(499, 1000), Fraction(1, 2)):
        exact = mpmath.asin(mpmath.sqrt(mpmath.mpf(square.numerator) / square.denominator))
        lower, upper = (check.asin_of_root(square, above) for above in (0, 1))

        assert mpmath.mpf(lower.numerator) / lower.denominator < exact
        assert exact < mpmath.mpf(upper.numerator) / upper.denominator
        assert upper - lower < Fraction(1, 10**25)


def mixed_bounds(number, seed):
    """The kind of a bound, its witness, its end by SciPy, and alpha."""
    chance = random.Random(seed)
    for place in range(number):
        n = chance.randrange(1, 4097)
        count = chance.randrange(n + 1)
        if place % 2:  # as of models that leak seldom
            count = min(n, count % 41)
        alpha = Fraction(chance.choice(("0.05", "0.01", "0.000123")))
        kind = ("sampled", "tree", "anytime")[place % 3]
        if kind == "sampled":
            end = ends_of(count, n, float(alpha))[1]
        elif kind == "tree":
            end = float(gamma.ppf(1 - float(alpha), count + 1))
        else:
            end = anytime.ends(Counts(count, n), [], float(alpha)).upper
        yield kind, Witness(count, n), end, alpha


def holds(kind, witness, end, alpha):
    if kind == "sampled":
        return check.upper_end_holds(witness, end, alpha)
    if kind == "tree":
        return check.mean_holds(witness.count, end, alpha)
    return check.anytime_upper_holds(witness, end, alpha)


def test_ends_rounded_outward_are_verified_and_two_millionths_inward_are_not():
    for kind, witness, end, alpha in mixed_bounds(90, seed=0):
        outward = Fraction(math.ceil(end * MILLIONTHS), MILLIONTHS)
        inward = Fraction(math.floor(end * MILLIONTHS) - 1, MILLIONTHS)

        assert holds(kind, witness, outward, alpha), kind
        assert end == 1 or not holds(kind, witness, inward, alpha), kind


def test_a_thousand_mixed_bounds_take_at_most_ten_seconds_of_a_processor():
    bounds = list(mixed_bounds(120, seed=5))
    began = time.process_time()

    for kind, witness, end, alpha in bounds:
        holds(kind, witness, Fraction(math.ceil(end * MILLIONTHS), MILLIONTHS), alpha)

    assert (time.process_time() - began) / len(bounds) < 0.01


def test_an_end_at_any_time_is_verified_by_its_own_method_alone():
    end = math.ceil(anytime.ends(Counts(76, 4096), [], 0.01).upper * MILLIONTHS) / MILLIONTHS
    method, _ = check.BASES["anytime"]
    added = {"method": method, "basis": "anytime", "bound": f"{end:.6f}"}
    metric = {"metric": "leak_rate_worst_question_anytime_upper_0.99"}

    check_claim(changed(**added) | metric)
    for wrong in ({"bound": "0.024071"}, {"method": "Clopper-Pearson"}, {"basis": "sampled"}):
        with pytest.raises(BROKEN):
            check_claim(changed(**(added | wrong)) | metric)
    with pytest.raises(BROKEN, match="metric"):
        check_claim(changed(**added))


TREE = {"count": 9, "rate": "1000", "leak": "0.01", "clean": "0.95", "factor": "1.0001"}


def tree_claim(side, bound, **witness):
    """A claim by an answer tree, with the threshold 0.02."""
    method, assumes = check.BASES["tree"]
    added = {"basis": "tree", "method": method, "assumes": assumes, "side": side, "bound": bound}
    added |= {"witness": TREE | witness, "word": "bounded" if float(bound) <= 0.02 else "open"}
    claim = changed(**added) | {"passed": float(bound) <= 0.02, "threshold": "0.02"}
    claim["metric"] = "leak_rate_worst_question_tree_upper_0.99"
    if side == "lower":
        claim |= {"metric": "leak_rate_some_question_tree_lower_0.99", "comparator": ">"}
        claim |= {"threshold": "0.001", "passed": True}
        claim["lethe"]["word"] = "leaks"
    return claim


def ends_of_tree(alpha):
    masses = Masses((0.01,), (0.95,))
    return leak_interval(masses, Remainder(1000.0, 100, 9), alpha, Rounding(0.00005))


def test_both_ends_of_a_tree_are_verified_rounded_outward_and_not_two_millionths_inward():
    exact = {"leak": "0.010001000050001667", "clean": "0.949904999"}
    least = {"leak": "0.009999", "clean": "0.949904999", "factor": "1.000100005000167"}
    ends = ends_of_tree(0.01)
    upper = math.ceil(ends.upper * MILLIONTHS)
    lower = math.floor(ends.lower_sampled * MILLIONTHS)

    check_claim(
        tree_claim("upper", f"{upper / MILLIONTHS:.6f}", **(exact | {"factor": least["factor"]}))
    )
    check_claim(tree_claim("lower", f"{lower / MILLIONTHS:.6f}", **least))
    for side, end in (("upper", upper - 3), ("lower", lower + 3)):
        with pytest.raises(BROKEN, match="tighter"):
            check_claim(tree_claim(side, f"{end / MILLIONTHS:.6f}", **least))


def test_an_explored_clean_mass_alone_proves_an_upper_end():
    check_claim(tree_claim("upper", "0.010000", clean="0.99"))
    with pytest.raises(BROKEN, match="tighter"):
        check_claim(tree_claim("upper", "0.009999", clean="0.99"))


@pytest.mark.parametrize(
    "witness",
    [
        {"rate": "0"},
        {"factor": "0.5"},
        {"leak": "-0.5"},
        {"count": -1},
        {"rate": 1000},
        {"clean": None},
        {"clean": "0.995"},
        {"leak": "5"},
    ],
    ids=str,
)
def test_a_witness_of_a_tree_of_another_form_is_not_verified(witness):
    for side, bound in (("upper", "0.05"), ("lower", "0.009")):
        with pytest.raises(BROKEN):
            check_claim(tree_claim(side, bound, **witness))


@pytest.mark.parametrize(
    ("side", "bound", "witness"),
    [
        ("upper", "0.001000", {"leak": "0.5", "clean": "0.999"}),
        ("upper", "0.000000", {"leak": "7", "clean": "5"}),
        ("lower", "5.000000", {"count": 10**6, "rate": "1"}),
        ("lower", "0.900000", {"leak": "0.9", "clean": "0.9"}),
        ("lower", "0.100000", {"leak": "0.1", "clean": "0.95"}),
    ],
)
def test_masses_above_one_and_ends_beyond_them_prove_nothing(side, bound, witness):
    with pytest.raises(BROKEN):
        check_claim(tree_claim(side, bound, **witness))


def test_a_tree_assumes_more_than_independent_draws():
    claim = tree_claim("upper", "0.05")

    check_claim(claim)
    claim["lethe"]["assumes"] = CLAIM["lethe"]["assumes"]

    with pytest.raises(BROKEN, match="assumes"):
        check_claim(claim)


def certificate_of(**changes):
    """A certificate of two auditors and two questions whose e-values have just reached 1 / alpha at tau."""
    claim = {"questions": ["a", "b"], "tau": 0.05, "alpha": 0.01, "retrain": None}
    auditors = [
        {"leaks": [0, 1], "draws": [60, 90], "seed": 1},
        {"leaks": [0, 0], "draws": [80, 90], "seed": 2},
    ]
    value = {"schema": "lethe-certificate/3", "verdict": "certified", "auditors": auditors}
    value["homogeneity"] = {"holds": True}
    return value | {"claim": claim | changes.pop("claim", {})} | changes


def test_each_question_of_a_certificate_is_verified_by_the_counts_of_all_auditors():
    reached = [
        float(anytime.log_below(k, n, 0.05)) >= math.log(100) for k, n in ((0, 140), (1, 180))
    ]
    alone = certificate_of(auditors=[{"leaks": [0, 1], "draws": [60, 90], "seed": 1}])

    assert reached == [True, True]
    assert check.check_certificate(certificate_of()) == [VERIFIED] * 2
    assert all("too small" in said for said in check.check_certificate(alone))


BESIDE = [(0, 500, 0, 300), (4, 700, 6, 700), (30, 400, 90, 400), (0, 50, 0, 0), (5, 5, 9, 9)]


@pytest.mark.parametrize("tau", ["0.01", "0.2"])
@pytest.mark.parametrize("counts", BESIDE, ids=str)
def test_the_evidence_beyond_retrain_is_enclosed_from_below(counts, tau):
    x, n, y, k = counts
    e_value = math.exp(float(anytime.log_beyond(x, n, y, k, float(tau))))

    enclosed = float(check.e_beyond(Witness(x, n), Witness(y, k), Fraction(tau)))

    assert enclosed == pytest.approx(e_value, rel=1e-9)


def test_shares_that_the_null_allows_are_no_evidence():
    assert check.e_beyond(Witness(9, 10), Witness(1, 10), Fraction("0.1")) == 0


def beside_retrain(n, leaks=3):
    """A certificate of one question that leaks as Retrain does, and nobody knows of more."""
    audit = {"leaks": [leaks], "draws": [n], "retrain_leaks": [leaks], "retrain_draws": [n]}
    without = {"leaks": [0], "draws": [1], "retrain_leaks": [], "retrain_draws": [], "seed": 2}
    claim = {"questions": ["a"], "retrain": "ab"}
    return certificate_of(claim=claim, auditors=[audit | {"seed": 1}, without])


def test_a_certificate_beside_retrain_is_verified_from_the_counts_of_both():
    first = 4
    while anytime.log_e_forgot(Counts(3, first + 1), [Counts(3, first)], 0.05) < math.log(100):
        first += 1

    assert check.check_certificate(beside_retrain(first)) == [VERIFIED]
    assert check.check_certificate(beside_retrain(first - 1)) != [VERIFIED]


@pytest.mark.parametrize("changes", [{"retrain_leaks": []}, {"retrain_leaks": [400]}], ids=str)
def test_counts_of_retrain_that_are_none_prove_nothing(changes, tmp_path):
    value = beside_retrain(300)
    value["auditors"][0] |= changes
    (tmp_path / "c.json").write_text(json.dumps(value))

    assert check.main([str(tmp_path / "c.json")]) == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"verdict": "not certified yet"},
        {"claim": {"retrain": "ab"}},
        {"claim": {"alpha": 0.9}},
        {"claim": {"alpha": 0}},
        {"claim": {"alpha": "0.01"}},
        {"claim": {"questions": "ab"}},
        {"claim": {"questions": ["a", "a"]}},
        {"homogeneity": {"holds": False}},
        {"auditors": [{"leaks": [0, 0], "draws": [99, 99], "seed": 1}] * 2},
        {"claim": {"tau": "1e999999999"}},
        {"claim": {"questions": []}},
        {"auditors": [{"leaks": [0], "draws": [999], "seed": 1}]},
        {"auditors": [{"leaks": [0.5, 0], "draws": [99, 99], "seed": 1}]},
        {"auditors": [{"leaks": [-5, 0], "draws": [99, 99], "seed": 1}]},
        {"auditors": None},
    ],
    ids=str,
)
def test_a_certificate_that_proves_nothing_is_not_verified(changes, tmp_path, capsys):
    file = tmp_path / "c.json"
    file.write_text(json.dumps(certificate_of(**changes)))

    status = check.main([str(file)])

    assert status == 1
    assert f": {VERIFIED}\n" not in capsys.readouterr().out


def test_a_certificate_runs_through_the_command(tmp_path):
    (tmp_path / "c.json").write_text(json.dumps(certificate_of()))

    assert check.main([str(tmp_path / "c.json")]) == 0


def test_a_true_claim_is_verified():
    check_claim(CLAIM)


def test_a_claim_of_a_server_holds_between_two_times():
    times = "as served between 2026-11-28T15:00:00Z and 2026-11-28T15:10:00Z, "
    draws = CLAIM["lethe"]["assumes"]

    check_claim(changed(assumes=times + draws))
    with pytest.raises(BROKEN):
        check_claim(changed(assumes=times.replace("served", "told") + draws))


def test_a_name_that_stands_in_another_place_is_not_read():
    with pytest.raises(BROKEN):
        check_claim(changed(metric=CLAIM["metric"]) | {"metric": "another"})


@pytest.mark.parametrize(
    "added",
    [
        {"bound": "0.02407"},
        {"bound": "-0.5"},
        {"bound": 0.024071},
        {"bound": "1e9"},
        {"alpha": "0.009"},
        {"alpha": "0.9", "confidence": "0.1"},
        {"confidence": "0.999"},
        {"certain": True},
        {"certain": 0},
        {"method": "DKW"},
        {"method": "Clopper-Pearson, Bonferroni"},
        {"side": "both"},
        {"side": {}},
        {"witness": {"count": 76}},
        {"witness": {"count": 77, "n": 4096}},
        {"witness": {"count": True, "n": 4096}},
        {"witness": {"count": 4097, "n": 4096}},
        {"witness": {"count": 0, "n": 10**9}},
        {"witness": None},
        {"word": "open"},
        {"word": "leaks"},
        {"covers": "every prompt together"},
        {"quantity": "leak"},
        {"assumes": None},
        {"assumes": "nothing"},
        {
            "bound": "0.0240710000000000000000000000000000000001",
            "witness": {"count": 499_999, "n": 10**6},
        },
    ],
    ids=str,
)
def test_a_claim_that_does_not_follow_is_not_verified(added):
    with pytest.raises(BROKEN):
        check_claim(changed(**added))


@pytest.mark.parametrize(
    "fields",
    [
        {"passed": False},
        {"threshold": "0.02"},
        {"comparator": ">="},
        {"metric": "leak_rate_worst_question_upper_0.999"},
        {"metric": "leak_rate_worst_question_lower_0.99"},
        {"metric": "leak_rate_average_upper_0.99"},
    ],
    ids=str,
)
def test_a_word_that_the_bound_contradicts_is_not_verified(fields):
    with pytest.raises(BROKEN):
        check_claim(CLAIM | fields)


def test_the_word_leaks_needs_a_claim_that_proves_it():
    closed = CLAIM | {"passed": False, "threshold": "0.01"}
    closed["lethe"] = CLAIM["lethe"] | {"word": "leaks"}
    lower = {"metric": "leak_rate_some_question_lower_0.99", "comparator": ">"}
    proof = CLAIM | lower | {"threshold": "0.01", "passed": True}
    proof["lethe"] = CLAIM["lethe"] | {"word": "leaks", "side": "lower", "bound": "0.012"}

    alone = check.check_statement({"predicate": {"claims": [closed]}})
    proved = check.check_statement({"predicate": {"claims": [closed, proof]}})
    of_less = proof | {"threshold": "0.001"}
    elsewhere = check.check_statement({"predicate": {"claims": [closed, of_less]}})

    assert elsewhere != [VERIFIED] * 2
    assert alone != [VERIFIED]
    assert proved == [VERIFIED] * 2


def test_no_random_change_of_a_claim_makes_a_falsehood_pass():
    chance = random.Random(1)
    for _ in range(3000):
        n = chance.randrange(1, 60)
        count = chance.randrange(n + 1)
        bound = f"{chance.randrange(MILLIONTHS) / MILLIONTHS:.6f}"
        claim = changed(bound=bound, witness={"count": count, "n": n})
        claim["passed"] = Fraction(bound) <= Fraction("0.05")
        claim["lethe"]["word"] = "bounded" if claim["passed"] else "open"
        try:
            check_claim(claim)
        except BROKEN:
            continue
        assert float(bound) >= ends_of(count, n, 0.01)[1] - 1e-9


def test_no_random_end_is_verified_that_is_too_tight():
    verified, too_tight, lost = witnesses.wrong(1000, seed=6)

    assert verified > 200
    assert too_tight == 0
    assert lost == 0


def test_no_random_claim_is_verified_that_whole_numbers_prove_false(capsys):
    assert fuzzed.run(first=0, cases=2000, seed=3, minutes=5, only=None) == 0

    assert "falsehoods accepted: 0" in capsys.readouterr().out


@pytest.mark.parametrize(
    "fault", ["upper_end_holds", "mean_holds", "anytime_upper_holds", "check_claim"]
)
def test_random_claims_find_a_checker_that_accepts_too_much(fault, monkeypatch):
    monkeypatch.setattr(check, fault, lambda *arguments: True)

    assert fuzzed.run(first=0, cases=200, seed=3, minutes=5, only=None) == 1


def test_the_file_runs_alone_and_says_of_each_claim_whether_it_is_verified(tmp_path):
    copy = tmp_path / "check.py"
    copy.write_bytes(SOURCE.read_bytes())
    false = changed(bound="0.01")
    (tmp_path / "s.json").write_text(json.dumps({"predicate": {"claims": [CLAIM, false]}}))

    command = [sys.executable, "-I", "-S", "check.py", "s.json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)

    first, second = done.stdout.splitlines()
    assert done.returncode == 1
    assert first.endswith(f": {VERIFIED}")
    assert "not verified" in second


def test_a_key_that_stands_twice_is_not_read():
    with pytest.raises(BROKEN, match="twice"):
        json.loads('{"bound": "0.9", "bound": "0.1"}', object_pairs_hook=check.once)


def test_the_file_has_at_most_300_lines():
    assert len(SOURCE.read_text(encoding="utf-8").splitlines()) <= 300
