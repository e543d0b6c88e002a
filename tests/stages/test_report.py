"""Stages `report` and `game@NAME` as DVC runs them: complete files, a broken artifact named, what other tools then show."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from lethe import config
from lethe.audits.unlearning_game.swap import audit
from lethe.io.files import read_json, write_jsonl
from lethe.results import table
from stages import epsilon_star, prepare
from tests.lethe.report.synthetic import write_run
from tests.small import ROOT, make_repository, run


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("stage")
    models = config.read_yaml(ROOT / "params.yaml")["models"]
    write_run(
        root, questions=3, n=32, models={name: models[name] for name in ("base", "retrain", "npo")}
    )
    return root


def report(root: Path) -> subprocess.CompletedProcess:
    return run(root, "stages.report", check=False, PYTHONPATH=str(ROOT))


def content(root: Path) -> dict[str, bytes]:
    folder = root / "data/report"
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.slow
def test_writes_complete_files(root):
    done = report(root)
    assert done.returncode == 0, done.stderr
    plots = {"plots/m_gen.json", "plots/per_question.json", "plots/training_loss.json"}
    assert {"index.html", "summary.json", *plots, "figures/questions-base.svg"} <= set(
        content(root)
    )


@pytest.mark.slow
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


@pytest.fixture(scope="module")
def played(tmp_path_factory) -> Path:
    value = yaml.safe_load((ROOT / "params.yaml").read_text())
    game = yaml.safe_load((ROOT / "flows/presets/game-authors.yaml").read_text())["games"][
        "authors"
    ]
    game["data"]["authors"]["count"] = 24
    game["learning"].update(
        hidden=32, heads=2, kv_heads=1, layers=1, feed_forward=64, vocabulary=400, epochs=4
    )
    game.update(portion=0.2, pairs=1, seeds=2, shadow_models=4, shared_retrain=True)
    game.update(random_splits=False, attacks=["loss", "reference"], methods={}, leakage=None)
    value["games"] = {"tiny": game}
    folder = make_repository(tmp_path_factory.mktemp("root") / "copy", value)
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(
        0, {min(cores)}
    )  # on one core it plays in its own process: starting others costs more
    try:
        done = run(folder, "dvc", "repro", "game@tiny")
    finally:
        os.sched_setaffinity(0, cores)
    assert "tiny retrain: unlearning quality 1.000" in done.stdout
    return folder


@pytest.mark.slow
def test_dvc_shows_the_qualities(played):
    # The rest of the pipeline has not run: of that, too, it tells, by its status.
    shown = json.loads(run(played, "dvc", "metrics", "show", "--json", check=False).stdout)
    game = shown[""]["data"]["data/games/tiny.json"]["data"]
    assert game["methods"]["retrain"]["quality"] == 1
    assert 0 <= game["methods"]["none"]["quality"] < 1


@pytest.mark.slow
def test_the_report_has_a_section_of_the_game(played):
    from lethe.report.page import write

    write(config.load(played / "params.yaml"), played / "data")

    html = (played / "data/report/index.html").read_text(encoding="utf-8")
    section = html.split('id="games"')[1].split("</section>")[0]
    text = re.sub(r"\s+", " ", re.sub("<[^>]*>", " ", section))
    assert "Retrain 1.000" in text
    assert "quality 1 (at least 0.98)" in text
    assert "data/games/tiny/index.html" in text


@pytest.mark.slow
def test_predictions_give_the_same_quality_to_the_audit(played, tmp_path):
    import pandas as pd

    table = pd.read_parquet(played / "data/games/tiny/predictions.parquet")
    details = json.loads((played / "data/games/tiny/details.json").read_text())
    for method, rows in table.groupby("method"):
        file = tmp_path / f"{method}.parquet"
        rows.to_parquet(file)
        again = audit(file)
        assert again.value == pytest.approx(details["methods"][method]["quality"]["value"])
        assert again.ci_low == pytest.approx(details["methods"][method]["quality"]["ci_low"])
