"""Several machines on one pipeline: results through a DVC remote, stages on Dask workers that see the folder."""

import shutil
import subprocess
from concurrent.futures import CancelledError
from pathlib import Path

import pytest

from flows import remote
from flows.workers import Workers
from tests.flows.miniature import Repository, cluster, command_of, ends, processes_of, wait_until


def with_remote(repository: Repository) -> Path:
    """Give the repository git and a folder as DVC's default remote, and commit both."""
    store = repository.folder.parent / "store"
    repository.git("init", "-q")
    with open(repository.folder / ".dvc/config", "a") as config:
        config.write(f"    remote = store\n['remote \"store\"']\n    url = {store}\n")
    repository.commit("sources")
    return store


def clone(repository: Repository, name: str) -> Repository:
    folder = repository.folder.parent / name
    repository.git("clone", "-q", ".", str(folder))
    (folder / "data/source").mkdir(parents=True, exist_ok=True)
    return repository.at(folder)


def clones_run_nothing(small: Repository, *push: str) -> Repository:
    """Two clones of a pipeline whose results are pushed, the second with their lock, which is returned."""
    for name, how, more in (("without_lock", "restored", ()), ("with_lock", "clean", push)):
        found = clone(small, name)
        assert set(found.ran("--pull", *more).values()) == {how}
        assert found.contents() == small.contents()
        if how == "restored":
            small.commit("results")
    return found


@pytest.mark.slow
def test_a_second_clone_runs_nothing_that_the_remote_holds(small):
    with_remote(small)
    assert set(small.ran("--push").values()) == {"ran"}
    clones_run_nothing(small)


@pytest.mark.slow
def test_a_damaged_file_of_the_remote_is_counted_and_not_kept(small, monkeypatch):
    store = with_remote(small)
    small.ran("--push")
    text = small.folder / "data/models/npo/text"
    content = text.read_bytes()
    (sent,) = [path for path in store.rglob("*") if path.is_file() and path.read_bytes() == content]
    sent.chmod(0o644)
    sent.write_bytes(b"flipped")
    subprocess.run(["rm", "-rf", small.folder / ".dvc/cache", text.parent], check=True)
    monkeypatch.chdir(small.folder)

    told = remote.pull(small.folder)

    assert "1 output of the remote" in told
    assert not text.exists()


@pytest.mark.slow
def test_workers_that_see_the_folder_make_the_bytes_of_one_machine_and_survive_a_death(
    small, tmp_path
):
    local = copy_of(small, tmp_path / "local")
    assert set(local.ran().values()) == {"ran"}
    (small.folder / "slow").write_text("models")
    alive = small.folder / "alive"
    with cluster(tmp_path / "cluster", 2) as (address, (_, *workers)):
        run = small.start("run", "--json", "--scheduler", address)
        wait_until(lambda: alive.exists() or run.poll() is not None, 180)
        assert run.poll() is None, run.communicate()
        (stage,) = stages_running_in(small)

        worker_of(stage, workers).kill()

        wait_until(lambda: stages_running_in(small) not in ([stage], []), 180)
        (small.folder / "slow").unlink()
        out, err = run.communicate(timeout=300)
    assert run.returncode == 0, err
    assert set(ends(out).values()) == {"ran"}
    assert small.contents() == local.contents()
    assert small.dvc("status").stdout.startswith("Data and pipelines are")


def stages_running_in(repository: Repository) -> list[int]:
    commands = {pid: command_of(pid).split() for pid in processes_of(repository)}
    return [pid for pid, words in commands.items() if words[1:2] == ["step.py"]]


def worker_of(stage: int, workers: list[subprocess.Popen]) -> subprocess.Popen:
    """The worker whose descendant a stage's process is."""
    import psutil

    above = {process.pid for process in psutil.Process(stage).parents()}
    (worker,) = [worker for worker in workers if worker.pid in above]
    return worker


def copy_of(repository: Repository, folder: Path) -> Repository:
    """An undisturbed copy of the repository, to run here."""
    shutil.copytree(repository.folder, folder, symlinks=True)
    return repository.at(folder)


@pytest.mark.slow
def test_a_worker_that_does_not_see_the_folder_says_so(tmp_path):
    elsewhere = tmp_path / "elsewhere"
    with cluster(tmp_path / "cluster", 1) as (address, _):
        workers = Workers(elsewhere, address)

        done = workers.reproduce("prepare", lambda stage, line: None)

        workers.close()
    assert done.state == "failed"
    assert f"does not see {elsewhere}" in done.tail


@pytest.mark.slow
def test_what_is_missing_is_said_before_anything_runs(small, tmp_path):
    for option in ("--push", "--pull"):
        result = small.lethe("run", option)
        assert result.returncode == 2
        assert "dvc remote add" in result.stderr
    nowhere = small.lethe("run", "--scheduler", "tcp://127.0.0.1:9", LETHE_SCHEDULER_SECONDS="2")
    assert nowhere.returncode == 1
    assert "tcp://127.0.0.1:9" in nowhere.stderr
    assert "Traceback" not in nowhere.stderr
    with cluster(tmp_path / "cluster", 0) as (address, _):
        empty = small.lethe("run", "--scheduler", address)
    assert empty.returncode == 1
    assert "dask worker" in empty.stderr
    assert not (small.folder / "data/dataset").exists()


class LostCluster:
    """A client whose task ends with an error, and which then has no connection."""

    def __init__(self, error: Exception, before=lambda: None):
        self.error = error
        self.before = before

    def subscribe_topic(self, topic, handler):
        pass

    def unsubscribe_topic(self, topic):
        raise OSError("closed")

    def submit(self, *arguments, **options):
        self.resources = options["resources"]
        return self

    def result(self, timeout):
        self.before()
        raise self.error


def lost_cluster(folder: Path, client: LostCluster, gpus: bool = False) -> Workers:
    """Workers without the connection that the constructor makes."""
    workers = Workers.__new__(Workers)
    workers.root = folder
    workers.stopped = False
    workers._client = client
    workers._gpus = gpus
    workers._pull = False
    workers._settings = {}
    workers._futures = []
    return workers


@pytest.mark.parametrize(
    ("error", "stopped", "state"),
    [
        (
            CancelledError("the scheduler died"),
            False,
            "failed",
        ),  # nobody stopped the run: it must not end as complete
        (CancelledError(), True, "stopped"),
        (OSError(28, "No space left on device"), False, "failed"),
    ],
)
def test_a_cluster_that_is_lost_fails_the_stage_and_says_why(tmp_path, error, stopped, state):
    workers = lost_cluster(
        tmp_path, LostCluster(error, lambda: setattr(workers, "stopped", stopped))
    )
    done = workers.reproduce("score@a", lambda stage, line: None)
    assert done.state == state
    assert bool(done.status) == bool(done.tail) == (state == "failed")


@pytest.mark.parametrize(
    ("stage", "gpus", "asked"),
    [("sample@a", True, {"GPU": 1}), ("sample@a", False, None), ("score@a", True, None)],
)
def test_a_stage_that_runs_a_model_asks_for_a_gpu_where_the_cluster_has_one(
    tmp_path, stage, gpus, asked
):
    client = LostCluster(OSError("x"))
    lost_cluster(tmp_path, client, gpus).reproduce(stage, lambda stage, line: None)
    assert client.resources == asked
