"""A key-value cache whose rows can be forked, dropped and filled in while a model goes on decoding.

transformers' dynamic cache is concatenated anew at every step and gathered whole when its rows change. Here the
rows live in slots of a buffer: a step writes one position in place, and a fork copies the one row that forks.
"""

from __future__ import annotations

import torch
from transformers.cache_utils import Cache, DynamicLayer

LENGTH_STEP = 64  # positions by which the buffers grow


class RowLayer(DynamicLayer):
    """One layer: buffers (slots, heads, positions, head size), whose first ``length`` positions are filled."""

    def __init__(self):
        super().__init__()
        self.length = 0

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        self.keys, self.values = (states[:0, :, :0].clone() for states in (key_states, value_states))
        self.dtype, self.device, self.is_initialized = key_states.dtype, key_states.device, True

    def reserve(self, rows: int, length: int) -> None:
        slots, _, positions, _ = self.keys.shape
        if rows <= slots and length <= positions:
            return
        slots = max(slots, 1 << (rows - 1).bit_length())
        positions = max(positions, -(-length // LENGTH_STEP) * LENGTH_STEP)
        self.keys, self.values = (grown(old, slots, positions) for old in (self.keys, self.values))

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *args, **kwargs):
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        rows, end = key_states.shape[0], self.length + key_states.shape[2]
        self.reserve(rows, end)
        self.keys[:rows, :, self.length : end] = key_states
        self.values[:rows, :, self.length : end] = value_states
        self.length = end
        return self.keys[:rows, :, :end], self.values[:rows, :, :end]

    def get_seq_length(self) -> int:
        return self.length

    def copy(self, rows: int, sources: torch.Tensor, targets: torch.Tensor) -> None:
        self.reserve(rows, self.length)
        for buffer in (self.keys, self.values):
            filled = buffer[:, :, : self.length]
            filled.index_copy_(0, targets, filled.index_select(0, sources))

    def fill(self, slot: int, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Put prefilled rows, (rows, heads, positions, head size), into the slots from ``slot`` on."""
        if not self.is_initialized:
            self.lazy_initialization(keys, values)
        rows, positions = keys.shape[0], keys.shape[2]
        self.reserve(slot + rows, positions)
        self.keys[slot : slot + rows, :, :positions] = keys
        self.values[slot : slot + rows, :, :positions] = values


def grown(old: torch.Tensor, slots: int, positions: int) -> torch.Tensor:
    # Zeros, not whatever was there: spare rows take part in the arithmetic, and a stray NaN could trap.
    new = old.new_zeros(slots, old.shape[1], positions, old.shape[3])
    new[: old.shape[0], :, : old.shape[2]] = old
    return new


class RowCache(Cache):
    """What a model takes as ``past_key_values``; layers appear as the model first uses them."""

    def __init__(self):
        super().__init__(layer_class_to_replicate=RowLayer)

    def set_length(self, length: int) -> None:
        for layer in self.layers:
            layer.length = length

    def copy(self, rows: int, sources: torch.Tensor, targets: torch.Tensor) -> None:
        """Make the slots ``targets``, all below ``rows``, equal to ``sources``; no slot may be in both."""
        for layer in self.layers:
            layer.copy(rows, sources, targets)

    def fill(self, slot: int, prefilled: Cache) -> None:
        self.layers += [RowLayer() for _ in range(len(prefilled.layers) - len(self.layers))]
        for layer, source in zip(self.layers, prefilled.layers, strict=True):
            layer.fill(slot, source.keys, source.values)
