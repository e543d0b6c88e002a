"""`lethe bounds` on files: the contract of its JSON, missing scores, and what is refused."""

import json
import math

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from flows.cli import app
from stages.statistics.bounds import binary_upper, paper_bounds
from stages.statistics.tighter import tighter_bounds

ENTRY = {
    *("prompt_id", "n", "mean", "sd", "max", "ed_score", "m_bin", "m_bin_lower", "m_gen", "m_mu", "m_mu_lower"),
    *("m_sigma", "tighter"),
}


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("LETHE_CACHE", str(tmp_path_factory.getbasetemp() / "levels"))


def call(*arguments):
    return CliRunner().invoke(app, ["bounds", *map(str, arguments)])


def result(*arguments) -> dict:
    done = call(*arguments, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def write(tmp_path, scores, prompts=None, suffix=".csv"):
    table = pd.DataFrame({"score": scores} if prompts is None else {"prompt_id": prompts, "score": scores})
    path = tmp_path / f"s{suffix}"
    {".csv": lambda: table.to_csv(path, index=False), ".parquet": lambda: table.to_parquet(path)}.get(
        suffix, lambda: table.to_json(path, orient="records", lines=True)
    )()
    return path


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".jsonl"])
def test_the_contract(tmp_path, suffix):
    rng = np.random.default_rng(0)
    scores, prompts = rng.random(40), ["b", "a"] * 20
    got = result(write(tmp_path, scores, prompts, suffix), "--alpha", 0.05, "--threshold", 0.5)
    assert set(got) == {"alpha", "n_prompts", "per_prompt", "worst_prompt", "pooled", "share_above"}
    assert (got["alpha"], got["n_prompts"], got["pooled"]) == (0.05, 2, None)
    assert [row["prompt_id"] for row in got["per_prompt"]] == ["b", "a"]
    row = got["per_prompt"][0]
    assert set(row) == ENTRY
    assert set(row["tighter"]) == {"mean_upper", "mean_lower", "exceedance", "sd_upper"}
    paper, sharp = paper_bounds(scores[::2], 0.05, [0.5]), tighter_bounds(scores[::2], 0.05, [0.5])
    assert row["m_gen"] == [
        {"x": 0.5, "bound": pytest.approx(paper.m_gen[0, 0]), "lower": pytest.approx(paper.m_gen_lower[0, 0])}
    ]
    assert row["m_mu"] == pytest.approx(paper.m_mu[0])
    assert row["m_sigma"] == pytest.approx(paper.m_sigma[0])
    assert row["m_bin"] is None
    assert row["tighter"]["mean_upper"] == pytest.approx(sharp.mean_upper[0])
    exceedance = {"x": 0.5, "bound": pytest.approx(sharp.exceedance[0, 0]), "method": "berk-jones"}
    assert row["tighter"]["exceedance"] == [exceedance]
    assert got["worst_prompt"]["metric"] == "m_mu"
    assert got["worst_prompt"]["bound"] == max(row["m_mu"] for row in got["per_prompt"])
    assert got["share_above"] == {"threshold": 0.1, "share": 1.0}


def test_binary_scores_of_equal_n_are_pooled(tmp_path):
    got = result(write(tmp_path, [0, 1, 0, 0], ["a", "a", "b", "b"]), "--alpha", 0.05)
    assert got["pooled"] == pytest.approx(float(binary_upper(1, 4, 0.05)))
    assert got["worst_prompt"] == {"prompt_id": "a", "metric": "m_bin", "bound": got["per_prompt"][0]["m_bin"]}
    assert got["per_prompt"][1]["m_bin_lower"] == 0.0


def test_ragged_prompts_are_bounded_each_and_not_pooled(tmp_path):
    got = result(write(tmp_path, [0, 1, 0], ["a", "a", "b"]), "--alpha", 0.05)
    assert [row["n"] for row in got["per_prompt"]] == [2, 1]
    assert got["pooled"] is None


def test_the_order_of_rows_is_the_order_of_the_bets(tmp_path):
    scores = [0.0] * 30 + [1.0] * 10
    one = result(write(tmp_path, scores))["per_prompt"][0]["tighter"]["mean_upper"]
    other = result(write(tmp_path, scores[::-1]))["per_prompt"][0]["tighter"]["mean_upper"]
    assert one != other


def test_missing_scores(tmp_path):
    path = write(tmp_path, [0.0, math.nan, 1.0, 0.0])
    refused = call(path)
    assert refused.exit_code == 2
    assert "line 3: score is missing" in refused.output
    assert "--missing" in refused.output
    worst = result(path, "--missing", "worst", "--alpha", 0.05)["per_prompt"][0]
    assert (worst["n"], worst["missing"], worst["mean"]) == (4, 1, pytest.approx(1 / 3))
    assert worst["m_bin"] == pytest.approx(float(binary_upper(2, 4, 0.05)))
    assert worst["m_bin_lower"] == pytest.approx(1 - 0.95 ** (1 / 4))
    drop = result(path, "--missing", "drop", "--alpha", 0.05)["per_prompt"][0]
    assert (drop["n"], drop["missing"]) == (3, 1)
    assert drop["m_bin"] == pytest.approx(float(binary_upper(1, 3, 0.05)))
    whole = result(write(tmp_path, [0.0, 1.0, 0.0]), "--alpha", 0.05)["per_prompt"][0]
    assert worst["judged"] == {key: value for key, value in whole.items() if key != "prompt_id"}


def test_a_prompt_of_missing_scores_only_says_nothing_at_its_worst(tmp_path):
    path = write(tmp_path, [0.5, 0.25, math.nan], ["a", "a", "b"])
    got = result(path, "--missing", "worst")["per_prompt"]
    assert (got[0]["judged"]["mean"], got[0]["missing"]) == (0.375, 0)
    assert (got[1]["judged"], got[1]["mean"], got[1]["m_mu"], got[1]["m_mu_lower"]) == (None, None, 1, 0)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("score\n0.5\n1.5\n", "line 3: score: got 1.5, legal is a number in [0, 1]"),
        ("score\n-0.1\n", "got -0.1"),
        ("score\nhalf\n", "line 2: column score: got 'half'"),
        ("value\n1\n", "no column 'score'"),
        ("score\n", "holds no rows"),
        ("", "is empty"),
        ("prompt_id,score\n,1\n", "prompt_id is missing"),
    ],
)
def test_a_bad_file_is_a_sentence_and_status_2(tmp_path, text, sentence):
    path = tmp_path / "s.csv"
    path.write_text(text)
    done = call(path)
    assert done.exit_code == 2
    assert sentence in done.output
    assert "Traceback" not in done.output


@pytest.mark.parametrize(("option", "value"), [("--alpha", 0), ("--alpha", 0.6), ("--threshold", 1.5)])
def test_a_bad_option_is_refused(tmp_path, option, value):
    done = call(write(tmp_path, [0.5]), option, value)
    assert done.exit_code == 2
    assert "legal is" in done.output


def test_a_prompt_of_missing_scores_only_cannot_be_dropped(tmp_path):
    done = call(write(tmp_path, [0.5, math.nan], ["a", "b"]), "--missing", "drop")
    assert done.exit_code == 2
    assert "prompt 'b' has no score left" in done.output


def test_the_table_for_people_says_what_each_number_covers(tmp_path):
    done = call(write(tmp_path, [0, 1, 0, 0], ["a", "a", "b", "[red]b"]))
    assert done.exit_code == 0
    assert "covers the worst prompt, alpha 0.01" in " ".join(done.output.split())
    assert "[red]b" in done.output


@pytest.mark.slow
def test_two_million_rows(tmp_path):
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"prompt_id": np.repeat(np.arange(2000), 1000), "score": rng.random(2_000_000) < 0.1})
    table.to_parquet(tmp_path / "s.parquet")
    got = result(tmp_path / "s.parquet")
    assert got["n_prompts"] == 2000
    assert got["pooled"] == pytest.approx(0.1, abs=0.002)
    pd.DataFrame({"score": rng.random(2_000_000)}).to_parquet(tmp_path / "one.parquet")
    one = result(tmp_path / "one.parquet")["per_prompt"][0]
    assert one["n"] == 2_000_000
    assert one["tighter"]["exceedance"][0]["method"] == "dkw"
    assert 0.5 < one["tighter"]["mean_upper"] < 0.502
