"""Bounds of true leak probabilities from a judge's verdicts: of each prompt, of the worst prompt, and of the average.

`lethe.statistics.leak_rates` computes the numbers. The scores of the prompts are the judge's verdicts, 0 or 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from lethe.errors import BadInput
from lethe.evaluation.leaks_at_k import OverPrompts, Points, at, leak_rate, points_of
from lethe.statistics.bound import Bound, Covers, Side
from lethe.statistics.judge_error import METHOD, Calibration, JudgeError
from lethe.statistics.leak_rates import QUERIES, Band

if TYPE_CHECKING:
    from lethe.evaluation.prompts import PromptMeasure
    from lethe.results.table import Rows

QUANTITY = "the true probability of a leak, the judge's error included,"


@dataclass(frozen=True)
class JudgedRate:
    """Bounds of a true leak probability, each side at alpha by itself, and leak@k from the same bounds.

    ``ends`` are None and ``leak_at_k`` is empty where the calibration does not fit the verdicts. ``estimate`` is Rogan and
    Gladen's, without a guarantee; NaN if the judge does not separate leaks from clean answers. ``fits`` is False if no leak
    probability explains these verdicts.
    """

    ends: tuple[Bound, Bound] | None
    estimate: float
    fits: bool
    leak_at_k: Points

    def as_dict(self, error: JudgeError, alpha: float) -> dict[str, object]:
        """The entry ``judged`` of `lethe bounds --json`."""
        lower, upper = self.ends or (None, None)
        return {
            "lower": lower and lower.value,
            "upper": upper and upper.value,
            "sensitivity": list(error.sensitivity),
            "false_positive": list(error.false_positive),
            "alpha": alpha,
            "estimate": self.estimate,
            "fits": self.fits,
            "leak_at_k": [point.row() for point in self.leak_at_k],
            "assumes": lower and lower.assumes,
        }


@dataclass(frozen=True)
class JudgedMeasures:
    """Bounds from the verdicts and the judge's measured error.

    ``each`` has one entry per prompt, None for a prompt that the judge cannot judge. ``worst`` is the prompt with the largest
    upper bound, and the ends of the worst prompt; None where the calibration does not fit. ``pool`` is the average over the
    judged prompts, None if their numbers of answers differ. ``error`` bounds the judge's sensitivity and false positive
    rate, each side at alpha / 3.
    """

    calibration: Calibration
    error: JudgeError
    alpha: float
    prompt_ids: tuple[str, ...]
    each: tuple[JudgedRate | None, ...]
    worst: tuple[str, Bound, Bound] | None
    pool: JudgedRate | None
    over_prompts: OverPrompts

    @property
    def misfits(self) -> list[str]:
        """The prompts whose verdicts the calibration does not explain."""
        return [name for name, own in zip(self.prompt_ids, self.each, strict=True) if own and not own.fits]

    @property
    def fits(self) -> bool:
        """Whether the calibration explains the verdicts on every prompt."""
        return not self.misfits

    def to_rows(self, rows: Rows) -> None:
        """Add the rows of each prompt, of the worst, of the average, and of the judge's measured rates."""
        for name, own in zip(self.prompt_ids, self.each, strict=True):
            if own is not None:
                place: dict[str, Any] = {"item": name, "split": "forget"}
                rows.add("question", "leak", "judged", own.estimate, *(own.ends or ()), **place)
                rows.add("question", "judge_fits", "judged", own.fits, **place)
        if self.worst:
            rows.add("model", "leak_worst", "judged", None, *self.worst[1:], split="forget")
        if self.pool and self.pool.ends:
            rows.add("model", "leak", "judged", None, *self.pool.ends, split="forget")
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
        lines = [self.judge()]
        if self.pool and self.pool.ends:
            lines.append(self.pool.ends[1].sentence(QUANTITY, of))
        if self.worst is None:
            misfits = self.misfits
            return [
                *lines,
                f"The verdicts on {len(misfits)} of {of} do not fit the calibration (first: {misfits[0]}): no leak "
                "probability explains them. The calibration describes other answers, so no prompt has a bound. Label "
                "random draws of this run: `lethe label`.",
            ]
        name, _, worst = self.worst
        point = at(self.over_prompts.worst)
        return [
            *lines,
            f"{worst.sentence(QUANTITY, of)} The bound is that of {name}.",
            f"Leak@{point.k:,} of true leaks is {point.lower.significant()} to {point.upper.significant()} "
            f"{point.upper.on(of)}, each side {point.upper.level()}, assuming {point.upper.assumes}.",
        ]

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
        return Bound(value, side, self.error.alpha, Covers.AVERAGE, self.calibration.assumes(), METHOD)


def judged_measures(prompts: Sequence[PromptMeasure], calibration: Calibration, alpha: float) -> JudgedMeasures:
    """Bounds of the true leak probability behind verdicts of 0 and 1."""
    judged = [prompt for prompt in prompts if prompt.leaking is not None]
    if not judged:
        raise BadInput(
            "A calibration needs verdicts, and no prompt has scores that are all 0 or 1. Give the judge's verdicts as the "
            "scores."
        )
    rate = leak_rate(judged, calibration)
    one, many, fits = rate.each(alpha), rate.each(alpha, QUERIES), rate.fits(alpha)
    own = {
        prompt.prompt_id: JudgedRate(
            one.bounds(place), float(one.estimate[place, 0]), bool(fits[place]), points_of(many, place)
        )
        for place, prompt in enumerate(judged)
    }
    worst, mean = rate.worst(alpha, QUERIES), points_of(rate.mean(alpha, QUERIES))
    ends = worst.bounds()
    return JudgedMeasures(
        calibration=calibration,
        error=calibration.error(alpha / 3),
        alpha=alpha,
        prompt_ids=tuple(prompt.prompt_id for prompt in prompts),
        each=tuple(own.get(prompt.prompt_id) for prompt in prompts),
        worst=(judged[worst.place or 0].prompt_id, *ends) if ends else None,
        pool=_average(rate.average(alpha), mean) if (rate.n == rate.n[0]).all() else None,
        over_prompts=OverPrompts(points_of(worst), mean),
    )


def _average(band: Band, points: Points) -> JudgedRate:
    ends = band.bounds()
    return JudgedRate(ends, float(band.estimate[0]), ends is not None, points)
