"""How far the word on a model is, shown while answers are drawn: which question is in the way."""

from collections.abc import Sequence

import numpy as np

from lethe.errors import one_line
from lethe.progress import Goal
from lethe.statistics.policy import Next, Tally


def goals_of(items: Sequence[str], model: Tally, step: Next) -> list[Goal]:
    """The evidence of each question that has not passed, as a share of what *forgot* needs."""
    shares = _shares(step)
    found = []
    for place in np.flatnonzero(~step.evidence.passed):
        n = int(model.n[place])
        leaks = int(model.leaks[place])
        note = f"{shares[place]:.0%} after {n:,} answers"
        if leaks:
            note += f", {leaks:,} of them leak"
        found.append(Goal(one_line(items[place]), float(shares[place]), note))
    return found


def sentence_of(items: Sequence[str], step: Next) -> str:
    """How many questions have passed, and which one is in the way.

    >>> from lethe.statistics.policy import Policy
    >>> policy = Policy(first=128, batch=128, cap=4096, tolerance=0.01, goal=4.6)
    >>> sentence_of(["q1", "q2"], policy.next(Tally.of([0, 1], [600, 256])))
    '1 of 2 questions has passed, q2 is in the way with 4% of its evidence; leaks has 0%'
    """
    passed = step.evidence.passed
    count = int(passed.sum())
    has = "has" if count == 1 else "have"
    said = f"{count} of {len(items)} questions {has} passed"
    if not passed.all():
        shares = _shares(step)
        place = int(np.argmin(np.where(passed, np.inf, step.evidence.log_e_forgot)))
        item = one_line(items[place])
        said += f", {item} is in the way with {shares[place]:.0%} of its evidence"
    of_leaks = _share(step.evidence.log_e_mean, step.evidence.goal)
    return f"{said}; leaks has {float(of_leaks):.0%}"


def _shares(step: Next) -> np.ndarray:
    return _share(step.evidence.log_e_forgot, step.evidence.goal)


def _share(log_e: np.ndarray, goal: float) -> np.ndarray:
    """ln e as a share of its goal, in [0, 1]."""
    return np.clip(log_e / goal, 0.0, 1.0)
