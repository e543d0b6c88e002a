"""Which answers to draw next until the word on a model is certain: a function of counts alone.

To every question come ``first`` answers. Then, until *leaks* is proved, or each question has passed
*forgot* or reached the ``cap``, a further batch goes to the suspects: open questions that leaked
at least `SUSPECT_LEAKS` times, and more often than Retrain by more than the tolerance. If there is
no suspect, it goes to the open questions with the fewest answers. Retrain is asked only where
chance matters: in suspect questions, and in those that needed more answers than a question without
a leak.

The words hold whatever is drawn next (`lethe.statistics.anytime`), so the policy decides about
costs alone. It reads nothing but counts: a process that was killed, or whose answers come from a
cache, goes on as if nothing had happened, and a larger cap continues it.

All arrays may have axes before that of the m questions, which stand for separate processes.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from scipy.special import logsumexp

from lethe.errors import BadValue
from lethe.statistics import anytime
from lethe.statistics.anytime import LN2, Counts
from lethe.statistics.checks import check, check_count, check_share

End = Literal["leaks", "forgot", "capped"]
SUSPECT_LEAKS = 3  # fewer come by chance from a question that leaks less than the tolerance
LATE = 1.5  # times the answers that decide a question without a leak: chance may be in the way


@dataclass(frozen=True)
class Tally:
    """Of each question, how many of ``n`` answers leaked, and how many are ``missing`` a judgement.

    Whole numbers of shape (..., m); a number stands for all questions.
    """

    leaks: np.ndarray
    n: np.ndarray
    missing: np.ndarray

    @classmethod
    def of(cls, leaks: object, n: object, missing: object = 0) -> "Tally":
        """Return the tally with all three in one shape.

        >>> Tally.of([0, 2], 128).n.tolist()
        [128, 128]
        """
        arrays = [np.asarray(counts, dtype=np.int64) for counts in (leaks, n, missing)]
        leaks, n, missing = np.broadcast_arrays(*arrays)
        bad = np.argwhere((leaks < 0) | (missing < 0) | (leaks + missing > n))
        if bad.size:
            place = tuple(bad[0])
            counts = (int(leaks[place]), int(n[place]), int(missing[place]))
            legal = "at least 0, and leaks and missing together at most n"
            raise BadValue("leaks, n, missing", counts, legal)
        return cls(leaks, n, missing)

    @property
    def share(self) -> np.ndarray:
        """(..., m) the share of answers that leaked; 0 without an answer."""
        return np.asarray(self.leaks / np.maximum(self.n, 1))


@dataclass(frozen=True)
class Evidence:
    """What the counts prove of each question, as ln of e-values of shape (..., m)."""

    goal: float
    log_e_forgot: np.ndarray
    log_e_leaks: np.ndarray

    @property
    def passed(self) -> np.ndarray:
        """(..., m) whether the question has passed *forgot*."""
        return self.log_e_forgot >= self.goal + anytime.ROUNDING

    @cached_property
    def log_e_mean(self) -> np.ndarray:
        """(...) ln of the mean e-value for *leaks* over the questions."""
        m = self.log_e_leaks.shape[-1]
        return np.asarray(logsumexp(self.log_e_leaks, axis=-1) - math.log(m))

    @property
    def leaks(self) -> np.ndarray:
        """(...) whether the mean over the questions proves *leaks*."""
        return self.log_e_mean >= self.goal + anytime.ROUNDING


@dataclass(frozen=True)
class Next:
    """What to draw next, and the evidence that asked for it.

    ``model`` (..., m) is how many more answers to draw of the model, ``retrains`` (r, ..., m) of
    each Retrain. Both are 0 where a process has ended.
    """

    model: np.ndarray
    retrains: np.ndarray
    evidence: Evidence

    @property
    def ended(self) -> End | None:
        """Why a single process has ended: *leaks* or *forgot* is proved, or every other question
        is at the cap. None while it goes on.
        """
        if self.evidence.leaks:
            return "leaks"
        if self.model.any():
            return None
        return "forgot" if self.evidence.passed.all() else "capped"


@dataclass(frozen=True)
class Policy:
    """The rule of draws for a model beside ``retrains`` Retrains.

    Parameters
    ----------
    first : The answers to each question that come whatever happens.
    batch : The answers that come at once to a question.
    cap : The most answers to a question.
    tolerance : How much more often than Retrain a question may leak, in (0, 1).
    goal : What ln e of a word must reach: ln(models / alpha).
    retrains : The number of Retrains; 0: chance counts as 0.

    Examples
    --------
    >>> policy = Policy(first=128, batch=128, cap=32_768, tolerance=0.01, goal=6.7, retrains=1)
    >>> step = policy.next(Tally.of([0, 4], 128), [Tally.of([0, 0], 0)])
    >>> step.ended, step.model.tolist(), step.retrains.tolist()
    (None, [0, 128], [[0, 256]])
    """

    first: int
    batch: int
    cap: int
    tolerance: float
    goal: float
    retrains: int = 0

    def __post_init__(self) -> None:
        for name in ("first", "batch", "cap"):
            check_count(name, getattr(self, name))
        check(self.retrains >= 0, "retrains", self.retrains, "a whole number of at least 0")
        check(0 < self.goal < math.inf, "goal", self.goal, "a number above 0")
        check_share("tolerance", self.tolerance)

    @cached_property
    def without_a_leak(self) -> int:
        """The answers that decide a question of which none leaks."""
        beside_retrain = self.retrains > 0
        return anytime.answers_without_a_leak(self.tolerance, self.goal, beside_retrain)

    def next(self, model: Tally, retrains: Sequence[Tally] = ()) -> Next:
        """Return what to draw after these counts.

        Raises
        ------
        BadValue : The number of Retrains is another than the policy's, or there is no question.
        """
        if len(retrains) != self.retrains:
            raise BadValue("retrains", len(retrains), f"the {self.retrains} of the policy")
        check(model.n.shape[-1:] > (0,), "questions", 0, "at least one")
        evidence = self.evidence(model, retrains)

        goes_on = ~evidence.leaks[..., np.newaxis]
        is_open = goes_on & ~evidence.passed & (model.n < self.cap)
        chance = np.zeros(model.n.shape)
        for retrain in retrains:
            chance = np.maximum(chance, retrain.share)
        stands_out = model.share - chance > self.tolerance
        suspect = is_open & (model.leaks >= SUSPECT_LEAKS) & stands_out

        target = min(self.first, self.cap)
        starts = is_open & (model.n < target)
        fewest = np.where(is_open, model.n, np.inf).min(axis=-1, keepdims=True)
        picked = is_open & (model.n == fewest)
        picked = np.where(suspect.any(axis=-1, keepdims=True), suspect, picked)
        picked = np.where(starts.any(axis=-1, keepdims=True), starts, picked)
        after = np.minimum(np.where(starts, target, model.n + self.batch), self.cap)
        drawn = np.where(picked, after - model.n, 0)

        has_leaked = model.leaks >= SUSPECT_LEAKS
        is_late = model.n >= LATE * self.without_a_leak
        is_late |= has_leaked & (model.n >= self.without_a_leak)
        beside = picked & (suspect | is_late)
        asked = [np.where(beside, np.maximum(after - tally.n, 0), 0) for tally in retrains]
        of_retrains = np.array(asked).reshape(self.retrains, *model.n.shape)
        return Next(drawn, of_retrains, evidence)

    def evidence(self, model: Tally, retrains: Sequence[Tally] = ()) -> Evidence:
        """Return what the counts prove of each question.

        Most questions share their counts with others, so each distinct set of counts is evaluated
        once.
        """
        columns = []
        for tally in (model, *retrains):
            columns += [tally.leaks.ravel(), tally.n.ravel(), tally.missing.ravel()]
        rows, places = np.unique(np.stack(columns, axis=-1), axis=0, return_inverse=True)
        log_e_forgot, log_e_leaks = self._log_e(rows)
        shape = model.n.shape
        places = places.reshape(shape)
        return Evidence(self.goal, log_e_forgot[places], log_e_leaks[places])

    def _log_e(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return ln e for *forgot* and *leaks*, (u,) each, of ``rows`` (u, 3 (1 + r)): leaks, n and
        missing of the model and of each Retrain.

        They are those of `anytime.log_e_forgot` and `anytime.log_e_leaks` without certain ends.
        """
        counts = rows.reshape(len(rows), -1, 3).astype(np.float64)
        leaks, n, _ = np.moveaxis(counts, -1, 0)  # (u, 1 + r) each
        x, of_model = leaks[:, 0], n[:, 0]
        log_e_forgot = anytime.log_below(x, of_model, self.tolerance)
        if self.retrains == 0:
            log_e_leaks = anytime.log_above(x, of_model, self.tolerance)
        else:
            x, of_model = leaks[:, :1], n[:, :1]
            y, of_retrains = leaks[:, 1:], n[:, 1:]
            beyond = anytime.log_beyond(x, of_model, y, of_retrains, self.tolerance)
            mean_beyond = logsumexp(beyond, axis=1) - math.log(self.retrains)
            log_e_forgot = np.logaddexp(log_e_forgot, mean_beyond) - LN2
            below = anytime.log_beyond(y, of_retrains, x, of_model, -self.tolerance)
            log_e_leaks = below.min(axis=1)

        for place in np.flatnonzero(counts[:, :, 2].any(axis=1)):
            of_row = [Counts(*numbers) for numbers in rows[place].reshape(-1, 3).tolist()]
            model, *retrains = of_row
            log_e_forgot[place] = anytime.log_e_forgot(model, retrains, self.tolerance)
            log_e_leaks[place] = anytime.log_e_leaks(model, retrains, self.tolerance)
        return np.asarray(log_e_forgot), np.asarray(log_e_leaks)
