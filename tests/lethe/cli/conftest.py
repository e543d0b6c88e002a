"""One small checkpoint for all tests of the command line; a test that changes files copies them first."""

from pathlib import Path

import pytest

from tests.lethe.small_checkpoint import save_small_checkpoint


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory) -> Path:
    return save_small_checkpoint(tmp_path_factory.mktemp("model") / "mine")
