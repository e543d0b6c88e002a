"""The settings of image games: presets are whole, mistakes are named by key."""

from __future__ import annotations

import pytest

from lethe import config
from lethe.errors import BadInput
from studies.commands import PRESETS
from tests.small import ROOT


def with_games(preset):
    return config.read_yaml(ROOT / "params.yaml") | config.read_yaml(PRESETS / f"{preset}.yaml")


@pytest.mark.parametrize("preset", sorted(path.stem for path in PRESETS.glob("game-*.yaml")))
def test_every_preset_is_valid(preset):
    assert config.validate(with_games(preset)).games


@pytest.mark.parametrize(
    ("change", "key"),
    [
        (lambda g: g["methods"].update(x={"method": "magic"}), r"digits.methods.x.method: got 'magic'; .*fisher"),
        (lambda g: g.update(attacks=["guess"]), r"games.digits.attacks.0: got .*guess.*likelihood_ratio"),
        (lambda g: g["methods"].update(x={"method": "fisher"}), r"digits.methods.x: .*needs noise"),
        (lambda g: g["learning"].update(network="vgg"), r"games.digits.learning.network: .*'resnet18'"),
    ],
)
def test_a_mistake_is_named_by_its_key(change, key):
    value = with_games("game-digits")
    change(value["games"]["digits"])
    with pytest.raises(BadInput, match=key):
        config.validate(value)
