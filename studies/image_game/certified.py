"""What differential privacy promises of unlearning (Tu et al. 2024, Theorem 3.6), for a certified removal and for learning.

Source: "Towards Reliable Empirical Machine Unlearning Evaluation: A Game-Theoretic View".
"""

import math
from dataclasses import replace

import numpy as np

from lethe.statistics.checks import check, check_count
from lethe.statistics.unlearning_game import CertifiedBound


def certified_bound(epsilon: float, delta: float = 0.0) -> CertifiedBound:
    """Bounds on the advantage against an (epsilon, delta)-certified removal method (Definition
    3.5).

    As printed (Theorem 3.6): Adv <= 2 (1 - (2 - 2 delta) / (e^epsilon + 1)), vacuous for epsilon >=
    ln 3. Tight: Adv <= 1 - e^-epsilon (1 - 2 delta), hence Q >= e^-epsilon (1 - 2 delta).
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
    """The bounds of `certified_bound` for learning with (epsilon, delta)-DP per record, without
    unlearning.

    A forget set of k ``records`` has group privacy: (k epsilon, delta (e^(k epsilon) - 1) /
    (e^epsilon - 1)), where neighbours add or remove one record. For practical forget sets and
    budgets the bound is vacuous.

    Parameters
    ----------
    epsilon, delta
        Of learning, per record.
    records
        Size of the forget set, at least 1.
    """
    _check_privacy(epsilon, delta)
    check_count("records", records)
    exponents = epsilon * np.arange(records)
    log_growth = float(exponents.max() + np.log(np.exp(exponents - exponents.max()).sum()))
    group_delta = 0.0
    if delta > 0:
        group_delta = math.exp(min(math.log(delta) + log_growth, 0.0))
    group = certified_bound(records * epsilon, group_delta)
    assumes = (
        f"learning is ({epsilon:g}, {delta:g})-DP for adding or removing one record; a forget "
        f"set of {records} is bounded only through group privacy"
    )
    return replace(group, method=f"group privacy over {records} records", assumes=assumes)


def _check_privacy(epsilon: float, delta: float) -> None:
    check(0 <= epsilon < math.inf, "epsilon", epsilon, "a finite number of at least 0")
    check(0 <= delta <= 1, "delta", delta, "a number in [0, 1]")
