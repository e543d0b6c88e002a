"""The work of the sample stage: one task per split, the number of answers per question, and the resulting table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lethe.io import parts
from lethe.io.atomic import SCHEMA_VERSION
from lethe.progress import progress
from lethe.sampling.engine import Answers, Engine, Prompt, Settings
from lethe.sampling.store import AnswerStore

if TYPE_CHECKING:
    import pandas as pd

    from lethe.config.evaluating import Model, Sample
    from lethe.io.artifacts import Row
    from lethe.models.in_memory import Source


@dataclass(frozen=True)
class Task:
    """The questions of one split, drawn with the same settings."""

    split: str
    prompts: Sequence[Prompt]
    settings: Settings


def tasks(source: Source, rows: Mapping[str, list[Row]], sample: Sample, model: Model) -> list[Task]:
    """The prompts of each split."""
    from lethe.models.encoding import Encoder
    from lethe.models.in_memory import tokenizer_of

    encoder = Encoder(tokenizer_of(source), sample.prompt)
    return [
        Task(split, [Prompt(row["id"], encoder.prompt(row)) for row in asked], settings_of(sample, model, split))
        for split, asked in rows.items()
    ]


def settings_of(sample: Sample, model: Model, split: str) -> Settings:
    """The sampling settings of one split, from the ``sample`` section and the model's entry of params.yaml."""
    return Settings(
        n=sample.most if split == "forget" else sample.utility_n,
        max_new_tokens=sample.max_new_tokens,
        temperature=sample.temperature,
        top_p=sample.top_p,
        top_k=sample.top_k,
        adaptive_threshold=model.adaptive_threshold,
        seed=sample.seed,
    )


def about(work: Sequence[Task], engine: Engine, sample: Sample, model: Model) -> dict:
    """The metadata of the generations: the engine, its settings and the numbers of answers."""
    return {
        "schema": SCHEMA_VERSION,
        "engine": engine.name,
        "engine_reason": getattr(engine, "reason", f"sample.engine is {sample.engine}"),
        "temperature": sample.temperature,
        "top_p": sample.top_p,
        "top_k": sample.top_k,
        "adaptive_threshold": model.adaptive_threshold,
        "max_new_tokens": sample.max_new_tokens,
        "seed": sample.seed,
        "stop": sample.stop,
        "splits": {task.split: {"questions": len(task.prompts), "n": task.settings.n} for task in work},
    }


def draw(task: Task, engine: Engine, store: AnswerStore, label: str) -> pd.DataFrame:
    """The generations table of a task, rows in the order of its prompts and samples."""
    import pandas as pd

    draw_into(store, task, engine, label)
    return pd.concat(drawn_parts(store, task), ignore_index=True)


def draw_into(store: AnswerStore, task: Task, engine: Engine, label: str) -> None:
    """Have the answers of a task in the store; memory holds those of one question."""
    for _ in progress(store.answer(engine, task.prompts, task.settings), label, "questions", len(task.prompts)):
        pass


def drawn_parts(store: AnswerStore, task: Task) -> Iterator[pd.DataFrame]:
    """The stored generations of a task in the order of its prompts and samples: parts as of `lethe.io.parts`."""
    part: list[Answers] = []
    for prompt in task.prompts:
        answers = store.stored(prompt, task.settings)
        if part and sum(len(own.samples) for own in part) + len(answers.samples) > parts.ROWS:
            yield table_of(part)
            part = []
        part.append(answers)
    if part:
        yield table_of(part)


def table_of(answers: Iterable[Answers]) -> pd.DataFrame:
    """Answers as the rows of a generations file, in the given order."""
    import pandas as pd

    frames = [
        pd.DataFrame(
            {
                "prompt_id": answer.prompt_id,
                "sample": np.asarray(answer.samples, dtype=np.int32),
                "text": answer.texts,
                "tokens": np.asarray(answer.tokens, dtype=np.int32),
                "finish_reason": answer.finish_reasons,
                "mean_confidence": np.asarray(answer.mean_confidences, dtype=np.float64),
            }
        )
        for answer in answers
    ]
    return pd.concat(frames, ignore_index=True)
