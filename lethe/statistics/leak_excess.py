"""Whether a model leaks more than Retrain to the same questions, from the exact bounds of both.

Source of the list of questions: Holm (1979), "A simple sequentially rejective multiple test procedure".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import pdtr

from lethe.errors import BadValue
from lethe.statistics.answer_tree import EXACTLY, SAMPLED, Masses, Remainder, Rounding, leak_interval
from lethe.statistics.checks import check_alpha
from lethe.statistics.many_prompts import holm


@dataclass(frozen=True)
class AgainstRetrain:
    """Lower bounds of the ratio of the model's P(leak) to Retrain's, one entry per question, (m,).

    ``ratio`` holds for each question on its own at ``alpha`` (inf where Retrain cannot leak). ``holds`` names the
    questions whose ratio is at least ``factor``; with probability 1 - alpha every named question is right (Holm 1979).
    """

    ratio: np.ndarray
    p_values: np.ndarray
    holds: np.ndarray
    factor: float
    alpha: float
    method: str
    assumes: str


def against_retrain(
    lower: np.ndarray,
    retrain: Sequence[tuple[Masses, Remainder]],
    factor: float,
    alpha: float,
    rounding: Rounding = EXACTLY,
) -> AgainstRetrain:
    """Compare the model's certain lower ends with Retrain's leak to the same questions.

    The null of a question is P(leak) of the model <= ``factor`` x P(leak) of Retrain. The model's lower end is certain,
    so under the null Retrain's P(leak) is at least lower / factor. Then at least lower / factor minus Retrain's
    enumerated leaking mass is unexplored. The p-value is the Poisson probability of at most the observed number of
    sampled leaks.

    Parameters
    ----------
    lower
        The model's certain lower ends, shape (m,).
    retrain
        Retrain's masses and sample for each of the m questions.
    factor
        The ratio in question, at least 1, chosen before the numbers are seen.
    alpha
        The level, for all questions together by Holm's rule.
    rounding
        The largest error of Retrain's masses.

    Raises
    ------
    BadValue
        If alpha or factor is out of range, or ``lower`` does not match Retrain's questions.
    """
    check_alpha(alpha)
    if not 1 <= factor < math.inf:
        raise BadValue("factor", factor, "a number of at least 1")
    lower = np.asarray(lower, dtype=np.float64)
    if lower.shape != (len(retrain),) or not len(retrain):
        raise BadValue("lower", lower.shape, f"one for each of Retrain's {len(retrain)} questions, at least one")
    ends = [leak_interval(masses, rest, alpha, rounding) for masses, rest in retrain]
    upper = np.array([end.upper for end in ends])
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(lower > 0, lower / upper, 0.0)
    p_values = np.array(
        [
            _p_value(float(low) / factor, masses, rest, end.upper_certain, rounding)
            for low, (masses, rest), end in zip(lower, retrain, ends, strict=True)
        ]
    )
    # Only the list is used, because holm's claim is about upper bounds.
    holds, _ = holm(p_values, factor, alpha)
    return AgainstRetrain(ratio, p_values, holds, factor, alpha, "Poisson tail, Holm", SAMPLED)


def _p_value(claimed: float, masses: Masses, remainder: Remainder, certain: float, rounding: Rounding) -> float:
    """P(at most the observed number of leaks | Retrain leaks with probability ``claimed`` or more)."""
    if claimed > certain:
        return 0.0  # the enumeration alone refutes the null
    rest = (claimed - rounding.most(masses.leak_by_length)) / rounding.factor
    return float(pdtr(remainder.leaks, remainder.rho * rest)) if rest > 0 else 1.0
