"""Questions that stop early, are judged, or are asked for their answers: only what may be looked at is claimed."""

import dataclasses
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lethe import config
from lethe.config.evaluating import Metrics
from lethe.evaluation.answers import BINS, question_answers, scored
from lethe.evaluation.findings import METHOD, _both, judged_exactly, mean_leak_interval, share_that_leaks
from lethe.evaluation.measure import measure_stopped
from lethe.evaluation.run import Model
from lethe.sampling.engine import AnswerStore, Prompt, Settings
from lethe.sampling.tasks import Task, draw_sequentially
from lethe.scoring import scorer
from lethe.statistics.bound import Interval
from lethe.statistics.many_prompts import share_interval
from lethe.statistics.sequential import Decision
from tests.lethe.evaluation.deciding import certified, of_questions
from tests.lethe.report.conftest import load
from tests.lethe.report.synthetic import write_run
from tests.lethe.sampling.test_tasks import ITEMS, RULE, Told
from tests.small import ROOT

METRICS = Metrics(
    alpha=0.01, rho=2.0, leak="keyword_leak", binary="keyword_leak", thresholds=[0.5], share_above=0.1
)
CAP, NAMES = 200, ("clean", "leaky", "between")


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    task = Task("forget", [Prompt(name, (1, 2)) for name in NAMES], Settings(n=CAP, max_new_tokens=4, seed=1))
    store = AnswerStore("m", "told", tmp_path_factory.mktemp("store"))
    answers, decisions = draw_sequentially(task, ITEMS, Told(), store, RULE, "")
    judge = scorer("keyword_leak")
    leaks = np.concatenate(
        [judge(list(rows["text"]), ITEMS[name]) for name, rows in answers.groupby("prompt_id", sort=False)]
    )
    scores = answers[["prompt_id", "sample"]].assign(keyword_leak=leaks)
    return answers, scores, {row.pop("prompt_id"): Decision(**row) for row in decisions}


@pytest.fixture(scope="module")
def rows(drawn):
    answers, scores, decisions = drawn
    return measure_stopped("m", {"forget": answers}, {"forget": scores}, METRICS, decisions, "keyword_leak")


def test_the_verdicts_come_with_bounds_that_agree(rows):
    found = {name: own.values for name, own in of_questions(rows).items()}
    assert {name: row["verdict"] for name, row in found.items()} == {
        "clean": "certified",
        "leaky": "leaks",
        "between": "undecided",
    }
    assert found["clean"]["anytime_upper"] <= RULE.tau
    assert found["leaky"]["anytime_lower"] >= RULE.tau_leak
    assert found["between"]["anytime_lower"] < RULE.tau_leak
    assert found["between"]["anytime_upper"] > RULE.tau
    for row in found.values():
        assert row["anytime_lower"] <= row["anytime_upper"]
        assert 0 <= row["anytime_sd_upper"] <= 1


MODEL = Model("m", "subject", "m")
RANKING = ("keyword_leak", "rouge_l")


def model(rows: list[tuple]) -> Model:
    columns = ["prompt_id", "sample", "text", "keyword_leak", "rouge_l"]
    return replace(MODEL, answers={"forget": pd.DataFrame(rows, columns=columns)})


SCORES = {text: (leak, rouge) for text, leak, rouge in [
    ("a", 1.0, 0.5), ("b", 0.0, 0.5), ("c", 0.0, 0.0), ("d", 1.0, np.nan), ("e", np.nan, np.nan), ("f", 1.0, 0.5)
]}  # fmt: skip
DRAWS = st.lists(
    st.tuples(st.sampled_from(["q2", "q1", "q3"]), st.sampled_from(sorted(SCORES))), min_size=1, max_size=40
)


@given(DRAWS, st.integers(0, 4))
def test_the_worst_answers_are_those_of_a_naive_search(draws, most):
    rows = [(question, sample, text, *SCORES[text]) for sample, (question, text) in enumerate(draws)]
    found = question_answers(model([("q1", -1, "a", 1.0, 0.5), *rows]).answers, RANKING, "rouge_l", most)
    for question in {question for question, _ in draws}:
        texts = [text for asked, text in draws if asked == question]
        first = {
            text: next(row[1] for row in rows if row[0] == question and row[2] == text) for text in set(texts)
        }
        leaking = [text for text in first if np.nan_to_num(SCORES[text]).max() > 0]
        order = sorted(
            leaking, key=lambda text: (*(-np.nan_to_num(SCORES[text])), -texts.count(text), first[text])
        )
        told = found[question]
        assert told.drawn == len(texts)
        assert [answer.text for answer in told.worst] == order[:most]
        for answer in told.worst:
            assert (answer.times, answer.first) == (texts.count(answer.text), first[answer.text])
            assert answer.greedy == (question == "q1" and answer.text == "a")
            assert [value is None for value in answer.scores] == [bool(np.isnan(s)) for s in SCORES[answer.text]]


@given(
    st.lists(
        st.one_of(st.just(np.nan), st.floats(0, 1), st.sampled_from(np.linspace(0, 1, BINS + 1))), max_size=50
    )
)
def test_the_histogram_is_that_of_numpy(scores):
    rows = [("q", sample, "t", 0.0, score) for sample, score in enumerate([*scores, 0.5])]
    found = question_answers(model(rows).answers, RANKING, "rouge_l", 0)["q"]
    values = np.array([*scores, 0.5])
    expected = np.histogram(values[~np.isnan(values)], bins=np.linspace(0, 1, BINS + 1))[0]
    assert list(found.histogram) == expected.tolist()


ALPHA = 0.01
SAMPLES = "Clopper-Pearson, pooled"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    root, models = tmp_path_factory.mktemp("run"), config.read_yaml(ROOT / "params.yaml")["models"]
    write_run(root, 3, 64, models={name: models[name] for name in ("base", "retrain", "npo")})
    return load(root)


def with_exact(run, **exact):
    models = [dataclasses.replace(model, exact=exact.get(model.name)) for model in run.models]
    return dataclasses.replace(run, models=models)


def interval(run, name="npo", alpha=ALPHA):
    model = next(model for model in run.models if model.name == name)
    return share_that_leaks(model, "keyword_leak", alpha, judged_exactly(run.params))


@pytest.mark.parametrize("rho", [10.0, 1000.0])
@pytest.mark.parametrize("leaks", [0, 3])
def test_each_source_takes_half_the_level_whatever_came_out(run, rho, leaks):
    found = certified(run.forget, 0.03, 0.9, rho, leaks)
    joined = with_exact(run, npo=found)
    model = next(model for model in joined.models if model.name == "npo")
    sampled = share_interval(scored(model.answers, "forget", "keyword_leak"), ALPHA / 2)
    exact = mean_leak_interval(
        [(tree.masses, tree.remainder) for tree in found.trees], [tree.lower for tree in found.trees], ALPHA / 2
    )
    own = interval(joined)
    assert (own.lower, own.upper) == (max(sampled.lower, exact.lower), min(sampled.upper, exact.upper))
    assert (own.alpha, own.method) == (ALPHA, METHOD)
    assert {bound.alpha for bound in own.bounds()} == {ALPHA / 2}
    assert sampled.assumes in own.assumes
    assert exact.assumes in own.assumes


def test_ends_that_exclude_each_other_give_an_interval():
    def of(lower, upper):
        return Interval((lower + upper) / 2, lower, upper, 100, ALPHA / 2, "made up")

    for first, second in (((0.1, 0.2), (0.3, 0.4)), ((0.3, 0.4), (0.1, 0.2)), ((0.1, 0.4), (0.2, 0.3))):
        found = _both(of(*first), of(*second), ALPHA)
        assert second[0] <= found.lower <= found.upper <= second[1]


def test_it_needs_the_same_scorer_the_same_questions_and_probabilities_that_hold_elsewhere(run):
    sharp = certified(run.forget, 0.3, 0.6, 1e4)
    alone = interval(run)
    assert alone.method == SAMPLES
    assert interval(with_exact(run, npo=sharp)).method == METHOD
    for other in (None, run.params.exact.model_copy(update={"scorer": "exact_match"})):
        assert not judged_exactly(run.params.model_copy(update={"exact": other}))
    scorers = [{"keyword_leak": {"keyword_match": "substring"}}]
    score = run.params.score.model_copy(update={"scorers": scorers})
    assert not judged_exactly(run.params.model_copy(update={"score": score}))
    sample = run.params.sample.model_copy(update={"language": "flows/languages/wordings.yaml"})
    assert not judged_exactly(run.params.model_copy(update={"sample": sample}))  # the samples are of other prompts
    fewer = certified(list(run.forget)[1:], 0.3, 0.6, 1e4)
    rounded = certified(run.forget, 0.3, 0.6, 1e4, dtype="bfloat16", note="as computed here")
    unsampled = certified(run.forget, 0.3, 0.6, 0.0)
    for found in (fewer, rounded, unsampled):
        assert interval(with_exact(run, npo=found)) == alone  # at the whole level
