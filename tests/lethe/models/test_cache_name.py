"""The name of a model's cache of earlier tokens, which transformers renames."""

import pytest
import torch

from lethe.models.checkpoints import cache_name


class Newer(torch.nn.Module):
    def forward(self, input_ids, cache=None):
        return cache


class Older(torch.nn.Module):
    def forward(self, input_ids, past_key_values=None):
        return past_key_values


@pytest.mark.parametrize(("model", "name"), [(Newer(), "cache"), (Older(), "past_key_values")])
def test_the_cache_has_the_name_that_the_model_takes(model, name):
    assert cache_name(model) == name
    assert model(None, **{cache_name(model): 1}) == 1
