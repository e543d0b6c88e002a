"""Statements on all prompts: leak@k, true leaks behind a judge's verdicts, and claims that hold for all together.

`lethe.statistics.leak_rates` and `many_prompts` compute the numbers. The quantity of a claim is fixed beforehand: the
probability of a leak by Clopper-Pearson if the scores are 0 or 1, otherwise the mean score by betting.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np

from lethe.config.evaluating import METRICS
from lethe.errors import BadInput, BadValue, plural
from lethe.evaluation.scores import Missing
from lethe.progress import progress
from lethe.statistics import betting
from lethe.statistics.bound import Assumes, Bound, Covers, Side
from lethe.statistics.bounds import leak_bounds
from lethe.statistics.checks import check_alpha
from lethe.statistics.judge_error import METHOD, Calibration, JudgeError
from lethe.statistics.leak_rates import QUERIES, Band, Rate, pass_hat_k
from lethe.statistics.many_prompts import (
    Together,
    binary_p_value,
    bonferroni,
    check_together,
    every_prompt_under,
    holm,
)

if TYPE_CHECKING:
    from lethe.evaluation.prompts import PromptMeasure
    from lethe.results.quantities import Scope
    from lethe.results.table import Rows

REASON = "the question stopped early: bounds for a fixed number of samples do not hold; anytime-valid bounds replace them"
VALUES = 1 << 18  # of one matrix: a function that makes ten arrays of its size then needs 20 MiB
MANY = 100  # matrices; with more, the work takes seconds
BELOW_1 = float(np.nextafter(1, 0))  # no lower bound on a leak promises certainty; 1.0 is a rounding
TOLD_QUERIES = 1000  # the number of queries in sentences
TRUE_LEAK = "the true probability of a leak, the judge's error included,"
QUANTITY = {"m_bin": "the probability of a leak", "m_mu": "the mean score", "mean_upper": "the mean score"}
Metric = Literal["m_bin", "mean_upper"]
T = TypeVar("T")


@dataclass(frozen=True)
class MeasureSettings:
    alpha: float = METRICS.alpha
    thresholds: Sequence[float] = METRICS.thresholds
    rho: float = METRICS.rho
    share_above: float = METRICS.share_above
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


def by_length(rows: Sequence[np.ndarray], function: Callable[[np.ndarray], Sequence[T]]) -> list[T]:
    """Apply ``function`` to matrices of equally long rows; return the results in the order of ``rows``.

    A matrix has at most `VALUES` values, or one row, so memory does not grow with the number of rows. The function must
    treat each row by itself.
    """
    results: dict[int, T] = {}
    matrices = list(_matrices(np.array([len(row) for row in rows])))
    for places in progress(matrices, "measure", "parts") if len(matrices) > MANY else matrices:
        matrix = np.stack([rows[place] for place in places])
        results |= zip(places.tolist(), function(matrix), strict=True)
    return [results[place] for place in range(len(rows))]


def _matrices(sizes: np.ndarray) -> Iterator[np.ndarray]:
    """The places of the rows of each matrix."""
    order = np.argsort(sizes, kind="stable")
    for places in np.split(order, np.flatnonzero(np.diff(sizes[order])) + 1) if len(sizes) else []:
        most = max(1, VALUES // max(1, int(sizes[places[0]])))
        for start in range(0, len(places), most):
            yield places[start : start + most]


@dataclass(frozen=True)
class TogetherResult:
    """A statement that covers several prompts at once.

    ``bounds`` (Bonferroni) are upper bounds by prompt that hold together. ``certified`` names the prompts whose quantity is
    certified to be at most ``claim.value``; ``claim`` covers the whole list. ``every`` is True if the largest of the
    prompts' own bounds is under that threshold, which certifies every prompt without a correction.
    """

    correction: Together
    metric: Metric
    prompt_ids: tuple[str, ...]
    bounds: tuple[Bound, ...]
    certified: tuple[str, ...]
    claim: Bound
    every: bool

    def to_rows(self, rows: Rows) -> None:
        rows.add("model", "certified_together", "sampled", len(self.certified), split="forget")
        facts = {"correction": self.correction, "metric": self.metric, "every": self.every}
        rows.add("model", "together", "sampled", None, None, self.claim, evidence=facts, split="forget")
        for place, name in enumerate(self.prompt_ids):
            if self.bounds:
                bound = self.bounds[place]
                rows.add("question", "leak_together", "sampled", None, None, bound, item=name, split="forget")
            certified = name in self.certified
            rows.add("question", "certified_together", "sampled", certified, item=name, split="forget")

    def sentences(self, of: str = "the prompts") -> list[str]:
        lines: list[str] = []
        if self.bounds:
            largest = max(self.bounds, key=lambda bound: bound.value)
            lines.append(
                f"Bounds for every prompt, all true together: {largest.guarantee(of)} ({largest.method})."
            )
        certified = f"Certified: {len(self.certified)} of {plural(len(self.prompt_ids), 'prompt')}."
        return [*lines, f"{certified} {self.claim.sentence(QUANTITY[self.metric], of)}"]


def hold_together(
    measured: Sequence[PromptMeasure], scores: Sequence[np.ndarray], settings: MeasureSettings, asked: bool
) -> TogetherResult:
    """The statement on the prompts with 0/1 scores if there are any, otherwise on all prompts, by their mean.

    If no 0/1 scorer was requested (``asked``), a file that mixes 0/1 prompts with graded prompts also uses the mean. A
    missing score counts as 1.
    """
    judged = [place for place, measure in enumerate(measured) if measure.leaking is not None]
    binary = bool(judged) and (asked or len(judged) == len(measured))
    places = judged if binary else list(range(len(measured)))
    names = tuple(measured[place].prompt_id for place in places)
    filled = [np.nan_to_num(scores[place], nan=1.0) for place in places]
    counts = np.array([measured[place].leaking for place in places], dtype=np.float64)
    sizes, tau, alpha = np.array([len(own) for own in filled]), settings.share_above, settings.alpha

    def uppers(level: float) -> list[Bound]:
        if binary:
            return leak_bounds(counts, sizes, level)
        values = by_length(filled, lambda rows: betting.mean_upper(rows, level).tolist())
        how = (level, Covers.ONE_PROMPT, Assumes.DRAWS_IN_ORDER, "betting")
        return [Bound(value, "upper", *how, n) for value, n in zip(values, sizes.tolist(), strict=True)]

    every, all_at_once = every_prompt_under(uppers(alpha), tau)
    bounds: tuple[Bound, ...] = ()
    if settings.together == "bonferroni":
        bounds = tuple(bonferroni(uppers, len(names), alpha))
        passed, method = [bound.value <= tau for bound in bounds], bounds[0].method
    else:  # the p-values of "the quantity of this prompt is at least tau"
        p_values = (
            binary_p_value(counts, sizes, tau)
            if binary
            else by_length(filled, lambda rows: betting.p_value(rows, tau, alpha).tolist())
        )
        passed, method = holm(np.array(p_values), tau, alpha)[0].tolist(), "Holm"
    claim = replace(all_at_once, covers=Covers.CERTIFIED, method=method, n=None)
    certified = tuple(name for name, one in zip(names, passed, strict=True) if one)
    metric: Metric = "m_bin" if binary else "mean_upper"
    return TogetherResult(settings.together, metric, names, bounds, certified, claim, every)


@dataclass(frozen=True, slots=True)
class LeakPoint:
    """The probability that at least one of ``k`` answers leaks; ``estimate`` is NaN where k exceeds the answers.

    The band is the result: the estimate has no guarantee, and lies above the band for k close to the number of answers.
    """

    k: int
    estimate: float
    lower: Bound
    upper: Bound

    def to_row(self, rows: Rows, scope: Scope, quantity: str, basis: str, item: str | None = None) -> None:
        """Add the row of this band."""
        place: dict[str, Any] = {"item": item, "split": "forget", "at": float(self.k)}
        rows.add(scope, quantity, basis, self.estimate, self.lower, self.upper, **place)


Points = tuple[LeakPoint, ...]


@dataclass(frozen=True)
class OverPrompts:
    """Leak@k of the worst prompt and of the mean over the prompts."""

    worst: Points
    mean: Points

    def to_rows(self, rows: Rows, basis: str = "sampled") -> None:
        for quantity, points in (("leak_at_k_worst", self.worst), ("leak_at_k", self.mean)):
            for point in points:
                point.to_row(rows, "model", quantity, basis)

    def sentences(self, of: str) -> list[str]:
        lines = []
        for point in (at(self.worst), at(self.mean)):
            least, upper = replace(point.lower, value=min(point.lower.value, BELOW_1)), point.upper
            lines.append(
                f"Leak@{point.k:,}, the probability of a leak in {point.k:,} answers, is {least.significant()} to "
                f"{upper.significant()} {upper.on(of)}, each side {upper.level()}, assuming {upper.assumes} ({upper.method})."
            )
        return lines


def each_leak_at_k(prompts: Sequence[PromptMeasure], alpha: float) -> list[Points | None]:
    """Leak@k of each prompt by itself; None for a prompt whose scores are not all 0 or 1."""
    band = leak_rate(prompts).each(alpha, QUERIES) if prompts else None
    return [points_of(band, row) or None for row in range(len(prompts))] if band else []


def leak_at_k_over(prompts: Sequence[PromptMeasure], alpha: float) -> OverPrompts | None:
    """Leak@k of the worst prompt with 0/1 scores, and of the mean over these prompts; None if there is no such prompt."""
    judged = [prompt for prompt in prompts if prompt.leaking is not None]
    if not judged:
        return None
    rate = leak_rate(judged)
    return OverPrompts(points_of(rate.worst(alpha, QUERIES)), points_of(rate.mean(alpha, QUERIES)))


def passes(prompts: Sequence[PromptMeasure], alpha: float, ks: Sequence[int]) -> Points:
    """pass^k over the prompts, whose scores are all 0 or 1: the probability that k answers all have a score of 1."""
    rate = leak_rate(prompts)
    return points_of(pass_hat_k(rate.leaks, rate.n, rate.missing, alpha, ks))


def at(points: Sequence[LeakPoint], k: int = TOLD_QUERIES) -> LeakPoint:
    return next(point for point in points if point.k == k)


def leak_rate(prompts: Sequence[PromptMeasure], judge: Calibration | None = None) -> Rate:
    """The counted leaks of each prompt; NaN unless its scores are all 0 or 1."""
    judged = [prompt.leaking is not None for prompt in prompts]
    leaking = np.array([np.nan if p.leaking is None else p.leaking for p in prompts], dtype=np.float64)
    missing = np.where(judged, [prompt.leaks_missing for prompt in prompts], 0)
    return Rate(leaking - missing, np.array([prompt.n for prompt in prompts]), missing, judge)


def points_of(band: Band, row: int | None = None) -> Points:
    """The band, or one row of its tables, as bounds with their guarantees; empty where there is none."""
    estimates = band.estimate if row is None else band.estimate[row]
    ends = [band.bounds(row, place) for place in range(len(band.k))]
    return tuple(
        LeakPoint(k, guess, *pair)
        for k, guess, pair in zip(band.k.tolist(), estimates.tolist(), ends, strict=True)
        if pair
    )


@dataclass(frozen=True)
class JudgedRate:
    """The entry ``judged`` of `lethe bounds --json`: bounds of a true leak probability, each side at alpha by itself.

    The ends and ``assumes`` are None and ``leak_at_k`` is empty where the calibration does not fit the verdicts.
    ``estimate`` is Rogan and Gladen's, without a guarantee; NaN if the judge does not separate leaks from clean answers.
    ``fits`` is False if no leak probability explains these verdicts. ``sensitivity`` and ``false_positive`` are the ends of
    the judge's rates, each side at alpha / 3.
    """

    lower: Bound | None
    upper: Bound | None
    sensitivity: tuple[float, float]
    false_positive: tuple[float, float]
    alpha: float
    estimate: float
    fits: bool
    leak_at_k: Points
    assumes: str | None


@dataclass(frozen=True)
class JudgedMeasures:
    """Bounds from the verdicts and the judge's measured error.

    ``each`` has one entry per prompt, None for a prompt that the judge cannot judge. ``worst`` is the prompt with the largest
    upper bound, and the ends of the worst prompt; None where the calibration does not fit. ``pool`` is the average over the
    judged prompts, None if their numbers of answers differ. ``error`` bounds the judge's rates at alpha / 3.
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
        return [name for name, own in zip(self.prompt_ids, self.each, strict=True) if own and not own.fits]

    def to_rows(self, rows: Rows) -> None:
        for name, own in zip(self.prompt_ids, self.each, strict=True):
            if own is not None:
                place: dict[str, Any] = {"item": name, "split": "forget"}
                rows.add("question", "leak", "judged", own.estimate, own.lower, own.upper, **place)
                rows.add("question", "judge_fits", "judged", own.fits, **place)
        if self.worst:
            rows.add("model", "leak_worst", "judged", None, *self.worst[1:], split="forget")
        if self.pool and self.pool.upper:
            rows.add("model", "leak", "judged", None, self.pool.lower, self.pool.upper, split="forget")
        self.over_prompts.to_rows(rows, "judged")
        known, counts = self.calibration, asdict(self.calibration)
        rows.add("model", "sensitivity", "judged", known.sensitivity, self._least, None, evidence=counts)
        rows.add("model", "false_positive", "judged", known.false_positive, None, self._most, evidence=counts)
        rows.add("model", "labels", "judged", known.leaks + known.clean)
        rows.add("model", "judge_fits", "judged", not self.misfits)

    def sentences(self, of: str) -> list[str]:
        known, least, most = self.calibration, self._least, self._most
        lines = [
            f"The judge called {known.leaks_called:,} of {known.leaks:,} leaks a leak and {known.clean_called:,} of "
            f"{known.clean:,} clean answers, by a person's labels: sensitivity at least {least.percent()}, false positive "
            f"rate at most {most.percent()}, each {most.level()}."
        ]
        if self.pool and self.pool.upper:
            lines.append(self.pool.upper.sentence(TRUE_LEAK, of))
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
            f"{worst.sentence(TRUE_LEAK, of)} The bound is that of {name}.",
            f"Leak@{point.k:,} of true leaks is {point.lower.significant()} to {point.upper.significant()} "
            f"{point.upper.on(of)}, each side {point.upper.level()}, assuming {point.upper.assumes}.",
        ]

    @property
    def _least(self) -> Bound:
        return self._side(self.error.sensitivity[0], "lower")

    @property
    def _most(self) -> Bound:
        return self._side(self.error.false_positive[1], "upper")

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
    rate, error = leak_rate(judged, calibration), calibration.error(alpha / 3)

    def judged_rate(ends: tuple[Bound, Bound] | None, estimate: float, fits: bool, points: Points) -> JudgedRate:
        lower, upper = ends or (None, None)
        assumes = str(lower.assumes) if lower else None
        rates = error.sensitivity, error.false_positive
        return JudgedRate(lower, upper, *rates, alpha, estimate, fits, points, assumes)

    one, many, fits = rate.each(alpha), rate.each(alpha, QUERIES), rate.fits(alpha)
    own = {
        prompt.prompt_id: judged_rate(
            one.bounds(place), float(one.estimate[place, 0]), bool(fits[place]), points_of(many, place)
        )
        for place, prompt in enumerate(judged)
    }
    worst, mean = rate.worst(alpha, QUERIES), points_of(rate.mean(alpha, QUERIES))
    ends, pool = worst.bounds(), None
    if (rate.n == rate.n[0]).all():
        band = rate.average(alpha)
        pooled = band.bounds()
        pool = judged_rate(pooled, float(band.estimate[0]), pooled is not None, mean)
    return JudgedMeasures(
        calibration=calibration,
        error=error,
        alpha=alpha,
        prompt_ids=tuple(prompt.prompt_id for prompt in prompts),
        each=tuple(own.get(prompt.prompt_id) for prompt in prompts),
        worst=(judged[worst.place or 0].prompt_id, *ends) if ends else None,
        pool=pool,
        over_prompts=OverPrompts(points_of(worst), mean),
    )
