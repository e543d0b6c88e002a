"""Every attack finds a planted signal, none finds one on null data; the likelihood ratio sees through difficulty."""

import numpy as np
import pytest
from scipy.special import logsumexp

from lethe.audits.unlearning_game.rounds import Shadow
from lethe.statistics.two_sample import auc
from lethe.statistics.unlearning_game import signed_advantage
from studies.image_game.attacks import ATTACKS, View, logit_confidence

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
    forget, test = draw(rng, n, gain, difficulty), draw(rng, n, 0, difficulty)
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
    logits, labels = rng.normal(0, 5, (2, 50, 4)), rng.integers(0, 4, 50)
    p = np.exp(logits - logsumexp(logits, axis=-1, keepdims=True))
    own = p[:, np.arange(50), labels]
    assert np.allclose(logit_confidence(logits, labels), np.log(own) - np.log(1 - own), atol=1e-6)
    certain = np.array([[1000.0, 0.0]])
    assert logit_confidence(certain, np.array([0]))[0] == 1000  # no overflow, no infinity
