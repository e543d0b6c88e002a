"""Rows of a key-value cache that are copied and kept, against the naive way."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from lethe.sampling.predictor import ModelPredictor, RowCache, RowLayer


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("length", [0, 1, 7])
def test_a_copy_is_a_loop_over_the_rows(dtype, length):
    rows, heads, positions, size = 9, 2, 7, 3
    keys, values = torch.randn(2, rows, heads, positions, size).to(dtype)
    layer = RowLayer(positions)
    layer.fill(0, keys, values)
    layer.length = length
    sources, targets = torch.tensor([0, 3, 3, 8]), torch.tensor([1, 2, 7, 5])
    layer.copy(rows, sources, targets)
    for source, target in zip(sources.tolist(), targets.tolist(), strict=True):
        keys[target, :, :length] = keys[source, :, :length]
        values[target, :, :length] = values[source, :, :length]
    assert torch.equal(layer.keys[:rows], keys)
    assert torch.equal(layer.values[:rows], values)


def test_kept_buffers_change_no_bit(tiny_model):
    """Prompts of several lengths, one after the other, in the buffers of the first and in buffers of their own."""
    kept, random, buffers, room = ModelPredictor(tiny_model, memory=40_000), np.random.default_rng(0), [], []
    for length in (9, 4, 6, 1, 14):
        fresh = ModelPredictor(tiny_model, memory=40_000)
        prefixes, parents = random.integers(5, size=(3, length)), np.array([0, 0, 1, 1, 1, 2])
        tokens = random.integers(5, size=6)
        for predictor in (kept, fresh):
            predictor.begin(prefixes, length + 3)
        first = [predictor.step(prefixes[:, -1]) for predictor in (kept, fresh)]
        orders = [predictor.fork(parents) for predictor in (kept, fresh)]
        second = [predictor.step(tokens) for predictor in (kept, fresh)]
        assert np.array_equal(*first)
        assert np.array_equal(*orders)
        assert np.array_equal(*second)
        buffers.append(kept.cache)
        room.append((kept.most_rows(), fresh.most_rows()))
    assert len({id(buffer) for buffer in buffers}) < len(buffers)  # some were kept
    assert all(own == other for own, other in room)  # the rows that fit do not depend on what came before
    assert isinstance(kept.cache, RowCache)
