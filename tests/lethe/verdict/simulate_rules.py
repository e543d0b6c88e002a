"""How often a word of the verdict is false: many runs at once."""

from dataclasses import dataclass, field, replace

import numpy as np

from lethe.results.ends import Ends
from lethe.results.evidence import Trees
from lethe.verdict.rules import level_of


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
        return replace(self, leaks=self.leaks + other.leaks, n=self.n + other.n)

    def ends(self):
        trees = None
        if self.sampled is not None:
            explored = np.broadcast_to(self.explored, self.leaks.shape).ravel()
            ones = np.ones(explored.size)
            trees = Trees(
                explored, explored, ones, ones, ones * self.rho, self.sampled.ravel().astype(float)
            )
        return Ends.of_arrays(
            [str(place) for place in range(self.leaks.size)],
            self.leaks.ravel(),
            self.n,
            trees=trees,
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


def run(
    rng, chance, subject, models, runs, n, tau=0.01, alpha=0.05, level=None, retrain=True, rho=0.0
):
    """Words of ``runs`` runs: ``models`` models with the probabilities ``subject`` beside one Retrain with ``chance``."""
    sample = Sample.of(rng, subject, (runs, models), n, rho, 0.5)
    reference = Sample.of(rng, chance, (runs,), n, rho, 0.5) if retrain else None
    return Rule(sample, reference, level or level_of(alpha, models), tau)


def any_false(words, false):
    return float((words == false).any(axis=-1).mean())
