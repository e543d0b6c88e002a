"""Scratch files that the disk has damaged count as missing; tables for spreadsheets and terminals are harmless."""

import csv
import os
import shutil
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lethe import identity, tracking
from lethe.errors import of_the_machine
from lethe.identity import Sources, cache_key, digest
from lethe.io import tables
from lethe.io.cache import Levels, Store, keep, recall
from lethe.models.training import Resumable, Saved
from lethe.sampling.engine import Answers, AnswerStore, Prompt, Settings
from lethe.statistics.bands import berk_jones_eta
from tests.cases import cases, read_cases
from tests.small import ROOT, touched


@given(
    st.recursive(
        st.none() | st.integers(-99, 99) | st.text(st.characters(exclude_categories=["Cs"])),
        st.lists,
    ),
    st.data(),
)
def test_what_is_kept_comes_back_and_no_single_change_does(tmp_path_factory, value, data):
    path = tmp_path_factory.mktemp("kept") / "a.json"
    keep(path, [value])
    assert recall(path) == [value]
    content = bytearray(path.read_bytes())
    place = data.draw(st.integers(0, len(content) - 2))  # the last byte is the line feed
    content[place] ^= data.draw(st.integers(1, 255))
    path.write_bytes(bytes(content))
    assert recall(path) is None
    path.write_bytes(bytes(content)[: data.draw(st.integers(0, len(content) - 2))])
    assert recall(path) is None


class Counting:
    """An engine that answers every prompt with its number of calls."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def answer(self, prompts, settings):
        for prompt in prompts:
            self.calls.append(prompt.prompt_id)
            yield Answers(
                prompt.prompt_id, np.arange(2), ["x", "y"], [1, 1], ["stop", "stop"], [0.5, 0.5]
            )


def test_a_damaged_answer_is_drawn_again(tmp_path):
    prompts = [Prompt("a", (1,)), Prompt("b", (2,))]
    how = Settings(n=2, max_new_tokens=3)
    store = AnswerStore("model", "prefix", tmp_path)
    engine = Counting()
    first = list(store.answer(engine, prompts, how))
    list(store.answer(engine, prompts, how))
    assert engine.calls == ["a", "b"]
    place = store.place((prompts[0], how))
    place.write_bytes(place.read_bytes().replace(b'"x"', b'"z"'))  # JSON still, and another answer
    again = {answers.prompt_id: answers.texts for answers in store.answer(engine, prompts, how)}
    assert engine.calls == ["a", "b", "a"]
    assert again == {answers.prompt_id: answers.texts for answers in first}


def test_a_damaged_look_is_looked_up_again(tmp_path):
    store = Store(tmp_path, "key")
    store["q"] = {"rows": 3}
    assert Store(tmp_path, "key")["q"] == {"rows": 3}
    (path,) = tmp_path.rglob("*.json")
    path.write_text("{")
    assert "q" not in Store(tmp_path, "key")


def test_a_damaged_state_of_training_is_not_taken_up(tmp_path):
    def saved(step: int) -> Saved:
        return Saved(step, {"w": torch.full((4,), float(step))}, {}, {}, [], [torch.zeros(1)], {})

    state = Resumable(tmp_path / "run", 1)
    state.save(saved(3))
    state.save(saved(4))
    assert len(list((tmp_path / "run").iterdir())) == 1
    found = state.load(torch.device("cpu"))
    assert found is not None
    assert (found.step, found.weights["w"].tolist()) == (4, [4.0] * 4)
    (path,) = (tmp_path / "run").iterdir()
    content = bytearray(path.read_bytes())
    content[content.index(torch.full((4,), 4.0).numpy().tobytes())] ^= 1
    path.write_bytes(bytes(content))
    assert state.load(torch.device("cpu")) is None
    (tmp_path / "run/state.pt").write_bytes(b"half")  # as a kill leaves it
    state.save(saved(2))
    assert state.load(torch.device("cpu")).step == 2


@pytest.mark.parametrize("content", ["{", "[]", '{"a": 1}', "\0\0"])
def test_a_damaged_record_of_what_was_logged_is_empty(tmp_path, content):
    (tmp_path / ".lethe").mkdir()
    (tmp_path / ".lethe/tracked.json").write_text(content)
    assert tracking.logged_states("a", tmp_path) == set()
    tracking.remember("a", ["state"], tmp_path)
    assert tracking.logged_states("a", tmp_path) == {"state"}


HOSTILE = [
    "=HYPERLINK(1)",
    "+1+1",
    "-1+cmd|x",
    "@SUM(A1)",
    "\t=1",
    "\r=1",
    " =1",
    "\uff1d1",
    "\x1b[31mred",
    "a\x00b",
    "\x9b31m",
    "\r\n",
]


@given(
    st.lists(
        st.sampled_from(HOSTILE) | st.text(st.characters(exclude_categories=["Cs"])), min_size=1
    )
)
def test_no_cell_of_a_csv_is_a_formula_or_moves_the_cursor(tmp_path_factory, texts):
    path = tmp_path_factory.mktemp("csv") / "a.csv"
    tables.write_csv(path, pd.DataFrame({"=text": texts, "score": np.linspace(-1, 1, len(texts))}))
    with open(path, newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["'=text", "score"]
    assert len(rows) == len(texts) + 1
    for (cell, score), text in zip(rows[1:], texts, strict=True):
        float(score)
        controls = {chr(code) for code in (*range(9), *range(11, 32), *range(127, 160))}
        assert not set(cell.replace("\r\n", "\n")) & controls  # an end of a line is none
        assert cell[:1] not in set("=@\t\r")
        if cell[:1] in ("+", "-"):
            float(cell)
        if not set(text) & set("\r\t=+-@\uff1d\uff0b\uff0d\uff20") and text.isprintable():
            assert cell == text


class OutOfMemoryError(RuntimeError):
    """As torch calls it."""


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (MemoryError(), "Out of memory: no incomplete file"),
        (
            OutOfMemoryError("CUDA out of memory. Tried\nto"),
            "Out of memory (CUDA out of memory. Tried to)",
        ),
        (
            RuntimeError("DefaultCPUAllocator: can't allocate memory"),
            "Out of memory (DefaultCPUAllocator",
        ),
        (OSError(12, "Cannot allocate memory"), "Out of memory"),
        (
            PermissionError(13, "Permission denied", "data/x"),
            "data/x: cannot be used (Permission denied)",
        ),
        (
            OSError(30, "Read-only file system", b"data/.y.x.tmp"),
            "data: cannot be used (Read-only file system)",
        ),
        (OSError(28, "No space left on device", "data/z"), "The disk is full"),
    ],
)
def test_errors_of_the_machine_are_sentences(error, said):
    wrapped = RuntimeError("a library's own")
    wrapped.__cause__ = error
    for raised in (error, wrapped):
        told = of_the_machine(raised)
        assert said in str(told)
        assert told.exit_status == 1


def test_a_file_that_this_user_may_not_read_is_bad_input(tmp_path, monkeypatch):
    place = tmp_path / "scores.csv"
    place.touch()
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may read everything
    told = of_the_machine(PermissionError(13, "Permission denied", str(place)))
    assert told.exit_status == 2
    assert f"{place}: cannot be read" in str(told)


RESULTS = read_cases(__file__)["results"]  # what is kept, with the modules that make it


@pytest.mark.slow
@pytest.mark.parametrize("result", RESULTS)
def test_each_module_of_a_closure_moves_the_key(result):
    modules = RESULTS[result]
    before = cache_key(*modules, settings={"n": 3})
    closure = identity.library().closure(*modules)
    assert set(modules) <= set(closure)
    for module in closure:
        assert touched(module).identity(*modules, settings={"n": 3}) != before, module


@cases
def test_a_helper_is_in_the_closure(result, helper):
    assert helper in identity.library().closure(*RESULTS[result])


def test_an_edit_in_a_file_moves_the_key_of_the_next_process(tmp_path):
    shutil.copytree(
        ROOT / "lethe", tmp_path / "lethe", ignore=shutil.ignore_patterns("__pycache__")
    )
    before = Sources(tmp_path)
    key = before.identity("lethe.statistics.bands")
    assert key == cache_key("lethe.statistics.bands")
    with (tmp_path / "lethe/statistics/checks.py").open("a") as file:
        file.write("# touched\n")
    assert before.identity("lethe.statistics.bands") == key
    assert Sources(tmp_path).identity("lethe.statistics.bands") != key


@dataclass(frozen=True)
class Rule:
    n: int


def test_settings_and_facts_move_the_key():
    def key(n: int = 1, **facts: object) -> str:
        return cache_key("lethe.statistics.bands", settings=Rule(n), **facts)

    array = np.arange(4)
    keys = [
        key(),
        key(2),
        key(a=1),
        key(b=1),
        key(a=array),
        key(a=array.astype(float)),
        key(a=array[::-1]),
    ]
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
