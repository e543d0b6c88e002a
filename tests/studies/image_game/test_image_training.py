from types import SimpleNamespace

import numpy as np
import pytest
import torch

from lethe.data.images import load
from studies.image_game.training import NETWORKS, build, learn, logits, points

RECIPE = SimpleNamespace(
    network="resnet8",
    optimiser="sgd",
    lr=0.05,
    momentum=0.9,
    weight_decay=5e-4,
    epochs=6,
    batch=25,
    milestones=[5],
)


@pytest.fixture(scope="module")
def digits():
    return load("digits", points=250)


def test_learning_learns_and_repeats_to_the_bit(digits):
    rows = np.arange(101)  # the last batch holds one point: batch norm cannot take it
    networks = [learn(points(digits, rows), 10, RECIPE, None, seed=3) for _ in range(2)]
    first, second = (logits(network, digits) for network in networks)
    assert (first == second).all()
    right = first.argmax(axis=1) == digits.labels
    assert right[rows].mean() > 0.9
    assert right[101:].mean() > 0.5


def test_private_learning_spends_its_budget_and_repeats_to_the_bit(digits):
    recipe = SimpleNamespace(**{**vars(RECIPE), "optimiser": "rmsprop", "lr": 1e-3, "momentum": 0.0, "epochs": 2})
    data = points(digits, np.arange(60))
    tight, again, loose = (
        learn(data, 10, recipe, SimpleNamespace(epsilon=epsilon, delta=1e-3, clip=1.0), seed=3)
        for epsilon in (1, 1, 100)
    )
    assert (logits(tight, digits) == logits(again, digits)).all()
    assert (logits(tight, digits) != logits(loose, digits)).any()
    assert all(torch.isfinite(weight).all() for weight in tight.state_dict().values())


def test_private_learning_adds_the_noise_that_the_accountant_asks_for(digits, monkeypatch):
    from opacus.accountants import RDPAccountant
    from opacus.optimizers import DPOptimizer

    steps = []
    real = DPOptimizer.step

    def step(self, closure=None):
        steps.append((self.noise_multiplier, self.max_grad_norm))
        return real(self, closure)

    monkeypatch.setattr(DPOptimizer, "step", step)
    recipe = SimpleNamespace(**{**vars(RECIPE), "epochs": 2})
    learn(points(digits, np.arange(60)), 10, recipe, SimpleNamespace(epsilon=3.0, delta=1e-3, clip=0.7), seed=3)
    accountant = RDPAccountant()
    for noise, clip in steps:
        assert clip == 0.7
        accountant.step(noise_multiplier=noise, sample_rate=1 / 3)
    assert 2.8 < accountant.get_epsilon(1e-3) <= 3.0


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("private", [False, True])
def test_every_network_gives_finite_logits_and_gradients(name, private):
    network = build(name, channels=3, classes=7, seed=0, private=private)
    logits = network(torch.randn(2, 3, 8, 8))
    assert logits.shape == (2, 7)
    logits.square().sum().backward()
    assert all(torch.isfinite(weight.grad).all() for weight in network.parameters())
    kinds = {type(module).__name__ for module in network.modules()}
    assert ("GroupNorm" in kinds) == private
    assert ("BatchNorm2d" in kinds) != private
