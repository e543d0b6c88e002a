"""Rows of several questions are no draws of one prompt, wherever the names of the questions stand."""

import numpy as np
import pandas as pd
import pytest

import lethe
from lethe.errors import BadInput
from lethe.io.facts import named
from tests.lethe.cli.calls import Command, written

bounds = Command("bounds")
N = 120
QUESTIONS = [f"q{number}" for number in range(20)]
DRAWN = np.random.default_rng(0).integers(0, 2, N).tolist()
LEAKS = [DRAWN if name == "q2" else [0] * N for name in QUESTIONS]


def rows(labels=QUESTIONS):
    """Scores of several questions, of which one leaks in half of its answers, below the column `part`."""
    return pd.DataFrame({"part": np.repeat(labels, N), "score": np.concatenate(LEAKS)})


@pytest.mark.parametrize("name", ["rank", "n", "count", "length", "words"])
def test_texts_that_repeat_are_no_measure(tmp_path, name):
    path = written(tmp_path / "scores.csv", rows().rename(columns={"part": name}))

    assert f"--by {name}" in bounds.refused(path, "--fail-above", "0.1")


def test_numbers_of_sections_may_name_the_questions(tmp_path):
    sections = [f"{chapter}.{part}" for chapter in range(1, 5) for part in range(1, 6)]
    path = written(tmp_path / "scores.csv", rows(sections))

    assert "--by part" in bounds.refused(path, "--fail-above", "0.1")


def test_a_measure_that_hardly_repeats_names_no_questions(tmp_path):
    table = pd.DataFrame({"score": [0] * N, "perplexity": np.linspace(1.5, 9.5, N)})
    table.loc[0, "perplexity"] = table.loc[1, "perplexity"]
    path = written(tmp_path / "scores.csv", table)

    assert bounds.call(path, "--fail-above", "0.1").exit_code == 0


@pytest.mark.parametrize("name", ["Frage", "Unnamed: 0"])
def test_a_text_of_its_own_in_each_row_may_name_a_question(tmp_path, name):
    table = pd.DataFrame({name: [f"Who is {number}?" for number in range(600)], "score": 0})
    path = written(tmp_path / "scores.csv", table)

    found = bounds.call(path, "--fail-above", "0.1")

    assert found.exit_code == 1
    assert "looks like ids" in found.output


def test_a_remark_in_each_row_names_no_question(tmp_path):
    notes = [f"Note {number}" for number in range(600)]
    path = written(tmp_path / "scores.csv", pd.DataFrame({"notes": notes, "score": 0}))

    assert bounds.call(path, "--fail-above", "0.1").exit_code == 0


def test_an_index_without_a_name_may_name_the_questions(tmp_path):
    path = tmp_path / "scores.parquet"
    rows().set_index("part").rename_axis(None).to_parquet(path)

    assert "--by" in bounds.refused(path, "--fail-above", "0.1")


def test_row_numbers_as_an_index_name_nothing(tmp_path):
    path = tmp_path / "scores.parquet"
    pd.DataFrame({"score": [0] * N}, index=range(5, N + 5)).to_parquet(path)

    assert bounds.call(path, "--fail-above", "0.1").exit_code == 0


def test_the_index_of_a_frame_in_memory_names_its_prompts():
    table = rows().rename(columns={"part": "prompt_id"}).set_index("prompt_id")

    assert lethe.bounds(table).as_json()["worst_prompt"]["prompt_id"] == "q2"


def test_the_index_of_a_series_names_its_prompts():
    table = rows().rename(columns={"part": "prompt_id"}).set_index("prompt_id")

    assert lethe.bounds(table["score"]).as_json()["worst_prompt"]["prompt_id"] == "q2"


def test_the_keys_of_joined_frames_are_asked_for():
    joined = pd.concat({name: part[["score"]] for name, part in rows().groupby("part")})

    with pytest.raises(BadInput, match="--by"):
        lethe.bounds(joined)


def test_the_name_of_a_series_says_that_a_1_is_no_leak():
    passed = pd.Series([1] * N, index=["a"] * N, name="passed").rename_axis("prompt_id")

    assert lethe.bounds(passed).as_json()["score_means"] == "pass"


def test_a_masked_score_is_missing():
    masked = np.ma.array([0, 0, 0], mask=[False, True, False])

    with pytest.raises(BadInput, match="missing"):
        lethe.bounds({"a": masked})


@pytest.mark.parametrize("name", [None, float("nan")])
def test_a_prompt_without_a_name_is_refused(name):
    with pytest.raises(BadInput, match="name of each"):
        lethe.bounds({name: [0, 1]})


@pytest.mark.parametrize(
    "name", ["1-leak", "1 - leaked", "1.0-leak", "!leak", "~leaked", "¬leak", "-leak", "leak<0.5"]
)
def test_a_sign_that_turns_a_name_is_no_name_of_a_leak(name):
    assert named(name) == "unknown"


@pytest.mark.parametrize("name", ["leak", "P(leak)", "leak-rate", "leak?", "has-leaked", "Leak %"])
def test_other_signs_turn_no_name(name):
    assert named(name) == "leak"
