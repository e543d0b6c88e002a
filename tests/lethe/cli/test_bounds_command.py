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
from tests.lethe.cli.calls import Command
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
    table = pd.DataFrame(
        {"score": scores} if prompts is None else {"prompt_id": prompts, "score": scores}
    )
    table.to_csv(path := tmp_path / "s.csv", index=False)
    return path


def test_prompt_ids_are_text(tmp_path):
    """007 and 7 are two prompts."""
    (tmp_path / "s.csv").write_text("prompt_id,score\n007,1\n7,0\n7.0,0\n7,0\n")
    assert {row["prompt_id"]: row["n"] for row in result(tmp_path / "s.csv")["per_prompt"]} == {
        "007": 1,
        "7": 2,
        "7.0": 1,
    }


def test_the_greedy_answer_is_no_draw(tmp_path):
    """A table of Lethe's own has sample -1 for it."""
    table = pd.DataFrame(
        {"prompt_id": [*"aaabbb"], "sample": [-1, 0, 1] * 2, "score": [1.0, 0, 0, 1, 1, 0]}
    )
    table.to_parquet(path := tmp_path / "s.parquet")
    got = result(path)["per_prompt"]
    assert [(row["n"], row["mean"]) for row in got] == [(2, 0), (2, 0.5)]
    assert lethe.bounds(path).to_frame()["n"].tolist() == [2, 2]


def test_a_row_is_named_by_its_line_though_the_greedy_rows_are_left_out(tmp_path):
    (tmp_path / "s.csv").write_text("sample,score\n-1,\n0,0\n-1,2\n1,7\n")
    assert "line 5: score: got 7" in refused(tmp_path / "s.csv")
    (tmp_path / "s.csv").write_text("sample,score\n-1,0\n-1,1\n")
    assert "sample -1" in refused(tmp_path / "s.csv")


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
    assert "prompt 'b'" in refused(
        write(tmp_path, [0.5, math.nan], ["a", "b"]), "--missing", "drop"
    )


def test_holm_certifies_more_than_bonferroni(tmp_path):
    """50 clean draws have the p-value .9^50 = .00515: above .05 / 10, at most .05 / 9 once the first is certified."""
    sizes = [200] + [50] * 9
    scores = np.concatenate([np.zeros(200 + 8 * 50), np.ones(50)])
    path = write(tmp_path, scores, np.repeat([f"p{number}" for number in range(10)], sizes))
    options = ("--alpha", 0.05, "--together")
    assert result(path, *options, "bonferroni")["together"]["certified"] == ["p0"]
    holm = result(path, *options, "holm")["together"]
    assert holm["certified"] == [f"p{number}" for number in range(9)]
    assert (holm["metric"], holm["bounds"], holm["covers"]) == ("m_bin", [], Covers.CERTIFIED)


def test_a_missing_score_counts_as_a_leak_in_a_certificate(tmp_path):
    clean = write(tmp_path, [0.0] * 100)
    assert result(clean, "--together", "holm")["together"]["certified"] == ["all"]
    path = write(tmp_path, [0.0] * 90 + [math.nan] * 10)
    assert result(path, "--together", "holm", "--missing", "worst")["together"]["certified"] == []


PUBLISHED = {1: 0.420, 2: 0.273, 3: 0.220, 4: 0.200}  # tau-bench's page, GPT-4o, airline


def scores(folder, ones=0, n=200, **more):
    rows = [
        {"prompt_id": name, "score": float(place < ones)} | more
        for name in "ab"
        for place in range(n)
    ]
    return write_lines(folder / "scores.jsonl", rows)


def test_the_gate_opens_where_the_bound_certifies(tmp_path):
    path = scores(tmp_path)
    done = call(path, "--fail-above", "0.05")
    assert done.exit_code == 0
    assert "gate is open" in " ".join(done.output.split())
    done = call(path, "--fail-above", "0.01")
    assert done.exit_code == 1
    assert (
        " ".join(done.output.split()).rpartition("The gate is closed")[2].count("0.005)") == 1
    )  # its level: the first try takes half of alpha
    gate = result(path, "--fail-above", "0.05")["gate"]
    assert (gate["tau"], gate["closed"], gate["alpha"]) == (0.05, False, 0.005)
    assert gate["bound"] == result(path, "--alpha", 0.005)["worst_prompt"]["bound"]


def test_a_table_that_a_rule_could_stop_has_anytime_bounds_alone(tmp_path):
    """Its column says so, or the record of the run whose scores it holds."""
    fixed = pd.read_json(scores(tmp_path, ones=3), lines=True)
    run = tmp_path / "scores/m/forget.parquet"
    for folder in (run.parent, tmp_path / "generations/m"):
        folder.mkdir(parents=True)
    fixed.to_parquet(run)
    fixed.assign(stopped=True).to_csv(tmp_path / "s.csv", index=False)
    assert result(run)["worst_prompt"]["metric"] == "m_bin"
    (tmp_path / "generations/m/about.json").write_text('{"stop": "sequential"}')
    for path in (run, tmp_path / "s.csv", scores(tmp_path, ones=3, stopped=True)):
        got = result(path)
        assert got["worst_prompt"]["metric"] == "anytime_upper"
        assert {row["m_bin"] for row in got["per_prompt"]} == {None}
        assert "together" in refused(path, "--together", "holm")
        assert "--to" in refused(path, "--to", "inspect")
    assert lethe.bounds(fixed.assign(stopped=[True] + [False] * 399)).metric == "anytime_upper"


def test_a_calibration_that_does_not_fit_closes_the_gate(tmp_path):
    labels = tmp_path / "labels.csv"
    labels.write_text("label,verdict\n" + "1,1\n" * 200 + "0,1\n" * 150 + "0,0\n" * 50)
    arguments = (scores(tmp_path), "--calibration", labels, "--fail-above", "0.9")
    done = call(*arguments, "--json")
    gate = json.loads(done.stdout)["gate"]
    assert (done.exit_code, gate["closed"], gate["bound"]) == (1, True, None)
    labels.write_text(
        labels.read_text().replace("\n", ",harm-1f\n").replace("verdict,harm-1f", "verdict,judge")
    )
    done = call(*arguments)
    assert (done.exit_code, "harm-1f" in done.output) == (1, True)


def test_a_gate_without_a_bound_lists_its_questions_as_open(tmp_path):
    labels = tmp_path / "labels.csv"
    labels.write_text("label,verdict\n" + "1,1\n" * 200 + "0,1\n" * 150 + "0,0\n" * 50)
    table = scores(tmp_path)

    done = call(table, "--calibration", labels, "--fail-above", "0.9", "--json")

    found = json.loads(done.stdout)
    ids = [prompt["prompt_id"] for prompt in found["per_prompt"]]
    left = found["gate"]["closed_by"]
    assert left == [{"id": id_, "word": "open", "lower": None, "upper": None} for id_ in ids]


def test_pass_hat_k_stands_beside_leak_at_k(tmp_path):
    found = result(scores(tmp_path, ones=150), "--pass-at", "1,2", "--pass-at", "4")
    assert [point["k"] for point in found["pass_hat_k"]] == [1, 2, 4]
    for all_, any_ in zip(found["pass_hat_k"], found["leak_at_k"], strict=True):
        assert all_["lower"] <= all_["estimate"] <= all_["upper"]
        assert all_["estimate"] <= 0.75 <= any_["estimate"] + 1e-12
    assert "pass_hat_k" not in result(scores(tmp_path))
    for wrong in ("0", "a", "1,,2", "1.5"):
        refused(scores(tmp_path), "--pass-at", wrong)
    refused(write_lines(tmp_path / "graded.jsonl", [{"score": 0.5}]), "--pass-at", "1")


def test_another_column_names_the_prompt(tmp_path):
    rows = [
        {"task": task, "trial": trial, "reward": float(task == "b")}
        for task in "ab"
        for trial in (0, 1)
    ]
    path = tmp_path / "rewards.csv"
    pd.DataFrame(rows).to_csv(path, index=False)
    found = lethe.bounds(path, score="reward", by="task", pass_at=[1, 2])
    assert [prompt.prompt_id for prompt in found.prompts] == ["a", "b"]
    assert [row.estimate for row in found.model.series("pass_hat_k")] == [0.5, 0.5]
    table = lethe.bounds(pd.DataFrame(rows), score="reward", by="task")
    assert [prompt.prompt_id for prompt in table.prompts] == ["a", "b"]
    for source in (path, pd.DataFrame(rows)):
        with pytest.raises(BadInput, match="tsk"):
            lethe.bounds(source, score="reward", by="tsk")
    with pytest.raises(BadInput, match="by"):
        lethe.bounds(small("leak-k", tmp_path), by="task")


def test_the_published_pass_hat_k(shared):
    path = shared / "data/pass-k/tau-bench-gpt-4o-airline.csv"
    found = lethe.bounds(path, score="reward", by="task_id", pass_at="1,2,3,4")
    rows = found.model.series("pass_hat_k")
    assert {row.at: round(row.estimate, 3) for row in rows} == PUBLISHED
    assert all(row.lower < row.estimate < row.upper for row in rows)


def test_questions_as_a_sample_stand_beside_these_questions(tmp_path):
    """Copies of an answer narrow the bound of these questions alone; a missing score widens both ends."""
    rows = [{"prompt_id": f"q{i}", "score": i % 2} for i in range(30)]
    few, many = (write_lines(tmp_path / f"{n}.jsonl", rows * n) for n in (2, 50))
    first, second = result(few), result(many)
    assert second["pooled"] < first["pooled"]
    assert second["population"] == first["population"] | {"estimate": 0.5}
    assert 0 < first["population"]["lower"] < 0.5 < first["population"]["upper"] < 1
    assert "like these" in first["population"]["covers"]
    gap = write_lines(tmp_path / "gap.jsonl", [*rows, {"prompt_id": "q0", "score": None}])
    worst = result(gap, "--missing", "worst")["population"]
    dropped = result(gap, "--missing", "drop")["population"]
    assert worst["upper"] > dropped["upper"]
    assert result(write_lines(tmp_path / "one.jsonl", rows[:1]))["population"] is None


def test_a_score_can_be_the_agreement_of_two_columns(tmp_path):
    path = tmp_path / "judged.csv"
    path.write_text("judge,person\n1,1\n0,1\n1,0\n1,1\n,1\n")
    (row,) = result(path, "--score", "judge=person", "--missing", "drop")["per_prompt"]
    assert (row["n"], row["mean"], row["missing"]) == (4, 0.5, 1)
    assert "'persn'" in refused(path, "--score", "judge=persn")


def test_the_published_agreement_of_judges(shared):
    path = shared / "data/human-labels/classifier_comparison.csv"
    published = {
        "TDC": 0.81,
        "GCG": 0.8,
        "BERT": 0.66,
        "llama_guard": 0.76,
        "gpt_4_turbo": 0.74,
        "gpt_4": 0.88,
    }
    for judge, agreement in published.items():
        (row,) = lethe.bounds(path, score=f"{judge}=human_majority").as_json()["per_prompt"]
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


def test_missing_answers_count_as_leaks_unless_they_are_dropped(tmp_path):
    answers = [sample(epoch=epoch, scores={"match": "I"}) for epoch in range(1, 9)]
    answers[3]["limit"] = {"type": "token"}
    path = eval_log(tmp_path / "a", header(["q"], 10), answers)
    worst = result(path)
    drop = result(path, "--missing", "drop")
    assert (
        worst["log"]["missing"],
        worst["per_prompt"][0]["n"],
        worst["per_prompt"][0]["missing"],
    ) == (3, 10, 3)
    assert (drop["log"]["missing_counts"], drop["per_prompt"][0]["n"]) == ("dropped", 7)
    assert drop["per_prompt"][0]["m_bin"] < worst["per_prompt"][0]["m_bin"]
    everything = eval_log(tmp_path / "b", header(["q"], 2), [sample(error={"message": "x"})])
    assert "worst" in refused(everything, "--missing", "drop")


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
        lm_eval_line(0, ["a", "b"], name, ["a", "b"], acc=[value, 1.0])
        for name, value in (("x", 0.0), ("y", 1.0))
    ]
    path = write_lines(tmp_path / "a.jsonl", lines)
    assert result(path, "--filter", "y")["log"]["score"] == "acc,y"
    assert result(path)["log"]["scores"] == ["acc,x", "acc,y"]
    table = tmp_path / "t.csv"
    table.write_text("prompt_id,rouge_l,score\nq,0.5,1\n")
    assert result(table, "--score", "rouge_l")["per_prompt"][0]["mean"] == 0.5
    assert "--filter" in refused(table, "--filter", "y")
    assert "'absent'" in refused(table, "--score", "absent")


def test_bounds_go_to_inspect_as_a_record_per_question(tmp_path):
    path = eval_log(
        tmp_path / "a.eval",
        header(["q", 7]),
        [sample(question, epoch) for epoch in (1, 2) for question in ("q", 7)],
    )
    out = tmp_path / "b.json"
    got = result(path, "--to", "inspect", "--out", out)
    records = json.loads(out.read_text())
    assert [(record["id"], record["value"]) for record in records] == [
        (row["prompt_id"], row["m_bin"]) for row in got["per_prompt"]
    ]
    assert "probability 0.99" in records[0]["explanation"]
    assert records[0]["metadata"]["n"] == 2
    assert "--out" in refused(path, "--out", out)
    assert "--out" in refused(path, "--to", "inspect", "--out", tmp_path / "b.csv")
    assert "--to" in refused(early(tmp_path, 9, [0]), "--to", "inspect")
    assert "--together" in refused(early(tmp_path, 9, [0]), "--together", "holm")


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


def test_every_public_log_has_the_bounds_of_its_scores_or_is_refused_by_name(shared, tmp_path):
    """The reader's own tests compare the scores with tables made beside the logs."""
    for path in sorted((shared / "data/eval-logs").rglob("*.expected.csv")):
        path = path.with_suffix("").with_suffix("")
        log = read_log(path)
        if log.refusal:
            assert log.refusal in refused(path)
        elif not log.scores:
            assert "lethe score" in refused(path)
        else:
            table = log.scored(log.scores[0])[["prompt_id", "sample", "score"]]
            table.to_csv(tmp_path / "same.csv", index=False)
            missing = "worst" if table["score"].isna().any() else None
            got = lethe.bounds(path, score=log.scores[0], leak_is="high").as_json()
            if got["refused"]:
                assert log.facts.unfinished or log.facts.repeated or log.facts.deterministic
                assert all(row["m_mu"] is None for row in got["per_prompt"])
                continue
            assert got.pop("log")["missing"] == table["score"].isna().sum()
            expected = lethe.bounds(tmp_path / "same.csv", missing=missing).as_json()
            assert got.pop("understood").startswith(f"log of {log.tool}, ")
            assert expected.pop("understood").startswith("comma table, ")
            assert got.pop("score_means") == log.facts.meaning(log.scores[0])
            assert expected.pop("score_means") == "leak"
            assert str(got) == str(expected)  # NaN is not equal to itself


CALLED = (30, 8)
N = 200


@pytest.fixture
def calibration(tmp_path):
    labels = [1] * 60 + [0] * 140
    called = [1] * 57 + [0] * 3 + [1] * 7 + [0] * 133
    path = tmp_path / "labelled.csv"
    pd.DataFrame({"label": labels, "verdict": called}).to_csv(path, index=False)
    return path


@pytest.fixture
def verdicts(tmp_path):
    rows = [(name, int(i < k)) for name, k in zip("ab", CALLED, strict=True) for i in range(N)]
    path = tmp_path / "s.csv"
    pd.DataFrame(rows, columns=["prompt_id", "score"]).to_csv(path, index=False)
    return path


judged = Command("bounds", "--alpha", "0.03")


def test_a_missing_verdict_of_the_calibration_counts_against_the_judge(verdicts, calibration):
    table = pd.read_csv(calibration).astype({"verdict": float})
    table.loc[0, "verdict"] = np.nan
    table.to_csv(calibration, index=False)
    want = Rate.of([30], N, judge=Calibration(60, 56, 140, 7, leaks_unjudged=1)).each(0.03)
    for more in ([], ["--missing", "worst"]):  # the stage judge@ writes such a file
        row = judged.result(verdicts, "--calibration", calibration, *more)["per_prompt"][0]
        assert row["judged"]["upper"] == want.upper[0, 0]


def test_scores_that_are_no_verdicts_are_refused(tmp_path, calibration):
    mixed = pd.DataFrame({"prompt_id": list("aabb"), "score": [0, 1, 0.2, 0]})
    mixed.to_csv(tmp_path / "graded.csv", index=False)
    judged.refused(tmp_path / "graded.csv", "--calibration", calibration)
    # Nothing is said of the leaks of all prompts, since b leaks too with a probability that no count shows.
    assert "Leak@" not in judged.call(tmp_path / "graded.csv", "--all").output
    mixed.assign(score=[0, 1, 0, 0]).to_csv(tmp_path / "binary.csv", index=False)
    assert "Leak@" in judged.call(tmp_path / "binary.csv", "--all").output


def test_verdicts_that_the_calibration_excludes_have_no_bound(tmp_path, calibration):
    """A judge with 5% false alarms cannot call 0 of 2,000 answers a leak."""
    pd.DataFrame({"score": [0] * 2000}).to_csv(tmp_path / "none.csv", index=False)
    row = judged.result(tmp_path / "none.csv", "--calibration", calibration)["per_prompt"][0][
        "judged"
    ]
    assert (row["fits"], row["lower"], row["upper"], row["leak_at_k"]) == (False, None, None, [])
    assert (
        "true probability"
        not in judged.call(tmp_path / "none.csv", "--calibration", calibration).output
    )


def test_a_calibration_of_another_judge_is_refused(verdicts, calibration):
    pd.read_csv(calibration).assign(judge="5f0c").to_csv(calibration, index=False)
    answers = pd.read_csv(verdicts).assign(judge="5f0c")
    answers.to_csv(verdicts, index=False)
    assert judged.result(verdicts, "--calibration", calibration)["judged"]["upper"] < 1
    answers.assign(judge="77aa").to_csv(verdicts, index=False)
    assert "5f0c" in judged.refused(verdicts, "--calibration", calibration)


def test_labels_of_random_draws_bound_the_average_whatever_the_scores(tmp_path, verdicts):
    rows = [("a", draw, draw % 5 == 0) for draw in range(30)] + [
        ("b", draw, False) for draw in range(60)
    ]
    table = pd.DataFrame(rows, columns=["prompt_id", "sample", "label"]).astype({"label": int})
    table.to_csv(tmp_path / "labels.csv", index=False)
    got = judged.result(verdicts, "--labels", tmp_path / "labels.csv")["labelled"]
    assert (got["lower"], got["upper"]) == random_labels(6, 90, 0.03)
    assert (got["n"], got["alpha"]) == (90, 0.03)
    pd.DataFrame({"prompt_id": ["a"] * 30 + ["b"] * 60, "score": 0}).to_csv(
        tmp_path / "clean.csv", index=False
    )
    table[:30].to_csv(tmp_path / "part.csv", index=False)
    for name, tau, closed in (
        ("labels", 0.45, False),
        ("labels", 0.05, True),
        ("part", 0.45, True),
    ):
        labels = ("--labels", tmp_path / f"{name}.csv")
        done = judged.call(tmp_path / "clean.csv", *labels, "--fail-above", tau, "--json")
        assert (json.loads(done.stdout)["gate"]["closed"], done.exit_code) == (closed, int(closed))
    for wrong, said in (
        (("a", -1, 1), "greedy"),
        (("a", 3, 1), "a second time"),
        (("c", 3, 1), "prompt_id"),
    ):
        pd.concat([table, pd.DataFrame([wrong], columns=table.columns)]).to_csv(
            tmp_path / "w.csv", index=False
        )
        assert said in judged.refused(verdicts, "--labels", tmp_path / "w.csv")
    pd.concat([table, pd.DataFrame([("a", 30, 1)], columns=table.columns)]).to_csv(
        tmp_path / "w.csv", index=False
    )
    assert "more draws" in judged.refused(tmp_path / "clean.csv", "--labels", tmp_path / "w.csv")


M = 30
DRAWS = 40


def labelled_run(tmp_path, chosen, called=lambda sample: 0):
    """A run of 30 prompts with 40 draws each, and labels of the ``chosen`` (prompt, sample) pairs, none of them a leak."""
    rows = [(f"q{i}", draw, called(draw)) for i in range(M) for draw in range(DRAWS)]
    run, labels = tmp_path / "run.csv", tmp_path / "labels.csv"
    pd.DataFrame(rows, columns=["prompt_id", "sample", "score"]).to_csv(run, index=False)
    table = pd.DataFrame([(f"q{i}", draw) for i, draw in chosen], columns=["prompt_id", "sample"])
    table.assign(label=0).to_csv(labels, index=False)
    return run, "--labels", labels


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
