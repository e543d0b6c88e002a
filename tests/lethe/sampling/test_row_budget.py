"""`sample.n: auto`: the rows are counted as drawn, the number fits the budget, and the pilot changes no answer."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lethe.config.evaluating import MOST_DRAWN
from lethe.sampling.engine import Options, Prompt, Settings
from lethe.sampling.forecast import LEAST, MOST, PILOTS, affordable, fitting, rows_of
from lethe.sampling.prefix_engine import PrefixEngine

PROMPTS = [Prompt("one", (0, 1, 2)), Prompt("two", (3,))]
HOW = Settings(n=8, max_new_tokens=4)


@given(st.floats(1, 1e5), st.floats(1, 4), st.integers(1, 10**9))
def test_the_number_is_the_largest_power_of_two_that_the_power_law_affords(few, growth, budget):
    n = fitting(few, few * growth, budget)
    assert LEAST <= n <= MOST == MOST_DRAWN
    assert n & (n - 1) == 0

    if growth > 1.05:
        power = math.log(growth) / math.log(PILOTS[1] / PILOTS[0])
        taken = [few * growth * (m / PILOTS[1]) ** power for m in (n, 2 * n)]
        assert n == LEAST or taken[0] <= budget * (1 + 1e-6)
        assert n == MOST or taken[1] > budget * (1 - 1e-6)


@pytest.fixture(scope="module")
def engine(tiny_model) -> PrefixEngine:
    return PrefixEngine(tiny_model, Options())


def test_rows_are_those_that_go_through_the_model(engine, monkeypatch):
    seen, step = [], engine.forward.step
    monkeypatch.setattr(
        type(engine.forward), "step", lambda self, tokens, cache: seen.append(len(tokens)) or step(tokens, cache)
    )
    assert rows_of(engine, PROMPTS, HOW, 50) == sum(seen) / 2
    assert rows_of(engine, PROMPTS, HOW, 200) > rows_of(engine, PROMPTS, HOW, 20)


def test_a_larger_budget_never_draws_less_and_the_pilot_leaves_the_answers_alone(engine):
    before = list(engine.answer(PROMPTS, HOW))
    found = [affordable(engine, PROMPTS, HOW, budget) for budget in (1, 1000, 10**9)]
    assert found == sorted(found)
    assert (found[0], found[-1]) == (LEAST, MOST)
    assert list(engine.answer(PROMPTS, HOW)) == before


def test_an_engine_without_shared_rows_draws_the_least():
    assert affordable(object(), PROMPTS, HOW, 10**9) == LEAST  # type: ignore[arg-type]
