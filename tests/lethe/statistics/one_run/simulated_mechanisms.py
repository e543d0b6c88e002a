"""Simulators: secret bits through a mechanism, guessed as in "Tight Privacy Audit in One Run" ("the paper" here).

Each function draws from a generator and returns `Guesses` for n bits. The first group are product channels, for which every
method is valid. The second group, `COUNTEREXAMPLES`, share randomness between bits: every bit alone is as
private as the null states, but the number of errors differs from that of independent channels.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from lethe.statistics.one_run.channel import ApproxDP, Channel
from lethe.statistics.one_run.counts import Guesses
from lethe.statistics.one_run.tradeoff import Atoms


def by_threshold(bits: np.ndarray, outputs: np.ndarray, threshold: float) -> Guesses:
    """The paper's special case: guess 1 above the threshold; confidence is the distance from it."""
    return Guesses(bits, (outputs > threshold).astype(np.int8), np.abs(outputs - threshold))


def by_rank(bits: np.ndarray, outputs: np.ndarray) -> Guesses:
    """The general case: guess 0 for the smallest outputs, 1 for the largest; r/2 guesses at each end are released."""
    ranks = np.empty(outputs.size)
    ranks[np.argsort(outputs, kind="stable")] = np.arange(outputs.size)
    centre = (outputs.size - 1) / 2
    return Guesses(bits, (ranks > centre).astype(np.int8), np.abs(ranks - centre))


def fair_bits(n: int, rng: np.random.Generator) -> np.ndarray:
    """(n,) independent fair bits."""
    return rng.integers(0, 2, n, dtype=np.int8)


def gaussian(n: int, rng: np.random.Generator, *, mu: float, guess: str = "rank") -> Guesses:
    """Each bit plus N(0, 1 / mu^2), scaled by mu."""
    bits = fair_bits(n, rng)
    return _guess(bits, mu * bits + rng.standard_normal(n), mu / 2, guess)


def laplace(n: int, rng: np.random.Generator, *, mu: float, guess: str = "rank") -> Guesses:
    """Each bit plus Laplace noise of scale 1 / mu, scaled by mu."""
    bits = fair_bits(n, rng)
    return _guess(bits, mu * bits + rng.laplace(size=n), mu / 2, guess)


def subsampled_gaussian(n: int, rng: np.random.Generator, *, mu: float, q: float, guess: str = "loss") -> Guesses:
    """Each bit is kept with probability q, else set to 0, independently; then the Gaussian mechanism is applied.

    ``guess="loss"`` scores by the absolute privacy loss, the best order. By rank, as in the paper, the smallest outputs
    are released too, although their loss is at most -ln(1 - q).
    """
    bits = fair_bits(n, rng)
    outputs = mu * bits * (rng.random(n) < q) + rng.standard_normal(n)
    if guess != "loss":
        return _guess(bits, outputs, mu / 2, guess)
    loss = np.log1p(q * np.expm1(mu * (outputs - mu / 2)))
    return Guesses(bits, (loss > 0).astype(np.int8), np.abs(loss))


def randomised_response(n: int, rng: np.random.Generator, *, epsilon: float, delta: float) -> Guesses:
    """Reveals the bit with probability delta, else reports it correctly with odds e^epsilon: (epsilon, delta)-DP."""
    bits = fair_bits(n, rng)
    revealed = rng.random(n) < delta
    told = bits ^ (rng.random(n) < 1 / (1 + math.exp(epsilon)))
    return Guesses(bits, np.where(revealed, bits, told).astype(np.int8), revealed.astype(np.float64))


def from_channel(n: int, rng: np.random.Generator, channel: Channel) -> Guesses:
    """The product of any channel with its best guesses, drawn from the uniform mass s of the loss and its error rate."""
    bits = fair_bits(n, rng)
    s = rng.random(n)
    wrong = rng.random(n) < channel.error_rate(s)
    return Guesses(bits, (bits ^ wrong).astype(np.int8), -s)


def _guess(bits: np.ndarray, outputs: np.ndarray, threshold: float, guess: str) -> Guesses:
    return by_threshold(bits, outputs, threshold) if guess == "threshold" else by_rank(bits, outputs)


def all_bits_revealed_together(n: int, rng: np.random.Generator, *, delta: float = 0.06) -> Guesses:
    """With probability ``delta`` every bit is revealed, else none: each bit alone is (0, delta)-DP."""
    bits = fair_bits(n, rng)
    guesses = bits if rng.random() < delta else fair_bits(n, rng)
    return Guesses(bits, guesses, np.zeros(n))


def some_bits_revealed(n: int, rng: np.random.Generator, *, revealed: int = 20) -> Guesses:
    """With probability 1/2, ``revealed`` bits drawn at random are revealed: each bit alone is (0, revealed / 2n)-DP."""
    bits = fair_bits(n, rng)
    guesses, scores = fair_bits(n, rng), np.zeros(n)
    chosen = rng.choice(n, revealed, replace=False, shuffle=False)
    scores[chosen] = 1.0
    if rng.random() < 0.5:
        guesses[chosen] = bits[chosen]
    return Guesses(bits, guesses, scores)


def shared_subsampling_coin(n: int, rng: np.random.Generator, *, mu: float = 2.0, q: float = 0.5) -> Guesses:
    """One coin: the Gaussian mechanism on all bits with probability q, else on no bit."""
    bits = fair_bits(n, rng)
    kept = rng.random() < q
    return by_rank(bits, mu * bits * kept + rng.standard_normal(n))


def shared_noise_scale(n: int, rng: np.random.Generator, *, low: float = 0.5, high: float = 2.0) -> Guesses:
    """One fair coin: the Gaussian mechanism with mu ``low`` or ``high`` for all bits at once."""
    mu = low if rng.random() < 0.5 else high
    return gaussian(n, rng, mu=mu)


def mixture_of_gaussians(*mus: float, cells: int = 4000) -> Atoms:
    """The pair of distributions for one bit of a Gaussian mechanism whose mu is drawn from ``mus`` and revealed."""
    from scipy import special

    edges = np.concatenate([[-np.inf], np.linspace(-12, 12 + max(mus), cells), [np.inf]])
    p = np.concatenate([np.diff(special.ndtr(edges)) for _ in mus]) / len(mus)
    q = np.concatenate([np.diff(special.ndtr(edges - mu)) for mu in mus]) / len(mus)
    return Atoms(p / p.sum(), q / q.sum())


@dataclass(frozen=True)
class Counterexample:
    """A mechanism, and the null that each bit satisfies exactly: a valid test rejects the null in at most alpha of the runs.

    ``product``: whether the bits nevertheless pass independent channels.
    """

    simulate: Callable[[int, np.random.Generator], Guesses]
    null: Channel
    n: int
    r: int
    delta: float
    product: bool = False


COUNTEREXAMPLES = {
    "all bits revealed together": Counterexample(all_bits_revealed_together, ApproxDP(0.0, 0.06), 100, 100, 0.06),
    "20 random bits revealed": Counterexample(some_bits_revealed, ApproxDP(0.0, 1e-5), 10**6, 20, 1e-5),
    # The other bits' outputs reveal the coin and the scale, so the null must be the channel that reveals them.
    "shared subsampling coin": Counterexample(
        shared_subsampling_coin, mixture_of_gaussians(0.0, 2.0), 1000, 1000, 1e-5
    ),
    "shared noise scale": Counterexample(shared_noise_scale, mixture_of_gaussians(0.5, 2.0), 1000, 1000, 1e-5),
    # Released errors are positively correlated even in a product, so chernoff's assumption of independent errors fails.
    "(0, delta) family": Counterexample(
        partial(randomised_response, epsilon=0.0, delta=0.005),
        ApproxDP(0.0, 0.005),
        10**4,
        60,
        0.005,
        product=True,
    ),
}
