"""One made-up run for all tests of the report; a test that changes artifacts copies them first."""

import dataclasses
import shutil
from pathlib import Path

import pytest

from lethe import config
from lethe.measure.run import Run
from lethe.measure.run import load as load_run
from lethe.report import figures
from lethe.report.page import Page, render
from lethe.results import table
from lethe.verdict.finding import QUANTITY
from lethe.verdict.found import found, found_traces
from tests.lethe.report import chromium
from tests.lethe.report.synthetic import write_run
from tests.small import ROOT

MODELS = ("base", "retrain", "grad_ascent", "npo", "npo_at", "npo_matched", "npo_entropy")
PROVENANCE = {
    "revision": "0123456789ab",
    "python": "3.11.7",
    "machine": {"processor": "any"},
    "packages": {"numpy": "2.3.5"},
}


def load(root: Path) -> Run:
    return load_judged(config.load(root / "params.yaml"), root / "data")


def load_judged(settings: config.Params, data: Path) -> Run:
    """The run below ``data`` with the findings of its artifacts as they are now."""
    run = load_run(settings, data, PROVENANCE)
    compared = [row for row in run.compared if row.quantity != QUANTITY]
    compared += [finding.row() for finding in found(run)]
    results = table.read(data, settings.models, without=table.SHARED)
    compared += [finding.row() for finding in found_traces(results, compared)]
    return dataclasses.replace(run, compared=compared)


@pytest.fixture(scope="session")
def artifacts(tmp_path_factory) -> Path:
    """Read only: a run of `MODELS` with a hostile, an invisible and a very long generation in npo."""
    root = tmp_path_factory.mktemp("run")
    models = config.read_yaml(ROOT / "params.yaml")["models"]
    write_run(root, models={name: models[name] for name in MODELS})
    return root


@pytest.fixture(scope="session")
def small_artifacts(tmp_path_factory) -> Path:
    """Read only: few models, fast to render."""
    root = tmp_path_factory.mktemp("small")
    models = config.read_yaml(ROOT / "params.yaml")["models"]
    write_run(
        root, 3, 64, models={name: models[name] for name in ("base", "retrain", "npo", "npo_at")}
    )
    return root


@pytest.fixture
def own_small(small_artifacts, tmp_path) -> Path:
    return Path(shutil.copytree(small_artifacts, tmp_path / "small"))


@pytest.fixture
def own_artifacts(artifacts, tmp_path) -> Path:
    return Path(shutil.copytree(artifacts, tmp_path / "run"))


@pytest.fixture
def without_figures(monkeypatch) -> None:
    """Pages without drawings, which take most of the time."""
    kinds = ("histograms", "m_gen", "per_question")
    monkeypatch.setattr(figures, "draw", lambda run, drawn: {kind: [] for kind in kinds})


@pytest.fixture(scope="session")
def run(artifacts) -> Run:
    return load(artifacts)


@pytest.fixture(scope="session")
def small_page(small_artifacts) -> Page:
    return render(load(small_artifacts))


@pytest.fixture(scope="session")
def page(run) -> Page:
    return render(run)


@pytest.fixture(scope="module")
def tab():
    with chromium.page() as page:
        yield page
