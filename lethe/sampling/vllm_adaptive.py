"""Adaptive temperature inside vLLM: vLLM's engine process imports the class, so it has its own module."""

from collections import OrderedDict

import torch
from vllm.config import VllmConfig
from vllm.v1.sample.logits_processor import BatchUpdate, LogitsProcessor, MoveDirectionality

from lethe.sampling.draws import force_top, top_probability

THRESHOLD = "adaptive_threshold"  # key of the request's extra arguments
# Requests outside the batch that may return: vLLM preempts when its cache is full.
REMEMBERED = 4096


class Sequence:
    """One request: its threshold, the tokens it has so far, and the top probability of each of its steps."""

    def __init__(self, threshold: float, tokens: list[int], confidences: list[float]):
        self.threshold = threshold
        self.tokens = tokens
        self.confidences = confidences

    def is_sure(self, top_probability: float) -> bool:
        """Whether the mean top probability, that of this step included, exceeds the threshold."""
        # The tokens give the step's number: while a prompt is read in parts, its step occurs repeatedly.
        step = len(self.tokens)
        self.confidences[step:] = [top_probability]
        return sum(self.confidences) / len(self.confidences) > self.threshold


class AdaptiveTemperature(LogitsProcessor):
    """Tracks every sequence in vLLM's batch, whose rows appear, disappear and move between steps."""

    def __init__(self, vllm_config: VllmConfig, device: torch.device, is_pin_memory: bool):
        self.sequences: dict[int, Sequence] = {}  # row of the batch -> its sequence
        self.confidences = OrderedDict[int, list[float]]()  # seed of a request -> its history

    def is_argmax_invariant(self) -> bool:
        return False  # the processor then receives raw logits, before the temperature

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        """Follow the rows of the batch, as vLLM tells before each step: those that left, came, and moved."""
        if batch_update is None:
            return
        for row in batch_update.removed:
            self.sequences.pop(row, None)
        for row, params, _, tokens in batch_update.added:
            threshold = (params.extra_args or {}).get(THRESHOLD)
            if threshold is None:
                self.sequences.pop(row, None)
            else:
                self.sequences[row] = Sequence(threshold, tokens, self._history(params.seed))
        for source, target, direction in batch_update.moved:
            moving = self.sequences.pop(source, None)
            displaced = self.sequences.pop(target, None)
            if moving is not None:
                self.sequences[target] = moving
            if displaced is not None and direction == MoveDirectionality.SWAP:
                self.sequences[source] = displaced

    def _history(self, seed: int) -> list[float]:
        """The top probabilities of a request so far, also where vLLM had put it off; the oldest histories are forgotten."""
        history = self.confidences.setdefault(seed, [])
        self.confidences.move_to_end(seed)
        if len(self.confidences) > REMEMBERED + len(self.sequences):
            self.confidences.popitem(last=False)
        return history

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        """The logits (rows, V), of which sure rows keep the likeliest token alone."""
        if not self.sequences:
            return logits
        top = top_probability(logits).tolist()
        sure = [False] * len(top)
        for row, sequence in self.sequences.items():
            if row < len(top):
                sure[row] = sequence.is_sure(top[row])
        return force_top(logits, torch.tensor(sure, device=logits.device))
