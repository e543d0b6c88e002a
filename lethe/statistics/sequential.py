"""Valid early stopping: tests of one prompt's leak that allow a decision after every sample.

The test of the null "the mean is at least p0" uses the mixture, over q below p0, of the capitals
prod (X_t q / p0 + (1 - X_t)(1 - q) / (1 - p0)). For scores of 0 and 1, each capital is the
likelihood ratio of q and p0. For scores in between, each factor is linear in X_t, so its mean is at
most 1 if the mean of X_t is at least p0. The mixture is Beta(1/2, 1/2) truncated at p0, which is
uniform in the angle theta of q = sin^2 theta. By Ville's inequality the mixture ever reaches 1 /
alpha with probability at most alpha, so the test is valid at any stopping time.

Every factor grows with p0 (sin(u theta) / sin(theta) and cos(u theta) / cos(theta) do, for a share
u of the angle), so the means not refuted so far form an interval. The end of the interval is an
anytime-valid bound that agrees with the verdicts.

For scores of 0 and 1 the capital depends only on the counts. The capital after further draws,
divided by the capital before, is an e-value of the further draws given the earlier ones, so
`log_e_value` multiplies over independent auditors.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logsumexp

from lethe.errors import BadValue
from lethe.statistics.betting import predictable_squares
from lethe.statistics.bound import Assumes, Bound, Covers, Interval, Side
from lethe.statistics.checks import check, check_alpha, check_count, check_scores, check_share

EDGE = 1e-9  # means closer to 0 or 1 count as 0 or 1
NODES = 64  # of the mixture; a finite mixture is as valid as the integral

UNDECIDED = "undecided"
CERTIFIED = "certified"
LEAKS = "leaks"


@dataclass(frozen=True)
class Decision:
    """The verdict on a prompt after ``n`` samples; each verdict, and each bound, is wrong with
    probability at most alpha.

    ``certified``: the mean score is at most ``tau``. ``leaks``: it is at least ``tau_leak``.
    ``undecided``: neither is shown.
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
        method = f"{self.method}, at every n at once"

        def bound(value: float, side: Side) -> Bound:
            return Bound(value, side, self.alpha, Covers.ONE_PROMPT, self.assumes, method, self.n)

        return {
            "anytime_upper": bound(self.mean_upper, "upper"),
            "anytime_lower": bound(self.mean_lower, "lower"),
            "anytime_sd_upper": bound(self.sd_upper, "upper"),
        }


class SequentialTest:
    """Certify a mean score of at most ``tau``, detect one of at least ``tau_leak``, or stop
    undecided at ``cap`` samples.
    """

    def __init__(self, tau: float, tau_leak: float, alpha: float, cap: int):
        check_alpha(alpha)
        check_count("cap", cap)
        legal = "0 < tau <= tau_leak < 1"
        check(0 < tau <= tau_leak < 1, "tau and tau_leak", (tau, tau_leak), legal)
        self.tau = tau
        self.tau_leak = tau_leak
        self.alpha = alpha
        self.cap = cap
        self.verdict = UNDECIDED
        self.scores = np.empty(0)
        self.low = np.empty(0)
        self._certify = Capital(tau, above=False)
        self._detect = Capital(tau_leak, above=True)

    @property
    def done(self) -> bool:
        """Whether the verdict is final: decided, or at the cap."""
        return self.verdict != UNDECIDED or len(self.scores) >= self.cap

    def update(self, scores: np.ndarray, low: np.ndarray | None = None) -> str:
        """Add scores in [0, 1], in sampling order, test after each score, and return the verdict.

        ``low`` holds lower bounds of the same scores, for scores that are only known to lie between
        two values. Leaks are detected on ``low``; certificates use ``scores``. Scores after the
        decision or beyond the cap are ignored.
        """
        room = self.cap - len(self.scores)
        scores = check_scores(scores)[0][:room]
        low = scores if low is None else check_scores(low)[0][:room]
        if self.done:
            return self.verdict
        goal = math.log(1 / self.alpha)
        certified_at = _first(self._certify.path(scores) >= goal)
        leaks_at = _first(self._detect.path(low) >= goal)
        stop = min(certified_at, leaks_at)
        if stop < len(scores):
            self.verdict = CERTIFIED if certified_at <= leaks_at else LEAKS
        self.scores = np.concatenate([self.scores, scores[: stop + 1]])
        self.low = np.concatenate([self.low, low[: stop + 1]])
        return self.verdict

    def decision(self) -> Decision:
        """The verdict and the bounds at the scores seen so far; at least one must have been seen."""
        check_count("samples seen", len(self.scores))
        certain = np.where(self.scores == self.low, self.scores, np.nan)
        squares = predictable_squares(certain[None])[0]
        return Decision(
            verdict=self.verdict,
            n=len(self.scores),
            cap=self.cap,
            tau=self.tau,
            tau_leak=self.tau_leak,
            alpha=self.alpha,
            mean_upper=anytime_upper(self.scores, self.alpha),
            mean_lower=1 - anytime_upper(1 - self.low, self.alpha),
            sd_upper=math.sqrt(anytime_upper(squares, self.alpha)),
        )


def anytime_upper(values: np.ndarray, alpha: float) -> float:
    """Upper bound of the mean of ``values`` (n,) in [0, 1], with probability 1 - alpha at any
    stopping time.

    ``values`` must be in sampling order; it suffices that the mean of each value, given the earlier
    values, is at least the bounded mean. The bound is the smallest mean that the mixture refuted at
    any time so far, to 1e-9, rounded up.
    """
    values = check_scores(values)[0]
    check_alpha(alpha)
    return _smallest(lambda mean: Capital(mean, above=False).path(values).max(), alpha)


def stopped_upper(values: np.ndarray, alpha: float) -> float:
    """`anytime_upper` of all draws up to the stop, in any order.

    The capital at the stop is a product over the draws, so the order does not matter, but the bound
    is weaker: the smallest mean that the mixture refutes at the stop.
    """
    values = check_scores(values)[0]
    check_alpha(alpha)
    return _smallest(lambda mean: Capital(mean, above=False).path(values)[-1], alpha)


def _smallest(log_capital: Callable[[float], float], alpha: float) -> float:
    """The smallest mean whose log capital reaches ln(1 / alpha), to 1e-9, rounded up; 1 if no mean
    is refuted.
    """
    from scipy.optimize import brentq

    goal = math.log(1 / alpha)
    if log_capital(1 - EDGE) < goal:
        return 1.0

    def excess(mean: float) -> float:
        return float(log_capital(mean)) - goal

    return min(1.0, brentq(excess, EDGE, 1 - EDGE, xtol=EDGE) + EDGE)


class Capital:
    """The mixture of capitals against a mean of at least ``null`` (at most ``null`` if ``above``),
    as logarithms.

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
        The mean under test, in (0, 1).
    above
        Whether many ones stop the test (a leak), instead of few (a certificate).
    alpha
        Level of the test.
    cap
        Largest number of scores.
    """
    q, log_weights = mixture(null, above)
    hit = np.log(q / null)
    miss = np.log((1 - q) / (1 - null))
    samples = np.arange(1, cap + 1)

    # The capital is monotone in the number of ones: bisect between a count that stops the test and
    # one that does not.
    stops = np.full(cap, -1)
    goes_on = samples + 1
    if above:
        stops, goes_on = goes_on, stops
    while (np.abs(stops - goes_on) > 1).any():
        ones = (stops + goes_on) // 2
        logs = log_weights + ones[:, None] * hit + (samples - ones)[:, None] * miss
        reached = logsumexp(logs, axis=1) >= math.log(1 / alpha)
        stops = np.where(reached, ones, stops)
        goes_on = np.where(reached, goes_on, ones)
    stops.flags.writeable = False  # shared by the cache
    return stops


def mixture(null: float, above: bool) -> tuple[np.ndarray, np.ndarray]:
    """(NODES,) the q of the mixture and the logarithms of their weights."""
    edge = math.asin(math.sqrt(null))
    start, end = (edge, math.pi / 2) if above else (0.0, edge)
    shares, log_weights = _nodes()
    angles = start + shares * (end - start)
    return np.square(np.sin(angles)), log_weights


@cache
def _nodes() -> tuple[np.ndarray, np.ndarray]:
    """(NODES,) the Gauss-Legendre nodes of (0, 1) and the logarithms of their weights; computing
    them takes milliseconds.
    """
    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    return (nodes + 1) / 2, np.log(weights / 2)


def _first(reached: np.ndarray) -> int:
    """The first place that is reached; the length if none is."""
    if not reached.any():
        return len(reached)
    return int(np.argmax(reached))


RULE = f"mixture of likelihood ratios, Beta(1/2, 1/2) below tau, {NODES} Gauss-Legendre nodes"


def log_e_value(leaks: ArrayLike, n: ArrayLike, tau: float) -> np.ndarray:
    """ln of the e-value against a leak probability of at least ``tau``, from leaking answers among
    ``n`` per question.

    Where the leak probability is at least ``tau``, the e-value's expectation is at most 1 at any
    stopping time (Ville 1939).

    Parameters
    ----------
    leaks, n
        Counts of one shape, with 0 <= leaks <= n.
    tau
        In (0, 1), fixed before the draws.

    Raises
    ------
    BadValue
        If a count is not from 0 to n.

    >>> first, both = log_e_value([0, 0], [100, 200], tau=0.05)
    >>> further = both - first                                  # what the second hundred draws add
    >>> round(float(first), 3), round(float(further), 3)
    (4.193, 4.785)
    """
    check_share("tau", tau)
    leaks = np.asarray(leaks, dtype=np.float64)
    n = np.asarray(n, dtype=np.float64)
    if (leaks < 0).any() or (leaks > n).any():
        raise BadValue("leaks", leaks.tolist(), "a count from 0 to the number of answers")
    q, log_weights = mixture(tau, above=False)
    hit = np.log(q / tau)
    miss = np.log((1 - q) / (1 - tau))
    logs = leaks[..., None] * hit + (n - leaks)[..., None] * miss
    return np.asarray(logsumexp(logs + log_weights, axis=-1))


STEPS = 32  # bisection steps: down to 2^-32 of the unit interval, below EDGE
METHOD = "mixture martingale, at the stop"
ASSUMES = "independent draws of which each is drawn before its value is known"


class StoppedSamples:
    """The distinct values of each sample in [0, 1], with their counts: all draws up to its stop,
    without missing values.
    """

    def __init__(self, samples: Sequence[np.ndarray]):
        sizes = [len(sample) for sample in samples]
        if min(sizes, default=0) < 1:
            raise BadValue("samples", sizes, "at least one sample, and a draw in each")
        values = []
        counts = []
        for sample in samples:
            of_sample = np.unique(check_scores(sample)[0], return_counts=True)
            values.append(of_sample[0])
            counts.append(of_sample[1])
        self.values = np.concatenate(values)
        self.counts = np.concatenate(counts)

        lengths = np.array([len(distinct) for distinct in values])
        self.starts = np.cumsum(lengths) - lengths
        self.of = np.repeat(np.arange(len(samples)), lengths)

    def log_capitals(self, means: np.ndarray) -> np.ndarray:
        """(samples,) the log capital at the stop against "the mean of each sample is at least
        ``means``".
        """
        _, log_weights = _nodes()
        q = np.stack([mixture(float(mean), above=False)[0] for mean in means])
        level = (1 - q) / (1 - means[:, None])
        slope = q / means[:, None] - level
        steps = slope[self.of]
        steps *= self.values[:, None]
        steps += level[self.of]
        np.log(steps, out=steps)
        steps *= self.counts[:, None]
        logs = np.add.reduceat(steps, self.starts, axis=0)
        return np.asarray(logsumexp(logs + log_weights, axis=1))

    def p_values(self, means: np.ndarray) -> np.ndarray:
        """(samples,) the p-value of "the mean of each sample is at least ``means``", by Markov's
        inequality at the stop.
        """
        inside = np.clip(means, EDGE, 1 - EDGE)
        p = np.minimum(1.0, np.exp(-self.log_capitals(inside)))
        return np.where(means <= EDGE, 1.0, p)

    def uppers(self, alpha: float) -> np.ndarray:
        """(samples,) the upper bound of each mean, equal to `stopped_upper` of each sample."""
        check_alpha(alpha)
        goal = math.log(1 / alpha)
        low = np.full(len(self.starts), EDGE)
        high = np.full(len(self.starts), 1 - EDGE)
        refuted = self.log_capitals(high) >= goal
        for _ in range(STEPS):
            middle = (low + high) / 2
            reached = self.log_capitals(middle) >= goal
            low = np.where(reached, low, middle)
            high = np.where(reached, middle, high)
        return np.where(refuted, np.minimum(1.0, high + EDGE), 1.0)


def stopped_average(samples: Sequence[np.ndarray], alpha: float) -> Interval:
    """Interval of the average over samples of their means; NaN counts as 0 for the lower end and as
    1 for the upper end.

    The two bounds of each of m samples, of any sizes, are at alpha / (2 m): their average holds
    under any dependence between the samples (Bonferroni).

    Parameters
    ----------
    samples
        One array of scores in [0, 1] for each question, all draws up to its stop.
    alpha
        Level of the two-sided interval, at most 1/2.
    """
    check_alpha(alpha)
    share = alpha / (2 * len(samples))
    high = [np.nan_to_num(sample, nan=1.0) for sample in samples]
    low = [np.nan_to_num(sample, nan=0.0) for sample in samples]
    upper = StoppedSamples(high).uppers(share)
    lower = 1 - StoppedSamples([1 - sample for sample in low]).uppers(share)

    judged = [float(np.nanmean(sample)) for sample in samples if not np.isnan(sample).all()]
    value = float(np.mean(judged)) if judged else math.nan
    n = sum(len(sample) for sample in samples)
    return Interval(value, float(lower.mean()), float(upper.mean()), n, alpha, METHOD, ASSUMES)
