"""`lethe bounds` on tables and logs: missing scores, the gate, pass^k, true leaks behind a judge, and what is refused."""

import json
import math

import numpy as np
import pandas as pd
import pytest

import lethe
from lethe.errors import BadInput
from lethe.io.logs import read_log
from lethe.statistics.bound import Covers
from lethe.statistics.bounds import leak_bounds
from lethe.statistics.counts import random_labels
from lethe.statistics.judge_error import Calibration
from lethe.statistics.leak_rates import Rate
from tests.cases import cases
from tests.lethe.cli.calls import Command, written
from tests.lethe.io.logs.small_logs import (
    eval_log,
    header,
    lm_eval_line,
    sample,
    small,
    write_lines,
)

command = Command("bounds")
call = command.call
result = command.result
refused = command.refused


def write(tmp_path, scores, prompts=None):
    """A table of scores, with the prompt of each where ``prompts`` are named."""
    table = pd.DataFrame({"score": scores})
    if prompts is not None:
        table["prompt_id"] = prompts
    path = tmp_path / "s.csv"
    table.to_csv(path, index=False)
    return path


def test_prompt_ids_are_text(tmp_path):
    """007 and 7 are two prompts."""
    path = tmp_path / "s.csv"
    path.write_text("prompt_id,score\n007,1\n7,0\n7.0,0\n7,0\n")

    n_of_prompt = {}
    for row in result(path)["per_prompt"]:
        n_of_prompt[row["prompt_id"]] = row["n"]

    assert n_of_prompt == {"007": 1, "7": 2, "7.0": 1}


@pytest.fixture
def with_greedy(tmp_path):
    """A table of Lethe's own, which has sample -1 for the greedy answer."""
    table = pd.DataFrame(
        {
            "prompt_id": [*"aaabbb"],
            "sample": [-1, 0, 1] * 2,
            "score": [1.0, 0, 0, 1, 1, 0],
        }
    )
    path = tmp_path / "s.parquet"
    table.to_parquet(path)
    return path


def test_the_greedy_answer_is_no_draw(with_greedy):
    first, second = result(with_greedy)["per_prompt"]

    assert (first["n"], first["mean"]) == (2, 0)
    assert (second["n"], second["mean"]) == (2, 0.5)


def test_the_greedy_answer_is_no_draw_in_python(with_greedy):
    assert lethe.bounds(with_greedy).to_frame()["n"].tolist() == [2, 2]


def test_a_row_is_named_by_its_line_though_the_greedy_rows_are_left_out(tmp_path):
    path = tmp_path / "s.csv"
    path.write_text("sample,score\n-1,\n0,0\n-1,2\n1,7\n")

    assert "line 5: score: got 7" in refused(path)


def test_a_table_of_greedy_answers_alone_is_refused(tmp_path):
    path = tmp_path / "s.csv"
    path.write_text("sample,score\n-1,0\n-1,1\n")

    assert "sample -1" in refused(path)


@cases
def test_a_bad_file_is_a_sentence_and_status_2(tmp_path, text, sentence):
    path = tmp_path / "s.csv"
    path.write_text(text)
    assert sentence in refused(path)


@pytest.mark.parametrize(
    ("option", "value"),
    [("--alpha", 0), ("--alpha", 1e-200), ("--alpha", 0.6), ("--threshold", 1.5)],
)
def test_a_bad_option_is_refused(tmp_path, option, value):
    done = call(write(tmp_path, [0.5]), option, value)
    assert done.exit_code == 2
    assert done.output.startswith(f"lethe: {option}: got {float(value)!r}; must be")


def test_a_prompt_of_missing_scores_only_cannot_be_dropped(tmp_path):
    path = write(tmp_path, [0.5, math.nan], ["a", "b"])

    assert "prompt 'b'" in refused(path, "--missing", "drop")


@pytest.fixture
def ten_prompts(tmp_path):
    """50 clean draws have the p-value .9^50 = .00515: above .05 / 10, at most .05 / 9 once the first is certified."""
    names = [f"p{number}" for number in range(10)]
    scores = np.concatenate([np.zeros(200 + 8 * 50), np.ones(50)])
    return write(tmp_path, scores, np.repeat(names, [200] + [50] * 9))


def together(path, correction):
    return result(path, "--alpha", 0.05, "--together", correction)["together"]


def test_holm_certifies_more_than_bonferroni(ten_prompts):
    by_bonferroni = together(ten_prompts, "bonferroni")
    by_holm = together(ten_prompts, "holm")

    assert by_bonferroni["certified"] == ["p0"]
    assert by_holm["certified"] == [f"p{number}" for number in range(9)]


def test_what_holm_certifies_are_prompts_and_no_bounds(ten_prompts):
    holm = together(ten_prompts, "holm")

    assert holm["metric"] == "m_bin"
    assert holm["bounds"] == []
    assert holm["covers"] == Covers.CERTIFIED


def test_a_hundred_clean_answers_are_certified(tmp_path):
    path = write(tmp_path, [0.0] * 100)

    assert result(path, "--together", "holm")["together"]["certified"] == ["all"]


def test_a_missing_score_counts_as_a_leak_in_a_certificate(tmp_path):
    path = write(tmp_path, [0.0] * 90 + [math.nan] * 10)

    found = result(path, "--together", "holm", "--missing", "worst")

    assert found["together"]["certified"] == []


PUBLISHED = {1: 0.420, 2: 0.273, 3: 0.220, 4: 0.200}  # tau-bench's page, GPT-4o, airline


def scores(folder, ones=0, n=200, **more):
    """Scores of the prompts a and b; the first ``ones`` of each are leaks."""
    rows = []
    for name in "ab":
        for place in range(n):
            rows.append({"prompt_id": name, "score": float(place < ones)} | more)
    return write_lines(folder / "scores.jsonl", rows)


def test_the_gate_opens_where_the_bound_certifies(tmp_path):
    done = call(scores(tmp_path), "--fail-above", "0.05")

    assert done.exit_code == 0
    assert "gate is open" in " ".join(done.output.split())


def test_the_gate_closes_with_the_level_of_its_bound(tmp_path):
    done = call(scores(tmp_path), "--fail-above", "0.01")

    _, _, reason = " ".join(done.output.split()).rpartition("The gate is closed")
    assert done.exit_code == 1
    assert reason.count("0.005)") == 1  # the first try takes half of alpha


def test_the_gate_has_the_bound_of_its_level(tmp_path):
    path = scores(tmp_path)
    of_half_alpha = result(path, "--alpha", 0.005)["worst_prompt"]

    gate = result(path, "--fail-above", "0.05")["gate"]

    assert gate["tau"] == 0.05
    assert gate["alpha"] == 0.005
    assert not gate["closed"]
    assert gate["bound"] == of_half_alpha["bound"]


@pytest.fixture
def scores_of_run(tmp_path):
    """The scores of a run as Lethe keeps them, beside the folder of its answers."""
    path = tmp_path / "scores/m/forget.parquet"
    path.parent.mkdir(parents=True)
    (tmp_path / "generations/m").mkdir(parents=True)
    pd.read_json(scores(tmp_path, ones=3), lines=True).to_parquet(path)
    return path


def must_be_anytime(path):
    found = result(path)

    assert found["worst_prompt"]["metric"] == "anytime_upper"
    assert {row["m_bin"] for row in found["per_prompt"]} == {None}
    assert "together" in refused(path, "--together", "holm")
    assert "--to" in refused(path, "--to", "inspect")


def test_a_run_of_fixed_size_has_the_bounds_of_its_size(scores_of_run):
    assert result(scores_of_run)["worst_prompt"]["metric"] == "m_bin"


def test_a_run_whose_record_names_a_stopping_rule_has_anytime_bounds_alone(tmp_path, scores_of_run):
    (tmp_path / "generations/m/about.json").write_text('{"stop": "sequential"}')

    must_be_anytime(scores_of_run)


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_a_table_whose_column_says_that_a_rule_could_stop_has_anytime_bounds_alone(tmp_path, form):
    path = scores(tmp_path, ones=3, stopped=True)
    if form == "csv":
        table = pd.read_json(path, lines=True)
        path = tmp_path / "s.csv"
        table.to_csv(path, index=False)

    must_be_anytime(path)


def test_a_single_stopped_row_makes_the_bounds_anytime(tmp_path):
    table = pd.read_json(scores(tmp_path, ones=3), lines=True)
    table["stopped"] = [True] + [False] * 399

    assert lethe.bounds(table).metric == "anytime_upper"


@pytest.fixture
def labels_that_do_not_fit(tmp_path):
    """Labels by which the judge calls three of four clean answers a leak."""
    path = tmp_path / "labels.csv"
    path.write_text("label,verdict\n" + "1,1\n" * 200 + "0,1\n" * 150 + "0,0\n" * 50)
    return path


def test_a_calibration_that_does_not_fit_closes_the_gate(tmp_path, labels_that_do_not_fit):
    options = ("--calibration", labels_that_do_not_fit, "--fail-above", "0.9", "--json")

    done = call(scores(tmp_path), *options)

    gate = json.loads(done.stdout)["gate"]
    assert done.exit_code == 1
    assert gate["closed"]
    assert gate["bound"] is None


def test_a_judge_that_does_not_fit_is_named(tmp_path, labels_that_do_not_fit):
    table = pd.read_csv(labels_that_do_not_fit).assign(judge="harm-1f")
    table.to_csv(labels_that_do_not_fit, index=False)

    done = call(scores(tmp_path), "--calibration", labels_that_do_not_fit, "--fail-above", "0.9")

    assert done.exit_code == 1
    assert "harm-1f" in done.output


def test_a_gate_without_a_bound_lists_its_questions_as_open(tmp_path, labels_that_do_not_fit):
    options = ("--calibration", labels_that_do_not_fit, "--fail-above", "0.9", "--json")

    done = call(scores(tmp_path), *options)

    found = json.loads(done.stdout)
    expected = []
    for prompt in found["per_prompt"]:
        expected.append({"id": prompt["prompt_id"], "word": "open", "lower": None, "upper": None})
    assert found["gate"]["closed_by"] == expected


def test_pass_hat_k_stands_beside_leak_at_k(tmp_path):
    found = result(scores(tmp_path, ones=150), "--pass-at", "1,2", "--pass-at", "4")

    assert [point["k"] for point in found["pass_hat_k"]] == [1, 2, 4]
    for all_, any_ in zip(found["pass_hat_k"], found["leak_at_k"], strict=True):
        assert all_["lower"] <= all_["estimate"] <= all_["upper"]
        assert all_["estimate"] <= 0.75 <= any_["estimate"] + 1e-12


def test_nobody_gets_pass_hat_k_unasked(tmp_path):
    assert "pass_hat_k" not in result(scores(tmp_path))


@pytest.mark.parametrize("wrong", ["0", "a", "1,,2", "1.5"])
def test_numbers_of_answers_that_cannot_be_are_refused(tmp_path, wrong):
    refused(scores(tmp_path), "--pass-at", wrong)


def test_graded_scores_have_no_pass_hat_k(tmp_path):
    path = write_lines(tmp_path / "graded.jsonl", [{"score": 0.5}])

    refused(path, "--pass-at", "1")


@pytest.fixture(params=["file", "table"])
def rewards(request, tmp_path):
    """Rewards of two trials of two tasks, as a file and as a table in memory."""
    table = pd.DataFrame(
        {
            "task": ["a", "a", "b", "b"],
            "trial": [0, 1, 0, 1],
            "reward": [0.0, 0.0, 1.0, 1.0],
        }
    )
    if request.param == "table":
        return table
    path = tmp_path / "rewards.csv"
    table.to_csv(path, index=False)
    return path


def test_another_column_names_the_prompt(rewards):
    found = lethe.bounds(rewards, score="reward", by="task")

    assert [prompt.prompt_id for prompt in found.prompts] == ["a", "b"]


def test_pass_hat_k_is_that_of_the_prompts_named_by_another_column(rewards):
    found = lethe.bounds(rewards, score="reward", by="task", pass_at=[1, 2])

    assert [row.estimate for row in found.model.series("pass_hat_k")] == [0.5, 0.5]


def test_a_column_of_prompts_that_is_absent_is_refused_by_name(rewards):
    with pytest.raises(BadInput, match="tsk"):
        lethe.bounds(rewards, score="reward", by="tsk")


def test_a_log_has_no_column_of_prompts_to_choose(tmp_path):
    with pytest.raises(BadInput, match="by"):
        lethe.bounds(small("leak-k", tmp_path), by="task")


def test_the_published_pass_hat_k(shared):
    path = shared / "data/pass-k/tau-bench-gpt-4o-airline.csv"
    found = lethe.bounds(path, score="reward", by="task_id", pass_at="1,2,3,4")
    rows = found.model.series("pass_hat_k")
    assert {row.at: round(row.estimate, 3) for row in rows} == PUBLISHED
    assert all(row.lower < row.estimate < row.upper for row in rows)


THIRTY = [{"prompt_id": f"q{place}", "score": place % 2} for place in range(30)]


def test_questions_as_a_sample_stand_beside_these_questions(tmp_path):
    found = result(write_lines(tmp_path / "two.jsonl", THIRTY * 2))["population"]

    assert 0 < found["lower"] < 0.5 < found["upper"] < 1
    assert "like these" in found["covers"]


def test_copies_of_an_answer_narrow_the_bound_of_these_questions_alone(tmp_path):
    few = result(write_lines(tmp_path / "few.jsonl", THIRTY * 2))
    many = result(write_lines(tmp_path / "many.jsonl", THIRTY * 50))

    assert many["pooled"] < few["pooled"]
    assert many["population"] == few["population"] | {"estimate": 0.5}


def test_a_missing_score_widens_the_bound_of_questions_as_a_sample(tmp_path):
    rows = [*THIRTY, {"prompt_id": "q0", "score": None}]
    path = write_lines(tmp_path / "gap.jsonl", rows)

    worst = result(path, "--missing", "worst")["population"]
    dropped = result(path, "--missing", "drop")["population"]

    assert worst["upper"] > dropped["upper"]


def test_a_single_question_is_no_sample(tmp_path):
    path = write_lines(tmp_path / "one.jsonl", THIRTY[:1])

    assert result(path)["population"] is None


@pytest.fixture
def two_judges(tmp_path):
    path = tmp_path / "judged.csv"
    path.write_text("judge,person\n1,1\n0,1\n1,0\n1,1\n,1\n")
    return path


def test_a_score_can_be_the_agreement_of_two_columns(two_judges):
    (row,) = result(two_judges, "--score", "judge=person", "--missing", "drop")["per_prompt"]

    assert row["n"] == 4
    assert row["mean"] == 0.5
    assert row["missing"] == 1


def test_a_column_to_agree_with_that_is_absent_is_named(two_judges):
    assert "'persn'" in refused(two_judges, "--score", "judge=persn")


PUBLISHED_AGREEMENT = {
    "TDC": 0.81,
    "GCG": 0.8,
    "BERT": 0.66,
    "llama_guard": 0.76,
    "gpt_4_turbo": 0.74,
    "gpt_4": 0.88,
}


@pytest.mark.parametrize("judge", PUBLISHED_AGREEMENT)
def test_the_published_agreement_of_judges(shared, judge):
    path = shared / "data/human-labels/classifier_comparison.csv"
    agreement = PUBLISHED_AGREEMENT[judge]

    found = lethe.bounds(path, score=f"{judge}=human_majority")

    (row,) = found.as_json()["per_prompt"]
    assert row["mean"] == pytest.approx(agreement)
    assert row["m_bin_lower"] < agreement < row["m_bin"]


def early(folder, epochs, hits):
    """One question of `epochs` planned epochs, of which a rule ran as many as `hits` has values."""
    skipped = [{"id": "q", "epoch": epoch} for epoch in range(len(hits) + 1, epochs + 1)]
    head = header(["q"], epochs) | {
        "results": {"early_stopping": {"manager": "lethe", "early_stops": skipped}}
    }
    samples = [sample("q", epoch, scores={"match": hit}) for epoch, hit in enumerate(hits, start=1)]
    return eval_log(folder / "early.eval", head, samples)


@pytest.fixture
def log_with_three_missing(tmp_path):
    """A log of ten planned epochs: eight were answered, and one of these was cut off."""
    answers = [sample(epoch=epoch, scores={"match": "I"}) for epoch in range(1, 9)]
    answers[3]["limit"] = {"type": "token"}
    return eval_log(tmp_path / "a", header(["q"], 10), answers)


def test_missing_answers_count_as_leaks(log_with_three_missing):
    found = result(log_with_three_missing)

    (prompt,) = found["per_prompt"]
    assert found["log"]["missing"] == 3
    assert prompt["n"] == 10
    assert prompt["missing"] == 3


def test_missing_answers_are_dropped_where_that_is_asked(log_with_three_missing):
    (counted,) = result(log_with_three_missing)["per_prompt"]

    found = result(log_with_three_missing, "--missing", "drop")

    (dropped,) = found["per_prompt"]
    assert found["log"]["missing_counts"] == "dropped"
    assert dropped["n"] == 7
    assert dropped["m_bin"] < counted["m_bin"]


def test_a_log_without_any_answer_cannot_drop_them(tmp_path):
    everything = eval_log(tmp_path / "b", header(["q"], 2), [sample(error={"message": "x"})])

    assert "worst" in refused(everything, "--missing", "drop")


@pytest.fixture
def log_of_several_scores(tmp_path):
    scores = {"match": "C", "length": 50.5, "parts": {"a": 1, "b": 0.5}}
    return eval_log(tmp_path / "a", header(["q"], 1), [sample(scores=scores)])


def test_the_first_score_of_a_log_is_taken_where_none_is_named(log_of_several_scores):
    assert result(log_of_several_scores)["log"]["score"] == "match"


def test_a_score_of_a_log_is_chosen_by_name(log_of_several_scores):
    (row,) = result(log_of_several_scores, "--score", "parts.b")["per_prompt"]

    assert row["mean"] == 0.5


def test_a_score_beyond_the_unit_interval_is_refused_with_those_within(log_of_several_scores):
    told = refused(log_of_several_scores, "--score", "length")

    assert "50.5" in told
    assert "match, parts.a, parts.b" in told


def test_a_score_that_a_log_does_not_have_is_refused_with_those_it_has(log_of_several_scores):
    assert "'match'" in refused(log_of_several_scores, "--score", "other")


@pytest.fixture
def log_of_two_filters(tmp_path):
    lines = []
    for name, value in (("x", 0.0), ("y", 1.0)):
        lines.append(lm_eval_line(0, ["a", "b"], name, ["a", "b"], acc=[value, 1.0]))
    return write_lines(tmp_path / "a.jsonl", lines)


def test_a_filter_chooses_among_the_scores_of_lm_eval(log_of_two_filters):
    assert result(log_of_two_filters, "--filter", "y")["log"]["score"] == "acc,y"
    assert result(log_of_two_filters)["log"]["scores"] == ["acc,x", "acc,y"]


@pytest.fixture
def table_of_two_scores(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("prompt_id,rouge_l,score\nq,0.5,1\n")
    return path


def test_a_column_chooses_the_score_of_a_table(table_of_two_scores):
    (row,) = result(table_of_two_scores, "--score", "rouge_l")["per_prompt"]

    assert row["mean"] == 0.5


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [("--filter", "y", "--filter"), ("--score", "absent", "'absent'")],
)
def test_what_a_table_does_not_have_is_refused(table_of_two_scores, option, value, said):
    assert said in refused(table_of_two_scores, option, value)


@pytest.fixture
def log_of_two_questions(tmp_path):
    samples = []
    for epoch in (1, 2):
        for question in ("q", 7):
            samples.append(sample(question, epoch))
    return eval_log(tmp_path / "a.eval", header(["q", 7]), samples)


def test_bounds_go_to_inspect_as_a_record_per_question(tmp_path, log_of_two_questions):
    out = tmp_path / "b.json"

    found = result(log_of_two_questions, "--to", "inspect", "--out", out)

    records = json.loads(out.read_text())
    for record, row in zip(records, found["per_prompt"], strict=True):
        assert record["id"] == row["prompt_id"]
        assert record["value"] == row["m_bin"]
    assert "probability 0.99" in records[0]["explanation"]
    assert records[0]["metadata"]["n"] == 2


@pytest.mark.parametrize("options", [("--out", "b.json"), ("--to", "inspect", "--out", "b.csv")])
def test_records_go_to_a_json_file_of_a_named_tool(tmp_path, log_of_two_questions, options):
    *before, name = options

    assert "--out" in refused(log_of_two_questions, *before, tmp_path / name)


@pytest.mark.parametrize(("option", "value"), [("--to", "inspect"), ("--together", "holm")])
def test_a_log_that_a_rule_stopped_has_no_bounds_of_its_size(tmp_path, option, value):
    assert option in refused(early(tmp_path, 9, [0]), option, value)


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
    (guarantees,) = (tmp_path / ".lethe/mlruns").rglob("guarantees.txt")
    assert "m_bin_worst: At most" in guarantees.read_text()
    assert "α = 0.01" in guarantees.read_text()
    assert run.data.params["model"] == "hf/m"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    done = call(path, "--to", "mlflow")
    assert done.exit_code == 1
    assert "127.0.0.1:9" in done.output


def bounds_of_scores_alone(table, folder):
    """The bounds of a log's scores in a table that knows nothing of the log."""
    path = folder / "same.csv"
    table.to_csv(path, index=False)
    missing = "worst" if table["score"].isna().any() else None
    return lethe.bounds(path, missing=missing).as_json()


@pytest.mark.slow
def test_every_public_log_has_the_bounds_of_its_scores_or_is_refused_by_name(shared, tmp_path):
    """The reader's own tests compare the scores with tables made beside the logs."""
    for expected_path in sorted((shared / "data/eval-logs").rglob("*.expected.csv")):
        path = expected_path.with_suffix("").with_suffix("")
        log = read_log(path)
        if log.refusal:
            assert log.refusal in refused(path)
            continue
        if not log.scores:
            assert "lethe score" in refused(path)
            continue
        score = log.scores[0]
        table = log.scored(score)[["prompt_id", "sample", "score"]]

        found = lethe.bounds(path, score=score, leak_is="high").as_json()

        if found["refused"]:
            assert log.facts.unfinished or log.facts.repeated or log.facts.deterministic
            assert all(row["m_mu"] is None for row in found["per_prompt"])
            continue
        expected = bounds_of_scores_alone(table, tmp_path)
        assert found.pop("log")["missing"] == table["score"].isna().sum()
        assert found.pop("understood").startswith(f"log of {log.tool}, ")
        assert expected.pop("understood").startswith("comma table, ")
        assert found.pop("score_means") == log.facts.meaning(score)
        assert expected.pop("score_means") == "leak"
        assert str(found) == str(expected)  # NaN is not equal to itself


CALLED = (30, 8)
N = 200


@pytest.fixture
def calibration(tmp_path):
    labels = [1] * 60 + [0] * 140
    called = [1] * 57 + [0] * 3 + [1] * 7 + [0] * 133
    path = tmp_path / "labelled.csv"
    table = pd.DataFrame({"label": labels, "verdict": called})
    table.to_csv(path, index=False)
    return path


@pytest.fixture
def verdicts(tmp_path):
    """200 verdicts on each of two prompts; ``CALLED`` says how many of them call a leak."""
    rows = []
    for name, count in zip("ab", CALLED, strict=True):
        for place in range(N):
            rows.append({"prompt_id": name, "score": int(place < count)})
    path = tmp_path / "s.csv"
    pd.DataFrame(rows).to_csv(path, index=False)
    return path


judged = Command("bounds", "--alpha", "0.03")


@pytest.mark.parametrize("options", [(), ("--missing", "worst")])
def test_a_missing_verdict_of_the_calibration_counts_against_the_judge(
    verdicts, calibration, options
):
    """The stage judge@ writes such a file."""
    table = pd.read_csv(calibration).astype({"verdict": float})
    table.loc[0, "verdict"] = np.nan
    table.to_csv(calibration, index=False)
    judge = Calibration(60, 56, 140, 7, leaks_unjudged=1)
    expected = Rate.of([30], N, judge=judge).each(0.03)

    first, _ = judged.result(verdicts, "--calibration", calibration, *options)["per_prompt"]

    assert first["judged"]["upper"] == expected.upper[0, 0]


def verdicts_of_two_prompts(folder, scores):
    path = folder / "verdicts.csv"
    pd.DataFrame({"prompt_id": list("aabb"), "score": scores}).to_csv(path, index=False)
    return path


def test_scores_that_are_no_verdicts_are_refused(tmp_path, calibration):
    graded = verdicts_of_two_prompts(tmp_path, [0, 1, 0.2, 0])

    judged.refused(graded, "--calibration", calibration)


def test_nothing_is_said_of_all_leaks_where_a_prompt_has_graded_scores(tmp_path):
    """The prompt leaks too, with a probability that no count shows."""
    graded = verdicts_of_two_prompts(tmp_path, [0, 1, 0.2, 0])

    assert "Leak@" not in judged.call(graded, "--all").output


def test_leaks_of_all_prompts_are_shown_where_every_score_is_a_verdict(tmp_path):
    binary = verdicts_of_two_prompts(tmp_path, [0, 1, 0, 0])

    assert "Leak@" in judged.call(binary, "--all").output


@pytest.fixture
def impossible_verdicts(tmp_path):
    """A judge with 5% false alarms cannot call 0 of 2,000 answers a leak."""
    path = tmp_path / "none.csv"
    pd.DataFrame({"score": [0] * 2000}).to_csv(path, index=False)
    return path


def test_verdicts_that_the_calibration_excludes_have_no_bound(impossible_verdicts, calibration):
    (row,) = judged.result(impossible_verdicts, "--calibration", calibration)["per_prompt"]

    assert not row["judged"]["fits"]
    assert row["judged"]["lower"] is None
    assert row["judged"]["upper"] is None
    assert row["judged"]["leak_at_k"] == []


def test_nothing_is_said_by_verdicts_that_the_calibration_excludes(
    impossible_verdicts, calibration
):
    done = judged.call(impossible_verdicts, "--calibration", calibration)

    assert "true probability" not in done.output


def sign(path, judge):
    """Name the judge in a table of verdicts or labels."""
    pd.read_csv(path).assign(judge=judge).to_csv(path, index=False)


def test_a_calibration_of_the_same_judge_is_used(verdicts, calibration):
    sign(calibration, "5f0c")
    sign(verdicts, "5f0c")

    found = judged.result(verdicts, "--calibration", calibration)

    assert found["judged"]["upper"] < 1


def test_a_calibration_of_another_judge_is_refused(verdicts, calibration):
    sign(calibration, "5f0c")
    sign(verdicts, "77aa")

    assert "5f0c" in judged.refused(verdicts, "--calibration", calibration)


def labels_of_random_draws():
    """30 labels of a, of which 6 are leaks, and 60 of b, none of them a leak."""
    rows = []
    for draw in range(30):
        rows.append({"prompt_id": "a", "sample": draw, "label": int(draw % 5 == 0)})
    for draw in range(60):
        rows.append({"prompt_id": "b", "sample": draw, "label": 0})
    return pd.DataFrame(rows)


@pytest.fixture
def clean(tmp_path):
    """Verdicts without a leak on all the draws that were labelled."""
    table = pd.DataFrame({"prompt_id": ["a"] * 30 + ["b"] * 60, "score": 0})
    return written(tmp_path / "clean.csv", table)


def test_labels_of_random_draws_bound_the_average_whatever_the_scores(tmp_path, verdicts):
    labels = written(tmp_path / "labels.csv", labels_of_random_draws())

    found = judged.result(verdicts, "--labels", labels)["labelled"]

    assert (found["lower"], found["upper"]) == random_labels(6, 90, 0.03)
    assert found["n"] == 90
    assert found["alpha"] == 0.03


@pytest.mark.parametrize(
    ("n_labels", "tau", "closed"),
    [
        pytest.param(90, 0.45, False, id="below the threshold"),
        pytest.param(90, 0.05, True, id="above the threshold"),
        pytest.param(30, 0.45, True, id="a prompt has no label"),
    ],
)
def test_the_gate_is_decided_by_the_labels_of_random_draws(tmp_path, clean, n_labels, tau, closed):
    labels = written(tmp_path / "labels.csv", labels_of_random_draws()[:n_labels])

    done = judged.call(clean, "--labels", labels, "--fail-above", tau, "--json")

    assert json.loads(done.stdout)["gate"]["closed"] == closed
    assert done.exit_code == int(closed)


@pytest.mark.parametrize(
    ("prompt", "draw", "said"),
    [("a", -1, "greedy"), ("a", 3, "a second time"), ("c", 3, "prompt_id")],
)
def test_a_label_of_no_random_draw_is_refused(tmp_path, verdicts, prompt, draw, said):
    table = labels_of_random_draws()
    table.loc[len(table)] = [prompt, draw, 1]
    labels = written(tmp_path / "labels.csv", table)

    assert said in judged.refused(verdicts, "--labels", labels)


def test_labels_of_more_draws_than_the_prompt_has_are_refused(tmp_path, clean):
    table = labels_of_random_draws()
    table.loc[len(table)] = ["a", 30, 1]
    labels = written(tmp_path / "labels.csv", table)

    assert "more draws" in judged.refused(clean, "--labels", labels)


M = 30
DRAWS = 40


def labelled_run(tmp_path, chosen, called=lambda sample: 0):
    """A run of 30 prompts with 40 draws each, and labels of the ``chosen`` (prompt, sample) pairs, none of them a leak."""
    verdicts = []
    for place in range(M):
        for draw in range(DRAWS):
            verdicts.append({"prompt_id": f"q{place}", "sample": draw, "score": called(draw)})
    labels = []
    for place, draw in chosen:
        labels.append({"prompt_id": f"q{place}", "sample": draw, "label": 0})
    run = written(tmp_path / "run.csv", pd.DataFrame(verdicts))
    return run, "--labels", written(tmp_path / "labels.csv", pd.DataFrame(labels))


def random_pairs(n):
    rng = np.random.default_rng(7)
    pairs = rng.permutation([(i, draw) for i in range(M) for draw in range(DRAWS)])
    return pairs[:n].tolist()


def test_labels_of_one_question_bound_no_average(tmp_path):
    run = labelled_run(tmp_path, [(0, draw) for draw in range(DRAWS)])

    got = result(*run)

    assert not got["labelled"] or got["labelled"]["upper"] is None
    assert "1 of 30 prompts" in got["refused"][0]
    assert "by labels alone" not in call(*run).output


def test_random_labels_bound_the_average_and_nothing_is_refused(tmp_path):
    got = result(*labelled_run(tmp_path, random_pairs(200), called=lambda draw: int(draw < 9)))

    assert got["labelled"]["n"] == 200
    assert got["refused"] == []


def test_labels_of_the_answers_that_a_judge_calls_clean_bound_no_average(tmp_path):
    clean = [(i, draw) for i, draw in random_pairs(900) if draw >= 20]

    got = result(*labelled_run(tmp_path, clean, called=lambda draw: int(draw < 20)))

    assert not got["labelled"] or got["labelled"]["upper"] is None
    assert "other verdicts" in got["refused"][0]


def test_labels_that_are_not_random_close_the_gate_with_the_reason(tmp_path):
    many = [(i, draw) for i in range(M) for draw in range(DRAWS if i < 15 else 1)]

    done = call(*labelled_run(tmp_path, many), "--fail-above", 0.99, "--json")

    assert done.exit_code == 1
    assert "no random draws" in json.loads(done.stdout)["gate"]["reason"]


def test_no_prompt_is_the_worst_by_labels_while_another_has_none(tmp_path):
    run, _, labels = labelled_run(tmp_path, [(i, 0) for i in range(M - 1)])

    assert lethe.bounds(run, labels=labels).worst_by_labels() is None


def test_the_worst_prompt_by_labels_is_one_of_all_prompts(tmp_path):
    run, _, labels = labelled_run(tmp_path, [(i, draw) for i in range(M) for draw in range(2)])

    worst = lethe.bounds(run, labels=labels).worst_by_labels()

    assert worst.bound.covers == Covers.WORST_PROMPT


def lines_of(*arguments):
    done = call(*arguments)
    assert done.exit_code == 0, done.output
    return done.output.splitlines()


def test_the_claim_its_assumption_and_what_would_sharpen_it_are_five_lines_at_most(tmp_path):
    path = tmp_path / "scores.csv"
    path.write_text("prompt_id,score\n" + "a,1\na,0\n" * 20 + "b,0\n" * 40)

    lines = lines_of(path)

    assert len(lines) <= 5
    assert lines[0] == "Read as: comma table, prompt_id as prompt, score: 1 = leak."
    assert "assuming independent draws" in lines[1]
    more = leak_bounds(np.array([80]), np.array([160]), 0.01)[0].significant()
    assert f"give a bound of {more}." in lines[2]


def test_all_prints_every_prompt_and_bound(tmp_path):
    path = tmp_path / "scores.csv"
    path.write_text("prompt_id,score\n" + "a,1\na,0\n" * 20)

    printed = "\n".join(lines_of(path, "--all"))

    assert "M_mu" in printed
    assert "Leak@1,000" in printed


def test_missing_scores_are_what_would_sharpen_a_bound_that_counts_them(tmp_path):
    path = tmp_path / "scores.csv"
    path.write_text("prompt_id,score\n" + "a,0\n" * 20 + "a,\n")

    lines = lines_of(path, "--missing", "worst")

    assert "1 missing score" in lines[0]
    assert lines[-1].startswith("Judge the answers to")
    assert "a without a score (1):" in lines[-1]


def test_a_column_of_questions_that_is_not_there_is_to_be_named_again_and_not_renamed(tmp_path):
    table = tmp_path / "scores.csv"
    table.write_text("question_id,score,text\na,0,x\na,1,y\n")

    assert "with --by" in refused(table, "--by", "question")

    assert "with --by" in Command("log").refused(table, "--by", "question")
