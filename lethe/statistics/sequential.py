"""Valid early stopping: tests of one prompt's leak that allow a decision after every sample.

The test of the null "the mean is at least p0" uses the mixture, over q below p0, of the capitals
prod (X_t q / p0 + (1 - X_t)(1 - q) / (1 - p0)). For scores of 0 and 1, each capital is the likelihood ratio of q and p0. For
scores in between, each factor is linear in X_t, so its mean is at most 1 if the mean of X_t is at least p0. The mixture is
Beta(1/2, 1/2) truncated at p0, which is uniform in the angle theta of q = sin^2 theta. By Ville's inequality the mixture
ever reaches 1 / alpha with probability at most alpha, so the test is valid at any stopping time.

Every factor grows with p0 (sin(u theta) / sin(theta) and cos(u theta) / cos(theta) do, for a share u of the angle), so the
means not refuted so far form an interval. The end of the interval is an anytime-valid bound that agrees with the verdicts.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy.special import logsumexp

from lethe.errors import BadValue
from lethe.statistics.betting import predictable_squares
from lethe.statistics.bound import Assumes, Bound, Covers, Side
from lethe.statistics.checks import check_alpha, check_count, check_scores

NODES = 64  # of the mixture; a finite mixture is as valid as the integral

UNDECIDED, CERTIFIED, LEAKS = "undecided", "certified", "leaks"


@dataclass(frozen=True)
class Decision:
    """The verdict on a prompt after ``n`` samples; ``certified`` and ``leaks`` are each wrong with probability at most alpha.

    ``certified``: the mean score is at most ``tau``. ``leaks``: the mean score is at least ``tau_leak``. ``undecided``:
    neither is shown. The bounds on the mean and on the standard deviation hold at this stopping time, each one-sided with
    probability 1 - alpha.
    """

    verdict: str
    n: int
    cap: int
    tau: float
    tau_leak: float
    alpha: float
    mean_upper: float
    mean_lower: float
    sd_upper: float
    method: str = "mixture martingale"
    assumes: str = Assumes.DRAWS_IN_ORDER

    def bounds(self) -> dict[str, Bound]:
        """The three bounds with their guarantees, under their names in the metrics."""
        sides: dict[str, tuple[Side, float]] = {
            "anytime_upper": ("upper", self.mean_upper),
            "anytime_lower": ("lower", self.mean_lower),
            "anytime_sd_upper": ("upper", self.sd_upper),
        }
        method = f"{self.method}, at every n at once"
        return {
            name: Bound(value, side, self.alpha, Covers.ONE_PROMPT, self.assumes, method, self.n)
            for name, (side, value) in sides.items()
        }


class SequentialTest:
    """Certify a mean score of at most ``tau``, detect one of at least ``tau_leak``, or stop undecided at ``cap`` samples."""

    def __init__(self, tau: float, tau_leak: float, alpha: float, cap: int):
        check_alpha(alpha)
        check_count("cap", cap)
        if not 0 < tau <= tau_leak < 1:
            raise BadValue("tau and tau_leak", (tau, tau_leak), "0 < tau <= tau_leak < 1")
        self.tau, self.tau_leak, self.alpha, self.cap = tau, tau_leak, alpha, cap
        self.verdict, self.scores, self.low = UNDECIDED, np.empty(0), np.empty(0)
        self._certify = Capital(tau, above=False)
        self._detect = Capital(tau_leak, above=True)

    @property
    def done(self) -> bool:
        """Whether the test has a verdict or has reached the cap."""
        return self.verdict != UNDECIDED or len(self.scores) >= self.cap

    def update(self, scores: np.ndarray, low: np.ndarray | None = None) -> str:
        """Add scores in [0, 1], in sampling order, test after each score, and return the verdict.

        ``low`` holds lower bounds of the same scores, for scores that are only known to lie between two values. Leaks are
        detected on ``low``; certificates use ``scores``. Scores after the decision or beyond the cap are ignored.
        """
        room = self.cap - len(self.scores)
        scores = check_scores(scores)[0][:room]
        low = scores if low is None else check_scores(low)[0][:room]
        if self.done:
            return self.verdict
        goal = math.log(1 / self.alpha)
        times = {
            CERTIFIED: _first(self._certify.path(scores) >= goal),
            LEAKS: _first(self._detect.path(low) >= goal),
        }
        verdict, stop = min(times.items(), key=lambda item: item[1])
        if stop < len(scores):
            self.verdict, scores, low = verdict, scores[: stop + 1], low[: stop + 1]
        self.scores, self.low = np.concatenate([self.scores, scores]), np.concatenate([self.low, low])
        return self.verdict

    def decision(self) -> Decision:
        """The verdict so far, with anytime-valid bounds on the mean."""
        check_count("samples seen", len(self.scores))
        known = np.where(self.scores == self.low, self.scores, np.nan)
        return Decision(
            verdict=self.verdict,
            n=len(self.scores),
            cap=self.cap,
            tau=self.tau,
            tau_leak=self.tau_leak,
            alpha=self.alpha,
            mean_upper=anytime_upper(self.scores, self.alpha),
            mean_lower=1 - anytime_upper(1 - self.low, self.alpha),
            sd_upper=math.sqrt(anytime_upper(predictable_squares(known[None])[0], self.alpha)),
        )


def anytime_upper(values: np.ndarray, alpha: float) -> float:
    """Upper bound of the mean of ``values`` (n,) in [0, 1], with probability 1 - alpha at any stopping time.

    ``values`` must be in sampling order; it suffices that the mean of each value, given the earlier values, is at least the
    bounded mean. The bound is the smallest mean that the mixture refuted at any time so far, to 1e-9, rounded up.
    """
    values = check_scores(values)[0]
    check_alpha(alpha)
    return _smallest(lambda mean: float(Capital(mean, above=False).path(values).max()), alpha)


def stopped_upper(values: np.ndarray, alpha: float) -> float:
    """Upper bound of the mean of ``values`` (n,) in [0, 1] at a stopping time, for values in any order.

    Parameters
    ----------
    values : array of shape (n,)
        All draws up to the stop. The stopping rule may have looked at the earlier draws before each further draw.
    alpha : float
        Error probability, above 0 and at most 0.5.

    Returns
    -------
    float
        The smallest mean that the mixture refutes at the stop, to 1e-9, rounded up.

    Notes
    -----
    `anytime_upper` uses the largest capital so far and therefore needs the draws in sampling order. The capital at the stop
    is a product over the draws, so the order does not matter, but the bound is weaker. Assumes independent draws, each drawn
    before its value was known.

    Examples
    --------
    >>> round(stopped_upper(np.zeros(100), alpha=0.05), 4)
    0.0372
    """
    values = check_scores(values)[0]
    check_alpha(alpha)
    return _smallest(lambda mean: float(Capital(mean, above=False).path(values)[-1]), alpha)


def _smallest(log_capital: Callable[[float], float], alpha: float) -> float:
    """The smallest mean whose log capital reaches ln(1 / alpha), to 1e-9, rounded up; 1 if no mean is refuted."""
    from scipy.optimize import brentq

    goal, edge = math.log(1 / alpha), 1e-9
    if log_capital(1 - edge) < goal:
        return 1.0
    return min(1.0, brentq(lambda mean: log_capital(mean) - goal, edge, 1 - edge, xtol=edge) + edge)


class Capital:
    """The mixture of capitals against a mean of at least ``null`` (at most ``null`` if ``above``), as logarithms.

    Examples
    --------
    >>> import numpy as np
    >>> path = Capital(0.5, above=False).path(np.zeros(3))
    >>> bool((np.diff(path) > 0).all())  # each score of 0 is evidence against a mean of at least 0.5
    True
    """

    def __init__(self, null: float, above: bool):
        q, self.log_weights = mixture(null, above)
        self.slope = q / null - (1 - q) / (1 - null)
        self.level = (1 - q) / (1 - null)
        self.logs = np.zeros(NODES)

    def path(self, scores: np.ndarray) -> np.ndarray:
        """(len(scores),) the mixture's log capital after each further score; updates the state."""
        if not len(scores):
            return np.empty(0)
        steps = scores[:, None] * self.slope
        steps += self.level
        np.log(steps, out=steps)
        steps[0] += self.logs
        np.cumsum(steps, axis=0, out=steps)
        self.logs = steps[-1].copy()
        top = steps.max(axis=1)
        steps -= top[:, None]
        return top + np.log(np.exp(steps, out=steps) @ np.exp(self.log_weights))


@cache
def stopping_counts(null: float, above: bool, alpha: float, cap: int) -> np.ndarray:
    """(cap,) number of ones at which the test stops after t = 1..cap scores of 0 or 1.

    Parameters
    ----------
    null
        The mean under test, strictly between 0 and 1.
    above
        Whether the test stops at this many ones or more (t + 1: no stop yet), else at this many or fewer (-1: no stop
        yet).
    alpha
        The level.
    cap
        The most scores.
    """
    q, log_weights = mixture(null, above)
    hit, miss = np.log(q / null), np.log((1 - q) / (1 - null))
    samples = np.arange(1, cap + 1)
    # The capital is monotone in the number of ones: bisect between a count that stops the test and one that does not.
    stops, goes_on = (samples + 1, np.full(cap, -1)) if above else (np.full(cap, -1), samples + 1)
    while (np.abs(stops - goes_on) > 1).any():
        ones = (stops + goes_on) // 2
        logs = log_weights + ones[:, None] * hit + (samples - ones)[:, None] * miss
        reached = logsumexp(logs, axis=1) >= math.log(1 / alpha)
        stops, goes_on = np.where(reached, ones, stops), np.where(reached, goes_on, ones)
    stops.flags.writeable = False  # shared by the cache
    return stops


def mixture(null: float, above: bool) -> tuple[np.ndarray, np.ndarray]:
    """(NODES,) the q of the mixture and the logarithms of their weights."""
    edge = math.asin(math.sqrt(null))
    start, end = (edge, math.pi / 2) if above else (0.0, edge)
    shares, log_weights = _nodes()
    return np.square(np.sin(start + shares * (end - start))), log_weights


@cache
def _nodes() -> tuple[np.ndarray, np.ndarray]:
    """(NODES,) the Gauss-Legendre nodes of (0, 1) and the logarithms of their weights; computing them takes milliseconds."""
    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    return (nodes + 1) / 2, np.log(weights / 2)


def _first(reached: np.ndarray) -> int:
    """The index of the first True, or the length."""
    return int(np.argmax(reached)) if reached.any() else len(reached)
