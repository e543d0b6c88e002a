"""Secret bits through a mechanism, guessed as in "Tight Privacy Audit in One Run" ("the paper"
here).

Each simulator draws the guesses of n bits from a generator. The first ones are product channels,
for which every method of the audit is valid. `COUNTEREXAMPLES` share randomness between bits: each
bit alone is as private as the null states, but the number of errors differs from that of
independent channels, so that a method which assumes them rejects a true null too often.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy.special import ndtr

from lethe.statistics.one_run.audit import applicable, load_method
from lethe.statistics.one_run.channel import ApproxDP, Channel
from lethe.statistics.one_run.counts import Guesses, ReleasedGuesses, release
from lethe.statistics.one_run.tradeoff import Atoms
from lethe.statistics.search import fewest_between

Simulator = Callable[[int, np.random.Generator], Guesses]
FARTHEST = 12.0  # outputs of a Gaussian beyond it have a probability below 2e-33


def fair_bits(n: int, rng: np.random.Generator) -> np.ndarray:
    """Return (n,) independent fair bits."""
    return rng.integers(0, 2, n, dtype=np.int8)


def by_threshold(bits: np.ndarray, outputs: np.ndarray, threshold: float) -> Guesses:
    """The paper's special case: guess 1 above the threshold; a guess is the surer the farther
    its output is from it.
    """
    guesses = (outputs > threshold).astype(np.int8)
    return Guesses(bits, guesses, np.abs(outputs - threshold))


def by_rank(bits: np.ndarray, outputs: np.ndarray) -> Guesses:
    """The general case: guess 0 for the smaller half of the outputs and 1 for the larger; the
    extreme ones are the surest.
    """
    ranks = np.empty(outputs.size)
    ranks[np.argsort(outputs, kind="stable")] = np.arange(outputs.size)
    centre = (outputs.size - 1) / 2
    guesses = (ranks > centre).astype(np.int8)
    return Guesses(bits, guesses, np.abs(ranks - centre))


def gaussian(n: int, rng: np.random.Generator, *, mu: float, special: bool = False) -> Guesses:
    """Each bit plus N(0, 1 / mu^2), scaled by mu; ``special`` guesses by a threshold, so that
    guesses are independent.
    """
    bits = fair_bits(n, rng)
    outputs = mu * bits + rng.standard_normal(n)
    if special:
        return by_threshold(bits, outputs, mu / 2)
    return by_rank(bits, outputs)


def laplace(n: int, rng: np.random.Generator, *, mu: float, special: bool = False) -> Guesses:
    """Each bit plus Laplace noise of scale 1 / mu, scaled by mu; ``special`` as in `gaussian`."""
    bits = fair_bits(n, rng)
    outputs = mu * bits + rng.laplace(size=n)
    if special:
        return by_threshold(bits, outputs, mu / 2)
    return by_rank(bits, outputs)


def subsampled_gaussian(n: int, rng: np.random.Generator, *, mu: float, q: float) -> Guesses:
    """Each bit is kept with probability ``q``, else set to 0, independently; then the Gaussian
    mechanism is applied.

    Guesses are ordered by their absolute privacy loss, the best order. By rank, as in the paper,
    the smallest outputs would be released too, although their loss is at most -ln(1 - q).
    """
    bits = fair_bits(n, rng)
    kept = rng.random(n) < q
    outputs = mu * bits * kept + rng.standard_normal(n)
    loss = np.log1p(q * np.expm1(mu * (outputs - mu / 2)))
    return Guesses(bits, (loss > 0).astype(np.int8), np.abs(loss))


def randomised_response(
    n: int, rng: np.random.Generator, *, epsilon: float, delta: float
) -> Guesses:
    """Reveal the bit with probability ``delta``, else report it correctly with odds e^epsilon:
    (epsilon, delta)-DP.
    """
    bits = fair_bits(n, rng)
    revealed = rng.random(n) < delta
    lies = rng.random(n) < 1 / (1 + math.exp(epsilon))
    guesses = np.where(revealed, bits, bits ^ lies).astype(np.int8)
    return Guesses(bits, guesses, revealed.astype(np.float64))


def all_bits_revealed_together(n: int, rng: np.random.Generator, *, delta: float = 0.06) -> Guesses:
    """With probability ``delta`` every bit is revealed, else none: each bit alone is (0,
    delta)-DP.
    """
    bits = fair_bits(n, rng)
    are_revealed = rng.random() < delta
    guesses = bits
    if not are_revealed:
        guesses = fair_bits(n, rng)
    return Guesses(bits, guesses, np.zeros(n))


def some_bits_revealed(n: int, rng: np.random.Generator, *, revealed: int = 20) -> Guesses:
    """With probability 1/2, ``revealed`` bits drawn at random are revealed: each bit alone is
    (0, revealed / 2n)-DP.
    """
    bits = fair_bits(n, rng)
    guesses = fair_bits(n, rng)
    scores = np.zeros(n)
    chosen = rng.choice(n, revealed, replace=False, shuffle=False)
    scores[chosen] = 1.0
    if rng.random() < 0.5:
        guesses[chosen] = bits[chosen]
    return Guesses(bits, guesses, scores)


def shared_subsampling_coin(
    n: int, rng: np.random.Generator, *, mu: float = 2.0, q: float = 0.5
) -> Guesses:
    """One coin: the Gaussian mechanism on all bits with probability ``q``, else on no bit."""
    bits = fair_bits(n, rng)
    kept = rng.random() < q
    return by_rank(bits, mu * bits * kept + rng.standard_normal(n))


def shared_noise_scale(
    n: int, rng: np.random.Generator, *, low: float = 0.5, high: float = 2.0
) -> Guesses:
    """One fair coin: the Gaussian mechanism with mu ``low`` or ``high`` for all bits at once."""
    mu = high
    if rng.random() < 0.5:
        mu = low
    return gaussian(n, rng, mu=mu)


def mixture_of_gaussians(*mus: float, cells: int = 4000) -> Atoms:
    """The pair of distributions for one bit of a Gaussian mechanism whose mu is drawn from
    ``mus`` and revealed.
    """
    inner = np.linspace(-FARTHEST, FARTHEST + max(mus), cells)
    edges = np.concatenate([[-np.inf], inner, [np.inf]])
    of_noise = np.diff(ndtr(edges))
    p = np.tile(of_noise, len(mus))
    q = np.concatenate([np.diff(ndtr(edges - mu)) for mu in mus])
    return Atoms(p / p.sum(), q / q.sum())


@dataclass(frozen=True)
class Counterexample:
    """A mechanism, and the null that each bit satisfies exactly: a valid test rejects the null in
    at most alpha of the runs.

    ``product``: whether the bits nevertheless pass independent channels.
    """

    simulate: Simulator
    null: Channel
    n: int
    r: int
    delta: float
    product: bool = False


COUNTEREXAMPLES = {
    "all bits revealed together": Counterexample(
        all_bits_revealed_together, ApproxDP(0.0, 0.06), 100, 100, 0.06
    ),
    "20 random bits revealed": Counterexample(
        some_bits_revealed, ApproxDP(0.0, 1e-5), 10**6, 20, 1e-5
    ),
    # The other bits' outputs reveal the coin and the scale, so the null must be the channel that
    # reveals them.
    "shared subsampling coin": Counterexample(
        shared_subsampling_coin, mixture_of_gaussians(0.0, 2.0), 1000, 1000, 1e-5
    ),
    "shared noise scale": Counterexample(
        shared_noise_scale, mixture_of_gaussians(0.5, 2.0), 1000, 1000, 1e-5
    ),
    # Released errors are positively correlated even in a product, so chernoff's assumption of
    # independent errors fails.
    "(0, delta) family": Counterexample(
        partial(randomised_response, epsilon=0.0, delta=0.005),
        ApproxDP(0.0, 0.005),
        10**4,
        60,
        0.005,
        product=True,
    ),
}


def false_rejections(
    case: Counterexample, runs: int, alpha: float, seed: int = 1
) -> dict[str, float]:
    """Return, by method, the share of ``runs`` in which the true null is rejected at ``alpha``.

    A bound of all epsilons at once (Clopper-Pearson) tests no single null and is left out.
    """
    errors = _simulated_errors(case, runs, seed)
    shares = {}
    for method in applicable(ReleasedGuesses(case.n, case.r, 0)):
        if method != "clopper-pearson":
            most = most_errors_rejected(case, method, alpha)
            shares[method] = float(np.mean(errors <= most))
    return shares


def _simulated_errors(case: Counterexample, runs: int, seed: int) -> np.ndarray:
    """(runs,) the number of errors among the released guesses of each run."""
    rng = np.random.default_rng(seed)
    errors = np.empty(runs, dtype=int)
    for run in range(runs):
        drawn = case.simulate(case.n, rng)
        released = release(drawn.bits, drawn.guesses, drawn.scores, case.r, seed=run)
        errors[run] = released.errors
    return errors


def most_errors_rejected(case: Counterexample, method: str, alpha: float) -> int:
    """Return the largest number of errors whose p-value is at most ``alpha``; -1 if none. The
    p-value rises with the errors.
    """
    module = load_method(method)
    log_alpha = math.log(alpha)
    epsilon = case.null.highest_epsilon(case.delta) if module.FAMILY_FREE else None

    def is_kept(errors: int) -> bool:
        counts = ReleasedGuesses(case.n, case.r, errors)
        if module.FAMILY_FREE:
            return module.log_p_value(counts, epsilon, case.delta) > log_alpha
        if module.rejects:
            return not module.rejects(counts, case.null, log_alpha)
        return module.log_p_value(counts, case.null) > log_alpha

    return fewest_between(is_kept, -1, case.r) - 1
