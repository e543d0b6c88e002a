"""Stages whose section of params.yaml is null."""

import logging
import shutil
import threading

import pytest
import yaml

from flows import unasked, workspace
from lethe import config
from lethe.results import table
from tests.small import work, write_params

pytestmark = pytest.mark.slow


class NoProcesses:
    """Brings no stage up to date."""

    stopped = False

    def reproduce(self, stage, say):
        return workspace.Reproduced("failed", 1, f"a process for {stage}")


@pytest.fixture(scope="module")
def folder(pipeline, tmp_path_factory):
    """A finished pipeline in which exact bounds, extraction and twins were then switched off."""
    copy = tmp_path_factory.mktemp("unasked") / "lethe"
    shutil.copytree(pipeline[0], copy)
    params = yaml.safe_load((copy / "params.yaml").read_text())
    write_params(copy, params | {"exact": None, "extract": None, "twins": None})
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(copy)
        workspace.prepare(copy)
        workspace.keep_params(copy)
        work("sources")
        yield copy


@pytest.mark.parametrize("stage", ["exact@base", "extract@retrain", "twins@base"])
def test_a_stage_without_work_starts_no_process_and_is_done_for_dvc(folder, stage):
    group, name = stage.split("@")
    lines = []

    ended = unasked.Asked(NoProcesses(), config.load()).reproduce(
        stage, lambda stage, line: lines.append(line)
    )

    written = table.place(folder / "data", group, name)
    made = written.read_bytes()
    work(stage)
    assert ended.state == "ran"
    assert lines == (["base: no exact bounds: exact is null"] if group == "exact" else [])
    assert made == written.read_bytes()
    with unasked.dvc_child.opened() as repo:
        assert repo.status([stage]) == {}


def test_dvc_says_nothing_of_a_stage_without_work(folder, caplog, capfd):
    caplog.set_level(logging.INFO, "dvc")

    unasked.Asked(NoProcesses(), config.load()).reproduce("extract@base", lambda stage, line: None)

    assert not [record for record in caplog.records if record.name.startswith("dvc")]
    assert "dvc.lock" not in "".join(capfd.readouterr())


def test_a_stage_with_work_has_its_process(folder):
    params = config.load()

    ended = unasked.Asked(NoProcesses(), params).reproduce("metrics@base", print)

    assert ended.tail == "a process for metrics@base"


def test_what_another_thread_prints_is_not_said_of_the_stage(folder, monkeypatch, capsys):
    import stages.exact

    def prints(params, root, name):
        another = threading.Thread(target=print, args=["of another stage"])
        another.start()
        another.join()
        print("of this one")
        run(params, root, name)

    run = stages.exact.run
    monkeypatch.setattr(stages.exact, "run", prints)
    lines = []

    unasked.Asked(NoProcesses(), config.load()).reproduce(
        "exact@base", lambda stage, line: lines.append(line)
    )

    assert lines[0] == "of this one"
    assert "of another stage" in capsys.readouterr().out


def test_a_stage_that_cannot_be_written_failed_and_says_why(folder, monkeypatch):
    import stages.exact

    def full(params, root, name):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(stages.exact, "run", full)

    ended = unasked.Asked(NoProcesses(), config.load()).reproduce("exact@base", print)

    assert (ended.state, ended.status) == ("failed", 1)
    assert "No space left" in ended.tail


def test_nothing_is_written_after_a_signal(folder):
    stopped = NoProcesses()
    stopped.stopped = True

    assert unasked.Asked(stopped, config.load()).reproduce("exact@base", print).state == "stopped"


def test_another_command_that_holds_the_lock_is_waited_for_and_then_named(folder, monkeypatch):
    from dvc.lock import LockError

    def held(self, stage):
        raise LockError("busy")

    monkeypatch.setattr(unasked.Asked, "_written", held)
    monkeypatch.setattr(unasked.dvc_child, "BUSY_SECONDS", 0.1)

    ended = unasked.Asked(NoProcesses(), config.load()).reproduce("exact@base", print)

    assert ended.state == "failed"
    assert "works in this folder" in ended.tail


def test_a_signal_ends_the_waiting_for_another_command(folder, monkeypatch):
    from dvc.lock import LockError

    processes = NoProcesses()

    def held(self, stage):
        processes.stopped = True
        raise LockError("busy")

    monkeypatch.setattr(unasked.Asked, "_written", held)

    assert unasked.Asked(processes, config.load()).reproduce("exact@base", print).state == "stopped"
