"""The finding about a record: its words, its level, what missing answers do, whose trees count."""

import pytest
from scipy.stats import beta, binom

from lethe.results.table import Result, Rows
from lethe.statistics.bound import Assumes, Bound, Covers
from lethe.verdict.record import finding_of

ALPHA = 0.02
SCORER = "keyword_leak"


def rows_of(counts):
    """Rows of sampled leaks of each question: (leaks, n) or (leaks, n, missing)."""
    rows = Rows("npo")
    for item, (leaks, n, *missing) in counts.items():
        guarantee = (0.01, Covers.ONE_PROMPT, Assumes.DRAWS, "Clopper-Pearson", n)
        ends = Bound(0.0, "lower", *guarantee), Bound(1.0, "upper", *guarantee)
        evidence = {"leaks": leaks, "n": n, "missing": sum(missing)}
        about = {"item": item, "split": "forget", "evidence": evidence}
        rows.add("question", "leak", "sampled", leaks / n, *ends, **about)
    return rows.rows


def finding(counts, tau=0.05, alpha=ALPHA, items=None, more=()):
    return finding_of([*rows_of(counts), *more], items or list(counts), tau, alpha, SCORER)


def high(count, n, level):
    return beta.ppf(1 - level, count + 1, n - count)


def low(count, n, level):
    return beta.ppf(level, count, n - count + 1)


def test_the_upper_end_is_that_of_the_worst_question_at_half_of_alpha():
    found = finding({"a": (0, 400), "b": (3, 400)})

    assert found.at_most.value == pytest.approx(high(3, 400, ALPHA / 2))
    assert found.word == "bounded"


def test_the_lower_end_shares_its_half_among_the_questions():
    found = finding({"a": (0, 400), "b": (60, 400)})

    assert found.at_least.value == pytest.approx(low(60, 400, ALPHA / 4))
    assert found.word == "leaks"


def test_neither_proof_is_open():
    assert finding({"a": (0, 20)}).word == "open"


def test_a_question_without_answers_leaves_the_finding_open():
    found = finding({"a": (0, 4000)}, items=["a", "b"])

    assert (found.word, found.at_most.value) == ("open", 1.0)
    assert [question.n for question in found.questions] == [4000, 0]


def test_other_questions_do_not_count():
    assert finding({"a": (0, 400), "b": (400, 400)}, items=["a"]).word == "bounded"


def test_a_missing_judgement_is_a_leak_above_and_none_below():
    found = finding({"a": (0, 400, 30)})

    assert found.at_most.value == pytest.approx(high(30, 400, ALPHA / 2))
    assert (found.leaks, found.missing) == (0, 30)
    assert found.at_least.value == 0


@pytest.mark.parametrize(("tau", "p"), [(0.2999, 0.3), (0.3, 0.3), (0.01, 0.3), (0.6, 0.3)])
def test_the_stated_number_is_false_with_probability_at_most_alpha(tau, p):
    """Over all counts, whatever word is said: near the threshold both words can be false."""
    n = 60
    alpha = 0.2
    wrong = 0.0
    for leaks in range(n + 1):
        found = finding({"a": (leaks, n)}, tau, alpha)
        is_below = found.word == "bounded" and found.at_most.value < p
        is_above = found.word == "leaks" and found.at_least.value > p
        if is_below or is_above:
            wrong += binom.pmf(leaks, n, p)

    assert wrong <= alpha


def certain(lower, leak):
    """A certain lower end of question a, by trees whose leak is ``leak``."""
    guarantee = (0.0, Covers.ONE_PROMPT, "exact probabilities", "answer tree")
    rows = Rows("npo")
    rows.add("question", "leak", "exact", None, Bound(lower, "lower", *guarantee), item="a")
    how = {"how": {"leak": leak}}
    queried = Result("npo", "model", "queried", "exact", estimate=1, evidence=how)
    return [*rows.rows, queried]


def test_a_certain_leak_outweighs_answers_without_one():
    found = finding({"a": (0, 400)}, more=certain(0.3, SCORER))

    assert (found.word, found.at_least.value) == ("leaks", 0.3)
    assert "exact probabilities" in found.at_least.assumes


def test_trees_of_another_scorer_are_left_out():
    assert finding({"a": (0, 400)}, more=certain(0.3, "rouge_l above 0.5")).word == "bounded"


def test_a_persons_labels_are_not_joined_with_a_scorers_tree():
    """A scorer's tree may be certain that the scorer calls nothing a leak, while a person reads leaks."""
    rows = Rows("npo")
    labels = (0.01, Covers.ONE_PROMPT, "a person's label is the truth", "Clopper-Pearson", 400)
    ends = Bound(0.4, "lower", *labels), Bound(0.6, "upper", *labels)
    evidence = {"leaks": 200, "n": 400, "missing": 0}
    rows.add(
        "question", "leak", "labelled", None, *ends, item="a", split="forget", evidence=evidence
    )
    certain = (0.0, Covers.ONE_PROMPT, "exact probabilities", "answer tree")
    ends = Bound(0.0, "lower", *certain), Bound(0.01, "upper", *certain)
    rows.add("question", "leak", "exact", None, *ends, item="a", split="forget")
    rows.add("model", "queried", "exact", 1, evidence={"how": {"leak": SCORER}})

    found = finding({"a": (0, 400)}, more=rows.rows)

    assert (found.word, found.leaks) == ("leaks", 200)
    assert found.at_most.assumes == "a person's label is the truth"
