"""One artifact folder of every released schema: read whole, and refused with what to do where the version differs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lethe
from lethe import config
from lethe.errors import BadRow, OtherSchema
from lethe.evaluation import run as evaluated
from lethe.evaluation.labels import Answer, Asked, Labels, read_labels
from lethe.evaluation.measure_settings import MeasureSettings
from lethe.io import schema
from lethe.io.artifacts import read_metrics, read_split, read_tables
from lethe.io.atomic import SCHEMA_VERSION
from lethe.io.json_files import read_json, write_json
from lethe.io.tables import read_table
from lethe.steps import report
from lethe.steps.evaluate import PIPELINE_ONLY
from tests.lethe.cli.calls import Command

RELEASED = Path(__file__).parent / "released"
OTHERS = (0, SCHEMA_VERSION + 1, 10**30, "2", None, True, [1], {})


def settings() -> config.EvaluationParams:
    """The params of the evaluation that wrote the folders."""
    measuring = MeasureSettings()
    drawn = {"engine": "prefix", "prompt": "chat", "temperature": 1.0, "max_new_tokens": 4, "seed": 0, "n": 6}
    return config.evaluation_params(
        models={"mine": {"path": "/models/mine"}},
        sample={**PIPELINE_ONLY, **drawn, "utility_n": 6},
        score={"scorers": ["rouge_l", "keyword_leak"]},
        metrics={
            "alpha": 0.01,
            "rho": measuring.rho,
            "thresholds": list(measuring.thresholds),
            "leak": "rouge_l",
            "binary": "keyword_leak",
            "share_above": measuring.share_above,
        },
    )


def released(name: str, folder: Path) -> Path:
    """A copy of the folder of one schema."""
    return shutil.copytree(RELEASED / name, folder / "run")


def one_metrics_file(root: Path) -> None:
    """The form of the first folders of schema 1: all numbers in one file."""
    details = root / "metrics/details"
    write_json(
        root / "metrics/mine.json", read_json(root / "metrics/mine.json") | read_json(details / "mine.json")
    )
    shutil.rmtree(details)


def test_every_released_schema_has_a_folder():
    kept = {path.name for path in RELEASED.iterdir()}
    assert kept == {f"schema-{version}" for version in range(1, SCHEMA_VERSION + 1)}


@pytest.mark.parametrize("change", [lambda root: None, one_metrics_file])
@pytest.mark.parametrize("name", sorted(path.name for path in RELEASED.iterdir()))
def test_a_released_folder_is_read(tmp_path, name, change: Callable[[Path], None]):
    root = released(name, tmp_path)
    change(root)
    run = lethe.load_run(root)
    assert run.models == ["mine"]
    assert (
        run.metrics.loc["mine", "m_bin_pooled"] == run.bounds["mine"]["m_bin_pooled"].value == 0.3187079309420387
    )
    assert run.metrics.loc["mine", "n_questions"] == len(run.questions) == 2
    assert run.answers.groupby("prompt_id")["text"].count().to_dict() == {"a": 7, "b": 7}
    report.run(settings(), root)
    told = read_json(root / "report/summary.json")
    assert told["models"]["mine"]["metrics"]["m_bin_pooled"] == 0.3187079309420387
    compared = Command("compare").result(root, root)
    assert [row["difference"] for row in compared["per_question"]] == [0.0, 0.0]


READERS: dict[str, Callable[[Path], object]] = {
    "dataset/about.json": lambda root: read_split("forget", root / "dataset"),
    "metrics/mine.json": lambda root: read_metrics(root, "mine"),
    "metrics/details/mine.json": lethe.load_run,
    "curves/mine/bounds.json": lethe.load_run,
    "generations/mine/forget.parquet": lambda root: read_tables(root / "generations/mine", "stage sample"),
    "scores/mine/forget.parquet": lambda root: lethe.load_run(root).answers,
    "generations/mine/about.json": lambda root: evaluated.load(settings(), root, {}),
    "scores/mine/about.json": lambda root: Command("compare").result(root, root),
    "evaluated.json": lambda root: Command("compare").result(root, root),
}


def set_version(path: Path, version: object) -> None:
    """Write another schema version into an artifact."""
    if path.suffix == ".json":
        write_json(path, read_json(path) | {"schema": version})
        return
    table = pq.read_table(path)
    pq.write_table(table.replace_schema_metadata({**table.schema.metadata, b"lethe_schema": str(version)}), path)


@pytest.mark.parametrize("version", [0, SCHEMA_VERSION + 1])
@pytest.mark.parametrize("place", READERS)
def test_another_version_is_refused_with_what_to_do(tmp_path, place, version):
    root = released(f"schema-{SCHEMA_VERSION}", tmp_path)
    set_version(root / place, version)
    if place in ("scores/mine/about.json", "evaluated.json"):
        said = Command("compare").refused(root, root)
    else:
        with pytest.raises(OtherSchema) as error:
            READERS[place](root)
        said = str(error.value)
    words = (
        str(root / place),
        f"schema version {version},",
        f"version {SCHEMA_VERSION}.",
        "`dvc repro`",
        "`lethe run`",
    )
    assert [word for word in words if word not in said] == []
    assert ("newer release" in said) == (version > SCHEMA_VERSION)


def test_all_artifacts_of_a_folder_carry_a_version():
    """A list of JSON and a file of JSON lines cannot; a file beside each of them does."""
    for path in (RELEASED / f"schema-{SCHEMA_VERSION}").rglob("*.*"):
        if path.suffix == ".parquet":
            assert pq.read_schema(path).metadata[schema.METADATA] == str(SCHEMA_VERSION).encode()
        elif path.suffix == ".json" and isinstance(value := read_json(path), dict):
            assert value["schema"] == SCHEMA_VERSION
        else:
            beside = {"curves": "bounds.json", "dataset": "about.json"}[path.relative_to(RELEASED).parts[1]]
            assert read_json(path.with_name(beside))["schema"] == SCHEMA_VERSION


@pytest.mark.parametrize("version", OTHERS)
def test_a_version_of_any_kind_is_refused_in_a_sentence(tmp_path, version):
    path = tmp_path / "about.json"
    path.write_text(json.dumps({"schema": version}))
    with pytest.raises(OtherSchema, match=r"has schema version .* `dvc repro`"):
        schema.read_artifact(path)


def test_an_artifact_without_a_version_is_of_the_first(tmp_path, monkeypatch):
    path = tmp_path / "about.json"
    path.write_text("{}")
    assert schema.read_artifact(path) == {}
    monkeypatch.setattr(schema, "SCHEMA_VERSION", 2)
    with pytest.raises(OtherSchema, match="has schema version 1, and this release of Lethe reads version 2"):
        schema.read_artifact(path)


@pytest.mark.parametrize("told", [b"2", b"\xff\x1b[31m", b"", b"9" * 5000])
def test_a_users_parquet_has_no_version_and_a_strange_one_is_refused(tmp_path, told):
    path = tmp_path / "scores.parquet"
    pd.DataFrame({"score": [0.5]}).to_parquet(path)
    assert read_table(path)["score"].tolist() == [0.5]
    pq.write_table(pa.table({"score": [0.5]}).replace_schema_metadata({b"lethe_schema": told}), path)
    with pytest.raises(OtherSchema) as error:
        read_table(path)
    assert str(error.value).isprintable()


def test_labels_carry_a_version_and_those_without_are_read(tmp_path):
    path = tmp_path / "mine.jsonl"
    Labels(path).add(Answer("q", "Ron"), 1, Asked("mass", 0.9), {"q": "Who?"})
    assert json.loads(path.read_text())["schema"] == SCHEMA_VERSION
    path.write_text('{"prompt_id": "q", "text": "Ron", "label": 1, "part": "mass"}\n')
    assert read_labels(path).known == {Answer("q", "Ron"): 1}
    path.write_text('{"schema": 2, "prompt_id": "q", "text": "Ron", "label": 1, "part": "mass"}\n')
    with pytest.raises(BadRow, match="line 1: schema: got 2; must be 1"):
        read_labels(path)
