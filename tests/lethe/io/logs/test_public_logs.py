"""Every public log of a real tool, read to the expected table."""

import csv
import json
import math

import pytest

from lethe.io.logs import read_log

LOGS = {
    "harmbench/completions/local.json": "harmbench",
    "harmbench/results/local.json": "harmbench",
    "inspect/chunked": "inspect",
    "inspect/content_parts": "inspect",
    "inspect/failed": "inspect",
    "inspect/json": "inspect",
    "inspect/monolith": "inspect",
    "inspect/older": "inspect",
    "inspect/started": "inspect",
    "jailbreakbench/evaluation.json": "jailbreakbench",
    "jailbreakbench/llama-2-7b-chat-hf.json": "jailbreakbench",
    "jailbreakbench/submission.json": "jailbreakbench",
    "jailbreakbench/vicuna-13b-v1.5.json": "jailbreakbench",
    "leak_k/forget/temperature=1.0top_p=1.0/generations_n16.json": "leak-k",
    "leak_k/forget/temperature=1.0top_p=1.0/generations_n16_evaluated.json": "leak-k",
    "leak_k/forget/temperature=1.0top_p=1.0/generations_n16_llm_judge.json": "leak-k",
    "leak_k_n200/forget/temperature=1.0top_p=1.0/generations_n200.json": "leak-k",
    "lm_eval/forget_mc/__srv__models__base": "lm-eval",
    "lm_eval/forget_qa/__srv__models__base": "lm-eval",
    "lm_eval/forget_qa_k/__srv__models__base": "lm-eval",
    "open_unlearning/TOFU_EVAL.json": "open-unlearning",
}
MISSING = {
    "harmbench/results/local.json": {"label neither yes nor no": 2},
    "inspect/chunked": {"limit": 1, "error": 1, "unscored": 3},
    "inspect/failed": {"error": 2, "not written": 46},
    "inspect/monolith": {"limit": 1, "error": 1, "unscored": 4},
    "inspect/started": {"not written": 95, "unscored": 4},
    "jailbreakbench/evaluation.json": {"not tried": 22},
    "lm_eval/forget_mc/__srv__models__base": {},
    "lm_eval/forget_qa/__srv__models__base": {"unscored": 105},
    "open_unlearning/TOFU_EVAL.json": {},
}
DRAWS = {
    "lm_eval/forget_mc/__srv__models__base": "choices",
    "inspect/started": "sampled",
    "inspect/json": "sampled",
}
UNFINISHED = ("inspect/failed", "inspect/started")
OF_THE_TOOL = ("tool_asr", "by_test_case")  # of the tool's summary, not in its log


@pytest.fixture(params=LOGS)
def log(request, shared):
    place = shared / "data/eval-logs" / request.param
    path = place if place.is_file() else next(place.glob("*.expected.csv")).with_suffix("").with_suffix("")
    read = read_log(path)
    beside = path.with_name(path.name + ".expected.json")
    return request.param, read, path.with_name(path.name + ".expected.csv"), json.loads(beside.read_text())


def test_the_table_is_the_expected_one(log):
    name, read, table, _ = log
    assert read.format == LOGS[name]
    with table.open(encoding="utf-8", newline="") as file:
        columns, *rows = csv.reader(file)
    assert list(read.answers.columns) == columns
    assert len(read.answers) == len(rows)
    for got, expected in zip(read.answers.itertuples(index=False), rows, strict=True):
        for column, value, cell in zip(columns, got, expected, strict=True):
            if column in read.scores:
                assert math.isnan(value) if cell == "" else value == float(cell)
            else:
                assert str(value) == cell


def test_the_counts_are_the_expected_ones(log):
    name, read, _, expected = log
    assert (
        dict(zip(read.prompts["prompt_id"], read.prompts["answers"], strict=True))
        == expected["samples_per_prompt"]
    )
    summary = read.summary()
    assert (summary["prompts"], summary["answers"]) == (expected["prompts"], expected["samples"])
    for score, told in expected["scores"].items():
        got = summary["scores"][score]
        assert (got["scored"], got["unscored"]) == (told["scored"], told["unscored"])
        assert got["mean"] == pytest.approx(told["mean_over_samples"], rel=1e-12)
    if name in MISSING:
        assert read.missing == MISSING[name]
    assert read.draws == DRAWS.get(name, read.draws)
    if read.format == "inspect":
        assert read.stopping == ("unfinished" if name in UNFINISHED else "fixed")
        problems = expected.get("samples_with_problems", [])
        for kind in ("error", "limit"):
            told = {(one["prompt_id"], one["sample"]) for one in problems if kind in one}
            rows = read.problems[read.problems["reason"] == kind]
            assert set(zip(rows["prompt_id"], rows["sample"], strict=True)) == told


def test_the_prompts_and_their_own_scores_are_the_expected_ones(log):
    _, read, _, expected = log
    prompts = read.prompts.set_index("prompt_id")
    for prompt_id, told in expected["per_prompt"].items():
        if "prompt" in told:
            assert prompts.loc[prompt_id, "prompt"] == told["prompt"]
        for score, value in told.get("prompt_level_scores", {}).items():
            if score not in OF_THE_TOOL and not isinstance(value, list):
                assert prompts.loc[prompt_id, score] == (
                    pytest.approx(math.nan, nan_ok=True) if value is None else value
                )
