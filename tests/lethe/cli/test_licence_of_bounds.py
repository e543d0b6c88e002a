"""`lethe bounds` and `compare` claim nothing of scores whose independence is refuted: no bound, and a closed gate."""

import json

import numpy as np
import pandas as pd
import pytest

import lethe
from lethe.errors import BadInput
from tests.lethe.cli.calls import Command
from tests.lethe.io.logs.small_logs import lm_eval_line, write_lines

command = Command("bounds")
QUESTIONS = 30
N = 200
RATE = 0.365


def merged(tmp_path, leaking: int):
    """Answers to many questions under one name; one question leaks."""
    generator = np.random.default_rng(3)
    rates = np.zeros(QUESTIONS)
    rates[leaking] = RATE
    scores = (generator.random((QUESTIONS, N)) < rates[:, None]).astype(int).ravel()
    path = tmp_path / "scores.csv"
    pd.DataFrame({"score": scores}).to_csv(path, index=False)
    return path


@pytest.mark.parametrize("leaking", [10, 29])
def test_a_bound_below_its_own_mean_claims_nothing_and_closes_the_gate(tmp_path, leaking):
    done = command.call(merged(tmp_path, leaking), "--fail-above", 0.2, "--json")

    document = json.loads(done.stdout)
    (row,) = document["per_prompt"]
    assert done.exit_code == 1
    assert row["mean"] == pytest.approx(RATE / QUESTIONS, rel=0.3)
    assert {
        row[key] for key in ("m_bin", "m_bin_lower", "m_mu", "m_sigma", "m_gen", "tighter")
    } == {None}
    assert {document[key] for key in ("worst_prompt", "pooled", "population")} == {None}
    assert document["share_above"]["share"] is None
    assert "below the mean of" in document["refused"][0]
    assert "its own scores (all)" in document["refused"][0]
    assert document["gate"]["closed"] is True
    assert document["gate"]["bound"] is None
    assert "--by" in document["gate"]["reason"]


def test_a_refused_claim_has_no_probability_on_the_terminal(tmp_path):
    done = command.call(merged(tmp_path, 29))

    words = " ".join(done.output.split())
    assert done.exit_code == 0
    assert "with probability" not in done.output
    assert "Nothing is claimed of" in words
    assert "these scores: An upper" in words
    assert "upper bound lies below" in words


def test_what_was_asked_of_a_refused_claim_is_null(tmp_path):
    path = merged(tmp_path, 29)

    document = json.loads(command.call(path, "--together", "holm", "--pass-at", 1, "--json").stdout)

    assert {document[key] for key in ("together", "pass_hat_k", "leak_at_k")} == {None}


def test_in_python_a_refused_claim_has_no_worst_prompt(tmp_path):
    bounds = lethe.bounds(merged(tmp_path, 29))

    with pytest.raises(BadInput, match="no bound is stated"):
        bounds.worst()
    assert bounds.refused
    assert not bounds.model.bounds


def test_a_refused_claim_is_not_written_for_another_tool(tmp_path):
    said = command.refused(merged(tmp_path, 29), "--to", "inspect", "--out", tmp_path / "b.json")

    assert "no bound to write" in said
    assert not (tmp_path / "b.json").exists()


def test_a_log_that_states_greedy_decoding_claims_nothing(tmp_path):
    lines = [lm_eval_line(number, ["no"], exact_match=0.0) for number in range(3)]
    for line in lines:
        line["arguments"]["gen_args_0"]["arg_1"] = {"do_sample": False, "until": []}
    path = write_lines(tmp_path / "samples_t_2026-01-01T00-00-00.000000.jsonl", lines)

    done = command.call(path, "--fail-above", 0.99, "--json")

    document = json.loads(done.stdout)
    assert done.exit_code == 1
    assert "do_sample false" in document["refused"][0]
    assert document["gate"]["closed"] is True


def test_scores_that_are_sorted_downward_keep_the_bounds_that_need_no_order():
    row = lethe.bounds([1] * 30 + [0] * 170).as_json()["per_prompt"][0]

    assert row["m_bin_lower"] < 0.15 < row["m_bin"]
    assert row["tighter"]["mean_upper"] is row["tighter"]["mean_lower"] is None


@pytest.mark.slow
@pytest.mark.parametrize("alpha", [0.01, 0.05, 0.5])
def test_independent_draws_are_not_refused_and_their_bounds_contain_their_means(alpha):
    generator = np.random.default_rng(5)
    scores = (generator.random((300, 150)) < 0.05).astype(float)

    bounds = lethe.bounds(scores, alpha=alpha)

    rows = bounds.as_json()["per_prompt"]
    assert not bounds.refused
    assert all(
        row["tighter"]["mean_lower"] <= row["mean"] <= row["tighter"]["mean_upper"] for row in rows
    )
    assert all(row["sd"] <= row["tighter"]["sd_upper"] + 1e-7 for row in rows)


@pytest.mark.parametrize(
    "gate",
    [("--fail-on", "worse"), ("--require", "not-worse", "--by", 0.5), ("--fail-above", 0.5)],
    ids=["worse", "not-worse", "above"],
)
def test_a_comparison_with_a_refused_side_claims_nothing_and_closes_each_gate(tmp_path, gate):
    path = merged(tmp_path, 29)

    done = Command("compare", path, path).call(*gate, "--json")

    document = json.loads(done.stdout)
    assert done.exit_code == 1
    assert document["refused"][0].startswith("A: An upper bound")
    assert "upper bound lies below" in document["refused"][0]
    assert document["worse"] is document["pooled"] is document["not_worse"] is None
    assert document["worst_of_b"] is document["population"] is None
    (question,) = document["per_question"]
    assert question["a"] == question["b"] == document["means"]["a"] == document["means"]["b"] > 0
    assert question["difference"] == 0
    claims = ("ci_low", "ci_high", "p_value", "holds", "method")
    assert {question[name] for name in claims} == {None}


def test_a_comparison_with_a_refused_side_says_so_on_terminal_and_page(tmp_path):
    path = merged(tmp_path, 29)
    page = tmp_path / "page.html"

    done = Command("compare", path, path).call("--fail-on", "worse", "--page", page)

    words = " ".join(done.output.split())
    shown = page.read_text()
    assert "with probability" not in done.output
    assert "gate is closed: A:" in words
    assert "A: An upper bound" in words
    assert "upper bound lies below" in words
    assert "Nothing is claimed of" in shown
    assert "of these two sides" in shown
    assert "scores as recorded, over" in words
    assert "1 question: A 0." in words


def test_runs_with_a_refused_side_have_their_means_and_no_ranks(tmp_path):
    path = merged(tmp_path, 29)
    page = tmp_path / "page.html"

    done = Command("compare", path, path).call(path, "--page", page)
    found = Command("compare", path, path).result(path)

    assert "No rank is claimed" in done.output
    assert "as recorded" in done.output
    assert "with probability" not in done.output
    assert "No rank is claimed" in page.read_text()
    mean = Command("compare", path, path).result()["means"]["a"]
    assert [run["mean"] for run in found["runs"]] == [pytest.approx(mean)] * 3
    assert {run["rank_pooled"] for run in found["runs"]} == {None}
    assert {pair["pooled"] for pair in found["pairs"]} == {None}
    assert found["refused"]


def repeats(tmp_path, texts: list[list[str]]):
    lines = [lm_eval_line(number, answers, exact_match=0.0) for number, answers in enumerate(texts)]
    return write_lines(tmp_path / "samples_t_2026-01-01T00-00-00.000000.jsonl", lines)


LONG = "the author of these nine books was born in town {}"


def test_a_log_whose_answers_repeat_one_long_text_for_each_question_claims_nothing(tmp_path):
    path = repeats(tmp_path, [[LONG.format(number)] * 6 for number in range(3)])

    (reason,) = lethe.bounds(path, leak_is="high").refused

    assert reason.startswith("The 6 or more answers")
    assert "to each of 3 questions" in reason
    assert "one text each time" in reason


@pytest.mark.parametrize(
    "texts",
    [
        [[LONG.format(0)] * 6 for _ in range(3)],
        [["no"] * 6, ["yes"] * 6],
        [[LONG.format(number)] * 5 + ["no"] for number in range(3)],
        [[LONG.format(number)] for number in range(3)],
    ],
    ids=["one refusal", "one word", "another answer", "one answer"],
)
def test_a_log_whose_answers_may_be_draws_is_not_refused_by_its_texts(tmp_path, texts):
    assert not lethe.bounds(repeats(tmp_path, texts)).refused


def test_labels_of_answers_that_the_scores_do_not_hold_open_no_gate(tmp_path):
    rows = pd.DataFrame({"prompt_id": ["a", "b"] * 100, "sample": [*range(200)], "leak": 0})
    rows.to_csv(tmp_path / "scores.csv", index=False)
    labels = rows.head(80).assign(sample=[*range(1000, 1080)], label=0)
    labels.to_csv(tmp_path / "labels.csv", index=False)
    options = ("--score", "leak", "--labels", tmp_path / "labels.csv", "--fail-above", "0.5")

    assert "scores do not hold" in command.refused(tmp_path / "scores.csv", *options)
