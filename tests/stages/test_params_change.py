"""What a stage reads of params.yaml is what dvc.yaml lists for it, and a changed value changes what the stage writes."""

import copy
import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from lethe.config.load import section_of
from stages.sources import COMPUTED, keys_of
from tests.recorded import recorded
from tests.small import ROOT, stages_of, tiny_params, work, write_params

PARAMS = tiny_params()
STAGES = stages_of(PARAMS)
KEYS = keys_of(ROOT)
# Keys that are read only beside others: what makes a stage read them.
CONDITIONAL: dict[str, dict[str, Any]] = {
    "sample.first": {"sample.stop": "word", "sample.first": 16},
    "sample.row_budget": {"sample.n": "auto", "sample.max_new_tokens": 2},
    "metrics.labels": {"metrics.labels.folder": "data/people"},
}
READS = {
    "sample.first": "sample@base",
    "sample.row_budget": "sample@base",
    "metrics.labels": "metrics@base",
}
# Listed as a whole though only parts are read: compare waits for all of these stages anyway. Another kind's section of the
# dataset is read with that kind.
LISTED_WHOLE = {
    # Methods and trained models are read by their seeds, and the stream where a word was kept.
    "compare": {
        "exact",
        "extract",
        "models",
        "report.paired_seeds",
        "report.tau_graded",
        "sample.stream",
        "train.models",
        "unlearn.methods",
    },
    "references": {
        "judges",
        "metrics",
        "models",
        "report",
        "score",
    },  # read with `sample.stop: word`
    "prepare": {"data.tofu", "twins"},  # the number of candidates alone
    **{
        f"twins@{model}": {"twins"} for model in PARAMS["models"]
    },  # the key and the declared scores alone
    "extract@npo_entropy_at": {"extract", "models", "sample"},  # adaptive temperature is refused
    "unlearn@npo_entropy": {
        "unlearn.recipe.reference"
    },  # of methods that need the model before unlearning
}
# Keys that an entry of `models` need not have, which dvc.yaml can therefore not list: the identity holds their values.
OPTIONAL = ("chat", "max_new_tokens", "prompt")
# The page prints the seeds of whole params, and no key below these holds one.
PRINTED = {"report": {"notify"}}
# How the work is done: another value changes no byte.
INERT = {"exact.memory": ("exact@base", 64), "sample.max_rows": ("sample@base", 64)}
CHANGES = {
    "data.seed": ("prepare", 1),
    "train.recipe.lr": ("train@retrain", 1e-3),
    "unlearn.methods.npo_entropy.beta": ("unlearn@npo_entropy", 0.3),
    "sample.temperature": ("sample@base", 0.5),
    "extract.top_k": ("extract@base", 3),
    "metrics.alpha": ("metrics@base", 0.05),
    "twins.k": ("prepare", 5),
}
OUTS = {
    "prepare": ["data/dataset"],
    "train": ["data/models/{}"],
    "unlearn": ["data/models/{}"],
    "sample": ["data/generations/{}"],
    "exact": ["data/results/exact/{}.parquet"],
    "extract": ["data/results/extract/{}.parquet"],
    "metrics": ["data/results/metrics/{}.parquet", "data/metrics/{}.json"],
}
# Files that only repeat the params; a change must show in the results themselves.
RECORDS = {"about.json", "training.json"}


def leaves(tree: Any, path: str = "") -> dict[str, Any]:
    """Dotted key to value; lists and empty tables are values."""
    if not isinstance(tree, dict) or not tree:
        return {path: tree}
    return {
        key: value
        for name in tree
        for key, value in leaves(tree[name], f"{path}.{name}".strip(".")).items()
    }


def below(key: str, entries: Any) -> bool:
    return any(f"{key}.".startswith(f"{entry}.") for entry in entries)


def listed(stage: str) -> list[str]:
    """The keys of params.yaml that dvc.yaml lists for a stage, and the entry that is in the stage's identity alone."""
    name, _, instance = stage.partition("@")
    return [key.replace("${key}", instance) for key in KEYS[name]]


def in_identity(stage: str) -> list[str]:
    """The keys whose values the stage `sources` computes for a stage, beside those that dvc.yaml lists."""
    name, _, instance = stage.partition("@")
    if "models.${key}.template" not in COMPUTED.get(name, ()):
        return []
    return [f"models.{instance}.{key}" for key in OPTIONAL]


def changed(values: dict[str, Any]) -> dict[str, Any]:
    params = copy.deepcopy(PARAMS)
    for key, value in values.items():
        section, last = section_of(params, key, value)
        section[last] = value
    return params


@pytest.fixture
def pipeline_copy(pipeline, tmp_path, monkeypatch) -> Path:
    folder = Path(shutil.copytree(pipeline[0], tmp_path / "lethe"))
    monkeypatch.chdir(folder)
    return folder


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_reads_no_key_that_dvc_does_not_watch(pipeline, stage):
    _, read = pipeline
    watched = {*listed(stage), *in_identity(stage), *PRINTED.get(stage, ())}
    assert {key for key in read[stage] if not below(key, watched)} == set()


@pytest.mark.parametrize("stage", STAGES)
def test_dvc_watches_no_key_that_its_stage_never_reads(pipeline, stage):
    _, read = pipeline
    expected = {key for key in leaves(PARAMS) if below(key, listed(stage))}
    expected = {
        key for key in expected if not below(key, {*CONDITIONAL, *LISTED_WHOLE.get(stage, ())})
    }
    # A table that is null or empty here is read as one key, another's entries one by one.
    touched = {
        key
        for key in expected
        if below(key, read[stage]) or any(below(name, [key]) for name in read[stage])
    }
    assert expected - touched == set()


@pytest.mark.slow
@pytest.mark.parametrize("key", CONDITIONAL)
def test_a_key_that_matters_beside_others_is_read_beside_them(pipeline_copy, key):
    label(pipeline_copy, "base")
    stage = READS[key]
    write_params(pipeline_copy, changed(CONDITIONAL[key]))
    work("references")
    with recorded() as read:
        work(stage)
    assert {name for name in leaves(PARAMS) if below(name, [key])} - read == set()
    assert {name for name in read if not below(name, listed(stage))} == set()


def test_with_the_word_the_rule_of_draws_reads_what_dvc_watches(pipeline_copy):
    write_params(pipeline_copy, changed({"sample.stop": "word"}))

    with recorded() as read:
        work("references")

    assert {name for name in read if not below(name, listed("references"))} == set()
    expected = {"report.tau", "report.models", "report.retrain", "metrics.alpha", "metrics.binary"}
    assert expected <= read


@pytest.mark.slow
@pytest.mark.parametrize("key", CHANGES)
def test_a_value_changes_what_its_stage_writes(pipeline_copy, key):
    stage, value = CHANGES[key]
    before = digest(stage)
    assert rewritten(pipeline_copy, stage, {key: value}) != before


@pytest.mark.slow
@pytest.mark.parametrize("key", INERT)
def test_how_the_work_is_done_changes_nothing(pipeline_copy, key):
    stage, value = INERT[key]
    before = digest(stage)
    assert rewritten(pipeline_copy, stage, {key: value}) == before


def rewritten(folder: Path, stage: str, values: dict[str, Any]) -> dict[str, str]:
    write_params(folder, changed(values))
    for place in places(stage):
        shutil.rmtree(place) if place.is_dir() else place.unlink()
    work(stage)
    return digest(stage)


def places(stage: str) -> list[Path]:
    name, _, key = stage.partition("@")
    return [Path(out.format(key)) for out in OUTS[name]]


def digest(stage: str) -> dict[str, str]:
    files = [file for place in places(stage) for file in (place, *sorted(place.rglob("*")))]
    return {
        str(file): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in files
        if file.is_file() and file.name not in RECORDS
    }


def label(folder: Path, model: str) -> None:
    """Labels of every answer of one model, every third a leak, as `lethe label` keeps them."""
    drawn = pd.read_parquet(folder / f"data/generations/{model}/forget.parquet")
    texts = drawn[["prompt_id", "text"]].drop_duplicates().to_dict("records")
    rows = [
        {**row, "label": int(place % 3 == 0), "part": "mass"} for place, row in enumerate(texts)
    ]
    (folder / "data/people").mkdir()
    (folder / f"data/people/{model}.jsonl").write_text(
        "".join(json.dumps(row) + "\n" for row in rows)
    )
