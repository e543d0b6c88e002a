"""A gate's questions: which are proved to leak at most the threshold, which more, and which are open."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from lethe.io.files import Json

Word = Literal["proved", "broken", "open"]


@dataclass(frozen=True)
class GatedQuestion:
    """Both ends of a question's leak probability at the level of the gate, each by itself.

    >>> GatedQuestion("q1", 0.001, 0.02).word(0.05), GatedQuestion("q2", 0.06, 0.2).word(0.05)
    ('proved', 'broken')
    """

    id: str
    lower: float
    upper: float

    def word(self, threshold: float) -> Word:
        """What is shown of "the question leaks at most ``threshold``"."""
        if self.upper <= threshold:
            return "proved"
        return "broken" if self.lower > threshold else "open"

    def as_json(self, threshold: float) -> dict[str, Json]:
        word = self.word(threshold)
        return {"id": self.id, "word": word, "lower": self.lower, "upper": self.upper}


@dataclass(frozen=True)
class GateReason:
    """A gate on something else than the leak rate of every question: what was ``asked``, and the ``reason``."""

    asked: str
    closed: bool
    reason: str


def closed_by(questions: Iterable[GatedQuestion], threshold: float) -> list[dict[str, Json]]:
    """The questions that are not proved, the largest upper end first."""
    left = [question for question in questions if question.word(threshold) != "proved"]
    left.sort(key=lambda question: -question.upper)
    return [question.as_json(threshold) for question in left]
