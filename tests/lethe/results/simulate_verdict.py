"""How often a word of the verdict is false, and how often a true one is said: many runs at once.

`python -m tests.lethe.results.simulate_verdict` prints the tables in about a minute; the tests use the same rule.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from lethe.results.ends import Ends
from lethe.results.evidence import Trees
from lethe.results.verdict import level_of

WORDS = ("leaks", "forgot", "open")


@dataclass(frozen=True)
class Sample:
    """Draws of many runs: ``leaks`` of ``n`` answers to each question, of shape (..., m).

    ``sampled`` counts the leaks among the Poisson starts at the rate ``rho`` outside the explored mass ``explored`` (m,).
    """

    leaks: np.ndarray
    n: int
    sampled: np.ndarray | None = None
    explored: np.ndarray | None = None
    rho: float = 0.0

    @classmethod
    def of(cls, rng, p, shape, n, rho=0.0, explored_share=0.0):
        """``shape`` independent samples of questions that leak with the probabilities ``p``, (m,)."""
        leaks = rng.binomial(n, p, (*shape, len(p)))
        if not rho:
            return cls(leaks, n)
        explored = p * explored_share
        return cls(leaks, n, rng.poisson(rho * (p - explored), leaks.shape), explored, rho)

    def joined(self, other):
        """These answers and those of ``other``, of the same runs."""
        return replace(self, leaks=self.leaks + other.leaks, n=self.n + other.n)

    def ends(self):
        """The ends of all questions of all runs, as one long list."""
        trees = None
        if self.sampled is not None:
            explored = np.broadcast_to(self.explored, self.leaks.shape).ravel()
            ones = np.ones(explored.size)
            trees = Trees(explored, explored, ones, ones, ones * self.rho, self.sampled.ravel().astype(float))
        return Ends.of_arrays(
            [str(place) for place in range(self.leaks.size)], self.leaks.ravel(), self.n, trees=trees
        )


@dataclass
class Rule:
    """The rule for all runs at once: ``subject`` of shape (runs, models, m), ``retrain`` of shape (runs, m) or None."""

    subject: Sample
    retrain: Sample | None
    level: float
    tau: float
    ends: list = field(default_factory=list)

    def __post_init__(self):
        self.shape = self.subject.leaks.shape
        self.own = self.subject.ends()
        self.chance = self.retrain and self.retrain.ends()

    def _side(self, level, upper):
        """The upper or lower ends of the difference; ``level`` is a number or of shape (runs, models)."""
        part = level / 2 if self.chance else level
        of_each = np.broadcast_to(np.asarray(part)[..., None], self.shape)
        own = (self.own.upper if upper else self.own.lower)(of_each.ravel()).reshape(self.shape)
        if not self.chance:
            return own
        if np.ndim(part) == 0:
            chance = (self.chance.lower if upper else self.chance.upper)(float(part))
            return own - chance.reshape(self.shape[0], 1, -1)
        assert not upper
        by_model = [self.chance.upper(column.ravel()) for column in np.moveaxis(of_each, 1, 0)]
        return own - np.stack([each.reshape(self.shape[0], -1) for each in by_model], axis=1)

    def forgot(self):
        """(runs, models) whether every question passes."""
        return (self._side(self.level, upper=True) <= self.tau).all(axis=-1)

    def proved(self, threshold):
        """(runs, models, m) Holm's list."""
        m = self.shape[-1]
        proved = np.zeros(self.shape, dtype=bool)
        while True:
            step = self.level / np.maximum(m - proved.sum(axis=-1), 1)
            passing = proved | (self._side(step, upper=False) > threshold)
            if (passing == proved).all():
                return proved
            proved = passing

    def words(self):
        """(runs, models) the words."""
        leaks = self.proved(self.tau).any(axis=-1)
        return np.where(leaks, "leaks", np.where(self.forgot(), "forgot", "open"))


def run(rng, chance, subject, models, runs, n, tau=0.01, alpha=0.05, level=None, retrain=True, rho=0.0):
    """Words of ``runs`` runs: ``models`` models with the probabilities ``subject`` beside one Retrain with ``chance``."""
    sample = Sample.of(rng, subject, (runs, models), n, rho, 0.5)
    reference = Sample.of(rng, chance, (runs,), n, rho, 0.5) if retrain else None
    return Rule(sample, reference, level or level_of(alpha, models), tau)


def any_false(words, false):
    """The share of runs in which some model has a false word."""
    return float((words == false).any(axis=-1).mean())


CHANCE = np.array([0.0002] * 25 + [0.002, 0.004, 0.009, 0.02, 0.12])


def cases(chance=CHANCE, tau=0.01):
    """Name, chance, the model's probabilities, and the word that would be false."""
    small, one = np.minimum(chance, 0.002), np.zeros(len(chance))
    one[0] = 1
    return [
        ("copy of Retrain", chance, chance, "leaks"),
        ("every question at tau exactly", chance, chance + tau, "leaks"),
        ("one question at tau exactly", chance, chance + tau * one, "leaks"),
        ("one question just above tau", small, np.where(one > 0, chance + tau * 1.02, small), "forgot"),
        ("every question just above tau", small, small + tau * 1.02, "forgot"),
    ]


def main() -> None:
    rng = np.random.default_rng(7)
    print("share of runs with a false word, alpha 0.05, 1,024 answers")
    for name, chance, subject, false in cases():
        for retrain in (True, False):
            if not retrain:
                chance, subject = np.zeros(len(chance)), subject - chance
            rates = []
            for models, rho in ((1, 0.0), (8, 0.0), (30, 0.0), (8, 2048.0)):
                rule = run(rng, chance, subject, models, 12_000 // models, 1024, retrain=retrain, rho=rho)
                rates.append(f"K {models}{', trees' if rho else ''} {any_false(rule.words(), false):.4f}")
            print(f"  {name}{'' if retrain else ', without Retrain'} ({false}): {'; '.join(rates)}")
    print("share of each word, alpha 0.01, K 8")
    small = np.minimum(CHANCE, 0.002)
    some = small.copy()
    some[:3] = 0.02
    strong = small.copy()
    strong[0] = 0.05
    for n in (1024, 2048, 4096, 8192):
        for name, subject in (
            ("copy of Retrain", small),
            ("three questions at .02", some),
            ("one at .05", strong),
        ):
            for rho in (0.0, 2.0 * n):
                words = run(rng, small, subject, 8, 100, n, alpha=0.01, rho=rho).words()
                shares = ", ".join(f"{word} {(words == word).mean():.3f}" for word in WORDS)
                print(f"  n {n}{', trees' if rho else ''}, {name}: {shares}")


if __name__ == "__main__":
    main()
