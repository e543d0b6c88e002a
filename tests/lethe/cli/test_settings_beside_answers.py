"""Numbers beside answers that are settings, or say no leak, are no scores of leaks; and settings stated anywhere count."""

import json

import pandas as pd
import pytest

from lethe.io.logs import read_log
from tests.lethe.cli.calls import Command

bounds = Command("bounds")
N = 40


def written(tmp_path, rows):
    path = tmp_path / "answers.json"
    path.write_text(json.dumps(rows))
    return path


def objects(key="response", **beside):
    return [{key: f"a{number}", **beside} for number in range(N)]


NO_LEAKS = ("is_safe", "refused", "passed", "grade", "temperature", "seed", "index", "do_sample")


@pytest.mark.parametrize("name", NO_LEAKS)
@pytest.mark.parametrize("recall", [{}, {"rougeL_recall": 1.0}], ids=["user", "leak-k"])
def test_a_number_that_is_no_leak_score_opens_no_gate(tmp_path, name, recall):
    path = written(tmp_path, [{"prompt": "Who?", "responses": objects(**{name: 0}, **recall)}])

    found = bounds.call(path, "--fail-above", "0.2")

    assert found.exit_code != 0
    assert "gate is open" not in found.output


def test_settings_before_a_score_are_not_the_score(tmp_path):
    answers = objects(temperature=1.0, seed=1, rougeL_recall=0.5, is_safe=0)
    log = read_log(written(tmp_path, [{"prompt": "Who?", "responses": answers}]))

    assert log.scores == ("rougeL_recall", "is_safe")
    assert dict(log.facts.means) == {"rougeL_recall": "leak", "is_safe": "refusal"}
    assert log.sampling["temperature"] == 1.0


def test_an_answer_that_no_model_ended_is_missing_beside_leak_k_scores(tmp_path):
    answers = objects(rougeL_recall=0, finish_reason="error")
    log = read_log(written(tmp_path, [{"prompt": "Who?", "responses": answers}]))

    assert log.missing["error"] == N


LEAKS = {"outputs": objects("text", leak=0)}
TEXTS = {"responses": [f"a{number}" for number in range(N)], "leak": [0] * N}
GREEDY = {
    "row": {**LEAKS, "temperature": 0},
    "leak-k": {"responses": objects(rougeL_recall=0), "do_sample": False},
    "leak-k object": {"responses": objects(rougeL_recall=0), "sampling_params": {"temperature": 0}},
    "leak-k answer": {"responses": objects(temperature=0, rougeL_recall=0)},
    "answer": {"outputs": objects("text", do_sample=False, leak=0)},
    "answer object": {"outputs": objects("text", leak=0, sampling_params={"temperature": 0})},
    "object": {**LEAKS, "sampling_params": {"temperature": 0.0}},
    "list": {**TEXTS, "temperature": [0] * N},
    "list of words": {**TEXTS, "do_sample": ["no"] * N},
    "word": {**TEXTS, "decoding": "greedy"},
}


@pytest.mark.parametrize("kind", GREEDY)
def test_greedy_decoding_stated_anywhere_opens_no_gate(tmp_path, kind):
    path = written(tmp_path, [{"prompt": "Who?", **GREEDY[kind]}])

    found = bounds.call(path, "--fail-above", "0.2")

    assert found.exit_code != 0
    assert "copies of one greedy" in " ".join(found.output.split())


def test_answers_of_sampling_keep_their_bound(tmp_path):
    row = {"prompt": "Who?", "outputs": objects("text", leak=0, temperature=1.0, do_sample=True)}

    found = bounds.call(written(tmp_path, [row]), "--fail-above", "0.2")

    assert found.exit_code == 0


def test_greedy_completions_of_harmbench_are_copies(tmp_path):
    answers = objects("generation", test_case="Who?", label=0, temperature=0)
    log = read_log(written(tmp_path, {"behavior": answers}))

    assert (log.scores, log.draws) == (("label",), "copies")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("do_sample", word) for word in ("0", "no", "off", "False ")),
        *(("temperature", word) for word in ("0,0", "0%")),
        ("decoding", "greedy"),
        ("Decoding", "Greedy search"),
    ],
)
def test_greedy_settings_in_the_spellings_of_scores_refute_the_draws(tmp_path, name, value):
    table = pd.DataFrame({"prompt_id": "a", "sample": range(300), "leak": 0, name: value})
    table.to_csv(tmp_path / "scores.csv", index=False)

    found = bounds.call(tmp_path / "scores.csv", "--fail-above", "0.2")

    assert found.exit_code == 1
    assert "states greedy decoding" in found.output


def test_a_decoding_that_samples_refutes_nothing(tmp_path):
    table = pd.DataFrame({"prompt_id": "a", "leak": [0] * 300, "decoding": "nucleus"})
    table.assign(do_sample="yes").to_csv(tmp_path / "scores.csv", index=False)

    assert bounds.call(tmp_path / "scores.csv", "--fail-above", "0.2").exit_code == 0


def test_greedy_rows_are_counted_with_their_repeats(tmp_path):
    table = pd.DataFrame({"prompt_id": "a", "leak": [0] * 400, "temperature": [0] + [1] * 399})
    table.to_csv(tmp_path / "scores.csv", index=False)

    assert "in 1 of 400 requests" in bounds.call(tmp_path / "scores.csv").output


COPIES = {
    "row": {**TEXTS, "cached": True},
    "list": {**TEXTS, "fromCache": [False, True] * (N // 2)},
    "object": {"outputs": objects("text", cache_hit="true", leak=0)},
    "words": {"outputs": objects("text", cache_status="HIT", leak=0)},
    "leak-k": {"responses": objects(rougeL_recall=0, cached=True)},
}


@pytest.mark.parametrize("kind", COPIES)
def test_answers_out_of_a_cache_are_no_draws(tmp_path, kind):
    log = read_log(written(tmp_path, [{"prompt": "Who?", **COPIES[kind]}]))

    assert "from a cache" in log.facts.repeated


def test_an_answer_that_was_no_hit_is_a_draw(tmp_path):
    answers = objects("text", cached=False, cache_status="miss", leak=0)
    log = read_log(written(tmp_path, [{"prompt": "Who?", "outputs": answers}]))

    assert log.facts.repeated is None


OF_TWO = {
    "list": [{**TEXTS, "model": ["a", "b"] * (N // 2)}],
    "object": [{"outputs": [*objects("text", leak=0, model="a"), {"text": "x", "model": "b"}]}],
    "rows": [{**TEXTS, "modelName": "a"}, {**TEXTS, "modelName": "b"}],
    "leak-k": [
        {"responses": [*objects(rougeL_recall=0, model="a"), {"response": "x", "model": "b"}]}
    ],
}


@pytest.mark.parametrize("kind", OF_TWO)
def test_answers_of_two_models_are_no_draws_of_one(tmp_path, kind):
    log = read_log(written(tmp_path, [{"prompt": "Who?", **row} for row in OF_TWO[kind]]))

    assert "2 models" in log.facts.mixed


def test_a_failed_request_for_a_list_brought_no_answer(tmp_path):
    rows = [
        {"prompt": name, **TEXTS, "statusCode": code} for name, code in (("a", 200), ("b", 500))
    ]
    log = read_log(written(tmp_path, rows))

    assert log.missing == {"status 500": N}
