"""What all tests share: a guard of the checkout, a fresh copy of the project, the optional real data and oracles."""

import contextlib
import fcntl
import gc
import json
import os
import re
import shutil
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


# No garbage is searched among the libraries and tests of a worker, which stay: not while it imports them, not later. What the
# tests make is searched by tens of thousands of objects, as each search takes a few milliseconds.
gc.disable()
gc.set_threshold(50_000, 20, 100)


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()
    gc.enable()


# Files of some twenty processor seconds and more: whoever gets one last works alone at the end.
LONG = {
    "test_contract.py",
    "test_endpoint.py",
    "test_engines.py",
    "test_eval.py",
    "test_image_game.py",
    "test_naive_twins.py",
    "test_report.py",
    "test_simulations.py",
    "test_wheel.py",
}
# A Prefect server with the processes of its flows, and Chromium.
SLOW_FIXTURES = {"prefect", "tab"}


# A file with slow tests has one of these: the mark, or a fixture that is slow or has slow parameters.
_FIXTURES = "(prefect|repository|small|tab|engine|tiny_engine)"
OF_SLOW_FILES = re.compile(rf"pytest\.mark\.(slow|seconds)|\({_FIXTURES}[,)]|, {_FIXTURES}\)")


def _may_be_slow(path: Path) -> bool:
    return OF_SLOW_FILES.search(path.read_text(encoding="utf-8")) is not None


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With `-m slow` leave out the files without slow tests, whose imports cost each worker ten seconds."""
    if config.option.markexpr != "slow" or not collection_path.name.startswith("test_"):
        return None
    return None if collection_path.is_dir() or _may_be_slow(collection_path) else True


@pytest.hookimpl(tryfirst=True)  # before -m chooses
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What needs a slow fixture is slow, and what takes seconds.

    Files with slow tests come first, long files and whole pipelines next: otherwise one worker runs the longest file alone
    at the end.
    """
    for item in items:
        of_slow_fixture = SLOW_FIXTURES & set(getattr(item, "fixturenames", ()))
        if of_slow_fixture or item.get_closest_marker("seconds"):
            item.add_marker("slow")
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    untold = sorted(path.name for path in slow if not _may_be_slow(path))
    if untold:
        raise pytest.UsageError(f"`-m slow` would not collect the slow tests of {untold}")

    def place(item: pytest.Item) -> tuple[bool, bool, bool]:
        return item.path not in slow, item.path.name not in LONG, "flows" not in item.path.parts

    items.sort(key=place)


@pytest.fixture(scope="session", autouse=True)
def no_checkout(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tests work in an empty folder, and one that touches a run in the checkout fails (`tests.guard`)."""
    empty = tmp_path_factory.mktemp("empty")
    hypothesis.configuration.set_hypothesis_home_dir(empty)
    with guarded(empty):
        yield


@pytest.fixture(scope="session")
def of_all_workers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that all workers of one run share."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base


@pytest.fixture(scope="session", autouse=True)
def no_cache_at_home(of_all_workers: Path) -> Iterator[None]:
    """No test, and no process that a test starts, reads or writes the developer's own cache.

    All workers of one run share the folder: solved Berk-Jones levels take seconds each.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LETHE_CACHE", str(of_all_workers / "lethe-cache"))
        yield


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests.small import fresh_copy

    return fresh_copy(tmp_path_factory.mktemp("project") / "lethe")


@pytest.fixture(scope="session")
def pipeline(of_all_workers: Path) -> tuple[Path, dict[str, set[str]]]:
    """The folder of a tiny pipeline that ran whole in one process, for tests that only read it, and what its stages read.

    The keys of params.yaml by stage; a test that changes files copies the folder. The first worker makes it for all.
    """
    folder = of_all_workers / "pipeline" / "lethe"
    record = of_all_workers / "pipeline.json"
    with (of_all_workers / "pipeline.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not record.is_file():
            shutil.rmtree(folder, ignore_errors=True)  # of a worker that failed
            read = {stage: sorted(keys) for stage, keys in _run_tiny_pipeline(folder).items()}
            record.write_text(json.dumps(read))
    read_by_stage = json.loads(record.read_text())
    return folder, {stage: set(keys) for stage, keys in read_by_stage.items()}


def _run_tiny_pipeline(folder: Path) -> dict[str, set[str]]:
    """Make the folder and run its stages; return the keys of params.yaml that each has read."""
    from tests.recorded import recorded
    from tests.small import make_repository, stages_of, tiny_params, work

    make_repository(folder, tiny_params(), git=False)
    read = {}
    with contextlib.chdir(folder):
        for stage in stages_of(tiny_params()):
            with recorded() as read[stage]:
                work(stage)
    return read


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of oracles and real data, named by LETHE_SHARED; tests that need it are skipped without it."""
    folder = os.environ.get("LETHE_SHARED")
    if not folder or not Path(folder).is_dir():
        pytest.skip("LETHE_SHARED names no folder: the oracles and the real data are not at hand")
    return Path(folder)
