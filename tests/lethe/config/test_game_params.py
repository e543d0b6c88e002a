"""The games section of params.yaml: mistakes are named by key."""

from __future__ import annotations

import copy

import pytest

from lethe import config
from lethe.errors import BadInput
from tests.small import ROOT


def with_game(change):
    value = config.read_yaml(ROOT / "params.yaml")
    games = config.read_yaml(ROOT / "flows/presets/game-authors.yaml")["games"]
    value["games"] = copy.deepcopy(games)
    change(value["games"]["authors"])
    return value


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda g: g.update(portion=1.5), r"games.authors.portion: got 1.5; must be above 0 and below 1"),
        (lambda g: g.update(kind="sounds"), r"games.authors: .*a key kind, one of text"),
        (lambda g: g.pop("kind"), r"games.authors: .*a key kind, one of text"),
        (lambda g: g.update(pears=3), r"games.authors.pears: .*one of the keys kind, data, portion, pairs"),
        (lambda g: g.pop("pairs"), r"games.authors.pairs: .*the key is missing"),
        (
            lambda g: g.update(shadow_models=5),
            r"games.authors.shadow_models: got 5; must be at least 4 and a multiple of 2",
        ),
        (lambda g: g.update(attacks=["guess"]), r"games.authors.attacks.0: got .*guess.*reference"),
    ],
)
def test_a_mistake_is_named_by_its_key(change, said):
    with pytest.raises(BadInput, match=said):
        config.validate(with_game(change))
