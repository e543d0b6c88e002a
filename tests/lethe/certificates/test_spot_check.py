"""The coin's choice, and what a check of single draws certifies against an author who forges."""

import math

import numpy as np
import pytest

from lethe.certificates.certificate import FACTS, Audit, Certificate, Check
from lethe.certificates.spot_check import CLEAN, REFUTED, SpotCheck, chosen
from lethe.statistics.anytime import log_below
from lethe.statistics.spot_check import exact_upper, log_clean, most_forged

ROOT = "ab" * 32


def coin(number):
    return number.to_bytes(32, "big")


def claim(**fixed):
    return Certificate(
        ("a", "b"), 0.05, 0.01, dict.fromkeys(FACTS, "x"), {"engine": {}}, {}, **fixed
    )


def checked(
    n=13_760, s=688, leaks=0, mismatches=0, times=1, kernels="k", fixed=False, coin_of=None
):
    stated = {"n": n, "check": 688} if fixed else {}
    audit = Audit("author", (n, n), 1, "prefix", "now", (leaks, 0), kernels="k")
    of_claim = claim(coin=coin_of, **stated).with_audits([audit])
    checks = []
    for number in range(times):
        found = (mismatches, 0)
        checks.append(Check("v", audit.key, coin(number).hex(), (s, s), found, "now", kernels))
    return SpotCheck(of_claim, tuple(checks))


@pytest.mark.parametrize(("n", "s"), [(1, 1), (10, 3), (4096, 688), (7, 7)])
def test_the_choice_has_distinct_samples_of_the_question(n, s):
    numbers = chosen(ROOT, coin(0), "q", n, s)

    assert len(set(numbers)) == len(numbers) == s
    assert min(numbers) >= 0
    assert max(numbers) < n


def test_a_larger_check_than_the_draws_takes_all():
    assert chosen(ROOT, coin(0), "q", 5, 9) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    "other", [("cd" * 32, coin(0), "q"), (ROOT, coin(1), "q"), (ROOT, coin(0), "r")], ids=str
)
def test_another_root_coin_or_question_chooses_others(other):
    assert chosen(ROOT, coin(0), "q", 4096, 50) != chosen(*other, 4096, 50)


def test_every_sample_is_chosen_equally_often():
    counts = np.zeros(12)
    for number in range(2000):
        counts[chosen(ROOT, coin(number), "q", 12, 3)] += 1

    expected = 2000 * 3 / 12
    assert ((counts - expected) ** 2 / expected).sum() < 35  # chi-square of 11 degrees: .0002


@pytest.mark.parametrize("forged", [1, 10])
def test_a_check_misses_forged_draws_as_often_as_the_theory_says(forged):
    trials = 400
    n = 4096
    s = 688
    clean = 0
    for number in range(trials):
        clean += not set(chosen(ROOT, coin(number), "q", n, s)) & set(range(0, forged * 7, 7))

    chance = float(np.exp(log_clean(n, np.array([forged]), s))[0])
    assert abs(clean / trials - chance) < 4 * math.sqrt(chance * (1 - chance) / trials)


def test_draws_that_may_be_forged_count_as_leaks():
    check = checked()

    assert list(check.forged.values()) == [(147, 147)]
    assert check.log_e() == pytest.approx(float(log_below(147, 13_760, 0.05)))
    assert check.certified


@pytest.mark.parametrize("times", [1, 2, 20])
def test_any_number_of_repeated_checks_is_wrong_at_most_at_alpha(times):
    """Whoever repeats a check until it certifies is wrong where the e-value is, or where any of the checks is."""
    check = checked(times=1)
    of_checks = math.fsum(check.share(number) for number in range(1, times + 1))
    of_all = SpotCheck(check.claim, check.checks * times)

    assert of_checks + math.exp(-of_all.log_goal) <= 0.01
    assert of_all.beta == pytest.approx(of_checks)
    assert of_all.certified


def test_a_check_by_itself_has_the_level_of_its_place_in_the_file():
    """Or whoever checks again and again would get a first check each time."""
    first = checked(mismatches=1, kernels="others")
    tenth = SpotCheck(first.claim, first.checks, before=9)

    ((limit, _),) = tenth.forged.values()
    assert limit == most_forged(13_760, 688, 0.001 / 110, 1)
    assert tenth.beta == pytest.approx(0.001 / 110)


def test_a_small_check_certifies_nothing_and_says_so():
    check = checked(n=200, s=10)

    assert check.verdict == CLEAN
    assert not check.certified
    assert "certifies nothing yet" in check.sentences()[1]


def test_one_answer_that_is_not_as_stated_refutes_the_file():
    check = checked(mismatches=1)

    assert check.verdict == REFUTED
    assert not check.certified


def test_on_other_kernels_answers_that_differ_count_as_forged():
    check = checked(mismatches=1, kernels="others")

    ((with_mismatch, without),) = check.forged.values()
    assert check.verdict == CLEAN
    assert with_mismatch == most_forged(13_760, 688, 0.0005, 1) > without


def test_a_fixed_claim_is_decided_by_the_exact_end():
    check = checked(n=4096, leaks=41, fixed=True)
    smaller = checked(n=4096, leaks=41, s=600, fixed=True)

    assert check.is_exact
    assert check.upper() == pytest.approx(exact_upper(4096, 41, 688, 0.01))
    assert check.certified
    assert not smaller.is_exact


@pytest.mark.parametrize(("leaks", "certifies"), [(82, True), (200, False)])
def test_the_exact_end_certifies_where_it_is_at_most_tau(leaks, certifies):
    check = checked(4096, leaks=leaks, fixed=True)

    assert check.certified is certifies


def test_a_check_names_what_it_cannot_see_with_and_without_a_coin_in_the_claim():
    assert "a single seed" in checked().sentences()[1]
    assert "fixed before this coin" in checked(coin_of="0" * 64).sentences()[1]


def test_another_name_gives_another_seed_even_with_a_coin_in_the_claim():
    """So no sentence may say that the coin alone chose the seed."""
    of_claim = claim(coin="0" * 64)

    assert of_claim.seed_of("author", ()) != of_claim.seed_of("author 2", ())


def beside_a_worse_audit(place, **fixed):
    """The check of an audit without a leak, in a file that has an unchecked one with leaks at this place."""
    n = 13_760
    clean = Audit("author", (n, n), 1, "prefix", "now", (0, 0), kernels="k")
    worse = Audit("author 2", (n, n), 2, "prefix", "now", (600, 600), kernels="k")
    audits = [clean]
    audits.insert(place, worse)
    check = Check("v", clean.key, coin(0).hex(), (688, 688), (0, 0), "now", "k")
    return SpotCheck(claim(**fixed).with_audits(audits), (check,))


def test_an_unchecked_audit_before_the_checked_ones_may_be_forged_as_a_whole():
    """Else whoever chooses what is checked would choose the audits with the fewest leaks."""
    check = beside_a_worse_audit(0)

    assert not check.certified
    assert check.log_e() == pytest.approx(float(log_below(13_760 + 147, 2 * 13_760, 0.05)))
    assert "certifies nothing yet" in check.sentences()[1]


def test_an_audit_after_the_checked_ones_does_not_enter():
    assert beside_a_worse_audit(1).log_e() == checked().log_e()


def test_the_exact_end_is_of_the_first_audit_alone():
    fixed = {"n": 13_760, "check": 688}

    assert beside_a_worse_audit(1, **fixed).is_exact
    assert not beside_a_worse_audit(0, **fixed).is_exact
