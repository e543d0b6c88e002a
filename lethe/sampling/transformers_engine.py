"""The reference engine: `model.generate`, one row per sample."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
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
    Batch,
    Options,
    Prompt,
    Settings,
    answers_of,
    asked_to_watch,
    check_prompts,
)

if TYPE_CHECKING:
    from transformers import PreTrainedModel


PIECE = 32  # rows of a call: at most so many are drawn in vain, as a call of fewer rows draws other answers


@dataclass(frozen=True)
class Generated:
    """The generated tokens of an answer, the end token included, and the mean of their top probabilities in (0, 1]."""

    tokens: tuple[int, ...]
    mean_confidence: float


class TransformersEngine:
    """Calls `generate` for up to `PIECE` answers to one prompt, seeded from the prompt's own stream.

    Every other engine is compared with it: it runs whatever transformers can generate from.
    """

    name = "transformers"
    in_memory = True
    repeatable = False
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
        self.checkpoint = replace(described, end_ids=())
        self.watch = watch
        try:
            for _ in self.answer(asked, settings):
                yield from watch
                watch.clear()
        finally:
            self.checkpoint = described
            self.watch = None

    def whole_model(self) -> PreTrainedModel:
        return self.model

    def with_rows(self, rows: int) -> TransformersEngine:
        """The same engine with at most so many rows in a batch."""
        other = copy.copy(self)
        other.max_rows = rows
        return other

    def _answers(self, prompt: Prompt, settings: Settings) -> Answers:
        """All answers to a prompt: the greedy one, then batch by batch."""
        generated: list[Generated] = []
        if settings.greedy:
            generated += self._generate(prompt, settings, rows=1, seed=0, greedy_row=True)
        for batch in settings.batches():
            generated += self._batch(prompt, settings, batch)

        tokens = [answer.tokens for answer in generated]
        confidences = [answer.mean_confidence for answer in generated]
        reasons = []
        for answer in generated:
            stopped = answer.tokens[-1] in self.checkpoint.end_ids
            reasons.append(STOPPED if stopped else CUT_OFF)
        numbers = settings.sample_numbers()
        return answers_of(self.checkpoint, prompt, numbers, tokens, reasons, confidences)

    def _batch(self, prompt: Prompt, settings: Settings, batch: Batch) -> list[Generated]:
        """The sampled answers of a batch, in pieces.

        Draws of a row depend on the rows beside it, so a piece is always drawn whole, and what was not asked for is left
        out.
        """
        size = min(self.max_rows, settings.batch, PIECE)
        n_pieces = -(-settings.batch // size)
        stream = settings.stream(prompt.prompt_id, batch.first)
        seeds = stream.generate_state(n_pieces, np.uint64)
        answers: list[Generated] = []
        first_piece = batch.start // size
        for piece in range(first_piece, -(-batch.end // size)):
            answers += self._generate(prompt, settings, size, int(seeds[piece]), greedy_row=False)
        skipped = first_piece * size
        return answers[batch.start - skipped : batch.end - skipped]

    def _generate(
        self,
        prompt: Prompt,
        settings: Settings,
        rows: int,
        seed: int,
        greedy_row: bool,
    ) -> list[Generated]:
        """The answer of each row of one call of `generate`, cut after the row's end token.

        Parameters
        ----------
        rows
            The number of answers.
        seed
            Of torch's generator, whose state outside is left as it was.
        greedy_row
            Whether the first row takes the likeliest token of every step.
        """
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

        # (rows,) lengths up to and including the first end token.
        generated = output[:, len(prompt.token_ids) :]
        end_ids = torch.tensor(self.checkpoint.end_ids, dtype=torch.long, device=device)
        ended = torch.isin(generated, end_ids)
        steps = torch.arange(1, generated.shape[1] + 1, device=device)
        lengths = steps.where(ended, generated.shape[1]).amin(1)

        # (rows,) means of the confidence over so many steps.
        sums = torch.stack(processor.confidences, 1).double().cumsum(1)
        means = sums.gather(1, (lengths - 1)[:, None])[:, 0] / lengths

        of_rows = zip(generated.tolist(), lengths.tolist(), means.tolist(), strict=True)
        return [Generated(tuple(tokens[:length]), mean) for tokens, length, mean in of_rows]


class ConfidenceProcessor:
    """Sees the logits of each step of `generate`, before any warper.

    It records the top probabilities, and makes rows greedy: the first if ``greedy_row``, and those whose mean top
    probability so far is above ``threshold``. Where ``watch`` is a list, it takes the steps.
    """

    def __init__(
        self, threshold: float | None, greedy_row: bool, watch: list[EngineStep] | None = None
    ):
        self.threshold = threshold
        self.greedy_row = greedy_row
        self.watch = watch
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
