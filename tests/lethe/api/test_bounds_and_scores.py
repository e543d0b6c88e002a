"""`lethe.bounds` and `lethe.score`: each form of the input gives the same result, a mistake is a sentence."""

import json

import numpy as np
import pandas as pd
import pytest

import lethe
from lethe.errors import BadInput

SCORES = {"a": [0.0, 0.5, 1.0, 0.25], "b": [1.0, 0.0, 0.0, 0.0]}


def test_every_form_of_scores_gives_the_same_bounds(tmp_path):
    table = pd.DataFrame([(name, i, score) for name, own in SCORES.items() for i, score in enumerate(own)])
    table.columns = ["prompt_id", "sample", "score"]
    table.drop(columns="sample").to_csv(tmp_path / "scores.csv", index=False)
    greedy = pd.DataFrame({"prompt_id": ["a", "b"], "sample": -1, "score": 1.0})
    expected = lethe.bounds(SCORES, alpha=0.05).to_frame()
    for given in (tmp_path / "scores.csv", str(tmp_path / "scores.csv"), table, pd.concat([greedy, table])):
        assert lethe.bounds(given, alpha=0.05).to_frame().equals(expected)
    values = expected.drop(columns="prompt_id")
    for given in (list(SCORES.values()), np.array(list(SCORES.values()))):
        assert lethe.bounds(given, alpha=0.05).to_frame().drop(columns="prompt_id").equals(values)
    assert lethe.bounds(table[["score"]], alpha=0.05).to_frame()["n"].tolist() == [8]
    assert lethe.bounds(SCORES["a"], alpha=0.05).to_frame()["m_mu"].tolist() == [expected["m_mu"][0]]


def test_a_score_of_one_task_is_about_its_own_prompts(tmp_path):
    def task(count):
        rows = {str(i): {"rougeL_f1": i % 2, "generation": "a", "input": "q"} for i in range(count)}
        return {"agg_value": 0.5, "value_by_index": rows}

    (tmp_path / "TOFU_EVAL.json").write_text(json.dumps({"forget_Q": task(6), "retain_Q": task(4)}))
    found = lethe.bounds(tmp_path / "TOFU_EVAL.json", score="retain_Q.rougeL_f1")
    assert [one.prompt_id for one in found.prompts] == [f"retain_Q/{i}" for i in range(4)]
    assert found.log.missing == 0


def test_a_table_keeps_its_order_and_says_how_missing_counts():
    table = pd.DataFrame({"prompt_id": [7, 3, 7, 3], "score": [0.0, np.nan, 1.0, 0.0]})
    found = lethe.bounds(table, missing="worst")
    assert [(one.prompt_id, one.n, one.missing) for one in found.prompts] == [("7", 2, 0), ("3", 2, 1)]
    assert [one.n for one in lethe.bounds(table, missing="drop").prompts] == [2, 1]
    with pytest.raises(BadInput, match="missing='worst'"):
        lethe.bounds(table)
    with pytest.raises(BadInput, match="column 'score'"):
        lethe.bounds(pd.DataFrame({"scores": [1.0]}))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: lethe.score("text", "rouge_l", answer="a"), "Put a single text into a list"),
        (lambda: lethe.score(["text"], "rouge_l"), "scorer rouge_l: .* gave nothing. Give answer or keywords"),
        (lambda: lethe.score(["text"], "keyword_leak", answer="a"), "scorer keyword_leak: .* gave answer"),
        (lambda: lethe.score(["text"], "rouge_w", answer="a"), "scorer: got 'rouge_w'"),
        (lambda: lethe.score(["text"], "keyword_leak", keywords="Paris"), "keywords: got 'Paris'"),
        (lambda: lethe.score(["text"], "llm"), "scorer: got 'llm'.* needs model, rubric"),
        (lambda: lethe.bounds(["no"]), "scores: got"),
        (lambda: lethe.bounds([[0, 1], [1]]), "scores: got"),
    ],
)
def test_a_mistake_is_a_sentence(call, words):
    with pytest.raises(BadInput, match=words):
        call()
