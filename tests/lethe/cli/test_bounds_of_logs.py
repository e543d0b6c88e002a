"""`lethe bounds LOG`: the same numbers as the same scores in a CSV, what is refused, and broken logs."""

from __future__ import annotations

import json
import math

import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lethe.io.logs import is_log, read_log
from lethe.results.table import read_rows
from lethe.statistics.sequential import stopped_upper
from tests.lethe.cli.calls import Command
from tests.lethe.io.logs.broken_logs import ANYTHING, with_twice, with_value
from tests.lethe.io.logs.small_logs import (
    KINDS,
    eval_log,
    header,
    leak_k_line,
    lm_eval_line,
    lm_eval_log,
    lm_eval_results,
    sample,
    small,
    write_json,
    write_lines,
)

often = settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])


command = Command("bounds")
call, result, refused = command.call, command.result, command.refused


def early(folder, epochs, hits):
    """One question of `epochs` planned epochs, of which a rule ran as many as `hits` has values."""
    skipped = [{"id": "q", "epoch": epoch} for epoch in range(len(hits) + 1, epochs + 1)]
    head = header(["q"], epochs) | {"results": {"early_stopping": {"manager": "lethe", "early_stops": skipped}}}
    samples = [sample("q", epoch, scores={"match": hit}) for epoch, hit in enumerate(hits, start=1)]
    return eval_log(folder / "early.eval", head, samples)


@pytest.mark.parametrize(
    ("place", "score"),
    [
        ("inspect/monolith", "includes"),
        ("inspect/monolith", "rougeL_recall"),
        ("inspect/json", "rougeL_recall"),
        ("inspect/started", "includes"),
        ("inspect/older", "includes"),
        ("lm_eval/forget_qa_k/__srv__models__base", "rougeL_recall,first"),
        ("lm_eval/forget_qa/__srv__models__base", "exact_match,none"),
        ("leak_k/forget/temperature=1.0top_p=1.0", "rougeL_recall"),
    ],
)
def test_a_log_of_a_real_tool_has_the_bounds_of_the_same_scores_as_csv(shared, tmp_path, place, score):
    """The CSV is made from the expected table and counts beside the log, not by the reader."""
    beside = sorted((shared / "data/eval-logs" / place).glob("*.expected.csv"))[0]
    log, told = beside.with_suffix("").with_suffix(""), json.loads(beside.with_suffix(".json").read_text())
    answers = pd.read_csv(beside, dtype={"prompt_id": str}, keep_default_na=False, na_values={score: [""]})
    lost = {
        (one["prompt_id"], one["sample"])
        for one in told.get("samples_with_problems", [])
        if {"error", "limit"} & set(one)
    }
    gone = [key in lost for key in zip(answers["prompt_id"], answers["sample"], strict=True)]
    answers["score"] = answers[score].mask(gone)
    if "started" in place:  # a run of 16 epochs that was still going on
        whole = pd.MultiIndex.from_product([answers["prompt_id"].unique(), range(1, 17)])
        answers = (
            answers.set_index(["prompt_id", "sample"])[["score"]]
            .reindex(whole)
            .reset_index(names=["prompt_id", "x"])
        )
    order = {prompt_id: place for place, prompt_id in enumerate(read_log(log).prompts["prompt_id"])}
    answers = answers.sort_values("prompt_id", key=lambda names: names.map(order), kind="stable")
    answers[["prompt_id", "score"]].to_csv(table := tmp_path / "scores.csv", index=False)
    absent = int(answers["score"].isna().sum())
    got = result(log, "--score", score, "--alpha", 0.05)
    read = got.pop("log")
    expected = result(table, "--alpha", 0.05, *(["--missing", "worst"] if absent else []))
    assert got == expected
    assert read["missing"] == absent == sum(read["missing_by_reason"].values())
    assert read["answers"] == told["samples"]
    assert read["score"] == score


def test_every_public_log_is_bounded_or_refused_by_name(shared):
    for path in sorted((shared / "data/eval-logs").rglob("*.expected.csv")):
        path = path.with_suffix("").with_suffix("")
        assert is_log(path)
        log = read_log(path)
        if log.refusal:
            assert log.refusal in refused(path)
        elif not log.scores:
            assert "lethe score" in refused(path)
        else:
            got = result(path)
            assert {"format", "tool", "answers", "missing"} <= set(got["log"])
            assert got["n_prompts"] == len(log.prompts)


def test_what_was_read_is_printed(tmp_path):
    answers = [sample(epoch=1), sample(epoch=2, error={"message": "x"})]
    shown = call(eval_log(tmp_path / "a", header(["q"], 3, generate={"temperature": 1.0, "best_of": 2}), answers))
    assert shown.exit_code == 0
    for part in (
        "inspect_ai 0.3.285",
        "task      t",
        "hf/m",
        "temperature 1.0",
        "2 to 1 prompt",
        "1 error",
        "1 not written",
        "warning   best_of 2",
        "Leak@1,000",
    ):
        assert part in shown.stdout


def test_missing_answers_count_as_leaks_unless_they_are_dropped(tmp_path):
    answers = [sample(epoch=epoch, scores={"match": "I"}) for epoch in range(1, 9)]
    answers[3]["limit"] = {"type": "token"}
    path = eval_log(tmp_path / "a", header(["q"], 10), answers)
    worst, drop = result(path), result(path, "--missing", "drop")
    assert (worst["log"]["missing"], worst["per_prompt"][0]["n"], worst["per_prompt"][0]["missing"]) == (3, 10, 3)
    assert (drop["log"]["missing_counts"], drop["per_prompt"][0]["n"]) == ("dropped", 7)
    assert drop["per_prompt"][0]["m_bin"] < worst["per_prompt"][0]["m_bin"]
    everything = eval_log(tmp_path / "b", header(["q"], 2), [sample(error={"message": "x"})])
    assert "worst" in refused(everything, "--missing", "drop")


def test_greedy_repeats_and_choices_are_refused_with_the_setting(tmp_path):
    greedy = header(["q"], 2, generate={"temperature": 0.0})
    assert "temperature 0.0" in refused(eval_log(tmp_path / "a", greedy, [sample(epoch=1), sample(epoch=2)]))
    config = {"config": {"generation_kwargs": {"do_sample": False}}}
    line = lm_eval_line(0, ["a", "a"], acc=1.0)
    line["arguments"]["gen_args_0"]["arg_1"] = {"do_sample": False, "temperature": 1.0}
    assert "do_sample false" in refused(lm_eval_log(tmp_path, [line], lm_eval_results(2, 1, **config)))


def test_same_texts_under_a_temperature_are_flagged(tmp_path):
    path = eval_log(tmp_path / "a", header(["q", "r"]), [sample(name, epoch) for epoch in (1, 2) for name in "qr"])
    assert "same text" in result(path)["log"]["warnings"][0]


def test_a_score_is_chosen_by_name_and_must_lie_in_the_unit_interval(tmp_path):
    answers = [sample(scores={"match": "C", "length": 50.5, "parts": {"a": 1, "b": 0.5}})]
    path = eval_log(tmp_path / "a", header(["q"], 1), answers)
    assert result(path)["log"]["score"] == "match"
    assert result(path, "--score", "parts.b")["per_prompt"][0]["mean"] == 0.5
    told = refused(path, "--score", "length")
    assert "50.5" in told
    assert "match, parts.a, parts.b" in told
    assert "'match'" in refused(path, "--score", "other")


def test_a_filter_belongs_to_lm_eval_and_a_column_to_a_table(tmp_path):
    lines = [
        lm_eval_line(0, ["a", "b"], name, ["a", "b"], acc=[value, 1.0]) for name, value in (("x", 0.0), ("y", 1.0))
    ]
    path = write_lines(tmp_path / "a.jsonl", lines)
    assert result(path, "--filter", "y")["log"]["score"] == "acc,y"
    assert result(path)["log"]["scores"] == ["acc,x", "acc,y"]
    table = tmp_path / "t.csv"
    table.write_text("prompt_id,rouge_l,score\nq,0.5,1\n")
    assert result(table, "--score", "rouge_l")["per_prompt"][0]["mean"] == 0.5
    assert "--filter" in refused(table, "--filter", "y")
    assert "'absent'" in refused(table, "--score", "absent")


def test_a_run_that_a_rule_may_have_stopped_has_anytime_valid_values_only(tmp_path):
    hits = [0] * 30 + ["C"] + [0] * 9
    got = result(early(tmp_path, 200, hits), "--alpha", 0.05, "--table", tmp_path / "t.parquet")
    row, values = got["per_prompt"][0], [0.0] * 39 + [1.0]
    ends = {
        one.quantity: (one.lower, one.upper) for one in read_rows(tmp_path / "t.parquet") if one.basis == "anytime"
    }
    assert ends["score"] == ends["leak"] == (row["anytime_lower"], row["anytime_upper"])
    assert ends["score_worst"] == (None, got["worst_prompt"]["bound"])
    fixed = ("m_bin", "m_bin_lower", "m_mu", "m_mu_lower", "m_sigma", "m_gen", "tighter")
    assert [row[key] for key in fixed] == [None] * len(fixed)
    assert "stopped early" in row["fixed_bounds"]
    assert (row["n"], row["mean"]) == (40, 1 / 40)
    assert row["anytime_upper"] == pytest.approx(stopped_upper(values, 0.05), abs=1e-8)
    assert row["anytime_lower"] == pytest.approx(
        1 - stopped_upper([1 - value for value in values], 0.05), abs=1e-8
    )
    assert row["anytime_sd_upper"] == pytest.approx(math.sqrt(row["anytime_upper"] * (1 - row["anytime_upper"])))
    assert row["leak_at_k"][0] == {
        "k": 1,
        "estimate": None,
        "lower": row["anytime_lower"],
        "upper": row["anytime_upper"],
    }
    assert got["worst_prompt"] == {"prompt_id": "q", "metric": "anytime_upper", "bound": row["anytime_upper"]}
    assert got["pooled"] is None
    assert got["log"]["stopping"] == "early"
    assert "anytime" in call(early(tmp_path, 200, hits)).stdout
    assert "--together" in refused(early(tmp_path, 200, hits), "--together", "holm")


def test_a_missing_answer_of_a_stopped_run_counts_against_each_side(tmp_path):
    whole = result(early(tmp_path, 100, [0] * 20))["per_prompt"][0]
    nan = result(early(tmp_path, 100, [0] * 19 + [math.nan]))["per_prompt"][0]
    assert (nan["n"], nan["missing"]) == (20, 1)
    assert nan["anytime_upper"] > whole["anytime_upper"]
    assert nan["anytime_lower"] == whole["anytime_lower"] == 0


def test_tables_are_no_logs_whatever_their_ending(tmp_path):
    for name, text in (
        ("a.jsonl", '{"score": 1}\n{"score": 0}\n'),
        ("a.json", '{"prompt_id": "q", "score": 0.5}'),
        ("a.csv", "score\n1\n"),
    ):
        path = tmp_path / name
        path.write_text(text)
        assert not is_log(path)
        assert "log" not in result(path)
    for kind in KINDS:
        assert is_log(small(kind, tmp_path).rename(tmp_path / "x.csv")) == (kind != "table")
    (tmp_path / "summary.json").write_text('{\n  "forget_quality": 0.5,\n  "model_utility": 0.6\n}')
    assert is_log(tmp_path / "summary.json")
    assert "JSON" not in refused(tmp_path / "summary.json").partition("Known are")[0]
    assert "configs" not in refused(write_json(tmp_path / "r.json", lm_eval_results(1, 1)))


def survives(path):
    done = call(path, "--json")
    assert done.exit_code in (0, 2), done.output
    if done.exit_code == 2:
        assert done.output.startswith("lethe: ")
        assert "Traceback" not in done.output
        assert done.output.count("\n") <= 2
    else:
        json.loads(done.stdout)
    return done.exit_code


@often
@given(kind=st.sampled_from(KINDS), part=st.floats(0, 1))
def test_a_truncated_log_is_a_sentence_and_status_2(tmp_path, kind, part):
    path = small(kind, tmp_path)
    content = path.read_bytes().rstrip()
    lines = [at for at, byte in enumerate(content) if byte == 10] if kind in ("lm-eval", "leak-k") else []
    cut = min(int(part * len(content)), len(content) - 1)
    path.write_bytes(content[:cut])
    assert survives(path) == 2 or cut in lines  # lines that end at a line's end are a whole log


@often
@given(seed=st.integers(0, 10_000), value=ANYTHING)
def test_values_of_other_types_are_read_or_refused(tmp_path, seed, value):
    survives(with_value(tmp_path, seed, value))


@often
@given(seed=st.integers(0, 10_000))
def test_what_stands_twice_is_read_or_refused(tmp_path, seed):
    survives(with_twice(tmp_path, seed))


@pytest.mark.parametrize(
    ("kind", "score"),
    [
        ("eval", "match"),
        ("inspect-json", "match"),
        ("lm-eval", "exact_match,none"),
        ("leak-k", "rougeL_recall"),
        ("open-unlearning", "forget_Q_A_ROUGE.rougeL_recall"),
        ("harmbench", "label"),
    ],
)
def test_nan_is_missing_in_every_format_that_has_bounds(tmp_path, kind, score):
    """The first answer's score as the bare word NaN, which the tools write; it never counts as 0."""
    path, nan = small(kind, tmp_path), math.nan
    whole = result(path, "--score", score)
    if kind == "eval":
        scored = [sample(name, epoch, scores={"match": nan if (name, epoch) == ("q", 1) else "C"})
                  for epoch in (1, 2) for name in ("q", 7)]  # fmt: skip
        eval_log(path, header(["q", 7]), scored)
    elif kind in ("lm-eval", "leak-k"):
        first, *rest = map(json.loads, path.read_text().splitlines())
        if kind == "lm-eval":
            first["exact_match"] = nan
        else:
            first["responses"][0]["rougeL_recall"] = nan
        write_lines(path, [first, *rest])
    else:
        log = json.loads(path.read_text())
        place = {
            "inspect-json": lambda: log["samples"][0]["scores"]["match"],
            "open-unlearning": lambda: log["forget_Q_A_ROUGE"]["value_by_index"]["0"],
            "harmbench": lambda: log["who"][0],
        }[kind]()
        place["value" if kind == "inspect-json" else score.rpartition(".")[2]] = nan
        write_json(path, log)
    got = result(path, "--score", score)
    assert got["log"]["missing"] == whole["log"]["missing"] + 1
    first, before = got["per_prompt"][0], whole["per_prompt"][0]
    assert first["n"] == before["n"]
    assert first["tighter"]["mean_lower"] <= before["tighter"]["mean_lower"]
    assert first["tighter"]["mean_upper"] >= before["tighter"]["mean_upper"]


@often
@given(
    epochs=st.lists(st.integers(1, 3), min_size=2, max_size=4),
    value=st.sampled_from([math.nan, "C", 0.5, "x", 7, None]),
)
def test_duplicate_epochs_are_refused_and_nan_is_missing(tmp_path, epochs, value):
    answers = [sample(epoch=epoch, scores={"match": value}) for epoch in epochs]
    path = write_json(tmp_path / "a.json", header(["q"], 3) | {"samples": answers})
    if len(set(epochs)) < len(epochs):
        assert "twice" in refused(path)
    elif value == 7:
        assert "got 7" in refused(path)
    else:
        got = result(path)
        scored = value in ("C", 0.5)
        assert got["log"]["missing"] == 3 - len(epochs) * scored


def test_repeats_without_a_name_are_flagged_with_the_rest_of_leak_k(tmp_path):
    folder = tmp_path / "temperature=0.0top_p=1.0"
    folder.mkdir()
    path = write_lines(folder / "generations_n2.json", [leak_k_line("a", "a")])
    assert "temperature 0.0" in refused(path)


def test_bounds_go_to_inspect_as_a_record_per_question(tmp_path):
    path = eval_log(
        tmp_path / "a.eval", header(["q", 7]), [sample(one, epoch) for epoch in (1, 2) for one in ("q", 7)]
    )
    out = tmp_path / "b.json"
    got = result(path, "--to", "inspect", "--out", out)
    records = json.loads(out.read_text())
    assert [(one["id"], one["value"]) for one in records] == [
        (row["prompt_id"], row["m_bin"]) for row in got["per_prompt"]
    ]
    assert "probability 0.99" in records[0]["explanation"]
    assert records[0]["metadata"]["n"] == 2
    assert "--out" in refused(path, "--out", out)
    assert "--out" in refused(path, "--to", "inspect", "--out", tmp_path / "b.csv")
    assert "--to" in refused(early(tmp_path, 9, [0]), "--to", "inspect")


@pytest.mark.slow
def test_bounds_go_to_mlflow_with_their_guarantees(tmp_path, monkeypatch):
    from mlflow import MlflowClient

    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.chdir(tmp_path)
    path = eval_log(tmp_path / "a.eval", header(["q"]), [sample("q", epoch) for epoch in (1, 2)])
    got = result(path, "--to", "mlflow")
    client = MlflowClient(tracking_uri=f"sqlite:///{tmp_path / 'mlflow.db'}")
    (run,) = client.search_runs([client.get_experiment_by_name("lethe logs").experiment_id])
    assert run.info.run_id in got["mlflow"]
    assert run.data.metrics["m_bin_worst"] == got["worst_prompt"]["bound"]
    assert json.loads(run.data.tags["bound.m_bin_worst"])["alpha"] == 0.01
    assert run.data.params["model"] == "hf/m"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    done = call(path, "--to", "mlflow")
    assert done.exit_code == 1
    assert "127.0.0.1:9" in done.output
