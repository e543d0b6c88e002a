"""Kept answers are reused only for the same way of drawing, and a further number of answers is a further look."""

from pathlib import Path

import pytest

from lethe.io import cache
from lethe.sampling import store
from lethe.sampling.engine import Options, Prompt, Settings
from lethe.sampling.prefix_engine import PrefixEngine
from lethe.sampling.store import AnswerStore, look
from tests.small import touched

PROMPT, SETTINGS = Prompt("a", (1, 2)), Settings(n=4, max_new_tokens=3)


@pytest.fixture
def folder(tmp_path) -> Path:
    (tmp_path / "model").mkdir()
    (tmp_path / "model/model.safetensors").write_bytes(b"weights")
    return tmp_path / "model"


def place(folder: Path, **options: object) -> Path:
    engine = object.__new__(PrefixEngine)  # what opens an engine is tested elsewhere
    return AnswerStore.of(folder, engine, Options(**options)).place((PROMPT, SETTINGS))


def test_a_dtype_of_its_own_has_answers_of_its_own(folder):
    on_cpu = {dtype: place(folder, device="cpu", dtype=dtype) for dtype in ("auto", "float32", "bfloat16")}
    assert on_cpu["auto"] == on_cpu["float32"] != on_cpu["bfloat16"]


def test_the_models_content_decides(folder):
    before = place(folder)
    (folder / "model.safetensors").write_bytes(b"other")
    assert place(folder) != before


@pytest.mark.parametrize(
    ("module", "moves"),
    [
        ("lethe.sampling.prefix_engine", True),
        ("lethe.sampling.draws", True),
        ("lethe.models.checkpoints", True),
        ("lethe.sampling.transformers_engine", False),
        ("lethe.scoring.text.rouge", False),
    ],
)
def test_the_engines_code_decides(folder, monkeypatch, module, moves):
    before = place(folder)
    monkeypatch.setattr(cache, "library", lambda: touched(module))
    assert (place(folder) != before) == moves


def test_the_versions_of_the_libraries_decide(folder, monkeypatch):
    before = place(folder)
    monkeypatch.setattr(store, "versions", lambda *names: dict.fromkeys(names, "0"))
    assert place(folder) != before


def test_another_number_of_answers_is_a_further_look_and_a_rerun_is_none(tmp_path):
    place = tmp_path / "looks.json"
    assert [look(place, "npo", n) for n in (64, 256, 64, 1024, 256)] == [1, 2, 1, 3, 2]
    assert look(place, "another model", 256) == 1
