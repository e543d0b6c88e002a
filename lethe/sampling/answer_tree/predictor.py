"""Next-token logits of many prefixes that grow together, computed by a transformers model."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Protocol

import numpy as np

from lethe.errors import BadFile
from lethe.models.in_memory import Source
from lethe.sampling.engine import Options
from lethe.sampling.loading import Checkpoint, checkpoint, load
from lethe.sampling.prefix_engine import PREFILL_ROWS, Forward, to_device

if TYPE_CHECKING:
    import torch

FLOAT64_UP_TO = 50_000_000  # the most parameters of a model that is copied to float64 to measure its rounding
SPARE_POSITIONS = 8  # of the buffers, so that they serve prompts of other lengths without being allocated anew
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


def slots(parents: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The slots of the rows' children: (order, sources, targets), i.e. the children by slot and the slots to copy.

    A parent's first child stays in the parent's slot if that slot is below the number of children; no slot is both a source
    and a target.
    """
    children = len(parents)
    _, first = np.unique(parents, return_index=True)
    stays = np.zeros(children, bool)
    stays[first] = True
    stays &= parents < children
    vacant = np.ones(children, bool)
    vacant[parents[stays]] = False
    slot = parents.copy()
    slot[~stays] = targets = np.flatnonzero(vacant)
    return np.argsort(slot), parents[~stays], targets


def measured_allowance(predictor: ModelPredictor, prefix: np.ndarray, seed: int = 0) -> float:
    """The observed error of the logits: measured on random continuations of a prefix, not proved.

    The error is the largest difference between cached steps of one row, cached steps of many rows, whole passes, and
    (for a small model) whole passes in float64; at least `LEAST_ALLOWANCE`. A model in a dtype other than float32 is
    its own reference, because no more exact version exists.

    Parameters
    ----------
    predictor
        The model.
    prefix
        The tokens of one prompt, shape (length,).
    seed
        The seed of the continuations.
    """
    import torch

    random = np.random.default_rng(seed)
    rows, length = 48, 6
    model = predictor.forward.model
    last = (
        {"logits_to_keep": length + 1} if predictor.forward.last_only else {}
    )  # all positions may not fit in memory
    answers = random.integers(predictor.vocabulary, size=(rows, length))
    whole = np.concatenate([np.broadcast_to(prefix, (rows, len(prefix))), answers], axis=1)

    def cached(chosen: np.ndarray) -> np.ndarray:
        predictor.begin(whole[chosen, : len(prefix)], whole.shape[1])
        return np.stack(
            [predictor.step(whole[chosen, len(prefix) - 1 + place]) for place in range(length + 1)], axis=1
        )

    def passes(network: torch.nn.Module) -> np.ndarray:
        ids = torch.from_numpy(whole).to(predictor.forward.device)
        with torch.inference_mode():
            return network(input_ids=ids, **last).logits[:, -length - 1 :].double().cpu().numpy()

    many = cached(np.arange(rows))
    differences = [np.abs(cached(np.array([row])) - many[[row]]).max() for row in range(4)]
    differences.append(np.abs(passes(model) - many).max())
    if model.dtype == torch.float32 and model.num_parameters() <= FLOAT64_UP_TO:
        differences.append(np.abs(passes(copy.deepcopy(model).double()) - many).max())
    return max(LEAST_ALLOWANCE, float(max(differences)))
