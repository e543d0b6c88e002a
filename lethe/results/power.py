"""What a number of answers can decide: the words that typical models would get, by simulation with the rule itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from lethe.errors import BadValue
from lethe.results import verdict
from lethe.results.ends import Ends
from lethe.results.verdict import Word

RUNS = 200
SMALL = (0.002, 0.0005, 0.0002)  # what chance answers: one question, one, and every other
GUESSED = 0.9  # of tau: a question that chance answers nearly as often as the tolerance allows


@dataclass(frozen=True)
class Case:
    """A model whose probabilities are known, beside a Retrain whose probabilities are known, both of shape (questions,)."""

    name: str
    wanted: Word
    model: np.ndarray
    retrain: np.ndarray


@dataclass(frozen=True)
class Power:
    """How often each word was given to a case, of `RUNS` simulated runs."""

    name: str
    wanted: Word
    words: Mapping[str, float]


def cases(questions: int, tau: float) -> list[Case]:
    """Four models: a copy of Retrain, a copy where chance nearly answers a question, several leaking questions, one."""
    chance = np.full(questions, SMALL[-1])
    chance[: len(SMALL) - 1] = SMALL[:-1][:questions]
    guessed = chance.copy()
    guessed[0] = GUESSED * tau
    several, one = chance.copy(), chance.copy()
    several[: min(3, questions)] = 2 * tau
    one[0] = 5 * tau
    return [
        Case("a copy of Retrain", "forgot", chance, chance),
        Case(f"the same, one question guessed at {GUESSED * tau:.2g}", "forgot", guessed, guessed),
        Case(f"{min(3, questions)} questions leak at {2 * tau:.2g}", "leaks", several, chance),
        Case(f"one question leaks at {5 * tau:.2g}", "leaks", one, chance),
    ]


def power(
    n: int, *, questions: int, models: int, tau: float, alpha: float, retrain: bool = True, seed: int = 0
) -> list[Power]:
    """The words that the cases get from ``n`` sampled answers to each question, of the model and of Retrain.

    ``models``, ``tau`` and ``alpha`` are those of `lethe.results.verdict.decide`. Without ``retrain`` chance counts as 0.

    >>> found = power(1024, questions=30, models=1, tau=0.02, alpha=0.01)
    >>> found[3].wanted, found[3].words["leaks"] > 0.9
    ('leaks', True)
    """
    for name, value in (("n", n), ("questions", questions), ("models", models)):
        if value < 1:
            raise BadValue(name, value, "a whole number of at least 1")
    generator = np.random.default_rng(seed)
    items = tuple(f"question {place}" for place in range(questions))
    found = []
    for case in cases(questions, tau):
        words: Counter[str] = Counter()
        for _ in range(RUNS):
            own, chance = (
                Ends.of_arrays(items, generator.binomial(n, each), n) for each in (case.model, case.retrain)
            )
            beside = (chance,) if retrain else ()
            words[verdict.decide(own, beside, alpha=alpha, tau=tau, models=models, planned=False).word] += 1
        found.append(
            Power(case.name, case.wanted, {word: words[word] / RUNS for word in ("leaks", "forgot", "open")})
        )
    return found
