"""What is stale is what DVC's own status finds, with each file hashed once."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace

from dvc.output import Output
from dvc.repo import Repo

from flows import workspace
from flows.stale import _each_file_once, stale


def both(folder) -> tuple[dict, dict]:
    with Repo(str(folder)) as repo, repo.lock:
        ours = stale(repo)
    with Repo(str(folder)) as repo:
        return ours, repo.status()


def test_the_stale_stages_are_those_of_dvc_status(small, monkeypatch):
    monkeypatch.chdir(small.folder)
    workspace.prepare(small.folder)
    ours, dvcs = both(small.folder)
    assert ours == dvcs
    assert len(ours) >= 3  # nothing has run
    assert small.dvc("repro").returncode == 0
    assert both(small.folder) == ({}, {})

    (small.folder / "data/dataset/text").write_text("changed by hand")
    text = small.params()
    (small.folder / "params.yaml").write_text(
        text.replace("alpha: 0.01", "alpha: 0.02").replace("beta: 0.4", "beta: 0.7")
    )
    ours, dvcs = both(small.folder)
    assert ours == dvcs
    assert {"prepare", "unlearn@npo", "metrics@npo"} <= set(ours)

    counted: Counter[str] = Counter()
    get_hash = Output.get_hash

    def counting(output):
        counted[output.fs_path] += 1
        return get_hash(output)

    monkeypatch.setattr(Output, "get_hash", counting)
    with Repo(str(small.folder)) as repo, repo.lock:
        stale(repo)
    assert set(counted.values()) == {1}
    assert Output.get_hash is counting  # as it was before


def test_two_kinds_of_hash_of_one_file_are_told_apart(monkeypatch):
    monkeypatch.setattr(Output, "get_hash", lambda output: f"by {output.hash_name}")
    kinds = ("md5", "md5-dos2unix", "md5")
    outputs = [
        SimpleNamespace(fs=SimpleNamespace(protocol="local"), fs_path="x", hash_name=kind) for kind in kinds
    ]
    with _each_file_once():
        assert [Output.get_hash(output) for output in outputs] == [f"by {kind}" for kind in kinds]
