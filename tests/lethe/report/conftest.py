"""One made-up run for all tests of the report; a test that changes artifacts copies them first."""

import shutil
from pathlib import Path

import pytest

from lethe import config
from lethe.measure.run import Run, load_models
from lethe.measure.run import load as load_run
from lethe.report import figures
from lethe.report.page import Page, render
from lethe.results import table
from lethe.results.table import Result
from lethe.verdict.finding import QUANTITY
from lethe.verdict.found import found
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
    return load_run(config.load(root / "params.yaml"), root / "data", PROVENANCE)


def rows_of_compare(run: Run, data: Path) -> list[Result]:
    """The rows of the stage `compare` below ``data``, with the findings of the artifacts as they are now."""
    compared = [row for row in table.compared(data) if row.quantity != QUANTITY]
    findings = found(load_models(run.params, data), compared)
    return compared + [finding.row() for finding in findings]


def rendered(root: Path) -> Page:
    return page_of(load(root), root / "data")


def page_of(run: Run, data: Path) -> Page:
    """The page of a run whose artifacts lie in ``data``, with what is found of them now."""
    return render(run, rows_of_compare(run, data))


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
    return rendered(small_artifacts)


@pytest.fixture(scope="session")
def page(run, artifacts) -> Page:
    return page_of(run, artifacts / "data")


@pytest.fixture(scope="module")
def tab():
    with chromium.page() as page:
        yield page
