"""DP-SGD as it is trained: rates, noise and clipping as asked for, and a budget that the accountants agree on."""

import math

import pytest
import torch
from torch import nn

from lethe.errors import BadInput
from lethe.models.dp_sgd import make_private, noise_multiplier, spent

ROWS, WIDTH = 200, 50


def private(model=None, **settings):
    torch.manual_seed(0)
    model = nn.Linear(WIDTH, 1, bias=False) if model is None else model
    rows = (torch.ones(ROWS, WIDTH), torch.arange(ROWS))
    settings = {"sample_rate": 0.1, "noise_multiplier": 1.0, "clip": 1.0, "seed": 3, "steps": 200} | settings
    return make_private(model.train(), torch.optim.SGD(model.parameters(), lr=0.0), rows, **settings)


def released(model, optimiser, loader, scale=100.0):
    """The noisy sum of gradients of each step (loss: ``scale`` times the output)."""
    (weight,), sums = model.parameters(), []
    for rows, _ in loader:
        optimiser.zero_grad(set_to_none=True)
        (scale * model(rows)).mean().backward()
        optimiser.step()
        sums.append(weight.grad.flatten() * optimiser.expected_batch_size)
    return torch.stack(sums)


def test_each_row_comes_with_the_sample_rate_into_each_step():
    _, _, loader = private()
    seen = torch.zeros(ROWS)
    sizes = []
    for _, numbers in loader:
        seen[numbers] += 1
        sizes.append(len(numbers))
    assert len(sizes) == 200
    assert seen.mean() == pytest.approx(20, abs=1)
    assert torch.tensor(sizes, dtype=torch.float).std() == pytest.approx(math.sqrt(ROWS * 0.09), rel=0.2)


def test_the_noise_is_what_was_asked_for():
    sums = released(*private(noise_multiplier=2.0, clip=0.5), scale=0.0)
    assert sums.std() == pytest.approx(1.0, rel=0.03)
    assert abs(sums.mean()) < 0.05


def test_gradients_of_single_rows_are_clipped():
    model, optimiser, loader = private(noise_multiplier=0.0, clip=0.5)
    sizes = [len(rows) for rows, _ in private()[2]]
    norms = released(model, optimiser, loader).norm(dim=1)
    assert norms.tolist() == pytest.approx([0.5 * size for size in sizes], rel=1e-3)


def test_a_layer_that_mixes_rows_is_refused():
    with pytest.raises(BadInput, match="BatchNorm"):
        private(nn.Sequential(nn.Linear(WIDTH, 4), nn.BatchNorm1d(4)))


def test_the_accountants_agree():
    from dp_accounting.pld import privacy_loss_distribution

    sigma = noise_multiplier(3.0, 1e-5, 0.1, 50)
    tight = privacy_loss_distribution.from_gaussian_mechanism(sigma, sampling_prob=0.1).self_compose(50)
    assert spent(sigma, 1e-5, 0.1, 50) == pytest.approx(tight.get_epsilon_for_delta(1e-5), abs=0.03)
    assert 2 < spent(sigma, 1e-5, 0.1, 50) <= 3.0
