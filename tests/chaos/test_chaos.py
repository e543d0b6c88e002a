"""A short run of the chaos on the miniature pipeline."""

import time

import pytest

from flows import workspace
from tests.chaos import pipeline_copy
from tests.chaos.disturbed import case, disturb
from tests.flows.miniature import make


@pytest.fixture
def copy(tmp_path) -> pipeline_copy.Copy:
    """The miniature after an undisturbed run with a server of its own; ``took``: its seconds."""
    small = make(
        tmp_path / "mini", {"PREFECT_HOME": str(tmp_path / "mini/.lethe/prefect")}, methods=["npo"]
    )
    small.environment["LETHE_TRACKING"] = "off"
    workspace.prepare(small.folder)
    copy = pipeline_copy.Copy(small.folder, small.environment)
    began = time.monotonic()
    assert copy.start("undisturbed").wait() == 0, copy.said()
    copy.took = time.monotonic() - began
    return copy


@pytest.mark.slow
def test_killed_runs_end_with_the_bytes_of_an_undisturbed_one(copy):
    reference, seconds = copy.hashes(), copy.stages()
    overhead = max(
        1.0, copy.took - sum(seconds.values()) / 2
    )  # a run's start and end, on this machine as it is now
    for number in (0, 4):  # the flow by SIGKILL, the server by SIGTERM
        drawn = case(number, 1, list(seconds), ("flow", "server", "stage"))
        ended = disturb(drawn, copy, copy.graph(), reference, seconds, overhead, {})
        assert not ended["wrong"], ended
        assert ended["killed"]
