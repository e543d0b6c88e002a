"""How many answers a row budget buys: ``sample.n: auto``.

Answers that agree so far share a row, so rows grow more slowly than answers. A pilot draws answers to a few questions from
its own stream and counts rows; a power law gives the number of answers that spends the budget. The number is fixed before
any answer of the sample is drawn and does not depend on a score, so every bound at this n keeps its level.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from lethe.sampling.engine import Engine, Prompt, Settings
from lethe.sampling.prefix_engine import PrefixEngine

LEAST, MOST = 1 << 10, 1 << 16  # answers per question
PILOTS = (128, 512)
ASKED = 6  # questions of the pilot
APART = 1 << 40  # the first sample number of a pilot, which no answer has


def affordable(engine: Engine, prompts: Sequence[Prompt], settings: Settings, budget: int) -> int:
    """How many answers per question fit a budget on average: a power of two, `LEAST` to `MOST`.

    An engine whose answers share no rows gets `LEAST`.
    """
    if not isinstance(engine, PrefixEngine):
        return LEAST
    chosen = [prompts[place] for place in np.unique(np.linspace(0, len(prompts) - 1, ASKED).astype(int))]
    few, many = (rows_of(engine, chosen, settings, n) for n in PILOTS)
    return fitting(few, many, budget)


def fitting(few: float, many: float, budget: int) -> int:
    """The power of two whose rows fit, by the power law through the rows of both `PILOTS`.

    Examples
    --------
    >>> fitting(100, 200, budget=1600), fitting(100, 400, budget=1600), fitting(20, 20, budget=1600)
    (32768, 2048, 65536)
    """
    power = max(1e-3, math.log(max(1.0, many / few)) / math.log(PILOTS[1] / PILOTS[0]))
    most = math.log2(PILOTS[1]) + math.log2(budget / many) / power
    return 1 << int(min(math.log2(MOST), max(math.log2(LEAST), math.floor(most + 1e-9))))


def rows_of(engine: PrefixEngine, prompts: Sequence[Prompt], settings: Settings, n: int) -> float:
    """The mean number of rows per question; the answers are discarded."""
    before = engine.forward.rows
    for _ in engine.answer(
        prompts, settings.model_copy(update={"n": n, "first_sample": APART + n, "greedy": False})
    ):
        pass
    return (engine.forward.rows - before) / len(prompts)
