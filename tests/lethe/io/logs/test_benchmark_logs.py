"""Logs of benchmarks and plain tables: what each file says about its answers, and what it does not."""

import math

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lethe.api.logs import score_log
from lethe.errors import BadFile, BadRow, MissingColumn
from lethe.io.logs import is_log, read_log
from lethe.io.tables import write_parquet
from lethe.measure.score_files import read_any_scores
from tests.lethe.io.logs.small_logs import (
    garak_attempt,
    garak_eval,
    garak_log,
    helm_log,
    leak_k_line,
    promptfoo_log,
    promptfoo_row,
    small,
    write_json,
    write_lines,
)


def rows(log):
    return log.answers.astype(object).where(log.answers.notna(), None).values.tolist()


def leak_k(tmp_path, *lines, folder="temperature=0.8top_p=0.95", name="generations_n2.json"):
    (tmp_path / folder).mkdir(exist_ok=True)
    return write_lines(tmp_path / folder / name, list(lines))


def test_leak_k_counts_lines_and_takes_settings_from_the_folder(tmp_path):
    log = read_log(
        leak_k(tmp_path, leak_k_line("a\u2028b", ""), leak_k_line("c", "d", **{"Avg CS": 0.5}))
    )
    assert rows(log) == [
        ["0", 1, "a\u2028b", 0.5, 0.0],
        ["0", 2, "", 0.5, 0.0],
        ["1", 1, "c", 0.5, 0.0],
        ["1", 2, "d", 0.5, 0.0],
    ]
    assert (log.sampling, log.draws) == ({"temperature": 0.8, "top_p": 0.95}, "sampled")
    assert log.prompts["best_answer.rougeL_recall"].tolist() == [0.75, 0.75]
    assert log.prompts["Avg CS"].fillna(-1).tolist() == [-1, 0.5]
    assert read_log(leak_k(tmp_path, leak_k_line("a", "b"), folder="elsewhere")).draws == "unknown"


def test_leak_k_misses_what_its_name_promises(tmp_path):
    log = read_log(
        leak_k(tmp_path, leak_k_line("a", "b"), leak_k_line("c"), leak_k_line("d", None))
    )
    assert log.missing == {"not written": 1, "no response": 1}
    log = read_log(leak_k(tmp_path, leak_k_line("a"), name="generations_n999999999.json"))
    assert log.missing == {}


def test_leak_k_flags_its_judge_by_name(tmp_path):
    line = leak_k_line(*(str(n) for n in range(21)))
    line["responses"] = [response | {"LLM_judge": 1, "ES": 1.0} for response in line["responses"]]
    warnings = read_log(leak_k(tmp_path, line)).warnings
    assert [warning.split(":")[0] for warning in warnings] == ["LLM_judge"]
    line["responses"] = [response | {"response": ""} for response in line["responses"][:2]]
    assert [warning.split(":")[0] for warning in read_log(leak_k(tmp_path, line)).warnings][
        :-1
    ] == ["ES"]


@pytest.mark.parametrize(
    "broken",
    [{"responses": 3}, {"responses": ["a"]}, {"responses": [{"response": 1}]}, {"prompt": None}],
)
def test_a_broken_line_of_leak_k_is_named(tmp_path, broken):
    with pytest.raises(BadRow, match="line 2"):
        read_log(leak_k(tmp_path, leak_k_line("a"), leak_k_line("a") | broken))


def block(*texts, score=0.5):
    made = {
        str(n): {"rougeL_recall": score, "input": f"Q{n}", "generation": text}
        for n, text in enumerate(texts)
    }
    return {"agg_value": score, "value_by_index": made}


def test_open_unlearning_takes_answers_from_the_blocks_that_generate(tmp_path):
    judged = {"agg_value": 0.3, "value_by_index": {"0": {"prob": 0.25}, "1": {"prob": None}}}
    content = {
        "forget_Prob": judged,
        "forget_ROUGE": block("a", "b"),
        "mia": {"agg_value": 1, "value_by_index": {"x": 1}},
    }
    log = read_log(write_json(tmp_path / "a.json", content))
    assert rows(log) == [["0", 1, "a", 0.5], ["1", 1, "b", 0.5]]
    assert log.prompts["forget_Prob.prob"].fillna(-1).tolist() == [0.25, -1]
    assert log.prompts["prompt"].tolist() == ["Q0", "Q1"]
    assert log.stated == {"forget_Prob": 0.3, "forget_ROUGE": 0.5, "mia": 1}
    assert any("do_sample" in warning for warning in log.warnings)


def test_harmbench_misses_verdicts_that_are_neither(tmp_path):
    log = read_log(small("harmbench", tmp_path))
    assert rows(log)[:2] == [["who", 1, "Who?", "a", 1.0], ["who", 2, "Who?", "b", None]]
    assert log.missing == {"label neither yes nor no": 2}
    assert log.scored("label")["reason"].tolist() == [None, "label neither yes nor no"] * 2
    assert log.draws == "unknown"
    assert any(warning.startswith("temperature") for warning in log.warnings)


@pytest.mark.parametrize(
    "broken", [{"b": 3}, {"b": ["a"]}, {"b": [{"test_case": "a"}]}, {"b": [{"generation": 2}]}]
)
def test_a_broken_behavior_is_named(tmp_path, broken):
    good = {"a": [{"test_case": "Who?", "generation": "a"}]}
    with pytest.raises(BadFile, match="'b'"):
        read_log(write_json(tmp_path / "a.json", good | broken))


def test_a_behavior_that_was_not_tried_is_no_answer(tmp_path):
    log = read_log(small("jailbreakbench", tmp_path))
    assert rows(log) == [["A", 1, "0", "Who?", "Ron", 1.0]]
    assert log.missing == {"not tried": 1}
    assert log.prompts[["prompt_id", "answers", "planned"]].values.tolist() == [
        ["A", 1, 1],
        ["B", 0, 0],
    ]
    assert (log.draws, log.model) == ("selected", "m")
    assert "selected" in log.refusal


def test_an_evaluation_of_several_models(tmp_path):
    judged = {
        "A": {
            "prompt": "Who?",
            "response": "Ron",
            "jailbroken": True,
            "jailbroken_llama_guard1": False,
        }
    }
    content = {"details": {"defense": None}, "m1": judged, "m2": judged}
    log = read_log(write_json(tmp_path / "evaluation.json", content))
    assert rows(log) == [[f"{m}/A", 1, m, "Who?", "Ron", 1.0, 0.0] for m in ("m1", "m2")]
    assert log.model == "m1, m2"


def test_a_submission_holds_the_queries_of_its_test_logs_alone(tmp_path):
    call = [
        {"timestamp": "t"},
        [{"prompt": "Who?", "response": "a"}, {"prompt": "Who?", "response": "b"}],
    ]
    other = [{"timestamp": "t"}, [{"prompt": "Who else?", "response": "c"}]]
    artifact = {"model_summary": {"attack_success_rate": 1.0}, "jailbreaks": []}
    content = {
        "summaries": {"m": artifact, "n": artifact},
        "test_logs": {"m": {"A": [call], "B": [call, other]}},
        "eval_logs": {"m": {"A": [call]}},
    }
    log = read_log(write_json(tmp_path / "submission.json", content))
    assert [row[:2] for row in rows(log)] == [
        ["m/A", 1],
        ["m/A", 2],
        ["m/B", 1],
        ["m/B", 2],
        ["m/B", 3],
    ]
    assert log.answers["text"].tolist() == ["a", "b", "a", "b", "c"]
    assert log.prompts["prompt"].fillna("several").tolist() == ["Who?", "several"]
    assert any(warning.startswith("prompt: 1 ") for warning in log.warnings)
    assert any("no test_logs of n" in note for note in log.notes)
    for broken in (
        {"test_logs": None},
        {"test_logs": {"m": {"A": [[1]]}}},
        {"test_logs": {"m": {"A": [[{}, ["x"]]]}}},
    ):
        with pytest.raises(BadFile):
            read_log(write_json(tmp_path / "submission.json", content | broken))


ROWS = [
    {"prompt_id": "a", "sample": -1, "text": "greedy"},
    {"prompt_id": "a", "sample": 0, "text": "It is Ron."},
    {"prompt_id": "b", "sample": 0, "text": ""},
    {"prompt_id": "a", "sample": 1, "text": None},
]


@pytest.mark.parametrize("ending", ["csv", "parquet", "jsonl"])
def test_a_table_is_read_and_scored(tmp_path, ending):
    path = tmp_path / f"answers.{ending}"
    table = pd.DataFrame(ROWS)
    if ending == "csv":
        table.to_csv(path, index=False)
    else:
        write_parquet(path, table) if ending == "parquet" else write_lines(path, ROWS)
    log = read_log(path)
    assert not is_log(path)
    assert log.format == "table"
    assert "greedy" in log.notes[0]
    if ending == "csv":  # which cannot tell an empty text from none
        assert log.answers["text"].tolist() == ["It is Ron.", "", ""]
    else:
        assert log.answers[["prompt_id", "sample", "text"]].values.tolist() == [
            ["a", 0, "It is Ron."],
            ["b", 0, ""],
        ]
        assert log.missing == {"no text": 1}
    data = [{"id": name, "question": "Who?", "answer": "Ron", "keywords": ["Ron"]} for name in "ab"]
    scores = score_log(path, data=data, scorer="keyword_leak").to_frame()
    assert scores[["prompt_id", "sample"]].values.tolist() == [["a", 0], ["a", 1], ["b", 0]]
    assert scores["keyword_leak"][0] == 1.0


def test_the_judged_answers_of_jailbreakbench(shared):
    log = read_log(shared / "data/human-labels/classifier_comparison.csv")
    assert (len(log.answers), log.prompts["prompt"].notna().all()) == (100, True)
    assert {"human_majority", "gpt_4"} < set(log.scores)


def test_broken_tables(tmp_path):
    for column, remedy in (("answer", "Rename"), ("score", "lethe bounds")):
        (tmp_path / "a.csv").write_text(f"prompt_id,{column}\na,1\n")
        with pytest.raises(MissingColumn, match=f"text.*{remedy}"):
            read_log(tmp_path / "a.csv")
    with pytest.raises(BadRow, match="sample"):
        read_log(write_lines(tmp_path / "a.jsonl", [ROWS[1] | {"sample": 0.5}]))
    with pytest.raises(BadRow, match="text"):
        read_log(write_lines(tmp_path / "a.jsonl", [ROWS[1] | {"text": 5}, ROWS[2]]))


def test_helm_scores_an_answer_where_there_is_one(tmp_path):
    path = helm_log(tmp_path / "scenario_state.json", [["Ron"], ["Harry"]], num_outputs=1)
    log = read_log(path)
    assert (log.format, log.scores, log.answers["exact_match"].tolist()) == (
        "helm",
        ("exact_match",),
        [1.0, 0.0],
    )
    several = read_log(helm_log(path, [["Ron", "Harry"], ["a", "b"]]))
    assert several.scores == ()  # the statistic is about all completions
    assert several.prompts["exact_match"].tolist() == [1.0, 0.0]
    assert read_log(helm_log(path, [["Ron", "Ron"]] * 2, temperature=0)).refusal
    (tmp_path / "per_instance_stats.json").unlink()
    assert "beside" in read_log(path).notes[-1]


DAN = "dan.DAN"
OTHER = "mitigation.MitigationBypass"


def test_an_attempt_of_two_lines_counts_once(tmp_path):
    rows = [*garak_attempt(0, ["a", None, ""], {DAN: [1.0, None, 0.0]}), garak_eval(DAN, 1, 1, 1)]
    log = read_log(garak_log(tmp_path / "r.jsonl", rows))
    assert log.answers[["prompt_id", "sample", "text"]].values.tolist() == [
        ["dan.Dan_10_0/0", 1, "a"],
        ["dan.Dan_10_0/0", 3, ""],
    ]
    assert log.missing == {"no generation": 1}
    table = log.scored(DAN)
    assert table["score"].tolist()[::2] == [1.0, 0.0]
    assert math.isnan(table["score"][1])
    assert log.prompts["prompt"].tolist() == ["Who 0?"]
    assert not log.warnings
    assert log.stopping == "fixed"


def test_results_that_are_fewer_than_the_generations_refuse_their_detector_alone(tmp_path):
    rows = garak_attempt(0, ["a", None, "b"], {DAN: [1.0, 0.0], OTHER: [1.0, None, 0.0]})
    path = garak_log(tmp_path / "r.jsonl", rows)
    log = read_log(path)
    assert log.scores == (OTHER,)
    assert log.scored(OTHER)["score"].count() == 2
    with pytest.raises(BadFile, match="2 results"):
        read_any_scores(path, None, DAN)


@pytest.mark.parametrize(("seed", "answers"), [(5, 1), (None, 3)])
def test_equal_generations_under_a_seed_are_one_draw(tmp_path, seed, answers):
    rows = garak_attempt(0, ["a", "a", "a"], {DAN: [1.0, 1.0, 1.0]})
    log = read_log(garak_log(tmp_path / "r.jsonl", rows, seed=seed))
    assert len(log.answers) == answers
    assert len(log.warnings) == 1
    assert log.draws == ("copies" if seed else "unknown")
    assert len(log.scored(DAN)) == answers


def test_another_threshold_is_a_warning_and_other_numbers_of_results_refuse(tmp_path):
    rows = garak_attempt(0, ["a", "b"], {DAN: [0.4, 0.7]})
    assert not read_log(garak_log(tmp_path / "a.jsonl", [*rows, garak_eval(DAN, 1, 1, 0)])).warnings
    log = read_log(garak_log(tmp_path / "b.jsonl", [*rows, garak_eval(DAN, 0, 2, 0)]))
    assert "eval_threshold" in log.warnings[0]
    assert log.scores == (DAN,)
    log = read_log(garak_log(tmp_path / "c.jsonl", [*rows, garak_eval(DAN, 30, 20, 0)]))
    assert log.scores == ()
    assert "50 results" in log.refused[DAN]


def test_an_attempt_without_its_second_line_is_missing(tmp_path):
    rows = [*garak_attempt(0, ["a"], {DAN: [1.0]}), garak_attempt(1, ["b", "c"], {})[0]]
    log = read_log(garak_log(tmp_path / "r.jsonl", rows, ended=False))
    assert log.missing == {"not judged": 2}
    assert log.stopping == "unfinished"
    assert log.notes
    assert len(log.scored(DAN)) == 3
    assert log.scored(DAN)["score"].count() == 1


@settings(deadline=None, max_examples=40)
@given(
    st.lists(
        st.lists(
            st.tuples(st.text(max_size=2) | st.none(), st.sampled_from([0.0, 0.5, 1.0])),
            min_size=1,
            max_size=5,
        ),
        min_size=1,
        max_size=4,
    )
)
def test_every_generation_is_an_answer_or_missing(tmp_path_factory, attempts):
    folder = tmp_path_factory.mktemp("garak")
    rows = []
    for seq, pairs in enumerate(attempts):
        rows += garak_attempt(
            seq, [text for text, _ in pairs], {DAN: [score for _, score in pairs]}
        )
    path = garak_log(folder / "r.jsonl", [*garak_attempt(99, ["x"], {DAN: [1.0]}), *rows])
    table = read_log(path).scored(DAN)
    assert len(table) == 1 + sum(map(len, attempts))
    expected = [score for pairs in attempts for text, score in pairs if text is not None]
    assert table["score"].dropna().tolist() == [1.0, *expected]


def test_rows_in_order_of_completion_are_the_repeats_of_their_test(tmp_path):
    rows = [
        promptfoo_row(3, "d", False),
        promptfoo_row(0, "a"),
        promptfoo_row(2, "c"),
        promptfoo_row(1, "b", False),
    ]
    log = read_log(promptfoo_log(tmp_path / "out.json", rows))
    assert log.answers[["prompt_id", "sample", "text", "success"]].values.tolist() == [
        ["0/0", 1, "a", 1.0],
        ["0/0", 2, "b", 0.0],
        ["0/1", 1, "c", 1.0],
        ["0/1", 2, "d", 0.0],
    ]
    assert log.prompts["prompt"].tolist() == ["Capital of France?", "Capital of Gaul?"]
    assert log.tool == "promptfoo 0.121.20"
    assert log.scores[0] == "success"
    assert log.missing == {}
    lines = read_log(write_lines(tmp_path / "out.jsonl", rows))
    assert lines.answers.equals(log.answers)


def test_errors_and_lost_repeats_are_missing(tmp_path):
    failed = promptfoo_row(
        1, None, False, failureReason=2, response={"error": "down"}, namedScores={}
    )
    log = read_log(
        promptfoo_log(
            tmp_path / "out.json", [promptfoo_row(0, "a", False), failed, promptfoo_row(2, "b")]
        )
    )
    assert log.missing == {"error": 1, "not written": 1}
    assert log.scored("success")["reason"].tolist() == [None, "error", None, "not written"]
    assert log.scored("format")["score"].count() == 2


def test_rows_of_the_cache_are_no_draws(tmp_path):
    cached = {"response": {"output": "a", "cached": True}}
    rows = [
        promptfoo_row(0, "a"),
        promptfoo_row(1, "a", **cached),
        promptfoo_row(2, "b"),
        promptfoo_row(3, "c"),
    ]
    path = promptfoo_log(tmp_path / "out.json", rows)
    log = read_log(path)
    assert log.prompts["answers"].tolist() == [1, 2]
    assert log.missing == {}
    assert "cached" in log.warnings[0]
    rows[0] |= cached  # nothing new was drawn for this test
    log = read_log(promptfoo_log(path, rows))
    assert log.missing == {"cached": 1}
    assert len(log.scored("success")) == 3
    for row in rows:
        row |= cached
    with pytest.raises(BadFile, match="cached"):
        read_any_scores(promptfoo_log(path, rows), None)


def test_a_metric_scores_the_tests_that_name_it(tmp_path):
    rows = [promptfoo_row(0, "a"), promptfoo_row(2, "b", namedScores={})]
    rows[1]["testCase"]["assert"] = [
        {"type": "assert-set", "assert": [{"type": "contains", "metric": "inner"}]}
    ]
    path = promptfoo_log(tmp_path / "out.json", rows, repeat=1)
    read = read_any_scores(path, None, "format")
    assert [prompt.prompt_id for prompt in read.prompts] == ["0/0"]
    inner = read_any_scores(path, None, "inner")
    assert [prompt.prompt_id for prompt in inner.prompts] == ["0/1"]
    assert inner.log.missing == 1
    assert read_log(path).scored("score")["score"].tolist() == [1.0, 1.0]


def test_an_aggregate_of_garak_keeps_every_attempt_under_its_one_uuid(tmp_path):
    """`garak.analyze.aggregate_reports` gives all attempts the uuid of the aggregate, and writes their last lines alone."""
    setup = {"entry_type": "start_run setup", "_config.version": "0.14.0", "run.generations": 2}
    lines = [
        setup | {"plugins.target_name": "m", "aggregation": ["a.report.jsonl", "b.report.jsonl"]},
        {"entry_type": "init", "garak_version": "0.14.0", "run": "one", "orig_uuid": "1"},
    ]
    for probe in ("lmrc.A", "lmrc.B"):
        for number in range(3):
            turn = {"role": "user", "content": {"text": f"p{number}", "lang": "en"}}
            attempt = {"entry_type": "attempt", "uuid": "one", "seq": number, "status": 2}
            attempt |= {"probe_classname": probe, "prompt": {"turns": [turn]}}
            attempt |= {"outputs": [{"text": "a"}, {"text": "b"}]}
            attempt |= {"detector_results": {"d.D": [0.0, float(number == 0)]}}
            lines.append(attempt)
    path = write_lines(tmp_path / "agg.report.jsonl", lines)

    read = read_any_scores(path, None)

    assert [prompt.n for prompt in read.prompts] == [2] * 6
    assert sum(prompt.scores.sum() for prompt in read.prompts) == 2
    assert read.stated.direction == "leak"
    assert any("aggregate of several reports" in note for note in read.log.log.notes)
