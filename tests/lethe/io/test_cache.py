"""The recipe for cache keys: every module that makes a result changes its key, and no other module does."""

import shutil
from dataclasses import dataclass

import numpy as np
import pytest

from lethe.io import cache
from lethe.io.cache import Levels, Sources, cache_key, digest
from lethe.statistics.bands import berk_jones_eta
from tests.small import ROOT, touched

RESULTS = {
    "answers": ("lethe.sampling.prefix_engine",),
    "landscape": ("studies.landscape.training",),
    "levels": ("lethe.statistics.bands",),
    "image models": ("studies.image_game.training", "studies.image_game.unlearning"),
    "text models": ("lethe.audits.unlearning_game.text_models", "lethe.unlearning.methods.npo"),
    "unlearned": ("lethe.unlearning.loop", "lethe.unlearning.methods.npo"),
    "trained": ("lethe.models.training",),
    "verdicts": ("lethe.scoring.judges.nli",),
    "scores": ("lethe.scoring._tables", "lethe.scoring.text.rouge", "lethe.scoring.judges.llm"),
    "answers of vLLM": ("lethe.sampling.vllm_engine",),
    "exact bounds": (
        "lethe.sampling.answer_tree",
        "lethe.sampling.answer_tree.asking",
        "lethe.sampling.predictor",
        "lethe.scoring.text.binary",
    ),
}


@pytest.mark.parametrize("result", RESULTS)
def test_each_module_of_a_closure_moves_the_key(result):
    modules = RESULTS[result]
    before = cache_key(*modules, settings={"n": 3})
    closure = cache.library().closure(*modules)
    assert set(modules) <= set(closure)
    for module in closure:
        assert touched(module).key(*modules, settings={"n": 3}) != before, module


@pytest.mark.parametrize(
    ("result", "helper"),
    [
        ("image models", "lethe.models.dp_sgd"),
        ("image models", "lethe.models.training"),
        ("text models", "lethe.models.likelihood"),
        ("text models", "lethe.models.encoding"),
        ("landscape", "lethe.models.dp_sgd"),
        ("answers", "lethe.sampling.predictor"),  # imported inside a function
        ("levels", "lethe.statistics.checks"),
        ("verdicts", "lethe.scoring.judges"),
        ("scores", "lethe.scoring.text.rouge"),
        ("scores", "lethe.models.first_token"),
        ("answers of vLLM", "lethe.models.first_token"),
        ("exact bounds", "lethe.sampling.answer_tree.enumeration"),
        ("exact bounds", "lethe.models.checkpoints"),
    ],
)
def test_a_helper_is_in_the_closure(result, helper):
    assert helper in cache.library().closure(*RESULTS[result])


def test_an_edit_in_a_file_moves_the_key_of_the_next_process(tmp_path):
    shutil.copytree(ROOT / "lethe", tmp_path / "lethe", ignore=shutil.ignore_patterns("__pycache__"))
    before = Sources(tmp_path)
    key = before.key("lethe.statistics.bands")
    assert key == cache_key("lethe.statistics.bands")
    with (tmp_path / "lethe/statistics/checks.py").open("a") as file:
        file.write("# touched\n")
    assert before.key("lethe.statistics.bands") == key
    assert Sources(tmp_path).key("lethe.statistics.bands") != key


@dataclass(frozen=True)
class Rule:
    n: int


def test_settings_and_facts_move_the_key():
    def key(n: int = 1, **facts: object) -> str:
        return cache_key("lethe.statistics.bands", settings=Rule(n), **facts)

    array = np.arange(4)
    keys = [key(), key(2), key(a=1), key(b=1), key(a=array), key(a=array.astype(float)), key(a=array[::-1])]
    assert len(set(keys)) == len(keys)
    assert key(a=array, b=2) == key(b=2, a=array.copy())


def test_every_kind_of_value_has_a_digest_of_its_own():
    array = np.arange(4)
    parts = [
        (1,),
        ("1",),
        ({"a": 1, "b": 2.5},),
        (array,),
        (array.astype(np.float32),),
        (array, array),
        (None,),
        ([1, 2],),
    ]
    assert len({digest(*part) for part in parts}) == len(parts)
    assert digest({"a": 1, "b": 2.5}, array) == digest({"b": 2.5, "a": 1}, array.copy())


def test_a_level_is_solved_once_and_kept_on_disk(tmp_path, monkeypatch):
    from lethe.statistics import bands

    eta = berk_jones_eta(40, 0.05, Levels(tmp_path))
    monkeypatch.setattr(bands, "_solve_eta", lambda n, alpha: 1 / 0)
    assert berk_jones_eta(40, 0.05, Levels(tmp_path)) == eta
    del Levels(tmp_path)[40, 0.05]
    assert (40, 0.05) not in Levels(tmp_path)


def test_a_broken_or_forbidden_cache_costs_time_only(tmp_path):
    levels = Levels(tmp_path)
    levels[30, 0.05] = 0.001
    levels.place((30, 0.05)).write_text("half a numb")
    assert berk_jones_eta(30, 0.05, levels) > 0.001
    (tmp_path / "file").write_text("")
    assert 0 < berk_jones_eta(30, 0.05, Levels(tmp_path / "file" / "below")) < 0.05
