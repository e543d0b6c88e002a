"""An entry of ``models`` with the key ``after`` is an attack: `lethe run` puts it where DVC can run it."""

from __future__ import annotations

import json

import pytest
import yaml

from flows import settings
from lethe import config
from lethe.errors import BadInput
from tests.small import ROOT

ATTACK = {"path": "data/models/npo", "after": {"kind": "relearn", "rows": "forget", "count": 2, "steps": [1, 2]}}


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
    assert list(after.attacks) == ["npo_relearn"]
    assert after.attacks["npo_relearn"].after.kind == "relearn"
    assert not settings.holds_attacks_among_models(params)
    assert "# The evaluated models." in params.read_text()  # comments stay


def test_an_entry_that_a_person_wrote_is_told_and_moved(params):
    params.write_text(
        params.read_text().replace(
            "models:\n  base: {path: data/models/base}\n  retrain",
            f"models:\n  npo_relearn: {json.dumps(ATTACK)}\n  base: {{path: data/models/base}}\n  retrain",
        )
    )
    assert settings.holds_attacks_among_models(params)
    with pytest.raises(BadInput, match=r"models\.npo_relearn.*under attacks"):
        config.load(params)
    settings.change(params, [])
    assert list(config.load(params).attacks) == ["npo_relearn"]


def test_a_name_with_two_attacks_is_refused(params):
    settings.change(params, [("attacks.npo_relearn", ATTACK)])
    text = params.read_text()
    with pytest.raises(BadInput, match="attacks does not have"):
        settings.change(params, [("models.npo_relearn", {**ATTACK, "path": "data/models/base"})])
    assert params.read_text() == text


@pytest.mark.slow
def test_lethe_run_moves_it_before_any_stage(small):
    path = small.folder / "params.yaml"
    value = yaml.safe_load(path.read_text())
    value["models"]["npo_relearn"] = ATTACK
    path.write_text(yaml.safe_dump(value, sort_keys=False))
    result = small.lethe("run")
    assert result.returncode == 0, result.stderr
    assert list(config.load(path).attacks) == ["npo_relearn"]
    assert not (small.folder / "data/metrics/npo_relearn.json").exists()
