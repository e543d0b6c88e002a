"""An interval of the average true leak probability from a judge's verdicts, for the comparison of models."""

from __future__ import annotations

import numpy as np

from lethe.errors import BadValue
from lethe.statistics.checks import check_alpha
from lethe.statistics.comparison import Groups, Interval
from lethe.statistics.judge_error import Calibration, judged_average


def judged_share_interval(groups: Groups, calibration: Calibration, alpha: float) -> Interval:
    """Interval of the average true leak probability over questions.

    Each end is `judge_error.judged_average` at alpha / 2, with the assumptions of that function.

    Parameters
    ----------
    groups
        The verdicts 0 or 1 of each question; a NaN counts as a leak for the upper end and as clean for the lower end.
    calibration
        The judge's measured errors.
    alpha
        Error probability of the two ends together.

    Raises
    ------
    BadValue
        If a verdict is not 0, 1 or NaN, or alpha is outside its range.

    Examples
    --------
    >>> judge = Calibration(leaks=200, leaks_called=190, clean=200, clean_called=10)
    >>> found = judged_share_interval([np.repeat([0.0, 1.0], [700, 300])], judge, alpha=0.1)
    >>> round(found.lower, 2), round(found.upper, 2)
    (0.2, 0.35)
    """
    check_alpha(alpha)
    verdicts = np.stack([np.asarray(group, dtype=np.float64) for group in groups])
    missing = np.isnan(verdicts)
    if not (np.isin(verdicts, (0.0, 1.0)) | missing).all():
        raise BadValue("groups", "numbers between 0 and 1", "verdicts that are 0 or 1")
    called, gone = (verdicts == 1).sum(axis=1), missing.sum(axis=1)
    found = judged_average(called, verdicts.shape[1], calibration, alpha / 2, gone)
    return Interval(
        float(found.estimate[0]),
        float(found.lower[0]),
        float(found.upper[0]),
        verdicts.size,
        alpha,
        found.method,
        found.assumes,
    )
