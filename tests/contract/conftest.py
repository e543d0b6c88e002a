"""The tiny model that the cases of the contract share."""

from pathlib import Path

import pytest

from tests.contract.commands import make_model


@pytest.fixture(scope="session")
def model(tmp_path_factory) -> Path:
    return make_model(tmp_path_factory.mktemp("contract") / "model")
