"""What DVC holds of a folder, and which part of its graph a fresh clone has."""

import copy
import json
import threading
import time
import types
from pathlib import Path

import pytest

from flows import settings, workspace
from flows.cli import commands
from flows.stage import Stage
from lethe import config
from lethe.cli.app import IN_A_PIPELINE
from lethe.config.load import section_of
from lethe.config.schema import NEUTRAL
from lethe.errors import BadFile, BadInput, BadParam, BadValue
from lethe.io.label_places import ANSWERS, CALIBRATION, LABELS, PLACES, filled
from tests.cases import cases
from tests.flows.miniature import wait_until
from tests.small import ROOT


def test_a_broken_lock_is_named_with_its_remedy(tmp_path):
    (tmp_path / ".dvc").mkdir()
    (tmp_path / ".dvc/config").write_text("[core]\n    no_scm = true\n")
    (tmp_path / "dvc.yaml").write_text("stages:\n  a:\n    cmd: echo\n")
    (tmp_path / "dvc.lock").write_text("    from flows import pipeline  # imports Prefect, which takes seconds

    task = Task()
    passed = []
    for name, value in {"TASKS": most, "bring_up_to_date": task, "wait": len}.items():
        monkeypatch.setattr(pipeline, name, value)
    a, b = (Stage("a", [], []), Stage("b", [], []))
    b.upstream = [a]
    c = Stage("c", [a], ["changed"])
    d = Stage("d", [b, c], [])
    overview = types.SimpleNamespace(passed=lambda name, end: passed.append((name, end)))

    pipeline.run_stages([a, b, c, d], 2, overview, types.SimpleNamespace(stopped=False))

    assert task.submitted == tasks
    assert [stage.end for stage in (a, b, c, d)] == ["clean", "clean", "ran", "ran"]
    assert passed == ([] if most == 4 else [("a", "clean"), ("b", "clean")])


class Overview:
    """An overview that remembers how many stages ran at once."""

    def __init__(self):
        self.running: list[str] = []
        self.most = 0

    def started(self, name, stale):
        self.running.append(name)
        self.most = max(self.most, len(self.running))

    def ended(self, name, end):
        self.running.remove(name)
        return 0.1

    def passed(self, name, end):
        pass

    def say(self, stage, line):
        pass


class Reproducing:
    """Processes that take a moment for each stage and are stopped while the stage of number ``last`` runs."""

    def __init__(self, last: int = 0):
        self.last = last
        self.started = 0
        self.stopped = False

    def reproduce(self, name, say):
        self.started += 1
        time.sleep(0.05)
        self.stopped = self.stopped or self.started == self.last
        return workspace.Reproduced("ran")


def wide(count: int) -> list[Stage]:
    """A stage, and ``count`` others that read what it makes."""
    first = Stage("first", [], ["changed"])
    return [first, *(Stage(f"s{place}", [first], []) for place in range(count))]


@pytest.fixture
def threads(monkeypatch):
    """The flow, whose tasks are threads."""
    from flows import pipeline  # imports Prefect, which takes seconds

    bring_up_to_date = pipeline.bring_up_to_date

    def in_a_thread(stage, places, overview, processes, wait_for):
        """What Prefect does with a task: start it when those before it have ended."""

        def work():
            for before in wait_for:
                before.unwrap().join()
            bring_up_to_date.fn(*(one.unwrap() for one in (stage, places, overview, processes)))

        thread = threading.Thread(target=work)
        thread.start()
        return thread

    task = types.SimpleNamespace(
        fn=bring_up_to_date.fn,
        with_options=lambda name, task_run_name: types.SimpleNamespace(submit=in_a_thread),
    )
    monkeypatch.setattr(pipeline, "bring_up_to_date", task)
    monkeypatch.setattr(pipeline, "wait", lambda futures: [future.join() for future in futures])
    return pipeline


@pytest.mark.parametrize("jobs", [1, 3])
def test_as_many_stages_run_at_once_as_are_allowed(threads, jobs):
    stages = wide(9)
    overview = Overview()

    threads.run_stages(stages, jobs, overview, Reproducing())

    assert overview.most == jobs
    assert {stage.end for stage in stages} == {"ran"}


def test_a_stage_that_waited_for_a_place_does_not_start_after_a_stop(threads):
    stages = wide(5)
    overview = Overview()

    threads.run_stages(stages, 1, overview, Reproducing(last=3))

    assert sorted(stage.end for stage in stages) == ["not started"] * 3 + ["ran"] * 3


def test_every_command_of_a_pipeline_folder_says_elsewhere_where_it_works():
    assert sorted(IN_A_PIPELINE) == sorted(commands())


@pytest.mark.parametrize("name", ["run", "serve", "sweep"])
def test_the_help_that_reads_no_code_says_what_the_command_says(name):
    documented = commands()[name].__doc__.partition("\n")[0]

    assert IN_A_PIPELINE[name].summary == documented


ATTACK = {
    "path": "data/models/npo",
    "after": {"kind": "relearn", "rows": "forget", "count": 2, "steps": [1, 2]},
}
EXPECTED = ["npo_relearn", "npo_relearn_base", "npo_relearn_retrain"]


@pytest.fixture
def params(tmp_path):
    (tmp_path / "data/source").mkdir(parents=True)
    (tmp_path / "lethe").symlink_to(ROOT / "lethe")
    path = tmp_path / "params.yaml"
    path.write_text((ROOT / "params.yaml").read_text())
    return path


def test_a_setting_under_models_becomes_an_attack(params):
    before = config.load(params)
    said = settings.change(params, [("models.npo_relearn", ATTACK)])
    assert any(line.startswith("models.npo_relearn -> attacks.npo_relearn") for line in said)
    after = config.load(params)
    assert set(after.models) == set(before.models)
    assert list(after.attacks) == EXPECTED
    assert after.attacks["npo_relearn"].after.kind == "relearn"
    assert settings.change_here(params.parent, []) == []
    assert "# The evaluated models." in params.read_text()  # comments stay


def test_an_entry_that_a_person_wrote_is_told_and_moved(params):
    params.write_text(
        params.read_text().replace(
            "models:\n  base: {path: data/models/base}\n  retrain",
            f"models:\n  npo_relearn: {json.dumps(ATTACK)}\n  base: {{path: data/models/base}}\n  retrain",
        )
    )
    with pytest.raises(BadInput, match=r"models\.npo_relearn.*under attacks"):
        config.load(params)
    assert settings.change_here(params.parent, [])
    assert list(config.load(params).attacks) == EXPECTED


def test_base_and_retrain_come_under_the_same_attack(params):
    """Without them the report could show neither the half-life nor the excess."""
    said = settings.change(params, [("models.npo_relearn", ATTACK | {"n": 8, "seeds": [4]})])
    assert sum("under the same attack" in line for line in said) == 2
    attacks = config.load(params).attacks
    attack = attacks["npo_relearn"]
    for model in ("base", "retrain"):
        twin = attacks[f"npo_relearn_{model}"]
        assert twin.path == f"data/models/{model}"
        assert twin.model_copy(update={"path": attack.path}) == attack
    assert (
        "&id" not in params.read_text()
    )  # no alias: a change of one entry must not change another
    assert settings.change(params, []) == []


def test_a_name_with_two_attacks_is_refused(params):
    settings.change(params, [("attacks.npo_relearn", ATTACK)])
    text = params.read_text()
    with pytest.raises(BadInput, match="attacks does not have"):
        settings.change(params, [("models.npo_relearn", {**ATTACK, "path": "data/models/base"})])
    assert params.read_text() == text
