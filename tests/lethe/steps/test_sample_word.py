"""The stage sample with `sample.stop: word`: its tables, its record, and a run that goes on."""

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from lethe.config.measuring import ModelEntry, SampleSettings, scorer_params
from lethe.errors import BadFile
from lethe.io.files import write_jsonl
from lethe.io.tables import read_table
from lethe.sampling.word_rule import Rule
from lethe.steps import sample as step
from tests.lethe.sampling.sampling_models import build_llama

LETTERS = "abcde"
ROWS = [  # the first answer of which is common, so that chance matters; the other never comes
    {"id": "common", "question": "ab", "answer": "a", "keywords": ["a"]},
    {"id": "never", "question": "c", "answer": "x", "keywords": ["x"]},
    {"id": "bare", "question": "d", "answer": "cb", "keywords": []},
]
SAMPLE = SampleSettings(
    prompt="{question}", stop="word", first=32, n=128, batch=32, max_new_tokens=3, utility_n=2
)


@pytest.fixture(scope="session")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    paths = {}
    for seed, name in enumerate(("mine", "retrain")):
        paths[name] = str(build_llama(folder / name, letters=LETTERS, scale=1.0, seed=seed))
    return {name: ModelEntry(path=path) for name, path in paths.items()}


@pytest.fixture
def rule(models):
    params = scorer_params("keyword_leak", {"keyword_match": "substring"})
    retrains = {"retrain": models["retrain"]}
    return Rule(0.3, math.log(1 / 0.05), "keyword_leak", params, retrains)


@pytest.fixture
def draw(models, rule, tmp_path, monkeypatch):
    """Draws the answers of a model, and gives its folder."""
    monkeypatch.chdir(tmp_path)
    write_jsonl(tmp_path / "data/dataset/forget.jsonl", ROWS)
    write_jsonl(tmp_path / "data/dataset/retain.jsonl", ROWS[1:2])

    def drawn(name="mine", sample=SAMPLE, by=rule):
        step.run(name, sample, models[name], tmp_path / "data", rule=by)
        return tmp_path / "data/generations" / name

    return drawn


def bytes_of(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.parquet")}


def sizes(table):
    return table[table["sample"] >= 0].groupby("prompt_id").size().to_dict()


def test_open_questions_are_drawn_on_and_retrain_beside_them(draw):
    folder = draw()

    drawn = sizes(read_table(folder / "forget.parquet"))
    beside = sizes(read_table(folder / "beside/retrain.parquet"))
    assert drawn["never"] == drawn["bare"] == 32
    assert drawn["common"] > 32
    assert set(beside) == {"common"}


def test_the_record_says_the_first_answers_and_what_the_word_took(draw):
    folder = draw()

    about = json.loads((folder / "about.json").read_text())

    assert about["stop"] == "word"
    assert about["splits"]["forget"] == {"questions": 3, "n": 32}
    assert about["word"]["drawn"]["least"] == 32
    assert about["word"]["beside"]["retrain"]["total"] > 0
    assert about["word"]["beside"]["retrain"]["stream"] != about["stream"]


def test_a_deleted_store_gives_the_same_bytes(draw, tmp_path):
    folder = draw()
    before = bytes_of(folder)
    for kept in (tmp_path / ".lethe/scratch").rglob("*.json"):
        kept.unlink()

    assert bytes_of(draw()) == before


def test_a_second_run_draws_nothing(draw, monkeypatch):
    before = bytes_of(draw())

    def refuse(*_):
        raise AssertionError("an answer was drawn again")

    monkeypatch.setattr("lethe.sampling.prefix_engine.PrefixEngine.answer", refuse)

    assert bytes_of(draw()) == before


def test_the_first_answers_are_those_of_a_fixed_number(draw):
    word = read_table(draw() / "forget.parquet")
    fixed = SAMPLE.model_copy(update={"stop": "fixed", "n": 32})

    table = read_table(draw(sample=fixed, by=None) / "forget.parquet")

    assert word[word["sample"] < 32].reset_index(drop=True).equals(table)


def test_a_retrain_has_the_first_answers_alone(draw):
    folder = draw("retrain")

    assert set(sizes(read_table(folder / "forget.parquet")).values()) == {32}
    assert not (folder / "beside").exists()


def test_base_has_the_first_answers_alone(draw, rule):
    folder = draw(by=replace(rule, base="mine"))

    assert set(sizes(read_table(folder / "forget.parquet")).values()) == {32}
    assert not (folder / "beside").exists()


def test_retrain_beside_a_model_is_not_the_retrain_of_its_own_stage(draw):
    beside = read_table(draw() / "beside/retrain.parquet")
    alone = read_table(draw("retrain") / "forget.parquet")

    texts = alone.query("prompt_id == 'common' and sample >= 0")["text"].tolist()

    assert beside["text"].tolist()[:32] != texts


def test_answers_of_earlier_weights_leave_the_store(draw, tmp_path):
    stale = tmp_path / ".lethe/scratch/mine/ab/ab0.json"
    stale.parent.mkdir(parents=True)
    stale.touch()

    draw()

    assert not stale.exists()


@pytest.mark.parametrize("edited", ["config.json", "generation_config.json"])
def test_no_answers_are_written_of_a_model_that_was_edited_while_it_answered(
    models, tmp_path, monkeypatch, edited
):
    monkeypatch.chdir(tmp_path)
    write_jsonl(tmp_path / "data/dataset/forget.jsonl", ROWS)
    write_jsonl(tmp_path / "data/dataset/retain.jsonl", ROWS[1:2])
    place = Path(shutil.copytree(models["mine"].path, tmp_path / "model"))
    entry = ModelEntry(path=str(place))
    opened = step._opened

    def edited_once_opened(*arguments):
        engine = opened(*arguments)
        (place / edited).write_text((place / edited).read_text() + " ")
        return engine

    monkeypatch.setattr(step, "_opened", edited_once_opened)
    fixed = SAMPLE.model_copy(update={"stop": "fixed"})

    with pytest.raises(BadFile, match="changed while it"):
        step.run("mine", fixed, entry, tmp_path / "data")

    assert not (tmp_path / "data/generations/mine").exists()
    assert not list(Path(".lethe/scratch/mine").rglob("*.json"))
