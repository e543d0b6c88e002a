"""Changes between two runs: only what the ends of both prove."""

import numpy as np
import pytest

from lethe.comparison.changes import judged_anew, proved_changes
from lethe.results.table import Result, Results

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


def trees(rho_leaks, note=""):
    found = []
    for place, leaks in enumerate(rho_leaks):
        evidence = {
            "leak_by_length": [0.0],
            "clean_by_length": [0.9],
            "rho": 10_000.0,
            "sampled_leaks": leaks,
        }
        found.append(Result("npo", "question", "leak", "tree", f"q{place}", evidence=evidence))
    return (*found, Result("npo", "model", "queried", "exact", evidence={"how": {"note": note}}))


def changes(old, new, models=("npo",), alpha=0.01, exactly=False):
    return proved_changes(Results({"npo": old}), Results({"npo": new}), models, alpha, exactly)


def test_more_leaks_than_any_old_end_allows_are_worse_and_the_reverse_is_better():
    old, new = counted([0, 0, 0]), counted([0, 60, 200])
    (worse,) = changes(old, new)
    assert (worse.model, worse.quantity, worse.worse) == ("npo", "leak", True)
    assert (worse.question, worse.questions) == ("q2", 2), "the largest proved difference"
    assert 0 < worse.before < worse.after < 200 / N
    (better,) = changes(new, old)
    assert (better.question, better.questions, better.worse) == ("q2", 2, False)
    assert (better.before, better.after) == (worse.after, worse.before)


def test_the_average_is_proved_where_no_question_is():
    (found,) = changes(counted([0] * 200), counted([4] * 200))
    assert (found.question, found.questions, found.worse) == (None, 0, True)
    assert found.before < 4 / N
    assert found.after < 4 / N
    assert changes(counted([0] * 200), counted([4] * 199 + [3], n=N + 1)) != [], (
        "the runs may have other sizes"
    )


def test_what_another_scorer_judged_is_not_compared():
    def by(scorer):
        return Result(
            "npo", "model", "answers", "sampled", evidence={"score": "rouge_l", "leak": scorer}
        )

    old, new = (*counted([0]), by("keyword_leak")), (*counted([900]), by("exact_match"))
    assert changes(old, (*counted([900]), by("keyword_leak"))) != []
    assert changes(old, new) == []
    before, after = Results({"npo": old}), Results({"npo": new})
    assert judged_anew(before, after, ["npo"]) == {
        "npo": ("rouge_l and keyword_leak", "rouge_l and exact_match")
    }
    assert judged_anew(before, before, ["npo"]) == {}


def test_questions_of_unequal_sizes_have_no_pooled_average():
    def sizes(*counts):
        return tuple(
            row
            for place, own in enumerate(counts)
            for row in counted([0] * place + [own[0]], n=own[1])[-1:]
        )

    # the same shares of the same questions, but other weights in a pooled count
    assert changes(sizes((100, 200), (0, 20_000)), sizes((10_000, 20_000), (0, 200))) == []


def test_missing_judgements_prove_nothing():
    assert changes(counted([0], missing=300), counted([200])) == []
    assert changes(counted([0]), counted([0], missing=300)) == []


def test_scores_take_the_place_of_leaks_where_no_scorer_judges():
    (found,) = changes(graded([0.2, 0.2]), graded([0.2, 0.6]))
    assert (found.quantity, found.question, found.worse) == ("score", "q1", True)
    assert changes(graded([0.2, 0.2]), graded([0.21, 0.21])) == []
    assert changes(graded([0.2, 0.2], missing=600), graded([0.6, 0.6])) == []


def test_exact_bounds_count_only_where_they_are_about_the_same_leaks():
    old, new = (*counted([0]), *trees([0])), (*counted([0]), *trees([100]))
    assert [one.worse for one in changes(old, new, exactly=True)] == [True]
    assert changes(old, new) == []
    assert changes(old, (*counted([0]), *trees([100], note="bfloat16")), exactly=True) == []


def test_labels_and_a_scorer_are_not_compared():
    scored, clean = counted([300]), counted([0], basis="labelled")

    assert changes((*scored, *clean), scored) == []
    assert changes((*scored, *clean), (*scored, *counted([300], basis="labelled"))) != []


def test_draws_that_a_rule_could_stop_are_compared_by_anytime_ends_alone():
    (found,) = changes(counted([0], basis="anytime"), counted([300], basis="anytime"))
    assert found.question == "q0"
    few = changes(counted([0] * 200, basis="anytime"), counted([4] * 200, basis="anytime"))
    assert few == [], "their average has no bound at a fixed number of answers"


@pytest.mark.parametrize("p", [0.002, 0.5])
def test_a_false_change_has_probability_at_most_alpha(p):
    draws = np.random.default_rng(7)
    false = sum(
        bool(changes(*(counted(draws.binomial(200, [p] * 5), n=200) for _ in "ab"), alpha=0.1))
        for _ in range(300)
    )
    assert false <= 30
