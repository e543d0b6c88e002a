"""Several machines on one pipeline: results through a DVC remote, stages on Dask workers that share no folder."""

import os
import signal
import subprocess
import threading
from concurrent.futures import CancelledError
from pathlib import Path

import pytest

from flows import remote, workspace
from flows.workers import LARGEST, Workers, packed
from lethe.errors import BadFile, LetheError
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
def test_a_damaged_file_of_the_remote_is_refused_by_name(small, monkeypatch):
    store = with_remote(small)
    small.ran("--push")
    text = small.folder / "data/models/npo/text"
    (sent,) = [
        path
        for path in store.rglob("*")
        if path.is_file() and path.read_bytes() == text.read_bytes()
    ]
    sent.chmod(0o644)
    sent.write_bytes(b"flipped")
    subprocess.run(["rm", "-rf", small.folder / ".dvc/cache", text.parent], check=True)
    monkeypatch.chdir(small.folder)
    with pytest.raises(LetheError, match="sent damaged files: data/models/npo"):
        remote.fetch(small.folder, ["unlearn@npo"])
    assert not text.exists()


@pytest.mark.slow
def test_stages_run_on_workers_that_see_no_folder_and_survive_the_death_of_one(small, tmp_path):
    local = clone_of_sources(small, tmp_path)
    assert set(local.ran().values()) == {"ran"}

    with_remote(small)
    (small.folder / "slow").write_text(
        "models"
    )  # the stage waits for the file of its own copy to go
    with cluster(tmp_path / "cluster", 2) as (address, (_, *workers)):
        run = small.start("run", "--json", "--scheduler", address)

        def waiting() -> list[Path]:  # `walk` forgives folders that go meanwhile, `glob` does not
            folders = [
                Path(folder)
                for folder, _, files in os.walk(tmp_path / "cluster")
                if "alive" in files
            ]
            return [folder / "alive" for folder in folders if folder.name == "pipeline"]

        wait_until(lambda: waiting() or run.poll() is not None, 180)
        assert run.poll() is None, run.communicate()
        (first,) = waiting()
        number = int(first.relative_to(tmp_path / "cluster").parts[0].removeprefix("worker-"))
        workers[number].send_signal(signal.SIGKILL)
        wait_until(lambda: [path for path in waiting() if path != first], 180)
        (second,) = (path for path in waiting() if path != first)
        (second.parent / "slow").unlink()
        out, err = run.communicate(timeout=300)
        # The stage of the dead worker has ended with it.
        wait_until(
            lambda: (
                not [
                    pid for pid in all_processes_below(first.parent) if "step.py" in command_of(pid)
                ]
            )
        )
    assert run.returncode == 0, err
    assert set(ends(out).values()) == {"ran"}
    assert small.contents() == local.contents()
    assert small.dvc("status").stdout.startswith("Data and pipelines are")


def clone_of_sources(repository: Repository, place: Path) -> Repository:
    """An undisturbed copy of the repository, to run here."""
    import shutil

    folder = place / "local"
    shutil.copytree(repository.folder, folder, symlinks=True)
    return repository.at(folder)


def all_processes_below(folder: Path) -> list[int]:
    return list(processes_of(Repository(folder, {"PREFECT_HOME": ""})))


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
        self.error, self.before = error, before

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
    workers.root, workers.upstream, workers.stopped, workers.shared = (
        folder,
        {"score@a": [], "sample@a": []},
        False,
        True,
    )
    workers._client, workers._gpus, workers._parcel = client, gpus, b""
    workers._lock, workers._futures = threading.Lock(), []
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


def test_the_archive_for_a_worker_has_the_sources_and_no_output(small):
    import io
    import tarfile

    workspace.prepare(small.folder)
    (small.folder / "data/dataset").mkdir(parents=True)
    (small.folder / "data/dataset/text").write_text("an output")
    (small.folder / ".lethe").mkdir(exist_ok=True)
    (small.folder / ".lethe/params.yaml").write_text("alpha: of the run in progress\n")
    with tarfile.open(fileobj=io.BytesIO(packed(small.folder))) as archive:
        names = archive.getnames()
        assert archive.extractfile("params.yaml").read() == b"alpha: of the run in progress\n"
    assert {"step.py", "dvc.yaml", ".dvc/config", "flows/pipeline.py"} <= set(names)
    assert not [name for name in names if name.startswith(("data/dataset", ".lethe", ".git/"))]

    with open(small.folder / "weights.bin", "wb") as large:
        large.truncate(LARGEST + 1)
    with pytest.raises(BadFile, match=r"weights\.bin"):
        packed(small.folder)
