"""A key-value cache whose rows can be forked, dropped and filled while a model is decoding.

The dynamic cache of transformers is concatenated at every step and gathered as a whole when its rows change. Here the
rows are slots of a buffer: a step writes one position in place, and a fork copies only the forked row.
"""

from __future__ import annotations

from functools import partial

import torch
from transformers.cache_utils import Cache, DynamicLayer

SPARE_ROWS = 16  # rows that may take part in a step before they are filled


class RowLayer(DynamicLayer):
    """One layer: buffers (slots, heads, positions, head size), whose first ``length`` positions are filled."""

    keys: torch.Tensor
    values: torch.Tensor

    def __init__(self, positions: int):
        super().__init__()
        self.positions, self.length = positions, 0

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        self.dtype, self.device, self.is_initialized = key_states.dtype, key_states.device, True
        self.keys, self.values = (
            states.new_zeros(SPARE_ROWS, states.shape[1], self.positions, states.shape[3])
            for states in (key_states, value_states)
        )

    def reserve(self, rows: int) -> None:
        if rows > len(self.keys):
            slots = 1 << (rows - 1).bit_length()
            self.keys, self.values = grown(self.keys, slots), grown(self.values, slots)

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: object, **kwargs: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        rows, end = key_states.shape[0], self.length + key_states.shape[2]
        self.reserve(rows)
        self.keys[:rows, :, self.length : end] = key_states
        self.values[:rows, :, self.length : end] = value_states
        self.length = end
        return self.keys[:rows, :, :end], self.values[:rows, :, :end]

    def get_seq_length(self) -> int:
        return self.length

    def copy(self, rows: int, sources: torch.Tensor, targets: torch.Tensor) -> None:
        """Make slots equal to others, in this layer."""
        self.reserve(rows)
        for buffer in (self.keys, self.values):
            filled = buffer[:, :, : self.length]
            if buffer.device.type == "cpu":  # NumPy copies these rows in a third of torch's time
                moved = filled.view(torch.uint8).numpy()
                moved[targets.numpy()] = moved[sources.numpy()]
            else:
                filled.index_copy_(0, targets, filled.index_select(0, sources))

    def fill(self, slot: int, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Put prefilled rows into neighbouring slots."""
        if not self.is_initialized:
            self.lazy_initialization(keys, values)
        rows, positions = keys.shape[0], keys.shape[2]
        self.reserve(slot + rows)
        self.keys[slot : slot + rows, :, :positions] = keys
        self.values[slot : slot + rows, :, :positions] = values


def grown(old: torch.Tensor, slots: int) -> torch.Tensor:
    """``old`` extended to ``slots`` slots, the new ones uninitialised."""
    new = old.new_empty(slots, *old.shape[1:])
    new[: len(old)] = old
    return new


class RowCache(Cache):
    """The ``past_key_values`` of a model; ``positions`` is the largest number of tokens per row."""

    layers: list[RowLayer]  # type: ignore[assignment]  # the base class declares a list of any kind of layer

    def __init__(self, positions: int):
        super().__init__(
            layer_class_to_replicate=partial(RowLayer, positions)  # type: ignore[arg-type]  # it is only called
        )
        self.positions = positions

    def set_length(self, length: int) -> None:
        for layer in self.layers:
            layer.length = length

    def copy(self, rows: int, sources: torch.Tensor, targets: torch.Tensor) -> None:
        """Make slots equal to others, in every layer.

        The parameters are those of `RowLayer.copy`.
        """
        for layer in self.layers:
            layer.copy(rows, sources, targets)

    def fill(self, slot: int, prefilled: Cache) -> None:
        self.layers += [RowLayer(self.positions) for _ in range(len(prefilled.layers) - len(self.layers))]
        for layer, source in zip(self.layers, prefilled.layers, strict=True):
            if not isinstance(source, DynamicLayer) or source.keys is None or source.values is None:
                raise TypeError(f"{type(source).__name__} has no keys and values")
            layer.fill(slot, source.keys, source.values)
