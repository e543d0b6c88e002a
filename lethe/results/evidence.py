"""Kinds of evidence on the leak probability of many questions, and the ends that each kind gives at any level.

Evidence is what remains of the draws once the text is gone: counts, masses with a Poisson count, or ends computed before.
Every end is one-sided, and holds for its question by itself with probability 1 - level. A kind of evidence has, for some
of m questions, arrays of shape (m,): ``has_ends`` (where there are no ends, they are 0 and 1), and ``lower`` and ``upper`` at
levels; ``take`` chooses questions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from lethe.errors import BadValue
from lethe.statistics.answer_tree import Masses, Remainder, Rounding, poisson_lower, poisson_upper
from lethe.statistics.bounds import binary_lower, binary_upper
from lethe.statistics.sequential import EDGE, StoppedSamples

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
    Raises `BadValue` where leaks and missing exceed ``n``.
    """

    leaks: np.ndarray
    n: np.ndarray
    missing: np.ndarray
    stopped: np.ndarray

    def __post_init__(self) -> None:
        fits = self.leaks + self.missing <= self.n
        legal = (self.leaks >= 0) & (self.missing >= 0) & fits
        if not legal.all():  # nor for NaN
            place = np.flatnonzero(~legal)[0]
            first = [float(self.leaks[place]), float(self.missing[place]), float(self.n[place])]
            raise BadValue("leaks, missing and n", first, "counts with leaks + missing <= n")

    @classmethod
    def of(
        cls, leaks: ArrayLike, n: ArrayLike, missing: ArrayLike = 0, stopped: ArrayLike = False
    ) -> LeakCounts:
        """Counts from arrays of shape (m,), or numbers that stand for all questions."""
        arrays = np.broadcast_arrays(np.atleast_1d(leaks), n, missing, stopped)
        ones, draws, unjudged, could_stop = arrays
        return cls(ones * 1.0, draws * 1.0, unjudged * 1.0, could_stop.astype(bool))

    @property
    def has_ends(self) -> np.ndarray:
        """(m,) whether answers were drawn."""
        return np.asarray(self.n > 0)

    def upper(self, level: np.ndarray) -> np.ndarray:
        """(m,) upper ends, each at its entry of ``level``, (m,)."""
        stopped = self.stopped
        fixed = ~stopped
        most = self.leaks + self.missing
        ends = np.ones(len(self.n))
        ends[fixed] = _by_level(binary_upper, level[fixed], most[fixed], self.n[fixed])
        ends[stopped] = upper_at_stop(most[stopped], self.n[stopped], level[stopped])
        return ends

    def lower(self, level: np.ndarray) -> np.ndarray:
        """(m,) lower ends, each at its entry of ``level``, (m,)."""
        stopped = self.stopped
        fixed = ~stopped
        clean = self.n - self.leaks  # at most: a missing answer counts as clean
        ends = np.zeros(len(self.n))
        ends[fixed] = _by_level(binary_lower, level[fixed], self.leaks[fixed], self.n[fixed])
        ends[stopped] = 1 - upper_at_stop(clean[stopped], self.n[stopped], level[stopped])
        return ends

    def take(self, places: np.ndarray) -> LeakCounts:
        """The counts of the questions at ``places``, an array of indices."""
        return LeakCounts(
            self.leaks[places],
            self.n[places],
            self.missing[places],
            self.stopped[places],
        )


@dataclass(frozen=True, eq=False)
class Truncation:
    """Answers that ended at the token limit, as counts of shape (m,).

    ``cut`` of the ``n`` answers to a question reached the limit of ``limit`` tokens; an answer whose end is unknown counts
    too. ``leaks`` counts the answers that leaked, were cut or lack a judgement; None for graded scores. A question passes
    with its cut answers counted as leaks, or if their share is proved to be at most ``most``.
    """

    cut: np.ndarray
    n: np.ndarray
    leaks: np.ndarray | None
    limit: int
    most: float = MOST_TRUNCATED

    def share(self, place: int) -> float | None:
        """The share of the answers to one question that was cut; None without answers."""
        if not self.n[place]:
            return None
        return float(self.cut[place] / self.n[place])


@dataclass(frozen=True, eq=False)
class Trees:
    """Explored masses and the Poisson sample of the rest, as arrays of shape (m,).

    ``low`` and ``high`` are the smallest and largest possible leaking mass that was explored, ``certain`` is 1 minus the
    smallest possible clean mass, and ``factor`` is the largest relative error of an answer's probability. ``leaks`` of the
    answers sampled at the rate ``rho`` leaked; ``rho`` 0 stands for no sample, so that only certain ends exist. The ends are
    those of `lethe.statistics.answer_tree.leak_interval`. A sample takes this ``part`` of its level, where it is repeated.
    """

    low: np.ndarray
    high: np.ndarray
    certain: np.ndarray
    factor: np.ndarray
    rho: np.ndarray
    leaks: np.ndarray
    part: ArrayLike = 1.0

    @classmethod
    def of(cls, trees: Sequence[Tree | None], versions: Sequence[int | None] = ()) -> Trees:
        """The arrays of m trees; a question without a tree has the certain ends 0 and 1.

        ``versions``, of each tree, are the numbers that `part_of_version` takes; empty: no sample is repeated.
        """
        rows = []
        for tree in trees:
            masses = UNKNOWN_MASSES if tree is None else _masses(*tree)
            rows.append(masses)
        part: ArrayLike = 1.0
        if versions:
            part = np.array([part_of_version(version) for version in versions])
        arrays = cls(*np.array(rows, dtype=np.float64).reshape(-1, 6).T)
        return replace(arrays, part=part)

    @property
    def has_ends(self) -> np.ndarray:
        """(m,) whether the unexplored mass was sampled."""
        return np.asarray(self.rho > 0)

    def upper(self, level: np.ndarray) -> np.ndarray:
        """(m,) upper ends, each at its entry of ``level``, (m,)."""
        rest = self._rest(poisson_upper, level)
        sampled = self.high + self.factor * rest
        return np.maximum(self.low, np.minimum(self.certain, sampled))

    def lower(self, level: np.ndarray) -> np.ndarray:
        """(m,) lower ends, each at its entry of ``level``, (m,)."""
        rest = self._rest(poisson_lower, level)
        sampled = self.low + rest / self.factor
        return np.maximum(self.low, np.minimum(self.certain, sampled))

    def _rest(self, limit: Callable[..., np.ndarray], level: np.ndarray) -> np.ndarray:
        """The limit of the leaking part of the unexplored mass, where it was sampled."""
        rest = np.zeros(len(self.rho))
        sampled = self.has_ends
        level_of_version = level * self.part
        limits = _by_level(limit, level_of_version[sampled], self.leaks[sampled])
        rest[sampled] = limits / self.rho[sampled]
        return rest

    def take(self, places: np.ndarray) -> Trees:
        """The masses of the questions at ``places``, an array of indices."""
        return Trees(
            self.low[places],
            self.high[places],
            self.certain[places],
            self.factor[places],
            self.rho[places],
            self.leaks[places],
            np.broadcast_to(self.part, len(self.rho))[places],
        )


def part_of_version(version: int | None) -> float:
    """The part of a level that version ``version`` of an answer tree's sample takes, from 1; all versions together take 1.

    None stands for a sample that was fixed beforehand and is never repeated, which takes the whole level.

    >>> part_of_version(None), part_of_version(1), part_of_version(3)
    (1.0, 0.5, 0.08333333333333333)
    """
    if version is None:
        return 1.0
    return 1 / (version * (version + 1))


class _TreeNumbers(NamedTuple):
    """The entries of `Trees` for a question; without a tree only 0 and 1 are certain."""

    low: float = 0.0
    high: float = 1.0
    certain: float = 1.0
    factor: float = 1.0
    rho: float = 0.0
    leaks: float = 0.0


UNKNOWN_MASSES = _TreeNumbers()


def _masses(masses: Masses, remainder: Remainder, rounding: Rounding) -> _TreeNumbers:
    """The entries of `Trees` for a question whose answer tree was explored."""
    low = rounding.least(masses.leak_by_length)
    high = rounding.most(masses.leak_by_length)
    not_clean = 1 - rounding.least(masses.clean_by_length)
    certain = min(1.0, max(0.0, low, not_clean))
    return _TreeNumbers(
        low,
        high,
        certain,
        rounding.factor,
        remainder.rho,
        remainder.leaks,
    )


@dataclass(frozen=True, eq=False)
class AtLevel:
    """Ends from a function of one level: bounds of graded scores, whose stakes depend on the level, or fixed ends.

    ``ends`` maps a level to the lower and upper ends of all questions, of which ``places`` are taken. ``has_ends``, (m,),
    marks the questions that have such ends.
    """

    ends: Callable[[float], BothEnds]
    has_ends: np.ndarray
    places: np.ndarray

    @classmethod
    def of(cls, ends: Callable[[float], BothEnds], has_ends: ArrayLike) -> AtLevel:
        """The ends of all m questions, in the order of ``has_ends``."""
        marked = np.atleast_1d(has_ends).astype(bool)
        cached = cache(ends)  # both ends are asked at the same levels
        return cls(cached, marked, np.arange(len(marked)))

    @classmethod
    def fixed(
        cls, lower: ArrayLike, upper: ArrayLike, alpha_lower: ArrayLike, alpha_upper: ArrayLike
    ) -> AtLevel:
        """Ends of shape (m,), NaN for none, each computed at its alpha: they hold at that level and above."""
        low = np.asarray(lower, dtype=np.float64)
        high = np.asarray(upper, dtype=np.float64)
        level_of_low = np.asarray(alpha_lower, dtype=np.float64)
        level_of_high = np.asarray(alpha_upper, dtype=np.float64)

        def ends(level: float) -> BothEnds:
            most = level * SAME_LEVEL
            lowers = np.where(level_of_low <= most, low, 0.0)
            uppers = np.where(level_of_high <= most, high, 1.0)
            return lowers, uppers

        has_no_ends = np.isnan(low) & np.isnan(high)
        return cls.of(ends, ~has_no_ends)

    def lower(self, level: np.ndarray) -> np.ndarray:
        """(m,) lower ends, 0 where there are none, each at its entry of ``level``, (m,)."""
        lower, _ = self._interval(level)
        known = np.where(self.has_ends, lower, 0.0)
        return np.nan_to_num(known, nan=0.0)

    def upper(self, level: np.ndarray) -> np.ndarray:
        """(m,) upper ends, 1 where there are none, each at its entry of ``level``, (m,)."""
        _, upper = self._interval(level)
        known = np.where(self.has_ends, upper, 1.0)
        return np.nan_to_num(known, nan=1.0)

    def _interval(self, level: np.ndarray) -> BothEnds:
        """Both ends of the questions, each at its level."""
        low = np.zeros(len(level))
        high = np.ones(len(level))
        for asked in np.unique(level):
            at_level = level == asked
            places = self.places[at_level]
            lower, upper = self.ends(float(asked))
            low[at_level] = lower[places]
            high[at_level] = upper[places]
        return low, high

    def take(self, places: np.ndarray) -> AtLevel:
        """The ends of the questions at ``places``, an array of indices."""
        return replace(self, has_ends=self.has_ends[places], places=self.places[places])


@dataclass(frozen=True, eq=False)
class ScoreDraws:
    """Scores in [0, 1] of the answers to each of m questions, NaN for a missing one: all draws up to any stop."""

    scores: tuple[np.ndarray, ...]

    @property
    def has_ends(self) -> np.ndarray:
        """(m,) whether answers were drawn."""
        return self.n > 0

    @property
    def n(self) -> np.ndarray:
        """(m,) the number of answers."""
        return np.array([len(scores) for scores in self.scores], dtype=np.int64)

    def upper(self, level: np.ndarray) -> np.ndarray:
        """(m,) upper ends, each at its entry of ``level``, (m,): a missing score counts as 1."""
        filled = [np.nan_to_num(scores, nan=1.0) for scores in self.scores]
        return self._uppers(filled, level)

    def lower(self, level: np.ndarray) -> np.ndarray:
        """(m,) lower ends, each at its entry of ``level``, (m,): a missing score counts as 0."""
        turned = [1 - np.nan_to_num(scores, nan=0.0) for scores in self.scores]
        return 1 - self._uppers(turned, level)

    def _uppers(self, samples: Sequence[np.ndarray], level: np.ndarray) -> np.ndarray:
        """(m,) upper ends of the means of samples without missing scores."""
        ends = np.ones(len(samples))
        for asked in np.unique(level):
            places = np.flatnonzero((level == asked) & self.has_ends)
            if places.size:
                chosen = [samples[place] for place in places]
                ends[places] = StoppedSamples(chosen).uppers(float(asked))
        return ends

    def take(self, places: np.ndarray) -> ScoreDraws:
        """The scores of the questions at ``places``, an array of indices."""
        return ScoreDraws(tuple(self.scores[place] for place in places))


LeakEvidence = LeakCounts | Trees | AtLevel | ScoreDraws


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
    rows = np.stack(arrays, axis=1).astype(np.float64)
    # Rules stop at the same counts again and again: each distinct case is solved once.
    cases, place = np.unique(rows, axis=0, return_inverse=True)
    ones, draws, goal = cases.T
    ends = np.ones(len(cases))
    largest = np.full(len(cases), 1 - EDGE)
    refutable = (ones < draws) & (_log_capital(largest, ones, draws) > goal)
    if refutable.any():
        ends[refutable] = _smallest_refuted(ones[refutable], draws[refutable], goal[refutable])
    return np.asarray(ends[place.ravel()])


def _smallest_refuted(ones: np.ndarray, draws: np.ndarray, goal: np.ndarray) -> np.ndarray:
    """(m,) the smallest p against which the log capital reaches ``goal``, rounded up by the width of a bracket."""
    from scipy.optimize.elementwise import find_root  # a quarter of a second to import

    def lacking(p: np.ndarray, k: np.ndarray, n: np.ndarray, target: np.ndarray) -> np.ndarray:
        return _log_capital(p, k, n) - target

    # Below the share of ones every q < p is less likely than p, so the capital is at most 1.
    share = ones / np.maximum(draws, 1)
    start = np.maximum(share, EDGE * EDGE)
    end = np.full(len(start), 1 - EDGE)
    tolerances = {"xatol": 1e-13, "xrtol": 0}
    solved = find_root(lacking, (start, end), args=(ones, draws, goal), tolerances=tolerances)
    left, right = solved.bracket
    lacking_at_left, _ = solved.f_bracket
    return np.where(lacking_at_left >= 0, left, right)


def _log_capital(p: np.ndarray, ones: np.ndarray, draws: np.ndarray) -> np.ndarray:
    """The log capital against "the probability is at least ``p``", 0 < p < 1, after ``ones`` of ``draws``."""
    from scipy.special import betainc, betaln, xlog1py, xlogy

    a = ones + 0.5
    b = draws - ones + 0.5
    # no likelihood is left below p where p is far below the share of ones
    with np.errstate(divide="ignore"):
        log_truncated_beta = betaln(a, b) + np.log(betainc(a, b, p))
    log_weight_below_p = np.log(2 * np.arcsin(np.sqrt(p)))
    mixture = log_truncated_beta - log_weight_below_p
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
