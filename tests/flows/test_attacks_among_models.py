"""An entry of ``models`` with the key ``after`` is an attack: `lethe run` puts it where DVC can run it."""

from __future__ import annotations

import json

import pytest

from flows import settings
from lethe import config
from lethe.errors import BadInput
from tests.small import ROOT

ATTACK = {"path": "data/models/npo", "after": {"kind": "relearn", "rows": "forget", "count": 2, "steps": [1, 2]}}
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
    own = attacks["npo_relearn"]
    for model in ("base", "retrain"):
        twin = attacks[f"npo_relearn_{model}"]
        assert twin.path == f"data/models/{model}"
        assert twin.model_copy(update={"path": own.path}) == own
    assert "&id" not in params.read_text()  # no alias: a change of one entry must not change another
    assert settings.change(params, []) == []


def test_a_name_with_two_attacks_is_refused(params):
    settings.change(params, [("attacks.npo_relearn", ATTACK)])
    text = params.read_text()
    with pytest.raises(BadInput, match="attacks does not have"):
        settings.change(params, [("models.npo_relearn", {**ATTACK, "path": "data/models/base"})])
    assert params.read_text() == text
