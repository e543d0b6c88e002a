"""Draws of two questions are independent: each has a stream of its own, whatever their ids."""

import shutil
import zlib
from types import SimpleNamespace

import pytest

from lethe.audits.unlearning_game.rounds import Game
from lethe.config.measuring import ModelEntry, SampleSettings
from lethe.models.checkpoints import InMemory, load
from lethe.sampling.answer_tree import PILOT, Effort
from lethe.sampling.engine import Prompt, Settings
from lethe.sampling.tasks import SUBJECT, _uniform, stream_of
from lethe.statistics.streams import stream
from tests.lethe.sampling.sampling_models import build_llama

# Two ids with one CRC32, by which draws were seeded.
IDS = ("plumless", "buckeroo")
SETTINGS = Settings(n=64, max_new_tokens=6, seed=3, greedy=False)


def numbers(drawn) -> list[int]:
    return drawn.generate_state(4).tolist()


def test_the_two_ids_once_shared_a_stream():
    assert len({zlib.crc32(name.encode()) for name in IDS}) == 1


@pytest.mark.parametrize(
    "drawn",
    [
        lambda name: numbers(SETTINGS.stream(name)),
        lambda name: numbers(Effort().stream(SimpleNamespace(question_id=name), PILOT)),
        lambda name: _uniform(3, name, 0),
        lambda name: Game.seed(
            SimpleNamespace(settings=SimpleNamespace(seed=3)), name, 0, "forget", 0
        ),
    ],
    ids=["answers", "answer tree", "productions", "models of a game"],
)
def test_two_names_with_one_crc_have_two_streams(drawn):
    assert drawn(IDS[0]) != drawn(IDS[1])


def test_two_ids_with_one_crc_draw_different_answers(tiny_engine):
    first, second = (Prompt(name, (0, 3, 1)) for name in IDS)

    of_first, of_second = (
        next(iter(tiny_engine.answer([prompt], SETTINGS))) for prompt in (first, second)
    )

    assert of_first.texts != of_second.texts


def test_answers_depend_neither_on_the_order_of_questions_nor_on_other_questions(tiny_engine):
    prompts = [Prompt(name, (0, 3, 1)) for name in (*IDS, "third")]

    forwards = {
        answers.prompt_id: answers.texts for answers in tiny_engine.answer(prompts, SETTINGS)
    }
    backwards = {
        answers.prompt_id: answers.texts for answers in tiny_engine.answer(prompts[::-1], SETTINGS)
    }
    alone = {
        answers.prompt_id: answers.texts for answers in tiny_engine.answer(prompts[1:2], SETTINGS)
    }

    assert forwards == backwards
    assert alone == {IDS[1]: forwards[IDS[1]]}


def test_the_first_answers_of_many_are_the_answers_of_few(tiny_engine):
    prompt = Prompt("q", (0, 3, 1))
    many, few = (SETTINGS.model_copy(update={"n": n}) for n in (300, 150))

    (long,) = tiny_engine.answer([prompt], many)
    (short,) = tiny_engine.answer([prompt], few)

    assert long.texts[:150] == short.texts


def test_a_later_call_continues_the_numbers_of_an_earlier_one(tiny_engine):
    prompt = Prompt("q", (0, 3, 1))
    later = {"n": 100, "first_sample": 200}

    (whole,) = tiny_engine.answer([prompt], SETTINGS.model_copy(update={"n": 300}))
    (rest,) = tiny_engine.answer([prompt], SETTINGS.model_copy(update=later))

    assert whole.texts[200:] == rest.texts
    assert whole.samples[200:] == rest.samples


@pytest.mark.parametrize(
    ("first", "n", "expected"),
    [
        (0, 128, [(0, 0, 128)]),
        (0, 130, [(0, 0, 128), (128, 0, 2)]),
        (100, 60, [(0, 100, 128), (128, 0, 32)]),
        (256, 1, [(256, 0, 1)]),
        (0, 0, []),
    ],
)
def test_batches_hold_every_number_once(first, n, expected):
    settings = Settings(n=n, first_sample=first, max_new_tokens=6)

    batches = settings.batches()

    assert [(batch.first, batch.start, batch.end) for batch in batches] == expected


SAMPLED = SampleSettings(prompt="Q: {question}", n=8)
PLAIN = ModelEntry(path="m")


@pytest.mark.parametrize(
    ("sample", "model", "role"),
    [
        (SAMPLED, PLAIN, "retrain 0"),
        (SAMPLED.model_copy(update={"temperature": 0.7}), PLAIN, SUBJECT),
        (SAMPLED.model_copy(update={"prompt": "A: {question}"}), PLAIN, SUBJECT),
        (SAMPLED, ModelEntry(path="m", adaptive_threshold=0.5), SUBJECT),
    ],
    ids=["role", "temperature", "prompt", "adaptive temperature"],
)
def test_another_role_or_law_draws_independently(tiny_model, sample, model, role):
    usual = stream_of(tiny_model, SAMPLED, PLAIN)

    assert stream_of(tiny_model, sample, model, role) not in ("", usual)


def test_other_weights_draw_independently_and_another_place_does_not(tiny_model, tmp_path):
    moved = shutil.copytree(tiny_model, tmp_path / "moved")
    other = build_llama(tmp_path / "other", letters="abcde", scale=1.0, seed=1)

    usual = stream_of(tiny_model, SAMPLED, PLAIN)

    assert stream_of(moved, SAMPLED, PLAIN) == usual
    assert stream_of(other, SAMPLED, PLAIN) != usual


def test_a_model_in_memory_has_the_stream_of_its_weights(tiny_model, tmp_path):
    other = build_llama(tmp_path / "other", letters="abcde", scale=1.0, seed=1)
    sources = [InMemory(*load(folder)) for folder in (tiny_model, tiny_model, other)]

    usual, again, of_other = (stream_of(source, SAMPLED, PLAIN) for source in sources)

    assert usual == again != of_other


def test_shared_streams_pair_the_answers_of_two_models(tiny_model):
    shared = SAMPLED.model_copy(update={"stream": "shared"})

    assert stream_of(tiny_model, shared, PLAIN) == ""


def test_a_stream_is_of_its_purpose_and_of_each_name():
    streams = [
        stream(0, "answers", "a", "b"),
        stream(0, "answers", "ab"),
        stream(0, "answers", "a", 1),
        stream(0, "answers", "a", "1"),
        stream(0, "production", "a", "b"),
        stream(1, "answers", "a", "b"),
        stream(0, "answers", "\ud800"),
    ]

    assert len({tuple(numbers(drawn)) for drawn in streams}) == len(streams)
