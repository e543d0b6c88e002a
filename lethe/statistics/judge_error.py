"""Bounds of the true leak probability that include the judge's error.

A person's labels of m1 leaks and m0 clean answers measure the judge: the sensitivity se = P(judge
says leak | leak), and the false positive rate fp = P(judge says leak | no leak). The judge says
leak with probability q = p se + (1 - p) fp (Rogan and Gladen 1978), where p is the true leak
probability.

Clopper-Pearson bounds the three binomial shares q, se and fp at alpha / 3 each
(`lethe.statistics.leak_rates` takes q); the three bounds hold together with probability 1 - alpha
(union bound). If q <= q_u, se >= se_l and fp >= fp_l, then p (se_l - fp_l) <= q_u - fp_l. This
gives the upper bound of p if se_l > fp_l; otherwise nothing follows. If q >= q_l, se <= se_u and fp
<= fp_u, then p (se_u - fp_u) >= q_l - fp_u. This gives the lower bound if se_u > fp_u. Neither step
assumes that the judge is good.

The step needs se and fp of the answers that q is about. For an average over questions that holds if
the judge errs on average as it did on the calibration answers. A bound of one question, of the
worst one, of leak@k or of a language's share needs it in every question (or prompt): a judge that
fails on one subject has equal average rates, and such a bound then misses always.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from lethe.errors import BadValue
from lethe.statistics.checks import check_alpha
from lethe.statistics.counts import check_counts, rate_bounds

ASSUMES = (
    "independent answers; a person's label is the truth; the judge errs on these answers, {where}, "
    "as often as on those of the calibration"
)
IN_EVERY_QUESTION = "in every question"
OTHER_ANSWERS = "; the calibration answers are of another run"
METHOD = (
    "Clopper-Pearson on the verdicts, the sensitivity and the false positive rate, alpha / 3 each"
)


@dataclass(frozen=True)
class Calibration:
    """Counts of a judge's verdicts against a person's labels, who calls ``leaks`` answers a leak
    and ``clean`` ones none.

    Of these the judge calls ``*_called`` a leak, and gave no verdict on ``*_unjudged``, which count
    against every bound. ``of_this_run``: the answers are draws of the run whose rate is bounded; if
    not, every result says so. ``judge`` is the judge's identity, a hash of its model, template and
    settings.

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
    judge: str | None = None

    def __post_init__(self) -> None:
        _check_verdicts("leaks", self.leaks_called, self.leaks, self.leaks_unjudged)
        _check_verdicts("clean", self.clean_called, self.clean, self.clean_unjudged)

    @classmethod
    def of(
        cls,
        labels: ArrayLike,
        verdicts: ArrayLike,
        of_this_run: bool = False,
        judge: str | None = None,
    ) -> Calibration:
        """Count a person's labels (0 or 1) and the judge's verdicts (0, 1, or NaN where it gave
        none) on the same answers.
        """
        labels = np.asarray(labels, dtype=np.float64)
        verdicts = np.asarray(verdicts, dtype=np.float64)
        if labels.ndim != 1 or labels.shape != verdicts.shape:
            shapes = (labels.shape, verdicts.shape)
            raise BadValue("labels and verdicts", shapes, "two vectors of one length")
        wrong = labels[~np.isin(labels, (0, 1))]
        if wrong.size:
            raise BadValue("labels", wrong[0].item(), "0 or 1")
        unjudged = np.isnan(verdicts)
        wrong = verdicts[~np.isin(verdicts, (0, 1)) & ~unjudged]
        if wrong.size:
            raise BadValue("verdicts", wrong[0].item(), "0, 1 or NaN")

        is_leak = labels == 1
        called = verdicts == 1
        return cls(
            leaks=int(is_leak.sum()),
            leaks_called=int(called[is_leak].sum()),
            clean=int((~is_leak).sum()),
            clean_called=int(called[~is_leak].sum()),
            leaks_unjudged=int(unjudged[is_leak].sum()),
            clean_unjudged=int(unjudged[~is_leak].sum()),
            of_this_run=of_this_run,
            judge=judge,
        )

    @property
    def sensitivity(self) -> float:
        """The measured share of leaks that the judge calls a leak, among the judged ones; NaN
        without judged leaks.
        """
        return _share(self.leaks_called, self.leaks - self.leaks_unjudged)

    @property
    def false_positive(self) -> float:
        """The measured share of clean answers that the judge calls a leak, among the judged ones;
        NaN without judged ones.
        """
        return _share(self.clean_called, self.clean - self.clean_unjudged)

    def assumes(self, where: str = "on average") -> str:
        """The assumption of a bound by this judge, whose errors must be alike ``where`` it says."""
        words = ASSUMES.format(where=where)
        if self.of_this_run:
            return words
        return words + OTHER_ANSWERS

    def error(self, alpha: float) -> JudgeError:
        """Bounds of the sensitivity and the false positive rate, each of the four sides one-sided
        at ``alpha``.
        """
        check_alpha(alpha)
        lower, upper = rate_bounds(self.leaks_called, self.leaks, alpha, self.leaks_unjudged)
        sensitivity = float(lower), float(upper)
        lower, upper = rate_bounds(self.clean_called, self.clean, alpha, self.clean_unjudged)
        false_positive = float(lower), float(upper)
        return JudgeError(sensitivity, false_positive, alpha)


def _check_verdicts(name: str, called: int, n: int, unjudged: int) -> None:
    try:
        check_counts(called, n, unjudged)
    except BadValue as error:
        legal = "whole numbers: at least one answer, and called plus unjudged at most all answers"
        raise BadValue(f"calibration, {name}", error.got, legal) from None


def _share(called: int, judged: int) -> float:
    if not judged:
        return math.nan
    return called / judged


@dataclass(frozen=True)
class JudgeError:
    """Bounds (lower, upper) of the judge's sensitivity and false positive rate; each side holds by
    itself at ``alpha``.
    """

    sensitivity: tuple[float, float]
    false_positive: tuple[float, float]
    alpha: float

    def carry(self, lower: np.ndarray, upper: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Bounds of the true leak probability from those of the share of answers that the judge
        calls a leak; 0 and 1 where the judge may not separate leaks from clean answers.
        """
        least_sensitivity, most_sensitivity = self.sensitivity
        least_false, most_false = self.false_positive
        return (
            true_rate(lower, most_sensitivity, most_false, useless=0.0),
            true_rate(upper, least_sensitivity, least_false, useless=1.0),
        )

    def fits(self, lower: np.ndarray, upper: np.ndarray) -> np.ndarray:
        """Whether some leak probability implies a share of verdicts within the bounds; True where
        the bounds are NaN.
        """
        least = min(self.sensitivity[0], self.false_positive[0])
        most = max(self.sensitivity[1], self.false_positive[1])
        return ~((upper < least) | (lower > most))


def true_rate(
    called: ArrayLike, sensitivity: float, false_positive: float, useless: float
) -> np.ndarray:
    """p = (q - fp) / (se - fp), clipped to [0, 1]; ``useless`` where se <= fp. NaN stays NaN."""
    called = np.asarray(called, dtype=np.float64)
    room = sensitivity - false_positive
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        value = np.clip((called - false_positive) / room, 0.0, 1.0) + 0.0  # no negative zero
    return np.where(np.isnan(called), np.nan, value if room > 0 else useless)
