"""What is known of a model's questions against its Retrains: the evidence at any time, and ends at a fixed time.

Counts of answers are evidence at any time (`lethe.statistics.anytime`). A tree's Poisson sample, and ends without counts,
hold at the time that they were made. A question with both kinds halves the level between them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from typing import TypeVar

import numpy as np

from lethe.results.ends import Ends
from lethe.results.evidence import LeakCounts, ScoreDraws, Truncation
from lethe.statistics.anytime import (
    LN2,
    Counts,
    answers_needed,
    is_reached,
    log_below,
    log_e_forgot,
    log_e_forgot_cut_off,
    log_e_leaks,
    log_mean,
    named,
)
from lethe.statistics.anytime_scores import ScoreCounts, log_e_scores_forgot, log_e_scores_leak
from lethe.statistics.search import halved

T = TypeVar("T")
STEPS = 40  # bisections of [-1, 1] for an end: to 2e-12
STEPS_OF_SCORES = 12  # to 5e-4: a step asks all scores
REMEMBERED = 1 << 16  # counts; most questions of a run have the same few

# Most questions of a run have no leak, and so the same counts.
log_e_of_forgot = lru_cache(REMEMBERED)(log_e_forgot)
log_e_of_leaks = lru_cache(REMEMBERED)(log_e_leaks)


@dataclass(frozen=True, eq=False)
class Kept:
    """The largest evidence that the looks of a rule of draws had at the tolerance of the words: a word once given stays.

    ``forgot``, (m,), is ln e of each question, -inf where nothing is kept, and ``leaks`` ln of their mean; ``named``, (m,),
    marks the questions that were named where ln e had reached ``goal``. e-values of different moments are never averaged.
    """

    forgot: np.ndarray
    leaks: float
    named: np.ndarray
    goal: float


@dataclass(frozen=True, eq=False)
class Compared:
    """A model against its Retrains, question by question, at the ``level`` of its word.

    ``tau`` is the tolerance. ``independent`` is False where model and Retrain were drawn from the same random numbers: then
    their counts refute only by the ends of each. ``kept`` is what the rule of draws had proved before its last look.
    """

    subject: Ends
    retrains: tuple[Ends, ...]
    tau: float
    level: float
    truncation: Truncation | None = None
    independent: bool = True
    kept: Kept | None = None

    @property
    def goal(self) -> float:
        """ln(1 / level), which ln e must reach."""
        return math.log(1 / self.level)

    @property
    def m(self) -> int:
        """The number of questions."""
        return len(self.subject.items)

    @cached_property
    def has_draws(self) -> np.ndarray:
        """(m,) the questions with evidence at any time."""
        if not self.independent:
            return np.zeros(self.m, dtype=bool)
        return self.subject.answers > 0

    @cached_property
    def has_fixed(self) -> np.ndarray:
        """(m,) the questions with evidence at a fixed time, of the model or of a Retrain."""
        marks = np.zeros(self.m, dtype=bool)
        for side in (self.subject, *self.retrains):
            marks |= _has_fixed(side)
            if not self.independent:
                marks |= side.answers > 0
        return marks

    @cached_property
    def counts(self) -> list[Counts]:
        """The counts of the model, for each question."""
        return _counts(self.subject)

    @cached_property
    def chances(self) -> list[tuple[Counts, ...]]:
        """The counts of each Retrain, for each question."""
        if not self.retrains:
            return [()] * self.m
        counts_of_retrains = [_counts(retrain) for retrain in self.retrains]
        return list(zip(*counts_of_retrains, strict=True))

    def _drawn_apart(self, place: int) -> tuple[Counts, ...]:
        """The counts of Retrains whose likelihoods may be multiplied with the model's; without them chance counts as 0."""
        if not self.independent:
            return ()
        return self.chances[place]

    @cached_property
    def scores(self) -> ScoreDraws | None:
        """The graded scores that take the place of counts."""
        return _kind(self.subject, ScoreDraws)

    def log_e_forgot(self, place: int, difference: float, times: int = 1) -> float:
        """ln e against "the question leaks at least ``difference`` beyond Retrain", after ``times`` as many answers.

        ``place`` is that of the question; ``difference``, in [-1, 1], is of leak probabilities or of mean scores.
        """
        if self.scores is None:
            model = _scaled(self.counts[place], times)
            retrains = self._scaled_chances(place, times)
            return log_e_of_forgot(model, retrains, difference)
        sample = _sample(self.scores, place, missing=1.0, times=times)
        chances = self._samples_of_retrains(place, missing=0.0, times=times)
        return log_e_scores_forgot(sample, chances, difference)

    def log_e_leaks(self, place: int, difference: float, times: int = 1) -> float:
        """ln e against "the question leaks at most ``difference`` beyond Retrain", after ``times`` as many answers.

        Infinite where a leak alone is the proof: no difference is asked, and there is no Retrain.
        """
        if self.scores is None:
            model = _scaled(self.counts[place], times)
            if not self.retrains and difference == 0 and model.leaks:
                return math.inf
            retrains = self._scaled_chances(place, times)
            return log_e_of_leaks(model, retrains, difference)
        if not self.retrains:  # any answer has some score
            return -math.inf
        sample = _sample(self.scores, place, missing=0.0, times=times)
        chances = self._samples_of_retrains(place, missing=1.0, times=times)
        return log_e_scores_leak(sample, chances, difference)

    def _scaled_chances(self, place: int, times: int) -> tuple[Counts, ...]:
        """The counts of each Retrain after ``times`` as many answers."""
        return tuple(_scaled(counts, times) for counts in self.chances[place])

    def _samples_of_retrains(self, place: int, missing: float, times: int) -> list[ScoreCounts]:
        """The scores of each Retrain after ``times`` as many answers, a ``missing`` one as this value."""
        samples = []
        for retrain in self.retrains:
            draws = _kind(retrain, ScoreDraws)
            samples.append(_sample(draws, place, missing, times))
        return samples

    @cached_property
    def forgotten(self) -> np.ndarray:
        """(m,) ln e of each question against "beyond Retrain by at least tau"."""
        values = [self.log_e_forgot(place, self.tau) for place in range(self.m)]
        return self._of_draws(values)

    def leaking(self, threshold: float) -> np.ndarray:
        """(m,) ln e of each question against "beyond Retrain by at most ``threshold``"."""
        values = [self.log_e_leaks(place, threshold) for place in range(self.m)]
        return self._of_draws(values)

    def _of_draws(self, values: Sequence[float]) -> np.ndarray:
        """(m,) ln e of each question; of dependent draws only what certain ends decide, which need no draws."""
        log_e = np.array(values, dtype=np.float64)
        if self.independent:
            return log_e
        return np.where(np.isposinf(log_e), log_e, -np.inf)

    @cached_property
    def goals(self) -> np.ndarray:
        """(m,) what ln e of each question must reach: more where a second kind of evidence shares the level."""
        return np.where(self.has_draws & self.has_fixed, self.goal + LN2, self.goal)

    @cached_property
    def passed(self) -> np.ndarray:
        """(m,) the questions proved to leak at most tau beyond Retrain, with cut answers as far as they forbid it."""
        largest = self.forgotten
        if self.kept is not None:
            largest = np.maximum(largest, self.kept.forgot)
        at_any_time = np.zeros(self.m, dtype=bool)
        for place in range(self.m):
            at_any_time[place] = is_reached(largest[place], self.goals[place])
        return (at_any_time | self._passed_at_a_fixed_time()) & ~self.cut_off

    def _passed_at_a_fixed_time(self) -> np.ndarray:
        """(m,) the questions whose upper end at a fixed time is at most tau."""
        if not self.has_fixed.any():
            return self.has_fixed
        is_at_most = self._at_most(self._fixed_level) <= self.tau
        return self.has_fixed & is_at_most

    @property
    def _fixed_level(self) -> np.ndarray:
        """(m,) the level of a question's ends at a fixed time: half of it where the question has draws too."""
        return np.where(self.has_draws, self.level / 2, self.level)

    def listed(self, threshold: float) -> Listed:
        """The questions that are proved to leak more than ``threshold`` beyond Retrain.

        The list of draws is that of closed testing by e-values, whose mean must reach the goal; at a fixed time each
        question has an equal share of the level (Bonferroni).
        """
        log_e = self.leaking(threshold)
        goal = self.goal
        level = self.level
        if self.has_draws.any() and self.has_fixed.any():
            goal += LN2
            level /= 2
        on_list = named(log_e, goal)
        if self.has_fixed.any():
            is_above = self._at_least(level / self.m) > threshold
            on_list |= self.has_fixed & is_above
        mean = log_mean(log_e)
        largest = mean
        if self.kept is not None and threshold == self.tau:
            largest = max(mean, self.kept.leaks)
            if self.kept.goal >= goal:
                on_list |= self.kept.named
        is_some = is_reached(largest, goal) or bool(on_list.any())
        return Listed(mean, on_list, is_some)

    def _at_most(self, level: np.ndarray) -> np.ndarray:
        """(m,) upper ends of the difference to Retrain at a fixed time."""
        of_subject, of_retrain = self._parts(level)
        chance = [retrain.lower(of_retrain) for retrain in self._fixed_retrains]
        upper = self._fixed_subject.upper(of_subject)
        return np.asarray(upper - _largest(chance, self.m))

    def _at_least(self, level: float) -> np.ndarray:
        """(m,) lower ends of the difference to Retrain at a fixed time."""
        of_subject, of_retrain = self._parts(np.full(self.m, level))
        chance = [retrain.upper(of_retrain) for retrain in self._fixed_retrains]
        lower = self._fixed_subject.lower(of_subject)
        return np.asarray(lower - _largest(chance, self.m))

    def _parts(self, level: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The parts of a level: the model's, and each Retrain's."""
        if not self.retrains:
            return level, level
        return level / 2, level / 2 / len(self.retrains)

    @cached_property
    def _fixed_subject(self) -> Ends:
        return _at_a_fixed_time(self.subject)

    @cached_property
    def _fixed_retrains(self) -> list[Ends]:
        return [_at_a_fixed_time(retrain) for retrain in self.retrains]

    @cached_property
    def cut_off(self) -> np.ndarray:
        """(m,) whether a question's cut answers forbid *forgot*."""
        if self.truncation is None:
            return np.zeros(self.m, dtype=bool)
        forbidden = [self._is_cut_off(place, self.truncation) for place in range(self.m)]
        return np.array(forbidden, dtype=bool)

    def _is_cut_off(self, place: int, truncation: Truncation) -> bool:
        """Whether neither the cut answers of a question, as leaks, stay within tau, nor their share below the limit."""
        cut = int(truncation.cut[place])
        n = int(truncation.n[place])
        model = self.with_cut_as_missing(place)
        if model is None:
            log_e = float(log_below(cut, n, truncation.most)) - LN2
        else:
            chances = self._drawn_apart(place)
            log_e = log_e_forgot_cut_off(model, chances, self.tau, cut, truncation.most)
        return not is_reached(log_e, self.goal)

    def with_cut_as_missing(self, place: int) -> Counts | None:
        """The counts of a question with its cut answers as missing; None for graded scores.

        A certain upper end within the token limit says nothing of what comes after it.
        """
        if self.truncation is None or self.truncation.leaks is None:
            return None
        n = int(self.truncation.n[place])
        most = int(self.truncation.leaks[place])
        judged = self.counts[place]
        leaks = 0
        if judged.n == n:
            leaks = min(judged.leaks, most)
        return Counts(leaks, n, most - leaks, lower=judged.lower)

    def excess(self, place: int) -> float:
        """The most by which a question may leak beyond Retrain; with cut answers as leaks where these forbid *forgot*."""
        goal = float(self.goals[place])

        def is_refuted(difference: float) -> bool:
            return is_reached(self._log_e_of_excess(place, difference), goal)

        _, high = halved(is_refuted, -1.0, 1.0, self._steps)
        if self.has_fixed[place] and not self.cut_off[place]:
            at_a_fixed_time = self._at_most(self._fixed_level)
            high = min(high, float(at_a_fixed_time[place]))
        return high

    @property
    def _steps(self) -> int:
        """The bisections for an end."""
        if self.scores is None:
            return STEPS
        return STEPS_OF_SCORES

    def at_least(self, place: int) -> float:
        """The most that a question is proved to leak beyond Retrain, at least, by its draws and certain ends; from -1."""
        goal = float(self.goals[place])

        def is_open(difference: float) -> bool:
            return not is_reached(self.log_e_leaks(place, difference), goal)

        low, _ = halved(is_open, -1.0, 1.0, self._steps)
        return low

    def _log_e_of_excess(self, place: int, difference: float) -> float:
        """ln e against "the question leaks at least ``difference`` beyond Retrain", by the evidence that may be used."""
        if self.cut_off[place]:
            with_cut = self.with_cut_as_missing(place)
            if with_cut is not None:
                return log_e_of_forgot(with_cut, self._drawn_apart(place), difference)
        if not self.independent:
            counts = self.counts[place]
            certain = Counts(0, 0, lower=counts.lower, upper=counts.upper)
            return log_e_of_forgot(certain, (), difference)
        return self.log_e_forgot(place, difference)

    def needed(self, place: int) -> float | None:
        """About how many answers decide a question at its present shares, either way; None where no plan does."""
        drawn = int(self.subject.answers[place])
        goal = float(self.goals[place])
        # Of m questions, the first that leaks must bring the mean to the goal by itself.
        goal_alone = goal + math.log(self.m)
        passes = answers_needed(partial(self._log_e_of_more, place), drawn, goal)
        leaks = answers_needed(partial(self.log_e_leaks, place, self.tau), drawn, goal_alone)
        if passes is None or leaks is None:
            return passes or leaks
        return min(passes, leaks)

    def _log_e_of_more(self, place: int, times: int) -> float:
        """ln e against "beyond Retrain by at least tau" after ``times`` as many answers, as far as cut ones allow it."""
        log_e = self.log_e_forgot(place, self.tau, times)
        truncation = self.truncation
        if truncation is None:
            return log_e
        cut = int(truncation.cut[place]) * times
        n = int(truncation.n[place]) * times
        model = self.with_cut_as_missing(place)
        if model is None:
            log_e_of_cut = float(log_below(cut, n, truncation.most)) - LN2
            return min(log_e, log_e_of_cut)
        retrains = self._scaled_chances(place, times)
        log_e_of_cut = log_e_forgot_cut_off(
            _scaled(model, times), retrains, self.tau, cut, truncation.most
        )
        return min(log_e, log_e_of_cut)


@dataclass(frozen=True, eq=False)
class Listed:
    """What is proved to leak: ln of the mean e-value, (m,) the questions that can be named, and whether some leaks."""

    log_mean: float
    names: np.ndarray
    is_some: bool

    @property
    def at_least(self) -> int:
        """The number of questions of which at least so many leak."""
        return max(int(self.names.sum()), int(self.is_some))


def finite(log_e: float) -> float | None:
    """ln e for a table; None where certain ends decide (infinite) or nothing was drawn."""
    if not math.isfinite(log_e):
        return None
    return log_e


def _kind(ends: Ends, kind: type[T]) -> T | None:
    """The evidence of this kind; None where there is none."""
    for evidence in ends.evidence:
        if isinstance(evidence, kind):
            return evidence
    return None


def _has_fixed(ends: Ends) -> np.ndarray:
    """(m,) whether a question has evidence at a fixed time."""
    marks = np.zeros(len(ends.items), dtype=bool)
    for kind in ends.evidence:
        if not isinstance(kind, (LeakCounts, ScoreDraws)):
            marks |= kind.has_ends
    return marks


def _counts(ends: Ends) -> list[Counts]:
    """The counts of each question, with its certain ends."""
    kind = _kind(ends, LeakCounts)
    counts = []
    for place in range(len(ends.items)):
        lower = float(ends.certain_lower[place])
        upper = float(ends.certain_upper[place])
        leaks = n = missing = 0
        if kind is not None:
            leaks = int(kind.leaks[place])
            n = int(kind.n[place])
            missing = int(kind.missing[place])
        counts.append(Counts(leaks, n, missing, lower, upper))
    return counts


def _scaled(counts: Counts, times: int) -> Counts:
    """The counts after ``times`` as many answers with the present shares."""
    if times == 1:
        return counts
    return Counts(
        leaks=counts.leaks * times,
        n=counts.n * times,
        missing=counts.missing * times,
        lower=counts.lower,
        upper=counts.upper,
    )


def _sample(draws: ScoreDraws | None, place: int, missing: float, times: int) -> ScoreCounts:
    """The scores of a question after ``times`` as many answers, a ``missing`` one as this value; none without draws."""
    scores = np.empty(0)
    if draws is not None:
        scores = draws.scores[place]
    return ScoreCounts.of(np.nan_to_num(scores, nan=missing), times)


def _at_a_fixed_time(ends: Ends) -> Ends:
    """The ends of the evidence at a fixed time; where a question has none, those of its counts, which hold at any time."""
    fixed = _has_fixed(ends)
    kinds = []
    for kind in ends.evidence:
        if isinstance(kind, LeakCounts):
            n = np.where(fixed, 0, kind.n)
            leaks = np.where(fixed, 0, kind.leaks)
            missing = np.where(fixed, 0, kind.missing)
            kind = LeakCounts.of(leaks, n, missing, True)
        kinds.append(kind)
    return Ends(ends.items, ends.certain_lower, ends.certain_upper, tuple(kinds))


def _largest(chance: Sequence[np.ndarray], m: int) -> np.ndarray:
    """(m,) the largest end over the Retrains; 0 without any."""
    if not chance:
        return np.zeros(m)
    return np.asarray(np.max(chance, axis=0))
