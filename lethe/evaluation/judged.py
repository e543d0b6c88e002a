"""Bounds of true leak probabilities from a judge's verdicts: of each prompt, of the worst prompt, and of the average.

`lethe.statistics.judge_error` and `lethe.statistics.judged_leak_at_k` compute the numbers; this module attaches the
guarantees. The scores of the prompts are the judge's verdicts, 0 or 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from lethe.errors import BadInput
from lethe.evaluation.leaks_at_k import OverPrompts, Points, as_points, at, leak_counts
from lethe.statistics.bound import Bound, Covers, Side
from lethe.statistics.judge_error import (
    METHOD,
    Calibration,
    JudgeError,
    judged_average,
    judged_rates,
    shared_error,
)
from lethe.statistics.judged_leak_at_k import judged_leak_at_k, judged_mean_over_questions, judged_worst_question

if TYPE_CHECKING:
    from lethe.evaluation.prompts import PromptMeasure
    from lethe.results.table import Rows

QUANTITY = "the true probability of a leak, the judge's error included,"


@dataclass(frozen=True)
class JudgedRate:
    """Bounds of a true leak probability, each side at alpha by itself, and leak@k from the same bounds.

    ``estimate`` is Rogan and Gladen's, without a guarantee; NaN if the judge does not separate leaks from clean answers.
    ``fits`` is False if no leak probability explains the verdicts: the calibration does not describe these answers.
    """

    lower: Bound
    upper: Bound
    estimate: float
    fits: bool
    leak_at_k: Points

    def as_dict(self, error: JudgeError) -> dict[str, object]:
        """The entry ``judged`` of `lethe bounds --json`."""
        return {
            "lower": self.lower.value,
            "upper": self.upper.value,
            "sensitivity": list(error.sensitivity),
            "false_positive": list(error.false_positive),
            "alpha": self.upper.alpha,
            "estimate": self.estimate,
            "fits": self.fits,
            "leak_at_k": [point.row() for point in self.leak_at_k],
        }


@dataclass(frozen=True)
class JudgedMeasures:
    """Bounds from the verdicts and the judge's measured error.

    ``each`` has one entry per prompt, None for a prompt that the judge cannot judge. ``pool`` is the average over the
    judged prompts, None if their numbers of answers differ. ``error`` bounds the judge's sensitivity and false positive
    rate, each side at alpha / 3.
    """

    calibration: Calibration
    error: JudgeError
    prompt_ids: tuple[str, ...]
    each: tuple[JudgedRate | None, ...]
    pool: JudgedRate | None
    worst_leak_at_k: Points
    mean_leak_at_k: Points

    @property
    def worst(self) -> tuple[str, Bound]:
        """The prompt with the largest upper bound, and that bound, which covers the worst prompt."""
        judged = [(name, own.upper) for name, own in zip(self.prompt_ids, self.each, strict=True) if own]
        name, bound = max(judged, key=lambda one: one[1].value)
        return name, replace(bound, covers=Covers.WORST_PROMPT)

    @property
    def over_prompts(self) -> OverPrompts:
        """Leak@k of true leaks, for the worst prompt and for the mean."""
        return OverPrompts(self.worst_leak_at_k, self.mean_leak_at_k)

    @property
    def fits(self) -> bool:
        """Whether the calibration explains the verdicts on every prompt."""
        return all(own.fits for own in self.each if own)

    def to_rows(self, rows: Rows) -> None:
        """Add the rows of each prompt, of the worst, of the average, and of the judge's measured rates."""
        for name, own in zip(self.prompt_ids, self.each, strict=True):
            if own is not None:
                place: dict[str, Any] = {"item": name, "split": "forget"}
                rows.add("question", "leak", "judged", own.estimate, own.lower, own.upper, **place)
                rows.add("question", "judge_fits", "judged", own.fits, **place)
        lower = at(self.worst_leak_at_k, 1).lower
        rows.add("model", "leak_worst", "judged", None, lower, self.worst[1], split="forget")
        if self.pool:
            rows.add("model", "leak", "judged", None, self.pool.lower, self.pool.upper, split="forget")
        self.over_prompts.to_rows(rows, "judged")
        known, error = self.calibration, self.error
        counts = asdict(known)
        for quantity, found, ends in (
            ("sensitivity", known.sensitivity, (self._side(error.sensitivity[0], "lower"), None)),
            ("false_positive", known.false_positive, (None, self._side(error.false_positive[1], "upper"))),
        ):
            rows.add("model", quantity, "judged", found, *ends, evidence=counts)
        rows.add("model", "labels", "judged", known.leaks + known.clean)
        rows.add("model", "judge_fits", "judged", self.fits)

    def sentences(self, of: str) -> list[str]:
        """The statements on the judge and on the true leak probability; ``of`` names the prompts."""
        name, worst = self.worst
        lines = [self.judge(), f"{worst.sentence(QUANTITY, of)} The bound is that of {name}."]
        if self.pool:
            lines.append(self.pool.upper.sentence(QUANTITY, of))
        point = at(self.worst_leak_at_k)
        lines.append(
            f"Leak@{point.k:,} of true leaks is {point.lower.significant()} to {point.upper.significant()} "
            f"{point.upper.on(of)}, each side {point.upper.level()}, assuming {point.upper.assumes}."
        )
        if not self.fits:
            lines.append(
                "The verdicts do not fit the calibration: no leak probability explains them. The calibration describes "
                "other answers, and these bounds mean nothing."
            )
        return lines

    def judge(self) -> str:
        """The judge's errors on the answers that a person labelled, in words."""
        known = self.calibration
        least = self._side(self.error.sensitivity[0], "lower")
        most = self._side(self.error.false_positive[1], "upper")
        return (
            f"The judge called {known.leaks_called:,} of {known.leaks:,} leaks a leak and {known.clean_called:,} of "
            f"{known.clean:,} clean answers, by a person's labels: sensitivity at least {least.percent()}, false positive "
            f"rate at most {most.percent()}, each {most.level()}."
        )

    def _side(self, value: float, side: Side) -> Bound:
        return Bound(value, side, self.error.alpha, Covers.AVERAGE, self.calibration.assumes, METHOD)


def judged_measures(prompts: Sequence[PromptMeasure], calibration: Calibration, alpha: float) -> JudgedMeasures:
    """Bounds of the true leak probability behind verdicts of 0 and 1.

    Notes
    -----
    Shares the assumptions of `lethe.statistics.judge_error`: independent answers, a person's label as the truth, and a
    judge that errs on the answers of the run as often as on those of the calibration.
    """
    judged = [prompt for prompt in prompts if prompt.leaking is not None]
    if not judged:
        raise BadInput(
            "A calibration needs verdicts, and no prompt has scores that are all 0 or 1. Give the judge's verdicts as the "
            "scores."
        )
    called, n, missing = leak_counts(judged)
    rates = judged_rates(called, n, calibration, alpha, missing)
    points = judged_leak_at_k(called, n, calibration, alpha, missing=missing)
    rows = {
        prompt.prompt_id: _rate(
            rates.lower[place],
            rates.upper[place],
            rates.estimate[place],
            rates.fits[place],
            (alpha, Covers.ONE_PROMPT, rates.assumes, rates.method, prompt.n),
            as_points(points, Covers.ONE_PROMPT, prompt.n, place),
        )
        for place, prompt in enumerate(judged)
    }
    common = int(n[0]) if (n == n[0]).all() else None
    worst = judged_worst_question(called, n, calibration, alpha, missing=missing)[1]
    mean = judged_mean_over_questions(called, n, calibration, alpha, missing=missing)
    mean_points = as_points(mean, Covers.AVERAGE, common)
    pool = None
    if common is not None:
        found = judged_average(called, common, calibration, alpha, missing)
        pool = _rate(
            found.lower[0],
            found.upper[0],
            found.estimate[0],
            found.fits[0],
            (alpha, Covers.AVERAGE, found.assumes, found.method, common * len(judged)),
            mean_points,
        )
    return JudgedMeasures(
        calibration=calibration,
        error=shared_error(calibration, alpha),
        prompt_ids=tuple(prompt.prompt_id for prompt in prompts),
        each=tuple(rows.get(prompt.prompt_id) for prompt in prompts),
        pool=pool,
        worst_leak_at_k=as_points(worst, Covers.WORST_PROMPT, common),
        mean_leak_at_k=mean_points,
    )


def _rate(
    lower: np.floating,
    upper: np.floating,
    estimate: np.floating,
    fits: np.bool_,
    rest: tuple[float, Covers, str, str, int],
    points: Points,
) -> JudgedRate:
    return JudgedRate(
        Bound(float(lower), "lower", *rest),
        Bound(float(upper), "upper", *rest),
        float(estimate),
        bool(fits),
        points,
    )
