"""The probe of drift: its statistics, how rarely an honest server fails it, and which changes it finds."""

import time
from collections import Counter

import numpy as np
import pytest

from lethe.sampling.drift import LEVEL, apart, p_value_of_no_change, p_value_of_one_mean
from lethe.sampling.endpoint_probes import drift

VOCABULARY = [f"w{number}" for number in range(12)]
LOGITS = np.linspace(2.0, -2.0, len(VOCABULARY))
END = 0.25


def answers(generator, temperature, n):
    """Texts of words drawn at a temperature, each of a random length."""
    masses = np.exp(LOGITS / temperature)
    lengths = generator.geometric(END, n)
    words = generator.choice(VOCABULARY, lengths.sum(), p=masses / masses.sum())
    return [" ".join(part) for part in np.split(words, np.cumsum(lengths)[:-1])]


def naive(codes, first):
    """The three statistics, counted one by one."""
    n = len(first)
    ranks = [
        [rank / n for rank, held in zip(codes[0], first, strict=True) if held == side]
        for side in (True, False)
    ]
    values = [abs(sum(ranks[0]) / len(ranks[0]) - sum(ranks[1]) / len(ranks[1]))]
    for numbers in codes[1:]:
        everywhere = Counter(numbers.tolist())
        among_first = Counter(numbers[first].tolist())
        values.append(sum((2 * among_first[code] - a) ** 2 / a for code, a in everywhere.items()))
    return values


@pytest.mark.parametrize("n", [4, 10, 60])
def test_the_statistics_are_those_of_counting(n):
    generator = np.random.default_rng(n)
    ranks = generator.integers(0, n, n)
    words = np.unique(generator.integers(0, 5, n), return_inverse=True)[1]
    texts = np.unique(generator.integers(0, n, n), return_inverse=True)[1]
    codes = np.stack([ranks, words, texts])
    first = generator.permuted(np.tile(np.arange(n) < n // 2, (7, 1)), axis=1)

    expected = [naive(codes, mask) for mask in first]

    assert apart(codes, first) == pytest.approx(np.array(expected))


def test_a_p_value_of_one_sample_is_uniform_enough_under_no_change():
    generator = np.random.default_rng(43)
    p_values = []
    for _ in range(60):
        p_values.append(p_value_of_no_change([answers(generator, 1.0, 16) for _ in range(2)]))

    assert sum(p <= 0.1 for p in p_values) <= 12  # 6 are expected at most; 13 have probability 0.3%
    assert min(p_values) < 0.3


def test_an_honest_server_hardly_ever_fails():
    """At 1%, the level of an ordinary test, some of 1,000 would; at 1e-4 each, 0.1 are expected at most."""
    generator = np.random.default_rng(43)
    probes = []
    for _ in range(1000):
        probes.append(drift([answers(generator, 1.0, 16)]))

    p_values = [float(probe.sentence.split()[6]) for probe in probes]
    assert sum(p < 0.01 for p in p_values) >= 1
    assert all(probe.passed for probe in probes)


CHANGES = {
    "temperature 1 to 0.5": (1.0, 0.5),
    "temperature 1 to 2": (1.0, 2.0),
}


@pytest.mark.seconds
@pytest.mark.parametrize("change", CHANGES)
def test_a_temperature_that_changes_half_way_is_found(change):
    before, after = CHANGES[change]
    generator = np.random.default_rng(43)

    texts = [[*answers(generator, before, 150), *answers(generator, after, 150)] for _ in range(4)]

    assert drift(texts).passed is False


def test_another_model_half_way_is_found():
    generator = np.random.default_rng(43)
    texts = [f"no {word}" for word in answers(generator, 1.0, 32)]

    assert drift([[*answers(generator, 1.0, 32), *texts]]).passed is False


def test_forty_questions_of_400_answers_are_tested_in_a_fraction_of_a_second():
    generator = np.random.default_rng(43)
    many = [answers(generator, 1.0, 400) for _ in range(40)]

    began = time.process_time()
    drift(many)

    assert time.process_time() - began < 0.5


def test_equal_log_probabilities_are_no_change():
    assert p_value_of_one_mean([[-0.5] * 30, [-1.0] * 7]) == 1
    assert p_value_of_one_mean([[-0.5] * 3, []]) is None


def test_a_server_that_rounds_at_random_is_seldom_called_another():
    """The p-value is below a level as often as that, up to three standard errors of 300 trials."""
    generator = np.random.default_rng(5)
    small = 0
    for trial in range(300):
        values = generator.normal(-0.5, 1e-3, (3, 24)).tolist()
        p = p_value_of_one_mean(values, seed=trial)
        small += p <= 0.1
    assert small / 300 < 0.1 + 3 * np.sqrt(0.1 * 0.9 / 300)


def test_a_mean_that_moves_by_less_than_its_noise_is_found():
    generator = np.random.default_rng(6)
    before = generator.normal(-0.5, 1e-3, (8, 100))
    after = generator.normal(-0.5008, 1e-3, (8, 100))
    assert p_value_of_one_mean(np.hstack([before, after]).tolist()) <= LEVEL
