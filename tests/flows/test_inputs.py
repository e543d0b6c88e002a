"""A path of params.yaml that does not exist is reported before any stage starts."""

import copy

import pytest

from flows import settings
from lethe import config
from lethe.config.schema import CALIBRATION, NEUTRAL
from lethe.errors import BadInput, BadParam
from tests.small import ROOT

GOOD = config.read_yaml(ROOT / "params.yaml")


def changed(key: str, value):
    whole = copy.deepcopy(GOOD)
    *sections, last = key.split(".")
    section = whole
    for part in sections:
        section = section[part]
    section[last] = value
    return config.validate(whole)


@pytest.mark.parametrize("preset", [None, "audit-dp-sgd", "game-authors"])
def test_the_default_and_presets_name_what_is_there(preset, project):
    more = config.read_yaml(ROOT / f"flows/presets/{preset}.yaml") if preset else {}
    settings.check(config.validate(GOOD | more), project)


@pytest.mark.parametrize("key", ["data.source", "train.recipe.start_from", "sample.prompt", "models.npo.path"])
def test_a_path_that_is_nowhere_is_named_by_its_key(key, project):
    with pytest.raises(BadParam, match=rf"key {key}: got 'data/models/nowhere'"):
        settings.check(changed(key, "data/models/nowhere"), project)


def test_a_model_of_ones_own_or_of_a_stage_is_legal(tmp_path, project):
    (tmp_path / "mine").mkdir()
    for name in ("config.json", "model.safetensors"):
        (tmp_path / "mine" / name).touch()
    for path in (str(tmp_path / "mine"), "data/models/grad_diff/"):
        settings.check(changed("models.npo.path", path), project)


@pytest.mark.parametrize("key", sorted(NEUTRAL.keys() - {"judges.*.labelled"}))
def test_a_null_path_is_refused_with_the_place_that_stands_for_it(key, project):
    with pytest.raises(BadInput, match=f"{key}: {NEUTRAL[key]}"):
        changed(key, None)
    assert changed(key, NEUTRAL[key]) == config.validate(GOOD)
    assert (project / NEUTRAL[key]).exists()


def test_a_calibration_with_rows_counts(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    place = tmp_path / CALIBRATION
    place.parent.mkdir(parents=True)
    place.write_text("label,verdict\n")
    assert changed("metrics.calibration", CALIBRATION).metrics.calibration is None
    place.write_text("label,verdict\n1,1\n0,0\n")
    assert changed("metrics.calibration", CALIBRATION).metrics.calibration == CALIBRATION


def test_a_method_without_a_model_is_refused_with_the_line_to_add():
    with pytest.raises(BadInput, match=r"unlearn\.methods\.mine.*`mine: \{path: data/models/mine\}`"):
        changed(
            "unlearn.methods.mine", {"loss": "npo", "lr": 5e-4, "epochs": 2, "beta": 0.1, "retain_weight": 1.0}
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


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("sample.prompt", "lethe/models", "no such prompt file"),
        ("train.recipe.prompt", "dvc.yaml", r"holds no \{question\}"),
        ("models.npo.path", "lethe", r"it has no config\.json"),
        ("train.recipe.start_from", "data", r"it has no config\.json"),
    ],
)
def test_what_is_there_but_no_prompt_or_no_model_is_told_before_anything_is_trained(key, value, said, project):
    with pytest.raises(BadInput, match=rf"key {key}: .*{said}"):
        settings.check(changed(key, value), project)
