"""What all tests share: the location of the optional real data and oracles."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

# A test's time is that of the machine it runs on: no test fails because another process is busy.
hypothesis.settings.register_profile("lethe", deadline=None)
hypothesis.settings.load_profile("lethe")
# One thread per process: two spinning OpenMP threads on a busy two-core machine are slower than one.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("DO_NOT_TRACK", "true")
# No test asks the hub, which a machine without a network would try six times.
os.environ.setdefault("HF_HUB_OFFLINE", "1")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with slow tests first, whole pipelines next: otherwise one worker runs the longest file alone at the end."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: (item.path not in slow, "flows" not in item.path.parts))


@pytest.fixture(scope="session", autouse=True)
def no_cache_at_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test, and no process that a test starts, reads or writes the developer's own cache.

    All workers of one run share the folder: solved Berk-Jones levels take seconds each.
    """
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LETHE_CACHE", str(shared / "lethe-cache"))
        yield


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of oracles and real data, named by LETHE_SHARED; tests that need it are skipped without it."""
    folder = os.environ.get("LETHE_SHARED")
    if not folder or not Path(folder).is_dir():
        pytest.skip("LETHE_SHARED names no folder: the oracles and the real data are not at hand")
    return Path(folder)
