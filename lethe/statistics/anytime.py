"""Evidence about one question at any time: how often a model leaks, alone and beyond Retrain.

Every function returns the logarithm of an e-process. If the null is true, an e-process ever reaches
1/e with probability at most e (Ville 1939), so a decision may be taken after any look, any choice
of the next question and any stop.

The count of leaks in n answers is mixed over Beta(1/2, 1/2) (Krichevsky and Trofimov 1981). Against
a null about one model the mixture is cut off at the null. Against a null about the difference from
Retrain, the mixtures of both models are divided by the largest likelihood that the null allows
(universal inference; Wasserman, Ramdas and Balakrishnan 2020).

At the true probability, mixture over likelihood is a martingale that starts at 1; so is Retrain's,
and, the answers being independent, their product. The truth lies in the null, so the largest
likelihood is at least its own, and dividing by it can only take evidence away. A mixture cut off
below the null is a supermartingale under every larger probability. Averages of such processes are
such processes. Both kinds grow with the null, so one process answers for every tolerance at once.

Assumes: independent answers, those of one model and question equally distributed, and each decision
to draw rests on earlier answers alone. Model and Retrain must be drawn from independent random
numbers.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betainc, betaln, logsumexp, xlog1py, xlogy

from lethe.errors import BadValue
from lethe.statistics.checks import check, check_alpha, check_share
from lethe.statistics.search import fewest

LN2 = math.log(2.0)
BISECTIONS = 60  # halvings of [-1, 1]: to 2e-18, below the rounding of the likelihoods
SMALLEST_SHARE = 1e-290  # an incomplete Beta function below it loses digits; its series does not
TERMS = 400  # of that series: its ratio is below 1/2 from the start where the share is so small
ROUNDING = 1e-9  # what ln e must exceed a goal by, since it is computed in double precision
MOST_TIMES = 1024  # the largest multiple of the answers of today that a forecast tries


@dataclass(frozen=True)
class Counts:
    """What is known of one question and one model: ``leaks`` among ``n`` answers, ``missing`` of
    them without a judgement.

    ``lower`` and ``upper`` are ends of the leak probability that cannot fail, such as those of an
    answer tree.
    """

    leaks: int
    n: int
    missing: int = 0
    lower: float = 0.0
    upper: float = 1.0

    def __post_init__(self) -> None:
        judged = self.n - self.missing
        check(self.missing >= 0 and judged >= 0, "missing", self.missing, f"from 0 to {self.n}")
        check(0 <= self.leaks <= judged, "leaks", self.leaks, f"from 0 to {judged}")
        ends = (self.lower, self.upper)
        check(0 <= self.lower <= self.upper <= 1, "certain ends", ends, "0 <= lower <= upper <= 1")


class Box(NamedTuple):
    """Where a model's probability p and Retrain's q can be for certain."""

    p_lower: ArrayLike = 0.0
    p_upper: ArrayLike = 1.0
    q_lower: ArrayLike = 0.0
    q_upper: ArrayLike = 1.0


EVERYWHERE = Box()


@dataclass(frozen=True)
class AnytimeEnds:
    """Ends that hold at any time, each one-sided at ``level``: of the leak probability, and of what
    it is beyond Retrain's.

    Without Retrain the two intervals are one.
    """

    level: float
    lower: float
    upper: float
    beyond_lower: float
    beyond_upper: float


def log_mixture(leaks: ArrayLike, n: ArrayLike) -> np.ndarray:
    """Return ln of the mixture likelihood of ``leaks`` in ``n`` answers, over Beta(1/2, 1/2)."""
    leaks, n = np.asarray(leaks, dtype=np.float64), np.asarray(n, dtype=np.float64)
    return np.asarray(betaln(leaks + 0.5, n - leaks + 0.5) - betaln(0.5, 0.5))


def log_likelihood(leaks: ArrayLike, n: ArrayLike, p: ArrayLike) -> np.ndarray:
    """Return ln of p^leaks (1 - p)^(n - leaks), with 0 ln 0 = 0."""
    leaks, n = np.asarray(leaks, dtype=np.float64), np.asarray(n, dtype=np.float64)
    return np.asarray(xlogy(leaks, p) + xlog1py(n - leaks, -np.asarray(p)))


def log_below(leaks: ArrayLike, n: ArrayLike, null: ArrayLike) -> np.ndarray:
    """Return ln e against "the model leaks with probability at least ``null``", 0 < null < 1; it
    rises with ``null``.

    >>> round(float(log_below(0, 500, 0.01)), 3)
    4.096
    """
    leaks, n, null = np.broadcast_arrays(
        np.asarray(leaks, dtype=np.float64),
        np.asarray(n, dtype=np.float64),
        np.asarray(null, dtype=np.float64),
    )
    a = leaks + 0.5
    b = n - leaks + 0.5
    share = betainc(a, b, null)
    with np.errstate(divide="ignore"):
        log_e = np.array(betaln(a, b) + np.log(share) - log_likelihood(leaks, n, null))
    tiny = share < SMALLEST_SHARE
    if tiny.any():
        log_e[tiny] = _log_series(n[tiny], a[tiny], null[tiny])
    return log_e - np.log(2 * np.arcsin(np.sqrt(null)))


def _log_series(n: np.ndarray, a: np.ndarray, null: np.ndarray) -> np.ndarray:
    """Return ln of the incomplete Beta function over the likelihood: sqrt(c (1 - c)) / a 2F1(1,
    n + 1; a + 1; c).
    """
    term = np.ones_like(null)
    series = np.ones_like(null)
    for j in range(TERMS):
        term = term * null * (n + 1 + j) / (a + 1 + j)
        series = series + term
    return np.asarray(np.log(null * (1 - null)) / 2 - np.log(a) + np.log(series))


def log_above(leaks: ArrayLike, n: ArrayLike, null: ArrayLike) -> np.ndarray:
    """Return ln e against "the model leaks with probability at most ``null``", 0 < null < 1; it
    falls with ``null``.
    """
    return log_below(np.asarray(n) - np.asarray(leaks), n, 1 - np.asarray(null))


def log_beyond(
    leaks: ArrayLike,
    n: ArrayLike,
    reference_leaks: ArrayLike,
    reference_n: ArrayLike,
    difference: ArrayLike,
    box: Box = EVERYWHERE,
) -> np.ndarray:
    """Return ln e against "the model's probability is at least Retrain's and ``difference`` more";
    it rises with it.

    Infinity where the certain ends of ``box`` refute the null.
    """
    values = (leaks, n, reference_leaks, reference_n, difference, *box)
    largest: ArrayLike
    if all(np.ndim(value) == 0 for value in values):
        largest = _largest_for_one_pair(*(float(np.asarray(value)) for value in values))
    else:
        x, n, y, k, d, *certain = np.broadcast_arrays(
            *(np.asarray(value, dtype=np.float64) for value in values)
        )
        largest = _largest_log_likelihood(x, n, y, k, d, Box(*certain))
    of_both = log_mixture(leaks, n) + log_mixture(reference_leaks, reference_n)
    return np.asarray(of_both - largest)


def _largest_for_one_pair(
    x: float,
    n: float,
    y: float,
    k: float,
    d: float,
    p_lower: float,
    p_upper: float,
    q_lower: float,
    q_upper: float,
) -> float:
    """Return what `_largest_log_likelihood` returns, for one pair of counts.

    Ends ask for one pair a hundred times: in numbers of Python a bisection takes a twentieth of its
    time in arrays of one element.
    """
    p = min(max(x / n, p_lower), p_upper) if n > 0 else p_upper
    q = min(max(y / k, q_lower), q_upper) if k > 0 else q_lower
    if p - q >= d:
        return float(log_likelihood(x, n, p) + log_likelihood(y, k, q))
    low = max(q_lower, p_lower - d)
    high = min(q_upper, p_upper - d)
    if low > high:
        return -math.inf

    left, right = low, high
    for _ in range(BISECTIONS):
        q = (left + right) / 2
        p = q + d
        if p <= 0 or q <= 0:
            rises = True
        elif p >= 1 or q >= 1:
            rises = False
        else:
            rises = x / p - (n - x) / (1 - p) + y / q - (k - y) / (1 - q) > 0
        if rises:
            left = q
        else:
            right = q
    candidates = np.array([(left + right) / 2, low, high])
    on_the_line = log_likelihood(x, n, np.clip(candidates + d, 0, 1))
    return float(np.fmax.reduce(on_the_line + log_likelihood(y, k, candidates)))


def _largest_log_likelihood(
    x: np.ndarray, n: np.ndarray, y: np.ndarray, k: np.ndarray, d: np.ndarray, box: Box
) -> np.ndarray:
    """Return ln of the largest likelihood over p - q >= d in the box; -infinity where no point of
    it is in the box.

    The shares themselves, where they are in the null; else the best point of the line p = q + d.
    """
    p_lower, p_upper, q_lower, q_upper = (np.asarray(end) for end in box)
    p = np.where(n > 0, np.clip(x / np.maximum(n, 1), p_lower, p_upper), p_upper)
    q = np.where(k > 0, np.clip(y / np.maximum(k, 1), q_lower, q_upper), q_lower)
    at_the_shares = log_likelihood(x, n, p) + log_likelihood(y, k, q)

    low = np.maximum(q_lower, p_lower - d)
    high = np.minimum(q_upper, p_upper - d)
    on_the_line = _largest_on_the_line(x, n, y, k, d, low, np.maximum(low, high))
    on_the_line = np.where(low <= high, on_the_line, -np.inf)
    return np.where(p - q >= d, at_the_shares, on_the_line)


def _largest_on_the_line(
    x: np.ndarray,
    n: np.ndarray,
    y: np.ndarray,
    k: np.ndarray,
    d: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
) -> np.ndarray:
    """Return the maximum over q in [low, high] of ln of the likelihood of (q + d, q), which is
    concave in q.
    """
    left, right = low, high
    with np.errstate(divide="ignore", invalid="ignore"):
        for _ in range(BISECTIONS):
            q = (left + right) / 2
            p = q + d
            slope = x / p - (n - x) / (1 - p) + y / q - (k - y) / (1 - q)
            rises = slope > 0
            left, right = np.where(rises, q, left), np.where(rises, right, q)
        best = np.full(np.shape(q), -np.inf)
        for q in ((left + right) / 2, low, high):
            p = np.clip(q + d, 0, 1)
            best = np.fmax(best, log_likelihood(x, n, p) + log_likelihood(y, k, q))
    return best


def _least_log_beyond(model: Counts, reference: Counts, difference: float, box: Box) -> float:
    """Return a lower bound of `log_beyond` over all judgements of the missing answers of both, a
    hostile pattern included.

    The largest likelihood is supermodular in the two counts (Topkis 1978): a further leak of the
    model raises ln e by at most what it does when Retrain has fewer leaks. So two edges of the
    rectangle of counts suffice.
    """
    x = model.leaks
    n = model.n
    missing = model.missing
    y = reference.leaks
    k = reference.n
    absent = reference.missing
    if not missing and not absent:
        return float(log_beyond(x, n, y, k, difference, box))
    along_the_model = log_beyond(np.arange(x, x + missing + 1), n, y, k, difference, box)
    corner = float(along_the_model[-1])
    if not math.isfinite(corner) or not absent:
        return float(along_the_model.min())
    along_retrain = log_beyond(x + missing, n, np.arange(y, y + absent + 1), k, difference, box)
    return float(along_the_model.min() + along_retrain.min() - corner)


def log_e_forgot(model: Counts, retrains: Sequence[Counts], tolerance: float) -> float:
    """Return ln e against "the model leaks more often than every Retrain, by at least
    ``tolerance``".

    Half of the capital refutes that the model leaks at least ``tolerance`` at all, half that it
    does so beyond Retrain, averaged over the Retrains. Without one, a leak needs no comparison.
    Infinity where certain ends refute the null.
    """
    least_chance = max((retrain.lower for retrain in retrains), default=0.0)
    if model.upper - least_chance <= tolerance:
        return math.inf
    null = least_chance + tolerance
    alone = -math.inf
    if 0 < null < 1:
        alone = float(log_below(model.leaks + model.missing, model.n, null))
    if not retrains:
        return alone

    beyond = []
    for retrain in retrains:
        box = Box(model.lower, model.upper, retrain.lower, retrain.upper)
        beyond.append(_least_log_beyond(model, retrain, tolerance, box))
    mean_beyond = float(np.logaddexp.reduce(beyond)) - math.log(len(beyond))
    return float(np.logaddexp(alone, mean_beyond)) - LN2


def log_e_forgot_cut_off(
    model: Counts, retrains: Sequence[Counts], tolerance: float, cut_off: int, most_cut_off: float
) -> float:
    """Return ln e against "beyond every Retrain by at least ``tolerance``, or cut off with
    probability ``most_cut_off``".

    ``model`` counts the ``cut_off`` answers, which ended at the token limit, as missing: each may
    have leaked later. The mean of the two processes is one under either null, so no level is split
    between them.
    """
    check_share("most_cut_off", most_cut_off)
    as_leaks = log_e_forgot(model, retrains, tolerance)
    few_are_cut = float(log_below(cut_off, model.n, most_cut_off))
    return float(np.logaddexp(as_leaks, few_are_cut)) - LN2


def log_e_leaks(model: Counts, retrains: Sequence[Counts], tolerance: float) -> float:
    """Return ln e against "the model leaks at most ``tolerance`` more often than some Retrain".

    The least evidence over the Retrains, since each of them may be the one that explains the leaks.
    Infinity where certain ends refute the null.
    """
    if not retrains:
        if model.lower > tolerance:
            return math.inf
        return float(log_above(model.leaks, model.n, tolerance)) if 0 < tolerance < 1 else -math.inf
    return min(_log_e_leaks_beside(model, retrain, tolerance) for retrain in retrains)


def _log_e_leaks_beside(model: Counts, retrain: Counts, tolerance: float) -> float:
    if model.lower - retrain.upper > tolerance:
        return math.inf
    box = Box(retrain.lower, retrain.upper, model.lower, model.upper)
    beyond = _least_log_beyond(retrain, model, -tolerance, box)
    if retrain.upper == 1:
        return beyond
    null = retrain.upper + tolerance
    alone = float(log_above(model.leaks, model.n, null)) if 0 < null < 1 else -math.inf
    return float(np.logaddexp(alone, beyond)) - LN2


def is_reached(log_e: float, goal: float) -> bool:
    """Whether ln e has reached a goal, with room for the rounding of double precision."""
    return log_e >= goal + ROUNDING


def ends(model: Counts, retrains: Sequence[Counts], level: float) -> AnytimeEnds:
    """Return the ends that hold at any time, each with probability 1 - ``level``.

    An upper end is the least value that is refuted: `log_e_forgot` at a tolerance has reached ln(1
    / level) if and only if the upper end of what the model leaks beyond Retrain is at most that
    tolerance.
    """
    check_alpha(level)
    goal = math.log(1 / level)
    may_leak = model.leaks + model.missing
    never_leak = model.n - model.leaks
    upper = _least_refuted(lambda p: is_reached(float(log_below(may_leak, model.n, p)), goal), 0.0)
    others = _least_refuted(
        lambda p: is_reached(float(log_below(never_leak, model.n, p)), goal), 0.0
    )
    upper = max(model.lower, min(upper, model.upper))
    lower = min(model.upper, max(1 - others, model.lower))
    if not retrains:
        return AnytimeEnds(level, lower, upper, lower, upper)

    most = _least_refuted(lambda d: is_reached(log_e_forgot(model, retrains, d), goal), -1.0)
    least = -_least_refuted(lambda d: is_reached(log_e_leaks(model, retrains, -d), goal), -1.0)
    return AnytimeEnds(level, lower, upper, least, most)


def _least_refuted(is_refuted: Callable[[float], bool], low: float) -> float:
    """Return the least value of (low, 1] that is refuted, from the refuted side; 1 where none
    below it is.
    """
    high = 1.0
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        if middle <= low or is_refuted(middle):
            high = middle
        else:
            low = middle
    return high


def named(log_e: ArrayLike, goal: float) -> np.ndarray:
    """Return (m,) which questions are proved to leak, when ``log_e`` (m,) are of one moment.

    Closed testing with means: a question is named if every set of questions that holds it has a
    mean e-value of at least exp(``goal``). The sets to ask are the question with the s smallest
    others. A false name has probability at most exp(-goal).
    """
    in_goals = np.exp(np.minimum(np.asarray(log_e, dtype=np.float64) - goal - ROUNDING, 700.0))
    smallest_first = np.sort(in_goals)
    sizes = np.arange(1, len(in_goals) + 1)
    is_named = np.zeros(len(in_goals), dtype=bool)
    for question, e_value in enumerate(in_goals):
        others = np.delete(smallest_first, np.searchsorted(smallest_first, e_value))
        sums = e_value + np.concatenate([[0.0], np.cumsum(others)])
        is_named[question] = (sums / sizes >= 1).all()
    return is_named


def log_mean(log_e: ArrayLike) -> float:
    """Return ln of the mean of e-values (m,), itself an e-value whatever their dependence."""
    log_e = np.asarray(log_e, dtype=np.float64)
    check(log_e.size > 0, "log_e", log_e.size, "at least one question")
    return float(logsumexp(log_e)) - math.log(log_e.size)


def answers_needed(log_e_at: Callable[[int], float], answers: int, goal: float) -> float | None:
    """Return about how many answers decide a question at its present shares; None where 1,024 times
    as many do not.

    ``log_e_at(t)`` is ln e of t times the counts. The counts are doubled until the goal is reached;
    a straight line between the last two gives the number.
    """
    if answers < 1:
        raise BadValue("answers", answers, "a whole number of at least 1")
    times = 1
    before = log_e_at(times)
    if is_reached(before, goal):
        return float(answers)
    while times < MOST_TIMES:
        after = log_e_at(2 * times)
        if is_reached(after, goal):
            return answers * times * (1 + (goal - before) / (after - before))
        times *= 2
        before = after
    return None


def answers_without_a_leak(tolerance: float, goal: float, beside_retrain: bool) -> int:
    """Return the number of answers that decide a question none of whose answers leaks."""
    check_share("tolerance", tolerance)
    if beside_retrain:
        goal += LN2  # half of the capital waits for the comparison
    return fewest(lambda n: is_reached(float(log_below(0, n, tolerance)), goal))
