"""Memory and time of sampling, known before it starts: the rows that fit, and an estimate from a short pilot."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from lethe.errors import BadValue, plural
from lethe.sampling.engine import Engine, Options, Prompt, Settings
from lethe.sampling.loading import checkpoint
from lethe.sampling.row_budget import APART
from lethe.sampling.store import AnswerStore

if TYPE_CHECKING:
    from lethe.models.in_memory import Source
    from lethe.sampling.tasks import Task

MIB = 1 << 20
PILOTS = (2, 16)  # answers to one question; their times give the cost of a question and that of an answer
WORTH = 1 << 14  # tokens; less work than this ends before an estimate helps


def rows_within(memory: int, source: Source, positions: int, dtype: str) -> int:
    """The rows of so many positions that fit into ``memory`` MiB: a power of two, as the row cache grows by doubling."""
    if memory < 1:
        raise BadValue("memory", memory, "a whole number of MiB from 1")
    row = checkpoint(source, Options(dtype=dtype)).row_bytes(positions)
    return 1 << max(0, (memory * MIB // row).bit_length() - 1)


def forecast(engine: Engine, work: Sequence[Task], store: AnswerStore) -> str | None:
    """The time and the memory of the answers that are missing, in words; None for little work.

    A further answer costs at most what it costs in the pilot, because answers share their first tokens with earlier ones.
    None also for vLLM, whose speed at a few answers says nothing about many.
    """
    missing = {task.split: [one for one in task.prompts if not store.has(one, task.settings)] for task in work}
    counts = {task.split: len(missing[task.split]) * (task.settings.n + task.settings.greedy) for task in work}
    (first, *_) = work
    if sum(counts.values()) * first.settings.max_new_tokens < WORTH or engine.name == "vllm":
        return None
    asked = next(prompts for prompts in missing.values() if prompts)
    begun = time.perf_counter()
    few, many = (_seconds(engine, asked[len(asked) // 2], first.settings, n) for n in PILOTS)
    took = time.perf_counter() - begun
    answer = max(0.0, many - few) / (PILOTS[1] - PILOTS[0])
    question = max(0.0, few - PILOTS[0] * answer)
    seconds = answer * sum(counts.values()) + question * sum(map(len, missing.values()))
    return (
        f"{plural(sum(counts.values()), 'answer')} to draw take at most about {_duration(seconds)} and "
        f"{_peak(engine, max(map(len, (one.token_ids for one in asked))), first.settings, counts) / (1 << 30):.1f} GiB of "
        f"memory (a pilot of {sum(PILOTS)} answers took {_duration(took)})"
    )


def _seconds(engine: Engine, prompt: Prompt, settings: Settings, n: int) -> float:
    """The time of ``n`` answers from a stream of their own, which are discarded."""
    begun = time.perf_counter()
    apart = settings.model_copy(update={"n": n, "first_sample": APART + n, "greedy": False})
    for _ in engine.answer([prompt], apart):
        pass
    return time.perf_counter() - begun


def _peak(engine: Engine, longest: int, settings: Settings, counts: dict[str, int]) -> float:
    """The bytes in use after the pilot, and those of the rows in flight."""
    import resource

    import torch

    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    if torch.cuda.is_available():
        used = torch.cuda.max_memory_allocated()
    described, most = getattr(engine, "checkpoint", None), getattr(engine, "max_rows", 1)
    row = described.row_bytes(longest + settings.max_new_tokens) if described else 0
    return used + row * min(most, sum(counts.values()))


def _duration(seconds: float) -> str:
    for size, unit in ((3600, "h"), (60, "min")):
        if seconds >= 1.5 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{max(1, round(seconds))} s"
