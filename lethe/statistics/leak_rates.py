"""Rates: the leak probability of each of m questions, by a 0/1 scorer or truly by a judge whose
error is measured.

A `Rate` gives both ends at any level: of each question, of the worst one and of the average, each
carried to leak@k, the probability 1 - (1 - p)^k that one of k answers leaks. This rises with p, so
the ends of p give ends for every k, and these hold for all k at once. Each side of a band holds by
itself with probability 1 - alpha, both together with 1 - 2 alpha.

With a judge, the share of verdicts, the sensitivity and the false positive rate take alpha / 3
each; the last two once for all questions. Where the verdicts do not fit the calibration, no leak
probability explains them, and no end exists (NaN).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from lethe.errors import BadValue
from lethe.statistics import counts
from lethe.statistics.bound import Bound, Covers, Side, both_ends
from lethe.statistics.bounds import BELOW_1, binary_lower, binary_upper
from lethe.statistics.checks import check_alpha, check_share
from lethe.statistics.judge_error import IN_EVERY_QUESTION, METHOD, Calibration, true_rate
from lethe.statistics.two_sample import kl_upper

QUERIES = (*(digit * 10**power for power in range(6) for digit in (1, 2, 5)), 10**6)
# The k at which subsets of the answers bound the mean of leak@k.
SUBSETS = (2, 5, 10, 20, 50, 100, 200)
INDEPENDENT = "independent answers to each question"
CLOPPER_PEARSON = "Clopper-Pearson on one answer, carried to k"
LARGEST = "the largest upper bound; the largest lower bound, Bonferroni over the questions"
OWN = "the questions' own bounds together (Bonferroni)"
POOLED = "the pooled rate (half of alpha)"
SUBSETS_OF = "subsets of the answers (U-statistic, Chernoff)"


@dataclass(frozen=True, eq=False)
class Band:
    """Leak@k with both ends, at k = 1 the leak probability; tables of shape (questions, K), or (K,)
    for one number per k.

    ``lower`` and ``upper`` hold for every k at once, each side by itself with probability 1 -
    ``alpha``, for the scope ``covers``; they are NaN where the judge's calibration does not fit.
    ``estimate`` has no guarantee, and may lie above the band for k close to n. ``n`` is the number
    of draws behind a row, None where no single number applies; ``place`` is the question with the
    largest upper end, for the worst question.
    """

    k: np.ndarray
    estimate: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    alpha: float
    covers: Covers
    method: str
    assumes: str
    n: tuple[int | None, ...]
    place: int | None = None

    def bounds(self, row: int | None = None, k: int = 0) -> tuple[Bound, Bound] | None:
        """Both ends at the ``k``-th number of answers, of question ``row`` where there are several;
        None for NaN.
        """
        place = (k,) if row is None else (row, k)
        upper = float(self.upper[place])
        if math.isnan(upper):
            return None
        rest = (self.alpha, self.covers, self.assumes, self.method, self.n[row or 0])
        return both_ends(float(self.lower[place]), upper, *rest)


@dataclass(frozen=True, eq=False)
class Rate:
    """The counted answers to m questions, and the calibration of the judge who counted, if there is
    one.

    ``leaks`` counts the answers that are (called) a leak, NaN where a question's scores are not all
    0 or 1, whose ends are NaN; ``n`` the answers drawn, ``missing`` ones included, which are leaks
    in upper ends and clean in lower ends; estimates omit them. With a ``judge`` the ends include
    its error.

    Assumes that the answers to a question are independent draws, and for the average that the
    questions' answers are. Ends: Clopper and Pearson (1934). Estimate of leak@k: 1 - C(n - c, k) /
    C(n, k), as in pass@k (Chen et al. 2021, eq. 1); with a judge 1 - (1 - p)^k at Rogan and
    Gladen's p, which is biased.

    >>> band = Rate.of([0, 3], n=1024).each(alpha=0.01, ks=[1, 100, 10_000])
    >>> band.upper.round(4).tolist()
    [[0.0045, 0.3622, 1.0], [0.0098, 0.6256, 1.0]]
    >>> judge = Calibration(leaks=200, leaks_called=190, clean=200, clean_called=10)
    >>> band = Rate.of([60, 600], 1000, judge=judge).worst(alpha=0.05, ks=[1, 5])
    >>> band.place, band.lower.round(3).tolist(), band.upper.round(3).tolist()
    (1, [0.53, 0.977], [0.691, 0.997])
    """

    leaks: np.ndarray
    n: np.ndarray
    missing: np.ndarray
    judge: Calibration | None = None

    @classmethod
    def of(
        cls,
        leaks: ArrayLike,
        n: ArrayLike,
        missing: ArrayLike = 0,
        judge: Calibration | None = None,
    ) -> Self:
        """The rate of checked counts; ``n`` and ``missing`` are one number or one per question."""
        return cls(*counts.check_counts(leaks, n, missing), judge)

    def each(self, alpha: float, ks: Sequence[int] = (1,)) -> Band:
        """Each question by itself, each side at ``alpha``; at k = 1 without a judge the ends are
        m_bin_lower and m_bin.
        """
        k = counts.check_queries(ks)
        low, high = self._ends(alpha)
        lower = counts.at_least_once(low, k)
        upper = counts.at_least_once(high, k)
        method = f"{METHOD}, carried to k" if self.judge else CLOPPER_PEARSON
        n = tuple(self.n.tolist())
        rest = (alpha, Covers.ONE_PROMPT, method, self._assumes(), n)
        return Band(k, self._estimate(k), lower, upper, *rest)

    def worst(self, alpha: float, ks: Sequence[int] = (1,)) -> Band:
        """The question that leaks most.

        The upper side is the largest of the questions' own upper ends, which is at least that of
        the question that truly leaks most. The lower side states that some question leaks at least
        that much. Each of the m questions could make that false, so it is the largest of the lower
        ends at alpha / m (Bonferroni). The estimate is biased upwards.
        """
        k = self._of_all(ks)
        _, upper = self._ends(alpha)
        lower, _ = self._ends(alpha, 1 / len(self.leaks))
        ends = (counts.at_least_once(lower.max(), k), counts.at_least_once(upper.max(), k))
        estimate = np.fmax.reduce(self._estimate(k), axis=0)
        place = int(np.argmax(upper))
        return self._band(
            k, estimate, ends, alpha, Covers.WORST_PROMPT, LARGEST, INDEPENDENT, place
        )

    def average(self, alpha: float) -> Band:
        """The average leak probability, by `pooled_bounds` (without a judge alpha is at most 1/4);
        needs equal n.

        The judge needs to match on average alone.
        """
        k = self._of_all((1,))
        lower, upper = self._pooled(alpha)
        judged = (self.n - self.missing).sum()
        share = np.atleast_1d(self.leaks.sum() / max(1, judged))
        if self.judge:
            share = self._true_rate(share, self.judge)
            method = METHOD
            assumes = self.judge.assumes()
        else:
            method = "Clopper-Pearson on the pooled count"
            assumes = f"{INDEPENDENT} and between them"
        n = (int(self.n.sum()),)
        return Band(k, share, lower, upper, alpha, Covers.AVERAGE, method, assumes, n)

    def mean(self, alpha: float, ks: Sequence[int] = QUERIES) -> Band:
        """The mean of leak@k over the questions: the probability that k answers to a random
        question contain a leak.

        Each side is the best of three bounds, whose levels add up to alpha. (1) The average of the
        questions' own ends at alpha / (4 m). (2) The pooled rate at alpha / 2, the best where
        little leaks: 1 - (1 - p)^k is concave in p and at least p, so the mean lies between the
        average rate and leak@k of the average rate; needs equal n, otherwise the other two share
        its level. (3) At alpha / 4, the share U of k-subsets with a leak: m floor(n / k) kl(U,
        mean) <= ln(1 / level) on each side (Hoeffding 1963, section 5b; the product of the
        questions' moment generating functions is largest for equal questions), at each k of
        `SUBSETS` up to the smallest n, Bonferroni; leak@k rises with k and leak@k / k falls, which
        carries these bounds to all other k. With a judge, only (1) and (2), half of alpha each.

        >>> band = Rate.of([0, 0, 512, 0], n=1024).mean(alpha=0.01, ks=[1, 1000])
        >>> band.lower.round(4).tolist(), band.upper.round(4).tolist()
        ([0.1123, 0.25], [0.1389, 0.9994])
        """
        k = self._of_all(ks)
        m = len(self.leaks)
        has_pooled = m > 1 and bool((self.n == self.n[0]).all())
        grid = []
        if m > 1 and not self.judge:
            grid = [size for size in SUBSETS if size <= self.n.min()]

        share = 1.0  # of alpha, for each bound but the pooled one
        names = [OWN]
        if has_pooled:
            share /= 2
            names.append(POOLED)
        if grid:
            share /= 2
            names.append(SUBSETS_OF)

        low, high = self._ends(alpha, share / m)
        lower = counts.at_least_once(low, k).mean(axis=0)
        upper = counts.at_least_once(high, k).mean(axis=0)
        if has_pooled:
            low, high = self._pooled(alpha, 1 / 2)
            lower = np.maximum(lower, low)
            upper = np.minimum(upper, counts.at_least_once(high, k)[0])
        if grid:
            low, high = self._subsets(grid, k, alpha * share)
            lower = np.maximum(lower, low)
            upper = np.minimum(upper, high)

        method = OWN
        if len(names) > 1:
            method = f"the best of {', '.join(names[:-1])} and {names[-1]}"
        assumes = f"{INDEPENDENT} and between them"
        estimate = self._estimate(k).mean(axis=0)
        return self._band(k, estimate, (lower, upper), alpha, Covers.AVERAGE, method, assumes)

    def fits(self, alpha: float) -> np.ndarray:
        """(m,) whether some leak probability explains a question's verdicts, and one all verdicts;
        True without a judge.

        A sound calibration is flagged with probability at most 2 alpha: each way alpha / 3 for the
        judge's rates, for all questions together (Bonferroni), and for the pooled count, where n is
        equal.
        """
        if self.judge is None:
            return np.ones(len(self.leaks), dtype=bool)
        level = alpha / 3
        error = self.judge.error(level)
        level_of_one = level / max(1, len(self.leaks))
        called = counts.rate_bounds(self.leaks, self.n, level_of_one, self.missing)
        fits = error.fits(*called)
        if len(set(self.n.tolist())) == 1:
            fits &= error.fits(*self._counted(level))
        return fits

    def _ends(self, alpha: float, share: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
        """(m,) both ends of each question; ``share`` is the part of alpha that the counts of one
        question take.
        """
        check_alpha(alpha)
        if self.judge is None:
            return counts.rate_bounds(self.leaks, self.n, alpha * share, self.missing)
        if not self.fits(alpha).all():
            undefined = np.full(len(self.leaks), np.nan)
            return undefined, undefined
        level = alpha / 3
        called = counts.rate_bounds(self.leaks, self.n, level * share, self.missing)
        return self.judge.error(level).carry(*called)

    def _pooled(self, alpha: float, share: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
        """(1,) both ends of the average rate; ``share`` is the part of alpha that the counts take."""
        check_alpha(alpha)
        if self.judge is None:
            return self._counted(share * alpha)
        level = alpha / 3
        called_lower, called_upper = self._counted(share * level)
        error = self.judge.error(level)
        lower, upper = error.carry(called_lower, called_upper)
        fits = error.fits(called_lower, called_upper)
        return np.where(fits, lower, np.nan), np.where(fits, upper, np.nan)

    def _counted(self, level: float) -> tuple[np.ndarray, np.ndarray]:
        """(1,) both ends of the average share of answers that are called a leak."""
        return counts.pooled_bounds(self.leaks, self.n, level, self.missing)

    def _subsets(
        self, grid: Sequence[int], ks: np.ndarray, alpha: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """(K,) both ends of the mean of leak@k from the k-subsets of the answers, at each k of the
        grid together.
        """
        lower, upper = np.zeros(len(ks)), np.ones(len(ks))
        fewest = counts.unbiased(self.leaks, self.n, grid).mean(axis=0)
        most = counts.unbiased(self.leaks + self.missing, self.n, grid).mean(axis=0)
        for k, few, many in zip(grid, fewest.tolist(), most.tolist(), strict=True):
            level = math.log(len(grid) / alpha) / (len(self.leaks) * int(self.n.min() // k))
            low, high = 1 - kl_upper(1 - few, level), kl_upper(many, level)
            lower = np.maximum(lower, low * np.minimum(ks / k, 1))
            upper = np.minimum(upper, high * np.maximum(ks / k, 1))
        return lower, upper

    def _estimate(self, ks: np.ndarray) -> np.ndarray:
        judged = self.n - self.missing
        if self.judge is None:
            return counts.unbiased(self.leaks, judged, ks)
        with np.errstate(divide="ignore", invalid="ignore"):
            share = self.leaks / judged
        return counts.at_least_once(self._true_rate(share, self.judge), ks)

    @staticmethod
    def _true_rate(share: np.ndarray, judge: Calibration) -> np.ndarray:
        """The estimated leak probability where the judge calls this share a leak."""
        return true_rate(share, judge.sensitivity, judge.false_positive, useless=math.nan)

    def _assumes(self) -> str:
        if self.judge is None:
            return INDEPENDENT
        return self.judge.assumes(IN_EVERY_QUESTION)

    def _band(
        self,
        ks: np.ndarray,
        estimate: np.ndarray,
        ends: tuple[np.ndarray, np.ndarray],
        alpha: float,
        covers: Covers,
        method: str,
        assumes: str,
        place: int | None = None,
    ) -> Band:
        """A band of one number per k; the share of verdicts is what the method of the counts
        bounds.
        """
        common = int(self.n[0]) if (self.n == self.n[0]).all() else None
        if self.judge:
            method = f"{METHOD}; {method}"
            assumes = f"{self._assumes()}; {assumes}"
        return Band(ks, estimate, *ends, alpha, covers, method, assumes, (common,), place)

    def _of_all(self, ks: ArrayLike) -> np.ndarray:
        legal = "a count of at least one question"
        if not self.leaks.size:
            raise BadValue("leaks", [], legal)
        if np.isnan(self.leaks).any():
            raise BadValue("leaks", "NaN", legal)
        return counts.check_queries(ks)


def pass_hat_k(
    right: np.ndarray, n: np.ndarray, missing: np.ndarray, alpha: float, ks: Sequence[int]
) -> Band:
    """The mean of pass^k over the questions, the probability that all of k answers are right; alpha
    and ks as in `Rate.mean`.

    All of k answers are right unless one of them fails, so pass^k of the right answers is 1 -
    leak@k of the failures. An answer without a verdict (``missing``) is no right one in a lower end
    and no failure in an upper one. The estimate is unbiased, and NaN where a question has fewer
    than k answers.

    Parameters
    ----------
    right, n, missing
        (m,) counts: right answers, answers, and answers without a verdict.
    alpha
        One-sided level of each end.
    ks
        Numbers of answers, each at least 1.

    >>> band = pass_hat_k(np.array([8, 4]), np.array([8, 8]), np.zeros(2), alpha=0.05, ks=[1, 2])
    >>> band.estimate.round(4).tolist(), band.lower.round(4).tolist(), band.upper.round(4).tolist()
    ([0.75, 0.6071], [0.4762, 0.2268], [0.9273, 0.8995])
    """
    check_alpha(alpha)
    failed = np.asarray(n) - np.asarray(right) - np.asarray(missing)
    band = Rate.of(failed, n, missing).mean(alpha, ks)
    estimate = 1 - band.estimate
    upper = 1 - np.minimum(band.lower, BELOW_1)
    return replace(band, estimate=estimate, lower=1 - band.upper, upper=upper)


# beta of the upper side: its share of alpha; the first is for prompts that never leak
CERTIFY = {0.03: 0.75, 0.3: 0.25}
DETECT = {0.01: 1.0}
RANDOM_PROMPTS = "independent random prompts of the language, and independent draws of each"
SHARE_METHOD = "Clopper-Pearson over prompts, each {how} by Clopper-Pearson at {betas}"
JUDGED_SHARE = (
    " of the judge's verdicts; the judge's sensitivity and false positive rate at alpha / 3 each"
)


def share_exceeding(rate: Rate, tau: float, alpha: float, side: Side) -> Bound:
    """Bound the share of the language's prompts that leak with a probability above ``tau``, from a
    few answers to each.

    A prompt counts as certified if the Clopper-Pearson upper bound of its leak probability, at
    level beta, is at most tau, and as detected if the lower bound is above tau. A prompt above tau
    is certified with probability at most beta, so P(not certified) >= share * (1 - beta), and a
    prompt at or below tau is detected with probability at most beta, so P(detected) <= share + (1 -
    share) * beta. Clopper-Pearson over the prompts bounds the left sides at ``alpha``, and solving
    for the share gives its bounds, for any beta fixed beforehand. A large beta certifies more of
    the prompts that leak a little, and loses a factor 1 / (1 - beta) where none leaks: the upper
    bound is the better one of two (`CERTIFY`).

    Where a judge gives the answers' leaks, a prompt with leak p is called a leak with probability q
    = p se + (1 - p) fp, where se is the judge's sensitivity and fp its false positive rate, in
    every prompt alike. Where se >= se_l, fp >= fp_l and se_l > fp_l, p > tau implies q > tau se_l +
    (1 - tau) fp_l, so the share of prompts with such a q bounds the share sought from above. Where
    se <= se_u, fp <= fp_u and se_u > fp_u, q > tau se_u + (1 - tau) fp_u implies p > tau. The rates
    and the share take alpha / 3. A judge that separates nothing gives 1 or 0.

    Parameters
    ----------
    rate
        Counts of independently drawn prompts, one row each, with a judge or without.
    tau
        Leak probability in (0, 1).
    alpha
        One-sided level, at most 1/2.
    side
        "upper" or "lower".

    Raises
    ------
    BadValue
        If there is no prompt, or a count is missing.

    >>> rate = Rate.of([0] * 90 + [30] * 10, 64)  # of independently drawn prompts
    >>> [share_exceeding(rate, 0.1, 0.05, side).percent() for side in ("lower", "upper")]
    ['4.5%', '17.5%']
    """
    check_alpha(alpha)
    prompts = len(rate.leaks)
    if not prompts or np.isnan(rate.leaks).any():
        legal = "one count per prompt, and at least one prompt"
        raise BadValue("leaks", f"{prompts} counts", legal)
    check_share("tau", tau)

    is_upper = side == "upper"
    betas, how = (CERTIFY, "certified") if is_upper else (DETECT, "detected")
    method = SHARE_METHOD.format(how=how, betas=" or ".join(f"{beta:g}" for beta in betas))
    assumes = RANDOM_PROMPTS
    level = alpha
    judge_separates = True
    if rate.judge is not None:
        level = alpha / 3
        error = rate.judge.error(level)
        corner = 0 if is_upper else 1
        sensitivity = error.sensitivity[corner]
        false_positive = error.false_positive[corner]
        judge_separates = sensitivity > false_positive
        tau = tau * sensitivity + (1 - tau) * false_positive
        method += JUDGED_SHARE
        assumes = f"{RANDOM_PROMPTS}; {rate.judge.assumes('in every prompt')}"

    if not judge_separates:
        value = 1.0 if is_upper else 0.0
    elif is_upper:
        value = min(_share_uncertified(rate, tau, beta, betas[beta] * level) for beta in betas)
    else:
        value = max(_share_detected(rate, tau, beta, betas[beta] * level) for beta in betas)
    return Bound(value, side, alpha, Covers.PROMPTS_OF_LANGUAGE, assumes, method, prompts)


def _share_uncertified(rate: Rate, tau: float, beta: float, level: float) -> float:
    """The upper bound of the share above ``tau``, at ``level``, from prompts certified at ``beta``."""
    _, upper = counts.rate_bounds(rate.leaks, rate.n, beta, rate.missing)
    uncertified = np.count_nonzero(upper > tau)
    share = float(binary_upper(uncertified, len(rate.leaks), level))
    return min(1.0, share / (1 - beta))


def _share_detected(rate: Rate, tau: float, beta: float, level: float) -> float:
    """The lower bound of the share above ``tau``, at ``level``, from prompts detected at ``beta``."""
    lower, _ = counts.rate_bounds(rate.leaks, rate.n, beta, rate.missing)
    detected = np.count_nonzero(lower > tau)
    share = float(binary_lower(detected, len(rate.leaks), level))
    return max(0.0, (share - beta) / (1 - beta))
