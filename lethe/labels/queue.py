"""Which answers a person labels, and in which order.

The first half of each question's draws decides which distinct answers are labelled, by the mass that they cover until the
target; then come a few random draws of the second half with other texts. The choice depends on the draws, the target and
that number, never on labels.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np

from lethe.errors import check
from lethe.labels.draws import Draws
from lethe.labels.labels import Answer, Asked, Labels

SEED = 0  # for the order in which draws of the rest are labelled


@dataclass(frozen=True)
class Ahead:
    """The next answer to label: the reason, the number of draws of its question with its text, and the labelled mass."""

    asked: Asked
    answer: Answer
    count: int
    draws: int
    covered: float


class Queue:
    """The order of labelling: by mass until the target is covered, then random draws of the rest."""

    def __init__(self, draws: Draws, target: float, rest: int):
        check(0 < target <= 1, "--mass", target, "a number above 0 and at most 1")
        self.draws = draws
        self.target = target
        self.rest = rest
        self.counts: Counter[Answer] = Counter()
        for name in draws.answers:
            self.counts.update(draws.first(name))
        self.total = self.counts.total()
        # stable: ties in the order of the file
        by_mass = [answer for answer, _ in self.counts.most_common()]
        covered = np.cumsum([self.counts[answer] for answer in by_mass])
        n_short = int((covered < target * self.total).sum())
        self.chosen = by_mass[: n_short + 1]
        self.sampled = list(islice(self._shuffled_rest(), rest))

    def _shuffled_rest(self) -> Iterator[tuple[Answer, int]]:
        """The counted draws whose text was not chosen, in random order, each with its place in its question's half."""
        counted = []
        for name in self.draws.answers:
            for place, answer in enumerate(self.draws.second(name)):
                counted.append((answer, place))
        chosen = set(self.chosen)
        for place in np.random.default_rng(SEED).permutation(len(counted)):
            if counted[place][0] not in chosen:
                yield counted[place]

    def covered(self, labels: Labels) -> float:
        """The share of the first half's draws whose text was chosen and is labelled."""
        if not self.total:
            return 1.0
        labelled = [answer for answer in self.chosen if answer in labels.by_answer]
        return sum(self.counts[answer] for answer in labelled) / self.total

    def ahead(self, labels: Labels) -> Ahead | None:
        """The next answer; None if all requested answers are labelled."""
        covered = self.covered(labels)
        for answer in self.chosen:
            if answer not in labels.by_answer:
                n = len(self.draws.first(answer.prompt_id))
                asked = Asked("mass", self.target)
                return Ahead(asked, answer, self.counts[answer], n, covered)
        for answer, _ in self.sampled:
            if answer not in labels.by_answer:
                n = len(self.draws.second(answer.prompt_id))
                return Ahead(Asked("rest", self.target), answer, 1, n, covered)
        return None

    def unused(self, labels: Labels) -> int:
        """The number of labels that this choice does not request: labels for another target or another run."""
        requested = set(self.chosen)
        requested.update(answer for answer, _ in self.sampled)
        return len(labels.by_answer.keys() - requested)
