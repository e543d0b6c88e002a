"""What sampling costs before anything is drawn: generations, tokens, memory, and time from a measured rate.

Tokens are an upper bound: every answer as long as ``max_new_tokens``. Training, likelihoods and judges are not counted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lethe.io.json_files import read_json

if TYPE_CHECKING:
    from lethe.config.evaluating import Sample
    from lethe.models.in_memory import InMemory, Source

PROMPT_TOKENS = 64  # of a question, assumed for the cache where only the number of questions is known
BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
MEASURED_ANSWERS = 32  # answers that measure the rate, of at most MEASURED_TOKENS tokens each
MEASURED_TOKENS = 32
MOST_MEASURED = 1024  # answers of a second measurement: many answers at once have a higher rate
LONGEST_MEASUREMENT = 60  # seconds that the second measurement may take


@dataclass(frozen=True)
class ModelSize:
    """The size of a checkpoint, as its folder says; an unknown cache is 0."""

    parameters: int
    cache_bytes_per_token: int  # keys and values of one token, at two bytes per number
    stored: str  # dtype of the checkpoint


@dataclass(frozen=True)
class ModelCost:
    """The cost of one entry of ``models``; None where the folder is missing or no rate is known."""

    model: str
    path: str
    parameters: int | None
    weight_bytes: int | None
    cache_bytes_at_most: int | None
    generations: int
    tokens_at_most: int
    tokens_per_second: float | None
    seconds_at_most: float | None


@dataclass(frozen=True)
class Plan:
    """The cost of all entries of ``models``."""

    questions: Mapping[str, int]
    models: tuple[ModelCost, ...]
    rate_from: str

    @property
    def generations(self) -> int:
        """Answers of all models."""
        return sum(model.generations for model in self.models)

    @property
    def tokens_at_most(self) -> int:
        """Tokens of all models."""
        return sum(model.tokens_at_most for model in self.models)

    @property
    def seconds_at_most(self) -> float | None:
        """Seconds of all models, one after the other; None where a model has no rate."""
        seconds = [model.seconds_at_most for model in self.models]
        return None if None in seconds else math.fsum(filter(None, seconds))


def generations(sample: Sample, questions: Mapping[str, int], second: int = 0) -> int:
    """Answers of one model, greedy ones included."""
    utility = sum(min(count, sample.utility_questions) for split, count in questions.items() if split != "forget")
    return questions["forget"] * (sample.most + 1) + utility * (sample.utility_n + 1) + second


def size_of(folder: Path) -> ModelSize | None:
    """The size of the checkpoint in ``folder``; None where there is no checkpoint."""
    from lethe.sampling.loading import parameter_count

    config = folder / "config.json"
    if not config.is_file():
        return None
    told: dict[str, Any] = read_json(config)
    stored = str(told.get("dtype") or told.get("torch_dtype") or "float32")
    return ModelSize(parameter_count(folder), _cache_bytes_per_token(told), stored)


def size_in_memory(start: InMemory) -> ModelSize:
    """The size of the model that a stage will save, from the untrained model that its training starts from."""
    weights = list(start.model.parameters())
    stored = str(weights[0].dtype).removeprefix("torch.")
    told = start.model.config.to_dict()
    return ModelSize(sum(one.numel() for one in weights), _cache_bytes_per_token(told), stored)


def _cache_bytes_per_token(told: Mapping[str, Any]) -> int:
    """Keys and values of one token at two bytes per number, from a checkpoint's configuration."""
    heads = told.get("num_attention_heads") or 1
    width = told.get("head_dim") or (told.get("hidden_size") or 0) // heads
    keys = told.get("num_key_value_heads") or heads
    return 2 * (told.get("num_hidden_layers") or 0) * keys * width * 2


def measured_rate(source: Source, sample: Sample, prompt: str = "What is the capital of Norway?") -> float:
    """Tokens per processor second that an engine draws here, measured on a few answers."""
    from lethe.models.checkpoints import prepare_torch
    from lethe.models.encoding import Encoder
    from lethe.models.in_memory import tokenizer_of
    from lethe.sampling.engine import Options, Prompt, Settings, open_engine

    prepare_torch()
    engine = open_engine(sample.engine, source, Options.from_params(sample))
    asked = [Prompt("rate", Encoder(tokenizer_of(source), sample.prompt).prompt({"question": prompt}))]
    tokens = min(sample.max_new_tokens, MEASURED_TOKENS)
    few = Settings(n=2, max_new_tokens=2, temperature=sample.temperature, seed=sample.seed)
    list(engine.answer(asked, few))  # the first call also compiles and allocates
    rate = 0.0
    for count in (MEASURED_ANSWERS, MOST_MEASURED):
        many = Settings(n=min(sample.most, count), max_new_tokens=tokens, temperature=sample.temperature)
        began = processor_seconds()
        (answers,) = engine.answer(asked, many)
        seconds = processor_seconds() - began
        rate = sum(answers.tokens) / seconds
        if seconds * MOST_MEASURED / MEASURED_ANSWERS > LONGEST_MEASUREMENT:  # a large model
            break
    return rate


def processor_seconds() -> float:
    """Processor seconds of this process, to which other work adds nothing; seconds of the clock where a GPU works."""
    import time

    import torch

    if torch.cuda.is_available():
        torch.cuda.synchronize()
        return time.perf_counter()
    return time.process_time()


def cost(
    name: str,
    path: str,
    sample: Sample,
    questions: Mapping[str, int],
    rate: float | None,
    size: ModelSize | None,
    second: int = 0,
) -> ModelCost:
    """The cost of one model."""
    drawn = generations(sample, questions, second)
    tokens = drawn * sample.max_new_tokens
    dtype = sample.dtype if sample.dtype != "auto" else (size.stored if size else "float32")
    each = BYTES.get(dtype, 4)
    rows = min(sample.max_rows, questions["forget"] * (sample.most + 1))
    positions = rows * (PROMPT_TOKENS + sample.max_new_tokens)
    return ModelCost(
        model=name,
        path=path,
        parameters=size.parameters if size else None,
        weight_bytes=size.parameters * each if size else None,
        cache_bytes_at_most=size.cache_bytes_per_token * each // 2 * positions
        if size and size.cache_bytes_per_token
        else None,
        generations=drawn,
        tokens_at_most=tokens,
        tokens_per_second=rate,
        seconds_at_most=tokens / rate if rate else None,
    )
