"""Classifiers of tables: their losses as the paper defines them, plain and private training, microbatches."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from studies.landscape.settings import Strategy
from studies.landscape.training import Recipe, build, grouped, learn, learn_privately, logits, negative_logits


@settings(max_examples=60)
@given(st.integers(2, 6), st.integers(0, 10**6))
def test_losses_are_negative_logits_of_the_true_class(classes, seed):
    rng = np.random.default_rng(seed)
    outputs, labels = rng.normal(0, 3, (5, classes)), rng.integers(0, classes, 5)
    f = np.exp(outputs)[np.arange(5), labels] / np.exp(outputs).sum(axis=1)
    assert negative_logits(outputs, labels) == pytest.approx(-(np.log(f) - np.log(1 - f)), rel=1e-9, abs=1e-9)


def test_a_sure_network_loses_no_digits():
    outputs = np.array([[800.0, 0.0, -3.0], [0.0, 60.0, 0.0]])
    assert negative_logits(outputs, np.array([0, 1])) == pytest.approx(
        [-800 + np.log1p(np.exp(-3)), -60 + np.log(2)]
    )


def blobs(n=200, seed=0):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, n)
    features = rng.normal(0, 1, (n, 4)) + 3 * labels[:, None]
    return torch.from_numpy(features.astype(np.float32)), torch.from_numpy(labels)


RECIPE = {"lr": 0.1, "momentum": 0.9, "epochs": 5, "batch": 20, "seed": 0}


def trained(budget=None, **changes):
    features, labels = blobs()
    network, recipe = build(4, [8], 2, 0), Recipe(**RECIPE | changes)
    if budget is None:
        learn(network, features, labels, recipe)
    else:
        learn_privately(network, features, labels, budget, 1e-3, recipe)
    return logits(network, features), labels.numpy()


@pytest.mark.parametrize(
    "budget", [None, Strategy(5, 20, 50, 1.0), Strategy(5, 20, 50, 1.0, 4), Strategy(5, 20, 50, 1.0, 1)]
)
def test_training_learns_and_repeats(budget):
    outputs, labels = trained(budget)
    assert (outputs.argmax(axis=1) == labels).mean() > 0.9
    assert np.array_equal(outputs, trained(budget)[0])
    assert not np.array_equal(outputs, trained(budget, seed=1)[0])


def stepped(microbatches, noise, clip, scale=100.0, rows=40):
    """The released gradients of some steps: of a linear model whose every row has the same gradient, ``scale`` long."""
    from opacus import GradSampleModule
    from opacus.optimizers import DPOptimizer

    network = torch.nn.Linear(30, 1, bias=False)
    model = GradSampleModule(network.train())
    plain = torch.optim.SGD(model.parameters(), lr=0.0)
    private = DPOptimizer(
        plain,
        noise_multiplier=noise,
        max_grad_norm=clip,
        expected_batch_size=rows,
        generator=torch.Generator().manual_seed(0),
    )
    private = grouped(private, microbatches)
    released = []
    for _ in range(300 if noise else 1):
        private.zero_grad(set_to_none=True)
        (scale * model(torch.ones(rows, 30) / 30**0.5)).mean().backward()
        private.step()
        released.append(network.weight.grad.flatten().clone())
    return torch.stack(released)


@pytest.mark.filterwarnings("ignore:Full backward hook")
def test_microbatches_clip_the_mean_of_each_group():
    # All eight groups point the same way and are longer than the clip: the mean of the clipped has the clip's norm.
    assert float(stepped(8, 0.0, 0.5).norm(dim=1)) == pytest.approx(0.5, rel=1e-4)
    # Shorter than the clip: nothing is clipped, and the mean of the groups' means is the gradient itself.
    assert float(stepped(8, 0.0, 50.0, scale=1.0).norm(dim=1)) == pytest.approx(1.0, rel=1e-4)


@pytest.mark.filterwarnings("ignore:Full backward hook")
def test_microbatches_double_the_noise():
    noise = stepped(4, 1.5, 0.5, scale=0.0) * 4
    assert float(noise.std()) == pytest.approx(2 * 1.5 * 0.5, rel=0.03)
