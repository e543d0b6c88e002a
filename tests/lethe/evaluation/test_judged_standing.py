"""A model is called leaking by a judge's verdicts only where the judge's measured error leaves a true leak."""

from __future__ import annotations

import numpy as np
import pytest

from lethe.evaluation.prompts import MeasureSettings, measure_prompts
from lethe.evaluation.standing import _leaked
from lethe.statistics.comparison import Interval
from lethe.statistics.judge_error import Calibration


class Seen:
    def __init__(self, **metrics):
        self.value = metrics.get


def interval(lower: float) -> Interval:
    return Interval(0.1, lower, 0.2, 1000, 0.01, "m")


@pytest.mark.parametrize(
    ("metrics", "lower", "leaked"),
    [
        ({"binary_any": 1.0}, 0.0, True),
        ({"binary_any": 0.0}, 0.0, False),
        ({"binary_any": 1.0, "judge_labelled": 600}, 0.0, False),
        ({"binary_any": 1.0, "judge_labelled": 600}, 0.01, True),
        ({"binary_any": 1.0, "judge_labelled": 600, "labelled_leaks": 0}, 0.01, False),
        ({"binary_any": 0.0, "labelled_leaks": 3}, 0.0, True),
    ],
)
def test_a_verdict_alone_is_no_leak_where_the_judge_errs(metrics, lower, leaked):
    assert _leaked(Seen(**metrics), interval(lower)) is leaked


def test_what_is_kept_of_the_judge_is_enough_to_measure_again():
    """The guarantees file holds the counts of the calibration and leak@k of true leaks beside that of verdicts."""
    judge = Calibration(leaks=60, leaks_called=54, clean=140, clean_called=7)
    verdicts = {"a": np.repeat([0.0, 1.0], [180, 20]), "b": np.repeat([0.0, 1.0], [150, 50])}
    judged = measure_prompts(verdicts, MeasureSettings(alpha=0.03, calibration=judge)).judged
    assert judged.worst[0] == "b"
    rows = judged.over_prompts.rows("judged_")
    first = next(row for row in rows if (row["of"], row["k"]) == ("judged_worst", 1))
    assert first["upper"] == judged.worst[1].value
    assert set(judged.over_prompts.guarantees("judged_")) == {"judged_worst", "judged_mean"}
