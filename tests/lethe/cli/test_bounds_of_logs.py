"""`lethe bounds LOG`: the same numbers as the same scores in a CSV, what is refused, and broken logs."""

import json

import pytest

import lethe
from lethe.io.logs import read_log
from tests.lethe.cli.calls import Command
from tests.lethe.io.logs.small_logs import (
    eval_log,
    header,
    lm_eval_line,
    lm_eval_log,
    lm_eval_results,
    sample,
    write_lines,
)

command = Command("bounds")
call, result, refused = command.call, command.result, command.refused


def early(folder, epochs, hits):
    """One question of `epochs` planned epochs, of which a rule ran as many as `hits` has values."""
    skipped = [{"id": "q", "epoch": epoch} for epoch in range(len(hits) + 1, epochs + 1)]
    head = header(["q"], epochs) | {"results": {"early_stopping": {"manager": "lethe", "early_stops": skipped}}}
    samples = [sample("q", epoch, scores={"match": hit}) for epoch, hit in enumerate(hits, start=1)]
    return eval_log(folder / "early.eval", head, samples)


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
    assert json.loads(run.data.tags["bound.m_bin_worst"])["alpha"] == 0.01
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
            got = lethe.bounds(path, score=log.scores[0]).as_json()
            assert got.pop("log")["missing"] == table["score"].isna().sum()
            expected = lethe.bounds(tmp_path / "same.csv", missing=missing).as_json()
            assert str(got) == str(expected)  # NaN is not equal to itself
