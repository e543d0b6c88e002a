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
    found = []
    for place, count in enumerate(leaks):
        found.append(
            Result(
                model,
                "question",
                "leak",
                basis,
                f"q{place}",
                "forget",
                lower=0.0,
                upper=1.0,
                alpha_lower=0.01,
                alpha_upper=0.01,
                n=n,
                evidence={"leaks": int(count), "n": n, "missing": missing},
            )
        )
    return tuple(found)


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


CLEAN = counted([0, 0, 0])
LEAKY = counted([0, 60, 200])


def test_more_leaks_than_any_old_end_allows_are_worse():
    (worse,) = changes(CLEAN, LEAKY)

    assert worse.worse
    assert worse.model == "npo"
    assert worse.quantity == "leak"
    assert worse.question == "q1"
    assert worse.questions == 2, "two are named"
    assert 0 < worse.before < worse.after < 60 / N


def test_fewer_leaks_than_any_old_end_allows_are_better_by_as_much():
    (worse,) = changes(CLEAN, LEAKY)

    (better,) = changes(LEAKY, CLEAN)

    assert not better.worse
    assert better.question == "q1"
    assert better.questions == 2
    assert better.before == worse.after
    assert better.after == worse.before


def test_the_evidence_is_the_mean_over_the_questions_of_the_counts_of_both_runs():
    before = [20, 3, 0]
    after = [60, 2, 0]
    increases = log_beyond(before, N, after, 900, 0.0)
    decreases = log_beyond(after, 900, before, N, 0.0)

    found = compared(counted(before), counted(after, n=900))

    assert found.log_e_worse == pytest.approx(log_mean(increases), abs=1e-9)
    assert found.log_e_better == pytest.approx(log_mean(decreases), abs=1e-9)
    assert found.questions == 3
    assert found.log_goal == pytest.approx(math.log(100))


def test_a_proved_change_of_independent_draws_has_the_shares_of_both_runs():
    (found,) = compared(counted([20, 3]), counted([100, 3])).proved

    assert found.worse
    assert found.question == "q0"
    assert found.questions == 1
    assert found.before == 20 / N
    assert found.after == 100 / N
    assert not found.by_ends


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


@pytest.mark.parametrize("independent", [("npo",), ()])
@pytest.mark.parametrize(
    ("old", "new"),
    [
        (counted([0], missing=300), counted([200])),
        (counted([0]), counted([0], missing=300)),
    ],
    ids=["before", "after"],
)
def test_missing_judgements_count_against_a_change(independent, old, new):
    assert changes(old, new, independent=independent) == ()


def test_a_change_beyond_the_missing_judgements_is_proved():
    assert compared(counted([0]), counted([200], missing=300)).proved != ()


def test_counts_of_all_draws_take_the_place_of_the_first_ones():
    old = (*counted([0]), *counted([80], n=4096, basis="anytime"))
    new = (*counted([9]), *counted([60], n=2048, basis="anytime"))

    found = compared(old, new)

    expected = log_beyond(80, 4096, 60, 2048, 0.0)
    assert found.log_e_worse == pytest.approx(float(expected), abs=1e-9)


def test_an_answer_tree_halves_the_capital_of_the_counts():
    old = counted([20])
    new = counted([100])
    unexplored = trees([0], clean=0.0)

    alone = compared(old, new, exactly=True)
    beside = compared((*old, *unexplored), (*new, *unexplored), exactly=True)

    assert beside.log_e_worse == pytest.approx(alone.log_e_worse - math.log(2))


@pytest.mark.parametrize(
    ("leaks", "leaks_of_tree", "by_ends"),
    [pytest.param(60, 0, False, id="counts"), pytest.param(0, 900, True, id="tree")],
)
def test_a_change_by_counts_and_a_tree_has_the_numbers_of_the_stronger(
    leaks, leaks_of_tree, by_ends
):
    old = (*counted([0]), *trees([0]))
    new = (*counted([leaks]), *trees([leaks_of_tree]))

    (found,) = compared(old, new, exactly=True).proved

    assert found.worse
    assert found.by_ends == by_ends


def test_certain_ends_prove_a_change_beyond_any_level():
    def certain(lower, upper):
        ends = {"lower": lower, "upper": upper, "alpha_lower": 0.0, "alpha_upper": 0.0}
        return Result("npo", "question", "leak", "exact", "q0", **ends)

    old = (*counted([0]), certain(0.0, 0.1))
    new = (*counted([900]), certain(0.2, 0.9))

    found = compared(old, new, exactly=True)

    assert found.log_e_worse == math.inf
    assert found.proved[0].questions == 1


def judged_by(scorer, **parameters):
    """The row that says which scorers judged the answers, and with which parameters."""
    facts = {"score": "rouge_l", "leak": scorer}
    if parameters:
        facts["parameters"] = {scorer: parameters}
    return Result("npo", "model", "answers", "sampled", evidence=facts)


def anew(old, new):
    return judged_anew(Results({"npo": old}), Results({"npo": new}), ["npo"])


FEW_BY_KEYWORD = (*counted([0]), judged_by("keyword_leak"))
MANY_BY_KEYWORD = (*counted([900]), judged_by("keyword_leak"))
MANY_BY_MATCH = (*counted([900]), judged_by("exact_match"))


def test_what_the_same_scorer_judged_is_compared():
    assert changes(FEW_BY_KEYWORD, MANY_BY_KEYWORD) != ()
    assert anew(FEW_BY_KEYWORD, FEW_BY_KEYWORD) == {}


def test_what_another_scorer_judged_is_not_compared():
    assert changes(FEW_BY_KEYWORD, MANY_BY_MATCH) == ()


def test_the_scorers_before_and_after_are_named_where_they_differ():
    assert anew(FEW_BY_KEYWORD, MANY_BY_MATCH) == {
        "npo": ("rouge_l and keyword_leak", "rouge_l and exact_match")
    }


def test_what_a_scorer_judged_with_other_parameters_is_not_compared():
    old = (*counted([0]), judged_by("keyword_leak", keyword_match="word"))
    new = (*counted([900]), judged_by("keyword_leak", keyword_match="substring"))

    assert changes(old, new) == ()
    assert anew(old, new) == {
        "npo": (
            "rouge_l and keyword_leak (keyword_match word)",
            "rouge_l and keyword_leak (keyword_match substring)",
        )
    }


def test_scores_take_the_place_of_leaks_where_no_scorer_judges():
    (found,) = changes(graded([0.2, 0.2]), graded([0.2, 0.6]))

    assert found.worse
    assert found.quantity == "score"
    assert found.question == "q1"


def test_a_small_change_of_scores_is_not_proved():
    assert changes(graded([0.2, 0.2]), graded([0.21, 0.21])) == ()


def test_scores_with_many_missing_prove_nothing():
    assert changes(graded([0.2, 0.2], missing=600), graded([0.6, 0.6])) == ()


WITHOUT_TREE_LEAKS = (*counted([0]), *trees([0]))
WITH_TREE_LEAKS = (*counted([0]), *trees([100]))


def test_exact_bounds_prove_a_change_of_the_same_leaks():
    (found,) = changes(WITHOUT_TREE_LEAKS, WITH_TREE_LEAKS, exactly=True)

    assert found.worse


def test_exact_bounds_of_other_leaks_prove_nothing():
    assert changes(WITHOUT_TREE_LEAKS, WITH_TREE_LEAKS) == ()


def test_exact_bounds_computed_in_another_way_prove_nothing():
    otherwise = (*counted([0]), *trees([100], note="bfloat16"))

    assert changes(WITHOUT_TREE_LEAKS, otherwise, exactly=True) == ()


def test_labels_and_a_scorer_are_not_compared():
    scored = counted([300])
    clean = counted([0], basis="labelled")

    assert changes((*scored, *clean), scored) == ()
    assert changes((*scored, *clean), (*scored, *counted([300], basis="labelled"))) != ()


def test_draws_that_a_rule_could_stop_are_compared_by_anytime_ends_alone():
    old = counted([0], basis="anytime")
    new = counted([300], basis="anytime")

    (found,) = changes(old, new)

    assert found.question == "q0"


@pytest.mark.seconds
@pytest.mark.parametrize("independent", [("npo",), ()])
@pytest.mark.parametrize("p", [0.002, 0.5])
def test_a_false_change_has_probability_at_most_alpha(p, independent):
    draws = np.random.default_rng(7)

    false = 0
    for _ in range(300):
        old = counted(draws.binomial(200, [p] * 5), n=200)
        new = counted(draws.binomial(200, [p] * 5), n=200)
        false += bool(changes(old, new, alpha=0.05, independent=independent))

    assert false <= 30, "increases and decreases have .05 each"


LOOKS = np.unique(np.geomspace(32, 4096, 32).astype(int))


def when_worse(draws, runs, before, after, alpha=0.01) -> list[int | None]:
    """Of each run, the answers to each question after which a gate on changes closes, asked after 32 looks; None if never."""
    questions = len(before)
    old = draws.binomial(4096, before, size=(runs, questions))
    leaks = draws.random((runs, questions, LOOKS[-1])) < np.array(after)[:, None]
    new = np.cumsum(leaks, axis=2)[:, :, LOOKS - 1]
    of_questions = log_beyond(old[:, :, None], 4096, new, LOOKS, 0.0)
    log_e = logsumexp(of_questions, axis=1) - math.log(questions)

    closed_after: list[int | None] = []
    for reached in is_reached(log_e, math.log(1 / alpha)):
        first = int(LOOKS[reached.argmax()]) if reached.any() else None
        closed_after.append(first)
    return closed_after


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
