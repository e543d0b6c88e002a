"""Shards of one model's questions: together they give the bytes of the undivided stages, and no stale shard is read."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.shards import section, with_shards
from flows.workspace import Graph
from lethe import config
from lethe.errors import BadValue, ParamsClash
from lethe.io import parts
from lethe.io.json_files import write_json, write_jsonl
from lethe.io.shards import Shard, found, model_of, name_of
from lethe.steps import score_shards
from stages import likelihood, sample, score
from tests.lethe.sampling.sampling_models import build_llama
from tests.small import ROOT

LETTERS = "abcdefghijklmnopqrstuvwxyz ABCDEFGHIJKLMNOPQRSTUVWXYZ?:\n"
STAGES = {"sample": sample, "likelihood": likelihood, "score": score}
RESULTS = ("generations", "likelihood", "scores")


@given(st.integers(0, 50), st.integers(1, 12))
def test_every_item_is_in_exactly_one_shard(items, count):
    shards = [Shard(number, count) for number in range(1, count + 1)]
    together = [item for shard in shards for item in shard.part(range(items))]
    assert together == list(range(items))
    assert max(len(shard.part(range(items))) for shard in shards) <= items // count + 1


@given(st.text(max_size=12))
def test_a_shard_is_read_or_refused(text):
    try:
        shard = Shard.parse(text)
    except BadValue:
        return
    assert 1 <= shard.number <= shard.of


def test_names_of_shards_lead_back_to_the_model():
    assert model_of(name_of("npo-2", Shard(3, 4))) == "npo-2"


def params(root: Path, scorers: list[str]) -> config.Params:
    value = config.read_yaml(ROOT / "params.yaml")
    value["models"] = {"m": {"path": str(root / "model")}, "m-1": {"path": "elsewhere"}}
    value["sample"] |= {
        "n": 12,
        "utility_n": 3,
        "utility_questions": 5,
        "max_new_tokens": 4,
        "prompt": str(root / "p.txt"),
    }
    value["score"] = {"scorers": scorers, "keyword_match": "word"}
    value["report"] = {"base": None, "retrain": None}
    value["metrics"]["binary"] = None
    return config.validate(value)


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("shards")
    build_llama(root / "model", LETTERS, scale=3.0)
    (root / "p.txt").write_text("{question}")
    for split, count in (("forget", 11), ("retain", 7)):
        rows = [
            {
                "id": f"{split}{place}",
                "question": "who" + "o" * (place % 5),
                "answer": "ab " * (place % 3 + 1) + "c",
            }
            for place in range(count)
        ]
        write_jsonl(root / "dataset" / f"{split}.jsonl", rows)
    write_json(root / "dataset/about.json", {"schema": 1, "kind": "jsonl", "rows": {"forget": 11, "retain": 7}})
    for stage in STAGES.values():
        stage.run(params(root, ["rouge_l", "exact_match"]), root, "m")
    return root


def contents(root: Path) -> dict[str, bytes]:
    files = [path for result in RESULTS for path in (root / result / "m").rglob("*") if path.is_file()]
    return {str(path.relative_to(root)): path.read_bytes() for path in files}


@pytest.fixture
def bare(made, tmp_path, monkeypatch) -> Path:
    """A folder with the dataset and no results, whose scratch is its own."""
    shutil.copytree(made / "dataset", tmp_path / "data/dataset")
    shutil.copytree(made / "model", tmp_path / "data/model")
    shutil.copy(made / "p.txt", tmp_path / "data/p.txt")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "data"


@pytest.mark.parametrize("count", [1, 3])
def test_shards_give_the_bytes_of_the_undivided_stages(made, bare, count, monkeypatch):
    monkeypatch.setattr(parts, "ROWS", 30)
    whole = bare.parent / "whole"
    shutil.copytree(bare, whole)
    settings = params(bare, ["rouge_l", "exact_match"])
    for name, stage in STAGES.items():
        stage.run(settings, whole, "m")
        for number in range(1, count + 1):
            stage.run(settings, bare, "m", f"{number}of{count}")
        assert len(found(bare, name, "m")) == count
        with monkeypatch.context() as context:
            refuse_work(context)
            stage.run(settings, bare, "m")
    assert contents(bare) == contents(whole)
    scores = {key for key in contents(bare) if key.endswith("forget.parquet")}
    assert len(scores) == 4  # the likelihoods have scores of their own
    monkeypatch.setattr(parts, "ROWS", 1 << 16)
    shutil.rmtree(whole / "generations")
    for stage in STAGES.values():
        stage.run(settings, whole, "m")
    assert contents(whole) == contents(made)


def refuse_work(monkeypatch) -> None:
    """Whoever draws, computes a likelihood or scores an answer fails the test."""

    def work(*_arguments, **_options):
        raise AssertionError("the shards should have done this")

    monkeypatch.setattr("lethe.sampling.prefix_engine.PrefixEngine.answer", work)
    monkeypatch.setattr("lethe.models.likelihood._batch", work)
    monkeypatch.setattr("lethe.scoring._tables._columns", work)


def test_a_missing_shard_is_done_by_the_whole(made, bare):
    settings = params(bare, ["rouge_l", "exact_match"])
    for stage in STAGES.values():
        for number in (1, 3):
            stage.run(settings, bare, "m", f"{number}of3")
        stage.run(settings, bare, "m")
    assert contents(bare) == contents(made)


def test_the_answers_are_read_once_for_the_keys_of_all_shards(bare, monkeypatch):
    settings = params(bare, ["rouge_l"])
    sample.run(settings, bare, "m")
    likelihood.run(settings, bare, "m")
    for number in range(1, 5):
        score.run(settings, bare, "m", f"{number}of4")
    read, original = [], score_shards.read_parts

    def counted(path, columns=None, rows=None):
        read.append((path.name, "text" in (columns or ())))
        return original(path, columns, rows)

    monkeypatch.setattr(score_shards, "read_parts", counted)
    score.run(settings, bare, "m")
    assert sorted(name for name, whole in read if whole) == ["forget.parquet", "retain.parquet"]


def test_a_shard_of_other_settings_is_not_read(bare):
    first, other = (params(bare, scorers) for scorers in (["rouge_l"], ["rouge_l", "exact_match"]))
    other = other.model_copy(update={"sample": other.sample.model_copy(update={"seed": 9})})
    for stage in STAGES.values():
        stage.run(first, bare, "m")
        for number in (1, 2):
            stage.run(first, bare, "m", f"{number}of2")
    for stage in STAGES.values():
        stage.run(other, bare, "m")
    with_shards_there = contents(bare)
    shutil.rmtree(bare / "shards")
    for stage in STAGES.values():
        stage.run(other, bare, "m")
    assert contents(bare) == with_shards_there


def test_the_whole_waits_for_its_shards_and_idle_shards_are_left_out():
    upstream = {
        "prepare": [],
        "sample_shard@m-1-1of2": ["prepare"],
        "sample@m-1": ["prepare"],
        "sample_shard@m-1-2of2": ["prepare"],
        "sample_shard@n-1of1": ["prepare"],
        "sample@n": ["prepare"],
        "score_shard@m-1-1of2": ["sample@m-1"],
        "score@m-1": ["sample@m-1"],
    }
    changed = ("sample@m-1", "sample_shard@m-1-1of2", "sample_shard@m-1-2of2", "sample_shard@n-1of1")
    stale = {name: ["changed"] for name in changed}
    graph = with_shards(Graph(upstream, stale))
    assert graph.upstream["sample@m-1"] == ["prepare", "sample_shard@m-1-1of2", "sample_shard@m-1-2of2"]
    assert graph.upstream["score@m-1"] == ["sample@m-1", "score_shard@m-1-1of2"]
    order = list(graph.upstream)
    assert order.index("sample_shard@m-1-2of2") < order.index("sample@m-1") < order.index("score_shard@m-1-1of2")
    assert "sample_shard@n-1of1" not in {*graph.upstream, *graph.stale}  # its whole need not run
    assert set(graph.behind()) == {*upstream} - {"prepare", "sample@n", "sample_shard@n-1of1"}


def test_the_section_of_params_divides_every_model_and_is_checked(tmp_path):
    settings = params(tmp_path, ["rouge_l"])
    divided = section(settings.models, 2)
    assert list(divided) == ["m-1of2", "m-2of2", "m-1-1of2", "m-1-2of2"]
    assert section(settings.models, 1) == {}
    value = settings.model_dump(mode="json")
    assert config.validate(value | {"shards": divided}).shards["m-2of2"].shard == "2of2"
    wrong = [
        {"m-1of2": divided["m-2of2"]},
        {"gone-1of2": divided["m-1of2"] | {"model": "gone"}},
        {"m-1of2": divided["m-1of2"] | {"path": "other"}},
    ]
    for entry in wrong:
        with pytest.raises(ParamsClash, match="--shards"):
            config.validate(value | {"shards": entry})
