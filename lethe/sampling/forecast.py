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
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lethe.errors import BadValue, plural
from lethe.io.cache import keep
from lethe.models.checkpoints import Source
from lethe.models.model import Model
from lethe.progress import duration, memory_used, tell
from lethe.sampling.endpoint import EndpointEngine
from lethe.sampling.engine import Engine, Options, Prompt, Settings, open_engine
from lethe.sampling.tasks import SplitTask

if TYPE_CHECKING:
    from lethe.sampling.predictor import RowModel

logger = logging.getLogger(__name__)

MIB = 1 << 20
# Answers to one question, whose times give the cost of an answer: fewer cost no more than one.
TIMED = (64, 16)
WORTH_VLLM = 60.0  # seconds of work from which the start of vLLM and the pilot, 20 s, pay
COMPARED = 64  # answers to one question by which two engines are compared
WORTH = 1 << 14  # tokens; less work than this ends before an estimate helps
LEAST, MOST = 1 << 10, 1 << 16  # answers per question of ``auto``
PILOTS = (128, 512)  # answers whose rows are counted
ASKED = 6  # questions of the pilot that counts rows
APART = 1 << 40  # the first sample number of a pilot, which no answer has


def rows_within(memory: int, source: Source, positions: int, dtype: str) -> int:
    """The rows of so many positions that fit into ``memory`` MiB: a power of two, as the row cache grows by doubling.

    Raises
    ------
    BadValue
        If ``memory`` is below 1.
    """
    if memory < 1:
        raise BadValue("memory", memory, "a whole number of MiB from 1")
    row = Model.of(source, dtype=dtype).row_bytes(positions)
    return 1 << max(0, (memory * MIB // row).bit_length() - 1)


@dataclass(frozen=True)
class Forecast:
    """The ``seconds`` that the missing answers take at most, the ``memory`` in bytes, and a ``sentence`` without its stop.

    The seconds are ``per_answer`` of each answer, and ``per_question`` of each question beyond its answers.
    """

    seconds: float
    per_answer: float
    per_question: float
    memory: int
    sentence: str


def forecast(
    engine: Engine, work: Sequence[SplitTask], store: Container[object]
) -> Forecast | None:
    """What the missing answers take; None for little work, and for vLLM, whose speed at a few answers says nothing about
    many. A further answer costs at most what it costs in the pilot, whose first part also prepares the kernels."""
    settings = work[0].settings
    answers = questions = 0
    asked: list[Prompt] = []  # of the first task that lacks any
    for task in work:
        missing = [prompt for prompt in task.prompts if (prompt, task.settings) not in store]
        questions += len(missing)
        answers += len(missing) * (task.settings.n + task.settings.greedy)
        asked = asked or missing
    if answers * settings.max_new_tokens < WORTH or engine.name == "vllm":
        return None

    n_many, n_few = [max(1, min(n, settings.n * n // TIMED[0])) for n in TIMED]
    middle = asked[len(asked) // 2]
    many = _seconds(engine, middle, settings, n_many)
    few = _seconds(engine, middle, settings, n_few)
    per_answer = max(0.0, many - few) / max(1, n_many - n_few)
    per_question = max(0.0, few - n_few * per_answer)
    seconds = per_answer * answers + per_question * questions

    memory = memory_used()
    described = getattr(engine, "checkpoint", None)
    if described:
        positions = max(len(prompt.token_ids) for prompt in asked) + settings.max_new_tokens
        rows = min(getattr(engine, "max_rows", 1), answers)
        memory += described.row_bytes(positions) * rows
    return Forecast(
        seconds,
        per_answer,
        per_question,
        memory,
        f"{plural(answers, 'answer')} to draw take at most about {duration(seconds)} and "
        f"{memory / (1 << 30):.1f} GiB of memory (a pilot of {n_many + n_few} answers took "
        f"{duration(few + many)})",
    )


def announce(engine: Engine, prompts: Sequence[Prompt], settings: Settings) -> None:
    """Say on standard error what the answers to the prompts will take."""
    if isinstance(engine, EndpointEngine):
        tell(f"{engine.plan([(prompts, settings)])}.")
        return
    expected = forecast(engine, [SplitTask("prompts", prompts, settings)], ())
    if expected is not None:
        tell(f"{expected.sentence}.")


def quickest(
    engine: Engine,
    seconds: float,
    source: Path,
    options: Options,
    work: Sequence[SplitTask],
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
    prompts = work[0].prompts
    settings = work[0].settings
    middle = prompts[len(prompts) // 2]
    _pilot(other, [middle], settings, 2)  # its first answers also prepare its kernels
    taken = _seconds(engine, middle, settings, COMPARED)
    taken_by_other = _seconds(other, middle, settings, COMPARED)
    chosen = other if taken_by_other < taken else engine
    chosen.reason = (
        f"{COMPARED} answers of a pilot took {taken:.1f} s by {engine.name} and "
        f"{taken_by_other:.1f} s by {other.name}"
    )
    print(f"The engine {chosen.name} draws: {chosen.reason}.")
    keep(choice, {"engine": chosen.name, "reason": chosen.reason})
    return chosen


def _pilot(engine: Engine, prompts: Sequence[Prompt], settings: Settings, n: int) -> None:
    """Draw and discard ``n`` answers from streams of their own."""
    update = {"n": n, "first_sample": APART + n, "greedy": False}
    for _ in engine.answer(prompts, settings.model_copy(update=update)):
        pass


def _seconds(engine: Engine, prompt: Prompt, settings: Settings, n: int) -> float:
    """The time that ``n`` answers to a prompt take."""
    begun = time.perf_counter()
    _pilot(engine, [prompt], settings, n)
    return time.perf_counter() - begun


def affordable(engine: Engine, prompts: Sequence[Prompt], settings: Settings, budget: int) -> int:
    """How many answers per question fit a budget on average: a power of two; `LEAST` where answers share no rows."""
    forward = getattr(engine, "forward", None)
    if forward is None or not hasattr(forward, "rows"):
        return LEAST
    places = np.unique(np.linspace(0, len(prompts) - 1, ASKED).astype(int))
    chosen = [prompts[place] for place in places]
    few, many = [rows_of(engine, forward, chosen, settings, n) for n in PILOTS]
    return fitting(few, many, budget)


def fitting(few: float, many: float, budget: int) -> int:
    """The power of two whose rows fit, by the power law through the rows of both `PILOTS`."""
    power = max(1e-3, math.log(max(1.0, many / few)) / math.log(PILOTS[1] / PILOTS[0]))
    affordable = math.log2(PILOTS[1]) + math.log2(budget / many) / power
    exponent = math.floor(affordable + 1e-9)
    return min(MOST, max(LEAST, 1 << max(0, exponent)))


def rows_of(
    engine: Engine,
    forward: RowModel,
    prompts: Sequence[Prompt],
    settings: Settings,
    n: int,
) -> float:
    """The mean number of rows per question that ``n`` answers to each take."""
    before = forward.rows
    _pilot(engine, prompts, settings, n)
    return (forward.rows - before) / len(prompts)
