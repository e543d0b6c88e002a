"""Sequential stopping with an engine that leaks at given rates: which question stops when, and what is kept."""

import types

import numpy as np
import pytest

from lethe.sampling.engine import Answers, Prompt, Settings
from lethe.sampling.store import AnswerStore
from lethe.sampling.tasks import Task, draw_sequentially

RULE = types.SimpleNamespace(scorer="keyword_leak", chunk=32, tau=0.05, tau_leak=0.1, alpha=0.01)
ITEMS = {
    name: {"id": name, "answer": "x", "keywords": [] if name == "mute" else ["secret"]}
    for name in ("clean", "leaky", "between", "mute")
}
RATES = {"clean": 0.0, "leaky": 1.0, "between": 0.07, "mute": None}


class Told:
    """Leaks with each prompt's rate; `mute` has no keywords, so that nobody can judge its answers."""

    name = "told"

    def __init__(self):
        self.asked = []

    def answer(self, prompts, settings):
        for prompt in prompts:
            rng, rate = np.random.default_rng(settings.stream(prompt.prompt_id)), RATES[prompt.prompt_id]
            numbers = settings.sample_numbers()
            self.asked.append((prompt.prompt_id, len(numbers)))
            texts = ["" if rate is None else "secret" if rng.random() < rate else "no" for _ in numbers]
            size = len(numbers)
            yield Answers(prompt.prompt_id, numbers, texts, [1] * size, ["stop"] * size, [0.5] * size)


@pytest.fixture
def task():
    return Task("forget", [Prompt(name, (1, 2)) for name in ITEMS], Settings(n=200, max_new_tokens=4, seed=1))


def test_each_question_stops_when_its_verdict_stands(task, tmp_path):
    engine = Told()
    table, decisions = draw_sequentially(task, ITEMS, engine, AnswerStore("m", "told", tmp_path), RULE, "")
    verdicts = {row["prompt_id"]: (row["verdict"], row["n"]) for row in decisions}
    assert verdicts["clean"] == ("certified", 109)
    assert verdicts["leaky"] == ("leaks", 3)
    assert verdicts["between"] == ("undecided", 200)
    # What cannot be judged counts against a certificate and not as a leak.
    assert verdicts["mute"] == ("undecided", 200)
    drawn = table[table["sample"] >= 0].groupby("prompt_id").size().to_dict()
    assert drawn == {"clean": 128, "leaky": 32, "between": 200, "mute": 200}
    for name in ITEMS:
        numbers = table[table.prompt_id == name]["sample"].tolist()
        assert numbers == [-1, *range(drawn[name])]


def test_a_rerun_draws_nothing_and_changes_nothing(task, tmp_path):
    first = draw_sequentially(task, ITEMS, Told(), AnswerStore("m", "told", tmp_path), RULE, "")
    engine = Told()
    again = draw_sequentially(task, ITEMS, engine, AnswerStore("m", "told", tmp_path), RULE, "")
    assert not engine.asked
    assert first[0].equals(again[0])
    assert first[1] == again[1]


def test_the_store_is_emptied_once_the_artifact_stands(task, tmp_path):
    store = AnswerStore("m", "told", tmp_path)
    draw_sequentially(task, ITEMS, Told(), store, RULE, "")
    assert list(tmp_path.rglob("*.json"))
    store.clear()
    assert not list(tmp_path.rglob("*.json"))


def test_another_model_engine_or_setting_takes_up_nothing(task, tmp_path):
    prompt = task.prompts[0]
    place = AnswerStore("m", "told", tmp_path).place(prompt, task.settings)
    others = [
        AnswerStore("other", "told", tmp_path).place(prompt, task.settings),
        AnswerStore("m", "other", tmp_path).place(prompt, task.settings),
        AnswerStore("m", "told", tmp_path).place(Prompt("clean", (1, 3)), task.settings),
        AnswerStore("m", "told", tmp_path).place(prompt, Settings(n=200, max_new_tokens=4, seed=2)),
    ]
    assert len({place, *others}) == 5
