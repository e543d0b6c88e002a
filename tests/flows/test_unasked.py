"""Stages whose section of params.yaml is null."""

import shutil

import pytest
import yaml

from flows import unasked, workspace
from lethe import config
from lethe.results import table
from tests.small import work, write_params


class NoProcesses:
    """Brings no stage up to date."""

    stopped = False

    def reproduce(self, stage, say):
        return workspace.Reproduced("failed", 1, f"a process for {stage}")


@pytest.fixture(scope="module")
def folder(pipeline, tmp_path_factory):
    """A finished pipeline in which exact bounds and extraction were then switched off."""
    copy = tmp_path_factory.mktemp("unasked") / "lethe"
    shutil.copytree(pipeline[0], copy)
    params = yaml.safe_load((copy / "params.yaml").read_text())
    write_params(copy, params | {"exact": None, "extract": None})
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(copy)
        workspace.prepare(copy)
        workspace.keep_params(copy)
        work("sources")
        yield copy


@pytest.mark.parametrize("stage", ["exact@base", "extract@retrain"])
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


def test_a_stage_with_work_has_its_process(folder):
    params = config.load()

    ended = unasked.Asked(NoProcesses(), params).reproduce("metrics@base", print)

    assert ended.tail == "a process for metrics@base"
