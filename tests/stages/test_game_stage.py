"""Stage `game@NAME` as DVC runs it: what DVC, MLflow, the report and `lethe audit swap` then show."""

import json
import os
import re
from pathlib import Path

import pytest
import yaml

from lethe import config
from lethe.audits.unlearning_game.swap import audit
from tests.small import ROOT, make_repository, run


@pytest.fixture(scope="module")
def played(tmp_path_factory) -> Path:
    value = yaml.safe_load((ROOT / "params.yaml").read_text())
    game = yaml.safe_load((ROOT / "flows/presets/game-authors.yaml").read_text())["games"]["authors"]
    game["data"]["authors"]["count"] = 24
    game["learning"].update(hidden=32, heads=2, kv_heads=1, layers=1, feed_forward=64, vocabulary=400, epochs=4)
    game.update(portion=0.2, pairs=1, seeds=2, shadow_models=4, shared_retrain=True)
    game.update(random_splits=False, attacks=["loss", "reference"], methods={}, leakage=None)
    value["games"] = {"tiny": game}
    folder = make_repository(tmp_path_factory.mktemp("root") / "copy", value)
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})  # on one core it plays in its own process: starting others costs more
    try:
        done = run(folder, "dvc", "repro", "game@tiny")
    finally:
        os.sched_setaffinity(0, cores)
    assert "tiny retrain: unlearning quality 1.000" in done.stdout
    return folder


def test_dvc_shows_the_qualities(played):
    # The rest of the pipeline has not run: of that, too, it tells, by its status.
    shown = json.loads(run(played, "dvc", "metrics", "show", "--json", check=False).stdout)
    game = shown[""]["data"]["data/games/tiny.json"]["data"]
    assert game["methods"]["retrain"]["quality"] == 1
    assert 0 <= game["methods"]["none"]["quality"] < 1


def test_the_report_has_a_section_of_the_game(played):
    from lethe.evaluation.run import load
    from lethe.report.page import provenance, render

    page = render(load(config.load(played / "params.yaml"), played / "data", provenance(played, played / "data")))
    section = page.html.split('id="games"')[1].split("</section>")[0]
    text = re.sub(r"\s+", " ", re.sub("<[^>]*>", " ", section))
    assert "Retrain 1.000" in text
    assert "quality 1 (at least 0.98)" in text
    assert "data/games/tiny/index.html" in text


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
