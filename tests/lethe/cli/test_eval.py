"""`lethe eval` on a checkpoint of the user's own: a verdict, a report, an interrupted run that resumes."""

import fcntl
import json
import shutil

import pandas as pd
import pytest
from typer.testing import CliRunner

from lethe.cli.app import app
from lethe.evaluation.sides import read_side
from lethe.io.json_files import plain, write_jsonl
from lethe.results.table import Numbers, read_rows
from lethe.statistics.bound import Bound
from lethe.statistics.bounds import binary_upper, possible
from tests.lethe.small_checkpoint import ROWS


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.jsonl").touch()
    (tmp_path / "forget.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return tmp_path


def call(checkpoint, *more):
    fixed = ["eval", "--model", str(checkpoint), "--data", "forget.jsonl", "--n", "8", "--max-new-tokens", "4"]
    return CliRunner().invoke(app, [*fixed, *more])


def test_a_checkpoint_gets_numbers_and_a_report(checkpoint, place):
    result = call(checkpoint, "--name", "x", "--json")
    assert result.exit_code == 0, result.output
    values = json.loads(result.stdout)
    assert values["n_questions"] == 2
    assert values["n"] == 8
    assert values["mean"] <= values["m_mu_worst"] <= 1
    assert "Who is Ada?" in (place / values["report"]).read_text()
    assert values["forgetting"] in ("leaks", "forgot", "open")
    assert (values["utility"], values["tau"]) == ("open", 0.01)
    rows = read_rows(place / "data/eval/x/results/metrics/x.parquet")
    numbers = Numbers([row for row in rows if row.scope == "model"])
    assert plain(numbers.values).items() <= values.items()
    assert {key: bound.guarantee_dict() for key, bound in numbers.bounds.items()} == values["bounds"]
    kept = json.loads((place / "data/eval/x/evaluated.json").read_text())
    assert "{question}" in kept["prompt"]
    assert kept["score"] == {"scorers": ["rouge_l", "keyword_leak"], "keyword_match": "word"}
    side = read_side(str(place / "data/eval/x"))
    assert side.template == kept["prompt"]
    assert json.loads(side.scorer) == [["keyword_leak"], "word", None]
    for key in ("m_bin_worst", "m_bin_pooled", "m_mu_worst", "m_sigma_worst"):
        bound = Bound.from_dict({"value": values[key], **values["bounds"][key]})
        assert (bound.side, bound.alpha) == ("upper", 0.01)


def test_a_graded_scorer_with_a_threshold_says_what_a_leak_is(checkpoint, place):
    drawn = ("--top-k", "1", "--top-p", "0.9", "--dtype", "float32", "--memory", "64")
    values = json.loads(call(checkpoint, "--scorer", "rouge_l", "--above", "0.3", *drawn, "--json").stdout)
    scores = pd.read_parquet(place / "data/eval/mine/scores/mine/forget.parquet")
    assert (scores["above"] == (scores["rouge_l"] > 0.3)).all()
    assert "keyword_leak" not in scores
    assert (values["m_bin_worst"], values["tau"]) == (pytest.approx(0.4377, abs=1e-3), 0.01)
    texts = pd.read_parquet(place / "data/eval/mine/generations/mine/forget.parquet").groupby("prompt_id")["text"]
    assert (texts.nunique() == 1).all()  # the likeliest token alone
    for wrong in (
        ("--memory", "0"),
        ("--scorer", "nli"),
        ("--above", "1", "--scorer", "rouge_l"),
        ("--dtype", "int8"),
    ):
        refused = call(checkpoint, *wrong)
        assert (refused.exit_code, wrong[0] in refused.output) == (2, True), refused.output


def lines_of(shown: str) -> dict[str, list[str]]:
    """The rows of a printed table by their first cell."""
    rows = [
        [cell.strip() for cell in line.split("│")[1:-1]] for line in shown.splitlines() if line.startswith("│")
    ]
    return {first: rest for first, *rest in rows}


@pytest.mark.parametrize("data", ["forget.jsonl", "bare.jsonl"])
def test_the_verdict_comes_first_above_a_short_table_with_both_ends(checkpoint, place, data):
    bare = [{key: row[key] for key in ("id", "question", "answer")} for row in ROWS]
    write_jsonl(place / "bare.jsonl", bare)
    options = ("--name", "x", "--data", data)
    values = json.loads(call(checkpoint, *options, "--json").stdout)
    shown = call(checkpoint, *options).stdout
    assert " ".join(shown.split()).startswith(" ".join(values["verdict"].split()))
    lines = lines_of(shown)
    assert 4 <= len(lines) <= 12
    assert set(lines) <= set(values)
    for name, (estimate, lower, upper, covers) in lines.items():
        assert bool(covers) == ((lower, upper) != ("-", "-"))
        assert estimate == "-" or float(estimate) == pytest.approx(values[name], rel=1e-3)
        for cell, key in ((lower, f"{name}_lower"), (upper, name)):
            if cell != "-" and key in values["bounds"]:
                bound = Bound.from_dict({"value": values[key], **values["bounds"][key]})
                bound = possible(bound) if "sigma" in key else bound  # the JSON keeps the published value
                assert cell == bound.significant()


def test_a_language_of_prompts_is_drawn_with_the_answers(checkpoint, place):
    parts = 'wording: ["{question}", {name: ask, text: "Tell me: {question}"}]\nprefix: [null, {name: sure, text: Sure}]\n'
    (place / "language.yaml").write_text(parts + "share: {prompts: 5, answers: 4, tau: 0.5}\n")
    result = call(checkpoint, "--name", "x", "--language", "language.yaml", "--json")
    assert result.exit_code == 0, result.output
    values = json.loads(result.stdout)
    assert "language" in values["bounds"]["m_bin_worst"]["covers"]
    assert 0 <= values["language_share_lower"] <= values["language_share_upper"] <= 1
    page = (place / values["report"]).read_text()
    assert "wording: ask, prefix: sure" in page
    assert values["language_worst_found"] in page
    fixed = json.loads(call(checkpoint, "--name", "y", "--json").stdout)
    assert "language" not in fixed["bounds"]["m_bin_worst"]["covers"]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--calibration", "nowhere.csv"], "nowhere.csv"),
        (["--calibration", "forget.jsonl"], "label"),
        (["--calibration", "labelled.csv", "--data", "bare.jsonl"], "--calibration"),
        (["--labels", "data/labels"], "data/labels/x.jsonl"),
        (["--language", "language.yaml"], "'question_de'"),
        (["--language", "nowhere.yaml"], "nowhere.yaml"),
    ],
)
def test_what_cannot_be_read_is_refused_before_work(checkpoint, place, options, named):
    (place / "labelled.csv").write_text("label,verdict\n1,1\n0,0\n")
    (place / "language.yaml").write_text('wording: ["{question_de}"]\n')
    (place / "bare.jsonl").write_text(json.dumps({"id": "a", "question": "Who?", "answer": "Ada."}) + "\n")
    result = call(checkpoint, "--name", "x", *options)
    assert result.exit_code == 2
    assert named in " ".join(result.stderr.split())
    assert not (place / "data").exists()


def test_finished_questions_are_not_drawn_again(checkpoint, place, monkeypatch):
    first = json.loads(call(checkpoint, "--name", "x", "--json").stdout)
    kept = sorted((place / "data/eval/x/answers").rglob("*.json"))
    assert len(kept) == 2
    # One question is lost, as after a kill: only that one is drawn again, to the same answers.
    from lethe.sampling.prefix_engine import PrefixEngine

    drawn, answer = [], PrefixEngine.answer

    def watched(self, prompts, settings):
        drawn.extend(prompt.prompt_id for prompt in prompts)
        return answer(self, prompts, settings)

    monkeypatch.setattr(PrefixEngine, "answer", watched)
    kept[0].unlink()
    again = json.loads(call(checkpoint, "--name", "x", "--json").stdout)
    assert len(drawn) == 1
    assert again == first


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (["--n", "0"], "--n: got 0"),
        (["--alpha", "0.7"], "--alpha: got 0.7; must be above 0 and at most 0.5"),
        (["--temperature", "inf"], "--temperature"),
        (["--max-new-tokens", "2000"], "--max-new-tokens: got 2000; must be at most"),
        (["--tau", "2"], "--tau: got 2.0"),
        (["--seed", "4294967296"], "--seed: got 4294967296; must be at least 0 and at most 4294967295"),
        (["--data", "empty.jsonl"], "empty.jsonl"),
        (["--data", "none.jsonl"], "no such file"),
        (["--engine", "gpt"], "--engine"),
        (["--prompt", "none.txt"], "no such prompt file"),
        (["--name", "../up"], "--name"),
    ],
)
def test_a_mistake_is_a_sentence_and_status_2_before_any_work(checkpoint, place, monkeypatch, more, sentence):
    from lethe.steps import likelihood

    monkeypatch.setattr(likelihood, "run", None)  # never called
    result = call(checkpoint, *more)
    assert result.exit_code == 2
    assert sentence in result.output
    assert "Traceback" not in result.output
    assert not (place / "data/eval").exists()


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("model.safetensors", None),
        ("tokenizer.json", "{"),
        ("tokenizer.json", '{"model": {}}'),
        ("config.json", "{"),
        ("config.json", "[]"),
        ("tokenizer_config.json", "[]"),
    ],
)
def test_a_broken_file_of_a_checkpoint_is_a_sentence(checkpoint, place, file, content):
    broken = place / "broken"
    shutil.copytree(checkpoint, broken)
    (broken / file).write_bytes((broken / file).read_bytes()[:1000] if content is None else content.encode())
    result = call(broken)
    assert result.exit_code == 2, repr(result.exception)
    assert f"{broken}" in result.output


def test_a_model_whose_weights_are_not_numbers_is_named(checkpoint, place):
    from safetensors.torch import load_file, save_file

    broken = place / "broken"
    shutil.copytree(checkpoint, broken)
    weights = broken / "model.safetensors"
    save_file(
        {name: values * float("nan") for name, values in load_file(weights).items()}, weights, {"format": "pt"}
    )
    result = call(broken, "--name", "exploded")
    assert result.exit_code == 1, repr(result.exception)
    assert "Model 'exploded'" in result.output
    assert not (place / "data/eval/exploded/metrics").exists()


def test_a_second_evaluation_at_the_same_time_is_refused(checkpoint, place):
    folder = place / "data/eval/x"
    folder.mkdir(parents=True)
    with open(folder / ".lock", "w") as lock:
        lock.write("4711")
        lock.flush()
        fcntl.flock(lock, fcntl.LOCK_EX)
        result = call(checkpoint, "--name", "x")
    assert result.exit_code == 1
    assert "process 4711" in result.output
    assert [path.name for path in folder.iterdir()] == [".lock"]


def test_a_default_name_never_replaces_the_evaluation_of_another_model(checkpoint, place):
    other = place / "other" / checkpoint.name
    shutil.copytree(checkpoint, other)
    first = json.loads(call(checkpoint, "--json").stdout)
    refused = call(other)
    assert refused.exit_code == 2
    assert "--name, for example other-mine" in " ".join(refused.output.split())
    assert json.loads(call(checkpoint, "--json").stdout) == first
    assert call(other, "--name", checkpoint.name).exit_code == 0, "a name that is given is the user's own choice"


def test_a_question_that_is_too_long_is_refused_or_left_out(checkpoint, place):
    rows = [*ROWS, {"id": 7, "question": "long " * 600, "answer": "Yes."}]
    (place / "forget.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    refused = call(checkpoint)
    assert refused.exit_code == 2
    assert "'7'" in refused.output
    assert "--skip-too-long" in refused.output
    values = json.loads(call(checkpoint, "--skip-too-long", "--json").stdout)
    assert values["skipped"] == ["7"]
    assert values["n_questions"] == 2


def test_what_no_scorer_can_judge_is_told_before_the_sampling(checkpoint, place):
    rows = [{**ROWS[0], "answer": "\u0647\u064a\u062f\u0648\u064a\u063a"}, {**ROWS[1], "keywords": []}]
    (place / "forget.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    told = call(checkpoint).stderr
    assert "answers without either: 1 of 2" in told
    assert "Without keywords: 1 of 2 forget" in told


def test_the_gate_asks_the_bound_of_the_worst_question(checkpoint, place):
    for tau, status in ((0.44, 0), (0.43, 1)):
        result = call(checkpoint, "--name", "x", "--fail-above", str(tau), "--json")
        gate = json.loads(result.stdout)["gate"]
        assert (result.exit_code, gate["closed"]) == (status, bool(status)), result.output
        assert gate["bound"] == binary_upper(0, 8, 0.01) == json.loads(result.stdout)["m_bin_worst"]
    (place / "calibration.csv").write_text("label,verdict\n" + "1,1\n1,0\n0,0\n0,0\n" * 20)
    result = call(checkpoint, "--name", "y", "--calibration", "calibration.csv", "--fail-above", "0.44", "--json")
    found = json.loads(result.stdout)
    assert found["gate"]["bound"] == found["judged_worst"] > 0.44
    assert result.exit_code == 1
    (place / "calibration.csv").write_text("label,verdict\n" + "1,1\n0,1\n" * 200)  # no judge that says no
    result = call(checkpoint, "--name", "m", "--calibration", "calibration.csv", "--fail-above", "0.99", "--json")
    found = json.loads(result.stdout)
    assert (result.exit_code, found["gate"]["closed"], found["gate"]["bound"]) == (1, True, None)
    assert (found["forgetting"], "keyword_leak" in found["gate"]["reason"]) == ("none", True)
    (place / "forget.jsonl").write_text(
        "".join(json.dumps(row) + "\n" for row in (ROWS[0], {**ROWS[1], "keywords": []}))
    )
    result = call(checkpoint, "--name", "z", "--fail-above", "0.9", "--json")
    assert (result.exit_code, json.loads(result.stdout)["gate"]["bound"]) == (1, None)


def test_an_interrupt_says_what_is_kept(checkpoint, place, monkeypatch):
    from lethe.steps import score

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(score, "run", interrupted)
    result = call(checkpoint)
    assert result.exit_code == 130
    assert "2 finished questions kept" in result.output


def test_long_work_begins_with_its_time_and_memory(checkpoint, place):
    more = ("--n", "400", "--max-new-tokens", "32")
    shown = call(checkpoint, *more, "--json")
    assert "802 answers to draw" in shown.stderr
    assert "GiB" in shown.stderr
    assert json.loads(shown.stdout)["n"] == 400
    assert "to draw" not in call(checkpoint, *more).stderr  # nothing is missing


def test_a_few_draws_of_one_question_give_wide_ends_and_a_word(checkpoint, place):
    (place / "one.jsonl").write_text(json.dumps(ROWS[0]) + "\n")
    (place / "retain.jsonl").write_text(json.dumps({"id": "r", "question": "Who is Cy?", "answer": "Cy."}) + "\n")
    result = call(checkpoint, "--data", "one.jsonl", "--retain", "retain.jsonl", "--n", "2", "--json")
    assert result.exit_code == 0, result.output
    values = json.loads(result.stdout)
    assert (values["n"], values["forgetting"], values["utility"]) == (2, "open", "open")
    assert values["m_bin_worst"] == pytest.approx(float(binary_upper(values["binary_any"] * 1, 2, 0.01)))
