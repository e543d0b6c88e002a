"""Draws of two questions are independent: each has a stream of its own, whatever their ids."""

import zlib
from types import SimpleNamespace

import pytest

from lethe.audits.unlearning_game.rounds import Game
from lethe.sampling.answer_tree import PILOT, Effort
from lethe.sampling.engine import Prompt, Settings
from lethe.sampling.tasks import _uniform
from lethe.statistics.streams import stream

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

    one, other = (next(iter(tiny_engine.answer([prompt], SETTINGS))) for prompt in (first, second))

    assert one.texts != other.texts


def test_answers_depend_neither_on_the_order_of_questions_nor_on_other_questions(tiny_engine):
    prompts = [Prompt(name, (0, 3, 1)) for name in (*IDS, "third")]

    forwards = {one.prompt_id: one.texts for one in tiny_engine.answer(prompts, SETTINGS)}
    backwards = {one.prompt_id: one.texts for one in tiny_engine.answer(prompts[::-1], SETTINGS)}
    alone = {one.prompt_id: one.texts for one in tiny_engine.answer(prompts[1:2], SETTINGS)}

    assert forwards == backwards
    assert alone == {IDS[1]: forwards[IDS[1]]}


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
