"""Fixtures that the tests of the studies share with those of the library and the flows."""

import pytest

from lethe.registry import GAMES
from studies.commands import register
from tests.flows.conftest import prefect, repository, small
from tests.lethe.conftest import prompt, tiny

__all__ = ["prefect", "prompt", "repository", "small", "tiny"]


@pytest.fixture(autouse=True)
def image_games(monkeypatch):
    """The games on images are kinds of games, as in `lethe study game`."""
    monkeypatch.setattr(GAMES, "registered", {})
    register()


@pytest.fixture(autouse=True)
def no_tracking(monkeypatch):
    """A study logs to MLflow, whose import takes seconds, and asks git for its commit, which is not the tests' own."""
    monkeypatch.setenv("LETHE_TRACKING", "off")
    monkeypatch.setattr("studies.outcome.commit_of_checkout", lambda: "0123456789ab")
