"""The promise of certified removal and of group privacy on the unlearning game: bounds on advantage and quality."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from lethe.errors import BadValue
from lethe.statistics.bound import CERTAIN, Bound, Covers


@dataclass(frozen=True)
class CertifiedBound:
    """The promise of (epsilon, delta)-certified removal: an upper bound on Adv and a lower bound on Q.

    ``paper`` is the bound of Theorem 3.6 as printed, ``sharp`` the tight bound. A bound of 1 or more is vacuous.
    """

    sharp: float
    paper: float
    quality_lower: float
    quality_lower_paper: float
    epsilon: float
    delta: float
    vacuous: bool
    paper_vacuous: bool
    assumes: str
    method: str = "certified removal"
    side: str = "upper bound on the advantage of any adversary, lower bound on the quality"

    @property
    def advantage(self) -> Bound:
        """The tight bound on the advantage."""
        return Bound(self.sharp, "upper", CERTAIN, Covers.ADVERSARY, self.assumes, self.method)

    @property
    def advantage_paper(self) -> Bound:
        """The bound on the advantage as printed in Theorem 3.6."""
        return Bound(self.paper, "upper", CERTAIN, Covers.ADVERSARY, self.assumes, self.method)

    @property
    def quality(self) -> Bound:
        """The tight bound on the quality."""
        return Bound(self.quality_lower, "lower", CERTAIN, Covers.ADVERSARY, self.assumes, self.method)


def certified_bound(epsilon: float, delta: float = 0.0) -> CertifiedBound:
    """Bounds on the advantage against an (epsilon, delta)-certified removal method (Definition 3.5).

    As printed (Theorem 3.6): Adv <= 2 (1 - (2 - 2 delta) / (e^epsilon + 1)), vacuous for epsilon >= ln 3.
    Tight: Adv <= 1 - e^-epsilon (1 - 2 delta), hence Q >= e^-epsilon (1 - 2 delta).

    >>> found = certified_bound(0.1)
    >>> round(found.sharp, 4), round(found.paper, 4)
    (0.0952, 0.0999)
    """
    _check_privacy(epsilon, delta)
    # 2 (1 - 2 / (e^x + 1)) = 2 tanh(x / 2): exact for small epsilon, no overflow for a large one.
    paper = 2 * math.tanh(epsilon / 2) + 4 * delta * math.exp(-epsilon) / (1 + math.exp(-epsilon))
    sharp = min(1.0, -math.expm1(-epsilon) + 2 * delta * math.exp(-epsilon))
    return CertifiedBound(
        sharp=sharp,
        paper=paper,
        quality_lower=1 - sharp,
        quality_lower_paper=max(0.0, 1 - paper),
        epsilon=epsilon,
        delta=delta,
        vacuous=sharp >= 1,
        paper_vacuous=paper >= 1,
        assumes="the removal of the whole forget set is (epsilon, delta)-certified",
    )


def group_bound(epsilon: float, delta: float, records: int) -> CertifiedBound:
    """The bounds of `certified_bound` for learning with (epsilon, delta)-DP per record, without unlearning.

    Record-level privacy protects one record. For a forget set of k records, the guarantee follows only from group privacy:
    (k epsilon, delta (e^(k epsilon) - 1) / (e^epsilon - 1)), where neighbours add or remove one record. For practical forget
    sets and budgets the bound is vacuous, and the result says so.

    Parameters
    ----------
    epsilon, delta
        The guarantee per record.
    records
        The number k of forgotten records, at least 1.
    """
    _check_privacy(epsilon, delta)
    if records < 1:
        raise BadValue("records", records, "a whole number of at least 1")
    exponents = epsilon * np.arange(records)
    log_growth = float(exponents.max() + np.log(np.exp(exponents - exponents.max()).sum()))
    log_delta = math.log(delta) + log_growth if delta > 0 else -math.inf
    group = certified_bound(records * epsilon, math.exp(min(log_delta, 0.0)))
    return replace(
        group,
        method=f"group privacy over {records} records",
        assumes=f"learning is ({epsilon:g}, {delta:g})-DP for adding or removing one record; a forget set of "
        f"{records} is bounded only through group privacy",
    )


def _check_privacy(epsilon: float, delta: float) -> None:
    if not epsilon >= 0 or math.isinf(epsilon):
        raise BadValue("epsilon", epsilon, "a finite number of at least 0")
    if not 0 <= delta <= 1:
        raise BadValue("delta", delta, "a number in [0, 1]")
