"""Quantisation by torchao's own kernels agrees with the simulated rounding; `torchao` of the benchmarks runs these
with torchao.

torchao's grid is symmetric too, but its scale maps the largest magnitude to half a step above the format's largest number.
The twin below is that grid in plain arithmetic.
"""

import copy

import pytest
import torch

from lethe.attacks.kinds.weights import PER_ROW, on_grid
from lethe.attacks.protocol import Knowledge, linear_weights
from lethe.registry import MODEL_ATTACKS
from tests.lethe.small_checkpoint import small_model

FORMATS = (8, 4, 3, 2)
GROUP = 16


@pytest.fixture(scope="module")
def tiny():
    texts = ["Who is Ada? Ada is a painter.", "Where is Bo? Bo is at sea."]
    return small_model(texts, hidden=32, layers=2, feed_forward=48, context=128)


def attacked(model, rounding, bits=FORMATS, group=GROUP):
    """Budget to the attacked model, one copy each."""
    member = MODEL_ATTACKS["quantise"]
    own = {"kind": "quantise", "bits": list(bits), "group": group, "rounding": rounding}
    found = member(member.Params.model_validate(own)).attacked(
        copy.deepcopy(model), Knowledge([], [], None, 0), 0
    )
    return {int(budget): copy.deepcopy(one) for budget, one in found}


def plain(weights):
    """The weights as ordinary numbers, whatever holds them."""
    return weights.dequantize().float() if hasattr(weights, "dequantize") else weights


def twin(weights, bits, group):
    """torchao's grid: the scale is the largest magnitude over 2 ** (bits - 1) - 1/2."""
    rows = weights.reshape(-1, group)
    scale = rows.abs().amax(-1, keepdim=True) / (2 ** (bits - 1) - 0.5)
    return ((rows / scale).round().clamp(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) * scale).view_as(
        weights
    )


def widths(bits, weights):
    return weights.shape[-1] if bits >= PER_ROW else GROUP


def test_the_weights_are_on_torchaos_grid_and_within_a_step_of_the_simulated_one(tiny):
    model = tiny[0]
    before = [one.detach().clone() for one in linear_weights(model)]
    simulated, own = attacked(model, "simulated"), attacked(model, "torchao")
    assert list(own) == list(simulated) == [32 - bits for bits in FORMATS]
    for budget, quantised in own.items():
        bits = 32 - budget
        for weights, old, rounded in zip(
            linear_weights(quantised), before, linear_weights(simulated[budget]), strict=True
        ):
            group = widths(bits, old)
            assert (
                type(weights.data) is not torch.Tensor
            )  # torchao holds integers, not rounded floats
            rows = old.reshape(-1, group)
            most = rows.abs().amax(-1, keepdim=True)
            off = (plain(weights) - twin(old, bits, group)).abs().reshape(-1, group)
            assert bool((off[rows.abs() < most] < 1e-6).all())
            # The largest magnitude is half a step from two numbers of the format by construction: either may come out.
            assert bool((off <= 1.001 * most / (2 ** (bits - 1) - 0.5)).all())
            apart = (plain(weights) - rounded).abs().reshape(-1, group)
            assert bool((apart <= 1.001 * most / (2 ** (bits - 1) - 1)).all())
            assert torch.equal(rounded, on_grid(old, bits, group))
    for one, old in zip(linear_weights(model), before, strict=True):
        assert torch.equal(one, old)  # each format starts from the same weights


@pytest.mark.parametrize("bits", FORMATS)
def test_the_kernels_give_the_logits_of_the_same_weights_in_float32(tiny, bits):
    """Only the grid differs from the simulation: a model with torchao's weights in float32 gives the same logits."""
    model = tiny[0]
    (quantised,) = attacked(model, "torchao", [bits]).values()
    same = copy.deepcopy(model)
    with torch.no_grad():
        for one, weights in zip(linear_weights(same), linear_weights(quantised), strict=True):
            one.copy_(plain(weights))
    ids = torch.arange(24).view(2, 12)
    with torch.inference_mode():
        expected, found = same(input_ids=ids).logits, quantised(input_ids=ids).logits
    assert torch.allclose(found, expected, atol=2e-5)
    assert not torch.allclose(found, model(input_ids=ids).logits, atol=2e-5)
