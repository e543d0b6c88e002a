"""One small checkpoint for all tests of the command line; a test that changes files copies them first."""

from pathlib import Path

import pytest

from tests.lethe.small_checkpoint import save_small_checkpoint


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory) -> Path:
    return save_small_checkpoint(tmp_path_factory.mktemp("model") / "mine")


@pytest.fixture(autouse=True)
def no_earlier_tries(tmp_path, monkeypatch):
    """The gates of a test begin at try 1."""
    monkeypatch.setattr("lethe.io.tries.FOLDER", tmp_path / "tries")
    monkeypatch.setattr("lethe.io.processes.FOLDER", tmp_path / "processes")


@pytest.fixture
def without_page(request, monkeypatch):
    """`lethe eval` writes no page, whose figures take half of its time, unless the test asks for the fixture `page`."""
    if "page" not in request.fixturenames:
        monkeypatch.setattr("lethe.steps.evaluate.write_page", lambda params, root: None)


@pytest.fixture
def page():
    """`lethe eval` writes its page also where the tests of a file do without."""
