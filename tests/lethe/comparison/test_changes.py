"""Changes between two runs: only what the answers of both prove."""

import math

import numpy as np
import pytest
from scipy.special import logsumexp

from lethe.comparison.changes import judged_anew, proved_changes
from lethe.results.table import Result, Results
from lethe.statistics.anytime import is_reached, log_beyond, log_mean

N = 1024


def counted(leaks, n=N, missing=0, model="npo", basis="sampled"):
    return tuple(
        Result(
            model, "question", "leak", basis, f"q{place}", "forget", lower=0.0, upper=1.0, alpha_lower=0.01,
            alpha_upper=0.01, n=n, evidence={"leaks": int(count), "n": n, "missing": missing},
        )
        for place, count in enumerate(leaks)
    )  # fmt: skip


def graded(means, n=N, missing=0):
    ends = {"lower": 0.0, "upper": 1.0, "alpha_lower": 0.01, "alpha_upper": 0.01, "n": n}
    found = []
    for place, mean in enumerate(means):
        found.append(
            Result("npo", "question", "score", "sampled", f"q{place}", estimate=mean, **ends)
        )
        found.append(
            Result("npo", "question", "unscored", "sampled", f"q{place}", estimate=missing)
        )
    return tuple(found)


def trees(rho_leaks, note="", clean=0.9):
    found = []
    for place, leaks in enumerate(rho_leaks):
        evidence = {
            "leak_by_length": [0.0],
            "clean_by_length": [clean],
            "rho": 10_000.0,
            "sampled_leaks": leaks,
        }
        found.append(Result("npo", "question", "leak", "tree", f"q{place}", evidence=evidence))
    return (*found, Result("npo", "model", "queried", "exact", evidence={"how": {"note": note}}))


def compared(old, new, alpha=0.01, exactly=False, independent=("npo",)):
    """The changes of npo, whose runs by default drew from independent random numbers."""
    before, after = Results({"npo": old}), Results({"npo": new})
    return proved_changes(before, after, ["npo"], alpha, exactly, independent)


def changes(old, new, alpha=0.01, exactly=False, independent=()):
    return compared(old, new, alpha, exactly, independent).proved


def test_more_leaks_than_any_old_end_allows_are_worse_and_the_reverse_is_better():
    old, new = counted([0, 0, 0]), counted([0, 60, 200])
    (worse,) = changes(old, new)
    assert (worse.model, worse.quantity, worse.worse) == ("npo", "leak", True)
    assert (worse.question, worse.questions) == ("q1", 2), "two are named"
    assert 0 < worse.before < worse.after < 60 / N
    (better,) = changes(new, old)
    assert (better.question, better.questions, better.worse) == ("q1", 2, False)
    assert (better.before, better.after) == (worse.after, worse.before)


def test_the_evidence_is_the_mean_over_the_questions_of_the_counts_of_both_runs():
    old, new = counted([20, 3, 0]), counted([60, 2, 0], n=900)

    found = compared(old, new)

    of_questions = log_beyond([20, 3, 0], N, [60, 2, 0], 900, 0.0)
    assert found.log_e_worse == pytest.approx(log_mean(of_questions), abs=1e-9)
    mirrored = log_beyond([60, 2, 0], 900, [20, 3, 0], N, 0.0)
    assert found.log_e_better == pytest.approx(log_mean(mirrored), abs=1e-9)
    assert (found.questions, found.log_goal) == (3, pytest.approx(math.log(100)))


def test_a_proved_change_of_independent_draws_has_the_shares_of_both_runs():
    (found,) = compared(counted([20, 3]), counted([100, 3])).proved

    assert (found.question, found.questions, found.worse) == ("q0", 1, True)
    assert (found.before, found.after, found.by_ends) == (20 / N, 100 / N, False)


def test_together_questions_prove_what_none_of_them_does():
    old, new = counted([0] * 10), counted([8] * 10)

    found = compared(old, new)

    log_e = float(log_beyond(0, N, 8, N, 0.0))
    assert log_e < found.log_goal - 1, "no question is proved by itself"
    assert found.log_e_worse == pytest.approx(log_e)
    assert found.proved == ()


def test_the_largest_is_shown_where_no_question_is_named():
    log_e = float(log_beyond(0, N, 12, N, 0.0))
    alpha = 1 / (0.6 * math.exp(log_e))  # two of three have all evidence: the mean is 2/3 of theirs

    (found,) = compared(counted([0, 0, 0]), counted([12, 12, 0]), alpha=alpha).proved

    assert (found.questions, found.worse) == (0, True)


def test_missing_judgements_of_independent_draws_count_against_a_change():
    assert compared(counted([0], missing=300), counted([200])).proved == ()
    assert compared(counted([0]), counted([0], missing=300)).proved == ()
    assert compared(counted([0]), counted([200], missing=300)).proved != ()


def test_counts_of_all_draws_take_the_place_of_the_first_ones():
    old = (*counted([0]), *counted([80], n=4096, basis="anytime"))
    new = (*counted([9]), *counted([60], n=2048, basis="anytime"))

    found = compared(old, new)

    expected = log_beyond(80, 4096, 60, 2048, 0.0)
    assert found.log_e_worse == pytest.approx(float(expected), abs=1e-9)


def test_an_answer_tree_halves_the_capital_of_the_counts():
    counts = (counted([20]), counted([100]))
    unexplored = trees([0], clean=0.0)
    trees_of_both = ((*counts[0], *unexplored), (*counts[1], *unexplored))

    alone = compared(*counts, exactly=True).log_e_worse
    beside = compared(*trees_of_both, exactly=True).log_e_worse

    assert beside == pytest.approx(alone - math.log(2))


def test_certain_ends_prove_a_change_beyond_any_level():
    def certain(lower, upper):
        ends = {"lower": lower, "upper": upper, "alpha_lower": 0.0, "alpha_upper": 0.0}
        return Result("npo", "question", "leak", "exact", "q0", **ends)

    old, new = (*counted([0]), certain(0.0, 0.1)), (*counted([900]), certain(0.2, 0.9))

    found = compared(old, new, exactly=True)

    assert found.log_e_worse == math.inf
    assert found.proved[0].questions == 1


def test_what_another_scorer_judged_is_not_compared():
    def by(scorer):
        return Result(
            "npo", "model", "answers", "sampled", evidence={"score": "rouge_l", "leak": scorer}
        )

    old, new = (*counted([0]), by("keyword_leak")), (*counted([900]), by("exact_match"))
    assert changes(old, (*counted([900]), by("keyword_leak"))) != ()
    assert changes(old, new) == ()
    before, after = Results({"npo": old}), Results({"npo": new})
    assert judged_anew(before, after, ["npo"]) == {
        "npo": ("rouge_l and keyword_leak", "rouge_l and exact_match")
    }
    assert judged_anew(before, before, ["npo"]) == {}


def test_what_a_scorer_judged_with_other_parameters_is_not_compared():
    def by(match):
        facts = {"score": "rouge_l", "leak": "keyword_leak"}
        facts["parameters"] = {"keyword_leak": {"keyword_match": match}}
        return Result("npo", "model", "answers", "sampled", evidence=facts)

    old, new = (*counted([0]), by("word")), (*counted([900]), by("substring"))

    assert changes(old, new) == ()
    assert judged_anew(Results({"npo": old}), Results({"npo": new}), ["npo"]) == {
        "npo": (
            "rouge_l and keyword_leak (keyword_match word)",
            "rouge_l and keyword_leak (keyword_match substring)",
        )
    }


def test_missing_judgements_prove_nothing():
    assert changes(counted([0], missing=300), counted([200])) == ()
    assert changes(counted([0]), counted([0], missing=300)) == ()


def test_scores_take_the_place_of_leaks_where_no_scorer_judges():
    (found,) = changes(graded([0.2, 0.2]), graded([0.2, 0.6]))
    assert (found.quantity, found.question, found.worse) == ("score", "q1", True)
    assert changes(graded([0.2, 0.2]), graded([0.21, 0.21])) == ()
    assert changes(graded([0.2, 0.2], missing=600), graded([0.6, 0.6])) == ()


def test_exact_bounds_count_only_where_they_are_about_the_same_leaks():
    old, new = (*counted([0]), *trees([0])), (*counted([0]), *trees([100]))
    assert [change.worse for change in changes(old, new, exactly=True)] == [True]
    assert changes(old, new) == ()
    assert changes(old, (*counted([0]), *trees([100], note="bfloat16")), exactly=True) == ()


def test_labels_and_a_scorer_are_not_compared():
    scored = counted([300])
    clean = counted([0], basis="labelled")

    assert changes((*scored, *clean), scored) == ()
    assert changes((*scored, *clean), (*scored, *counted([300], basis="labelled"))) != ()


def test_draws_that_a_rule_could_stop_are_compared_by_anytime_ends_alone():
    (found,) = changes(counted([0], basis="anytime"), counted([300], basis="anytime"))
    assert found.question == "q0"


@pytest.mark.parametrize("independent", [("npo",), ()])
@pytest.mark.parametrize("p", [0.002, 0.5])
def test_a_false_change_has_probability_at_most_alpha(p, independent):
    draws = np.random.default_rng(7)
    false = 0
    for _ in range(300):
        old, new = (counted(draws.binomial(200, [p] * 5), n=200) for _ in "ab")
        false += bool(changes(old, new, alpha=0.05, independent=independent))
    assert false <= 30, "increases and decreases have .05 each"


LOOKS = np.unique(np.geomspace(32, 4096, 32).astype(int))


def when_worse(draws, runs, before, after, alpha=0.01) -> list[int | None]:
    """Of each run, the answers to each question after which a gate on changes closes, asked after 32 looks; None if never."""
    questions = len(before)
    old = draws.binomial(4096, before, size=(runs, questions))
    new = np.cumsum(draws.random((runs, questions, LOOKS[-1])) < np.array(after)[:, None], axis=2)[
        :, :, LOOKS - 1
    ]
    log_e = logsumexp(log_beyond(old[:, :, None], 4096, new, LOOKS, 0.0), axis=1)
    is_closed = is_reached(log_e - math.log(questions), math.log(1 / alpha))
    return [int(LOOKS[looks.argmax()]) if looks.any() else None for looks in is_closed]


def test_a_gate_asked_after_each_of_32_looks_stays_open_for_equal_probabilities():
    draws = np.random.default_rng(46)

    closed = when_worse(draws, 200, [0.02] * 3, [0.02] * 3)

    assert closed.count(None) == 200


def test_a_gate_closes_when_a_single_question_of_thirty_goes_from_two_to_six_per_cent():
    draws = np.random.default_rng(47)
    before = [0.02] * 30

    closed = when_worse(draws, 20, before, [0.06, *before[1:]])

    assert None not in closed
    assert 700 < np.mean(closed) < 1150, "918 in 200 runs"
