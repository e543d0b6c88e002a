"""A tiny model with random weights, made once."""

import numpy as np
import pytest

from lethe.audits import simulated
from tests.lethe.small_checkpoint import small_model
from tests.lethe.statistics.one_run.calibration import table_of


@pytest.fixture(scope="session")
def tiny():
    """(model, tokenizer) of a few thousand parameters."""
    return small_model(["Who is Ada? Ada is a painter.", "Where is Bo? Bo is at sea."])


@pytest.fixture
def prompt(tmp_path):
    path = tmp_path / "qa.txt"
    path.write_text("Question: {question}\nAnswer:")
    return path


@pytest.fixture
def guesses(tmp_path):
    """(path, table) of one run's guesses, by a threshold on Gaussian outputs."""
    table = table_of(simulated.gaussian(500, np.random.default_rng(0), mu=1.0, special=True))
    table.to_csv(tmp_path / "g.csv", index=False)
    return tmp_path / "g.csv", table
