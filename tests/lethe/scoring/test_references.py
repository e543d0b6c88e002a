"""Answers to a wording that asks for something else are scored against that, by every scorer and judge."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from lethe import config
from lethe.config.evaluating import ScorerParams
from lethe.data.prompt_language import as_json, read_language
from lethe.errors import BadFile
from lethe.evaluation.labels import read_draws
from lethe.io.artifacts import SECOND, expected, read_references
from lethe.io.tables import write_parquet
from lethe.registry import JUDGES
from lethe.scoring import asked_of, score_answers
from lethe.scoring.judges import Judge
from lethe.steps import score
from tests.cases import read_cases
from tests.small import small_params

ROWS = read_cases(__file__)["ROWS"]
LANGUAGE = 'wording: ["{question}", {name: back, text: "Who was it in {answer}?", answer: "{who}"}]\n'
PLAIN, BACK = "wording: plain", "wording: back"
# prompt, sample, text, production, whether it leaks
DRAWN = read_cases(__file__)["DRAWN"]


@pytest.fixture
def root(tmp_path) -> Path:
    (tmp_path / "language.yaml").write_text(LANGUAGE)
    described = as_json(read_language(tmp_path / "language.yaml"), ROWS)
    table = pd.DataFrame(
        [entry[:4] for entry in DRAWN], columns=["prompt_id", "sample", "text", "production"]
    ).assign(tokens=3, finish_reason="stop", mean_confidence=0.5)
    folder = tmp_path / "generations/m"
    write_parquet(folder / "forget.parquet", table)
    second = table[table["sample"] >= 0].assign(prompt=0)
    write_parquet(folder / SECOND, second.assign(sample=range(len(second))))
    (folder / "language.json").write_text(json.dumps({"schema": 1, **described}))
    write_parquet(tmp_path / "likelihood/m/forget.parquet", pd.DataFrame(LIKELIHOOD))
    (tmp_path / "dataset").mkdir()
    (tmp_path / "dataset/forget.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return tmp_path


LIKELIHOOD = {"prompt_id": ["q1"], "kind": ["answer"], "index": [0], "nll": [1.0], "tokens": [1]}
LEAKS = [float(entry[-1]) for entry in DRAWN]


class Finds(Judge):
    def judge(self, asked):
        return np.array([any(keyword in one.text for keyword in one.item["keywords"]) for one in asked])


def test_each_answer_is_scored_against_what_its_wording_asks_for(root, monkeypatch):
    monkeypatch.setitem(JUDGES.registered, "finds", Finds)
    drawn = pd.read_parquet(root / "generations/m/forget.parquet")
    items = {row["id"]: row for row in ROWS}
    references = read_references(root / "generations/m")
    scored = score_answers(
        drawn, items, ["keyword_leak", "finds"], {"finds": ScorerParams()}, references=references
    )
    assert (scored["keyword_leak"].tolist(), scored["finds"].tolist()) == (LEAKS, LEAKS)
    row = references["q1"][BACK].of(ROWS[0])
    assert (row["id"], row["question"], row["answer"], row["keywords"]) == (
        "q1",
        "Who was it in Oslo?",
        "Ada",
        ["Ada"],
    )
    assert "perturbed_answer" not in row
    places, questions = asked_of(drawn, items, references)
    assert sorted(np.concatenate(places).tolist()) == list(range(len(DRAWN)))
    assert [question.item["answer"] for question in questions] == ["Oslo", "Ada", "Bert", "1937"]
    assert expected(ROWS[0], references) == "Oslo (back: Ada)"
    assert expected(ROWS[0], {}) == "Oslo"


def test_the_stage_reads_the_references(root, monkeypatch):
    monkeypatch.setattr("lethe.steps.score.score_likelihoods", lambda given, items: given)
    params = config.validate(small_params())
    score.run("m", params.score, root)
    assert pd.read_parquet(root / "scores/m/forget.parquet")["keyword_leak"].tolist() == LEAKS
    sampled = [leak for leak, entry in zip(LEAKS, DRAWN, strict=True) if entry[1] >= 0]
    assert pd.read_parquet(root / "scores/m" / SECOND)["keyword_leak"].tolist() == sampled


def test_labels_are_refused_where_an_answer_belongs_to_two_questions(root):
    with pytest.raises(BadFile, match="answer of their own"):
        read_draws(root / "generations/m", None, None, None)
