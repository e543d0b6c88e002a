"""The work of the sample stage: the rows to ask, one task per split, and the resulting table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lethe.config.evaluating import Drawing, Endpoint
from lethe.io import parts
from lethe.io.artifacts import GREEDY, Row, read_split
from lethe.io.atomic import SCHEMA_VERSION
from lethe.progress import progress
from lethe.sampling.engine import Answers, Engine, Prompt, Settings
from lethe.sampling.store import AnswerStore

if TYPE_CHECKING:
    import pandas as pd

    from lethe.config.evaluating import Model, Sample, Sequential
    from lethe.models.in_memory import Origin


UTILITY_SPLITS = ("retain", "world", "real_authors")
HELDOUT = "heldout"


def chosen(sample: Sample, dataset: Path = Path("data/dataset")) -> dict[str, list[Row]]:
    """The rows to ask: the whole forget set, and up to ``utility_questions`` rows of each other split."""
    rows = {}
    for split in ("forget", *UTILITY_SPLITS):
        if (dataset / f"{split}.jsonl").is_file():
            rows[split] = read_split(split, dataset)
            if split != "forget":
                rows[split] = some(rows[split], sample.utility_questions, sample.seed)
    return rows


def heldout(dataset: Path) -> dict[str, list[Row]]:
    """The held-out rows by split name, empty if the dataset has none; used only for comparison, never asked."""
    return {HELDOUT: read_split(HELDOUT, dataset)} if (dataset / f"{HELDOUT}.jsonl").is_file() else {}


def some(rows: list[Row], count: int, seed: int) -> list[Row]:
    """Some of the rows, drawn at random and kept in file order."""
    picks = np.random.default_rng(seed).permutation(len(rows))[:count]
    return [rows[i] for i in sorted(picks)]


@dataclass(frozen=True)
class Task:
    """The questions of one split, drawn with the same settings."""

    split: str
    prompts: Sequence[Prompt]
    settings: Settings


def tasks(source: Origin, rows: Mapping[str, list[Row]], sample: Sample, model: Model) -> list[Task]:
    """The prompts of each split."""
    prompt = _prompts(source, sample.prompt)
    return [
        Task(split, [prompt(row) for row in asked], settings_of(sample, model, split))
        for split, asked in rows.items()
    ]


def _prompts(source: Origin, template: str) -> Callable[[Row], Prompt]:
    """How a row becomes a prompt: tokens, or text for a server."""
    from lethe.models.encoding import CHAT, Encoder, filled, read_template
    from lethe.models.in_memory import tokenizer_of

    if isinstance(source, Endpoint):
        words = template if template == CHAT else read_template(template)
        return lambda row: Prompt(row["id"], (), text=filled(words, row))
    encoder = Encoder(tokenizer_of(source), template)
    return lambda row: Prompt(row["id"], encoder.prompt(row))


def settings_of(sample: Sample, model: Model, split: str) -> Settings:
    """The sampling settings of one split, from the ``sample`` section and the model's entry of params.yaml."""
    return Settings(
        **{name: getattr(sample, name) for name in Drawing.model_fields},
        n=sample.most if split == "forget" else sample.utility_n,
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
        **(
            {"served": engine.served([(one.prompts, one.settings) for one in work])}
            if hasattr(engine, "served")
            else {}
        ),
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


def draw_sequentially(
    task: Task, items: Mapping[str, Row], engine: Engine, store: AnswerStore, rule: Sequential, label: str
) -> tuple[pd.DataFrame, list[dict]]:
    """`sample.stop: sequential`: the generations of a task, drawn in chunks until each question's verdict, and the decisions.

    A missing judgement counts as 1 against a certificate and as 0 against a leak.
    """
    from lethe.scoring import scorer
    from lethe.statistics.sequential import SequentialTest

    cap = task.settings.n
    tests = {p.prompt_id: SequentialTest(rule.tau, rule.tau_leak, rule.alpha, cap) for p in task.prompts}
    drawn: dict[str, list[Answers]] = {prompt.prompt_id: [] for prompt in task.prompts}
    judge = scorer(rule.scorer)
    for start in progress(range(0, cap, rule.chunk), label, "chunks"):
        active = [prompt for prompt in task.prompts if not tests[prompt.prompt_id].done]
        if not active:
            break
        part = {"n": min(rule.chunk, cap - start), "first_sample": start}
        settings = task.settings.model_copy(update={**part, "greedy": task.settings.greedy and start == 0})
        for answers in store.answer(engine, active, settings):
            drawn[answers.prompt_id].append(answers)
            texts = [text for text, number in zip(answers.texts, answers.samples, strict=True) if number != GREEDY]
            scores = judge(texts, items[answers.prompt_id])
            tests[answers.prompt_id].update(np.nan_to_num(scores, nan=1.0), low=np.nan_to_num(scores, nan=0.0))
    decisions = [{"prompt_id": key, **asdict(test.decision())} for key, test in tests.items()]
    return table_of(part for prompt in task.prompts for part in drawn[prompt.prompt_id]), decisions


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
