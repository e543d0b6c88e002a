"""What DVC holds of a folder, and which part of its graph a fresh clone has."""

import copy
import json
import os
import subprocess
import threading
import time
import types
from pathlib import Path

import pytest

from flows import pipeline, settings, workspace
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
    (tmp_path / "dvc.lock").write_text("<<<<<<< HEAD\na: [1\n")
    with pytest.raises(BadFile, match=r"dvc\.lock: DVC cannot use it.*git checkout dvc\.lock"):
        workspace.read_graph(tmp_path)


@cases
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
    cache = small.folder / ".dvc/tmp/site_cache"
    cache.chmod(0o777)
    workspace.prepare(small.folder)
    assert place().is_relative_to(cache.resolve())
    assert cache.stat().st_mode & 0o777 == 0o700
    # the record of a folder that was copied from elsewhere is no choice of the user, another place is
    for set_to, expected in (
        ("/elsewhere/.dvc/tmp/site_cache", cache.resolve()),
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
        assert not record.exists() or isinstance(
            json.loads(record.read_text()), dict
        )  # DVC may write its own


def record_of_locks(small, pid: int) -> Path:
    """DVC's record of a command that writes what the first stage writes."""
    record = small.folder / ".dvc/tmp/rwlock"
    record.parent.mkdir(parents=True, exist_ok=True)
    place = str(small.folder / "data/dataset")
    user = {"pid": pid, "cmd": "dvc repro"}
    record.write_text(json.dumps({"write": {place: user}, "read": {place: [user]}}))
    return record


def test_a_killed_command_that_its_parent_never_asked_about_blocks_no_run(small, monkeypatch):
    """As in a container whose first process takes no orphans: the number stays taken."""
    monkeypatch.chdir(small.folder)
    workspace.prepare(small.folder)
    ended = subprocess.Popen(["true"])
    os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
    record_of_locks(small, ended.pid)

    assert "prepare" in workspace.read_graph(small.folder).upstream
    ended.wait()


def test_a_later_process_with_the_number_of_a_killed_command_blocks_no_run(small, monkeypatch):
    monkeypatch.chdir(small.folder)
    workspace.prepare(small.folder)
    later = subprocess.Popen(["sleep", "60"])
    record = record_of_locks(small, later.pid)
    os.utime(record, (time.time() - 3600,) * 2)

    try:
        assert "prepare" in workspace.read_graph(small.folder).upstream
    finally:
        later.kill()
        later.wait()


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
    process = small.python("-m", "dvc", "repro")
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
        process.communicate(timeout=120)


GOOD = config.read_yaml(ROOT / "params.yaml")


def changed(key: str, value):
    whole = copy.deepcopy(GOOD)
    section, last = section_of(whole, key, value)
    section[last] = value
    return config.validate(whole)


@pytest.mark.parametrize("preset", [None, "audit-dp-sgd", "game-authors"])
def test_the_default_and_presets_name_what_is_there(preset, project):
    more = config.read_yaml(ROOT / f"flows/presets/{preset}.yaml") if preset else {}
    settings.check(config.validate(GOOD | more), project)


@pytest.mark.parametrize(
    "key", ["data.source", "train.recipe.start_from", "sample.prompt", "models.npo.path"]
)
def test_a_path_that_is_nowhere_is_named_by_its_key(key, project):
    with pytest.raises(BadParam, match=rf"key {key}: got 'data/models/nowhere'"):
        settings.check(changed(key, "data/models/nowhere"), project)


def test_a_model_of_ones_own_or_of_a_stage_is_legal(tmp_path, project):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/config.json").write_text("{}")
    (tmp_path / "mine/model.safetensors").touch()
    for path in (str(tmp_path / "mine"), "data/models/grad_diff/"):
        settings.check(changed("models.npo.path", path), project)


@pytest.mark.parametrize("key", sorted(NEUTRAL.keys() - {"judges.*.labelled"}))
def test_a_null_path_is_refused_with_the_place_that_stands_for_it(key, project):
    with pytest.raises(BadInput, match=f"{key}: {NEUTRAL[key]}"):
        changed(key, None)
    assert changed(key, NEUTRAL[key]) == config.validate(GOOD)
    assert (project / NEUTRAL[key]).exists()


def test_a_place_of_labels_counts_once_somebody_put_labels_there(tmp_path):
    (tmp_path / LABELS).mkdir(parents=True)
    assert filled(CALIBRATION, tmp_path) is filled(ANSWERS, tmp_path) is None
    (tmp_path / CALIBRATION).write_text("label,verdict\n")
    (tmp_path / ANSWERS).write_text("")

    assert [filled(place, tmp_path) for place in PLACES] == [None, None, None]
    assert filled("data/mine.csv", tmp_path) == "data/mine.csv"

    (tmp_path / CALIBRATION).write_text("label,verdict\n1,1\n0,0\n")
    (tmp_path / ANSWERS).write_text('{"text": "a", "label": 1}\n')
    assert [filled(place, tmp_path) for place in PLACES] == [None, CALIBRATION, ANSWERS]
    (tmp_path / LABELS / "npo.jsonl").write_text("{}\n")
    assert filled(LABELS, tmp_path) == LABELS


def test_labels_do_not_change_the_settings(tmp_path, monkeypatch):
    """Or the identity of the stage `metrics`, which hashes its settings, would depend on when it was computed."""
    monkeypatch.chdir(tmp_path)
    place = tmp_path / CALIBRATION
    place.parent.mkdir(parents=True)
    place.write_text("label,verdict\n")
    before = config.validate(GOOD)

    place.write_text("label,verdict\n1,1\n0,0\n")

    assert config.validate(GOOD) == before


def test_a_calibration_without_a_binary_scorer_is_refused_once_it_has_labels(tmp_path):
    whole = copy.deepcopy(GOOD)
    whole["sample"]["stop"] = "fixed"  # a word needs a 0/1 scorer
    whole["metrics"]["binary"] = None
    params = config.validate(whole)
    (tmp_path / CALIBRATION).parent.mkdir(parents=True)
    (tmp_path / CALIBRATION).write_text("label,verdict\n")
    settings._check_judged(params, tmp_path)

    (tmp_path / CALIBRATION).write_text("label,verdict\n1,1\n0,0\n")

    with pytest.raises(BadInput, match="the scorer binary"):
        settings._check_judged(params, tmp_path)


def test_a_method_without_a_model_is_refused_with_the_line_to_add():
    with pytest.raises(
        BadInput, match=r"unlearn\.methods\.mine.*`mine: \{path: data/models/mine\}`"
    ):
        changed(
            "unlearn.methods.mine",
            {"loss": "npo", "lr": 5e-4, "epochs": 2, "beta": 0.1, "retain_weight": 1.0},
        )


def test_training_does_not_begin_with_what_training_makes(project):
    with pytest.raises(BadParam, match=r"key train\.recipe\.start_from: got 'data/models/base'"):
        settings.check(changed("train.recipe.start_from", "data/models/base"), project)


@pytest.mark.parametrize("key", ["prompt", "start_from"])
def test_what_a_game_reads_lies_where_its_content_is_a_dependency(tmp_path, key, project):
    value = copy.deepcopy(GOOD) | config.read_yaml(ROOT / "flows/presets/game-authors.yaml")
    (tmp_path / "prompt.txt").write_text("{question}")
    value["games"]["authors"]["learning"][key] = str(tmp_path / "prompt.txt")
    with pytest.raises(BadParam, match=rf"games\.authors\.learning\.{key}: .*below data/source"):
        settings.check(config.validate(value), project)


@cases
def test_what_is_there_but_no_prompt_or_no_model_is_told_before_anything_is_trained(
    key, value, said, project
):
    with pytest.raises(BadInput, match=rf"key {key}: .*{said}"):
        settings.check(changed(key, value), project)


class Task:
    """Stands for Prefect's task: what is submitted ends at once."""

    def __init__(self):
        self.submitted = []

    def with_options(self, name, task_run_name):
        return self

    def submit(self, stage, places, overview, processes, wait_for):
        stage = stage.unwrap()
        stage.end = stage.foregone() or "ran"
        self.submitted.append((stage.name, len(wait_for)))
        return types.SimpleNamespace()


@pytest.mark.parametrize(
    ("most", "tasks"), [(4, [("a", 0), ("b", 1), ("c", 1), ("d", 2)]), (3, [("c", 0), ("d", 1)])]
)
def test_clean_stages_of_a_large_folder_are_no_tasks(monkeypatch, most, tasks):
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
    bring_up_to_date = pipeline.bring_up_to_date

    def in_a_thread(stage, places, overview, processes, wait_for):
        """What Prefect does with a task: start it when those before it have ended."""

        def work():
            for before in wait_for:
                before.unwrap().join()
            bring_up_to_date.fn(
                *(argument.unwrap() for argument in (stage, places, overview, processes))
            )

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


def test_a_change_within_a_given_value_is_none_of_the_giver(params):
    """A sweep gives each of its points the same values before those of the point."""
    npo = {"loss": "npo", "lr": 5.0e-4, "epochs": 20, "beta": 0.4, "retain_weight": 20.0}
    common = [("unlearn.methods.npo", npo), ("models.npo_relearn", dict(ATTACK))]

    settings.change(params, [*common, ("unlearn.methods.npo.beta", 0.2)])

    assert config.load(params).unlearn.methods["npo"].beta == 0.2
    assert npo["beta"] == 0.4
    assert common[1] == ("models.npo_relearn", ATTACK)


def test_dvc_writes_its_files_as_ever_after_a_change(params):
    from dvc.utils.serialize import dumps_yaml

    settings.change(params, [("sample.n", 64)])

    assert dumps_yaml({"lr": 1e-05, "key": None}) == "lr: 1e-05\nkey:\n"


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
