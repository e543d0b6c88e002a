"""What the tests of the flows share: one Prefect server, and a miniature repository per test."""

import os
import urllib.request
from pathlib import Path

import pytest

from flows.server import CLIENT_KEY, temporary_server
from tests.flows.miniature import Repository, make, one_branch


@pytest.fixture(scope="session")
def prefect(tmp_path_factory) -> dict[str, str]:
    """The settings of one server for all tests: each takes seconds to start, and its tables seconds to make."""
    home = tmp_path_factory.mktemp("prefect")
    before = dict(os.environ)
    os.environ["PREFECT_HOME"] = str(home)
    os.environ.pop("PREFECT_API_URL", None)
    with temporary_server(home):
        found = {key: os.environ[key] for key in ("PREFECT_HOME", "PREFECT_API_URL", CLIENT_KEY)}
        # Its socket queues us until the tables are made: a second server on the same records must not make them too.
        urllib.request.urlopen(found["PREFECT_API_URL"] + "/health", timeout=120).close()
        os.environ.clear()
        os.environ.update(before)
        yield found


@pytest.fixture
def repository(tmp_path: Path, prefect: dict[str, str]) -> Repository:
    return make(tmp_path / "mini", prefect)


@pytest.fixture
def small(tmp_path: Path, prefect: dict[str, str]) -> Repository:
    return one_branch(tmp_path / "mini", prefect)
