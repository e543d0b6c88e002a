"""The counts of one audit, averages over the order statistic at the cut of released guesses, and
binomial tails.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy import special

from lethe.errors import BadValue
from lethe.statistics.checks import check

MOST_BITS = 10**8  # with more bits, the binomial tails lose their digits to rounding


@dataclass(frozen=True)
class ReleasedGuesses:
    """The counts of an audit with one run.

    Attributes
    ----------
    n
        The number of secret bits, at most `MOST_BITS`.
    r
        The number of guesses that were released, from 1 to n.
    errors
        The number of them that are wrong.
    negatives
        From a file of guesses, the released guesses of bits that are 0; else None.
    false_positives
        Those of them that guessed 1; the remaining errors are false negatives.

    Raises
    ------
    BadValue
        If a count is out of range.
    """

    n: int
    r: int
    errors: int
    negatives: int | None = None
    false_positives: int | None = None

    def __post_init__(self) -> None:
        check(1 <= self.n <= MOST_BITS, "n", self.n, f"a whole number from 1 to {MOST_BITS}")
        if not 1 <= self.r <= self.n:
            remedy = "At most all n guesses can be released."
            raise BadValue("r", self.r, f"a whole number from 1 to n = {self.n}", remedy)
        legal = f"a whole number from 0 to r = {self.r}"
        check(0 <= self.errors <= self.r, "errors", self.errors, legal)

    @property
    def correct(self) -> int:
        """The number of released guesses that are right."""
        return self.r - self.errors

    def by_bit(self) -> tuple[int, int]:
        """``negatives`` and ``false_positives``; `BadValue` where the counts are not from a file."""
        if self.negatives is None or self.false_positives is None:
            legal = "a file of guesses, which gives the counts by the value of the bit"
            raise BadValue("guesses", "counts only", legal)
        return self.negatives, self.false_positives


@dataclass(frozen=True)
class Guesses:
    """The guesses of all secret bits, before any is released.

    Attributes
    ----------
    bits
        (n,) the secret bits, 0 or 1.
    guesses
        (n,) what the auditor guesses, 0 or 1.
    scores
        (n,) the confidence in each guess.
    """

    bits: np.ndarray
    guesses: np.ndarray
    scores: np.ndarray


def release(
    bits: np.ndarray, guesses: np.ndarray, scores: np.ndarray, r: int, seed: int = 0
) -> ReleasedGuesses:
    """Release the ``r`` guesses with the highest ``scores`` (-inf: never) and count their errors.

    ``seed`` breaks ties at the cut at random: by position they would leak the bits where the rows
    are ordered by bit.

    Parameters
    ----------
    bits, guesses
        (n,) of 0 and 1.
    scores
        (n,) confidence in each guess.
    r
        Number of guesses to release, fixed before they were seen.
    seed
        Of the ties at the cut.

    Raises
    ------
    BadValue
        For the first value that is not legal, or if fewer than r guesses are offered.
    """
    bits = np.asarray(bits)
    guesses = np.asarray(guesses)
    scores = np.asarray(scores, dtype=np.float64)
    n = bits.size
    for name, values in (("bits", bits), ("guesses", guesses), ("scores", scores)):
        check(values.shape == (n,), name, f"shape {values.shape}", f"one for each of the {n} bits")
    for name, values, broken, legal in (
        ("bits", bits, ~np.isin(bits, (0, 1)), "0 or 1"),
        ("guesses", guesses, ~np.isin(guesses, (0, 1)), "0 or 1"),
        ("scores", scores, np.isnan(scores), "a number (-inf: never released)"),
    ):
        if broken.any():
            first = int(np.argmax(broken))
            raise BadValue(f"{name}[{first}]", values[first].item(), legal)
    ReleasedGuesses(n, r, 0)  # checks n and r

    offered = int(np.count_nonzero(scores > -np.inf))
    legal = f"at most {offered}, the number of guesses (of {n}) whose score is not -inf"
    check(r <= offered, "r", r, legal)

    # From above: np.partition is thirty times slower at the end of many equal scores.
    cut = -np.partition(-scores, r - 1)[r - 1]
    above = np.flatnonzero(scores > cut)
    tied = np.flatnonzero(scores == cut)
    drawn = np.random.default_rng(seed).choice(tied, r - above.size, replace=False)
    released = np.concatenate([above, drawn])

    is_negative = bits[released] != 1
    is_wrong = bits[released] != guesses[released]
    errors = int(is_wrong.sum())
    negatives = int(is_negative.sum())
    return ReleasedGuesses(n, r, errors, negatives, int((is_wrong & is_negative).sum()))


# Below this the incomplete beta function approaches the smallest double, so the series is used.
SMALLEST_TAIL = 1e-250


def log_cdf(u: int, n: int, p: np.ndarray | float) -> np.ndarray:
    """ln P(Binomial(n, p) <= u), elementwise; exact even far below the smallest double."""
    p = np.asarray(p, dtype=np.float64)
    if u >= n:
        return np.zeros(p.shape)

    # The smaller of both tails keeps its digits.
    tail = special.betaincc(u + 1, n - u, p)
    rest = special.betainc(u + 1, n - u, p)
    with np.errstate(divide="ignore"):
        log_tail = np.where(tail < 0.5, np.log(tail), np.log1p(-rest))
    deep = tail < SMALLEST_TAIL
    if deep.any():
        log_tail[deep] = _log_cdf_series(u, n, p[deep])
    return log_tail


def log_pmf(k: np.ndarray | int, n: int, p: np.ndarray | float) -> np.ndarray:
    """ln P(Binomial(n, p) = k), elementwise."""
    log_choose = -np.log1p(n) - special.betaln(n - k + 1, k + 1)
    return log_choose + special.xlogy(k, p) + special.xlog1py(n - k, -p)


def _log_cdf_series(u: int, n: int, p: np.ndarray) -> np.ndarray:
    """ln of pmf(u) (1 + pmf(u-1)/pmf(u) + ...): deep in the lower tail the ratios fall
    geometrically.
    """
    odds = (1 - p) / p
    total = np.ones(p.shape)
    term = np.ones(p.shape)
    for k in range(u, 0, -1):
        term = term * odds * (k / (n - k + 1))
        total = total + term
        if np.all(term < 1e-18 * total):
            break
    return log_pmf(u, n, p) + np.log(total)


NODES, WEIGHTS = np.polynomial.legendre.leggauss(16)

# Maps values at the nodes to the last three coefficients of their Legendre series, small if the
# series has converged.
_TRAILING = (
    np.polynomial.legendre.legvander(NODES, 15) * WEIGHTS[:, None] * (np.arange(16) + 0.5)
).T[-3:]


def unresolved(values: np.ndarray) -> np.ndarray:
    """The size of the part that the nodes do not resolve, for each panel (row) of values at the
    nodes.
    """
    return np.abs(values @ _TRAILING.T).max(axis=-1)


NEGLIGIBLE = 40.0  # nats below the largest value: e^-40 of the integral
NATS_IN_PANEL = 2.0  # a panel is halved if the integrand changes by more nats than this within it
FAR = 30.0  # nats from the peak; farther out, no digits cancel, and e^y would overflow
# Of a panel, relative to a thousandth of the integrand's peak: 1e-11 of the integral.
RELATIVE_ERROR = 1e-8


def log_beta_average(
    log_value: Callable[[np.ndarray], np.ndarray], n: int, r: int, breaks: Sequence[float] = ()
) -> float:
    """ln E[exp(log_value(S))] for S ~ Beta(r + 1, n - r), the mass above the cut if r of n guesses
    are released.

    The integral runs over y = logit s, in Gauss-Legendre panels that end at the breaks and are
    halved until the integrand changes little within each. Negligible panels are omitted: the two
    factors are monotone and log-concave.

    Parameters
    ----------
    log_value
        ln of the integrand at masses (k,) in (0, 1).
    n, r
        Bits and released guesses, r < n.
    breaks
        Masses at which the integrand is not smooth.
    """
    peak = np.log((r + 1) / (n - r))
    scale = np.sqrt(1 / (r + 1) + 1 / (n - r))
    log_weight = partial(_log_beta_density, n, r)

    def evaluate(y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return log_weight(y), log_value(special.expit(y))

    edges = _window(evaluate, peak, scale)
    inner = special.logit([s for s in breaks if 0 < s < 1])
    edges = np.union1d(edges, [y for y in inner if edges[0] < y < edges[-1]])
    weight, value = evaluate(edges)
    while True:
        total = weight + value
        left, right = edges[:-1], edges[1:]

        # The most that a panel may add: the largest weight in it, and the value at its left end.
        highest = np.maximum(weight[:-1], weight[1:])
        highest = np.where((left < peak) & (peak < right), log_weight(peak), highest)
        matters = highest + value[:-1] > total.max() - NEGLIGIBLE

        coarse = (right - left > 1.5 * scale) | (np.abs(np.diff(total)) > NATS_IN_PANEL)
        middle = 0.5 * (left + right)
        split = matters & coarse & (middle > left) & (middle < right)
        if not split.any():
            break

        place = np.flatnonzero(split) + 1
        new_weight, new_value = evaluate(middle[split])
        edges = np.insert(edges, place, middle[split])
        weight = np.insert(weight, place, new_weight)
        value = np.insert(value, place, new_value)
    return _sum_panels(lambda y: sum(evaluate(y)), left[matters], right[matters], 1e-3 * scale)


def _log_beta_density(n: int, r: int, y: np.ndarray) -> np.ndarray:
    """ln of the density of logit S at ``y``, S ~ Beta(r + 1, n - r).

    (r + 1) ln s + (n - r) ln(1 - s) - betaln(r + 1, n - r) is computed relative to its maximum: the
    three terms are of order n, and their sum would lose all digits for large n.
    """
    peak = np.log((r + 1) / (n - r))
    scale = np.sqrt(1 / (r + 1) + 1 / (n - r))
    rests = _stirling_rest(n + 1) - _stirling_rest(r + 1) - _stirling_rest(n - r)
    top = rests - np.log(scale * np.sqrt(2 * np.pi))

    share = min(r + 1, n - r) / (n + 1)
    away = np.copysign(1.0, n - 2 * r - 1) * (y - peak)
    near = np.log1p(share * np.expm1(np.minimum(away, FAR)))
    far = away + np.log(share + (1 - share) * np.exp(-np.maximum(away, FAR)))
    grown = np.where(away > FAR, far, near)
    return top + (n + 1) * (share * away - grown)


def _stirling_rest(x: int) -> float:
    """ln gamma(x) minus Stirling's (x - 1/2) ln x - x + ln(2 pi) / 2."""
    if x < 50:
        return float(special.gammaln(x) - (x - 0.5) * np.log(x) + x - 0.5 * np.log(2 * np.pi))
    return 1 / (12 * x) - 1 / (360 * x**3) + 1 / (1260 * x**5)


def _sum_panels(
    log_integrand: Callable, left: np.ndarray, right: np.ndarray, narrowest: float
) -> float:
    """ln of the integral over the panels; each panel is halved until the nodes resolve the
    integrand.
    """
    logs = []
    weights = []
    top = -np.inf
    while left.size:
        half = 0.5 * (right - left)
        middle = 0.5 * (left + right)
        values = log_integrand(middle[:, None] + half[:, None] * NODES)
        top = max(top, values.max())
        rough = unresolved(np.exp(values - top)) * half > RELATIVE_ERROR * narrowest
        rough &= half > narrowest
        logs.append(values[~rough].ravel())
        weights.append((half[:, None] * WEIGHTS)[~rough].ravel())
        left, right = halves_of(left[rough], middle[rough], right[rough])
    return float(special.logsumexp(np.concatenate(logs), b=np.concatenate(weights)))


def halves_of(
    left: np.ndarray, middle: np.ndarray, right: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The left and right ends of the halves of panels."""
    return np.concatenate([left, middle]), np.concatenate([middle, right])


def _window(evaluate: Callable, peak: float, scale: float) -> np.ndarray:
    """Equally spaced edges, from a left end where the weight is negligible to a right end where the
    product is.
    """
    edges = list(peak + scale * np.arange(-8.0, 9.0))
    weight, value = evaluate(np.array(edges))
    top = float(np.max(weight + value))
    step = scale
    weight_at_left = float(weight[0])
    while weight_at_left > top - NEGLIGIBLE:
        step *= 1.5
        edges.insert(0, edges[0] - step)
        weight, value = evaluate(np.array(edges[:1]))
        weight_at_left = float(weight[0])
        top = max(top, weight_at_left + float(value[0]))

    step = scale
    right = evaluate(np.array(edges[-1:]))
    while float(sum(right)[0]) > top - NEGLIGIBLE:
        step *= 1.5
        edges.append(edges[-1] + step)
        right = evaluate(np.array(edges[-1:]))
        top = max(top, float(sum(right)[0]))
    return np.array(edges)
