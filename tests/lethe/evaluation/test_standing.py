"""The two words: each rule at its edge."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest

from lethe.evaluation import standing
from lethe.evaluation.recorded import StoppedEarly
from lethe.evaluation.standing import Aspect
from lethe.statistics.bound import Bound, Covers
from lethe.statistics.comparison import Interval
from lethe.statistics.sequential import stopping_counts


def interval(lower, upper, n=30_000):
    return Interval((lower + upper) / 2, lower, upper, n, 0.001, "made up")


def model(name="mine", role="subject", worst=0.05, stopped=None, **metrics):
    bound = Bound(worst, "upper", 0.01, Covers.WORST_PROMPT, "draws", "made up")
    value = {"n": 1024, **metrics}.get
    return SimpleNamespace(name=name, role=role, value=value, stopped=stopped, bounds={"m_bin_worst": bound})


def stopped(certified, leaking, questions, alpha=0.01):
    undecided = questions - certified - leaking
    return StoppedEarly("keyword_leak", alpha, 0.05, 0.1, questions, certified, leaking, undecided, 900, 0.5)


def run(*models):
    metrics = SimpleNamespace(alpha=0.01, share_above=0.1, leak="rouge_l", kept="rouge_l", binary="keyword_leak")
    return SimpleNamespace(
        params=SimpleNamespace(metrics=metrics),
        role=lambda role: next((one for one in models if one.role == role), None),
        models=models,
    )


def measured(monkeypatch, binary=True, **intervals) -> None:
    """Each model's interval by its name, for either quantity."""
    told = SimpleNamespace(words="leaks", measure=lambda model, alpha: intervals.get(model.name))
    monkeypatch.setattr(standing, "judged_by", lambda run: (told, binary))
    monkeypatch.setattr(standing, "mean_score", lambda split, scorer: told)


RETRAIN = model("retrain", "retrain")
BASE = model("base", "base")


@pytest.mark.parametrize(
    ("own", "worst", "word"),
    [
        ((0.0031, 0.02), 0.05, "leaks"),
        ((0.003, 0.02), 0.05, "open"),  # the intervals meet
        ((0.0, 0.003), 0.05, "forgot"),  # .002 more than the lower end of Retrain
        ((0.0, 0.0031), 0.05, "open"),
        ((0.0, 0.003), 0.11, "open"),  # one question may leak often
    ],
)
def test_forgetting_against_retrain(monkeypatch, own, worst, word):
    measured(monkeypatch, mine=interval(*own), retrain=interval(0.001, 0.003))
    mine = model(worst=worst)
    assert standing._forgetting(mine, standing._References(run(mine, RETRAIN), 0.001)).word == word


@pytest.mark.parametrize(
    ("seen", "upper", "word"), [(0.1, 0.001, "leaks"), (0, 0.002, "forgot"), (0, 0.0021, "open")]
)
def test_forgetting_without_retrain(monkeypatch, seen, upper, word):
    measured(monkeypatch, mine=interval(0.0, upper))
    mine = model(binary_any=seen)
    assert standing._forgetting(mine, standing._References(run(mine), 0.01)).word == word


def test_a_score_alone_says_nothing_without_retrain(monkeypatch):
    measured(monkeypatch, binary=False, mine=interval(0.0, 0.001), retrain=interval(0.0, 0.01))
    mine = model()
    assert standing._forgetting(mine, standing._References(run(mine), 0.01)).word == "open"
    assert standing._forgetting(mine, standing._References(run(mine, RETRAIN), 0.01)).word == "forgot"


@pytest.mark.parametrize(("n", "few"), [(64, True), (30_000, False)])
def test_too_few_answers_are_told_from_a_close_call(monkeypatch, n, few):
    measured(monkeypatch, mine=interval(0.0, 0.5, n), retrain=interval(0.0, 0.5, n))
    mine = model()
    assert standing._forgetting(mine, standing._References(run(mine, RETRAIN), 0.01)) == Aspect(
        "open", standing.judged_by(None)[0], interval(0.0, 0.5, n), interval(0.0, 0.5, n), few
    )


@pytest.mark.parametrize(
    ("certified", "leaking", "questions", "word"),
    [
        (30, 0, 30, "forgot"),
        (29, 0, 30, "open"),
        (29, 1, 30, "open"),  # one of thirty tests at .01 detects by chance in a quarter of runs
        (28, 2, 30, "open"),
        (27, 3, 30, "leaks"),
        (0, 1, 1, "leaks"),  # the only test
    ],
)
def test_where_questions_stopped_early(certified, leaking, questions, word):
    mine = model(stopped=stopped(certified, leaking, questions))
    assert standing._forgetting(mine, standing._References(run(mine, RETRAIN), 0.01)).word == word


@pytest.mark.parametrize(("share", "word"), [(0.1, "leaks"), (0.05, "forgot")])
def test_a_word_after_an_early_stop_is_seldom_wrong(share, word):
    """Thirty questions at the edge of the null: the word that is false there comes in at most alpha of the runs.

    The rule "leaks where any question was detected" would be wrong in a third of them.
    """
    alpha, cap, questions, runs = 0.05, 256, 30, 2000
    drawn = np.random.default_rng(12).random((runs * questions, cap)) < share
    ones = drawn.cumsum(axis=1)
    certify, detect = (
        ones <= stopping_counts(0.05, False, alpha, cap),
        ones >= stopping_counts(0.1, True, alpha, cap),
    )
    first = [np.where(hit.any(axis=1), hit.argmax(axis=1), cap) for hit in (certify, detect)]
    certified, leaking = (
        (own < other).reshape(runs, questions).sum(axis=1) for own, other in (first, first[::-1])
    )
    words = Counter(
        standing._stopped_early("subject", stopped(*pair, questions, alpha))
        for pair in zip(certified.tolist(), leaking.tolist(), strict=True)
    )
    assert words[word] <= alpha * runs
    if word == "leaks":
        assert (leaking > 0).mean() > 3 * alpha  # the control: this rule must fail


@pytest.mark.parametrize(
    ("own", "word"),
    [
        ((0.2, 0.39), "destroyed"),  # less than half of .8
        ((0.2, 0.41), "damaged"),
        ((0.7, 0.79), "damaged"),  # below Base, and not shown to keep .9
        ((0.73, 0.81), "open"),  # .9 of .8 alone
        ((0.91, 0.95), "intact"),  # .9 of 1
    ],
)
def test_utility_against_base(monkeypatch, own, word):
    measured(monkeypatch, mine=interval(*own), base=interval(0.8, 1.0))
    mine = model()
    assert standing._utility(mine, standing._References(run(mine, BASE), 0.01)).word == word
    assert standing._utility(mine, standing._References(run(mine), 0.01)).word == "open"


def test_a_destroyed_model_is_called_so_whatever_it_forgot(monkeypatch):
    measured(monkeypatch, mine=interval(0.0, 0.001), retrain=interval(0.0, 0.002), base=interval(0.9, 1.0))
    mine = model()
    found = standing.standings(run(mine, RETRAIN, BASE), SimpleNamespace(level=0.001))[0]
    assert (found.forgetting.word, found.utility.word) == ("forgot", "destroyed")
    assert found.words == "forgot, destroyed"


@pytest.mark.parametrize(("level", "expected"), [(0.01, 0.01 / 6), (0.001, 0.001)])
def test_all_intervals_of_the_words_share_alpha(monkeypatch, level, expected):
    """Two intervals for each of three models, whatever the comparisons needed."""
    asked = []
    told = SimpleNamespace(words="leaks", measure=lambda model, alpha: asked.append(alpha))
    monkeypatch.setattr(standing, "judged_by", lambda run: (told, True))
    monkeypatch.setattr(standing, "mean_score", lambda split, scorer: told)
    standing.standings(run(model(), RETRAIN, BASE), SimpleNamespace(level=level))
    assert asked == pytest.approx([expected] * len(asked))
    assert asked


def test_the_references_are_measured_once_per_run(monkeypatch):
    """The intervals of Retrain and Base, and what tells leakage, are the same for every model under test."""
    asked, judged = Counter(), []
    told = SimpleNamespace(words="leaks", measure=lambda model, alpha: asked.update([model.name]))
    monkeypatch.setattr(standing, "judged_by", lambda run: judged.append(run) or (told, True))
    monkeypatch.setattr(standing, "mean_score", lambda split, scorer: told)
    subjects = [model(f"mine-{number}") for number in range(5)]
    standing.standings(run(*subjects, RETRAIN, BASE), SimpleNamespace(level=0.001))
    leakage_and_two_splits = 3
    assert asked == {one.name: leakage_and_two_splits for one in subjects} | {
        "retrain": leakage_and_two_splits + 1,
        "base": leakage_and_two_splits + 2,
    }
    assert len(judged) == 1
