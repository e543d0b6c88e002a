"""Draws of prompt and answer together: independent of everything else, grouped by prompt, with the right law."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from lethe.data.prompt_language import productions, read_language
from lethe.errors import LetheError
from lethe.models.encoding import Encoder
from lethe.sampling.engine import Answers, Settings, open_engine
from lethe.sampling.store import AnswerStore
from lethe.sampling.tasks import ask, draw_in_language, draw_prompts, pick
from tests.lethe.evaluation.toy_language import LANGUAGE, ROWS, ToyEngine

SETTINGS = Settings(n=400, max_new_tokens=4, seed=3)


class WordEncoder:
    """Stands in for an encoder: the tokens of a prompt are those of its prefix and question, by place."""

    def conversation(self, row, system="", shots=(), start=""):
        return tuple(ord(letter) for letter in f"{row['question']}|{start}")


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
    expected = np.array([one.probability for one in found]) * 20_000
    assert ((asked.counts - expected) ** 2 / expected).sum() < 21  # chi-square, 5 degrees of freedom, p = .001
    assert pick(np.array([0.0, 0.999999999999]), found).tolist() == [0, len(found) - 1]


def test_a_samples_prompt_depends_on_nothing_but_its_name(language):
    few, many = (ask(language, ROWS[0], n, seed=1).of_sample for n in (50, 100))
    assert (many[:50] == few).all()
    assert (ask(language, ROWS[1], 100, seed=1).of_sample != many).any()
    assert (ask(language, ROWS[0], 100, seed=2).of_sample != many).any()


def test_each_distinct_prompt_is_read_once_and_answered_as_often_as_drawn(language, store):
    engine = ToyEngine()
    table = draw_in_language(language, ROWS, WordEncoder(), SETTINGS, engine, store, "x")
    sampled = [prompt for prompts, settings in engine.calls if settings.n for prompt in prompts]
    assert len({prompt.token_ids for prompt in sampled}) == len(sampled) == 12
    assert sum(prompt.n for prompt in sampled) == 2 * SETTINGS.n
    assert len(engine.calls) == 2  # one for the samples, one for the greedy answers
    for row in ROWS:
        own = table[table["prompt_id"] == row["id"]]
        assert own["sample"].tolist() == [-1, *range(SETTINGS.n)]
        names = [one.name for one in productions(language, row)]
        drawn = ask(language, row, SETTINGS.n, SETTINGS.seed)
        assert own["production"].tolist()[1:] == [names[place] for place in drawn.of_sample]
        assert own["production"].iloc[0] == names[drawn.likeliest]
        # the toy names production and number in its answer: the k-th draw of a production gets its k-th answer
        for name, group in own[own["sample"] >= 0].groupby("production"):
            assert group["text"].str.split("#").str[0].unique().tolist() == [f"{row['id']} | {name}"]
            assert group["text"].str.split("#").str[1].astype(int).tolist() == list(range(len(group)))


def test_a_finished_prompt_is_not_drawn_again(language, store):
    first = draw_in_language(language, ROWS, WordEncoder(), SETTINGS, ToyEngine(), store, "x")
    again = ToyEngine()
    assert draw_in_language(language, ROWS, WordEncoder(), SETTINGS, again, store, "x").equals(first)
    assert not again.calls


def test_the_second_sample_draws_prompts_and_new_answers_for_a_prompt_drawn_twice(language, store):
    engine = ToyEngine()
    table = draw_prompts(language, ROWS, WordEncoder(), SETTINGS, engine, store, "x")
    assert table.groupby("prompt").size().tolist() == [language.share.answers] * language.share.prompts
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
        draw_in_language(language, ROWS, WordEncoder(), SETTINGS, Stubborn(), store, "x")


def test_a_real_model_in_a_language(tiny_model, language, store, tmp_path):
    """The tiny model's tokens are letters, so the template and the texts are letters too."""
    template = tmp_path / "prompt.txt"
    template.write_text("{question}")
    small = tmp_path / "small.yaml"
    small.write_text("prefix: [null, a, bb]\nwording: ['{question}', 'c{question}']\n")
    engine = open_engine("prefix", tiny_model)
    encoder = Encoder(engine.checkpoint.tokenizer, template)
    rows = [{"id": "a", "question": "ab", "answer": "c"}, {"id": "b", "question": "d", "answer": "e"}]
    settings = Settings(n=64, max_new_tokens=3, seed=1)
    table = draw_in_language(read_language(small), rows, encoder, settings, engine, store, "x")
    assert len(table) == 2 * 65
    assert table["production"].nunique() == 6
    plain, longer = encoder.conversation(rows[0]), encoder.conversation(rows[0], start="bb")
    assert plain == encoder.prompt(rows[0])
    assert longer[: len(plain)] == plain
    assert longer[-2:] == (1, 1)


def test_a_chat_has_its_turns_and_the_start_of_the_answer(tiny_model):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    tokenizer.chat_template = "{% for m in messages %}{{ m.role[0] }}{{ m.content }}{% endfor %}b"
    encoder = Encoder(tokenizer, "chat")
    texts = []
    encoder._ids = lambda text: texts.append(text) or (1,)  # the text itself is what is compared
    encoder.conversation({"question": "q", "context": "k"}, "S", [("e", "f")], "g")
    encoder.conversation({"question": "q"})
    encoder.template = "Q {question} A"
    encoder.conversation({"question": "q"}, "S", [("e", "f")], "g")
    assert texts == ["sSueafuk\nqbg", "uqb", "S\n\nQ e A f\n\nQ q A g"]
