"""Next-token logits of many prefixes that grow together, computed by a transformers model."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from lethe.errors import BadFile
from lethe.models.in_memory import Source
from lethe.sampling.engine import Options
from lethe.sampling.frontier import slots
from lethe.sampling.loading import Checkpoint, checkpoint, load
from lethe.sampling.prefix_engine import PREFILL_ROWS, Forward, to_device

if TYPE_CHECKING:
    import torch

FLOAT64_UP_TO = 50_000_000  # the most parameters of a model that is copied to float64 to measure its rounding
SPARE_POSITIONS = 8  # of the buffers, so that they serve prompts of other lengths without being allocated anew
CONTINUATIONS = 2  # per prompt, on which the error of the logits is measured
SAFETY = 4.0  # the allowance is this multiple of the largest error that was seen
LEAST_ALLOWANCE = 1e-5  # the smallest allowed error of the logits, used where the measured error is smaller


class Predictor(Protocol):
    """Predicts from equally long prefixes, the rows. ``begin`` replaces all rows by new ones, (rows, length) of tokens; the
    first ``step`` reads their last token. ``step`` appends one token to each row and returns logits (rows, V). ``fork``
    makes row ``parents[i]`` the i-th new row and returns ``order``: the new row i represents ``parents[order[i]]``.
    ``most_rows`` is the number of rows that fit in memory.
    """

    vocabulary: int

    def begin(self, prefixes: np.ndarray, positions: int) -> None: ...

    def step(self, tokens: np.ndarray) -> np.ndarray: ...

    def fork(self, parents: np.ndarray) -> np.ndarray: ...

    def most_rows(self) -> int: ...


class NoKeys(BadFile):
    """A model without a key-value cache, such as one with a recurrent state."""

    def __init__(self, source: Source):
        super().__init__(str(source), "exact probabilities need a key-value cache", "Sample from it instead.")


class ModelPredictor:
    """A causal language model with the row cache of the prefix engine.

    ``memory`` bounds the bytes used by the rows of a step: keys, values and probabilities.
    """

    def __init__(self, source: Source, options: Options | None = None, memory: int = 1 << 30):
        from lethe.sampling.row_cache import RowCache

        options = options or Options()
        self.checkpoint: Checkpoint = checkpoint(source)
        self.forward = Forward(load(self.checkpoint, options))
        if not self.forward.keeps_keys():
            raise NoKeys(source)
        self.vocabulary, self.memory, self.limit = self.checkpoint.vocabulary, memory, options.max_rows
        self.dtype = str(self.forward.model.dtype).removeprefix("torch.")
        self.cache, self.positions, self.length = RowCache(0), 0, 0

    def begin(self, prefixes: np.ndarray, positions: int) -> None:
        import torch

        from lethe.sampling.row_cache import RowCache

        if not positions <= self.cache.positions <= positions + 2 * SPARE_POSITIONS:
            self.cache = RowCache(positions + SPARE_POSITIONS)
        self.positions, self.length = positions, prefixes.shape[1] - 1
        with torch.inference_mode():
            for start in range(0, len(prefixes), PREFILL_ROWS) if self.length else ():
                rows = prefixes[start : start + PREFILL_ROWS, :-1]
                self.cache.fill(start, self.forward.prefill(rows))
        self.cache.set_length(self.length)

    def step(self, tokens: np.ndarray) -> np.ndarray:
        import torch

        with torch.inference_mode():
            self.cache.set_length(self.length)
            logits = self.forward.step(tokens, self.cache)
        self.length += 1
        return logits.cpu().numpy()

    def fork(self, parents: np.ndarray) -> np.ndarray:
        import torch

        order, sources, targets = slots(parents)
        if len(targets):
            device = self.forward.device
            with torch.inference_mode():
                self.cache.copy(len(parents), to_device(sources, device), to_device(targets, device))
        return order

    def most_rows(self) -> int:
        from lethe.sampling.row_cache import RowLayer

        needed = 4 * self.vocabulary  # for logits; derived arrays are computed a few rows at a time
        for layer in self.cache.layers:
            if isinstance(layer, RowLayer) and layer.keys is not None:
                _, heads, _, size = layer.keys.shape  # of the buffers' positions only these rows' own count
                needed += 2 * heads * self.positions * size * layer.keys.element_size()
        return max(1, min(self.limit, self.memory // needed))


def measured_allowance(
    predictor: ModelPredictor, prompts: Sequence[np.ndarray], length: int, seed: int = 0
) -> float:
    """The observed error of the logits times `SAFETY`: measured on continuations that the model itself draws, not proved.

    The error is the largest difference between cached steps, whole passes, and (for a small model) whole passes in
    float64, at every token of `CONTINUATIONS` answers to each prompt; for the first prompt also between cached steps of
    one row and of many. The allowance is at least `LEAST_ALLOWANCE`. A model in a dtype other than float32 is its own
    reference, because no more exact version exists.
    """
    import torch

    random, model = np.random.default_rng(seed), predictor.forward.model
    exactly = model.dtype == torch.float32 and model.num_parameters() <= FLOAT64_UP_TO
    references = [model, *([copy.deepcopy(model).double()] if exactly else [])]
    errors = []
    for place, prompt in enumerate(prompts):
        whole, many = _drawn(predictor, prompt, length, random)
        for row in range(CONTINUATIONS):  # a row at a time: all logits may not fit in memory in float64
            own = whole[[row]]
            others = [_passed(predictor, one, own, length) for one in references]
            others += [_stepped(predictor, own, length)] if place == 0 else []
            errors += [float(np.abs(other - many[[row]]).max()) for other in others]
    return max(LEAST_ALLOWANCE, SAFETY * max(errors))


def _drawn(
    predictor: ModelPredictor, prompt: np.ndarray, length: int, random: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """(CONTINUATIONS, all tokens) drawn from the model, and (CONTINUATIONS, length, vocabulary) the logits of each step."""
    rows = np.tile(prompt, (CONTINUATIONS, 1))  # a copy, which torch may write to
    predictor.begin(rows, len(prompt) + length)
    tokens, logits = [rows], []
    for _ in range(length):
        logits.append(predictor.step(tokens[-1][:, -1]))
        heights = np.exp(logits[-1] - logits[-1].max(axis=1, keepdims=True)).cumsum(axis=1)
        thresholds = random.random((len(heights), 1)) * heights[:, -1:]
        tokens.append((heights <= thresholds).sum(axis=1)[:, None])
    return np.concatenate(tokens, axis=1), np.stack(logits, axis=1)


def _stepped(predictor: ModelPredictor, whole: np.ndarray, length: int) -> np.ndarray:
    """(rows, length, vocabulary) the logits of given tokens, step by step."""
    start = whole.shape[1] - length
    predictor.begin(whole[:, :start], whole.shape[1])
    return np.stack([predictor.step(whole[:, start - 1 + place]) for place in range(length)], axis=1)


def _passed(predictor: ModelPredictor, network: torch.nn.Module, whole: np.ndarray, length: int) -> np.ndarray:
    """(rows, length, vocabulary) the logits of given tokens in one pass."""
    import torch

    # all positions may not fit in memory
    last = {"logits_to_keep": length + 1} if predictor.forward.last_only else {}
    ids = torch.from_numpy(whole).to(predictor.forward.device)
    with torch.inference_mode():
        return network(input_ids=ids, **last).logits[:, -length - 1 : -1].double().cpu().numpy()
