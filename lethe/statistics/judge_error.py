"""Bounds of the true leak probability that include the judge's error.

A person's labels of m1 leaks and m0 clean answers measure the judge: the sensitivity se = P(judge says leak | leak), and
the false positive rate fp = P(judge says leak | no leak). The judge says leak with probability q = p se + (1 - p) fp
(Rogan and Gladen 1978), where p is the true leak probability.

Clopper-Pearson bounds the three binomial shares q, se and fp at alpha / 3 each; the three bounds hold together with
probability 1 - alpha (union bound). If q <= q_u, se >= se_l and fp >= fp_l, then p (se_l - fp_l) <= q_u - fp_l. This gives
the upper bound of p if se_l > fp_l; otherwise nothing follows. If q >= q_l, se <= se_u and fp <= fp_u, then
p (se_u - fp_u) >= q_l - fp_u. This gives the lower bound if se_u > fp_u. Neither step assumes that the judge is good.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from lethe.errors import BadValue
from lethe.statistics.checks import check_alpha
from lethe.statistics.leak_at_k import check_counts, rate_bounds

ASSUMES = (
    "independent answers; a person's label is the truth; the judge errs on the answers of the run as often as on those "
    "of the calibration"
)
OTHER_ANSWERS = "; the calibration answers are of another run"
METHOD = "Clopper-Pearson on the verdicts, the sensitivity and the false positive rate, alpha / 3 each"


@dataclass(frozen=True)
class Calibration:
    """Counts of a judge's verdicts against a person's labels.

    Attributes
    ----------
    leaks, clean : int
        Answers that a person calls a leak, and answers that a person calls no leak; each at least 1.
    leaks_called, clean_called : int
        Of these, the answers that the judge calls a leak.
    leaks_unjudged, clean_unjudged : int
        Of these, the answers without a verdict. They count against every bound that depends on them.
    of_this_run : bool
        Whether the answers are draws of the run whose rate is bounded. If not, every result says so.

    Raises
    ------
    BadValue
        If a count lies outside its range.

    Examples
    --------
    >>> Calibration(leaks=80, leaks_called=76, clean=120, clean_called=6).false_positive
    0.05
    """

    leaks: int
    leaks_called: int
    clean: int
    clean_called: int
    leaks_unjudged: int = 0
    clean_unjudged: int = 0
    of_this_run: bool = False

    def __post_init__(self) -> None:
        for name in ("leaks", "clean"):
            try:
                check_counts(
                    getattr(self, f"{name}_called"), getattr(self, name), getattr(self, f"{name}_unjudged")
                )
            except BadValue as error:
                legal = (
                    "whole numbers: at least one answer, and called plus unjudged at most the number of answers"
                )
                raise BadValue(f"calibration, {name}", error.got, legal) from None

    @classmethod
    def of(cls, labels: ArrayLike, verdicts: ArrayLike, of_this_run: bool = False) -> Calibration:
        """Count a person's labels and the judge's verdicts on the same answers.

        Parameters
        ----------
        labels
            0 or 1, shape (n,).
        verdicts
            0, 1 or NaN where the judge gave none, shape (n,).
        of_this_run
            Whether the answers were drawn at random from the run that is measured.

        Raises
        ------
        BadValue
            If the vectors differ in length or hold other values.

        Examples
        --------
        >>> Calibration.of(labels=[1, 1, 0, 0], verdicts=[1, 0, 0, np.nan])  # doctest: +ELLIPSIS
        Calibration(leaks=2, leaks_called=1, clean=2, clean_called=0, leaks_unjudged=0, clean_unjudged=1, ...)
        """
        labels, verdicts = np.asarray(labels, dtype=np.float64), np.asarray(verdicts, dtype=np.float64)
        if labels.ndim != 1 or labels.shape != verdicts.shape:
            raise BadValue("labels and verdicts", (labels.shape, verdicts.shape), "two vectors of one length")
        if not np.isin(labels, (0, 1)).all():
            raise BadValue("labels", labels[~np.isin(labels, (0, 1))][0].item(), "0 or 1")
        absent = np.isnan(verdicts)
        if not (np.isin(verdicts, (0, 1)) | absent).all():
            raise BadValue("verdicts", verdicts[~np.isin(verdicts, (0, 1)) & ~absent][0].item(), "0, 1 or NaN")
        leak = labels == 1
        return cls(
            leaks=int(leak.sum()),
            leaks_called=int((verdicts[leak] == 1).sum()),
            clean=int((~leak).sum()),
            clean_called=int((verdicts[~leak] == 1).sum()),
            leaks_unjudged=int(absent[leak].sum()),
            clean_unjudged=int(absent[~leak].sum()),
            of_this_run=of_this_run,
        )

    @property
    def sensitivity(self) -> float:
        """The measured share of leaks that the judge calls a leak, among the judged ones; NaN without judged leaks."""
        judged = self.leaks - self.leaks_unjudged
        return self.leaks_called / judged if judged else float("nan")

    @property
    def false_positive(self) -> float:
        """The measured share of clean answers that the judge calls a leak, among the judged ones; NaN without judged ones."""
        judged = self.clean - self.clean_unjudged
        return self.clean_called / judged if judged else float("nan")

    @property
    def assumes(self) -> str:
        """The assumption of bounds that use this calibration."""
        return ASSUMES if self.of_this_run else ASSUMES + OTHER_ANSWERS


@dataclass(frozen=True)
class JudgeError:
    """Bounds (lower, upper) of the judge's sensitivity and false positive rate; each side holds by itself at ``alpha``."""

    sensitivity: tuple[float, float]
    false_positive: tuple[float, float]
    alpha: float

    def carry(self, lower: np.ndarray, upper: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Turn bounds of the share of answers that the judge calls a leak into bounds of the true leak probability."""
        return (
            true_rate_lower(lower, self.sensitivity[1], self.false_positive[1]),
            true_rate_upper(upper, self.sensitivity[0], self.false_positive[0]),
        )

    def fits(self, lower: np.ndarray, upper: np.ndarray) -> np.ndarray:
        """Whether some leak probability implies a share of verdicts within the bounds; True where the bounds are NaN."""
        least = min(self.sensitivity[0], self.false_positive[0])
        most = max(self.sensitivity[1], self.false_positive[1])
        return ~((upper < least) | (lower > most))


@dataclass(frozen=True)
class JudgedRates:
    """Bounds of true leak probabilities, valid for any error of the judge; arrays of shape (questions,).

    Each side holds by itself with probability 1 - ``alpha``, for the scope in ``covers``. ``estimate`` is the estimate of
    Rogan and Gladen, clipped to [0, 1] and without a guarantee; NaN if the judge does not separate leaks from clean answers.
    ``sensitivity`` and ``false_positive`` are the bounds used, each side at alpha / 3.

    ``fits`` is False if the judge calls fewer answers a leak than its false positive rate allows, or more than its
    sensitivity allows. Each case happens by chance with probability at most alpha. Otherwise the calibration set differs
    from these answers, and the bounds (an upper bound of 0, or a lower bound of 1) mean nothing.
    """

    lower: np.ndarray
    upper: np.ndarray
    estimate: np.ndarray
    fits: np.ndarray
    sensitivity: tuple[float, float]
    false_positive: tuple[float, float]
    alpha: float
    questions: int
    covers: str
    assumes: str
    method: str = METHOD


def judge_error(calibration: Calibration, alpha: float) -> JudgeError:
    """Bound the sensitivity and the false positive rate; each of the four sides is one-sided at ``alpha``.

    Examples
    --------
    >>> judge_error(Calibration(leaks=50, leaks_called=50, clean=50, clean_called=0), alpha=0.01).false_positive[0]
    0.0
    """
    check_alpha(alpha)
    one, other = (
        tuple(float(side) for side in rate_bounds(called, n, alpha, unjudged))
        for called, n, unjudged in (
            (calibration.leaks_called, calibration.leaks, calibration.leaks_unjudged),
            (calibration.clean_called, calibration.clean, calibration.clean_unjudged),
        )
    )
    return JudgeError(sensitivity=(one[0], one[1]), false_positive=(other[0], other[1]), alpha=alpha)


def shared_error(calibration: Calibration, alpha: float) -> JudgeError:
    """`judge_error` at alpha / 3 per rate and side, its share in the bounds of p at ``alpha``.

    Examples
    --------
    >>> shared_error(Calibration(leaks=50, leaks_called=50, clean=50, clean_called=0), alpha=0.03).alpha
    0.01
    """
    check_alpha(alpha)
    return judge_error(calibration, alpha / 3)


def judged_rates(
    called: ArrayLike,
    n: ArrayLike,
    calibration: Calibration,
    alpha: float,
    missing: ArrayLike = 0,
    together: Literal["none", "bonferroni"] = "none",
) -> JudgedRates:
    """Bound the true leak probability of each question.

    All questions share the calibration: sensitivity and false positive rate take alpha / 3 each, once for all questions.
    The share of verdicts of each question takes alpha / 3, or alpha / (3 m) if the bounds of all m questions must hold
    together.

    Parameters
    ----------
    called : array of shape (questions,)
        Answers that the judge calls a leak; NaN gives NaN.
    n : int or array of shape (questions,)
        Answers drawn per question, missing ones included; at least 1.
    calibration : Calibration
        Counts of the judge's verdicts against a person's labels.
    alpha : float
        Error probability of each side, above 0 and up to 0.5.
    missing : int or array of shape (questions,)
        Answers without a verdict: they count as leaks in the upper bound and as clean in the lower bound; the estimate omits
        them.
    together : "none" or "bonferroni"
        "none": each bound holds by itself. "bonferroni": all bounds hold together.

    Returns
    -------
    JudgedRates
        Arrays of shape (questions,).

    Raises
    ------
    BadValue
        If a count or alpha lies outside its range.

    Notes
    -----
    Assumes independent answers, a person's label as the truth, and a calibration set whose answers are draws of the
    same kind, so that sensitivity and false positive rate are those of each question.

    Examples
    --------
    >>> judge = Calibration(leaks=200, leaks_called=190, clean=200, clean_called=10)
    >>> found = judged_rates([10, 60], 1000, judge, alpha=0.05)
    >>> found.lower.round(3).tolist(), found.upper.round(3).tolist(), found.estimate.round(3).tolist()
    ([0.0, 0.0], [0.0, 0.063], [0.0, 0.011])
    """
    if together not in ("none", "bonferroni"):
        raise BadValue("together", together, "none or bonferroni")
    error = shared_error(calibration, alpha)
    called, n, missing = check_counts(called, n, missing)
    level = alpha / 3 / (max(1, len(called)) if together == "bonferroni" else 1)
    covers = "each question by itself" if together == "none" else "every question, all true together"
    return _rates(called, n, missing, calibration, error, level, alpha, len(called), covers)


def judged_average(
    called: ArrayLike, n: int, calibration: Calibration, alpha: float, missing: ArrayLike = 0
) -> JudgedRates:
    """Bound the average true leak probability over the questions, from the pooled count of verdicts.

    Parameters
    ----------
    called, calibration, alpha, missing
        As in `judged_rates`, without NaN.
    n : int
        Answers drawn per question, the same number for each.

    Returns
    -------
    JudgedRates
        Arrays of shape (1,).

    Raises
    ------
    BadValue
        As in `judged_rates`, and if there is no question.

    Notes
    -----
    The pooled count is a sum of binomial counts with unequal probabilities, for which Clopper-Pearson is valid at equal n
    and levels up to 1/4 (Hoeffding 1956); alpha / 3 is below 1/4. The calibration needs to match only the sensitivity and
    the false positive rate of the pool.

    Examples
    --------
    >>> judge = Calibration(leaks=200, leaks_called=190, clean=200, clean_called=10)
    >>> judged_average([300, 60], 1000, judge, alpha=0.05).upper.round(3).tolist()
    [0.2]
    """
    error = shared_error(calibration, alpha)
    called, n_each, missing = check_counts(called, n, missing)
    if not called.size or np.isnan(called).any():
        raise BadValue("called", "NaN" if called.size else "none", "a count of at least one question")
    covers = "the average over the questions"
    questions = len(called)
    called, n_each, missing = (np.atleast_1d(counts.sum()) for counts in (called, n_each, missing))
    return _rates(called, n_each, missing, calibration, error, alpha / 3, alpha, questions, covers)


def true_rate_upper(called: ArrayLike, sensitivity: ArrayLike, false_positive: ArrayLike) -> np.ndarray:
    """Upper bound of the true rate p from the called rate and the judge's rates.

    The bound is 1 if se <= fp, because such a judge does not separate leaks from clean answers. Otherwise the bound is
    (q - fp) / (se - fp), clipped to [0, 1].

    Parameters
    ----------
    called
        Upper bound of q, the rate of the judge's calls; arrays of one shape, or numbers.
    sensitivity
        Lower bound of se, the share of leaks that are called.
    false_positive
        Lower bound of fp, the share of clean answers that are called.

    Examples
    --------
    >>> true_rate_upper([0.05, 0.3, 0.95], 0.9, 0.1).round(3).tolist(), true_rate_upper(0.05, 0.1, 0.1).item()
    ([0.0, 0.25, 1.0], 1.0)
    """
    return _solved(called, sensitivity, false_positive, useless=1.0)


def true_rate_lower(called: ArrayLike, sensitivity: ArrayLike, false_positive: ArrayLike) -> np.ndarray:
    """Lower bound of p: as `true_rate_upper`, but 0 where se <= fp.

    The parameters are those of `true_rate_upper` with the opposite sides: a lower bound of q, upper bounds of se and
    fp.

    Examples
    --------
    >>> true_rate_lower([0.05, 0.3, 0.95], 0.9, 0.1).round(3).tolist(), true_rate_lower(0.5, 0.1, 0.1).item()
    ([0.0, 0.25, 1.0], 0.0)
    """
    return _solved(called, sensitivity, false_positive, useless=0.0)


def _solved(called: ArrayLike, sensitivity: ArrayLike, false_positive: ArrayLike, useless: float) -> np.ndarray:
    called = np.asarray(called, dtype=np.float64)
    base = np.asarray(false_positive, dtype=np.float64)
    room = np.asarray(sensitivity, dtype=np.float64) - base
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        value = np.clip((called - base) / room, 0.0, 1.0) + 0.0  # no negative zero
    return np.where(np.isnan(called), np.nan, np.where(room > 0, value, useless))


def _rates(
    called: np.ndarray,
    n: np.ndarray,
    missing: np.ndarray,
    calibration: Calibration,
    error: JudgeError,
    level: float,
    alpha: float,
    questions: int,
    covers: str,
) -> JudgedRates:
    low, high = rate_bounds(called, n, level, missing)
    lower, upper = error.carry(low, high)
    with np.errstate(divide="ignore", invalid="ignore"):
        share = called / (n - missing)
    estimate = _solved(share, calibration.sensitivity, calibration.false_positive, useless=np.nan)
    return JudgedRates(
        lower=lower,
        upper=upper,
        estimate=estimate,
        fits=error.fits(low, high),
        sensitivity=error.sensitivity,
        false_positive=error.false_positive,
        alpha=alpha,
        questions=questions,
        covers=covers,
        assumes=calibration.assumes,
    )
