"""What each format states of an answer's end, its cache and its settings is read in every reader."""

import json

import pytest

from lethe.errors import BadFile
from lethe.io.logs import read_log
from tests.lethe.io.logs.small_logs import (
    deepeval_case,
    eval_log,
    garak_attempt,
    garak_log,
    header,
    helm_log,
    lm_eval_line,
    lm_eval_log,
    lm_eval_results,
    sample,
    write_json,
    write_lines,
)

ATTEMPT = garak_attempt(0, ["a", "b"], {"leak": [0.0, 0.0]})


def deepeval_log(tmp_path, **more):
    cases = [deepeval_case("q", "a", 0), {**deepeval_case("q", "b", 0), **more}]
    return read_log(write_json(tmp_path / "run.json", {"testRunData": {"testCases": cases}}))


def test_a_case_of_deepeval_states_its_error_and_its_settings(tmp_path):
    assert deepeval_log(tmp_path, error="timeout").missing == {"error": 1}
    assert deepeval_log(tmp_path, additionalMetadata={"temperature": 0}).facts.deterministic
    assert deepeval_log(tmp_path, cached=True).facts.repeated


def test_two_metrics_of_one_name_are_no_score(tmp_path):
    metrics = [{"name": "leak", "score": 1}, {"name": "leak", "score": 0}]

    log = deepeval_log(tmp_path, metricsData=metrics)

    with pytest.raises(BadFile, match="two metrics"):
        log.scored("leak")


def evaluation(tmp_path, row, **block):
    rows = {"0": {"input": "Who?", "generation": "a", "rouge": 0}, "1": row}
    content = {"forget_Q_A_ROUGE": {"agg_value": 0, "value_by_index": rows, **block}}
    return read_log(write_json(tmp_path / "TOFU_EVAL.json", content))


def test_a_null_row_of_open_unlearning_is_a_missing_answer(tmp_path):
    assert evaluation(tmp_path, None).missing == {"no generation": 1}


def test_a_row_of_open_unlearning_states_its_error_and_its_settings(tmp_path):
    row = {"input": "Where?", "generation": "a", "rouge": 0}

    assert evaluation(tmp_path, {**row, "error": "memory"}).missing == {"error": 1}
    assert evaluation(tmp_path, {**row, "cached": True}).facts.repeated
    assert evaluation(tmp_path, row, generation_args={"do_sample": False}).facts.deterministic


@pytest.mark.parametrize(
    ("key", "value"), [("best_of", 4), ("num_beams", 4), ("decoding", "greedy")]
)
def test_every_setting_of_a_generator_of_garak_counts(tmp_path, key, value):
    path = garak_log(tmp_path / "g.report.jsonl", ATTEMPT)
    setup, *rows = [json.loads(line) for line in path.read_text().splitlines()]
    setup["plugins.generators"] = {"x": {"args": {key: value}}}

    facts = read_log(write_lines(path, [setup, *rows])).facts

    assert facts.deterministic or facts.refused


def test_an_output_of_garak_states_its_end_and_its_cache(tmp_path):
    notes = {"finish_reason": "content_filter", "cached": True}
    outputs = [{"text": "a"}, {"text": "", "notes": notes}]
    rows = [{**row, "outputs": outputs} for row in ATTEMPT]

    log = read_log(garak_log(tmp_path / "g.report.jsonl", rows))

    assert log.missing["filtered"] == 1
    assert "from a cache" in log.facts.repeated


@pytest.mark.parametrize("model", ["vllm", "local-completions"])
def test_sampling_without_a_temperature_is_greedy_on_servers(tmp_path, model):
    line = lm_eval_line(0, ["a", "b"])
    del line["arguments"]["gen_args_0"]["arg_1"]["temperature"]
    results = lm_eval_results(2, 1, run={"model": model})

    assert read_log(lm_eval_log(tmp_path, [line], results)).facts.deterministic


def test_a_line_of_lm_eval_states_its_error_and_its_cache(tmp_path):
    line = lm_eval_line(0, ["a", "b"]) | {"error": "timeout", "metadata": {"cached": True}}

    log = read_log(lm_eval_log(tmp_path, [line]))

    assert log.missing["error"] == 2
    assert log.facts.repeated


@pytest.mark.parametrize(
    "stated",
    [
        {"plan": {"steps": [{"solver": "mine", "params": {"temperature": 0}}]}},
        {"plan": {"steps": [{"solver": "chain", "params": {"all": [{"params": {"top_k": 1}}]}}]}},
    ],
)
def test_the_settings_of_any_solver_of_inspect_count(tmp_path, stated):
    head = header(["q"]) | stated
    samples = [sample("q", epoch) for epoch in (1, 2)]

    assert read_log(eval_log(tmp_path / "a.eval", head, samples)).facts.deterministic


@pytest.mark.parametrize("chunked", [False, True])
def test_a_request_in_an_entry_of_its_own_counts(tmp_path, chunked):
    samples = [sample("q", epoch) for epoch in (1, 2)]
    for record in samples:
        event = {"event": "model", "cache": "read", "output": record["output"]}
        record["events"] = [event]

    log = read_log(eval_log(tmp_path / "a.eval", header(["q"]), samples, chunked=chunked))

    assert "from a cache" in log.facts.repeated


@pytest.mark.parametrize("result", [{"error": "timeout"}, {"success": "false"}])
def test_a_request_of_helm_that_failed_brought_no_answer(tmp_path, result):
    path = helm_log(tmp_path / "scenario_state.json", [["Ron"], ["Ron"]])
    state = json.loads(path.read_text())
    state["request_states"][1]["result"] |= result

    assert read_log(write_json(path, state)).missing["error"] == 1


def test_the_adapter_of_helm_states_settings(tmp_path):
    path = helm_log(tmp_path / "scenario_state.json", [["Ron"]], decoding="greedy")

    assert read_log(path).facts.deterministic
