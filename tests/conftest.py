"""What all tests share: a guard of the checkout, a fresh copy of the project, the optional real data and oracles."""

import contextlib
import gc
import os
import re
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import hypothesis.configuration
import pytest

from tests.guard import guarded

# A test's time is that of the machine it runs on: no test fails because another process is busy. A failure prints how to
# repeat it and leaves no file in the checkout.
hypothesis.settings.register_profile("lethe", deadline=None, database=None, print_blob=True)
hypothesis.settings.load_profile("lethe")
# One thread per process: two spinning OpenMP threads on a busy two-core machine are slower than one.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("DO_NOT_TRACK", "true")
# No test asks the hub, which a machine without a network would try six times.
os.environ.setdefault("HF_HUB_OFFLINE", "1")


# No garbage is searched among the libraries and tests of a worker, which stay: not while it imports them, not later.
gc.disable()


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()
    gc.enable()


# A Prefect server with the processes of its flows, and Chromium.
SLOW_FIXTURES = {"prefect", "tab"}


# A file with slow tests has one of these: the mark, or a fixture that is slow or has slow parameters.
_FIXTURES = "(prefect|repository|small|tab|engine|tiny_engine)"
OF_SLOW_FILES = re.compile(rf"pytest\.mark\.slow|\({_FIXTURES}[,)]|, {_FIXTURES}\)")


def _may_be_slow(path: Path) -> bool:
    return OF_SLOW_FILES.search(path.read_text(encoding="utf-8")) is not None


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With `-m slow` leave out the files without slow tests, whose imports cost each worker ten seconds."""
    if config.option.markexpr != "slow" or not collection_path.name.startswith("test_"):
        return None
    return None if collection_path.is_dir() or _may_be_slow(collection_path) else True


@pytest.hookimpl(tryfirst=True)  # before -m chooses
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What needs a slow fixture is slow, unless it is marked quick.

    Files with slow tests come first, whole pipelines next: otherwise one worker runs the longest file alone at the end.
    """
    for item in items:
        if SLOW_FIXTURES & set(getattr(item, "fixturenames", ())) and not item.get_closest_marker(
            "quick"
        ):
            item.add_marker("slow")
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    untold = sorted(path.name for path in slow if not _may_be_slow(path))
    if untold:
        raise pytest.UsageError(f"`-m slow` would not collect the slow tests of {untold}")
    items.sort(key=lambda item: (item.path not in slow, "flows" not in item.path.parts))


@pytest.fixture(scope="session", autouse=True)
def no_checkout(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tests work in an empty folder, and one that touches a run in the checkout fails (`tests.guard`)."""
    empty = tmp_path_factory.mktemp("empty")
    hypothesis.configuration.set_hypothesis_home_dir(empty)
    with guarded(empty):
        yield


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
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests.small import fresh_copy

    return fresh_copy(tmp_path_factory.mktemp("project") / "lethe")


@pytest.fixture(scope="session")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, set[str]]]:
    """The folder of a tiny pipeline that ran whole in this process, for tests that only read it, and what its stages read.

    The keys of params.yaml by stage; a test that changes files copies the folder.
    """
    from tests.recorded import recorded
    from tests.small import make_repository, stages_of, tiny_params, work

    folder = make_repository(
        tmp_path_factory.mktemp("pipeline") / "lethe", tiny_params(), git=False
    )
    read = {}
    with contextlib.chdir(folder):
        for stage in stages_of(tiny_params()):
            with recorded() as read[stage]:
                work(stage)
    return folder, read


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of oracles and real data, named by LETHE_SHARED; tests that need it are skipped without it."""
    folder = os.environ.get("LETHE_SHARED")
    if not folder or not Path(folder).is_dir():
        pytest.skip("LETHE_SHARED names no folder: the oracles and the real data are not at hand")
    return Path(folder)
