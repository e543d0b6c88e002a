"""`lethe log`, `lethe score LOG` and `lethe score tofu-log`: what a log holds, new scores of its texts, TOFU."""

import csv
import json

import pandas as pd
import pytest

from tests.lethe.cli.calls import Command
from tests.lethe.io.logs.small_logs import (
    KINDS,
    eval_log,
    header,
    leak_k_line,
    lm_eval_line,
    sample,
    small,
    write_lines,
)

command = Command("score")
call = command.call
result = command.result
refused = command.refused


@pytest.fixture
def rows(tmp_path):
    questions = [
        {"id": "q", "question": "Who is he?", "answer": "Ron", "keywords": ["Ron"]},
        {"id": "r", "question": "Who?", "answer": "Harry", "keywords": ["Harry"]},
    ]
    return write_lines(tmp_path / "rows.jsonl", questions)


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_every_planned_answer_is_in_the_table_and_a_lost_one_is_empty(tmp_path, rows, ending):
    answers = [
        sample("r", 1, "Harry"),
        sample("q", 2, "It was Ron."),
        sample("q", 1, "Ron", error={"message": "x"}),
        sample("r", 2, ""),
    ]
    log = eval_log(tmp_path / "a.eval", header(["q", "r"], 3), answers)
    out = tmp_path / f"out{ending}"
    got = result(
        log, "--scorer", "keyword_leak", "--scorer", "rouge_l", "--data", rows, "--table", out
    )
    table = pd.read_csv(out) if ending == ".csv" else pd.read_parquet(out)
    assert table.columns.tolist() == ["prompt_id", "sample", "keyword_leak", "rouge_l"]
    keys = list(zip(table["prompt_id"], table["sample"], strict=True))
    assert keys == [("q", 1), ("q", 2), ("q", 3), ("r", 1), ("r", 2), ("r", 3)]
    assert table["keyword_leak"].fillna(-1).tolist() == [-1, 1, -1, 1, 0, -1]
    assert table["rouge_l"].fillna(-1).tolist() == [-1, 1, -1, 1, 0, -1]
    assert got["scores"]["keyword_leak"] == {
        "scored": 3,
        "missing": 3,
        "mean": pytest.approx(2 / 3),
    }
    assert got["matched_by"] == "id"
    bounds = Command("bounds").result(out, "--score", "rouge_l", "--missing", "worst")
    assert [row["missing"] for row in bounds["per_prompt"]] == [2, 1]


def test_a_question_is_found_in_the_prompt_the_last_one_counts(tmp_path, rows):
    lines = [lm_eval_line(0, ["Ron", "Harry"]), lm_eval_line(1, ["Ron", "Harry"])]
    lines[0]["arguments"]["gen_args_0"]["arg_0"] = "Q: Who?\nA: Harry\n\nQ: Who is he?\nA:"
    lines[1]["arguments"]["gen_args_0"]["arg_0"] = "Q: Who is he?\nA: Ron\n\nQ: Who?\nA:"
    out = tmp_path / "o.csv"
    assert (
        result(write_lines(tmp_path / "a", lines), "--data", rows, "--table", out)["matched_by"]
        == "question"
    )
    assert pd.read_csv(out)["rouge_l"].tolist() == [1, 0, 0, 1]


def test_the_scores_of_leak_k_are_found_again(shared, tmp_path):
    """Leak-k's own ROUGE-L recall, scored anew from its texts with lm-eval's copy of the same rows."""
    place = shared / "data/eval-logs"
    samples = next((place / "lm_eval/forget_qa_k").rglob("samples_*.jsonl"))
    documents = [json.loads(line)["doc"] for line in samples.read_text().split("\n") if line]
    rows = {
        document["id"]: {key: document[key] for key in ("id", "question", "answer")}
        for document in documents
    }
    data = write_lines(tmp_path / "rows.jsonl", list(rows.values()))
    out = tmp_path / "o.csv"
    log = next((place / "leak_k").rglob("generations_n16.json"))
    result(log, "--data", data, "--table", out)
    expected = pd.read_csv(f"{log}.expected.csv")["rougeL_recall"]
    assert pd.read_csv(out)["rouge_l"].to_numpy() == pytest.approx(expected.to_numpy(), abs=1e-12)


def test_bad_input_is_a_sentence_and_status_2(tmp_path, rows):
    log = write_lines(tmp_path / "a", [leak_k_line("Ron", "Harry", prompt="Where?")])
    assert "'Where?'" in refused(log, "--data", rows)
    unscored = write_lines(tmp_path / "c", [{"prompt_id": "q", "text": "Ron"}])
    assert "┃" not in Command("log").call(unscored).output
    good = write_lines(tmp_path / "b", [leak_k_line("Ron", "Harry")])
    assert "nothing" in refused(good, "--data", rows, "--scorer", "nothing")
    assert "--table" in refused(good, "--data", rows, "--table", tmp_path / "o.txt")
    assert "--table" in refused(
        good, "--data", rows.rename(tmp_path / "r.csv"), "--table", tmp_path / "r.csv"
    )
    plain = write_lines(
        tmp_path / "plain.jsonl", [{"id": "r", "question": "Who?", "answer": "Harry"}]
    )
    assert "keyword_leak" in refused(
        good, "--data", plain, "--scorer", "keyword_leak", "--table", tmp_path / "o.csv"
    )
    assert not (tmp_path / "o.csv").exists()


def test_records_for_inspect_name_epochs_and_leave_missing_answers_out(tmp_path, rows):
    answers = [
        sample("q", 1, "Ron"),
        sample("q", 2, "x", error={"message": "x"}),
        sample("r", 1, "no"),
    ]
    log = eval_log(tmp_path / "a.eval", header(["q", "r"], 2), answers)
    out = tmp_path / "o.json"
    result(log, "--data", rows, "--to", "inspect", "--out", out)
    assert json.loads(out.read_text()) == [
        {"id": "q", "epoch": 1, "value": 1.0},
        {"id": "r", "epoch": 1, "value": 0.0},
    ]
    result(
        log,
        "--data",
        rows,
        "--scorer",
        "rouge_l",
        "--scorer",
        "keyword_leak",
        "--to",
        "inspect",
        "--out",
        out,
    )
    assert json.loads(out.read_text())[0]["value"] == {"rouge_l": 1.0, "keyword_leak": 1.0}
    assert ".json" in refused(log, "--data", rows, "--to", "inspect", "--out", tmp_path / "o.csv")


def test_an_epoch_whose_id_stands_in_two_types_is_refused(tmp_path):
    answers = [sample(7, 1, "Ron"), sample("7", 1, "Ron")]
    log = eval_log(tmp_path / "a.eval", header([7, "7"], 1), answers)
    data = write_lines(tmp_path / "d.jsonl", [{"id": "x", "question": "Who?", "answer": "Ron"}])
    sentence = refused(log, "--data", data, "--to", "inspect", "--out", tmp_path / "o.json")
    assert "prompt '7' appears twice" in sentence


@pytest.mark.parametrize(("name", "utility"), [("phi_full", 0.522074), ("phi_retain90", 0.531991)])
def test_logs_of_the_authors(shared, name, utility):
    logs = shared / "data/tofu-eval-logs"
    answer = result("tofu-log", logs / f"{name}.json", "--retain", logs / "phi_retain90.json")
    assert answer["rougeL_recall_mismatches"] == 0
    assert sum(term["missing"] for term in answer["utility_terms"].values()) == 0
    assert answer["model_utility"] == pytest.approx(utility, abs=5e-7)
    expected = {"phi_full": 2.194e-16, "phi_retain90": 1}[name]
    assert answer["forget_quality"] == pytest.approx(expected, rel=5e-4)


log_command = Command("log")


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_is_shown_and_written(tmp_path, kind):
    path = small(kind, tmp_path)
    out = tmp_path / "out.csv"
    done = log_command.call(path, "--json", "--table", out)
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    with out.open(newline="") as file:
        columns, *rows = csv.reader(file)
    assert columns[:2] == ["prompt_id", "sample"]
    assert len(rows) == told["answers"] == sum(prompt["answers"] for prompt in told["per_prompt"])
    assert set(told["scores"]) <= set(columns)
    shown = log_command.call(path)
    assert shown.exit_code == 0
    for part in (told["tool"], f"{told['answers']}: {told['prompts']} prompts", *told["scores"]):
        assert part in shown.stdout


def test_refusals_warnings_and_what_is_missing_are_shown(tmp_path):
    greedy = header(["q"], 3, generate={"temperature": 0.0, "best_of": 2})
    shown = log_command.call(
        eval_log(tmp_path / "a", greedy, [sample(epoch=1), sample(epoch=2)])
    ).stdout
    for part in ("refused   temperature 0.0", "warning   best_of 2", "missing   1 not written"):
        assert part in shown


def test_bad_input_is_a_sentence_and_exit_status_2(tmp_path):
    path = small("harmbench", tmp_path)
    broken = tmp_path / "broken"
    broken.write_bytes(path.read_bytes()[:-3])
    for arguments in (
        (broken,),
        (tmp_path / "nowhere",),
        (path, "--table", "out.txt"),
        (tmp_path,),
    ):
        log_command.refused(*arguments)


@pytest.mark.parametrize("judge", ["chat", "harmbench", "llm", "nli", "strongreject"])
def test_a_judge_without_its_parameters_is_refused(tmp_path, rows, judge):
    log = eval_log(tmp_path / "a.eval", header(["q"], 1), [sample("q", 1, "Ron")])

    assert f"{judge} needs" in refused(log, "--data", rows, "--scorer", judge)


def asked(tmp_path, questions):
    rows = []
    for name, question in questions.items():
        rows += [
            {"prompt_id": name, "sample": place, "prompt": question, "text": "Ron"}
            for place in range(3)
        ]
    return write_lines(tmp_path / "answers.jsonl", rows)


def test_a_prompt_under_the_id_of_another_row_is_told(tmp_path, rows):
    log = asked(tmp_path, {"q": "Q: Who?", "r": "Q: Who is he?"})

    done = call(log, "--scorer", "keyword_leak", "--data", rows, "--table", tmp_path / "o.csv")

    assert "'q' asks that" in " ".join(done.output.split())


def test_ids_that_agree_beside_other_questions_are_told(tmp_path, rows):
    log = asked(tmp_path, {"q": "Where is Bo?", "r": "Where is Ada?"})

    done = call(log, "--scorer", "keyword_leak", "--data", rows, "--table", tmp_path / "o.csv")

    assert done.exit_code == 0
    assert "No prompt of" in " ".join(done.output.split())
