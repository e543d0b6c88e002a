"""The stages of the benchmark `gpu` that decide something: what begins in time, and what a batch changes."""

import itertools
import time
import types

from lethe.sampling.engine import Options, Prompt, Settings, open_engine
from tests.benchmarks.gpu import Measured, same_alone_and_together, until

PROMPTS = [Prompt("a", (2, 3)), Prompt("b", (4,))]
SETTINGS = Settings(n=4, max_new_tokens=3, seed=0, greedy=False)


def test_no_stage_begins_after_the_deadline(capsys):
    begun = []

    def stages():
        for number in itertools.count():
            begun.append(number)
            time.sleep(0.05)
            yield Measured(str(number), 1.0, 1, 1.0)

    done = until(time.monotonic() + 0.12, stages())

    assert 1 <= len(done) == len(begun) <= 3
    assert "was not run" in capsys.readouterr().err


def test_stages_that_end_in_time_are_all_there(capsys):
    stages = [Measured("first", 1.0, 1, 1.0), Measured("second", 1.0, 1, 1.0)]

    assert until(time.monotonic() + 60, iter(stages)) == stages
    assert capsys.readouterr().err == ""


def test_answers_of_the_prefix_engine_are_the_same_alone_and_beside_others(tiny_model):
    engine = open_engine("prefix", tiny_model, Options(device="cpu"))

    share, tokens = same_alone_and_together(engine, PROMPTS, SETTINGS)

    assert share == 1
    assert tokens > 0


def test_answers_that_depend_on_the_batch_are_counted():
    def answer(prompts, settings):
        for prompt in prompts:
            texts = ["same", str(len(prompts))]
            yield types.SimpleNamespace(prompt_id=prompt.prompt_id, texts=texts, tokens=[1, 1])

    share, _ = same_alone_and_together(types.SimpleNamespace(answer=answer), PROMPTS, SETTINGS)

    assert share == 0.5
