"""Draws of a task: prompts of a language with their answers, kept answers."""

from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from transformers import AutoTokenizer

from lethe import identity
from lethe.errors import LetheError
from lethe.io import artifacts
from lethe.models.encoding import Encoder
from lethe.sampling import engine as keeping
from lethe.sampling.engine import Answers, AnswerStore, Options, Prompt, Settings, finished_of
from lethe.sampling.prefix_engine import PrefixEngine
from lethe.sampling.prompt_language import productions, read_language
from lethe.sampling.tasks import (
    Asking,
    SplitTask,
    ask,
    draw,
    draw_in_language,
    draw_prompts,
    drawn_parts,
    pick,
)
from lethe.sampling.transformers_engine import TransformersEngine
from tests.cases import cases
from tests.lethe.measure.toy_language import LANGUAGE, ROWS, ToyEngine
from tests.small import touched

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
            rng = np.random.default_rng(settings.stream(prompt.prompt_id))
            rate = RATES[prompt.prompt_id]
            numbers = settings.sample_numbers()
            self.asked.append((prompt.prompt_id, len(numbers)))
            texts = [
                "" if rate is None else "secret" if rng.random() < rate else "no" for _ in numbers
            ]
            size = len(numbers)
            yield Answers(
                prompt.prompt_id, numbers, texts, [1] * size, ["stop"] * size, [0.5] * size
            )


@pytest.fixture
def task():
    return SplitTask(
        "forget",
        [Prompt(name, (1, 2)) for name in ITEMS],
        Settings(n=200, max_new_tokens=4, seed=1),
    )


@pytest.mark.parametrize(
    ("most", "questions"), [(450, [2, 2]), (201, [1, 1, 1, 1]), (9, [1, 1, 1, 1])]
)
def test_a_part_holds_as_many_whole_questions_as_fit(task, tmp_path, monkeypatch, most, questions):
    store = AnswerStore("m", "told", tmp_path)
    table = draw(task, Told(), store, "")
    monkeypatch.setattr(artifacts, "ROWS", most)
    parts = list(drawn_parts(store, task))
    assert [len(part) for part in parts] == [201 * count for count in questions]
    assert pd.concat(parts, ignore_index=True).equals(table)


SETTINGS = Settings(n=400, max_new_tokens=4, seed=3)


def letters(name, row, n=None, system="", before=(), start=""):
    """Stands in for a tokenizer: the tokens of a prompt are those of its prefix and question, by place."""
    return Prompt(name, tuple(ord(letter) for letter in f"{row['question']}|{start}"), n)


@pytest.fixture
def language(tmp_path):
    path = tmp_path / "language.yaml"
    path.write_text(LANGUAGE)
    return read_language(path)


@pytest.fixture
def store(tmp_path):
    return AnswerStore("model", "toy", tmp_path / "scratch")


def test_the_prompts_have_the_declared_probabilities(language):
    found = productions(language, ROWS[0])
    asked = ask(language, ROWS[0], 20_000, seed=1)
    expected = np.array([production.probability for production in found]) * 20_000
    counts = np.bincount(asked.of_sample, minlength=len(found))
    assert (
        (counts - expected) ** 2 / expected
    ).sum() < 21  # chi-square, 5 degrees of freedom, p = .001
    assert pick(np.array([0.0, 0.999999999999]), found).tolist() == [0, len(found) - 1]


def test_each_distinct_prompt_is_read_once_and_answered_as_often_as_drawn(language, store):
    engine = ToyEngine()
    table = draw_in_language(language, ROWS, Asking(letters, SETTINGS, engine, store), "x")
    sampled = [prompt for prompts, settings in engine.calls if settings.n for prompt in prompts]
    assert len({prompt.token_ids for prompt in sampled}) == len(sampled) == 12
    assert sum(prompt.n for prompt in sampled) == 2 * SETTINGS.n
    assert len(engine.calls) == 2  # one for the samples, one for the greedy answers
    for row in ROWS:
        answers = table[table["prompt_id"] == row["id"]]
        assert answers["sample"].tolist() == [-1, *range(SETTINGS.n)]
        names = [production.name for production in productions(language, row)]
        drawn = ask(language, row, SETTINGS.n, SETTINGS.seed)
        assert answers["production"].tolist()[1:] == [names[place] for place in drawn.of_sample]
        assert answers["production"].iloc[0] == names[drawn.likeliest]
        # the toy names production and number in its answer: the k-th draw of a production gets its k-th answer
        for name, group in answers[answers["sample"] >= 0].groupby("production"):
            assert group["text"].str.split("#").str[0].unique().tolist() == [
                f"{row['id']} | {name}"
            ]
            assert group["text"].str.split("#").str[1].astype(int).tolist() == list(
                range(len(group))
            )


def test_the_second_sample_draws_prompts_and_new_answers_for_a_prompt_drawn_twice(language, store):
    engine = ToyEngine()
    table = draw_prompts(language, ROWS, Asking(letters, SETTINGS, engine, store), "x")
    assert (
        table.groupby("prompt").size().tolist() == [language.share.answers] * language.share.prompts
    )
    assert not table.duplicated(["text"]).any()
    assert Counter(table.drop_duplicates("prompt")["prompt_id"]).keys() == {"a", "b"}
    ((prompts, _),) = engine.calls
    assert len({prompt.token_ids for prompt in prompts}) == len(prompts) <= 12


def test_an_engine_that_ignores_the_number_of_a_prompt_is_refused(language, store):
    class Stubborn(ToyEngine):
        def answer(self, prompts, settings):
            for prompt in prompts:
                yield Answers(prompt.prompt_id, [0], ["x"], [1], ["stop"], [1.0])

    with pytest.raises(LetheError, match="gave 1 answers"):
        draw_in_language(language, ROWS, Asking(letters, SETTINGS, Stubborn(), store), "x")


def test_a_chat_has_its_turns_and_the_start_of_the_answer(tiny_model):
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    tokenizer.chat_template = "{% for m in messages %}{{ m.role[0] }}{{ m.content }}{% endfor %}b"
    encoder = Encoder(tokenizer, "chat")
    texts = []
    encoder._open_ids = lambda text: texts.append(text) or (1,)  # the text itself is compared
    encoder.conversation({"question": "q", "context": "k"}, "S", [({"question": "e"}, "f")], "g")
    encoder.conversation({"question": "q"})
    encoder.template = "Q {question} A"
    encoder.conversation({"question": "q"}, "S", [({"question": "e"}, "f")], "g")
    assert texts == ["sSueafuk\nqbg", "uqb", "S\n\nQ e A f\n\nQ q A g"]


@pytest.fixture
def weights(tmp_path) -> Path:
    (tmp_path / "model").mkdir()
    (tmp_path / "model/model.safetensors").write_bytes(b"weights")
    return tmp_path / "model"


def place(folder: Path, kind: type = PrefixEngine, **options: object) -> Path:
    engine = object.__new__(kind)  # what opens an engine is tested elsewhere
    return AnswerStore.of(folder, engine, Options(**options)).place(
        (Prompt("a", (1, 2)), Settings(n=4, max_new_tokens=3))
    )


def test_a_dtype_of_its_own_has_answers_of_its_own(weights):
    on_cpu = {
        dtype: place(weights, device="cpu", dtype=dtype)
        for dtype in ("auto", "float32", "bfloat16")
    }
    assert on_cpu["auto"] == on_cpu["float32"] != on_cpu["bfloat16"]


@pytest.mark.parametrize(("engine", "moves"), [(PrefixEngine, False), (TransformersEngine, True)])
def test_the_memory_decides_where_a_batch_has_a_seed(weights, engine, moves):
    assert (place(weights, engine, max_rows=8) != place(weights, engine, max_rows=64)) == moves


def part(folder: Path) -> Path:
    return finished_of(folder.parent, folder, "lethe.sampling.extraction").place("a")


@pytest.mark.parametrize("placed", [place, part])
def test_the_models_content_and_the_versions_of_the_libraries_decide(weights, monkeypatch, placed):
    before = placed(weights)
    assert placed(weights) == before
    (weights / "model.safetensors").write_bytes(b"other")
    after = placed(weights)
    monkeypatch.setattr(keeping, "versions", lambda *names: dict.fromkeys(names, "0"))
    assert len({before, after, placed(weights)}) == 3


@cases
def test_the_engines_code_decides(weights, monkeypatch, module, moves):
    before = place(weights)
    monkeypatch.setattr(identity, "library", lambda: touched(module))
    assert (place(weights) != before) == moves
