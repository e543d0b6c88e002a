"""Two clones share their results through an S3-compatible remote; `tests.benchmarks s3` runs these beside a real dvc-s3."""

import contextlib
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.flows.miniature import Repository, one_branch, wait_until
from tests.flows.test_shared_machines import clones_run_nothing

BUCKET = "results"
KEYS = {
    "AWS_ACCESS_KEY_ID": "key",
    "AWS_SECRET_ACCESS_KEY": "a-secret",
    "AWS_DEFAULT_REGION": "us-east-1",
}


@contextlib.contextmanager
def s3_server(place: Path, port: int = 0) -> Iterator[str]:
    """Moto's S3 on a port of 127.0.0.1 (default: a free one), with one empty bucket."""
    with socket.create_server(("127.0.0.1", port)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with open(place / "moto.log", "w") as log:
        process = subprocess.Popen(command, cwd=place, stdout=log, stderr=log)
    try:
        wait_until(lambda: answers(port))
        address = f"http://127.0.0.1:{port}"
        bucket(address).create_bucket(Bucket=BUCKET)
        yield address
    finally:
        process.kill()
        process.wait()


def answers(port: int) -> bool:
    with contextlib.suppress(OSError):
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
        return True
    return False


def bucket(address: str):
    import boto3

    names = {
        "aws_access_key_id": "AWS_ACCESS_KEY_ID",
        "aws_secret_access_key": "AWS_SECRET_ACCESS_KEY",
    }
    return boto3.client(
        "s3",
        endpoint_url=address,
        region_name="us-east-1",
        **{name: KEYS[key] for name, key in names.items()},
    )


def objects(address: str) -> set[str]:
    contents = bucket(address).list_objects_v2(Bucket=BUCKET).get("Contents", [])
    return {entry["Key"] for entry in contents}


@pytest.fixture
def small(tmp_path: Path) -> Repository:
    """The miniature pipeline in a git repository, one branch, nothing logged; each run has a Prefect server of its own."""
    repository = one_branch(tmp_path / "mini", {"PREFECT_HOME": str(tmp_path / "prefect")})
    repository.environment |= KEYS
    return repository


def with_remote(repository: Repository, url: str, endpoint: str) -> None:
    """Do what docs/team.md tells a team to do, and commit it."""
    repository.git("init", "-q")
    for arguments in (
        ["add", "-q", "-d", "team", url],
        ["modify", "-q", "team", "endpointurl", endpoint],
    ):
        result = repository.dvc("remote", *arguments)
        assert result.returncode == 0, result.stderr
    repository.commit("sources")


def test_a_second_clone_pulls_and_reruns_nothing(small, tmp_path):
    with s3_server(tmp_path) as address:
        with_remote(small, f"s3://{BUCKET}/lethe", address)
        assert set(small.ran("--push").values()) == {"ran"}
        sent = objects(address)
        assert {name.split("/")[1] for name in sent} == {"files", "runs"}

        with_lock = clones_run_nothing(small, "--push")
        assert objects(address) == sent

        # A changed value runs its own branch; the other clone gets that branch too.
        assert (
            with_lock.ran("--pull", "--push", "-S", "metrics.alpha=0.0625")["metrics@npo"] == "ran"
        )
        (small.folder / "params.yaml").write_text(with_lock.params())
        found = small.ran("--pull")
        assert found["metrics@npo"] == "restored"
        assert small.contents() == with_lock.contents()


@pytest.mark.parametrize("option", ["--push", "--pull"])
def test_a_remote_that_does_not_answer_is_one_sentence(small, tmp_path, option):
    with s3_server(tmp_path) as address:
        with_remote(small, "s3://no-such-bucket/lethe", address)
        sentence_of(small.lethe("run", option), "no-such-bucket")
    sentence_of(small.lethe("run", option), address)
    assert not (small.folder / "data/dataset").exists()


def test_a_server_that_dies_during_the_run_is_one_sentence_and_the_next_run_sends(small, tmp_path):
    with s3_server(tmp_path) as address:
        port = int(address.rpartition(":")[2])
        with_remote(small, f"s3://{BUCKET}/lethe", address)
        run = small.waiting("models", "--push")
    _, err = small.go_on(run)
    sentence_of(
        subprocess.CompletedProcess([], run.returncode, "", err.splitlines()[-1]), "DVC remote"
    )
    assert "Traceback" not in err
    with s3_server(tmp_path, port) as address:
        assert set(small.ran("--push").values()) == {"clean"}
        assert {name.split("/")[1] for name in objects(address)} == {"files", "runs"}


def test_wrong_keys_are_one_sentence_without_the_secret(small, tmp_path):
    """Moto checks keys only if it is told to; an empty pair is what a machine without credentials has."""
    small.environment |= {name: "" for name in KEYS}
    small.environment |= {"AWS_EC2_METADATA_DISABLED": "true"}
    with s3_server(tmp_path) as address:
        with_remote(small, f"s3://{BUCKET}/lethe", address)
        sentence_of(small.lethe("run", "--push"), "credentials")


def sentence_of(result: subprocess.CompletedProcess, word: str) -> None:
    """Check that a run failed with one sentence that has the word."""
    assert result.returncode == 1, result.stderr
    (line,) = [line for line in result.stderr.splitlines() if line.strip()]
    assert word in line
    assert "Traceback" not in result.stdout + result.stderr
    assert KEYS["AWS_SECRET_ACCESS_KEY"] not in result.stdout + result.stderr
