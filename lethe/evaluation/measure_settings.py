"""The settings of a measurement, with their defaults."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lethe.errors import BadValue
from lethe.evaluation.prompt_scores import Missing
from lethe.statistics.checks import check_alpha
from lethe.statistics.judge_error import Calibration
from lethe.statistics.many_prompts import Together, check_together

SHARE_ABOVE = 0.1  # the threshold for the share of prompts whose bound exceeds it
REASON = "the question stopped early: bounds for a fixed number of samples do not hold; anytime-valid bounds replace them"
THRESHOLDS = (0.1, 0.25, 0.5, 0.75, 0.9)


@dataclass(frozen=True)
class MeasureSettings:
    """The settings of `measure_prompts`."""

    alpha: float = 0.01
    thresholds: Sequence[float] = THRESHOLDS
    rho: float = 2.0
    share_above: float = SHARE_ABOVE
    missing: Missing | None = None
    together: Together = "none"
    calibration: Calibration | None = None

    def __post_init__(self) -> None:
        check_alpha(self.alpha)
        check_together(self.together)
        for threshold in self.thresholds:
            if not 0 <= threshold <= 1:
                raise BadValue("threshold", threshold, "a number in [0, 1]")
        if self.missing not in (None, "worst", "drop"):
            raise BadValue("missing", self.missing, "worst or drop")
