"""The schema version of artifacts: every one carries it, and another version is refused with what to do."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lethe.errors import BadRow, OtherSchema
from lethe.evaluation.labels import Answer, Asked, Labels, read_labels
from lethe.io import files as schema
from lethe.io.artifacts import Tables, read_split, write_splits
from lethe.io.files import SCHEMA_VERSION, read_json, write_json
from lethe.io.tables import read_table, write_parquet
from lethe.results import table
from lethe.statistics.bound import Assumes, Bound, Covers
from tests.lethe.cli.calls import Command

ROWS = [{"id": key, "question": "Who?", "answer": "Ada.", "keywords": ["Ada"]} for key in ("a", "b")]


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> Path:
    """Read only: a folder of artifacts with one file of each form."""
    root = tmp_path_factory.mktemp("run")
    write_splits({"forget": ROWS}, "jsonl", root / "dataset")
    drawn = [(row["id"], sample) for row in ROWS for sample in range(-1, 4)]
    answers = pd.DataFrame(drawn, columns=["prompt_id", "sample"]).assign(text="Ada.", finish_reason="stop")
    scores = answers[["prompt_id", "sample"]].assign(rouge_l=1.0, keyword_leak=1.0)
    bound = Bound(1.0, "upper", 0.01, Covers.WORST_PROMPT, Assumes.DRAWS, "m", 4)
    rows = table.Rows("mine")
    rows.add("model", "leak_worst", "sampled", None, None, bound)
    table.write(table.place(root, "metrics", "mine"), rows.rows)
    for kind, frame in (("generations", answers), ("scores", scores)):
        write_parquet(root / kind / "mine/forget.parquet", frame)
        write_json(root / kind / "mine/about.json", {"schema": SCHEMA_VERSION, "scorers": ["rouge_l"]})
    score = {"scorers": ["rouge_l"], "keyword_match": "word"}
    write_json(root / "evaluated.json", {"schema": SCHEMA_VERSION, "model": "mine", "prompt": "p", "score": score})
    return root


@pytest.fixture
def own(written, tmp_path) -> Path:
    return Path(shutil.copytree(written, tmp_path / "run"))


def compared(root: Path) -> object:
    return Command("compare").result(root, root)


READERS: dict[str, Callable[[Path], object]] = {
    "dataset/about.json": lambda root: read_split("forget", root / "dataset"),
    "results/metrics/mine.parquet": table.read,
    "generations/mine/forget.parquet": lambda root: dict(Tables(root / "generations/mine", "stage sample")),
    "scores/mine/forget.parquet": lambda root: dict(Tables(root / "scores/mine", "stage score")),
    "generations/mine/about.json": lambda root: schema.read_artifact(root / "generations/mine/about.json"),
    "scores/mine/about.json": compared,
    "evaluated.json": compared,
}


def set_version(path: Path, version: object) -> None:
    if path.suffix == ".json":
        write_json(path, read_json(path) | {"schema": version})
        return
    arrow = pq.read_table(path)
    pq.write_table(arrow.replace_schema_metadata({**arrow.schema.metadata, b"lethe_schema": str(version)}), path)


@pytest.mark.parametrize("version", [0, SCHEMA_VERSION + 1])
@pytest.mark.parametrize("place", READERS)
def test_another_version_is_refused_with_what_to_do(own, place, version):
    set_version(own / place, version)
    if READERS[place] is compared:
        said = Command("compare").refused(own, own)
    else:
        with pytest.raises(OtherSchema) as error:
            READERS[place](own)
        assert (error.value.version, error.value.read) == (version, SCHEMA_VERSION)
        said = str(error.value)
    assert [word for word in (str(own / place), "`dvc repro`", "`lethe run`") if word not in said] == []
    assert ("newer release" in said) == (version > SCHEMA_VERSION)


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
    assert read_labels(path).by_answer == {Answer("q", "Ron"): 1}
    path.write_text('{"schema": 2, "prompt_id": "q", "text": "Ron", "label": 1, "part": "mass"}\n')
    with pytest.raises(BadRow, match="1: schema: got 2; must be 1"):
        read_labels(path)
