"""A question with its definition of a leak, and the settings and the result of one growth of the tree."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from lethe.errors import BadValue
from lethe.sampling.answer_tree.automaton import Automaton
from lethe.statistics.answer_tree import Masses, Remainder
from lethe.statistics.leak_trees import HeavyLeak

Decode = Callable[[list[tuple[int, ...]]], list[str]]  # answers' tokens -> their texts
Scores = Callable[[list[str]], np.ndarray]  # texts -> whether each leaks, bool


@dataclass(frozen=True)
class Question:
    """A prompt's tokens and the definition of a leak.

    ``automaton`` decides most answers from their tokens; ``scores`` judges the texts of the others. ``seeds`` are answers
    whose prefixes are always explored, even if unlikely: the reference and its paraphrases. ``note`` says how
    answers are judged.
    """

    question_id: str
    prompt: tuple[int, ...]
    automaton: Automaton
    decode: Decode
    scores: Scores
    seeds: tuple[tuple[int, ...], ...] = ()
    note: str = ""

    def __post_init__(self) -> None:
        if not self.prompt:
            raise BadValue(f"prompt {self.question_id!r}", self.prompt, "at least one token")


@dataclass(frozen=True)
class Growth:
    """The extent of a growth.

    A prefix is explored if the minimum of mass x exp(``guide`` x share of a keyword read) along its path is at least
    ``theta``. The rest is sampled at the rate ``rho``; 0 samples nothing. ``most_explored`` ends the exploration early and
    must not be combined with a rate, because the exploration must not depend on the draws. ``counted_guide`` is the guide
    under which explored prefixes are counted for a later growth.
    """

    theta: float
    guide: float = 0.0
    rho: float = 0.0
    most_explored: int | None = None
    counted_guide: float = 0.0

    def __post_init__(self) -> None:
        for name, good, legal in [
            ("theta", self.theta > 0, "a number above 0"),
            ("guide", self.guide >= 0, "a number of at least 0"),
            ("rho", 0 <= self.rho < float("inf"), "a number of at least 0"),
            ("most_explored", self.most_explored is None or not self.rho, "null with a rate above 0"),
        ]:
            if not good:
                raise BadValue(name, getattr(self, name), legal)


@dataclass(frozen=True)
class Grown:
    """The result of a growth.

    ``rest`` is the unexplored mass. ``rows`` went through the model, ``explored`` of them for the exploration rather than
    for samples. ``priorities`` (explored,) are under the counted guide; ``leaked`` and ``cleared`` (explored,) are the
    masses that each prefix's next token decided, either way. ``entropy`` (nats) and ``length`` (tokens) are means over the
    sampled answers, NaN without samples.
    """

    masses: Masses
    remainder: Remainder
    rest: float
    rows: int
    explored: int
    heaviest: tuple[HeavyLeak, ...]
    priorities: np.ndarray = field(repr=False)
    leaked: np.ndarray = field(repr=False)
    cleared: np.ndarray = field(repr=False)
    entropy: float = float("nan")
    length: float = float("nan")

    @property
    def decided(self) -> np.ndarray:
        """The mass that each explored prefix decided."""
        return self.leaked + self.cleared


def checked_tokens(question: Question, vocabulary: int, tokens: Sequence[int]) -> None:
    """Check that the model knows every token."""
    if not all(0 <= token < vocabulary for token in tokens):
        raise BadValue(f"tokens of question {question.question_id!r}", tuple(tokens), f"0 to {vocabulary - 1}")
