"""The reference engine: `model.generate`, one row per sample."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from lethe.io.answer_ends import CUT_OFF, STOPPED
from lethe.models.agreement import EngineStep, steps_of
from lethe.models.checkpoints import Source
from lethe.models.model import Model
from lethe.sampling.draws import check_numbers, force_top, top_probability
from lethe.sampling.engine import (
    Answers,
    Options,
    Prompt,
    Settings,
    answers_of,
    asked_to_watch,
    check_prompts,
)

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class TransformersEngine:
    """Calls `generate` for up to ``max_rows`` answers to one prompt, seeded from the prompt's own stream."""

    name = "transformers"
    in_memory = True
    watch: list[EngineStep] | None = None  # takes the steps where there is one

    def __init__(self, source: Source, options: Options):
        self.checkpoint = Model.of(source, options.device, options.dtype)
        self.max_rows = options.max_rows
        self.model = self.checkpoint.load(options.device, options.dtype)

    def answer(self, prompts: Sequence[Prompt], settings: Settings) -> Iterator[Answers]:
        check_prompts(prompts, settings, self.checkpoint.context, self.checkpoint.vocabulary)
        for prompt in prompts:
            yield self._answers(prompt, settings.of(prompt))

    def watched(
        self, prompts: Sequence[tuple[int, ...]], samples: int, tokens: int
    ) -> Iterator[EngineStep]:
        described = self.checkpoint
        watch: list[EngineStep] = []
        asked, settings = asked_to_watch(prompts, samples, tokens)
        self.checkpoint, self.watch = replace(described, end_ids=()), watch
        try:
            for _ in self.answer(asked, settings):
                yield from watch
                watch.clear()
        finally:
            self.checkpoint, self.watch = described, None

    def whole_model(self) -> PreTrainedModel:
        return self.model

    def with_rows(self, rows: int) -> TransformersEngine:
        """The same engine with at most so many rows in a batch."""
        other = copy.copy(self)
        other.max_rows = rows
        return other

    def _answers(self, prompt: Prompt, settings: Settings) -> Answers:
        numbers = settings.sample_numbers()
        starts = range(0, len(numbers), self.max_rows)
        seeds = np.random.SeedSequence.generate_state(
            settings.stream(prompt.prompt_id), len(starts), np.uint64
        )
        ids: list[tuple[int, ...]] = []
        confidences: list[float] = []
        for start, seed in zip(starts, seeds, strict=True):
            rows = min(self.max_rows, len(numbers) - start)
            greedy_row = settings.greedy and start == 0
            generated, means = self._generate(prompt, settings, rows, int(seed), greedy_row)
            ids += generated
            confidences += means
        reasons = []
        for answer in ids:
            stopped = answer[-1] in self.checkpoint.end_ids
            reasons.append(STOPPED if stopped else CUT_OFF)
        return answers_of(self.checkpoint, prompt, numbers, ids, reasons, confidences)

    def _generate(
        self, prompt: Prompt, settings: Settings, rows: int, seed: int, greedy_row: bool
    ) -> tuple[list[tuple[int, ...]], list[float]]:
        """The generated tokens of each row, cut after the row's end token, and the row's mean confidence."""
        from transformers import GenerationConfig, LogitsProcessorList

        device = self.model.device
        processor = ConfidenceProcessor(settings.adaptive_threshold, greedy_row, self.watch)
        inputs = torch.tensor([prompt.token_ids], device=device).expand(rows, -1)
        config = GenerationConfig(
            do_sample=True,
            max_new_tokens=settings.max_new_tokens,
            temperature=settings.temperature,
            top_k=settings.top_k,
            top_p=settings.top_p,
            eos_token_id=list(self.checkpoint.end_ids) or None,
            pad_token_id=0,  # the padding of finished rows is cut off again,
        )
        generators = [device] if device.type == "cuda" else []
        with torch.random.fork_rng(devices=generators), torch.inference_mode():
            torch.manual_seed(seed % 2**63)
            output = self.model.generate(  # type: ignore[operator]  # a causal model has it, its base class does not
                inputs,
                attention_mask=torch.ones_like(inputs),
                generation_config=config,
                logits_processor=LogitsProcessorList([processor]),
            )
        generated = output[:, len(prompt.token_ids) :]
        end_ids = torch.tensor(self.checkpoint.end_ids, dtype=torch.long, device=device)
        ended = torch.isin(generated, end_ids)
        steps = torch.arange(1, generated.shape[1] + 1, device=device)
        # Up to and including the first end token.
        lengths = steps.where(ended, generated.shape[1]).amin(1)
        sums = torch.stack(processor.confidences, 1).double().cumsum(1)
        means = sums.gather(1, (lengths - 1)[:, None])[:, 0] / lengths
        answers = zip(generated.tolist(), lengths.tolist(), strict=True)
        return [tuple(row[:length]) for row, length in answers], means.tolist()


class ConfidenceProcessor:
    """Records confidences before any warper and makes rows greedy: row 0 if ``greedy_row``, and rows above ``threshold``."""

    def __init__(
        self, threshold: float | None, greedy_row: bool, watch: list[EngineStep] | None = None
    ):
        self.threshold, self.greedy_row, self.watch = threshold, greedy_row, watch
        self.confidences: list[torch.Tensor] = []  # one (rows,) tensor per step
        self._sum: torch.Tensor | float = 0.0

    def __call__(self, input_ids: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
        self.confidences.append(check_numbers(top_probability(logits)))
        if self.watch is not None:
            self.watch += steps_of(input_ids, logits)
        self._sum = self._sum + self.confidences[-1]
        greedy = torch.zeros(len(logits), dtype=torch.bool, device=logits.device)
        if self.threshold is not None:
            greedy = self._sum / len(self.confidences) > self.threshold
        if self.greedy_row:
            greedy[0] = True
        return force_top(logits, greedy) if greedy.any() else logits
