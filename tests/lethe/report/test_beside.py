"""The models under test of a run, ranked by the stage `compare`, and what shows the ranks."""

import pytest

from lethe import config
from lethe.comparison.ranking import Ranking
from lethe.io.files import write_json
from lethe.report.page import render
from lethe.results import table
from lethe.steps.compare import ranks
from lethe.tracking import tables
from lethe.tracking.entries import Pipeline
from tests.lethe.report.conftest import load, rendered
from tests.lethe.report.synthetic import change_json, write_run
from tests.small import ROOT

MODELS = ("base", "retrain", "npo", "npo_at", "grad_ascent")


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A made-up run whose models each have a stream, with the rows of the stage."""
    root = tmp_path_factory.mktemp("run")
    models = config.read_yaml(ROOT / "params.yaml")["models"]
    settings = write_run(root, 4, 128, models={name: models[name] for name in MODELS})
    for name in MODELS:
        about = root / f"data/generations/{name}/about.json"
        change_json(about, stop="fixed", stream=name, max_new_tokens=40)
        scorers = {"scorers": ["rouge_l", "keyword_leak"]}
        write_json(root / f"data/scores/{name}/about.json", scorers)
    place = table.place(root / "data", "compare", "models")
    rows = [*table.read_rows(place), *ranks(settings, root / "data")]
    table.write(place, rows)
    return root


@pytest.fixture(scope="module")
def rows(root):
    return Ranking.among(table.compared(root / "data")).results


def test_the_stage_compares_every_pair_of_models_under_test(rows):
    pairs = [(row.item, row.model) for row in rows if row.quantity == "difference"]

    assert pairs == [("npo", "npo_at"), ("npo", "grad_ascent"), ("npo_at", "grad_ascent")]


def test_models_of_a_run_are_independent(rows):
    (assumed,) = {row.assumes for row in rows if row.quantity == "difference"}

    assert "numbers of their own" in assumed


def test_the_numbers_of_a_model_stay_what_they_were(root):
    run = load(root)
    (npo,) = [model for model in run.models if model.name == "npo"]

    assert "score" not in npo.values
    assert npo.value("forget_quality") is not None


def test_the_page_shows_the_ranks(root, without_figures):
    html = rendered(root).html

    assert 'id="beside"' in html
    assert "Of 3 pairs" in html


def test_a_run_without_a_ranking_has_no_section(root, without_figures):
    assert Ranking.among([]) is None
    assert 'id="beside"' not in render(load(root), []).html


def test_mlflow_has_the_ranks_and_the_pairs(rows):
    pipeline = Pipeline([], {}, None, "", rows)

    made = tables.rankings(pipeline)

    assert list(made["ranks.json"].columns)[:2] == ["run", "mean"]
    assert len(made["pairs.json"]) == 6


def test_a_single_model_under_test_has_no_ranks(root):
    settings = config.load(root / "params.yaml")
    models = {name: settings.models[name] for name in ("base", "retrain", "npo")}

    assert ranks(settings.model_copy(update={"models": models}), root / "data") == []
