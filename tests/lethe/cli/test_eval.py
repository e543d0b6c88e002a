"""`lethe eval` on a checkpoint of the user's own: a verdict, a report, an interrupted run that resumes."""

import fcntl
import json
import shutil
from pathlib import Path

import pandas as pd
import pytest
import torch

from lethe.comparison.read_side import read_side
from lethe.io.artifacts import read_split
from lethe.io.files import plain, write_jsonl
from lethe.models import checkpoints
from lethe.results.licence import Source
from lethe.results.table import Numbers, read_rows
from lethe.statistics.anytime import Counts, ends
from lethe.statistics.bound import Bound
from lethe.statistics.bounds import possible
from lethe.verdict.finding import UTILITY, Findings
from tests.cases import cases
from tests.lethe.cli.calls import Command
from tests.lethe.sampling.fault_server import FaultServer
from tests.lethe.small_checkpoint import ROWS, small_model

pytestmark = pytest.mark.usefixtures("without_page")


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.jsonl").touch()
    (tmp_path / "forget.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return tmp_path


command = Command("eval", "--data", "forget.jsonl", "--n", 8, "--max-new-tokens", 4, "--model")
call = command.call
result = command.result
refused = command.refused


def test_a_checkpoint_gets_numbers_and_a_report(checkpoint, place, page):
    values = result(checkpoint, "--name", "x")
    assert values["n_questions"] == 2
    assert values["n"] == 8
    assert values["mean"] <= values["m_mu_worst"] <= 1
    assert "Who is Ada?" in (place / values["report"]).read_text()
    assert values["forgetting"] in ("leaks", "forgot", "open")
    assert (values["utility"], values["tau"]) == ("open", 0.01)
    assert "(give --retain and --base)" in values["verdict"]
    rows = read_rows(place / "data/eval/x/results/metrics/x.parquet")
    numbers = Numbers([row for row in rows if row.scope == "model"])
    assert plain(numbers.values).items() <= values.items()
    assert {key: bound.guarantee_dict() for key, bound in numbers.bounds.items()} == values[
        "bounds"
    ]
    kept = json.loads((place / "data/eval/x/evaluated.json").read_text())
    assert "{question}" in kept["prompt"]
    assert kept["score"] == {"scorers": ["rouge_l", "keyword_leak"], "keyword_match": "word"}
    side = read_side(str(place / "data/eval/x"))
    assert side.template == kept["prompt"]
    assert side.scorer == {"scorer": ["keyword_leak"], "keyword_match": "word", "thinking": None}
    for key in ("m_bin_worst", "m_bin_pooled", "m_mu_worst", "m_sigma_worst"):
        bound = Bound.from_dict({"value": values[key], **values["bounds"][key]})
        assert (bound.side, bound.alpha) == ("upper", 0.01)


def saying(word: str, folder: Path) -> Path:
    """A model that says one word again and again: each hidden state is the same."""
    model, tokenizer = small_model([row["answer"] for row in ROWS])
    model.config.tie_word_embeddings = False
    model.lm_head.weight = torch.nn.Parameter(torch.zeros_like(model.lm_head.weight))
    (token,) = tokenizer(f" {word}", add_special_tokens=False).input_ids
    with torch.no_grad():
        model.model.embed_tokens.weight.fill_(1.0)
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight.zero_()
            layer.mlp.down_proj.weight.zero_()
        model.lm_head.weight[token] = 1.0
    checkpoints.save(folder, model, tokenizer)
    return folder


@pytest.fixture(scope="module")
def of_base(tmp_path_factory) -> Path:
    """Base, another model, and retain questions whose answers are those of Base."""
    folder = tmp_path_factory.mktemp("base")
    saying("sea", folder / "base")
    saying("painter", folder / "other")
    rows = []
    for place in range(8):
        rows.append(
            {"id": f"r{place}", "question": f"What is {place}?", "answer": "sea sea sea sea"}
        )
    write_jsonl(folder / "retain.jsonl", rows)
    return folder


DRAWN = ("--n", "32", "--name", "x")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "base", "word"),
    [
        ("base", None, "open (give --base)"),
        ("base", "base", "intact"),
        ("other", "base", "destroyed"),
    ],
)
def test_utility_is_that_of_base_on_the_same_questions(place, page, of_base, model, base, word):
    options = [*DRAWN, "--retain", of_base / "retain.jsonl"]
    if base is not None:
        options += ["--base", of_base / base]

    values = result(of_base / model, *options)

    assert values["utility"] == word.partition(" ")[0]
    assert f"utility {word} - " in values["verdict"]
    rows = read_rows(place / "data/eval/x/results/compare/models.parquet")
    finding = Findings.of(rows).about("x", UTILITY)
    assert (finding.reference is None) == (base is None)
    html = (place / values["report"]).read_text()
    assert f">{values['utility']}<" in html
    assert "leakage of Base" not in html  # of its answers to forget questions nothing is asked


def test_base_needs_questions_and_weights(checkpoint, place, of_base):
    alone = call(checkpoint, "--base", checkpoint)
    nowhere = call(checkpoint, "--retain", of_base / "retain.jsonl", "--base", "nowhere")

    assert (alone.exit_code, "--base" in alone.output) == (2, True)
    assert (nowhere.exit_code, "nowhere" in nowhere.output) == (2, True)
    assert not (place / "data/eval/mine").exists()


SERVED = ("m", "--prompt", "{question}", "--base", "short", "--retain", "long.jsonl", "--endpoint")


@pytest.fixture
def short(place) -> Path:
    """A Base with a context of 40 tokens and no chat template, and a retain question that it cannot hold."""
    checkpoints.save(place / "short", *small_model(["sea"], context=40))
    rows = [
        {"id": "long", "question": "long " * 60, "answer": "sea"},
        {"id": "brief", "question": "Sea?", "answer": "sea"},
    ]
    write_jsonl(place / "long.jsonl", rows)
    return place / "short"


def test_a_base_that_cannot_be_asked_is_refused_before_any_request(place, short):
    with FaultServer() as server:
        without_template = refused(*SERVED, server.url, "--prompt", "chat")
        too_long = refused(*SERVED, server.url)

    assert "has no chat template" in without_template
    assert "'long': got " in too_long
    assert "Base's context is 40. " in too_long
    assert server.bodies == []
    assert not (place / "data/eval/m").exists()


def test_questions_that_base_cannot_hold_are_left_out_of_both(place, short):
    with FaultServer() as server:
        values = result(*SERVED, server.url, "--skip-too-long")

    assert values["skipped"] == ["long"]
    asked = {row["question"] for row in read_split("retain", place / "data/eval/m/dataset")}
    assert asked == {"Sea?"}


def test_retain_questions_that_base_cannot_hold_at_all_are_refused(place, short):
    write_jsonl(place / "long.jsonl", [{"question": "long " * 60, "answer": "sea"}])

    with FaultServer() as server:
        done = refused(*SERVED, server.url, "--skip-too-long")

    assert "Every retain question" in done
    assert "than Base's context of" in done


def test_base_is_not_asked_in_the_language_of_prompts(place, short):
    (place / "words.yaml").write_text(f"system:\n  - {'word ' * 60}\n")

    with FaultServer() as server:
        result(*SERVED, server.url, "--skip-too-long", "--language", "words.yaml")

    assert any("word word" in str(body) for body in server.bodies)


@pytest.mark.parametrize("name", [(), ("--name", "base")])
def test_a_model_cannot_have_the_name_of_base(place, of_base, name):
    done = refused(
        of_base / "base", "--retain", of_base / "retain.jsonl", "--base", of_base / "other", *name
    )

    assert "--name" in done
    assert not (place / "data/eval/base").exists()


@pytest.mark.slow
def test_the_record_names_base_and_what_it_holds(place, of_base):
    options = (*DRAWN, "--retain", of_base / "retain.jsonl")
    records = []
    for base in ([], ["--base", of_base / "base"], ["--base", of_base / "other"]):
        result(of_base / "other", *options, *base)
        records.append(json.loads((place / "data/eval/x/evaluated.json").read_text())["base"])

    nothing, first, second = records
    assert nothing is None
    assert first["path"] == str((of_base / "base").resolve())
    assert first["digest"] == checkpoints.content(of_base / "base")
    assert first["digest"] != second["digest"]


def test_a_graded_scorer_with_a_threshold_says_what_a_leak_is(checkpoint, place, page):
    drawn = ("--top-k", "1", "--top-p", "0.9", "--dtype", "float32", "--memory", "64")
    values = result(checkpoint, "--scorer", "rouge_l", "--above", "0.3", *drawn)
    scores = pd.read_parquet(place / "data/eval/mine/scores/mine/forget.parquet")
    assert (scores["above"] == (scores["rouge_l"] > 0.3)).all()
    assert "keyword_leak" not in scores
    assert (values["m_bin_worst"], values["tau"]) == (pytest.approx(0.4377, abs=1e-3), 0.01)
    texts = pd.read_parquet(place / "data/eval/mine/generations/mine/forget.parquet").groupby(
        "prompt_id"
    )["text"]
    assert (texts.nunique() == 1).all()  # the likeliest token alone
    for wrong in (
        ("--memory", "0"),
        ("--scorer", "nli"),
        ("--above", "1", "--scorer", "rouge_l"),
        ("--dtype", "int8"),
    ):
        done = call(checkpoint, *wrong)
        assert (done.exit_code, wrong[0] in done.output) == (2, True), done.output


def lines_of(shown: str) -> dict[str, list[str]]:
    rows = [
        [cell.strip() for cell in line.split("│")[1:-1]]
        for line in shown.splitlines()
        if line.startswith("│")
    ]
    return {first: rest for first, *rest in rows}


@pytest.mark.slow
@pytest.mark.parametrize("data", ["forget.jsonl", "bare.jsonl"])
def test_the_verdict_comes_first_above_a_short_table_with_both_ends(checkpoint, place, data):
    bare = [{key: row[key] for key in ("id", "question", "answer")} for row in ROWS]
    write_jsonl(place / "bare.jsonl", bare)
    options = ("--name", "x", "--data", data)
    values = result(checkpoint, *options)
    shown = call(checkpoint, *options, "--all").stdout
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
                bound = (
                    possible(bound) if "sigma" in key else bound
                )  # the JSON keeps the published value
                assert cell == bound.significant()


@pytest.mark.slow
def test_a_language_of_prompts_is_drawn_with_the_answers(checkpoint, place, page):
    parts = 'wording: ["{question}", {name: ask, text: "Tell me: {question}"}]\nprefix: [null, {name: sure, text: Sure}]\n'
    (place / "language.yaml").write_text(parts + "share: {prompts: 5, answers: 4, tau: 0.5}\n")
    values = result(checkpoint, "--name", "x", "--language", "language.yaml")
    assert "language" in values["bounds"]["m_bin_worst"]["covers"]
    assert 0 <= values["language_share_lower"] <= values["language_share_upper"] <= 1
    html = (place / values["report"]).read_text()
    assert "wording: ask, prefix: sure" in html
    assert values["language_worst_found"] in html
    fixed = result(checkpoint, "--name", "y")
    assert "language" not in fixed["bounds"]["m_bin_worst"]["covers"]


@cases
def test_what_cannot_be_read_is_refused_before_work(checkpoint, place, options, named):
    (place / "labelled.csv").write_text("label,verdict\n1,1\n0,0\n")
    (place / "language.yaml").write_text('wording: ["{question_de}"]\n')
    (place / "bare.jsonl").write_text(
        json.dumps({"id": "a", "question": "Who?", "answer": "Ada."}) + "\n"
    )
    assert named in refused(checkpoint, "--name", "x", *options)
    assert not (place / "data").exists()


def test_finished_questions_are_not_drawn_again(checkpoint, place, monkeypatch):
    first = result(checkpoint, "--name", "x")
    kept = sorted((place / "data/eval/x/answers").rglob("*.json"))
    assert len(kept) == 2
    # One question is lost, as after a kill: only that one is drawn again, to the same answers.
    from lethe.sampling.prefix_engine import PrefixEngine

    drawn = []
    answer = PrefixEngine.answer

    def watched(self, prompts, settings):
        drawn.extend(prompt.prompt_id for prompt in prompts)
        return answer(self, prompts, settings)

    monkeypatch.setattr(PrefixEngine, "answer", watched)
    kept[0].unlink()
    again = result(checkpoint, "--name", "x")
    assert len(drawn) == 1
    assert again == first


@cases
def test_a_mistake_is_a_sentence_and_status_2_before_any_work(
    checkpoint, place, monkeypatch, more, sentence
):
    from lethe.steps import likelihood

    monkeypatch.setattr(likelihood, "run", None)  # never called
    assert sentence in refused(checkpoint, *more)
    assert not (place / "data/eval").exists()


@cases
def test_a_broken_file_of_a_checkpoint_is_a_sentence(checkpoint, place, file, content):
    broken = place / "broken"
    shutil.copytree(checkpoint, broken)
    (broken / file).write_bytes(
        (broken / file).read_bytes()[:1000] if content is None else content.encode()
    )
    assert f"{broken}" in refused(broken)


def test_a_model_whose_weights_are_not_numbers_is_named(checkpoint, place):
    from safetensors.torch import load_file, save_file

    broken = place / "broken"
    shutil.copytree(checkpoint, broken)
    weights = broken / "model.safetensors"
    save_file(
        {name: values * float("nan") for name, values in load_file(weights).items()},
        weights,
        {"format": "pt"},
    )
    done = call(broken, "--name", "exploded")
    assert done.exit_code == 1, repr(done.exception)
    assert "Model 'exploded'" in done.output
    assert not (place / "data/eval/exploded/metrics").exists()


def test_a_second_evaluation_at_the_same_time_is_refused(checkpoint, place):
    folder = place / "data/eval/x"
    folder.mkdir(parents=True)
    with open(folder / ".lock", "w") as lock:
        lock.write("4711")
        lock.flush()
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = call(checkpoint, "--name", "x")
    assert done.exit_code == 1
    assert "process 4711" in done.output
    assert [path.name for path in folder.iterdir()] == [".lock"]


def test_a_default_name_never_replaces_the_evaluation_of_another_model(checkpoint, place):
    other = place / "other" / checkpoint.name
    shutil.copytree(checkpoint, other)
    first = result(checkpoint)
    assert "--name, for example other-mine" in refused(other)
    assert result(checkpoint) == first
    assert call(other, "--name", checkpoint.name).exit_code == 0, (
        "a name that is given is the user's own choice"
    )


def test_a_question_that_is_too_long_is_refused_or_left_out(checkpoint, place):
    rows = [*ROWS, {"id": 7, "question": "long " * 600, "answer": "Yes."}]
    (place / "forget.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = refused(checkpoint)
    assert "'7'" in done
    assert "--skip-too-long" in done
    values = result(checkpoint, "--skip-too-long")
    assert values["skipped"] == ["7"]
    assert values["n_questions"] == 2


def test_what_no_scorer_can_judge_is_told_before_the_sampling(checkpoint, place):
    rows = [
        {**ROWS[0], "answer": "\u0647\u064a\u062f\u0648\u064a\u063a"},
        {**ROWS[1], "keywords": []},
    ]
    rows[0]["paraphrased_question"] = "Whose?"
    (place / "forget.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    told = call(checkpoint).stderr
    assert f"1 of 2 ('{rows[0]['id']}', of which it reads '')" in told
    assert "Without keywords: 1 of 2 forget" in told
    assert "paraphrased_question is not asked" in told


@pytest.mark.slow
def test_the_gate_asks_the_bound_of_the_worst_question(checkpoint, place):
    upper = ends(Counts(0, 8), (), 0.01).upper
    for tau, status in ((upper + 0.001, 0), (upper - 0.001, 1)):
        done = call(checkpoint, "--name", "x", "--fail-above", str(tau), "--json")
        gate = json.loads(done.stdout)["gate"]
        assert (done.exit_code, gate["closed"]) == (status, bool(status)), done.output
        assert gate["bound"] == pytest.approx(upper)  # all of alpha, at any time
    (place / "calibration.csv").write_text("label,verdict\n" + "1,1\n1,0\n0,0\n0,0\n" * 20)
    done = call(
        checkpoint,
        "--name",
        "y",
        "--calibration",
        "calibration.csv",
        "--fail-above",
        "0.99",
        "--json",
    )
    found = json.loads(done.stdout)
    assert (done.exit_code, found["gate"]["bound"]) == (1, None)  # a judge may be blind on one
    assert "--labels" in found["gate"]["reason"]
    (place / "calibration.csv").write_text(
        "label,verdict\n" + "1,1\n0,1\n" * 200
    )  # no judge that says no
    done = call(
        checkpoint,
        "--name",
        "m",
        "--calibration",
        "calibration.csv",
        "--fail-above",
        "0.99",
        "--json",
    )
    found = json.loads(done.stdout)
    assert (done.exit_code, found["gate"]["closed"], found["gate"]["bound"]) == (1, True, None)
    assert (found["forgetting"], "keyword_leak" in found["gate"]["reason"]) == ("none", True)
    (place / "forget.jsonl").write_text(
        "".join(json.dumps(row) + "\n" for row in (ROWS[0], {**ROWS[1], "keywords": []}))
    )
    done = call(checkpoint, "--name", "z", "--fail-above", "0.9", "--json")
    assert (done.exit_code, json.loads(done.stdout)["gate"]["bound"]) == (1, None)


def test_an_interrupt_says_what_is_kept(checkpoint, place, monkeypatch):
    from lethe.steps import score

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(score, "run", interrupted)
    done = call(checkpoint)
    assert done.exit_code == 130
    assert "2 finished questions kept" in done.output


def test_long_work_begins_with_its_time_and_memory(checkpoint, place):
    more = ("--n", "400", "--max-new-tokens", "32")
    shown = call(checkpoint, *more, "--json")
    assert "802 answers to draw" in shown.stderr
    assert "GiB" in shown.stderr
    assert json.loads(shown.stdout)["n"] == 400
    assert "to draw" not in call(checkpoint, *more).stderr  # nothing is missing


def test_sampled_answers_are_scored(checkpoint, place):
    sample = Command(
        "sample", "--model", checkpoint, "--n", 8, "--max-new-tokens", 4, "--scorer", "rouge_l"
    )
    found = sample.result("--data", "forget.jsonl", "--above", 0.1, "--out", "drawn.parquet")
    table = pd.read_parquet("drawn.parquet")
    assert (table["leak"] == (table["rouge_l"] > 0.1)).all()
    drawn = table[table["sample"] >= 0]
    assert found["leaks"] == drawn.groupby("prompt_id", sort=False)["leak"].sum().to_dict()
    assert "--data" in sample.refused("Who is Ada?")


def gate_of(checkpoint, *more):
    done = call(checkpoint, "--name", "x", *more, "--fail-above", "0.4", "--json")
    return json.loads(done.stdout)["gate"]


def test_another_seed_adds_to_what_was_drawn_and_the_same_seed_adds_nothing(checkpoint, place):
    gates = [gate_of(checkpoint, "--seed", seed) for seed in (0, 1, 0)]

    assert [gate["process"]["segments"] for gate in gates] == [1, 2, 2]
    assert [gate["process"]["answers"] for gate in gates] == [16, 32, 32]
    assert [gate["closed"] for gate in gates] == [True, False, False], "8 answers, then 16"
    assert gates[0]["tries"] == {"count": 1, "alpha": 0.01, "kept": True}
    assert "at no cost" in gates[1]["reason"]


def test_more_answers_of_a_seed_continue_the_gate(checkpoint, place):
    assert gate_of(checkpoint)["closed"]

    continued = gate_of(checkpoint, "--n", 16)

    assert (continued["closed"], continued["process"]["answers"]) == (False, 32)


def test_a_gate_that_opened_stays_open_with_fewer_answers_of_the_same_seed(checkpoint, place):
    gate_of(checkpoint, "--n", 16)

    assert not gate_of(checkpoint, "--n", 4)["closed"]


def test_an_evaluation_warns_once_of_references_that_rouge_drops(checkpoint, place):
    accented = [row | {"answer": "Caf\u00e9 of Ada"} for row in ROWS]
    (place / "forget.jsonl").write_text("".join(json.dumps(row) + "\n" for row in accented))

    told = call(checkpoint, "--name", "x").stderr

    assert told.count("ROUGE drops accented letters") == 1
    assert f"in {len(ROWS)} of {len(ROWS)} (" in told


def test_a_prompt_file_that_was_edited_is_another_test_and_a_moved_one_is_the_same(
    checkpoint, place
):
    def segments(prompt, seed):
        command = ("--prompt", prompt, "--seed", seed)
        return gate_of(checkpoint, *command)["process"]["segments"]

    Path("one.txt").write_text("{question}\n")
    Path("moved.txt").write_text("{question}\n")

    assert [segments("one.txt", 1), segments("moved.txt", 2)] == [1, 2]

    Path("one.txt").write_text("Please: {question}\n")
    assert segments("one.txt", 3) == 1


def test_another_engine_draws_other_answers_of_a_seed_which_add(checkpoint, place):
    gate_of(checkpoint)

    gates = [gate_of(checkpoint, "--engine", engine) for engine in ("transformers", "prefix")]

    assert [gate["process"]["answers"] for gate in gates] == [32, 32]
    assert "(1 seed)" in gates[1]["reason"]


def test_draws_of_which_nothing_is_claimed_are_no_evidence_later(checkpoint, place, monkeypatch):
    from lethe.steps import metrics

    with monkeypatch.context() as patch:
        unchecked = Source(unchecked_engine="The engine was not checked")
        patch.setattr(metrics, "of_drawing", lambda *_: unchecked)
        assert "not checked" in gate_of(checkpoint, "--seed", 1)["reason"]

    assert gate_of(checkpoint, "--seed", 2)["process"]["answers"] == 16


def test_an_edited_tokenizer_is_another_test(checkpoint, place):
    edited = shutil.copytree(checkpoint, place / checkpoint.name)
    assert gate_of(edited, "--n", 16)["process"]["answers"] == 32

    settings = edited / "tokenizer_config.json"
    settings.write_text(json.dumps(json.loads(settings.read_text()) | {"model_max_length": 99}))

    assert gate_of(edited)["process"]["answers"] == 16


def test_a_gate_is_closed_until_draws_that_were_begun_are_counted(checkpoint, place, monkeypatch):
    from lethe.steps import score

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(score, "run", interrupted)
        call(checkpoint, "--name", "x", "--seed", 1, "--fail-above", "0.9")

    other = gate_of(checkpoint, "--seed", 2, "--n", 16)
    assert (other["closed"], other["bound"]) == (True, None)
    assert "seed 1 were begun" in other["reason"]

    finished = gate_of(checkpoint, "--seed", 1)
    assert (finished["closed"], finished["process"]["answers"]) == (False, 48)


def test_counts_are_equal_under_interruption(checkpoint, place, monkeypatch):
    from lethe.steps import score

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(score, "run", interrupted)
        call(checkpoint, "--name", "x", "--fail-above", "0.4")
    resumed = gate_of(checkpoint)

    shutil.rmtree("processes")
    shutil.rmtree("data")
    assert gate_of(checkpoint) == resumed
