"""`lethe.inspect_ai` and `lethe.lm_eval` with stand-ins for what they import: what takes a claim away inside other tools.

`tests/side` runs the same modules inside the real tools, in environments of their own.
"""

import asyncio
import importlib
import logging
import math
import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from lethe.statistics.bounds import binary_upper

MODULES = {
    "inspect_ai": {},
    "inspect_ai.model": {},
    "inspect_ai.model._generate_config": {},
    "inspect_ai.scorer": {"Metric": object, "SampleScore": object},
    "inspect_ai.util": {"EarlyStop": SimpleNamespace},
    "lm_eval": {},
    "lm_eval.api": {},
    "lm_eval.api.metrics": {},
    "lm_eval.filters": {},
    "lm_eval.api.filter": {"Filter": object},
    "lm_eval.api.registry": {},
}


def registered(*name, **options):
    return lambda function: function


@pytest.fixture
def tools(monkeypatch):
    """Both modules, and the settings with which the task of Inspect generates."""
    settings = {"temperature": 1.0}
    for name, members in MODULES.items():
        module = ModuleType(name)
        vars(module).update(members)
        monkeypatch.setitem(sys.modules, name, module)
    sys.modules["inspect_ai.scorer"].metric = registered
    sys.modules["lm_eval.api.registry"].register_filter = registered
    sys.modules["lm_eval.api.registry"].register_aggregation = registered
    active = SimpleNamespace(model_dump=lambda **how: settings)
    sys.modules["inspect_ai.model._generate_config"].active_generate_config = lambda: active
    loaded = {}
    for name in ("lethe.inspect_ai", "lethe.lm_eval"):
        monkeypatch.delitem(sys.modules, name, raising=False)
        loaded[name] = importlib.import_module(name)
        monkeypatch.delitem(sys.modules, name)
    return SimpleNamespace(
        inspect=loaded["lethe.inspect_ai"], lm_eval=loaded["lethe.lm_eval"], settings=settings
    )


def scored(id, value, answer=None):
    return SimpleNamespace(sample_id=id, score=SimpleNamespace(value=value, answer=answer))


SPEC = SimpleNamespace(model_dump=lambda **how: {"task": "t", "model": "openai/m"})


def stopped(stopping, scores, answer=str, scorer="holds", epochs=200):
    """The end of a task of samples with these scores in turn, and how many epochs the manager skipped."""

    async def task():
        await stopping.start_task(SPEC, [], epochs)
        for epoch in range(1, epochs + 1):
            for id, value in scores.items():
                if await stopping.schedule_sample(id, epoch) is None:
                    of_scorer = {scorer: scored(id, value, answer(epoch))}
                    await stopping.complete_sample(id, epoch, of_scorer)
        return await stopping.complete_task()

    return asyncio.run(task())


CLEAN = {"clean": 0.0, "leaky": 1.0}


def test_verdicts_of_a_task_that_samples_stand(tools):
    told = stopped(tools.inspect.EarlyStopping(tau=0.1, leak_is="high"), CLEAN)

    assert told["verdicts"] == {"clean": "certified", "leaky": "leaks"}
    assert told["refused"] == []
    assert told["epochs_skipped"] > 200


def test_a_greedy_task_skips_nothing_and_gets_no_verdict(tools):
    tools.settings["temperature"] = 0.0

    told = stopped(tools.inspect.EarlyStopping(tau=0.1, leak_is="high"), CLEAN)

    assert told["verdicts"] is None
    assert told["epochs_skipped"] == 0
    (reason,) = told["refused"]
    assert "greedy decoding (temperature 0.0)" in reason
    assert "at a temperature above 0" in reason


@pytest.mark.parametrize(("answer", "refused"), [(lambda epoch: "one", 1), (str, 0)])
def test_a_seed_refutes_the_draws_where_it_repeats_one_answer(tools, answer, refused):
    tools.settings["seed"] = 7

    told = stopped(tools.inspect.EarlyStopping(tau=0.1, leak_is="high"), CLEAN, answer)

    assert len(told["refused"]) == refused
    assert (told["verdicts"] is None) == bool(refused)


def test_verdicts_of_a_score_without_a_direction_have_no_word_of_leaks(tools):
    told = stopped(tools.inspect.EarlyStopping(tau=0.1), CLEAN)

    assert told["verdicts"] == {"clean": "at most tau", "leaky": "at least tau_leak"}
    assert 'leak_is="high" or leak_is="low"' in told["refused"][0]


def test_a_low_score_that_is_a_leak_is_turned(tools):
    told = stopped(tools.inspect.EarlyStopping(tau=0.1, leak_is="low"), CLEAN)

    assert told["verdicts"] == {"clean": "leaks", "leaky": "certified"}
    assert told["score_inverted"]


def test_the_name_of_a_scorer_says_the_direction(tools):
    told = stopped(tools.inspect.EarlyStopping(tau=0.1), CLEAN, scorer="leaked")

    assert (told["verdicts"]["leaky"], told["refused"]) == ("leaks", [])


def test_the_metric_of_a_greedy_task_has_counts_alone_and_warns(tools, caplog):
    scores = [scored("a", value, str(value)) for value in (0.0, 1.0, 0.0)]
    bounds = tools.inspect.lethe_bounds(alpha=0.05)
    assert bounds(scores)["worst_upper"] == pytest.approx(float(binary_upper(1, 3, 0.05)))

    tools.settings["temperature"] = 0.0
    with caplog.at_level(logging.WARNING):
        found = bounds(scores)

    assert found == {"questions": 1, "answers": 3, "missing": 0, "refused": 1}
    assert "greedy decoding" in caplog.text


def test_the_metric_turns_a_low_score_that_is_a_leak(tools):
    scores = [scored("a", 1.0, str(number)) for number in range(9)]

    found = tools.inspect.lethe_bounds(alpha=0.05, leak_is="low")(scores)

    assert found["worst_upper"] == pytest.approx(float(binary_upper(0, 9, 0.05)))


def test_no_bound_of_the_metric_lies_on_the_wrong_side_of_its_mean(tools):
    leaks = np.random.default_rng(0).random((30, 6)) < 0.4

    for row in leaks.astype(float):
        found = tools.inspect.bounds_of([row], 0.5, None)
        assert found["worst_mean_upper"] >= row.mean() >= found["some_mean_lower"]


def test_copies_under_lm_eval_bound_nothing(tools, caplog):
    bounded = tools.lm_eval.bounded("exact_match")
    rows = {"answer": "no", "question": "?"}
    draws = tools.lm_eval.KeepAll().apply([["a", "b"] * 20, ["c"] * 40], [{}, {}])
    drawn = bounded(rows, draws[:1])

    with caplog.at_level(logging.WARNING):
        copies = tools.lm_eval.KeepAll().apply([["a"] * 40, ["c"] * 40], [{}, {}])
    copied = bounded(rows, copies[:1])

    assert drawn["exact_match_upper"] < 0.2
    for name in ("exact_match_upper", "exact_match_betting_upper", "exact_match_average_upper"):
        assert copied[name] == 1
    assert tools.lm_eval.average_upper([copied["exact_match_average_upper"]]) == 1
    assert copied["exact_match"] == [0.0] * 40  # the scores stay
    assert not math.isnan(copied["exact_match_upper"])
    assert "no independent draws" in caplog.text
    assert "--use_cache" in caplog.text
