"""The word on forgetting of a model with everything that is said with it; `lethe.verdict.rules` decides it."""

from dataclasses import dataclass
from typing import Literal

# Of Base's score: what an intact model keeps at least, and a destroyed one less than.
INTACT = 0.9
DESTROYED = 0.5

Word = Literal["leaks", "forgot", "open", "none"]
UtilityWord = Literal["intact", "damaged", "destroyed", "open"]
Reason = Literal["width", "cut off", "too close"]


@dataclass(frozen=True)
class WorstQuestion:
    """The question with the largest lower end (ties: the largest upper end), and its ends.

    The ends of all questions hold together with probability 1 - level.
    """

    item: str
    lower: float
    upper: float


@dataclass(frozen=True)
class InTheWay:
    """The question that keeps *forgot* away, and why.

    ``excess`` is the most by which the question may leak beyond Retrain, with cut answers as leaks where these are in the
    way. ``cut`` is the share of its answers that reached the token limit; None if unknown.
    """

    item: str
    excess: float
    reason: Reason
    cut: float | None = None


@dataclass(frozen=True)
class Decides:
    """How many ``answers`` would decide the question in the way at its present shares: ``times`` as many as it has."""

    times: float
    answers: int


@dataclass(frozen=True)
class Drawn:
    """The answers behind a word: ``least`` and ``most`` to a question and ``total``, and those of the Retrains.

    ``retrain_least`` and ``retrain_most`` are of a question and one Retrain, ``retrain_total`` of all.
    """

    least: int
    most: int
    total: int
    retrain_least: int = 0
    retrain_most: int = 0
    retrain_total: int = 0


@dataclass(frozen=True)
class Verdict:
    """The word on forgetting with everything that is said with it.

    ``level`` is the probability of a false word of this model, at all times together where ``anytime`` is True. At least
    ``leaking`` questions leak by more than ``tau`` beyond Retrain, among them the ``named``; at least ``above`` leak more
    than Retrain (at all, without Retrain). ``log_e_forgot`` is the least ln e of a question, ``log_e_leaks`` ln of their
    mean, and ``log_goal`` what they must reach; None where certain ends decide or nothing was drawn. ``questions`` excludes
    the ``unjudged``. ``worst`` is None without a question. ``in_the_way`` and ``decides`` are None unless the word is *open*;
    then ``decides`` None means that no plan is known. ``capped``: the rule of draws allows the question in the way no more
    answers. ``cut`` of ``answers`` reached the ``limit`` of tokens; None if unknown. ``look`` is 1: no later word needs
    another level.
    """

    word: Word
    above_chance: bool
    tau: float
    alpha: float
    level: float
    models: int
    retrains: int
    graded: bool
    questions: int
    unjudged: int
    leaking: int = 0
    above: int = 0
    worst: WorstQuestion | None = None
    in_the_way: InTheWay | None = None
    decides: Decides | None = None
    cut: int | None = None
    answers: int | None = None
    limit: int | None = None
    refused: tuple[str, ...] = ()
    look: int = 1
    anytime: bool = False
    log_goal: float | None = None
    log_e_forgot: float | None = None
    log_e_leaks: float | None = None
    named: tuple[str, ...] = ()
    drawn: Drawn | None = None
    capped: bool = False
