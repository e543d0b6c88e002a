"""`lethe exact`: brute force over every answer of a tiny model, the contract of its JSON, what it refuses, how it resumes."""

import json

import pytest

from lethe.cli.hooks.probabilities import SCRATCH
from tests.cases import cases
from tests.lethe.cli.calls import Command
from tests.lethe.sampling.sampling_models import ROWS, as_text, build_llama, exact_probabilities

LETTERS = "abcde"
LENGTH = 4
SETTINGS = {
    "plain": {},
    "temperature": {"temperature": 1.7},
    "top-k": {"top_k": 3},
    "top-p": {"temperature": 0.8, "top_p": 0.85},
    "adaptive": {"temperature": 1.5, "threshold": 0.5},
}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return build_llama(
        tmp_path_factory.mktemp("models") / "tiny", letters=LETTERS, scale=1.0, seed=3
    )


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.jsonl").touch()
    (tmp_path / "bare.jsonl").write_text(json.dumps(ROWS[2]) + "\n")
    (tmp_path / "letters.txt").write_text("{question}")
    (tmp_path / "forget.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return tmp_path


SETTING = (
    "--data",
    "forget.jsonl",
    "--prompt",
    "letters.txt",
    "--rows",
    600,
    "--max-new-tokens",
    LENGTH,
)
command = Command("exact", *SETTING, "--portable", "--model")
call = command.call
told = command.result
refused = command.refused


def answers(model, row, **how):
    prompt = tuple(LETTERS.index(letter) for letter in row["question"])
    chances = exact_probabilities(model, prompt, LENGTH, **how)
    return [(as_text(answer, LETTERS), chance) for answer, chance in chances.items()]


def options(how):
    names = {"threshold": "adaptive_threshold"}
    return [
        part
        for key, value in how.items()
        for part in (f"--{names.get(key, key).replace('_', '-')}", str(value))
    ]


@pytest.mark.slow
@pytest.mark.parametrize("how", SETTINGS.values(), ids=SETTINGS)
def test_the_bounds_are_those_of_every_answer_written_out(model, place, how):
    by_scorer = {
        "rouge_l": (
            ROWS,
            lambda text, row: text == row["answer"],
        ),  # one word: recalled whole or not at all
        "exact_match": (ROWS, lambda text, row: text == row["answer"]),
        # A keyword within a longer run of letters does not count.
        "keyword_leak": (ROWS[:2], lambda text, row: text in row["keywords"]),
    }
    for scorer, (rows, leaks) in by_scorer.items():
        got = told(model, "--scorer", scorer, *options(how), "--exact-only", "--rows", 9000)
        for found, row in zip(got["per_question"], rows, strict=True):
            leak = sum(chance for text, chance in answers(model, row, **how) if leaks(text, row))
            assert leak > 1e-3
            assert leak * (1 - 2e-4) <= found["lower"] <= leak
            assert leak <= found["upper"] <= leak + 2e-4  # the allowance for rounding


@cases
def test_a_wrong_call_is_one_sentence_that_names_it(model, place, monkeypatch, arguments, named):
    from lethe.registry import JUDGES

    monkeypatch.setitem(JUDGES.registered, "harmful", object)
    assert named in refused(model, *arguments)


def test_the_gate_asks_the_bound_of_the_worst_question(model, place):
    """A question that no scorer can judge has no bound, so that the gate with it is closed at any threshold."""
    (place / "judged.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS[:2]))
    (place / "half.jsonl").write_text((place / "judged.jsonl").read_text())
    half = told(
        model, "--data", "half.jsonl", "--alpha", 0.005
    )  # the first try takes half of alpha
    worst = max(row["upper"] for row in half["per_question"])
    for tau, status in ((worst * 1.001, 0), (worst * 0.999, 1)):
        result = call(model, "--data", "judged.jsonl", "--fail-above", str(tau), "--json")
        gate = json.loads(result.stdout)["gate"]
        assert (result.exit_code, gate["closed"]) == (status, bool(status))
        assert gate["bound"] == pytest.approx(worst, rel=1e-9)
    result = call(model, "--fail-above", "0.999")
    assert result.exit_code == 1
    assert "1 question" in result.stdout


def test_an_interrupted_run_resumes_to_the_same_result(model, place, monkeypatch):
    import lethe.sampling.answer_tree as trees

    whole = told(model)
    assert list(SCRATCH.rglob("*.json")) == []
    looks = trees.second_look
    done = []

    def failing(*arguments, **more):
        if len(done) == 1:
            raise KeyboardInterrupt
        done.append(arguments[0].question_id)
        return looks(*arguments, **more)

    monkeypatch.setattr(trees, "second_look", failing)
    call(model, "--json")
    assert len(list(SCRATCH.rglob("*.json"))) == 3  # two first looks, one second
    asked = []
    monkeypatch.setattr(
        trees,
        "second_look",
        lambda *arguments: asked.append(arguments[0].question_id) or looks(*arguments),
    )
    monkeypatch.setattr(trees, "first_look", None)  # never called
    assert told(model) == whole
    assert asked == ["two"]
    assert list(SCRATCH.rglob("*.json")) == []


def test_bfloat16_is_certified_as_computed_and_said_so(model, place):
    got = told(model, "--dtype", "bfloat16")
    assert got["model"]["logit_allowance"] == 0
    assert "bfloat16" in got["model"]["note"]
    assert told(model)["model"]["logit_allowance"] >= 1e-5


def test_long_work_begins_with_its_time_and_memory(model, place, monkeypatch):
    monkeypatch.setattr("lethe.steps.exact.WORTH", 600)
    shown = call(model)
    assert "MiB" in shown.stderr
    monkeypatch.setattr("lethe.steps.exact.WORTH", 10**6)
    assert "MiB" not in call(model, "--seed", "5").stderr
