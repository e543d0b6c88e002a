"""`sample.stop: sequential`: draw in chunks, score each chunk, and stop each question at its verdict."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from lethe.io.artifacts import GREEDY
from lethe.progress import progress
from lethe.sampling.engine import Answers, Engine
from lethe.sampling.store import AnswerStore
from lethe.sampling.tasks import Task, table_of
from lethe.scoring import scorer
from lethe.statistics.sequential import SequentialTest

if TYPE_CHECKING:
    import pandas as pd

    from lethe.config.evaluating import Sequential
    from lethe.io.artifacts import Row


def draw_sequentially(
    task: Task, items: Mapping[str, Row], engine: Engine, store: AnswerStore, rule: Sequential, label: str
) -> tuple[pd.DataFrame, list[dict]]:
    """The generations of a task, and one decision per question.

    A missing judgement counts as 1 against a certificate and as 0 against a leak.
    """
    cap = task.settings.n
    tests = {p.prompt_id: SequentialTest(rule.tau, rule.tau_leak, rule.alpha, cap) for p in task.prompts}
    drawn: dict[str, list[Answers]] = {prompt.prompt_id: [] for prompt in task.prompts}
    judge = scorer(rule.scorer)
    for start in progress(range(0, cap, rule.chunk), label, "chunks"):
        active = [prompt for prompt in task.prompts if not tests[prompt.prompt_id].done]
        if not active:
            break
        settings = dataclasses.replace(
            task.settings,
            n=min(rule.chunk, cap - start),
            first_sample=start,
            greedy=task.settings.greedy and start == 0,
        )
        for answers in store.answer(engine, active, settings):
            drawn[answers.prompt_id].append(answers)
            texts = [text for text, number in zip(answers.texts, answers.samples, strict=True) if number != GREEDY]
            scores = judge(texts, items[answers.prompt_id])
            tests[answers.prompt_id].update(np.nan_to_num(scores, nan=1.0), low=np.nan_to_num(scores, nan=0.0))
    decisions = [{"prompt_id": key, **dataclasses.asdict(test.decision())} for key, test in tests.items()]
    return table_of(part for prompt in task.prompts for part in drawn[prompt.prompt_id]), decisions
