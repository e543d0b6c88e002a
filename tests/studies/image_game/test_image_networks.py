from __future__ import annotations

import pytest
import torch

from lethe.errors import BadValue
from studies.image_game.training import NETWORKS, build


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


@pytest.mark.parametrize(
    ("name", "layers"), [("resnet8", 8), ("resnet14", 14), ("resnet20", 20), ("resnet18", 18)]
)
def test_the_name_tells_the_depth(name, layers):
    network = build(name, 3, 10, seed=0)
    # Shortcut convolutions (1x1) do not count.
    deep = [
        m for m in network.modules() if isinstance(m, torch.nn.Linear) or getattr(m, "kernel_size", 0) == (3, 3)
    ]
    assert len(deep) == layers


def test_sizes_are_those_of_the_literature():
    sizes = {
        name: sum(w.numel() for w in build(name, 3, 10, seed=0).parameters()) for name in ("resnet20", "resnet18")
    }
    assert sizes["resnet20"] == pytest.approx(0.27e6, rel=0.03)
    assert sizes["resnet18"] == pytest.approx(11.17e6, rel=0.01)


def test_a_seed_decides_the_weights_and_leaves_the_global_one_alone():
    before = torch.get_rng_state()
    one, same, other = (build("resnet8", 1, 10, seed) for seed in (5, 5, 6))
    assert torch.equal(one.final.weight, same.final.weight)
    assert not torch.equal(one.final.weight, other.final.weight)
    assert torch.equal(torch.get_rng_state(), before)


def test_an_unknown_network_is_refused():
    with pytest.raises(BadValue, match="one of resnet8"):
        build("resnet50", 1, 10, 0)
