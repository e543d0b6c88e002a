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
    entry = {"kind": "quantise", "bits": list(bits), "group": group, "rounding": rounding}
    attack = member(member.Params.model_validate(entry))
    found = attack.attacked(copy.deepcopy(model), Knowledge([], [], None, 0), 0)
    return {int(budget): copy.deepcopy(quantised) for budget, quantised in found}


def plain(weights):
    """The weights as ordinary numbers, whatever holds them."""
    return weights.dequantize().float() if hasattr(weights, "dequantize") else weights


def twin(weights, bits, group):
    """torchao's grid: the scale is the largest magnitude over 2 ** (bits - 1) - 1/2."""
    half = 2 ** (bits - 1)
    rows = weights.reshape(-1, group)
    scale = rows.abs().amax(-1, keepdim=True) / (half - 0.5)
    steps = (rows / scale).round().clamp(-half, half - 1)
    return (steps * scale).view_as(weights)


def widths(bits, weights):
    return weights.shape[-1] if bits >= PER_ROW else GROUP


@pytest.fixture(scope="module")
def quantised(tiny):
    """The attacked models of torchao and of the simulated rounding, each by their budgets."""
    return attacked(tiny[0], "torchao"), attacked(tiny[0], "simulated")


def weights_before(tiny):
    return [weights.detach() for weights in linear_weights(tiny[0])]


def test_both_roundings_have_the_budgets_of_the_formats(quantised):
    by_torchao, simulated = quantised

    assert list(by_torchao) == list(simulated) == [32 - bits for bits in FORMATS]


@pytest.mark.parametrize("bits", FORMATS)
def test_torchao_holds_integers_and_not_rounded_floats(quantised, bits):
    by_torchao, _ = quantised

    for weights in linear_weights(by_torchao[32 - bits]):
        assert type(weights.data) is not torch.Tensor


@pytest.mark.parametrize("bits", FORMATS)
def test_the_weights_are_on_torchaos_grid(tiny, quantised, bits):
    by_torchao, _ = quantised
    pairs = zip(linear_weights(by_torchao[32 - bits]), weights_before(tiny), strict=True)

    for weights, old in pairs:
        group = widths(bits, old)
        rows = old.reshape(-1, group)
        largest = rows.abs().amax(-1, keepdim=True)
        error = (plain(weights) - twin(old, bits, group)).abs().reshape(-1, group)
        assert bool((error[rows.abs() < largest] < 1e-6).all())
        # The largest magnitude is half a step from two numbers of the format by construction: either may come out.
        assert bool((error <= 1.001 * largest / (2 ** (bits - 1) - 0.5)).all())


@pytest.mark.parametrize("bits", FORMATS)
def test_the_weights_are_within_a_step_of_the_simulated_ones(tiny, quantised, bits):
    by_torchao, simulated = quantised
    of_torchao = linear_weights(by_torchao[32 - bits])
    of_simulation = linear_weights(simulated[32 - bits])

    for weights, rounded, old in zip(of_torchao, of_simulation, weights_before(tiny), strict=True):
        group = widths(bits, old)
        largest = old.reshape(-1, group).abs().amax(-1, keepdim=True)
        gap = (plain(weights) - rounded).abs().reshape(-1, group)
        assert bool((gap <= 1.001 * largest / (2 ** (bits - 1) - 1)).all())
        assert torch.equal(rounded, on_grid(old, bits, group))


def test_an_attack_leaves_the_weights_of_the_model(tiny):
    before = [weights.clone() for weights in weights_before(tiny)]

    attacked(tiny[0], "torchao")

    for weights, old in zip(linear_weights(tiny[0]), before, strict=True):
        assert torch.equal(weights, old)


@pytest.mark.parametrize("bits", FORMATS)
def test_the_kernels_give_the_logits_of_the_same_weights_in_float32(tiny, bits):
    """Only the grid differs from the simulation: a model with torchao's weights in float32 gives the same logits."""
    model = tiny[0]
    (quantised,) = attacked(model, "torchao", [bits]).values()
    same = copy.deepcopy(model)
    with torch.no_grad():
        for target, weights in zip(linear_weights(same), linear_weights(quantised), strict=True):
            target.copy_(plain(weights))
    ids = torch.arange(24).view(2, 12)
    with torch.inference_mode():
        expected, found = same(input_ids=ids).logits, quantised(input_ids=ids).logits
    assert torch.allclose(found, expected, atol=2e-5)
    assert not torch.allclose(found, model(input_ids=ids).logits, atol=2e-5)
