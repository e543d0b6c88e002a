"""Memory and time of sampling, known before it starts: the rows that fit, a pilot's estimate, and ``sample.n: auto``.

Answers that agree so far share a row, so rows grow more slowly than answers. For ``auto``, a pilot counts the rows of a
few questions, and a power law gives the number of answers that spends the row budget. That number is fixed before any
answer of the sample is drawn and does not depend on a score, so every bound keeps its level.
"""

from __future__ import annotations

import importlib.util
import logging
import math
import time
from collections.abc import Container, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lethe.errors import BadValue, plural
from lethe.io.cache import keep
from lethe.models.checkpoints import Source
from lethe.progress import duration, memory_used, tell
from lethe.sampling.endpoint import EndpointEngine
from lethe.sampling.engine import Engine, Options, Prompt, Settings, checkpoint, open_engine
from lethe.sampling.tasks import Task

if TYPE_CHECKING:
    from lethe.sampling.predictor import Forward

logger = logging.getLogger(__name__)

MIB = 1 << 20
TIMED = (
    64,
    16,
)  # answers to one question, whose times give the cost of an answer: fewer cost no more than one
WORTH_VLLM = 60.0  # seconds of work from which the start of vLLM and the pilot, 20 s, pay
COMPARED = 64  # answers to one question by which two engines are compared
WORTH = 1 << 14  # tokens; less work than this ends before an estimate helps
LEAST, MOST = 1 << 10, 1 << 16  # answers per question of ``auto``
PILOTS = (128, 512)  # answers whose rows are counted
ASKED = 6  # questions of the pilot that counts rows
APART = 1 << 40  # the first sample number of a pilot, which no answer has


def rows_within(memory: int, source: Source, positions: int, dtype: str) -> int:
    """The rows of so many positions that fit into ``memory`` MiB: a power of two, as the row cache grows by doubling."""
    if memory < 1:
        raise BadValue("memory", memory, "a whole number of MiB from 1")
    row = checkpoint(source, Options(dtype=dtype)).row_bytes(positions)
    return 1 << max(0, (memory * MIB // row).bit_length() - 1)


def forecast(
    engine: Engine, work: Sequence[Task], store: Container[object]
) -> tuple[float, str] | None:
    """The seconds of the answers that are missing, and these with the memory in words; None for little work, and for
    vLLM, whose speed at a few answers says nothing about many. A further answer costs at most what it costs in the
    pilot, whose first part also prepares the kernels."""
    settings = work[0].settings
    missing = {
        task.split: [one for one in task.prompts if (one, task.settings) not in store]
        for task in work
    }
    answers = sum(
        len(missing[task.split]) * (task.settings.n + task.settings.greedy) for task in work
    )
    if answers * settings.max_new_tokens < WORTH or engine.name == "vllm":
        return None
    asked = next(prompts for prompts in missing.values() if prompts)
    drawn = [max(1, min(n, settings.n * n // TIMED[0])) for n in TIMED]
    many, few = (_seconds(engine, asked[len(asked) // 2], settings, n) for n in drawn)
    answer = max(0.0, many - few) / max(1, drawn[0] - drawn[1])
    question = max(0.0, few - drawn[1] * answer)
    seconds = answer * answers + question * sum(map(len, missing.values()))
    positions = max(len(one.token_ids) for one in asked) + settings.max_new_tokens
    described = getattr(engine, "checkpoint", None)
    row = described.row_bytes(positions) if described else 0
    memory = memory_used() + row * min(getattr(engine, "max_rows", 1), answers)
    return seconds, (
        f"{plural(answers, 'answer')} to draw take at most about {duration(seconds)} and "
        f"{memory / (1 << 30):.1f} GiB of memory (a pilot of {sum(drawn)} answers took "
        f"{duration(few + many)})"
    )


def announce(engine: Engine, prompts: Sequence[Prompt], settings: Settings) -> None:
    """Say on standard error what the answers to the prompts will take."""
    if isinstance(engine, EndpointEngine):
        tell(f"{engine.plan([(prompts, settings)])}.")
    elif expected := forecast(engine, [Task("prompts", prompts, settings)], ()):
        tell(f"{expected[1]}.")


def quickest(
    engine: Engine,
    seconds: float,
    source: Path,
    options: Options,
    work: Sequence[Task],
    choice: Path,
) -> Engine:
    """The engine that draws a pilot sooner; ``choice`` keeps its name, as engines draw other answers from one seed."""
    if seconds < WORTH_VLLM or importlib.util.find_spec("vllm") is None:
        return engine
    try:
        other = open_engine("vllm", source, options)
    except Exception as error:  # whatever vLLM lacks here, the first engine has it
        logger.warning("vLLM does not start (%s): the %s engine draws", error, engine.name)
        return engine
    asked, settings = work[0].prompts[len(work[0].prompts) // 2], work[0].settings
    _pilot(other, [asked], settings, 2)  # its first answers also prepare its kernels
    times = {one.name: _seconds(one, asked, settings, COMPARED) for one in (engine, other)}
    chosen = min((engine, other), key=lambda one: times[one.name])
    taken = " and ".join(f"{time:.1f} s by {name}" for name, time in times.items())
    chosen.reason = f"{COMPARED} answers of a pilot took {taken}"
    print(f"The engine {chosen.name} draws: {chosen.reason}.")
    keep(choice, {"engine": chosen.name, "reason": chosen.reason})
    return chosen


def _pilot(engine: Engine, prompts: Sequence[Prompt], settings: Settings, n: int) -> None:
    """Draw and discard ``n`` answers from streams of their own."""
    for _ in engine.answer(
        prompts, settings.model_copy(update={"n": n, "first_sample": APART + n, "greedy": False})
    ):
        pass


def _seconds(engine: Engine, prompt: Prompt, settings: Settings, n: int) -> float:
    begun = time.perf_counter()
    _pilot(engine, [prompt], settings, n)
    return time.perf_counter() - begun


def affordable(engine: Engine, prompts: Sequence[Prompt], settings: Settings, budget: int) -> int:
    """How many answers per question fit a budget on average: a power of two; `LEAST` where answers share no rows."""
    forward = getattr(engine, "forward", None)
    if forward is None or not hasattr(forward, "rows"):
        return LEAST
    chosen = [
        prompts[place] for place in np.unique(np.linspace(0, len(prompts) - 1, ASKED).astype(int))
    ]
    few, many = (rows_of(engine, forward, chosen, settings, n) for n in PILOTS)
    return fitting(few, many, budget)


def fitting(few: float, many: float, budget: int) -> int:
    """The power of two whose rows fit, by the power law through the rows of both `PILOTS`."""
    power = max(1e-3, math.log(max(1.0, many / few)) / math.log(PILOTS[1] / PILOTS[0]))
    most = math.log2(PILOTS[1]) + math.log2(budget / many) / power
    return 1 << int(min(math.log2(MOST), max(math.log2(LEAST), math.floor(most + 1e-9))))


def rows_of(
    engine: Engine, forward: Forward, prompts: Sequence[Prompt], settings: Settings, n: int
) -> float:
    """The mean number of rows per question that ``n`` answers to each take."""
    before = forward.rows
    _pilot(engine, prompts, settings, n)
    return (forward.rows - before) / len(prompts)
