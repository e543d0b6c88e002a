"""Which answers a person labels, and in which order.

A person reads the answers that came more than once first, by the mass that they cover, until the target; then a few random
draws with other texts. An answer that came once says of one draw what a random draw says, and the random draws speak for
all others, so answers that came once are read by mass only where no random draws are planned. The choice depends on the
draws, the target and that number, never on labels.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np

from lethe.errors import check
from lethe.labels.draws import DrawnAnswers
from lethe.labels.labels import AnswerText, LabelReason, Labels

SEED = 0  # for the order in which draws of the rest are labelled


@dataclass(frozen=True)
class Ahead:
    """The next answer to label, with what a person sees beside it.

    Attributes
    ----------
    asked
        Why it is asked.
    count
        The number of draws of its question with its text.
    draws
        The number of all draws of its question.
    covered
        The share of all draws whose text was chosen and is labelled already.
    left
        The number of answers that are to be read, this one included.
    """

    asked: LabelReason
    answer: AnswerText
    count: int
    draws: int
    covered: float
    left: int


class Queue:
    """The order of labelling: by mass until the target is covered, then random draws of the rest.

    Parameters
    ----------
    draws
        The answers of a run.
    target
        The share of the draws whose texts a person reads by mass, above 0 and at most 1.
    rest
        The number of random draws of the rest; 0: answers that came once are read by mass, too.

    Attributes
    ----------
    chosen
        The texts that are read by mass, in this order.
    reach
        The share of the draws that they cover, which may be below the target.
    sampled
        The random draws of the rest, each with its place among its question's draws.

    Raises
    ------
    BadValue
        If the target is out of range.
    """

    def __init__(self, draws: DrawnAnswers, target: float, rest: int):
        check(0 < target <= 1, "--mass", target, "a number above 0 and at most 1")
        self.draws = draws
        self.target = target
        self.rest = rest
        self.counts: Counter[AnswerText] = Counter()
        self.counts.update(draws.present())
        self.total = sum(map(len, draws.answers.values()))  # a missing answer has mass, too

        # Stable: ties are in the order of the file.
        by_mass = [answer for answer, _ in self.counts.most_common()]
        covered = np.cumsum([self.counts[answer] for answer in by_mass])
        n_chosen = int((covered < target * self.total).sum()) + 1
        if rest > 0:
            n_repeated = sum(count > 1 for count in self.counts.values())
            n_chosen = min(n_chosen, n_repeated)
        self.chosen = by_mass[:n_chosen]

        self.reach = sum(self.counts[answer] for answer in self.chosen) / max(self.total, 1)
        self.sampled = list(islice(self._shuffled_rest(), rest))

    def worst(self, most: int) -> list[AnswerText]:
        """At most so many answers that the verdicts call leaks; empty without verdicts.

        Those of the question with the most such draws come first, and of a question those that came most often. A person's
        label of such an answer is a fact about it: the bounds of a question hold for any choice of labels, and the random
        draws of the rest stay the same ones.
        """
        leaks: Counter[AnswerText] = Counter()
        leaks_of_question: Counter[str] = Counter()
        for name, verdicts in self.draws.verdicts.items():
            for answer, verdict in zip(self.draws.answers[name], verdicts, strict=True):
                if answer is not None and verdict == 1:
                    leaks[answer] += 1
                    leaks_of_question[name] += 1
        found = sorted(leaks, key=lambda answer: -leaks[answer])
        found.sort(key=lambda answer: -leaks_of_question[answer.prompt_id])
        return found[:most]

    def _shuffled_rest(self) -> Iterator[tuple[AnswerText, int]]:
        """The draws whose text was not chosen, in random order, each with its place among its question's draws."""
        counted = []
        for name in self.draws.answers:
            for place, answer in enumerate(self.draws.answers[name]):
                if answer is not None:
                    counted.append((answer, place))
        chosen = set(self.chosen)
        for place in np.random.default_rng(SEED).permutation(len(counted)):
            if counted[place][0] not in chosen:
                yield counted[place]

    def covered(self, labels: Labels) -> float:
        """The share of the draws whose text was chosen and is labelled."""
        if not self.total:
            return 1.0
        labelled = [answer for answer in self.chosen if answer in labels.by_answer]
        return sum(self.counts[answer] for answer in labelled) / self.total

    def requested(self) -> dict[AnswerText, LabelReason]:
        """The answers that a person is to read, in this order, and the reason of each."""
        requested = {answer: LabelReason("mass", self.target, self.rest) for answer in self.chosen}
        for answer, _ in self.sampled:
            requested[answer] = LabelReason("rest", self.target, self.rest)
        return requested

    def left(self, labels: Labels) -> list[AnswerText]:
        """The requested answers without a label, in the order in which a person reads them."""
        return [answer for answer in self.requested() if answer not in labels.by_answer]

    def ahead(self, labels: Labels) -> Ahead | None:
        """The next answer; None if all requested answers are labelled."""
        left = self.left(labels)
        if not left:
            return None
        answer = left[0]
        asked = self.requested()[answer]
        n = len(self.draws.answers[answer.prompt_id])
        return Ahead(asked, answer, self.counts[answer], n, self.covered(labels), len(left))

    def unused(self, labels: Labels) -> int:
        """The number of labels that this choice does not request: labels for another target or another run."""
        return len(labels.by_answer.keys() - self.requested().keys())
