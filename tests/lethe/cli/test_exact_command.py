"""`lethe exact`: brute force over every answer of a tiny model, the contract of its JSON, what it refuses, how it resumes."""

from __future__ import annotations

import json
import math

import pytest
from typer.testing import CliRunner

import lethe
from lethe.cli import hooks
from lethe.cli.app import app
from lethe.io.tables import read_table
from lethe.results.table import Results, read_rows
from lethe.sampling.answer_tree import AnswerTree
from lethe.statistics.answer_tree import leak_bands, queries_until
from lethe.statistics.bound import Bound
from lethe.statistics.leak_trees import Certificates
from tests.lethe.sampling.sampling_models import as_text, build_llama, exact_probabilities

LETTERS, LENGTH = "abcde", 4
ROWS = [
    {"id": "one", "question": "ab", "answer": "d", "keywords": ["edbb", "d"]},
    {"id": "two", "question": "c", "answer": "ae", "keywords": ["ae"]},
    {"id": "bare", "question": "d", "answer": "cb"},
]
KEYS = """id lower upper upper_certain lower_sampled leak_mass clean_mass blank_mass unscored_mass rows rho sampled
    sampled_leaks logit_allowance queries_until_half leak_at heaviest_leaks"""
SETTINGS = {
    "plain": {},
    "temperature": {"temperature": 1.7},
    "top-k": {"top_k": 3},
    "top-p": {"temperature": 0.8, "top_p": 0.85},
    "adaptive": {"temperature": 1.5, "threshold": 0.5},
}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return build_llama(tmp_path_factory.mktemp("models") / "tiny", letters=LETTERS, scale=1.0, seed=3)


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.jsonl").touch()
    (tmp_path / "letters.txt").write_text("{question}")
    (tmp_path / "forget.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return tmp_path


def call(model, *more, rows=600):
    fixed = ["exact", "--model", str(model), "--data", "forget.jsonl", "--prompt", "letters.txt"]
    return CliRunner().invoke(app, [*fixed, "--rows", str(rows), "--max-new-tokens", str(LENGTH), *more])


def told(model, *more, **how):
    result = call(model, *more, "--json", **how)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def answers(model, row, **how):
    prompt = tuple(LETTERS.index(letter) for letter in row["question"])
    chances = exact_probabilities(model, prompt, LENGTH, **how)
    return [(as_text(answer, LETTERS), chance) for answer, chance in chances.items()]


def options(how):
    names = {"threshold": "adaptive_threshold"}
    return [
        part for key, value in how.items() for part in (f"--{names.get(key, key).replace('_', '-')}", str(value))
    ]


@pytest.mark.parametrize("how", SETTINGS.values(), ids=SETTINGS)
def test_the_bounds_are_those_of_every_answer_written_out(model, place, how):
    by_scorer = {
        "rouge_l": (ROWS, lambda text, row: text == row["answer"]),  # one word: recalled whole or not at all
        "exact_match": (ROWS, lambda text, row: text == row["answer"]),
        # A keyword within a longer run of letters does not count.
        "keyword_leak": (ROWS[:2], lambda text, row: text in row["keywords"]),
    }
    for scorer, (rows, leaks) in by_scorer.items():
        got = told(model, "--scorer", scorer, *options(how), "--exact-only", rows=9000)
        for found, row in zip(got["per_question"], rows, strict=True):
            leak = sum(chance for text, chance in answers(model, row, **how) if leaks(text, row))
            assert leak > 1e-3
            assert leak * (1 - 2e-4) <= found["lower"] <= leak
            assert leak <= found["upper"] <= leak + 2e-4  # the allowance for rounding


def test_the_json_is_the_contract(model, place):
    got = told(model, "--alpha", "0.02", "--tau", "0.01")
    assert set(got) >= {"per_question", "model"}
    assert [row["id"] for row in got["per_question"]] == ["one", "two"]
    assert got["skipped"] == ["bare"]
    for row in got["per_question"]:
        assert set(KEYS.split()) <= set(row)
        assert 0 <= row["lower"] <= row["lower_sampled"] <= row["upper"] <= row["upper_certain"] <= 1
        assert row["leak_mass"] + row["clean_mass"] <= 1 + 1e-9
        first, last = row["queries_until_half"]
        assert [first, math.inf if last is None else last] == queries_until([row["upper"], row["lower"]]).tolist()
        bands = leak_bands(row["lower"], row["upper"], [10**power for power in range(10)])
        assert row["leak_at"] == {str(n): list(band) for n, band in bands.items()}
        heavy = row["heaviest_leaks"]
        assert 1 <= len(heavy) <= 5
        assert [leak["probability"] for leak in heavy] == sorted(
            (leak["probability"] for leak in heavy), reverse=True
        )
    model_of, rows = got["model"], got["per_question"]
    assert model_of["tree_lower_worst"] == max(row["lower"] for row in rows)
    assert model_of["tree_upper_worst"] == max(row["upper"] for row in rows)
    assert model_of["tree_upper_mean"] == model_of["pooled"]["upper"]
    assert model_of["tree_certain_leaks"] == sum(row["lower"] > 1e-6 for row in rows)
    assert model_of["share_proved"] == sum(row["lower"] >= 0.01 for row in rows) / 2
    guarantees = {
        key: Bound.from_dict({"value": model_of[key], **told}) for key, told in model_of["bounds"].items()
    }
    assert guarantees["tree_lower_worst"].certain
    assert guarantees["tree_upper_worst"].alpha == guarantees["tree_upper_mean"].alpha == 0.02


def test_the_rows_are_the_json(model, place):
    got = told(model, "--table", "t.parquet")
    results = Results({"tiny": tuple(read_rows(place / "t.parquet"))})
    questions = results.questions("tiny")
    for row in got["per_question"]:
        values = questions[row["id"]].values
        assert (values["tree_lower"], values["tree_upper"]) == (row["lower"], row["upper"])
    numbers = results.model("tiny")
    assert numbers.values["tree_upper_mean"] == got["model"]["tree_upper_mean"]
    assert numbers.bounds["tree_lower_worst"].certain
    found = lethe.exact(model, "forget.jsonl", rows=600, max_new_tokens=LENGTH, prompt="letters.txt")
    assert found.to_results().equals(read_table(place / "t.parquet"))


def test_the_table_shows_bounds_rounded_outward_and_says_how_each_holds(model, place):
    said = " ".join(call(model).stdout.split())
    row = told(model)["per_question"][0]
    tree = AnswerTree.of_json({**row, "masses": {**NO_MASSES}, "curve": []})
    assert tree.bounds["lower"].significant() in said
    assert tree.bounds["upper"].significant() in said
    assert tree.bounds["lower"].level() in said
    assert tree.bounds["upper"].level() in said


NO_MASSES = {"leak_by_length": [], "clean_by_length": [], "blank": 0, "unscored": 0, "unconfirmed": 0}


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--rows", "0"], "--rows"),
        (["--alpha", "0.7"], "--alpha"),
        (["--target", "2"], "--target"),
        (["--temperature", "0"], "--temperature"),
        (["--top-k", "-1"], "--top-k"),
        (["--top-p", "1.5"], "--top-p"),
        (["--adaptive-threshold", "0"], "--adaptive-threshold"),
        (["--max-new-tokens", "500"], "--max-new-tokens"),
        (["--tau", "0"], "--tau"),
        (["--above", "1"], "--above"),
        (["--seed", "-1"], "--seed"),
        (["--dtype", "int8"], "--dtype"),
        (["--memory", "0"], "--memory"),
        (["--exact-only", "--target", "0.1"], "--target"),
        (["--scorer", "rouge"], "--scorer"),
        (["--scorer", "harmful"], "judge"),
        (["--data", "empty.jsonl"], "empty.jsonl"),
        (["--model", "nowhere"], "nowhere"),
        (["--prompt", "nothing.txt"], "nothing.txt"),
    ],
)
def test_a_wrong_call_is_one_sentence_that_names_it(model, place, monkeypatch, arguments, named):
    from lethe.registry import JUDGES

    monkeypatch.setitem(JUDGES.registered, "harmful", object)
    result = call(model, *arguments)
    assert result.exit_code == 2
    assert named in result.stderr
    assert "Traceback" not in result.output


def test_questions_that_no_scorer_can_judge_are_refused(model, place):
    (place / "bare.jsonl").write_text(json.dumps(ROWS[2]) + "\n")
    result = call(model, "--data", "bare.jsonl")
    assert result.exit_code == 2
    assert "keywords" in result.stderr


def test_an_interrupted_run_resumes_to_the_same_result(model, place, monkeypatch):
    import lethe.sampling.answer_tree as trees

    whole = told(model)
    assert list(hooks.SCRATCH.rglob("*.json")) == []
    looks, done = trees.second_look, []

    def failing(*arguments, **more):
        if len(done) == 1:
            raise KeyboardInterrupt
        done.append(arguments[0].question_id)
        return looks(*arguments, **more)

    monkeypatch.setattr(trees, "second_look", failing)
    call(model, "--json")
    assert len(list(hooks.SCRATCH.rglob("*.json"))) == 3  # two first looks, one second
    asked = []
    monkeypatch.setattr(trees, "second_look", lambda *given: asked.append(given[0].question_id) or looks(*given))
    monkeypatch.setattr(trees, "first_look", None)  # never called
    assert told(model) == whole
    assert asked == ["two"]
    assert list(hooks.SCRATCH.rglob("*.json")) == []


def test_what_a_stage_writes_is_read_again(model, place):
    from lethe.data.rows import read_rows
    from lethe.steps.exact import ExactSettings, certify

    settings = ExactSettings(rows=400, max_new_tokens=LENGTH, prompt="letters.txt")
    found = certify("tiny", model, read_rows(place / "forget.jsonl"), settings)
    assert Certificates.of_json(json.loads(json.dumps(found.as_json(), allow_nan=False))) == found


def test_bfloat16_is_certified_as_computed_and_said_so(model, place):
    got = told(model, "--dtype", "bfloat16")
    assert got["model"]["logit_allowance"] == 0
    assert "bfloat16" in got["model"]["note"]
    assert told(model)["model"]["logit_allowance"] >= 1e-5
