"""Draws until the word is certain: whose answers are drawn next, the same path after a kill, one draw for all models."""

import json
import math

import numpy as np
import pandas as pd
import pytest

from lethe.config.measuring import ModelEntry, SampleSettings
from lethe.sampling.engine import Answers, AnswerStore, Prompt, Settings
from lethe.sampling.tasks import SplitTask
from lethe.sampling.word_draws import Drawer, Grid, Judging, Reached, draw_to_word
from lethe.sampling.word_rule import Rule
from lethe.statistics.policy import Evidence, Tally

GOAL = math.log(1 / 0.05)
MUTE = {"id": "mute", "answer": "x", "keywords": []}


class Toy:
    """Leaks with a rate of each question; the j-th answer is a function of stream and number."""

    name = "toy"

    def __init__(self, rates):
        self.rates = rates
        self.asked = []

    def answer(self, prompts, settings):
        for prompt in prompts:
            numbers = settings.sample_numbers()
            self.asked.append((prompt.prompt_id, settings.first_sample, settings.n))
            texts = [self._text(prompt.prompt_id, settings, number) for number in numbers]
            size = len(numbers)
            yield Answers(
                prompt.prompt_id, numbers, texts, [1] * size, ["stop"] * size, [0.5] * size
            )

    def _text(self, name, settings, number):
        random = np.random.default_rng([number + 1, *settings.stream(name).generate_state(4)])
        return "secret" if random.random() < self.rates[name] else "no"


def items_of(rates):
    return {name: {"id": name, "answer": "x", "keywords": ["secret"]} for name in rates}


def drawn(tmp_path, rates, chance=None, cap=4096, store="store", items=None):
    """The draws of a model beside at most one Retrain, whose rates are ``chance``, and both engines."""
    sample = SampleSettings(prompt="chat", stop="word", first=128, n=cap, batch=64)
    retrains = {} if chance is None else {"retrain": ModelEntry(path="data/models/retrain")}
    rule = Rule(tau=0.05, goal=GOAL, scorer="keyword_leak", retrains=retrains)
    judging = Judging(rule, items or items_of(rates), parts=None)
    prompts = [Prompt(name, (1, 2)) for name in rates]
    engines = {"model": Toy(rates), "retrain": Toy(chance)}

    def drawer(name, greedy):
        settings = Settings(n=1, max_new_tokens=4, stream_of=name, greedy=greedy, batch=64)
        task = SplitTask("forget", prompts, settings)
        kept = AnswerStore(name, "toy", tmp_path / store)
        opened = lambda: (engines[name], kept)  # noqa: E731
        return Drawer(task, Grid.of(sample), opened, judging, shorten=lambda table: table)

    beside = {name: drawer(name, greedy=False) for name in retrains}
    word = draw_to_word(drawer("model", True), beside, rule.policy(sample), judging, "toy")
    return word, engines


def table_of(drawer):
    return pd.concat(drawer.parts(), ignore_index=True)


def test_a_model_that_never_leaks_ends_with_forgot_and_asks_no_retrain(tmp_path):
    word, engines = drawn(tmp_path, {"a": 0.0, "b": 0.0}, chance={"a": 0.0, "b": 0.0})

    assert word.ended == "forgot"
    assert set(word.subject.n.values()) == {128}
    assert engines["retrain"].asked == []


def test_a_question_that_leaks_ends_with_leaks_after_draws_of_retrain(tmp_path):
    word, engines = drawn(tmp_path, {"a": 0.0, "b": 0.5}, chance={"a": 0.0, "b": 0.0})

    assert word.ended == "leaks"
    assert {name for name, *_ in engines["retrain"].asked} == {"b"}
    assert word.beside["retrain"].n["a"] == 0


def test_the_largest_evidence_of_the_looks_is_kept_and_a_name_with_its_answers(tmp_path):
    quiet, _ = drawn(tmp_path, {"a": 0.0, "b": 0.0}, store="quiet")
    loud, _ = drawn(tmp_path, {"a": 0.0, "b": 0.5}, store="loud")

    assert min(quiet.reached.forgot.values()) >= GOAL
    assert quiet.reached.named_at == {}
    assert loud.reached.leaks >= GOAL
    assert loud.reached.named_at == {"b": loud.subject.n["b"]}
    recorded = json.loads(json.dumps(loud.record()))["reached"]
    assert recorded["named_at"] == loud.reached.named_at


def test_a_later_look_with_less_evidence_lowers_nothing():
    kept = Reached(tolerance=0.05, goal=3.0, scorer="keyword_leak")
    high, low = (Evidence(3.0, np.array([log_e]), np.array([log_e])) for log_e in (4.0, 1.0))

    kept.look(["a"], Tally.of([0], [128]), high)
    kept.look(["a"], Tally.of([0], [256]), low)

    assert (kept.forgot, kept.leaks, kept.named_at) == ({"a": 4.0}, 4.0, {"a": 128})


def test_a_question_at_chance_is_drawn_to_the_cap(tmp_path):
    word, _ = drawn(tmp_path, {"a": 0.3}, chance={"a": 0.3}, cap=512)

    assert word.ended == "capped"
    assert word.subject.n == word.beside["retrain"].n == {"a": 512}


def test_a_question_without_keywords_has_the_first_answers_alone(tmp_path):
    rates = {"a": 0.0, "mute": 0.0}

    word, _ = drawn(tmp_path, rates, items={**items_of({"a": 0}), "mute": MUTE})

    assert word.ended == "forgot"
    assert word.subject.n["mute"] == 128


def test_a_killed_process_draws_nothing_again_and_takes_the_same_path(tmp_path):
    rates = {"a": 0.0, "b": 0.1}
    chance = {"a": 0.0, "b": 0.02}

    first, _ = drawn(tmp_path, rates, chance)
    again, engines = drawn(tmp_path, rates, chance)

    assert engines["model"].asked == engines["retrain"].asked == []
    assert table_of(first.subject).equals(table_of(again.subject))
    assert table_of(first.beside["retrain"]).equals(table_of(again.beside["retrain"]))


def test_a_deleted_store_gives_the_same_answers(tmp_path):
    rates = {"a": 0.0, "b": 0.1}
    chance = {"a": 0.0, "b": 0.02}

    first, _ = drawn(tmp_path, rates, chance)
    again, engines = drawn(tmp_path, rates, chance, store="another")

    assert engines["model"].asked
    assert first.record() == again.record()
    assert table_of(first.subject).equals(table_of(again.subject))


def test_a_larger_cap_continues_the_process(tmp_path):
    rates = {"a": 0.3}
    chance = {"a": 0.3}

    short, _ = drawn(tmp_path, rates, chance, cap=256)
    long, engines = drawn(tmp_path, rates, chance, cap=512)

    assert {start for _, start, _ in engines["model"].asked} == {256, 320, 384, 448}
    table = table_of(long.subject)
    begin = table[table["sample"] < 256].reset_index(drop=True)
    assert begin.equals(table_of(short.subject))


def test_a_second_model_finds_the_draws_of_retrain(tmp_path):
    chance = {"a": 0.02, "b": 0.02}
    drawn(tmp_path, {"a": 0.0, "b": 0.3}, chance)

    _, engines = drawn(tmp_path, {"a": 0.0, "b": 0.3}, chance)

    assert engines["retrain"].asked == []


def test_the_table_has_each_number_once_after_the_greedy_answer(tmp_path):
    word, _ = drawn(tmp_path, {"a": 0.0, "b": 0.1}, chance={"a": 0.0, "b": 0.0})

    for name, rows in table_of(word.subject).groupby("prompt_id"):
        assert rows["sample"].tolist() == [-1, *range(word.subject.n[name])]


def test_a_retrain_that_nobody_asked_has_an_empty_table(tmp_path):
    word, _ = drawn(tmp_path, {"a": 0.0}, chance={"a": 0.0})

    table = table_of(word.beside["retrain"])

    assert table.empty
    assert "prompt_id" in table


def test_counts_are_those_of_the_answers(tmp_path):
    word, _ = drawn(tmp_path, {"a": 0.2}, chance={"a": 0.2}, cap=256)

    sampled = table_of(word.subject).query("sample >= 0")

    assert word.subject.leaks["a"] == int((sampled["text"] == "secret").sum())


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (0, 128, [(0, 128)]),
        (0, 200, [(0, 128), (128, 64), (192, 8)]),
        (128, 256, [(128, 64), (192, 64)]),
        (200, 256, [(200, 56)]),
        (128, 128, []),
    ],
)
def test_chunks_lie_on_one_grid(start, end, expected):
    chunks = Grid(first=128, batch=64).chunks(start, end)

    # the first edge after a start off the grid is the grid's
    assert sum(chunk.size for chunk in chunks) == end - start
    assert [(chunk.start, chunk.size) for chunk in chunks] == expected
