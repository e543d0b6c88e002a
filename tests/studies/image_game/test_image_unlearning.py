"""Every defender is exercised; what each must and must not touch."""

import copy
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from lethe.data.images import load
from studies.image_game.training import learn, points
from studies.image_game.unlearning import DEFENDERS, Task, fisher_information

METHODS = sorted(DEFENDERS)
SETTINGS = SimpleNamespace(lr=0.01, epochs=2, batch=16, noise=3e-3, retain_weight=1.0)
RECIPE = SimpleNamespace(
    network="resnet8", optimiser="sgd", lr=0.05, momentum=0.9, weight_decay=5e-4, epochs=5, batch=25, milestones=[]
)


@pytest.fixture(scope="module")
def digits():
    return load("digits", points=150)


@pytest.fixture(scope="module")
def learned(digits):
    return learn(points(digits, np.arange(120)), 10, RECIPE, None, seed=1)


def unlearn(method, digits, learned, settings=SETTINGS, forget=range(100, 120)):
    def afresh(data):
        return learn(data, 10, RECIPE, None, seed=9)

    forgotten = points(digits, np.array(list(forget)))
    task = Task(copy.deepcopy(learned), points(digits, np.arange(100)), forgotten, afresh, settings, seed=4)
    return DEFENDERS[method].unlearn(task)


def changed(before, after):
    return {
        name for name, weight in before.state_dict().items() if not torch.equal(weight, after.state_dict()[name])
    }


@pytest.mark.parametrize("method", METHODS)
def test_every_defender_declares_itself_and_repeats_to_the_bit(method, digits, learned):
    module = DEFENDERS[method]
    assert all(hasattr(SETTINGS, field) for field in set(module.Params.model_fields) - {"method"})
    assert (method == "retrain") == module.afresh
    once, again = (unlearn(method, digits, learned) for _ in range(2))
    assert not changed(once, again)
    assert all(torch.isfinite(weight).all() for weight in once.state_dict().values())


def test_retrain_never_sees_the_forget_set(digits, learned):
    assert not changed(
        unlearn("retrain", digits, None), unlearn("retrain", digits, learned, forget=range(120, 140))
    )


@pytest.mark.parametrize("method", ["ft_final", "retr_final"])
def test_the_final_methods_change_the_last_layer_alone(method, digits, learned):
    assert changed(learned, unlearn(method, digits, learned)) == {"final.weight", "final.bias"}


def test_fisher_information_against_its_naive_twin(digits, learned):
    network, images = copy.deepcopy(learned).eval(), points(digits, np.arange(12)).images
    fast = fisher_information(network, images, torch.Generator().manual_seed(0), size=12)
    labels = torch.multinomial(network(images).softmax(1), 1, generator=torch.Generator().manual_seed(0))[:, 0]
    naive = {name: torch.zeros_like(weight) for name, weight in network.named_parameters()}
    for image, label in zip(images, labels, strict=True):
        network.zero_grad()
        cross_entropy(network(image[None]), label[None]).backward()
        for name, weight in network.named_parameters():
            naive[name] += weight.grad**2 / 12
    for name, value in naive.items():
        assert torch.allclose(fast[name], value, rtol=1e-3, atol=1e-9), name
