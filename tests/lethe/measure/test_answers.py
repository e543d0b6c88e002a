"""What is asked of the answers: the worst of each question, and their histogram."""

from dataclasses import replace

import numpy as np
import pandas as pd
from hypothesis import given
from hypothesis import strategies as st

from lethe.measure.answers import BINS, question_answers
from lethe.measure.run import RunModel

MODEL = RunModel("m", "subject", "m")


RANKING = ("keyword_leak", "rouge_l")


def model(rows: list[tuple]) -> RunModel:
    columns = ["prompt_id", "sample", "text", "keyword_leak", "rouge_l"]
    return replace(MODEL, answers={"forget": pd.DataFrame(rows, columns=columns)})


SCORES = {text: (leak, rouge) for text, leak, rouge in [
    ("a", 1.0, 0.5), ("b", 0.0, 0.5), ("c", 0.0, 0.0), ("d", 1.0, np.nan), ("e", np.nan, np.nan), ("f", 1.0, 0.5)
]}  # fmt: skip


DRAWS = st.lists(
    st.tuples(st.sampled_from(["q2", "q1", "q3"]), st.sampled_from(sorted(SCORES))),
    min_size=1,
    max_size=40,
)


@given(DRAWS, st.integers(0, 4))
def test_the_worst_answers_are_those_of_a_naive_search(draws, most):
    rows = [
        (question, sample, text, *SCORES[text]) for sample, (question, text) in enumerate(draws)
    ]
    found = question_answers(
        model([("q1", -1, "a", 1.0, 0.5), *rows]).answers, RANKING, "rouge_l", most
    )
    for question in {question for question, _ in draws}:
        texts = [text for asked, text in draws if asked == question]
        first = {
            text: next(row[1] for row in rows if row[0] == question and row[2] == text)
            for text in set(texts)
        }
        leaking = [text for text in first if np.nan_to_num(SCORES[text]).max() > 0]
        order = sorted(
            leaking,
            key=lambda text: (*(-np.nan_to_num(SCORES[text])), -texts.count(text), first[text]),
        )
        told = found[question]
        assert told.drawn == len(texts)
        assert [answer.text for answer in told.worst] == order[:most]
        for answer in told.worst:
            assert (answer.times, answer.first) == (texts.count(answer.text), first[answer.text])
            assert answer.greedy == (question == "q1" and answer.text == "a")
            assert [value is None for value in answer.scores] == [
                bool(np.isnan(s)) for s in SCORES[answer.text]
            ]


@given(
    st.lists(
        st.one_of(st.just(np.nan), st.floats(0, 1), st.sampled_from(np.linspace(0, 1, BINS + 1))),
        max_size=50,
    )
)
def test_the_histogram_is_that_of_numpy(scores):
    rows = [("q", sample, "t", 0.0, score) for sample, score in enumerate([*scores, 0.5])]
    found = question_answers(model(rows).answers, RANKING, "rouge_l", 0)["q"]
    values = np.array([*scores, 0.5])
    expected = np.histogram(values[~np.isnan(values)], bins=np.linspace(0, 1, BINS + 1))[0]
    assert list(found.histogram) == expected.tolist()
