"""Distributions on [0, 1] with known mean and standard deviation, on which the bounds' coverage is simulated."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Law:
    """``draw(rng, shape)``, and the true values of its distribution; ``above(x)`` is P(X > x)."""

    name: str
    draw: Callable
    mean: float
    sd: float
    above: Callable[[float], float]
    binary: bool = False


def bernoulli(p: float) -> Law:
    return Law(
        f"Bernoulli({p})",
        lambda rng, shape: (rng.random(shape) < p).astype(float),
        p,
        math.sqrt(p * (1 - p)),
        lambda x: p if x < 1 else 0.0,
        binary=True,
    )


def beta(a: float, b: float, zeros: float = 0.0) -> Law:
    """Beta(a, b), mixed with a share of zeros."""
    from scipy.special import betaincc

    mean, second = a / (a + b), a * (a + 1) / ((a + b) * (a + b + 1))
    mean, second = (1 - zeros) * mean, (1 - zeros) * second
    return Law(
        f"Beta({a}, {b})" + (f", {zeros:.0%} zeros" if zeros else ""),
        lambda rng, shape: np.where(rng.random(shape) < zeros, 0.0, rng.beta(a, b, shape)),
        mean,
        math.sqrt(second - mean**2),
        lambda x: float((1 - zeros) * betaincc(a, b, x)),
    )


def lattice(points: list[float], shares: list[float]) -> Law:
    """A few values, as ROUGE takes them for one short reference."""
    points, shares = np.array(points), np.array(shares)
    mean = float(points @ shares)
    return Law(
        "lattice",
        lambda rng, shape: rng.choice(points, shape, p=shares),
        mean,
        math.sqrt(float(points**2 @ shares) - mean**2),
        lambda x: float(shares[points > x].sum()),
    )


LAWS = [
    bernoulli(0.0),
    bernoulli(1.0),
    bernoulli(0.01),
    bernoulli(0.5),
    beta(2, 5),
    beta(0.2, 5),
    beta(5, 0.2),
    beta(1, 1),
    beta(2, 5, zeros=0.5),
    lattice([0, 1 / 7, 2 / 7, 3 / 7, 5 / 7, 1], [0.4, 0.2, 0.15, 0.1, 0.1, 0.05]),
]


def drawn(case: dict) -> np.ndarray:
    """The scores of a case of the oracles, in the order of drawing."""
    given = case["input"]
    if "x" in given:
        return np.array(given["x"], dtype=float)
    recipe = given["generator"]
    rng, n = np.random.Generator(np.random.PCG64(recipe["seed"])), recipe["n"]
    if recipe["kind"] == "zmix":
        zero = rng.random(n) < recipe["w"]
        return np.where(zero, 0, rng.beta(recipe["a"], recipe["b"], size=n))
    return {
        "beta": lambda: rng.beta(recipe["a"], recipe["b"], n),
        "uniform": lambda: rng.random(n),
        "bernoulli": lambda: (rng.random(n) < recipe["p"]).astype(float),
        "grid10": lambda: rng.integers(0, 11, n) / 10,
    }[recipe["kind"]]()
