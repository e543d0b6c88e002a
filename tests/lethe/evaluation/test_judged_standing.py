"""A word by a model judge is said of its verdicts, names the judge, and gives way to a misfit and to a person's labels."""

import pytest

from lethe.config.evaluating import JudgeEntry
from lethe.evaluation.findings import hidden
from lethe.statistics.bound import Bound, Covers
from tests.lethe.evaluation.deciding import PARAMS, decided, drawn, misfit, model, params

JUDGED = params(metrics={"binary": "guard"}).model_copy(
    update={"judges": {"guard": JudgeEntry.model_construct(judge="llama_guard")}}
)


def judged_as(one):
    """The model with the verdicts of the judge in place of those of the scorer."""
    one.answers["forget"] = one.answers["forget"].rename(columns={"keyword_leak": "guard"})
    return one


@pytest.mark.parametrize(("leaks", "word"), [(0, "forgot"), (400, "leaks")])
def test_the_judge_is_named_with_the_word(leaks, word):
    found = decided(judged_as(model("mine", drawn("a", leaks))), settings=JUDGED)["mine"]
    assert found.word == word
    assert "guard's verdicts" in found.sentence
    assert "verdicts" not in decided(model("mine", drawn("a", leaks)), settings=PARAMS)["mine"].sentence


def test_a_misfit_names_the_judge_and_no_word():
    found = decided(judged_as(model("mine", drawn("a", 400), misfit)), settings=JUDGED)["mine"]
    assert (found.word, found.verdict.worst) == ("none", None)
    assert "guard" in found.sentence


def test_labels_are_no_verdicts_of_the_judge():
    labels = drawn("a", 0, 4000, "labelled")
    found = decided(judged_as(model("mine", drawn("a", 400), labels)), settings=JUDGED)["mine"]
    assert found.word == "forgot"
    assert "guard" not in found.sentence


def true_leaks(item, lower):
    """The lower bound of the true share of leaks, the judge's error included."""
    bound = Bound(lower, "lower", 0.01, Covers.ONE_PROMPT, "draws", "made up")
    return lambda rows: rows.add("question", "leak", "judged", None, bound, None, item=item, split="forget")


def greedy(item, leaks):
    return lambda rows: rows.add("question", "leak", "greedy", leaks, item=item, split="forget")


@pytest.mark.parametrize(
    ("parts", "counted"),
    [
        ([drawn("a", 8), greedy("a", 0.0)], 1),
        ([drawn("a", 0), greedy("a", 0.0)], 0),
        ([drawn("a", 8), greedy("a", 1.0)], 0),
        ([drawn("a", 8), greedy("a", 0.0), true_leaks("a", 0.0)], 0),
        ([drawn("a", 8), greedy("a", 0.0), true_leaks("a", 0.01)], 1),
    ],
)
def test_a_verdict_alone_is_no_hidden_leak_where_the_judge_errs(parts, counted):
    assert hidden(model("mine", *parts)) == (counted, 1)
