"""A question with its definition of a leak, the settings and the result of a growth, and the planning of growths.

The number of prefixes whose priority is at least theta grows like a power of 1 / theta. A growth gives that curve
exactly down to its own theta, and the power law extrapolates the curve below.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from lethe.errors import BadValue
from lethe.sampling.answer_tree.automaton import Automaton
from lethe.statistics.answer_tree import Masses, Remainder
from lethe.statistics.leak_trees import HeavyLeak

Decode = Callable[[list[tuple[int, ...]]], list[str]]  # answers' tokens -> their texts
Scores = Callable[[list[str]], np.ndarray]  # texts -> whether each leaks, bool


class Predictor(Protocol):
    """Predicts from equally long prefixes, the rows. ``begin`` replaces all rows by new ones; the first ``step`` reads
    their last token. ``step`` appends one token to each row and returns logits (rows, V). ``fork`` makes row
    ``parents[i]`` the i-th new row and returns ``order``: the new row i represents ``parents[order[i]]``."""

    vocabulary: int

    def begin(self, prefixes: np.ndarray, positions: int) -> None: ...

    def step(self, tokens: np.ndarray) -> np.ndarray: ...

    def fork(self, parents: np.ndarray) -> np.ndarray: ...

    def most_rows(self) -> int: ...


@dataclass(frozen=True)
class Question:
    """A prompt's tokens and the definition of a leak: ``automaton`` decides most answers from their tokens, ``scores``
    judges the texts of the others. ``seeds`` are answers whose prefixes are always explored. ``note`` says how answers
    are judged."""

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
    """The extent of a growth. A prefix is explored if the minimum of mass x exp(``guide`` x share of a keyword read)
    along its path is at least ``theta``. The rest is sampled at the rate ``rho``. ``most_explored`` ends the
    exploration early, and only without a rate, because it must not depend on the draws. Explored prefixes are counted
    under ``counted_guide``."""

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
    """The result of a growth. ``rest`` is the unexplored mass; ``rows`` went through the model, ``explored`` of them
    for no sample. ``priorities`` are under the counted guide; ``decided`` is the mass that each prefix's
    next token decided. ``entropy`` (nats) and ``length`` (tokens) are means over the sampled answers, NaN
    without samples."""

    masses: Masses
    remainder: Remainder
    rest: float
    rows: int
    explored: int
    heaviest: tuple[HeavyLeak, ...]
    priorities: np.ndarray = field(repr=False)
    decided: np.ndarray = field(repr=False)
    entropy: float = float("nan")
    length: float = float("nan")


FIRST_THETA = 0.05
ENOUGH = 0.6  # a growth that uses this share of its rows is the last
MOST_GROWTHS = 8
# Shares of the remaining rows: the planned size of a growth, and the size that stops it.
AIMED_AT, ASTRAY = 0.6, 1.5
WIDEST_STEP = 12.0  # largest ratio of rows to the previous growth: the power law fails beyond
FLATTEST, STEEPEST = 0.15, 1.0  # of the power: a level has at most 1 / theta prefixes of mass theta
STEEPEST_GUIDED = 3.0  # a guide lifts prefixes above their mass
FASTEST = 0.4  # of the power with which the unexplored mass falls
POINTS_A_DECADE = 8


@dataclass(frozen=True)
class Curve:
    """The number of prefixes with a priority of at least theta, and the mass left after exploring them: ``counts`` and
    ``rests`` at descending ``thetas``, (P,) each."""

    thetas: tuple[float, ...]
    counts: tuple[int, ...]
    rests: tuple[float, ...]

    def at(self, theta: float) -> float:
        """The count at any threshold; extrapolated by the power law below the last one."""
        if theta >= self.thetas[-1]:
            return self._between(theta, self.counts)
        return self.counts[-1] * (self.thetas[-1] / theta) ** self.power

    def rest(self, theta: float) -> float:
        """The mass left unexplored; extrapolated from the last decade below the last threshold."""
        if theta >= self.thetas[-1] or not self.rests[-1]:
            return self._between(max(theta, self.thetas[-1]), self.rests)
        decade = min(POINTS_A_DECADE, len(self.thetas) - 1)
        span = math.log(self.thetas[-1 - decade] / self.thetas[-1])
        power = math.log(self.rests[-1 - decade] / self.rests[-1]) / span if span else 0.0
        return self.rests[-1] * (theta / self.thetas[-1]) ** min(FASTEST, power)

    def _between(self, theta: float, values: Sequence[float]) -> float:
        return float(np.interp(-math.log(theta), [-math.log(each) for each in self.thetas], values))

    @property
    def power(self) -> float:
        decade = min(POINTS_A_DECADE, len(self.thetas) - 1)
        if decade == 0 or self.counts[-1] < 2:
            return 0.5
        span = math.log(self.thetas[-1 - decade] / self.thetas[-1])
        power = math.log(self.counts[-1] / max(1, self.counts[-1 - decade])) / span
        return min(STEEPEST, max(FLATTEST, power))


def curve_of(grown: Grown, theta: float) -> Curve:
    points = max(2, 1 + math.ceil(POINTS_A_DECADE * max(0.0, -math.log10(theta))))
    thetas = np.geomspace(max(1.0, theta), theta, points)
    reached = grown.priorities >= thetas[:, None]
    rests = np.maximum(0.0, 1 - reached @ grown.decided)
    return Curve(tuple(thetas.tolist()), tuple(reached.sum(axis=1).tolist()), tuple(rests.tolist()))


@dataclass(frozen=True)
class Searched:
    """The last growth of a search with its threshold, and the growth with the most leaks; ``rows`` counts all growths."""

    grown: Grown
    theta: float
    best: Grown
    rows: int


def search(grow: Callable[[Growth], Grown], rows: int, guide: float, counted_guide: float = 0.0) -> Searched:
    """Grow deeper and deeper from the start, without a sample, until about ``rows`` rows went through the model. Each
    growth has several times the rows of the one before, so all earlier ones cost only a part of the last."""
    theta, spent, rows_before, theta_before = FIRST_THETA, 0, 0, 1.0
    growths: list[Grown] = []
    for number in range(MOST_GROWTHS):
        left = max(1, round(rows - spent))
        # The limit only stops badly wrong guesses: it cuts off the deepest prefixes, where keywords end.
        own = grow(Growth(theta, guide, most_explored=round(ASTRAY * left), counted_guide=counted_guide))
        spent += own.rows
        growths.append(own)
        done = own.rest == 0 or spent >= ENOUGH * rows or number == MOST_GROWTHS - 1
        if done:
            break
        # The curve counts under another guide, so the rows of two growths predict better than the curve does.
        power = curve_of(own, theta).power
        if rows_before and own.rows > rows_before:
            slope = math.log(own.rows / rows_before) / math.log(theta_before / theta)
            power = min(STEEPEST_GUIDED, max(FLATTEST, slope))
        wanted = min(WIDEST_STEP * own.rows, AIMED_AT * (rows - spent))
        rows_before, theta_before = own.rows, theta
        theta *= min(0.5, (own.rows / wanted) ** (1 / power))
    return Searched(own, theta, max(growths, key=lambda grown: grown.masses.leak), spent)


@dataclass(frozen=True)
class Outline:
    """The facts about a question before its rate is fixed. ``curve`` is under the second growth's guide,
    ``rows_a_sample`` is the cost of a sampled answer, and ``enumerable`` states whether exploring pays."""

    curve: Curve
    rows_a_sample: float
    enumerable: bool

    def rows(self, rho: float, theta_rho: float) -> float:
        """The approximate number of rows of a growth at the rate ``rho`` and the threshold theta_rho / rho."""
        if not self.enumerable:
            return rho * self.rows_a_sample
        theta = theta_rho / rho
        return self.curve.at(theta) + rho * self.curve.rest(theta) * self.rows_a_sample


def common_rho(outlines: Sequence[Outline], rows: float, theta_rho: float) -> float:
    """The rate at which the growths of all questions take about the given number of rows in total."""
    if not outlines:
        raise BadValue("questions", 0, "at least one")
    low, high = 1.0, 1e12

    def taken(rho: float) -> float:
        return sum(outline.rows(rho, theta_rho) for outline in outlines)

    if taken(low) >= rows:
        return low
    for _ in range(60):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if taken(middle) < rows else (low, middle)
    return low
