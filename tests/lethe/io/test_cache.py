"""The recipe for cache keys: every module that makes a result changes its key, and no other module does."""

from __future__ import annotations

import shutil
from dataclasses import dataclass

import numpy as np
import pytest

from lethe.io import cache, scratch
from lethe.io.cache import Sources, cache_key, digest, module_of
from lethe.io.scratch import Levels
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


@pytest.mark.parametrize("module", ["lethe.report.page", "lethe.io.atomic", "lethe.unlearning.methods.ascent"])
def test_a_module_outside_leaves_the_key(module):
    modules = RESULTS["unlearned"]
    assert module not in cache.library().closure(*modules)
    assert touched(module).key(*modules) == cache_key(*modules)


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


@pytest.fixture
def sources(tmp_path):
    """A package `other` beside a small `lethe`, where each kind of import is used once."""
    files = {
        "lethe/__init__.py": "",
        "lethe/errors.py": "",
        "lethe/models/__init__.py": "from lethe.models import base",
        "lethe/models/base.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import lethe.models.types",
        "lethe/models/types.py": "",
        "lethe/models/one.py": "def f():\n    try:\n        import lethe.models.two\n    except ImportError:\n        pass",
        "lethe/models/two.py": "import lethe.errors, json, torch",
        "lethe/models/names.py": "A = 'lethe.models.two:F'\nB = f'lethe.parts.{A}'\nC = 'lethe.more'\nD = 'lethe.not'",
        "lethe/registry.py": "FIRST = dict(folders=('lethe.more',))\nSECOND = dict(folders=('lethe.parts',))",
        "lethe/models/taken.py": "def f():\n    from lethe.registry import SECOND",
        "lethe/parts/__init__.py": "",
        "lethe/parts/a.py": "",
        "lethe/more/__init__.py": "",
        "lethe/more/b.py": "",
        "other/__init__.py": "",
        "other/deep/__init__.py": "from .c import x",
        "other/deep/c.py": "from .. import d\nfrom ..e import y\nfrom lethe.models.two import z",
        "other/d.py": "",
        "other/e.py": "",
    }
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    return Sources(tmp_path)


def test_imports_in_functions_count_and_those_for_types_do_not(sources):
    around = ["lethe.models", "lethe.models.base"]
    assert sources.closure("lethe.models.one") == [*around, "lethe.models.one", "lethe.models.two"]


def test_names_in_strings_are_followed_on_request_alone(sources):
    around = ["lethe.models", "lethe.models.base"]
    assert sources.closure("lethe.models.names") == [*around, "lethe.models.names"]
    named = ["lethe.models.names", "lethe.models.two"]
    more, parts = ["lethe.more", "lethe.more.b"], ["lethe.parts", "lethe.parts.a"]
    assert sources.closure("lethe.models.names", by_name=True) == [*around, *named, *more, *parts]
    without = sources.closure("lethe.models.names", by_name=True, without=["lethe.more", "lethe.parts"])
    assert without == [*around, *named, "lethe.more"]


def test_a_registry_is_followed_into_the_folders_of_its_own(sources):
    found = sources.closure("lethe.models.taken", by_name=True)
    assert {"lethe.parts", "lethe.parts.a"} <= set(found)
    assert not {"lethe.more.b", "lethe.registry"} & set(found)


def test_a_member_is_named_by_its_module():
    assert module_of(cache) == "lethe.io.cache"
    assert module_of(Sources) == module_of(Sources(ROOT)) == module_of(digest) == "lethe.io.cache"


def test_a_package_of_another_project_is_followed_into_itself_and_the_library(sources):
    own = ["other", "other.d", "other.deep", "other.deep.c", "other.e"]
    library = ["lethe.models", "lethe.models.base", "lethe.models.two"]
    assert sources.closure("other.deep") == [*library, *own]


def test_a_module_that_is_not_there_is_an_error(sources):
    with pytest.raises(LookupError, match=r"lethe\.models\.three"):
        sources.key("lethe.models.three")


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
    levels._place((30, 0.05)).write_text("half a numb")
    assert berk_jones_eta(30, 0.05, levels) > 0.001
    (tmp_path / "file").write_text("")
    assert 0 < berk_jones_eta(30, 0.05, Levels(tmp_path / "file" / "below")) < 0.05


def test_the_folder_comes_from_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("LETHE_CACHE", str(tmp_path))
    Levels()[5, 0.1] = 0.01
    assert list((tmp_path / "berk-jones").iterdir())


def test_an_edited_solver_solves_anew(tmp_path, monkeypatch):
    Levels(tmp_path)[40, 0.05] = 0.001
    assert Levels(tmp_path)[40, 0.05] == 0.001
    edited = cache.Sources(cache.library().root)
    edited.sources["lethe.statistics.checks"] = b"# what the solver imports"
    with monkeypatch.context() as patch:
        patch.setattr(cache, "library", lambda: edited)
        assert (40, 0.05) not in Levels(tmp_path)
    monkeypatch.setattr(scratch, "versions", lambda *names: dict.fromkeys(names, "0"))
    assert (40, 0.05) not in Levels(tmp_path)
