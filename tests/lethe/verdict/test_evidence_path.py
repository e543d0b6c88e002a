"""The path of the evidence: each point is what the first answers alone say, and the last is the evidence of the word."""

import math

import numpy as np
import pandas as pd
import pytest

from lethe.io.tables import write_parquet
from lethe.statistics.anytime import Counts, log_e_forgot, log_e_leaks
from lethe.verdict.deciding import compared
from lethe.verdict.evidence_path import paths, points
from tests.lethe.verdict.deciding import ALPHA, TAU, drawn, model, params, run_of

SETTINGS = params(report={"retrain": ["retrain"], "models": None})


def verdicts(leaks_at, n, missing_at=()):
    values = np.zeros(n)
    values[list(leaks_at)] = 1
    values[list(missing_at)] = np.nan
    return values


def write(root, place, values_of_question, cut=()):
    """Generations and scores in drawing order, each question with a greedy answer that leaks."""
    keys = []
    values = []
    ends = []
    for question, of_question in values_of_question.items():
        for sample, value in enumerate([1.0, *of_question], start=-1):
            keys.append((question, sample))
            values.append(value)
            ends.append("length" if sample in cut else "stop")
    table = pd.DataFrame(keys, columns=["prompt_id", "sample"])
    parts = {
        "generations": table.assign(text="", tokens=1, finish_reason=ends, mean_confidence=1.0),
        "scores": table.assign(keyword_leak=values),
    }
    for part, content in parts.items():
        path = root / part / place
        path.parent.mkdir(parents=True, exist_ok=True)
        write_parquet(path, content)


def counted(item, values):
    missing = int(np.isnan(values).sum())
    return drawn(item, int((values == 1).sum()), len(values), "anytime", missing)


def naive(values, n):
    first = values[:n]
    return Counts(int((first == 1).sum()), len(first), int(np.isnan(first).sum()))


MINE = {"a": verdicts([0, 40, 41, 90], 300, missing_at=[7, 200]), "b": verdicts([], 1500)}
CHANCE = {"a": verdicts([3, 100], 120), "b": verdicts([5], 700, missing_at=[600])}


def path_of(root, mine=MINE, chance=CHANCE, settings=SETTINGS):
    subject = model("mine", *(counted(item, values) for item, values in mine.items()))
    retrain = model(
        "retrain", *(counted(item, values) for item, values in chance.items()), role="retrain"
    )
    return {row.item: row for row in paths(run_of(subject, retrain, settings=settings), root)}


@pytest.mark.parametrize("item", ["a", "b"])
@pytest.mark.parametrize("place", ["retrain/forget.parquet", "mine/beside/retrain.parquet"])
def test_each_point_is_the_evidence_of_the_first_answers_of_both(tmp_path, item, place):
    write(tmp_path, "mine/forget.parquet", MINE)
    write(tmp_path, place, CHANCE)

    facts = path_of(tmp_path)[item].facts

    assert facts["n"] == points(len(MINE[item]))
    for n, forgot, leaks in zip(facts["n"], facts["forgot"], facts["leaks"], strict=True):
        counts = naive(MINE[item], n)
        chance = naive(CHANCE[item], n)
        assert forgot == pytest.approx(log_e_forgot(counts, [chance], TAU), rel=1e-12)
        assert leaks == pytest.approx(log_e_leaks(counts, [chance], TAU), rel=1e-12)


def test_the_last_point_and_the_goal_are_those_of_the_word(tmp_path):
    more = {item: np.concatenate([values, np.zeros(2000)]) for item, values in CHANCE.items()}
    write(tmp_path, "mine/forget.parquet", MINE)
    write(tmp_path, "retrain/forget.parquet", more)

    rows = path_of(tmp_path, chance=more)

    subject = model("mine", *(counted(item, values) for item, values in MINE.items()))
    retrain = model(
        "retrain", *(counted(item, values) for item, values in more.items()), role="retrain"
    )
    [(_, sides)] = compared(run_of(subject, retrain, settings=SETTINGS))
    for place, row in enumerate(rows.values()):
        assert row.facts["forgot"][-1] == sides.forgotten[place]
        assert row.facts["leaks"][-1] == sides.leaking(TAU)[place]
        assert row.facts["goal"] == pytest.approx(math.log(1 / ALPHA))


def test_without_retrain_a_question_is_alone(tmp_path):
    write(tmp_path, "mine/forget.parquet", MINE)
    subject = model("mine", *(counted(item, values) for item, values in MINE.items()))

    _, row = paths(run_of(subject, settings=SETTINGS), tmp_path)

    assert row.n == 1500
    for n, forgot in zip(row.facts["n"], row.facts["forgot"], strict=True):
        assert forgot == pytest.approx(log_e_forgot(Counts(0, n), [], TAU), rel=1e-12)


def test_a_cut_answer_is_missing_where_the_settings_say_so(tmp_path):
    values = verdicts([2, 30], 100)
    with_cut = values.copy()
    with_cut[[20, 50]] = np.nan
    write(tmp_path, "mine/forget.parquet", {"a": values}, cut=[2, 20, 50])
    subject = model("mine", counted("a", with_cut))
    settings = params(report={"retrain": [], "models": None}, sample={"truncated": "missing"})

    (row,) = paths(run_of(subject, settings=settings), tmp_path)

    expected = [log_e_forgot(naive(with_cut, n), [], TAU) for n in points(100)]
    assert row.facts["forgot"] == pytest.approx(expected, rel=1e-12)


def test_counts_that_the_answers_do_not_lead_to_have_no_path(tmp_path):
    other = {"a": verdicts([1], 300), "b": MINE["b"]}
    write(tmp_path, "mine/forget.parquet", other)
    write(tmp_path, "retrain/forget.parquet", CHANCE)

    assert list(path_of(tmp_path)) == ["b"]


def test_models_that_share_random_numbers_have_no_path(tmp_path):
    write(tmp_path, "mine/forget.parquet", MINE)
    write(tmp_path, "retrain/forget.parquet", CHANCE)
    subject = model("mine", *(counted(item, values) for item, values in MINE.items()))
    retrain = model(
        "retrain", *(counted(item, values) for item, values in CHANCE.items()), role="retrain"
    )
    for question in subject.questions:
        row = question.numbers.row("leak", "anytime")
        row.evidence["stream"] = "shared"

    assert paths(run_of(subject, retrain, settings=SETTINGS), tmp_path) == []
