"""What DVC holds of a folder, and which part of its graph a fresh clone has."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from flows import workspace
from lethe.errors import BadFile, BadValue
from tests.flows.miniature import wait_until


def test_a_broken_lock_is_named_with_its_remedy(tmp_path):
    (tmp_path / ".dvc").mkdir()
    (tmp_path / ".dvc/config").write_text("[core]\n    no_scm = true\n")
    (tmp_path / "dvc.yaml").write_text("stages:\n  a:\n    cmd: echo\n")
    (tmp_path / "dvc.lock").write_text("<<<<<<< HEAD\na: [1\n")
    with pytest.raises(BadFile, match=r"dvc\.lock: DVC cannot use it.*git checkout dvc\.lock"):
        workspace.read_graph(tmp_path)


@pytest.mark.parametrize(
    ("wanted", "legal"),
    [
        ("sample@nowhere", "must be one of sample@a, sample@b"),
        ("prepare@a", "must be one of prepare"),
        ("audit@a", "must be one of audit"),  # the group has no entry
        ("nowhere", "must be one of prepare, sample, audit"),
        ("nowhere@a", "must be one of prepare, sample, audit"),
    ],
)
def test_a_stage_without_an_entry_is_refused_from_the_params_alone(tmp_path, wanted, legal):
    (tmp_path / "dvc.yaml").write_text(
        "stages:\n  prepare: {cmd: x}\n  sample: {foreach: '${models}', do: {cmd: x}}\n"
        "  audit: {foreach: '${all.audits}', do: {cmd: x}}\n"
    )
    params = "models: {a: 1, b: 2}\nall: {audits: {}}\n"
    workspace.check_stages(tmp_path, ["prepare", "sample", "sample@a", "audit"], params)
    with pytest.raises(BadValue, match=legal):
        workspace.check_stages(tmp_path, ["sample@b", wanted], params)


def test_only_this_user_can_enter_the_folder_of_dvcs_pickles(small, monkeypatch, tmp_path):
    from dvc.repo import Repo

    def place() -> Path:
        with Repo(str(small.folder)) as repo:
            return Path(repo.site_cache_dir)

    monkeypatch.chdir(small.folder)
    monkeypatch.delenv("DVC_SITE_CACHE_DIR", raising=False)
    (small.folder / ".dvc/config.local").unlink(missing_ok=True)
    workspace.prepare(small.folder)
    own = small.folder / ".dvc/tmp/site_cache"
    own.chmod(0o777)
    workspace.prepare(small.folder)
    assert place().is_relative_to(own.resolve())
    assert own.stat().st_mode & 0o777 == 0o700
    # the record of a folder that was copied from elsewhere is no choice of the user, another place is
    for set_to, expected in (
        ("/elsewhere/.dvc/tmp/site_cache", own.resolve()),
        (tmp_path / "mine", tmp_path / "mine"),
    ):
        (small.folder / ".dvc/config.local").write_text(f"[core]\n    site_cache_dir = {set_to}\n")
        workspace.prepare(small.folder)
        assert place().is_relative_to(expected)


def test_a_half_written_record_of_dvcs_locks_blocks_no_run(small, monkeypatch):
    monkeypatch.chdir(small.folder)
    workspace.prepare(small.folder)
    record = small.folder / ".dvc/tmp/rwlock"
    record.parent.mkdir(parents=True, exist_ok=True)
    for half in ("", '{"write": {'):  # a full disk, a kill
        record.write_text(half)
        assert "prepare" in workspace.read_graph(small.folder).upstream
        assert not record.exists() or isinstance(json.loads(record.read_text()), dict)  # DVC may write its own


def test_a_half_written_dvc_lock_is_taken_from_the_copy_of_the_run_before(small, monkeypatch):
    monkeypatch.chdir(small.folder)
    assert small.lethe("run", "--json").returncode == 0
    lock = small.folder / "dvc.lock"
    text = lock.read_text()
    assert workspace.read_graph(small.folder).stale == {}
    lock.write_text(text[: text.index("    md5:") + 12] + "\x00")
    assert workspace.read_graph(small.folder).stale == {}
    assert lock.read_text() == text


def test_a_dvc_command_that_works_here_is_named(small, monkeypatch):
    monkeypatch.chdir(small.folder)
    workspace.prepare(small.folder)
    (small.folder / "slow").write_text("dataset")
    command = [sys.executable, "-m", "dvc", "repro"]
    process = subprocess.Popen(
        command, env=small.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        wait_until(lambda: (small.folder / "alive").exists())
        with pytest.raises(workspace.Busy, match=rf"dvc repro` \(process {process.pid}\)"):
            workspace.read_graph(small.folder)
        refused = small.lethe("run")
        assert refused.returncode == 1
        assert "dvc.yaml" not in refused.stderr
        assert "\x1b" not in refused.stderr
    finally:
        (small.folder / "slow").unlink()
        process.wait(timeout=120)
