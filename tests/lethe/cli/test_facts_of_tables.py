"""A table that states how its answers came about carries no claim that this refutes, like a log of another tool."""

import pandas as pd
import pytest

import lethe
from lethe.errors import BadInput
from tests.lethe.cli.calls import Command, written

bounds = Command("bounds")
log = Command("log")
label = Command("label")
N = 300


def table(texts=False, **columns):
    """Answers without a leak to two questions, with these further columns."""
    rows = pd.DataFrame({"prompt_id": ["a"] * N + ["b"] * N, "sample": [*range(N)] * 2, "leak": 0})
    if texts:
        rows["text"] = [f"answer {number}" for number in range(2 * N)]
    return rows.assign(**columns)


@pytest.mark.parametrize("name", ["scores.csv", "scores.parquet"])
@pytest.mark.parametrize(
    ("setting", "value"),
    [
        *[("temperature", 0), ("Temperature", 0.0), ("do_sample", False), ("temp", 0)],
        *[("sampling_temperature", 0), ("generation_config.do_sample", False), ("topK", 1)],
        *[("temperature", 1e-9), ("gen_top_p", 0)],
    ],
)
def test_a_column_that_states_greedy_decoding_refutes_the_draws(tmp_path, name, setting, value):
    path = written(tmp_path / name, table(**{setting: value}))

    found = bounds.call(path, "--fail-above", "0.1")

    assert found.exit_code == 1
    assert "states greedy decoding" in found.output
    assert "with probability" not in found.output


@pytest.mark.parametrize("column", ["decoding", "Decoding", "decoding_strategy", "sampling"])
@pytest.mark.parametrize(("value", "exit_code"), [(0.8, 0), (0.0, 1)])
def test_an_object_of_settings_is_read_whatever_the_column(tmp_path, column, value, exit_code):
    settings = [{"temperature": value}] * (2 * N)
    path = written(tmp_path / "scores.parquet", table(**{column: settings}))

    assert bounds.call(path, "--fail-above", "0.1").exit_code == exit_code


@pytest.mark.parametrize("suffix", ["parquet", "jsonl"])
def test_a_list_as_a_setting_is_refused(tmp_path, suffix):
    rows = table(texts=True, seed=[[1]] * (2 * N))
    path = tmp_path / f"scores.{suffix}"
    if suffix == "jsonl":
        rows.to_json(path, orient="records", lines=True)
    else:
        rows.to_parquet(path)

    assert "got a list" in bounds.refused(path, "--score", "leak")


@pytest.mark.parametrize("setting", ["judge_temperature", "grader_temp", "temperature_of_judge"])
def test_the_temperature_of_a_judge_refutes_no_draws(tmp_path, setting):
    path = written(tmp_path / "scores.csv", table(**{setting: 0}))

    assert "with probability" in bounds.call(path).output


@pytest.mark.parametrize("values", [4, [4, 8] * N, [1] * (2 * N - 1) + [4]])
@pytest.mark.parametrize("setting", ["num_beams", "best_of"])
def test_an_answer_chosen_from_several_is_no_draw(tmp_path, setting, values):
    path = written(tmp_path / "scores.csv", table(**{setting: values}))

    found = bounds.call(path, "--fail-above", "0.1")

    assert found.exit_code == 1
    assert "best of several" in found.output
    assert "with probability" not in found.output


def test_the_temperature_of_the_greedy_answer_alone_refutes_nothing(tmp_path):
    rows = table(temperature=1.0)
    greedy = rows[:1].assign(sample=-1, temperature=0.0)

    path = written(tmp_path / "scores.csv", pd.concat([greedy, rows]))

    assert "with probability" in bounds.call(path).output


def test_answers_of_a_greedy_table_with_texts_are_copies(tmp_path):
    path = written(tmp_path / "answers.csv", table(texts=True, temperature=0))

    assert "temperature 0" in log.call(path).output


@pytest.mark.parametrize("column", ["cached", "Cached", "from_cache", "cache_hit", "is_cached"])
@pytest.mark.parametrize("texts", [False, True], ids=["scores", "answers"])
def test_answers_from_a_cache_are_no_draws(tmp_path, texts, column):
    path = written(tmp_path / "scores.csv", table(texts=texts, **{column: [False, True] * N}))

    found = bounds.call(path, "--score", "leak", "--fail-above", "0.1")

    assert found.exit_code == 1
    assert "300 answers came" in found.output
    assert "with probability" not in found.output


@pytest.mark.parametrize("end", ["error", "abort", "tool_calls", "something new"])
def test_an_answer_that_no_model_ended_is_missing_and_no_clean_one(tmp_path, end):
    ends = ["stop"] * 10 + [end] * (N - 10)
    path = written(tmp_path / "scores.csv", table(finish_reason=ends * 2))

    assert "no model ended this" in bounds.refused(path)
    found = bounds.call(path, "--missing", "worst", "--fail-above", "0.1")
    assert found.exit_code == 1
    (first, _) = bounds.result(path, "--missing", "worst")["per_prompt"]
    assert first["m_bin"] > 0.9


@pytest.mark.parametrize(
    ("column", "said"),
    [
        *[("finishReason", "error"), ("stop_reason", "tool_use"), ("done_reason", "load")],
        *[("error", "timeout"), ("Error", True), ("exception", "ValueError()")],
        *[("status", 500), ("status_code", 429), ("http_status", "503")],
        *[("status", "error"), ("status", "Failed"), ("status", "500 Internal Server Error")],
        *[("status", "timeout"), ("status", "cancelled"), ("status", "something new")],
        *[("status", -1), ("error", -32603), ("error", "-1")],
    ],
)
@pytest.mark.parametrize("name", ["scores.csv", "scores.parquet"])
def test_an_answer_with_an_error_is_missing_by_whatever_column(tmp_path, name, column, said):
    path = written(tmp_path / name, table(**{column: [said] * (2 * N)}))

    assert "no model ended this" in bounds.refused(path)


@pytest.mark.parametrize(
    ("column", "said"),
    [
        ("error", ""),
        ("error", 0.3),
        ("error", "none"),
        ("errors", 0),
        *[("error", word) for word in ("[]", "{}", "-", "No error", "null", "success", "OK")],
        *[("status", 200), ("status", "done"), ("status", "Completed"), ("status", "200 OK")],
        *[("status", ""), ("status", None), ("status", ["ok"] + [None] * (2 * N - 1))],
        *[("stop_reason", "end_turn"), ("stop_reason", 128009), ("stop_reason", "<|eot_id|>")],
    ],
)
def test_no_error_and_a_good_status_change_nothing(tmp_path, column, said):
    path = written(tmp_path / "scores.csv", table(**{column: said}))

    assert "with probability" in bounds.call(path).output


@pytest.mark.parametrize("nothing", [[], None])
def test_an_empty_list_of_errors_is_none(tmp_path, nothing):
    path = written(tmp_path / "scores.parquet", table(errors=[nothing] * (2 * N)))

    assert "with probability" in bounds.call(path).output


@pytest.mark.parametrize("name", ["scores.csv", "scores.parquet"])
@pytest.mark.parametrize(
    "columns",
    [
        {"finish_reason": None, "stop_reason": "error"},
        {"finish_reason": ["stop", None] * N, "stop_reason": [None, "error"] * N},
        {"Finish_Reason": None, "finish_reason": "error"},
        {"Error": None, "error": "timeout"},
        {"error": "timeout", "Error": None},
    ],
)
def test_a_cell_that_says_nothing_hides_no_other_column(tmp_path, name, columns):
    path = written(tmp_path / name, table(**columns))

    assert "no model ended this" in bounds.refused(path)


def test_the_stop_text_of_vllm_says_nothing_beside_an_end(tmp_path):
    columns = {"finish_reason": "stop", "stop_reason": "Question"}
    path = written(tmp_path / "scores.csv", table(**columns))

    assert "with probability" in bounds.call(path).output


def test_a_score_with_the_name_of_an_error_is_a_score(tmp_path):
    path = written(tmp_path / "scores.csv", table(error=[0, 1] * N))

    found = bounds.result(path, "--score", "error", "--leak-is", "high")

    assert found["per_prompt"][0]["mean"] == 0.5


@pytest.mark.parametrize("column", ["text", "response", "completion", "output"])
def test_a_null_in_place_of_a_text_is_missing_whatever_its_score(tmp_path, column):
    path = written(tmp_path / "scores.parquet", table(**{column: ["an answer", None] * N}))

    assert "no model ended this" in bounds.refused(path, "--score", "leak")


def test_an_empty_cell_of_a_csv_is_an_empty_answer_with_a_score(tmp_path):
    path = written(tmp_path / "scores.csv", table(text=["an answer", ""] * N))

    assert "with probability" in bounds.call(path, "--score", "leak").output


def test_ids_without_a_name_ask_which_column_names_the_questions(tmp_path):
    rows = table().set_index("prompt_id").drop(columns="sample")
    rows.index.name = None
    rows.to_csv(tmp_path / "scores.csv")

    assert "--by" in bounds.refused(tmp_path / "scores.csv")


def test_row_numbers_without_a_name_ask_nothing(tmp_path):
    table().drop(columns=["prompt_id", "sample"]).to_csv(tmp_path / "scores.csv")

    assert "with probability" in bounds.call(tmp_path / "scores.csv").output


def test_a_table_in_memory_has_the_same_missing_answers():
    rows = table(finish_reason=["length", "error"] * N)

    with pytest.raises(BadInput, match="missing"):
        lethe.bounds(rows, score="leak")
    found = lethe.bounds(rows, score="leak", missing="worst")
    assert found.worst().bound.value > 0.5


def test_known_ends_change_nothing(tmp_path):
    ended = table(finish_reason=["stop", "length"] * N)

    with_ends = bounds.result(written(tmp_path / "a.csv", ended))
    without = bounds.result(written(tmp_path / "b.csv", table()))

    assert with_ends["per_prompt"] == without["per_prompt"]


@pytest.mark.parametrize(
    ("column", "values", "reason"),
    [
        ("temperature", 0, "states greedy decoding"),
        ("do_sample", "no", "states greedy decoding"),
        ("cached", True, "came from a cache"),
        ("model", ["x", "y"] * N, "answers of 2 models"),
        ("refused_because", "It was copied.", "It was copied."),
    ],
)
def test_labels_of_a_table_that_refutes_its_draws_state_no_bound(tmp_path, column, values, reason):
    path = written(tmp_path / "answers.csv", table(texts=True, **{column: values}))

    found = lethe.label(path, labels=tmp_path / "none.jsonl")

    assert reason in " ".join(found.refused)
    assert not any(row.ends for row in found.rows())


@pytest.mark.parametrize(
    ("column", "values", "reason"),
    [
        ("stopped", True, "early stopping"),
        ("sample", 0, "repeat an earlier line"),
        ("text", 7, "expected a text"),
    ],
)
def test_labels_need_each_answer_once_and_as_a_text(tmp_path, column, values, reason):
    path = written(tmp_path / "answers.parquet", table(texts=True, **{column: values}))

    assert reason in label.refused(path, "--labels", tmp_path / "none.jsonl")


@pytest.mark.parametrize("yes", ["y", "t", "TRUE", "Yes", 1, 1.0])
def test_each_word_for_yes_says_that_an_answer_came_from_a_cache(tmp_path, yes):
    path = written(tmp_path / "scores.csv", table(cached=yes))

    assert "came from a cache" in bounds.call(path).output


def test_labels_of_a_sound_table_keep_their_bounds(tmp_path):
    path = written(tmp_path / "answers.csv", table(texts=True, temperature=1.0, model="x"))

    assert lethe.label(path, labels=tmp_path / "none.jsonl").refused == ()


@pytest.fixture
def lossy_table(tmp_path):
    """What `lethe log --table` writes of answers of which every third never came."""
    ends = ["stop", "length", "error"] * (2 * N // 3)
    source = written(tmp_path / "answers.parquet", table(texts=True, finish_reason=ends))
    log.call(source, "--table", tmp_path / "table.csv")
    return tmp_path / "table.csv"


def test_the_table_of_a_log_keeps_the_answers_that_never_came(lossy_table):
    assert "no model ended this" in bounds.refused(lossy_table, "--score", "leak")
    (first, _) = bounds.result(lossy_table, "--score", "leak", "--missing", "worst")["per_prompt"]
    assert first["n"] == N
    assert first["m_bin"] > 1 / 3


def test_labels_of_the_table_of_a_log_know_its_missing_answers(lossy_table, tmp_path):
    found = lethe.label(lossy_table, labels=tmp_path / "none.jsonl").as_json()

    assert found["missing"] == {"error": 2 * N // 3}


def test_a_whole_log_becomes_a_table_without_a_column_of_ends(tmp_path):
    log.call(written(tmp_path / "a.parquet", table(texts=True)), "--table", tmp_path / "b.csv")

    assert list(pd.read_csv(tmp_path / "b.csv")) == ["prompt_id", "sample", "text", "leak"]


@pytest.fixture
def lossy_scores(tmp_path):
    """Scores of 100 answers to each of two questions, of which 40 have none."""
    scores = pd.DataFrame({"prompt_id": ["a"] * 100 + ["b"] * 100, "sample": [*range(100)] * 2})
    return written(tmp_path / "scores.csv", scores.assign(leak=([0] * 60 + [None] * 40) * 2))


def labels_of(path, samples):
    """Labels of clean answers, of these samples of each question."""
    pairs = [(name, sample, 0) for name in "ab" for sample in samples]
    return written(path, pd.DataFrame(pairs, columns=["prompt_id", "sample", "label"]))


def test_labels_of_the_answers_that_came_leave_the_lost_ones_as_leaks(lossy_scores, tmp_path):
    labels = labels_of(tmp_path / "labels.csv", range(50))
    options = (lossy_scores, "--score", "leak", "--missing", "worst", "--labels", labels)

    found = bounds.result(*options)
    gate = bounds.call(*options, "--fail-above", "0.2")

    assert found["labelled"]["upper"] > 0.4
    assert all(prompt["labelled"]["upper"] > 0.4 for prompt in found["per_prompt"])
    assert gate.exit_code == 1


@pytest.mark.parametrize(
    ("samples", "least", "most"),
    [(range(0, 100, 2), 0.2, 0.5), ([*range(40), 60], 0.39, 0.7), (range(40, 100), 0.0, 0.1)],
    ids=["half of them", "one of them", "all of them"],
)
def test_each_answer_without_verdict_and_label_counts_as_lost(
    lossy_scores, tmp_path, samples, least, most
):
    labels = labels_of(tmp_path / "labels.csv", samples)

    found = bounds.result(lossy_scores, "--score", "leak", "--missing", "worst", "--labels", labels)

    assert least < found["labelled"]["upper"] < most


@pytest.mark.parametrize("rule", ["worst", "drop"])
@pytest.mark.parametrize("quoted", [False, True], ids=["by block", "whole"])
def test_a_label_of_an_answer_that_the_file_states_as_lost_is_refused(tmp_path, rule, quoted):
    rows = table(finish_reason=(["stop"] * (N - 1) + ["error"]) * 2)
    scores = tmp_path / "scores.csv"
    rows.to_csv(scores, index=False, quoting=int(quoted))
    labels = labels_of(tmp_path / "labels.csv", [*range(40), N - 1])

    said = bounds.refused(scores, "--score", "leak", "--missing", rule, "--labels", labels)

    assert "line 42" in said
    assert "as lost" in said


def test_labels_of_chosen_answers_are_refuted_beside_a_label_of_an_unjudged_answer(tmp_path):
    scores = table(leak=([0] * 100 + [1] * 100 + [None] * 100) * 2)
    path = written(tmp_path / "scores.csv", scores)
    labels = labels_of(tmp_path / "labels.csv", [*range(60), 299])

    found = bounds.result(path, "--score", "leak", "--missing", "worst", "--labels", labels)

    assert "other verdicts" in " ".join(found["refused"])


def test_labels_beside_dropped_answers_state_what_they_assume(lossy_scores, tmp_path):
    labels = labels_of(tmp_path / "labels.csv", range(50))
    options = (lossy_scores, "--score", "leak", "--missing", "drop", "--labels", labels)

    found = bounds.result(*options)

    assert "missing at random" in found["labelled"]["assumes"]
    assert "missing at random" in bounds.call(*options, "--fail-above", "0.2").output


def test_labels_of_a_whole_file_have_the_bounds_of_labels_alone(lossy_scores, tmp_path):
    labels = labels_of(tmp_path / "labels.csv", range(50))
    options = ("--score", "leak", "--labels", labels)

    dropped = bounds.result(lossy_scores, *options, "--missing", "drop")
    pd.read_csv(lossy_scores).fillna(0).to_csv(lossy_scores, index=False)
    whole = bounds.result(lossy_scores, *options)

    assert dropped["labelled"]["upper"] == whole["labelled"]["upper"] < 0.1
