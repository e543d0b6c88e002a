import copy
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy.special import logsumexp
from torch.nn.functional import cross_entropy

from lethe.audits.unlearning_game.rounds import Shadow
from lethe.data.images import load
from lethe.statistics.two_sample import auc
from lethe.statistics.unlearning_game import signed_advantage
from studies.image_game.models import (
    DEFENDERS,
    NETWORKS,
    Task,
    build,
    fisher_information,
    learn,
    logits,
    points,
)
from studies.image_game.play import ATTACKS, View, logit_confidence

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


@pytest.mark.slow
def test_private_learning_spends_its_budget_and_repeats_to_the_bit(digits):
    recipe = SimpleNamespace(
        **vars(RECIPE) | {"optimiser": "rmsprop", "lr": 1e-3, "momentum": 0.0, "epochs": 2}
    )
    data = points(digits, np.arange(60))
    tight, again, loose = (
        learn(data, 10, recipe, SimpleNamespace(epsilon=epsilon, delta=1e-3, clip=1.0), seed=3)
        for epsilon in (1, 1, 100)
    )
    assert (logits(tight, digits) == logits(again, digits)).all()
    assert (logits(tight, digits) != logits(loose, digits)).any()
    assert all(torch.isfinite(weight).all() for weight in tight.state_dict().values())


@pytest.mark.slow
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
    learn(
        points(digits, np.arange(60)),
        10,
        recipe,
        SimpleNamespace(epsilon=3.0, delta=1e-3, clip=0.7),
        seed=3,
    )
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


IMAGE_ATTACKS = sorted(ATTACKS)
CLASSES = 3


def draw(rng, n, gain, difficulty=0.0):
    """n points: the right class's logit rises by ``gain`` if learned, and by the point's own ease."""
    labels = rng.integers(0, CLASSES, n)
    ease = rng.normal(0, difficulty, n)

    def answers(gain):
        logits = rng.normal(size=(n, CLASSES))
        logits[np.arange(n), labels] += 1 + gain + ease
        return logits

    reference = np.stack([answers(0) for _ in range(6)])
    return View(answers(gain), labels, reference)


def shadows(rng, gain, difficulty=0.0, n=300):
    return [Shadow(draw(rng, n, gain, difficulty), draw(rng, n, 0, difficulty)) for _ in range(4)]


def gained(adversary, rng, gain, difficulty=0.0, n=1500):
    forget = draw(rng, n, gain, difficulty)
    test = draw(rng, n, 0, difficulty)
    return signed_advantage(adversary.accept(forget), adversary.accept(test))


@pytest.mark.parametrize("name", IMAGE_ATTACKS)
def test_every_attack_finds_a_planted_signal(name):
    rng = np.random.default_rng(1)
    adversary = ATTACKS[name](shadows(rng, gain=2.5), seed=0)
    assert gained(adversary, rng, gain=2.5) > 0.2
    view = draw(rng, 5, 0)
    assert adversary.score(view).shape == adversary.accept(view).shape == (5,)


@pytest.mark.parametrize("name", IMAGE_ATTACKS)
def test_no_attack_gains_on_null_data(name):
    rng = np.random.default_rng(2)
    adversary = ATTACKS[name](shadows(rng, gain=2.5), seed=0)
    # Difference of two means of 1,500 answers: four of its standard errors at most.
    assert abs(gained(adversary, rng, gain=0)) < 4 * np.sqrt(2 * 0.25 / 1500)


def test_the_likelihood_ratio_sees_through_difficulty():
    rng = np.random.default_rng(6)
    fitted = shadows(rng, gain=1.5, difficulty=3.0)
    forget, test = draw(rng, 2000, 1.5, 3.0), draw(rng, 2000, 0, 3.0)
    areas = {}
    for name in ("confidence", "likelihood_ratio"):
        adversary = ATTACKS[name](fitted, seed=0)
        areas[name] = auc(adversary.score(forget), adversary.score(test))
    assert areas["likelihood_ratio"] > areas["confidence"] + 0.1


def test_logit_confidence_against_its_naive_twin():
    rng = np.random.default_rng(9)
    logits = rng.normal(0, 5, (2, 50, 4))
    labels = rng.integers(0, 4, 50)
    p = np.exp(logits - logsumexp(logits, axis=-1, keepdims=True))
    p_true = p[:, np.arange(50), labels]
    assert np.allclose(
        logit_confidence(logits, labels), np.log(p_true) - np.log(1 - p_true), atol=1e-6
    )
    certain = np.array([[1000.0, 0.0]])
    assert logit_confidence(certain, np.array([0]))[0] == 1000  # no overflow, no infinity


METHODS = sorted(DEFENDERS)
SETTINGS = SimpleNamespace(lr=0.01, epochs=2, batch=16, noise=3e-3, retain_weight=1.0)
SHORT = SimpleNamespace(**vars(RECIPE) | {"epochs": 5, "milestones": []})


@pytest.fixture(scope="module")
def learned(digits):
    return learn(points(digits, np.arange(120)), 10, SHORT, None, seed=1)


def unlearn(method, digits, learned, settings=SETTINGS, forget=range(100, 120)):
    def afresh(data):
        return learn(data, 10, SHORT, None, seed=9)

    forgotten = points(digits, np.array(list(forget)))
    task = Task(
        copy.deepcopy(learned), points(digits, np.arange(100)), forgotten, afresh, settings, seed=4
    )
    return DEFENDERS[method].unlearn(task)


def changed(before, after):
    return {
        name
        for name, weight in before.state_dict().items()
        if not torch.equal(weight, after.state_dict()[name])
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
        unlearn("retrain", digits, None),
        unlearn("retrain", digits, learned, forget=range(120, 140)),
    )


@pytest.mark.parametrize("method", ["ft_final", "retr_final"])
def test_the_final_methods_change_the_last_layer_alone(method, digits, learned):
    assert changed(learned, unlearn(method, digits, learned)) == {"final.weight", "final.bias"}


def test_fisher_information_against_its_naive_twin(digits, learned):
    network = copy.deepcopy(learned).eval()
    images = points(digits, np.arange(12)).images
    fast = fisher_information(network, images, torch.Generator().manual_seed(0), size=12)
    labels = torch.multinomial(
        network(images).softmax(1), 1, generator=torch.Generator().manual_seed(0)
    )[:, 0]
    naive = {name: torch.zeros_like(weight) for name, weight in network.named_parameters()}
    for image, label in zip(images, labels, strict=True):
        network.zero_grad()
        cross_entropy(network(image[None]), label[None]).backward()
        for name, weight in network.named_parameters():
            naive[name] += weight.grad**2 / 12
    for name, value in naive.items():
        assert torch.allclose(fast[name], value, rtol=1e-3, atol=1e-9), name
