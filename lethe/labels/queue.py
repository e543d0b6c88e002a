"""Which answers a person labels, and in which order.

The first half of each question's draws decides which distinct answers are labelled, by the mass that they cover until the
target; then come a few random draws of the second half with other texts. The choice depends on the draws, the target and
that number, never on labels.
"""

from __future__ import annotations

from collections import Counter
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
        self.draws, self.target, self.rest = draws, target, rest
        self.counts = Counter(answer for name in draws.answers for answer in draws.first(name))
        self.total = self.counts.total()
        by_mass = [
            answer for answer, _ in self.counts.most_common()
        ]  # stable: ties in the order of the file
        covered = np.cumsum([self.counts[answer] for answer in by_mass])
        self.chosen = by_mass[: int((covered < target * self.total).sum()) + 1]
        counted = [
            (answer, place)
            for name in draws.answers
            for place, answer in enumerate(draws.second(name))
        ]
        shuffled = (
            counted[place] for place in np.random.default_rng(SEED).permutation(len(counted))
        )
        inside = set(self.chosen)
        self.sampled = list(islice((one for one in shuffled if one[0] not in inside), rest))

    def covered(self, labels: Labels) -> float:
        """The share of the first half's draws whose text was chosen and is labelled."""
        labelled = sum(self.counts[answer] for answer in self.chosen if answer in labels.by_answer)
        return labelled / self.total if self.total else 1.0

    def ahead(self, labels: Labels) -> Ahead | None:
        """The next answer; None if all requested answers are labelled."""
        draws, target, covered = self.draws, self.target, self.covered(labels)
        for answer in self.chosen:
            if answer not in labels.by_answer:
                n = len(draws.first(answer.prompt_id))
                return Ahead(Asked("mass", target), answer, self.counts[answer], n, covered)
        for answer, _ in self.sampled:
            if answer not in labels.by_answer:
                return Ahead(
                    Asked("rest", target), answer, 1, len(draws.second(answer.prompt_id)), covered
                )
        return None

    def unused(self, labels: Labels) -> int:
        """The number of labels that this choice does not request: labels for another target or another run."""
        return len(
            labels.by_answer.keys() - {*self.chosen, *(answer for answer, _ in self.sampled)}
        )
