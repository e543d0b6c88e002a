"""Kinds of evidence on the leak probability of many questions, and the ends that each kind gives at any level.

Evidence is what remains of the draws once the text is gone: counts, masses with a Poisson count, or ends computed before.
Every end is one-sided, and holds for its question by itself with probability 1 - level. A kind of evidence has, for some
of m questions, arrays of shape (m,): ``has_ends`` (where there are no ends, they are 0 and 1), and ``lower`` and ``upper`` at
levels; ``take`` chooses questions, and ``scaled``, for plans, is the evidence of so many times the draws.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from numpy.typing import ArrayLike

from lethe.errors import BadValue
from lethe.statistics.answer_tree import Masses, Remainder, Rounding, poisson_lower, poisson_upper
from lethe.statistics.bounds import binary_lower, binary_upper
from lethe.statistics.sequential import EDGE

MOST_TRUNCATED = 0.05  # of the answers to one question
# two levels count as equal up to this factor, because alpha was divided in floating point
SAME_LEVEL = 1 + 1e-9

Tree = tuple[Masses, Remainder, Rounding]
BothEnds = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True, eq=False)
class LeakCounts:
    """Answers that were drawn and judged 0 or 1, as counts of shape (m,).

    ``leaks`` counts the judged leaks, ``n`` all answers (0: none were drawn), and ``missing`` the answers without a
    judgement, which count as leaks above and as none below. The ends of a fixed number of answers are Clopper-Pearson's.
    ``stopped`` marks questions that a rule could stop after it had looked at the answers; `upper_at_stop` bounds these.
    """

    leaks: np.ndarray
    n: np.ndarray
    missing: np.ndarray
    stopped: np.ndarray

    def __post_init__(self) -> None:
        legal = (self.leaks >= 0) & (self.missing >= 0) & (self.leaks + self.missing <= self.n)
        if not legal.all():  # nor for NaN
            first = [float(counts[~legal][0]) for counts in (self.leaks, self.missing, self.n)]
            raise BadValue("leaks, missing and n", first, "counts with leaks + missing <= n")

    @classmethod
    def of(
        cls, leaks: ArrayLike, n: ArrayLike, missing: ArrayLike = 0, stopped: ArrayLike = False
    ) -> LeakCounts:
        seen, drawn, absent, rule = np.broadcast_arrays(np.atleast_1d(leaks), n, missing, stopped)
        return cls(seen * 1.0, drawn * 1.0, absent * 1.0, rule.astype(bool))

    @property
    def has_ends(self) -> np.ndarray:
        return np.asarray(self.n > 0)

    def upper(self, level: np.ndarray) -> np.ndarray:
        high, rule = self.leaks + self.missing, self.stopped
        ends = np.ones(len(self.n))
        ends[~rule] = _by_level(binary_upper, level[~rule], high[~rule], self.n[~rule])
        ends[rule] = upper_at_stop(high[rule], self.n[rule], level[rule])
        return ends

    def lower(self, level: np.ndarray) -> np.ndarray:
        rule = self.stopped
        ends = np.zeros(len(self.n))
        ends[~rule] = _by_level(binary_lower, level[~rule], self.leaks[~rule], self.n[~rule])
        ends[rule] = 1 - upper_at_stop((self.n - self.leaks)[rule], self.n[rule], level[rule])
        return ends

    def take(self, places: np.ndarray) -> LeakCounts:
        return LeakCounts(
            self.leaks[places], self.n[places], self.missing[places], self.stopped[places]
        )

    def scaled(self, times: float) -> LeakCounts:
        return LeakCounts(self.leaks * times, self.n * times, self.missing * times, self.stopped)


@dataclass(frozen=True, eq=False)
class Truncation:
    """Answers that ended at the token limit, as counts of shape (m,).

    ``cut`` of the ``n`` answers to a question reached the limit of ``limit`` tokens; an answer whose end is unknown counts
    too. ``leaks`` counts the answers that leaked, were cut or lack a judgement; None for graded scores. A question passes
    with its cut answers counted as leaks, or if the upper end of their share is at most ``most``. ``stopped`` marks
    questions that a rule could stop.
    """

    cut: np.ndarray
    n: np.ndarray
    leaks: np.ndarray | None
    limit: int
    most: float = MOST_TRUNCATED
    stopped: np.ndarray | bool = False

    def share(self, place: int) -> float | None:
        """The share of the answers to one question that was cut; None without answers."""
        return float(self.cut[place] / self.n[place]) if self.n[place] else None

    def share_upper(self, level: float) -> np.ndarray:
        return self._upper(self.cut, level)

    def leak_upper(self, level: float) -> np.ndarray:
        """(m,) upper ends of the leak probability if every cut answer leaks; 1 for graded scores."""
        return np.ones(len(self.n)) if self.leaks is None else self._upper(self.leaks, level)

    def _upper(self, counts: np.ndarray, level: float) -> np.ndarray:
        return LeakCounts.of(counts, self.n, 0, self.stopped).upper(np.full(len(self.n), level))

    def take(self, places: np.ndarray, times: float) -> Truncation:
        """The questions at ``places`` after ``times`` as many answers with the present shares."""
        rule = np.broadcast_to(self.stopped, len(self.n))[places]
        leaks = None if self.leaks is None else self.leaks[places] * times
        return replace(
            self, cut=self.cut[places] * times, n=self.n[places] * times, leaks=leaks, stopped=rule
        )


@dataclass(frozen=True, eq=False)
class Trees:
    """Explored masses and the Poisson sample of the rest, as arrays of shape (m,).

    ``low`` and ``high`` are the smallest and largest possible leaking mass that was explored, ``certain`` is 1 minus the
    smallest possible clean mass, and ``factor`` is the largest relative error of an answer's probability. ``leaks`` of the
    answers sampled at the rate ``rho`` leaked; ``rho`` 0 stands for no sample, so that only certain ends exist. The ends are
    those of `lethe.statistics.answer_tree.leak_interval`.
    """

    low: np.ndarray
    high: np.ndarray
    certain: np.ndarray
    factor: np.ndarray
    rho: np.ndarray
    leaks: np.ndarray

    @classmethod
    def of(cls, trees: Sequence[Tree | None]) -> Trees:
        rows = []
        for tree in trees:
            masses = UNKNOWN_MASSES if tree is None else _masses(*tree)
            rows.append(masses)
        return cls(*np.array(rows, dtype=np.float64).reshape(-1, 6).T)

    @property
    def has_ends(self) -> np.ndarray:
        return np.asarray(self.rho > 0)

    def upper(self, level: np.ndarray) -> np.ndarray:
        rest = self._rest(poisson_upper, level)
        return np.maximum(self.low, np.minimum(self.certain, self.high + self.factor * rest))

    def lower(self, level: np.ndarray) -> np.ndarray:
        rest = self._rest(poisson_lower, level)
        return np.maximum(self.low, np.minimum(self.certain, self.low + rest / self.factor))

    def _rest(self, limit: Callable[..., np.ndarray], level: np.ndarray) -> np.ndarray:
        """The limit of the leaking part of the unexplored mass, where it was sampled."""
        rest = np.zeros(len(self.rho))
        sampled = self.has_ends
        limits = _by_level(limit, level[sampled], self.leaks[sampled])
        rest[sampled] = limits / self.rho[sampled]
        return rest

    def take(self, places: np.ndarray) -> Trees:
        return Trees(*(getattr(self, name)[places] for name in self.__dataclass_fields__))

    def scaled(self, times: float) -> Trees:
        return replace(self, rho=self.rho * times, leaks=self.leaks * times)


UNKNOWN_MASSES = (
    0.0,
    1.0,
    1.0,
    1.0,
    0.0,
    0.0,
)  # of a question without a tree: only 0 and 1 are certain


def _masses(masses: Masses, remainder: Remainder, rounding: Rounding) -> tuple[float, ...]:
    low, high = rounding.least(masses.leak_by_length), rounding.most(masses.leak_by_length)
    certain = min(1.0, max(0.0, low, 1 - rounding.least(masses.clean_by_length)))
    return low, high, certain, rounding.factor, remainder.rho, remainder.leaks


@dataclass(frozen=True, eq=False)
class AtLevel:
    """Ends from a function of one level: bounds of graded scores, whose stakes depend on the level, or fixed ends.

    ``ends`` maps a level to the lower and upper ends of all questions, of which ``places`` are taken. ``has_ends``, (m,),
    marks the questions that have such ends. ``narrower`` is the factor by which a plan narrows the intervals.
    """

    ends: Callable[[float], BothEnds]
    has_ends: np.ndarray
    places: np.ndarray
    narrower: float = 1.0

    @classmethod
    def of(cls, ends: Callable[[float], BothEnds], has_ends: ArrayLike) -> AtLevel:
        marked = np.atleast_1d(has_ends).astype(bool)
        cached = cache(ends)  # a plan asks for the same level many times
        return cls(cached, marked, np.arange(len(marked)))

    @classmethod
    def fixed(
        cls, lower: ArrayLike, upper: ArrayLike, alpha_lower: ArrayLike, alpha_upper: ArrayLike
    ) -> AtLevel:
        """Ends of shape (m,), NaN for none, each computed at its alpha: they hold at that level and above."""
        low, high = np.asarray(lower, dtype=np.float64), np.asarray(upper, dtype=np.float64)
        below = np.asarray(alpha_lower, dtype=np.float64)
        above = np.asarray(alpha_upper, dtype=np.float64)

        def ends(level: float) -> BothEnds:
            at = level * SAME_LEVEL
            return np.where(below <= at, low, 0.0), np.where(above <= at, high, 1.0)

        return cls.of(ends, ~(np.isnan(low) & np.isnan(high)))

    def lower(self, level: np.ndarray) -> np.ndarray:
        return np.nan_to_num(np.where(self.has_ends, self._interval(level)[0], 0.0), nan=0.0)

    def upper(self, level: np.ndarray) -> np.ndarray:
        return np.nan_to_num(np.where(self.has_ends, self._interval(level)[1], 1.0), nan=1.0)

    def _interval(self, level: np.ndarray) -> BothEnds:
        low, high = np.zeros(len(level)), np.ones(len(level))
        for asked in np.unique(level):
            at = level == asked
            lower, upper = self.ends(float(asked))
            low[at], high[at] = lower[self.places[at]], upper[self.places[at]]
        if self.narrower == 1:
            return low, high
        middle = (low + high) / 2
        half = (high - low) / 2 * self.narrower
        return middle - half, middle + half

    def take(self, places: np.ndarray) -> AtLevel:
        return replace(self, has_ends=self.has_ends[places], places=self.places[places])

    def scaled(self, times: float) -> AtLevel:
        """Intervals around the same middle, narrower by the square root of ``times``: roughly those of more draws."""
        return replace(self, narrower=self.narrower / np.sqrt(times))


LeakEvidence = LeakCounts | Trees | AtLevel


def upper_at_stop(leaks: ArrayLike, n: ArrayLike, level: ArrayLike) -> np.ndarray:
    """(m,) upper end of a probability from ones and draws up to a stopping time, one-sided at ``level`` in (0, 0.5].

    Against "the probability is at least p", the capital of the mixture of likelihood ratios over all q < p (Beta(1/2, 1/2)
    truncated at p) is a non-negative supermartingale that starts at 1. At a stopping time its mean is at most 1, so it
    reaches 1 / level there with probability at most ``level`` (Markov). For draws of 0 and 1 the capital depends on the two
    counts alone, not on their order, the stopping rule or the level. So the counts give the end at every level, and the ends
    are nested. The capital grows with p (`lethe.statistics.sequential`), so the end is the smallest refuted p.
    `sequential.stopped_upper` sums the mixture over 64 nodes; here the integral has its closed form (Howard, Ramdas,
    McAuliffe and Sekhon 2021, "Time-uniform, nonparametric, nonasymptotic confidence sequences", one-sided beta-binomial
    mixture).

    A missing judgement may count as 1 in an upper end (as 0 in a lower end): the mean of such a draw, given the past, is
    still at least (at most) the probability. Assumes independent draws, each made before its value was known; the stopping
    rule may look at everything that was drawn before.

    >>> upper_at_stop([0, 3, 9], [100, 50, 9], 0.05).round(4).tolist()
    [0.0372, 0.2002, 1.0]
    """
    arrays = np.broadcast_arrays(np.atleast_1d(leaks), n, -np.log(level))
    # Rules stop at the same counts again and again: each distinct case is solved once.
    cases, place = np.unique(
        np.stack(arrays, axis=1).astype(np.float64), axis=0, return_inverse=True
    )
    ones, draws, goal = cases.T
    ends = np.ones(len(cases))
    refutable = (ones < draws) & (_log_capital(np.full(len(cases), 1 - EDGE), ones, draws) > goal)
    if refutable.any():
        from scipy.optimize.elementwise import find_root  # a quarter of a second to import

        # Below the share of ones every q < p is less likely than p, so the capital is at most 1.
        start = np.maximum(ones / np.maximum(draws, 1), EDGE * EDGE)[refutable]
        solved = find_root(
            lambda p, k, m, target: _log_capital(p, k, m) - target,
            (start, np.full(len(start), 1 - EDGE)),
            args=tuple(cases[refutable].T),
            tolerances={"xatol": 1e-13, "xrtol": 0},
        )
        (left, right), (below, _) = solved.bracket, solved.f_bracket
        ends[refutable] = np.where(below >= 0, left, right)
    return np.asarray(ends[place.ravel()])


def _log_capital(p: np.ndarray, ones: np.ndarray, draws: np.ndarray) -> np.ndarray:
    """The log capital against "the probability is at least ``p``", 0 < p < 1, after ``ones`` of ``draws``."""
    from scipy.special import betainc, betaln, xlog1py, xlogy

    a, b = ones + 0.5, draws - ones + 0.5
    # no likelihood is left below p where p is far below the share of ones
    with np.errstate(divide="ignore"):
        mixture = betaln(a, b) + np.log(betainc(a, b, p)) - np.log(2 * np.arcsin(np.sqrt(p)))
    return np.asarray(mixture - xlogy(ones, p) - xlog1py(draws - ones, -p))


def _by_level(
    bound: Callable[..., np.ndarray], level: np.ndarray, *counts: np.ndarray
) -> np.ndarray:
    """``bound(*counts, level)`` for a bound that takes one level: a call for each distinct level."""
    ends = np.empty(len(level))
    for asked in np.unique(level):
        at = level == asked
        ends[at] = bound(*(count[at] for count in counts), float(asked))
    return ends
