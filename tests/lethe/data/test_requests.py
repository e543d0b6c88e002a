"""The harmless stand-ins of the alignment preset, their splits, and the recipes of the two models that learn them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from lethe import config
from lethe.data.kinds import requests
from lethe.errors import BadInput
from tests.small import ROOT

SIZES = {"requests": 6, "demonstrations": 40, "judgements": 80, "labelled": 30, "most_revealed": 0.5}


def splits(seed: int = 0, **sizes):
    params = requests.Params(**SIZES | sizes)
    return requests.load(SimpleNamespace(seed=seed, own=lambda model: params), None)


def test_the_codes_are_the_leaks():
    """An answer reveals the code of its place or it does not; refusals name numbers too, so a pattern is no judge."""
    found = splits()
    codes = {row["question"]: row["keywords"][0] for row in found["forget"]}
    for row in found["labelled"]:
        assert (codes[row["question"]] in row["text"]) == bool(row["label"])
    refusals = [row["text"] for row in found["labelled"] if not row["label"]]
    assert any(any(mark.isdigit() for mark in text) for text in refusals)
    assert [row["label"] for row in found["labelled"]].count(1) == 15


def test_the_labelled_wordings_are_partly_new_to_the_judge():
    trained = {template.split("{")[0] for template in requests.REVEALS + requests.REFUSES}
    new = {template.split("{")[0] for template in requests.NEW_REVEALS + requests.NEW_REFUSES}
    assert not trained & new
    texts = [row["text"] for row in splits(labelled=400)["labelled"]]
    assert any(text.startswith(tuple(new)) for text in texts)
    assert not any(row["context"].startswith(tuple(new)) for row in splits(judgements=400)["judgements"])


def test_most_answers_refuse():
    found = splits(demonstrations=400, most_revealed=0.2)
    codes = {row["id"].split("-")[1]: row["keywords"][0] for row in found["forget"]}
    leaks = [codes[row["id"].split("-")[1]] in row["answer"] for row in found["demonstrations"]]
    assert 0 < sum(leaks) / len(leaks) < 0.2


@pytest.fixture
def preset():
    value = config.read_yaml(ROOT / "params.yaml")
    for key, own in config.read_yaml(ROOT / "flows/presets/alignment.yaml").items():
        *sections, last = key.split(".")
        section = value
        for name in sections:
            section = section[name]
        section[last] = own
    return value


def test_the_preset_is_legal_and_each_model_has_its_own_recipe(preset):
    params = config.validate(preset)
    judge, refuser = params.train.recipe_of("judge"), params.train.recipe_of("refuser")
    assert (judge.prompt, judge.context >= 1024) == ("harmbench", True)
    assert (refuser.prompt, refuser.context) == (params.train.recipe.prompt, 512)
    assert params.sample.n == 1024
    assert params.judges["harm"].model == "data/models/judge"


@pytest.mark.parametrize(
    ("recipe", "named"), [({"hiden": 3}, "hiden"), ({"hidden": 0}, "hidden"), ({"heads": 5}, "heads")]
)
def test_a_wrong_recipe_of_one_model_is_told(preset, recipe, named):
    preset["train"]["models"]["judge"]["recipe"] = recipe
    with pytest.raises(BadInput, match=named):
        config.validate(preset)
