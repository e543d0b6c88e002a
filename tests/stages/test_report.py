"""Stage `report` as DVC runs it: complete files, the same bytes again, a broken artifact named."""

import subprocess
from pathlib import Path

import pytest

from lethe import config
from lethe.io.files import read_json, write_jsonl
from lethe.results import table
from stages import epsilon_star, prepare
from tests.lethe.report.synthetic import write_run
from tests.small import ROOT, run


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("stage")
    models = config.read_yaml(ROOT / "params.yaml")["models"]
    write_run(root, questions=3, n=32, models={name: models[name] for name in ("base", "retrain", "npo")})
    return root


def report(root: Path) -> subprocess.CompletedProcess:
    return run(root, "stages.report", check=False, PYTHONPATH=str(ROOT))


def content(root: Path) -> dict[str, bytes]:
    folder = root / "data/report"
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_writes_complete_files(root):
    done = report(root)
    assert done.returncode == 0, done.stderr
    plots = {"plots/m_gen.json", "plots/per_question.json", "plots/training_loss.json"}
    assert {"index.html", "summary.json", *plots, "figures/questions-base.svg"} <= set(content(root))


def test_a_broken_artifact_is_named_and_the_old_report_stays(root):
    before = content(root) or (report(root) and content(root))
    path = root / "data/results/metrics/npo.parquet"
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    done = report(root)
    path.write_bytes(whole)
    assert done.returncode == 2
    assert "data/results/metrics/npo.parquet" in done.stderr
    assert "Traceback" not in done.stderr
    assert content(root) == before


ROW = {"question": "q", "answer": "a"}


def test_a_split_without_rows_is_one_that_is_not_there(tmp_path):
    settings = config.read_yaml(ROOT / "params.yaml")
    settings["data"]["authors"] = {"count": 20, "heldout": 0, "world_facts": 0}
    prepare.run(config.validate(settings), tmp_path)
    assert {path.name for path in (tmp_path / "dataset").iterdir()} == {
        "forget.jsonl", "retain.jsonl", "about.json",
    }  # fmt: skip
    assert read_json(tmp_path / "dataset/about.json")["rows"]["heldout"] == 0


@pytest.mark.parametrize(("forget", "heldout"), [(5, None), (5, 1), (1, 5)])
def test_epsilon_star_of_too_few_rows_is_null_with_the_reason(tmp_path, forget, heldout):
    for split, count in (("forget", forget), ("heldout", heldout)):
        if count is not None:
            rows = [ROW | {"id": f"{split}{number}"} for number in range(count)]
            write_jsonl(tmp_path / "dataset" / f"{split}.jsonl", rows)
    settings = config.load(ROOT / "params.yaml")
    epsilon_star.run(settings, tmp_path, "npo")
    found = table.read(tmp_path).model("npo")
    assert found.values == {"epsilon_star": None, "epsilon_lower": None}
    evidence = found.row("epsilon_star", "given answers").evidence
    assert (evidence["n_train"], evidence["n_population"]) == (forget, heldout or 0)
    assert evidence["note"]
