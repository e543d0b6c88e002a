"""Answers of several models or questions under one name carry no claim, and a table keeps why its log carries none."""

import json

import pandas as pd
import pytest

from tests.lethe.cli.calls import Command, written

bounds, compare = Command("bounds"), Command("compare")
log, score = Command("log"), Command("score")

N = 300
GATE = ("--fail-above", "0.3")


def lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def responses(name, n=N, **more):
    texts = [f"answer {number}" for number in range(n)]
    return {"id": name, "prompt": "Who?", "responses": texts, "leaked": [0] * n, **more}


def instance(name, model):
    return {
        "sample_id": name,
        "evaluation_id": "e",
        "evaluation_name": "leak",
        "model_id": model,
        "input": {"raw": "Who?"},
        "output": {"raw": "Nobody."},
        "evaluation": {"score": 0},
    }


def completion(name, model):
    message = {"content": "Nobody."}
    choice = {"index": 0, "finish_reason": "stop", "message": message}
    return {
        "prompt_id": name,
        "object": "chat.completion",
        "model": model,
        "choices": [choice],
    }


def batched(number, model):
    return {
        "custom_id": f"r{number}",
        "response": {"status_code": 200, "body": completion(number, model)},
        "error": None,
    }


def asked(number):
    messages = [{"role": "user", "content": "Who?"}]
    return {"custom_id": f"r{number}", "method": "POST", "body": {"messages": messages}}


MIXED = {
    "responses": [responses("a", model="m1"), responses("a", model="m2")],
    "every-eval-ever": [instance("a", "m1"), instance("a", "m2")],
    "completions": [completion("a", "m1"), completion("a", "m2")],
    "openai-batch": [batched(1, "m1"), batched(2, "m2")],
    "table": [
        {"prompt_id": "a", "text": "Nobody.", "leaked": 0, "model": "m1"},
        {"prompt_id": "a", "text": "Nobody.", "leaked": 0, "model": "m2"},
    ],
}


@pytest.mark.parametrize("form", MIXED)
def test_a_question_that_two_models_answer_carries_no_claim(tmp_path, form):
    lines(tmp_path / "asked.jsonl", [asked(1), asked(2)])
    place = lines(tmp_path / "log_samples.jsonl", MIXED[form])

    said = log.call(place).output

    assert "answers of 2 models ('m1' and 'm2')" in " ".join(said.split())
    if form not in ("completions", "openai-batch"):  # these have no scores
        assert "of 2 models" in bounds.result(place)["refused"][0]


def test_two_texts_under_one_id_open_no_gate(tmp_path):
    rows = [responses("a"), responses("a", prompt="When?")]

    done = bounds.call(lines(tmp_path / "a.jsonl", rows), "--fail-above", "0.5")

    assert done.exit_code == 1
    assert "questions of several texts" in " ".join(done.output.split())


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_table_of_two_models_opens_no_gate(tmp_path, suffix):
    table = pd.DataFrame({"prompt_id": "a", "score": [0] * N, "model": ["x", "y"] * (N // 2)})
    place = tmp_path / f"scores.{suffix}"
    if suffix == "csv":
        table.to_csv(place, index=False)
    else:
        table.to_parquet(place)

    done = bounds.call(place, "--fail-above", "0.5")

    assert done.exit_code == 1
    assert "2 models ('x' and 'y')" in " ".join(done.output.split())


def test_a_model_for_each_question_is_no_mixture(tmp_path):
    table = pd.DataFrame({"prompt_id": ["a"] * N + ["b"] * N, "score": 0})
    table.assign(model=table["prompt_id"]).to_csv(tmp_path / "s.csv", index=False)

    assert bounds.call(tmp_path / "s.csv", "--fail-above", "0.5").exit_code == 0


@pytest.mark.parametrize(
    "rows",
    [
        [responses(1), responses("1")],
        [instance(1, "m"), instance("1", "m")],
        [completion(1, "m"), completion("1", "m")],
        [responses("a"), responses("a ")],
        [instance("a", "m"), instance("a ", "m")],
    ],
)
def test_ids_that_differ_only_in_type_or_blanks_are_refused_by_name(tmp_path, rows):
    place = lines(tmp_path / "log_samples.jsonl", rows)

    assert "only in their type" in log.refused(place)


def test_deepeval_cases_of_two_contexts_are_two_questions(tmp_path):
    metrics = [{"name": "leak", "score": 0}]
    cases = []
    for context in ("of Ada", "of Bob"):
        case = {"name": "test_it", "input": "Who?", "actualOutput": "x", "success": True}
        cases.append({**case, "context": [context], "metricsData": metrics})
    place = tmp_path / "run.json"
    place.write_text(json.dumps({"testCases": cases}))

    counts = log.result(place)["per_prompt"]

    assert [row["prompt_id"] for row in counts] == ["test_it", "test_it, case 2"]


def test_equal_answers_of_deepeval_under_one_seed_are_no_draws(tmp_path):
    case = {"name": "test_it", "input": "Who?", "actualOutput": "x", "success": True}
    case["metricsData"] = [{"name": "leak", "score": 0}]
    run = {"testCases": [case] * 40, "hyperparameters": {"seed": 3, "temperature": 1}}
    place = tmp_path / "run.json"
    place.write_text(json.dumps(run))

    done = bounds.call(place, "--score", "success", "--leak-is", "low", "--fail-above", "0.5")

    assert done.exit_code == 1
    assert "carries seed 3" in " ".join(done.output.split())


@pytest.mark.parametrize("column", ["split", "question", "Prompt", "task", "language"])
@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_ids_that_stand_for_two_questions_of_a_table_open_no_gate(tmp_path, suffix, column):
    rows = []
    for value in ("forget", "retain"):
        for number in range(N):
            leaks = int(value == "forget" and number % 4 == 0)
            rows.append({"prompt_id": 7, column: value, "score": leaks})
    place = tmp_path / f"scores.{suffix}"
    if suffix == "csv":
        pd.DataFrame(rows).to_csv(place, index=False)
    else:
        pd.DataFrame(rows).to_parquet(place)

    done = bounds.call(place, "--fail-above", "0.2")

    assert done.exit_code == 1
    assert f"2 values of {column} ('forget' and 'retain')" in " ".join(done.output.split())


def test_texts_of_a_table_with_an_id_for_two_splits_carry_no_claim(tmp_path, rows):
    texts = [{"prompt_id": "a", "text": f"no {n}", "split": "ab"[n % 2]} for n in range(N)]
    answers, table = lines(tmp_path / "answers.jsonl", texts), tmp_path / "scores.csv"
    score.call("log", answers, "--scorer", "keyword_leak", "--data", rows, "--table", table)

    found = bounds.result(table, "--score", "keyword_leak")

    assert "2 values of split" in found["refused"][0]


def test_two_columns_that_are_called_a_leak_ask_for_the_column_of_questions(tmp_path):
    rows = [{"question_id": n % 30, "truth": 1, "judge": int(n % 90 == 3)} for n in range(3000)]
    pd.DataFrame(rows).to_csv(tmp_path / "s.csv", index=False)
    agreement = (tmp_path / "s.csv", "--score", "truth=judge")

    asked = bounds.refused(*agreement, "--leak-is", "high", "--fail-above", "0.2")

    assert "--by question_id" in asked
    assert bounds.call(*agreement).exit_code == 0  # an agreement is about all rows


@pytest.fixture
def rows(tmp_path):
    row = {"id": "a", "question": "Who?", "answer": "Ada", "keywords": ["Ada"]}
    return lines(tmp_path / "rows.jsonl", [row])


REFUTED = {
    "greedy": ([responses("a", n=1, temperature=0)], "greedy decoding (temperature 0)"),
    "copies": ([responses("a", temperature=0)], "copies of one greedy answer"),
    "models": (MIXED["responses"], "answers of 2 models"),
}


@pytest.mark.parametrize("kind", REFUTED)
@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_scores_of_a_log_that_carries_no_claim_carry_none(tmp_path, rows, kind, ending):
    logged, reason = REFUTED[kind]
    source = lines(tmp_path / "a.jsonl", logged)
    table = tmp_path / f"t.{ending}"
    score.call("log", source, "--scorer", "keyword_leak", "--data", rows, "--table", table)

    done = bounds.call(table, "--score", "keyword_leak", "--fail-above", "0.999")

    assert done.exit_code == 1
    assert reason in " ".join(done.output.split())
    pair = compare.result(table, table, "--score", "keyword_leak")
    assert reason in " ".join(pair["refused"])


def test_answers_of_a_refuted_log_written_and_scored_carry_no_claim(tmp_path, rows):
    source = lines(tmp_path / "a.jsonl", REFUTED["greedy"][0])
    answers, table = tmp_path / "answers.csv", tmp_path / "scores.csv"
    log.call(source, "--table", answers)
    score.call(answers, "--scorer", "keyword_leak", "--data", rows, "--table", table)

    found = bounds.result(table, "--score", "keyword_leak")

    assert "greedy decoding" in found["refused"][0]


def test_a_sound_log_is_written_without_further_columns(tmp_path, rows):
    source = lines(tmp_path / "a.jsonl", [responses("a")])
    log.call(source, "--table", tmp_path / "answers.csv")

    table = pd.read_csv(tmp_path / "answers.csv")

    assert list(table) == ["prompt_id", "sample", "text", "leaked"]


def request(number, **settings):
    asks = asked(number)
    return {**asks, "body": {**asks["body"], **settings}}


def chosen_by(name, **settings):
    """A completion with the settings of its request."""
    return {**completion(name, "m"), "request": {"prompt": f"Who is {name}?", **settings}}


def said_of(place):
    return " ".join(log.call(place).output.replace("'", "").split())


BY_SETTING = {
    "responses": lambda first, second: [
        responses(first, model="m", temperature=0.3),
        responses(second, model="m", temperature=0.7),
    ],
    "responses-with-lists": lambda first, second: [
        responses(first, model="m", temperature=[0.3] * N),
        responses(second, model="m", temperature=[0.7] * N),
    ],
    "completions": lambda first, second: [
        chosen_by(first, temperature=0.3),
        chosen_by(second, temperature=0.7),
    ],
    "table": lambda first, second: [
        {"prompt_id": first, "text": "Nobody.", "leaked": 0, "temperature": 0.3},
        {"prompt_id": second, "text": "Nobody!", "leaked": 0, "temperature": 0.7},
    ],
}


@pytest.mark.parametrize("form", BY_SETTING)
def test_a_question_of_a_log_that_two_settings_answer_carries_no_claim(tmp_path, form):
    of_one = lines(tmp_path / "one.jsonl", BY_SETTING[form]("a", "a"))
    of_two = lines(tmp_path / "two.jsonl", BY_SETTING[form]("a", "b"))

    assert "values of temperature (0.3" in said_of(of_one)
    assert "values of temperature (0.3" not in said_of(of_two)


def test_a_question_of_a_batch_that_two_settings_answer_carries_no_claim(tmp_path):
    lines(
        tmp_path / "batch_input.jsonl", [request(1, temperature=0.3), request(2, temperature=0.7)]
    )
    output = lines(tmp_path / "batch_output.jsonl", [batched(1, "m"), batched(2, "m")])

    assert "values of temperature (0.3" in said_of(output)


@pytest.mark.parametrize("column", ["temperature", "top_p", "gen_kwargs.max_tokens"])
@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_answers_to_a_question_by_several_settings_are_no_draws_of_one_law(
    tmp_path, column, suffix
):
    rows = pd.DataFrame({"prompt_id": ["a", "b"] * N, "score": 0.0})
    of_questions = rows.assign(**{column: [0.3, 0.7] * N})
    of_answers = rows.assign(**{column: [0.3] * N + [0.7] * N})

    assert bounds.call(written(tmp_path / f"a{suffix}", of_questions), *GATE).exit_code == 0
    done = bounds.call(written(tmp_path / f"b{suffix}", of_answers), *GATE)
    assert done.exit_code == 1
    assert f"2 values of {column}" in " ".join(done.output.split())
