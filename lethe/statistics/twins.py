"""The twin test: whether any trace of drawn secrets is left, exactly and without a Retrain.

Each secret has k candidates, the true one and k - 1 twins of the same generator, and the true one
was drawn uniformly. A model that is independent of the draws ranks the true candidates uniformly
and independently, whatever its scores are: given the candidates and the scores, a rank is a
bijection of the place that was drawn. So the ranks alone give an exact p-value for every model,
seed, architecture and attack.

Ranks run from 1 (the model prefers the true candidate to all its twins) to k. A test reads them in
one of three ways: *preferred* (true candidates rank high), *avoided* (they rank low), *either*
(each at one of the two ends). Unlearning can push a secret below its twins, which tells as much as
a secret above them.
"""

import hashlib
import hmac
import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from lethe.errors import BadValue, check
from lethe.statistics.bounds import binary_lower
from lethe.statistics.checks import check_alpha, check_share
from lethe.statistics.search import fewest_between, halved

Way = Literal["preferred", "avoided", "either"]
WAYS: tuple[Way, ...] = get_args(Way)
UNIT = 100  # ranks have whole scores, in hundredths of a nat: the null distribution is exact
BETS = (0.05, 0.1, 0.2, 0.4, 0.8)  # shares of the capital; a mixture needs no choice among them
DRAWS = 4000  # of true candidates, for the smallest lift: its power is known to about .0035
MOST_NATS = 64.0  # the largest lift that is tried: a probability ratio of 6e27
NATS = 0.005  # how closely a lift is found


@dataclass(frozen=True)
class TwinTest:
    """The evidence of m ranks against "the model is independent of the draws, given the
    candidates".

    ``log_p_of_way`` holds ln P(T >= t) for each way; ``log_capitals`` (3, 5) the log capital of
    each way and bet, which may be added over secrets with separate draws, and never over models,
    attacks or auditors that share draws.
    """

    ranks: tuple[int, ...]
    candidates: tuple[int, ...]
    totals: dict[Way, int]
    log_p_of_way: dict[Way, float]
    log_capitals: np.ndarray

    @property
    def direction(self) -> Way:
        """The way with the smallest p-value."""
        return min(WAYS, key=lambda way: self.log_p_of_way[way])

    @property
    def log_p(self) -> float:
        """ln of the p-value: three times the smallest of the three ways, at most 1 (Bonferroni)."""
        return min(0.0, math.log(3) + self.log_p_of_way[self.direction])

    @property
    def p(self) -> float:
        return math.exp(self.log_p)

    @property
    def log_e(self) -> float:
        return log_e_value(self.log_capitals)


def twin_test(ranks: Sequence[int], candidates: Sequence[int]) -> TwinTest:
    """Test whether a model knows anything of the draws, from the rank of each true candidate.

    Parameters
    ----------
    ranks
        (m,) the rank of each true candidate, from 1 to its number of candidates.
    candidates
        (m,) the number of candidates of each secret, at least 2.

    Raises
    ------
    BadValue
        If there is no secret, the lengths differ, or a rank is not among its candidates.

    >>> test = twin_test([1, 1, 2, 1], [20, 20, 20, 20])
    >>> test.direction, f"{test.p:.1e}"
    ('preferred', '9.4e-05')
    """
    ranks, candidates = check_ranks(ranks, candidates)
    totals: dict[Way, int] = {}
    log_p_of_way: dict[Way, float] = {}
    for way in WAYS:
        totals[way] = total(ranks, candidates, way)
        log_p_of_way[way] = log_tail(totals[way], candidates, way)
    return TwinTest(ranks, candidates, totals, log_p_of_way, log_capitals(ranks, candidates))


def check_ranks(
    ranks: Sequence[int], candidates: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return ranks and candidates as whole numbers, or raise `BadValue` naming the first secret
    that is wrong.
    """
    check(len(ranks) > 0, "ranks", len(ranks), "one rank for each of at least one secret")
    check(len(ranks) == len(candidates), "ranks", len(ranks), f"{len(candidates)}, as candidates")
    for place, (rank, k) in enumerate(zip(ranks, candidates, strict=True)):
        if k != int(k) or k < 2:
            raise BadValue(f"candidates[{place}]", k, "a whole number of at least 2")
        if rank != int(rank) or not 1 <= rank <= k:
            raise BadValue(f"ranks[{place}]", rank, f"a whole number from 1 to {int(k)}")
    return tuple(map(int, ranks)), tuple(map(int, candidates))


def ranks_of(scores: ArrayLike, true: ArrayLike, order: ArrayLike) -> np.ndarray:
    """Return the ranks (m,) of the true candidates by their scores; the best has rank 1.

    Parameters
    ----------
    scores
        (m, k) a score of each candidate, fixed before any score was seen. Higher is preferred.
        NaN, which a model without numbers gives, is below every number.
    true
        (m,) the place of the true candidate, from 0.
    order
        (m, k) the place of each candidate in an order drawn apart from the scores. It decides
        between equal scores; an order that favours the true candidates would make every model
        without knowledge fail.
    """
    scores = np.asarray(scores)
    true = np.asarray(true)
    order = np.asarray(order)
    scores = np.where(np.isnan(scores), -np.inf, scores)  # else a true NaN would have rank 1
    rows = np.arange(len(scores))
    score_of_true = scores[rows, true][:, None]
    order_of_true = order[rows, true][:, None]
    above = scores > score_of_true
    before = (scores == score_of_true) & (order < order_of_true)
    return 1 + (above | before).sum(axis=1)


def score_table(k: int, way: Way = "preferred") -> np.ndarray:
    """Return (k,) the whole score of each rank: -100 ln((rank - 1/2) / k), mirrored for
    *avoided*, the larger for *either*.
    """
    preferred, avoided = _tables(k)
    if way == "preferred":
        return preferred
    if way == "avoided":
        return avoided
    return np.maximum(preferred, avoided)


@cache
def _tables(k: int) -> tuple[np.ndarray, np.ndarray]:
    ranks = np.arange(1, k + 1)
    preferred = np.rint(-UNIT * np.log((ranks - 0.5) / k)).astype(np.int64)
    preferred.flags.writeable = False  # shared by the cache
    return preferred, preferred[::-1]


def total(ranks: Sequence[int], candidates: Sequence[int], way: Way = "preferred") -> int:
    """Return the statistic T of a way: the sum of the scores of the ranks."""
    scores = 0
    for rank, k in zip(ranks, candidates, strict=True):
        scores += int(score_table(k, way)[rank - 1])
    return scores


def log_tail(t: int, candidates: Sequence[int], way: Way = "preferred") -> float:
    """Return ln P(T >= ``t``) for independent uniform ranks, to a relative error of about 1e-13 of
    P.

    The distribution is tilted so that its mean is ``t``; one Fourier transform, longer than the
    support, gives its masses, and the tilt is taken back. Without a tilt, rounding would hide every
    probability below 1e-15.
    """
    parts = _parts(candidates, way)
    lowest, highest = _support(parts)
    if t <= lowest:
        return 0.0
    if t > highest:
        return -math.inf

    tilt = _tilt(t, parts)
    size = _transform_size(highest - lowest)
    spectrum = np.ones(size // 2 + 1, dtype=complex)
    log_scale = -tilt * t
    for table, n in parts:
        log_norm = float(np.logaddexp.reduce(tilt * table))
        masses = _masses(table, np.exp(tilt * table - log_norm), size)
        spectrum *= np.fft.rfft(masses) ** n
        log_scale += n * (log_norm - math.log(len(table)))
    tilted = np.fft.irfft(spectrum, size)[t - lowest : highest - lowest + 1]
    tilted_back = tilted * np.exp(-tilt * np.arange(len(tilted)))
    return min(0.0, log_scale + math.log(math.fsum(tilted_back)))


def _parts(candidates: Sequence[int], way: Way) -> list[tuple[np.ndarray, int]]:
    """Return each table of scores with the number of secrets that have it."""
    counts = Counter(candidates)
    return [(score_table(k, way), counts[k]) for k in sorted(counts)]


def _support(parts: Sequence[tuple[np.ndarray, int]]) -> tuple[int, int]:
    """Return the smallest and the largest sum of the scores."""
    lowest = sum(n * int(table.min()) for table, n in parts)
    highest = sum(n * int(table.max()) for table, n in parts)
    return lowest, highest


def _tilt(t: int, parts: list[tuple[np.ndarray, int]]) -> float:
    """Return h in [0, 1] at which the mean of the distribution tilted by exp(h T) is ``t``; an
    end where none is inside.
    """

    def beyond(tilt: float) -> float:
        mean = 0.0
        for table, n in parts:
            weights = np.exp(tilt * (table - table.max()))
            mean += n * float(weights @ table) / float(weights.sum())
        return mean - t

    if beyond(0.0) >= 0:
        return 0.0
    if beyond(1.0) <= 0:
        return 1.0
    from scipy.optimize import brentq  # as in `spot_check`

    return float(brentq(beyond, 0.0, 1.0, xtol=1e-12))


def _transform_size(length: int) -> int:
    """Return a power of two above the largest sum less the smallest, so that no mass wraps
    round.
    """
    return 1 << max(1, length.bit_length())


def _masses(table: np.ndarray, probabilities: np.ndarray, size: int) -> np.ndarray:
    """Return (size,) the probability of each score above the table's smallest; ranks with one
    score share its place.
    """
    masses = np.zeros(size)
    np.add.at(masses, table - table.min(), probabilities)
    return masses


def log_capitals(ranks: Sequence[int], candidates: Sequence[int]) -> np.ndarray:
    """Return (3, 5) the log capital of each way and bet: the sum over secrets of ln(1 + bet (score
    / mean score - 1)).

    Each factor has mean 1 under the null, so each capital is a martingale over secrets with
    separate draws.
    """
    capitals = np.zeros((len(WAYS), len(BETS)))
    for row, way in enumerate(WAYS):
        for rank, k in zip(ranks, candidates, strict=True):
            table = score_table(k, way)
            gain = table[rank - 1] / table.mean() - 1
            capitals[row] += np.log1p(np.multiply(BETS, gain))
    return capitals


def log_e_value(capitals: np.ndarray) -> float:
    """Return ln of the e-value: the mean of the fifteen capitals. It reaches 1/e with
    probability at most e (Ville 1939).
    """
    return float(np.logaddexp.reduce(np.ravel(capitals)) - math.log(np.size(capitals)))


def secret_p_values(ranks: ArrayLike, candidates: ArrayLike) -> np.ndarray:
    """Return (m,) the two-sided p-value of each secret alone: min(1, 2 min(rank, k + 1 - rank)
    / k).
    """
    rank, k = np.asarray(ranks), np.asarray(candidates)
    from_the_nearer_end = np.minimum(rank, k + 1 - rank)
    return np.minimum(1.0, 2 * from_the_nearer_end / k)


def holm_adjusted(p_values: ArrayLike) -> np.ndarray:
    """Return (m,) p-values adjusted by Holm's step-down: those at most alpha are refuted at a
    family error of alpha.
    """
    p = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(p, kind="stable")
    multiples = p[order] * np.arange(len(p), 0, -1)
    adjusted = np.empty(len(p))
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(multiples))
    return adjusted


def epsilon_lower(ranks: Sequence[int], candidates: Sequence[int], alpha: float) -> float:
    """Return a lower bound of the epsilon of replacing one secret's draw; 0 at or below chance.

    If replacing one draw changes the distribution of the model by at most a factor of e^epsilon, a
    guess among k is right with probability at most e^epsilon / (e^epsilon + k - 1), given all other
    draws. So the right guesses are stochastically below a binomial count under any dependence. Two
    guesses are read, *the first* and *the last*, each at ``alpha`` / 2. With several k, the
    smallest is taken, at which a share of right guesses says least. It bounds pure epsilon alone.
    """
    check_alpha(alpha)
    ranks, candidates = check_ranks(ranks, candidates)
    m, k = len(ranks), min(candidates)
    first = sum(rank == 1 for rank in ranks)
    last = sum(rank == of for rank, of in zip(ranks, candidates, strict=True))
    share = float(binary_lower(max(first, last), m, alpha / 2))
    if share <= 1 / k:
        return 0.0
    return math.log(share * (k - 1) / (1 - share))


def law(candidates: Sequence[int], way: Way = "preferred") -> tuple[int, np.ndarray]:
    """Return the smallest sum and P(T = smallest + j) for j = 0, 1, ..., to about 1e-15 absolute.

    It serves thresholds of alpha from 1e-9; `log_tail` serves p-values of any size.
    """
    parts = _parts(candidates, way)
    lowest, highest = _support(parts)
    size = _transform_size(highest - lowest)
    spectrum = np.ones(size // 2 + 1, dtype=complex)
    for table, n in parts:
        uniform = np.full(len(table), 1 / len(table))
        spectrum *= np.fft.rfft(_masses(table, uniform, size)) ** n
    return lowest, np.fft.irfft(spectrum, size)[: highest - lowest + 1]


def threshold(candidates: Sequence[int], alpha: float, way: Way = "preferred") -> int:
    """Return the smallest t with P(T >= t) <= ``alpha``; the largest sum and 1 more where no t
    is.
    """
    lowest, masses = law(candidates, way)
    tails = np.cumsum(masses[::-1])[::-1]
    return lowest + int((tails > alpha).sum())


def rank_band(m: int, k: int, alpha: float) -> tuple[np.ndarray, np.ndarray]:
    """Return (k,) the fewest and the most of ``m`` secrets that rank among the first r = 1, ..., k.

    With probability 1 - ``alpha`` a model that is independent of the draws stays between both at
    all r at once: each count is binomial, and misses each side with at most ``alpha`` / (2 k).
    """
    from scipy.stats import binom  # the import takes 0.5 s

    check_alpha(alpha)
    shares = np.arange(1, k + 1) / k
    level = alpha / (2 * k)
    return binom.ppf(level, m, shares).astype(int), binom.isf(level, m, shares).astype(int)


def smallest_known(
    candidates: Sequence[int], alpha: float, power: float = 0.95, unread: Sequence[int] = ()
) -> int | None:
    """Return how few secrets a model must know for certain to be found with probability ``power``.

    The known secrets, those with the fewest of the (m,) ``candidates`` first, rank first and the
    other ones uniformly; the test is the way *preferred* at ``alpha`` / 3. Each further known
    secret raises the statistic. None where a model that knows all secrets would not be found.

    ``unread`` are the candidates of further secrets under test, each of which may be known and rank
    last, since a score is missing: all of them are counted as known, and none helps to find.
    """
    check_alpha(alpha)
    check_share("power", power)
    candidates = sorted(candidates)
    t = threshold([*candidates, *unread], alpha / 3)
    t -= sum(int(score_table(k)[-1]) for k in unread)
    m = len(candidates)

    def is_found(known: int) -> bool:
        left = t
        for k in candidates[:known]:
            left -= int(score_table(k)[0])
        if known == m:
            return left <= 0
        return math.exp(log_tail(left, candidates[known:])) >= power

    if not is_found(m):
        return None
    return fewest_between(is_found, -1, m) + len(unread)


def smallest_lift(
    scores: np.ndarray,
    alpha: float,
    rng: np.random.Generator,
    *,
    up: bool = True,
    power: float = 0.95,
    draws: int = DRAWS,
) -> float:
    """Return by how many nats every true candidate must be lifted to be found with probability
    ``power``.

    Parameters
    ----------
    scores
        (m, k) scores of the candidates in nats, of a model under test. A random candidate of each
        secret is taken for the true one and lifted: under the null, this is how a lift would have
        ranked.
    alpha
        Level of the word; one way takes a third of it.
    up
        False lowers the true candidates instead, and tests the way *avoided*.

    Returns
    -------
    float
        To 0.005 nats, from above; infinity above 64 nats. The same draws serve each lift, so the
        power rises with it.
    """
    check_alpha(alpha)
    check_share("power", power)
    m, k = scores.shape
    way: Way = "preferred" if up else "avoided"
    t = threshold([k] * m, alpha / 3, way)
    table = score_table(k, way)
    rows = np.arange(m)
    true = rng.integers(0, k, (draws, m))

    def is_found(nats: float) -> bool:
        totals = table[_ranks_if_moved(scores, nats if up else -nats) - 1][rows, true].sum(axis=1)
        return bool((totals >= t).mean() >= power)

    if not is_found(MOST_NATS):
        return math.inf
    _, enough = halved(is_found, 0.0, MOST_NATS, width=NATS)
    return enough


def _ranks_if_moved(scores: np.ndarray, nats: float) -> np.ndarray:
    """Return (m, k) the rank of each candidate if it alone were moved by ``nats``; no ties."""
    moved = scores + nats
    above = (scores[:, None, :] > moved[:, :, None]).sum(axis=2)
    if nats < 0:
        above -= 1  # a lowered candidate stands below its own old place
    return 1 + above


# ------------------------------------------------------------------------------ the sealed draw


def drawn_place(key: bytes, secret: str, k: int) -> int:
    """Return the place of the true one among ``k`` sorted candidates, uniform from 0 to k - 1,
    drawn by the sealed ``key``.

    A number of 64 bits that would make small places more likely is drawn again.
    """
    fair = 2**64 - 2**64 % k
    attempt = 0
    while True:
        digest = hmac.new(key, f"place\n{attempt}\n{secret}".encode(), hashlib.sha256).digest()
        number = int.from_bytes(digest[:8], "big")
        if number < fair:
            return number % k
        attempt += 1


def tie_digest(key: bytes, secret: str, candidate: str) -> str:
    """Return the hexadecimal digest by which candidates with one score are ordered, the
    smallest first.
    """
    message = f"tie\n{secret}\n{candidate}".encode()
    return hmac.new(key, message, hashlib.sha256).hexdigest()


def candidates_digest(rows: Sequence[tuple[str, Sequence[str]]]) -> str:
    """Return the SHA-256, in hexadecimal, of JSON lines [secret, [candidates]] without blanks,
    in UTF-8.
    """
    state = hashlib.sha256()
    for secret, candidates in rows:
        line = json.dumps([secret, list(candidates)], ensure_ascii=False, separators=(",", ":"))
        state.update(f"{line}\n".encode())
    return state.hexdigest()


def commitment(key: bytes, rows: Sequence[tuple[str, Sequence[str]]]) -> str:
    """Return what is published before training: it fixes the key and the candidates, and tells
    neither.
    """
    text = f"lethe twins 1\n{candidates_digest(rows)}\n{key.hex()}"
    return hashlib.sha256(text.encode()).hexdigest()
