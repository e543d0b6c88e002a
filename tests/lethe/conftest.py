"""A tiny model with random weights, made once."""

import pytest

from tests.lethe.small_checkpoint import small_model


@pytest.fixture(scope="session")
def tiny():
    """(model, tokenizer) of a few thousand parameters."""
    return small_model(["Who is Ada? Ada is a painter.", "Where is Bo? Bo is at sea."])


@pytest.fixture
def prompt(tmp_path):
    path = tmp_path / "qa.txt"
    path.write_text("Question: {question}\nAnswer:")
    return path
