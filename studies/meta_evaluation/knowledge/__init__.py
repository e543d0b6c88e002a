"""Every number that Lethe prints about forgetting, as one list per model: the registry of a meta-evaluation.

A member is one module with one function::

    values(seen: Seen, retrain: Seen | None, asking: Asking) -> Iterable[Number]

``seen`` is what was observed of one model, ``retrain`` the same of the model that never saw the forget set. A member may
give many numbers: the members of this folder read their keys from the functions that print them, and from the registries
of scorers and likelihoods, so a new key, scorer or likelihood takes part without a change here. `Number.knows` is larger
where the model knows more, which the member declares beforehand and no data decides.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lethe.errors import BadValue
from studies.registry import KNOWLEDGE

if TYPE_CHECKING:
    import pandas as pd

    from lethe.config.evaluating import Metrics
    from lethe.config.schema import EpsilonStar
    from lethe.io.artifacts import Row
    from lethe.statistics.leak_certificates import Certificates

GREEDY_PART, TREE_PART = "greedy", "tree"
# The likelihoods of a model in three parts: forget answers, their paraphrased and wrong answers, and held-out answers.
ANSWER_PART, OTHERS_PART, HELDOUT_PART = "forget answers", "other forget answers", "held-out answers"
MEMBERSHIP_PARTS = (ANSWER_PART, HELDOUT_PART)


def answers_part(n: int) -> str:
    """The name of the work of drawing ``n`` answers per question."""
    return f"answers@{n}"


@dataclass(frozen=True)
class Work:
    """The work of one observation of one model: processor seconds, and rows, which are tokens put through the model."""

    seconds: float
    rows: float

    def __add__(self, other: Work) -> Work:
        return Work(self.seconds + other.seconds, self.rows + other.rows)


@dataclass(frozen=True)
class Seen:
    """What was observed of one model on the forget set.

    ``scores`` has the columns ``prompt_id``, ``sample`` (-1: greedy) and one per scorer; ``likelihoods`` are the tables of
    likelihood measures by split; ``trees`` are the exact bounds, None where no question can be judged. ``work`` has the
    cost of each observation by its name.
    """

    name: str
    rows: Mapping[str, Row]
    generations: pd.DataFrame
    scores: pd.DataFrame
    likelihoods: Mapping[str, pd.DataFrame]
    trees: Certificates | None = None
    work: Mapping[str, Work] = field(default_factory=dict)


@dataclass(frozen=True)
class Asking:
    """The settings of the numbers: numbers of answers in ascending order, k of leak@k, and sections of params.yaml."""

    answers: tuple[int, ...]
    leak_at: tuple[int, ...]
    metrics: Metrics
    epsilon_star: EpsilonStar
    tree_ratio: float = 10.0
    tree_alpha: float = 0.01

    @property
    def n(self) -> int:
        """The largest number of answers."""
        return self.answers[-1]


@dataclass(frozen=True)
class Number:
    """One number of one model."""

    name: str
    value: float
    knows: float
    parts: tuple[str, ...]
    each: Mapping[str, float] = field(default_factory=dict)
    larger: bool = True


def numbers(seen: Seen, retrain: Seen | None, asking: Asking) -> dict[str, Number]:
    """All numbers of one model by name, those of registered members included."""
    found: dict[str, Number] = {}
    for member in KNOWLEDGE:
        for one in KNOWLEDGE[member].values(seen, retrain, asking):
            if one.name in found:
                raise BadValue("knowledge number", one.name, "a name that no other member gives")
            found[one.name] = one
    return found


def of_flat(
    flat: Mapping[str, object], others: frozenset[str], endings: tuple[str, ...] = ()
) -> Iterator[tuple[str, float]]:
    """The keys and values that are numbers about forgetting."""
    for key, value in flat.items():
        if key in others or (endings and key.endswith(endings)):
            continue
        if value is None:
            yield key, math.nan
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            yield key, float(value)
