"""Rows of the bounds of each prompt and of all, from the scores of sampled answers: the only path of measurement.

The quantity of a joint claim is fixed beforehand: P(leak) by Clopper-Pearson for scores of 0 and 1, else the mean by
betting. No bound is the smaller one of two, each at the whole level.
"""

import gc
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import repeat
from typing import NamedTuple

import numpy as np

from lethe.config.measuring import METRICS
from lethe.errors import BadInput, check
from lethe.io.cache import Levels
from lethe.measure.by_length import by_length, matrices
from lethe.measure.order import in_plausible_order
from lethe.measure.scores import Missing, PromptScores, mean, plain_rows, plain_statistics
from lethe.results.table import IntervalAt, Result, Rows, rows_at
from lethe.results.views import ALONE
from lethe.statistics import betting, many_prompts
from lethe.statistics.bound import Assumes, Bound, Covers, both_ends
from lethe.statistics.bounds import LARGEST, PROVEN, leak_bounds, paper_bounds, tighter_bounds
from lethe.statistics.checks import check_alpha
from lethe.statistics.counts import at_least_once, rate_bounds
from lethe.statistics.judge_error import METHOD as JUDGE_METHOD
from lethe.statistics.judge_error import Calibration
from lethe.statistics.leak_rates import QUERIES, Band, Rate
from lethe.statistics.many_prompts import share_above
from lethe.statistics.sequential import METHOD as AT_THE_STOP
from lethe.statistics.sequential import stopped_upper

REASON = "the question stopped early: bounds for a fixed number of samples do not hold; anytime-valid bounds replace them"
SHOWN_QUERIES = 1000  # the number of queries in sentences
# The quantity and basis behind each metric by which prompts are compared.
METRIC = {
    "m_bin": ("leak", "sampled"),
    "m_mu": ("score", "sampled"),
    "anytime_upper": ("score", "anytime"),
}
# The quantities whose largest upper end has a row of its own.
WORST = (
    "score",
    "sd",
    "score_betting",
    "sd_betting",
    "leak",
)


@dataclass(frozen=True)
class MeasureSettings:
    """How prompts are measured.

    Attributes
    ----------
    alpha
        The probability of each bound's failure, in (0, 1).
    thresholds
        The x of P(score > x), in [0, 1].
    rho
        The weight of the standard deviation in the ED score: mean + rho x sd.
    share_above
        The threshold of the bound under which a prompt is certified.
    missing
        "worst": a missing score counts as the worst; "drop": missing scores were left out when the file was read; None:
        nothing was said of them, so they count as the worst.
    together
        The correction of the joint statement; "none" makes none.
    calibration
        The measured error of the judge, by which leaks are corrected; None corrects nothing.

    Raises
    ------
    BadValue
        If a value is out of range.
    """

    alpha: float = METRICS.alpha
    thresholds: Sequence[float] = METRICS.thresholds
    rho: float = METRICS.rho
    share_above: float = METRICS.share_above
    missing: Missing | None = None
    together: many_prompts.Together = "none"
    calibration: Calibration | None = None

    def __post_init__(self) -> None:
        check_alpha(self.alpha)
        many_prompts.check_together(self.together)
        for threshold in self.thresholds:
            check(0 <= threshold <= 1, "threshold", threshold, "a number in [0, 1]")
        check(self.missing in (None, "worst", "drop"), "missing", self.missing, "worst or drop")


def measure_prompts(
    rows: Rows,
    prompts: Sequence[PromptScores],
    settings: MeasureSettings,
    leaks: Sequence[np.ndarray | None] | None = None,
) -> list[list[Result]]:
    """Add high-probability bounds on the scores of each prompt, and what holds of all prompts; return those of each.

    Each bound holds by itself with probability 1 - alpha for its prompt, assuming independent draws of the prompt.
    ``settings.together`` adds joint statements on all prompts.

    Parameters
    ----------
    rows
        The rows of the model, to which those of the prompts are added.
    prompts
        The scores of each prompt, (n,) in [0, 1], NaN where missing; n may differ between prompts.
    settings
        The level, the thresholds, and how a missing score counts.
    leaks
        The scores of a 0/1 scorer on the same answers, None for a prompt out of its scope; by default the scores
        themselves, where all are 0 or 1.

    Raises
    ------
    BadInput
        If a calibration is to correct scores that are not all 0 or 1.

    >>> rows = Rows("model")
    >>> prompts = [PromptScores("a", np.array([0, 0, 1, 0])), PromptScores("b", np.zeros(4))]
    >>> _ = measure_prompts(rows, prompts, MeasureSettings(alpha=0.05))
    >>> worst = worst_of(rows.rows, "leak")
    >>> worst.prompt_id, worst.bound.significant()
    ('a', '0.7514')
    """
    if leaks is None:
        rate = counts_of([prompt.scores for prompt in prompts])
    else:
        rate = counts_of(leaks)
    rows_of_prompts = _each(rows.model, prompts, settings, rate)
    for rows_of_prompt in rows_of_prompts:
        rows.rows += rows_of_prompt

    judged = np.flatnonzero(~np.isnan(rate.leaks)).tolist()
    counted = Rate(rate.leaks[judged], rate.n[judged], rate.missing[judged])

    # A 0/1 scorer is about the prompts in its scope. In a file that mixes 0/1 prompts with graded ones, which prompts seem
    # to be of 0 and 1 depends on the draws, so nothing is said of them together.
    are_all_judged = len(judged) == len(prompts)
    binary = bool(judged) and (leaks is not None or are_all_judged)
    about = list(prompts)
    if binary:
        about = [prompts[place] for place in judged]
        add = partial(rows.add, "model", split="forget")
        band_rows(add, "leak_at_k_worst", "sampled", counted.worst(settings.alpha, QUERIES))
        band_rows(add, "leak_at_k", "sampled", counted.mean(settings.alpha, QUERIES))

    if settings.calibration:
        if not binary:
            problem = "A calibration needs verdicts, and the scores are not all 0 or 1."
            raise BadInput(f"{problem} Give the judge's verdicts as the scores.")
        names = [prompt.prompt_id for prompt in about]
        _judged_rows(rows, names, counted, settings.calibration, settings.alpha)
    if settings.together != "none":
        _together_rows(rows, about, counted, settings, binary)
    return rows_of_prompts


def counts_of(scores: Sequence[np.ndarray | None]) -> Rate:
    """The scores of 1, the draws and the missing scores of each prompt; NaN leaks unless all its scores are 0 or 1.

    ``scores`` has an array (n,) per prompt, NaN where missing; None stands for a prompt out of the scorer's scope.
    """
    leaks: list[float] = []
    sizes: list[int] = []
    missing: list[int] = []
    for values in scores:
        if values is None:  # out of the scorer's scope
            leaks.append(math.nan)
            sizes.append(1)
            missing.append(0)
            continue
        judged = values[~np.isnan(values)]
        is_binary = ((judged == 0) | (judged == 1)).all()
        leaks.append(float(judged.sum()) if is_binary else math.nan)
        sizes.append(len(values))
        missing.append(len(values) - len(judged) if is_binary else 0)
    return Rate(
        np.array(leaks, dtype=np.float64),
        np.array(sizes, dtype=np.int64),
        np.array(missing, dtype=np.int64),
    )


@contextmanager
def without_collector() -> Iterator[None]:
    """Let the collector of circles of objects rest, which would look at a million rows again and again."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@without_collector()
def _each(
    model: str, prompts: Sequence[PromptScores], settings: MeasureSettings, rate: Rate
) -> list[list[Result]]:
    """The rows of each prompt by itself; prompts with equally many scores share one vectorised call."""
    if not prompts:
        return []
    alpha = settings.alpha
    rows_of_place = [Rows(model) for _ in prompts]

    # The mean, the spread and the tail of the scores.
    levels = Levels()
    scores = [prompt.scores for prompt in prompts]
    bets = betting.ends_of_rows(scores, alpha)
    for places, matrix in matrices(scores):
        of_places = bets.of(places)
        _score_rows(rows_of_place, places, matrix, prompts, settings, levels, of_places)

    # The probability of a leak, of the prompts whose scores are all 0 or 1.
    lower_ends, upper_ends = rate_bounds(rate.leaks, rate.n, alpha, rate.missing)
    for place, prompt in enumerate(prompts):
        if math.isnan(rate.leaks[place]):
            continue
        leaks = int(rate.leaks[place])
        n = int(rate.n[place])
        missing = int(rate.missing[place])
        guarantee = (alpha, Covers.ONE_PROMPT, Assumes.DRAWS, "Clopper-Pearson", n)
        ends = both_ends(lower_ends[place], upper_ends[place], *guarantee)
        share = None
        if n > missing:
            share = leaks / (n - missing)
        evidence = {"leaks": leaks, "n": n, "missing": missing}

        rows = rows_of_place[place]
        add = partial(rows.add, "question", item=prompt.prompt_id, split="forget")
        add("leak", "sampled", share, *ends, missing=missing, evidence=evidence)
        add("leaks", "sampled", leaks + missing)
        add("unjudged", "sampled", missing)
    _add_band_of_each(rows_of_place, prompts, rate.each(alpha, QUERIES))

    rows_of_prompts = [rows.rows for rows in rows_of_place]
    return in_plausible_order(rows_of_prompts, prompts, alpha)


def _score_rows(
    rows_of_place: Sequence[Rows],
    places: Sequence[int],
    matrix: np.ndarray,
    prompts: Sequence[PromptScores],
    settings: MeasureSettings,
    levels: Levels,
    bets: betting.BettingEnds,
) -> None:
    """Add the bounds of the scores of some prompts that have equally many.

    The quantities of the paper have its bounds, and beside them stand the tighter ones, each at the whole level.

    Parameters
    ----------
    rows_of_place
        By place among the prompts, the rows to add to.
    places
        The prompts of this call.
    matrix
        (places, n) their scores.
    levels
        The levels of the tail's bounds that were found so far: many prompts have the same number of scores.
    bets
        The bounds by betting of these prompts.
    """
    thresholds = np.asarray(settings.thresholds, dtype=np.float64)
    alpha = settings.alpha
    paper = paper_bounds(matrix, alpha, thresholds, missing="worst")
    sharp = tighter_bounds(matrix, alpha, thresholds, levels, missing="worst", bets=bets)
    m_mu = paper.bounds("m_mu")
    m_mu_lower = paper.bounds("m_mu_lower")
    m_sigma = paper.bounds("m_sigma")
    mean_lower = sharp.bounds("mean_lower")
    mean_upper = sharp.bounds("mean_upper")
    sd_upper = sharp.bounds("sd_upper")

    # The tail has a row for each threshold, all of which share one guarantee.
    exceedance = partial(map, IntervalAt, settings.thresholds)
    tail_end = replace(m_mu[0], method=PROVEN["m_gen"][1])
    sharper_method = f"{sharp.exceedance_method}, all thresholds at once"
    sharper_end = replace(tail_end, method=sharper_method)
    tail_lowers = paper.m_gen_lower.tolist()
    tail_uppers = paper.m_gen.tolist()
    tail_sharper = sharp.exceedance.tolist()

    for row, place in enumerate(places):
        prompt = prompts[place]
        rows = rows_of_place[place]
        add = partial(rows.add, "question", basis="sampled", item=prompt.prompt_id, split="forget")
        mean_of_draws = float(paper.mean[row])
        sd = float(paper.sd[row])
        plain = {"score": mean_of_draws, "sd": sd, "max": float(paper.max[row])}
        plain["ed_score"] = mean_of_draws + settings.rho * sd
        if prompt.missing:
            plain = plain_statistics(prompt.scores, settings.rho)

        add("answers", estimate=prompt.n)
        add("unscored", estimate=prompt.missing)
        add("max", estimate=plain["max"])
        add("ed_score", estimate=plain["ed_score"])
        add("score", estimate=plain["score"], lower=m_mu_lower[row], upper=m_mu[row])
        add("score_betting", lower=mean_lower[row], upper=mean_upper[row])
        add("sd", estimate=plain["sd"], upper=m_sigma[row])
        add("sd_betting", upper=sd_upper[row])

        points = exceedance(repeat(None), tail_lowers[row], tail_uppers[row])
        plain_tails = rows_at(_about(rows, prompt, "exceedance"), tail_end, points)
        points = exceedance(repeat(None), repeat(None), tail_sharper[row])
        sharper_tails = rows_at(_about(rows, prompt, "exceedance_sharper"), sharper_end, points)
        for of_threshold in zip(plain_tails, sharper_tails, strict=True):
            rows.rows += of_threshold
        add("exceedance_method", text=sharp.exceedance_method)


def band_rows(
    add: Callable[..., None],
    quantity: str,
    basis: str,
    band: Band,
    row: int | None = None,
) -> None:
    """Add a row for each k of a band, or of one ``row`` of its tables; none where its ends do not exist.

    The band is the result: an estimate has no guarantee, and lies above the band for k close to the number of answers.

    Parameters
    ----------
    add
        `Rows.add` with the scope and the item of the rows.
    quantity, basis
        The quantity of the vocabulary, such as "leak_at_k", and from what it is computed.
    band
        Both ends and estimates for each k, of one curve or (prompts, k).
    row
        The place of the prompt in the tables; None for a band of one curve.
    """
    estimates = band.estimate
    if row is not None:
        estimates = band.estimate[row]
    for place, k in enumerate(band.k.tolist()):
        ends = band.bounds(row, place)
        if ends:
            estimate = float(estimates[place])
            add(quantity, basis, estimate, *ends, at=float(k))


def _add_band_of_each(
    rows_of_place: Sequence[Rows], prompts: Sequence[PromptScores], band: Band
) -> None:
    """Add leak@k of each prompt: as `band_rows`, without a bound in between for each of half a million rows."""
    ks = [float(k) for k in band.k.tolist()]
    tables = (band.estimate.tolist(), band.lower.tolist(), band.upper.tolist())
    for rows, prompt, n, *of_prompt in zip(rows_of_place, prompts, band.n, *tables, strict=True):
        about = _about(rows, prompt, "leak_at_k")
        end = Bound(1.0, "upper", band.alpha, band.covers, band.assumes, band.method, n)
        rows.rows += rows_at(about, end, map(IntervalAt, ks, *of_prompt))


def _about(rows: Rows, prompt: PromptScores, quantity: str) -> Result:
    """What all rows of a quantity of a prompt share."""
    return Result(rows.model, "question", quantity, "sampled", prompt.prompt_id, "forget")


def _judged_rows(
    rows: Rows,
    names: Sequence[str],
    verdicts: Rate,
    judge: Calibration,
    alpha: float,
) -> None:
    """Add bounds of the true leak probability from the verdicts on each prompt and the judge's measured error.

    Parameters
    ----------
    names
        The ids of the prompts.
    verdicts
        Their counts, in the same order.
    judge
        The counts of the judge's verdicts on labelled answers, whose own uncertainty is a part of alpha.
    """
    rate = replace(verdicts, judge=judge)

    # Each prompt.
    single = rate.each(alpha)
    band = rate.each(alpha, QUERIES)
    fits = rate.fits(alpha)
    for place, name in enumerate(names):
        add = partial(rows.add, "question", item=name, split="forget")
        ends = single.bounds(place) or ()
        add("leak", "judged", float(single.estimate[place, 0]), *ends)
        add("judge_fits", "judged", bool(fits[place]))
        band_rows(add, "leak_at_k", "judged", band, place)

    # All prompts together.
    add = partial(rows.add, "model", split="forget")
    worst = rate.worst(alpha, QUERIES)
    ends_of_worst = worst.bounds()
    if ends_of_worst:
        add("leak_worst", "judged", None, *ends_of_worst)
    has_equal_numbers = (rate.n == rate.n[0]).all()
    if has_equal_numbers:
        average = rate.average(alpha)
        ends = average.bounds() or ()
        add("leak", "judged", float(average.estimate[0]), *ends)
    band_rows(add, "leak_at_k_worst", "judged", worst)
    band_rows(add, "leak_at_k", "judged", rate.mean(alpha, QUERIES))

    # The judge itself, and whether its error can explain the verdicts.
    error = judge.error(alpha / 3)
    guarantee = (error.alpha, Covers.AVERAGE, judge.assumes(), JUDGE_METHOD)
    add_rate = partial(rows.add, "model", basis="judged", evidence=asdict(judge))
    lower, upper = both_ends(*error.sensitivity, *guarantee)
    add_rate("sensitivity", estimate=judge.sensitivity, lower=lower, upper=upper)
    lower, upper = both_ends(*error.false_positive, *guarantee)
    add_rate("false_positive", estimate=judge.false_positive, lower=lower, upper=upper)
    rows.add("model", "labels", "judged", judge.leaks + judge.clean)
    rows.add("model", "judge_fits", "judged", bool(fits.all()))


@dataclass(frozen=True)
class _Together:
    """The quantity of which a joint statement is made: P(leak) of each prompt where all scores are 0 or 1, else its mean.

    Attributes
    ----------
    scores
        The scores of each prompt, missing ones as 1.
    counts
        (prompts,) the leaks, missing scores included; NaN where the scores are graded.
    sizes
        (prompts,) the draws.
    binary
        Whether all scores are 0 or 1.
    """

    scores: list[np.ndarray]
    counts: np.ndarray
    sizes: np.ndarray
    binary: bool

    @property
    def metric(self) -> str:
        """The name of the upper end of the quantity."""
        if self.binary:
            return "m_bin"
        return "mean_upper"

    def uppers(self, level: float) -> list[Bound]:
        """The upper end of each prompt by itself."""
        if self.binary:
            return leak_bounds(self.counts, self.sizes, level)
        values = by_length(self.scores, lambda rows: betting.mean_upper(rows, level).tolist())
        guarantee = (level, Covers.ONE_PROMPT, Assumes.DRAWS_IN_ORDER, "betting")
        bounds = []
        for value, n in zip(values, self.sizes.tolist(), strict=True):
            bounds.append(Bound(value, "upper", *guarantee, n))
        return bounds

    def p_values(self, tau: float, alpha: float) -> np.ndarray:
        """The p-value of "the quantity of this prompt is at least tau", of each prompt."""
        if self.binary:
            return np.asarray(many_prompts.binary_p_value(self.counts, self.sizes, tau))

        def p_values(rows: np.ndarray) -> list[float]:
            p: list[float] = betting.p_value(rows, tau, alpha).tolist()
            return p

        return np.array(by_length(self.scores, p_values))


def _together_rows(
    rows: Rows,
    prompts: Sequence[PromptScores],
    counted: Rate,
    settings: MeasureSettings,
    binary: bool,
) -> None:
    """Add the statement that covers all of these prompts at once: those certified to be at most ``settings.share_above``.

    A missing score counts as 1. ``every`` is True if the largest of the prompts' own bounds is under that threshold, which
    certifies every prompt without a correction.
    """
    scores = [np.nan_to_num(prompt.scores, nan=1.0) for prompt in prompts]
    sizes = np.array([len(values) for values in scores])
    quantity = _Together(scores, counted.leaks + counted.missing, sizes, binary)
    tau = settings.share_above
    alpha = settings.alpha
    every, all_at_once = many_prompts.every_prompt_under(quantity.uppers(alpha), tau)
    bounds: list[Bound] = []
    if settings.together == "bonferroni":
        bounds = many_prompts.bonferroni(quantity.uppers, len(prompts), alpha)
        passed = [bound.value <= tau for bound in bounds]
        method = bounds[0].method
    else:
        certified, _ = many_prompts.holm(quantity.p_values(tau, alpha), tau, alpha)
        passed = certified.tolist()
        method = "Holm"

    add = partial(rows.add, "model", split="forget")
    add("certified_together", "sampled", sum(passed))
    claim = replace(all_at_once, covers=Covers.CERTIFIED, method=method, n=None)
    facts = {"correction": settings.together, "metric": quantity.metric, "every": every}
    add("together", "sampled", upper=claim, evidence=facts)
    for place, prompt in enumerate(prompts):
        add = partial(rows.add, "question", item=prompt.prompt_id, split="forget")
        if bounds:
            add("leak_together", "sampled", upper=bounds[place])
        add("certified_together", "sampled", passed[place])


class Worst(NamedTuple):
    """The prompt with the largest bound; ``bound`` covers the prompt that is truly the worst, whichever that is."""

    prompt_id: str
    bound: Bound


def of_prompts(rows: Sequence[Result], quantity: str, basis: str = "sampled") -> list[Result]:
    """The rows of a quantity of the prompts, in their order."""
    # The quantity goes first: a file of many prompts has forty rows of other quantities for each that is asked for.
    of_quantity = [row for row in rows if row.quantity == quantity and row.basis == basis]
    return [row for row in of_quantity if row.scope == "question" and row.split == "forget"]


def worst_of(rows: Sequence[Result], quantity: str, basis: str = "sampled") -> Worst | None:
    """The prompt with the largest upper end of a quantity; None where no prompt has one."""
    bounded = [row for row in of_prompts(rows, quantity, basis) if row.upper is not None]
    if not bounded:
        return None
    largest = max(bounded, key=lambda row: row.upper or 0.0)
    _, bound = many_prompts.worst_prompt([largest.upper_bound])
    return Worst(str(largest.item), bound)


def metric_of(rows: Sequence[Result]) -> str:
    """The metric by which prompts are compared: ``m_bin`` where every prompt's scores are 0 or 1, else ``m_mu``."""
    n_judged = len(of_prompts(rows, "leak"))
    n_scored = len(of_prompts(rows, "score"))
    if n_judged == n_scored:
        return "m_bin"
    return "m_mu"


def pooled_of(rows: Sequence[Result], alpha: float) -> Bound | None:
    """The upper bound of the average probability of a score of 1 over the prompts; None where no pooled bound is proven.

    A prompt with graded scores has no leaks, and `many_prompts.pooled` refuses the whole file then.
    """
    leaks_of_prompt = {row.item: row.estimate for row in of_prompts(rows, "leaks")}
    leaks = []
    sizes = []
    for row in of_prompts(rows, "answers"):
        leaks.append(leaks_of_prompt.get(row.item))
        sizes.append(int(row.estimate or 0))
    return many_prompts.pooled(leaks, sizes, alpha)


@without_collector()
def measure_file(rows: Rows, prompts: Sequence[PromptScores], settings: MeasureSettings) -> None:
    """Add the rows of a file of scores; where missing scores count as the worst, also those of the judged scores alone.

    Beside the rows of `measure_prompts` there are the worst prompt of each quantity of `WORST`, the pooled leak rate where
    its bound is proven, the mean over prompts like these, and the share of prompts whose bound exceeds the threshold.
    """
    alpha = settings.alpha
    measured = Rows(rows.model)
    rows_of_prompts = measure_prompts(measured, prompts, settings)
    single = [row for row in measured.rows if row.at is None]  # most rows are at a k or a threshold
    metric = metric_of(single)

    facts = {
        "alpha": alpha,
        "threshold": settings.share_above,
        "metric": metric,
        "missing": settings.missing,
    }
    rows.add("model", "settings", "sampled", evidence=facts)
    rows.rows += measured.rows
    if settings.missing == "worst":
        _rows_of_judged_alone(rows, prompts, rows_of_prompts, settings)

    for quantity in WORST:
        worst = worst_of(single, quantity)
        if worst:
            evidence = {"prompt_id": worst.prompt_id}
            add = partial(rows.add, "model", evidence=evidence)
            add(f"{quantity}_worst", "sampled", upper=worst.bound)
    average = pooled_of(single, alpha)
    if average:
        rows.add("model", "leak", "sampled", upper=average)
    if len(prompts) > 1:
        means = [row.estimate for row in of_prompts(single, "score")]
        _population_row(rows, prompts, means, settings, binary=metric == "m_bin")
    compared = of_prompts(single, *METRIC[metric])
    bounds = [row.upper_bound for row in compared]
    rows.add("model", "share_above", "sampled", share_above(bounds, settings.share_above))


def _rows_of_judged_alone(
    rows: Rows,
    prompts: Sequence[PromptScores],
    rows_of_prompts: Sequence[Sequence[Result]],
    settings: MeasureSettings,
) -> None:
    """Add the rows of each prompt from its judged scores alone, in the split `ALONE`; none for a prompt without any."""
    judged_alone = []
    for prompt in prompts:
        judged = prompt.scores[~np.isnan(prompt.scores)]
        if prompt.missing and len(judged):
            judged_alone.append(replace(prompt, scores=judged, missing=0))

    rate = counts_of([prompt.scores for prompt in judged_alone])
    again = _each(rows.model, judged_alone, settings, rate)
    again_by_prompt = {}
    for prompt, measured_again in zip(judged_alone, again, strict=True):
        again_by_prompt[prompt.prompt_id] = measured_again

    # A prompt without a missing score has the same rows in both splits.
    for prompt, measured in zip(prompts, rows_of_prompts, strict=True):
        alone = measured
        if prompt.missing:
            alone = again_by_prompt.get(prompt.prompt_id, [])
        rows.rows += [replace(row, split=ALONE) for row in alone]


def _population_row(
    rows: Rows,
    prompts: Sequence[PromptScores],
    means: Sequence[float | None],
    settings: MeasureSettings,
    binary: bool,
) -> None:
    """Add the expected score of a prompt like these, if they were drawn from a population of questions.

    Parameters
    ----------
    means
        The mean of the judged scores of each prompt; None where none is judged.
    binary
        Whether all scores are 0 or 1.
    """
    sizes = np.array([prompt.n for prompt in prompts])
    missing = np.array([prompt.missing for prompt in prompts])
    if settings.missing == "drop":
        missing = np.zeros_like(missing)

    # (prompts,) the mean with missing scores as 0, and as 1.
    share_missing = missing / sizes
    judged_means = np.nan_to_num(np.array(means, dtype=np.float64))
    low = judged_means * (1 - share_missing)
    high = np.minimum(low + share_missing, 1)

    alpha = settings.alpha
    is_verdict = binary and bool((sizes == 1).all())
    lower, upper, method = many_prompts.population_ends(low, high, alpha, is_verdict)
    guarantee = (alpha, Covers.POPULATION, Assumes.QUESTIONS, method, len(sizes))
    ends = both_ends(lower, upper, *guarantee)
    rows.add("model", "score_population", "sampled", mean(means), *ends)


def measure_stopped(rows: Rows, prompts: Sequence[PromptScores], settings: MeasureSettings) -> None:
    """Add the rows of prompts that a rule could stop early, each at its stopping time, and of the worst prompt.

    A log does not always record the order of the answers, so every bound is a bound at the stop, which needs no order. The
    bound on the standard deviation is sqrt(u (1 - u)) at the upper bound u of the mean (Bhatia and Davis 2000), or 1/2 if u
    is above 1/2. For scores of 0 and 1, the two bounds of the mean give the band of leak@k, whose estimates are missing,
    because a stopping rule biases them.
    """
    uppers = [_stopped_rows(rows, prompt, settings) for prompt in prompts]
    facts = {
        "alpha": settings.alpha,
        "threshold": settings.share_above,
        "metric": "anytime_upper",
        "fixed_bounds": REASON,
    }
    rows.add("model", "settings", "sampled", evidence=facts)
    place, worst = many_prompts.worst_prompt(uppers)
    evidence = {"prompt_id": prompts[place].prompt_id}
    rows.add("model", "score_worst", "anytime", upper=worst, evidence=evidence)
    rows.add("model", "share_above", "sampled", share_above(uppers, settings.share_above))


def _stopped_rows(rows: Rows, prompt: PromptScores, settings: MeasureSettings) -> Bound:
    """Add the rows of one prompt; return the upper bound of its mean.

    A missing score is 1 above and 0 below.
    """
    alpha = settings.alpha
    at_most = np.nan_to_num(prompt.scores, nan=1.0)
    at_least = np.nan_to_num(prompt.scores, nan=0.0)
    upper = stopped_upper(at_most, alpha)
    lower = 1 - stopped_upper(1 - at_least, alpha)
    guarantee = (alpha, Covers.ONE_PROMPT, Assumes.DRAWS, AT_THE_STOP, prompt.n)
    lower_end, upper_end = both_ends(lower, upper, *guarantee)
    largest_sd = LARGEST
    if upper < 0.5:
        largest_sd = math.sqrt(upper * (1 - upper))

    plain_rows(rows, prompt, settings.rho)
    add = partial(rows.add, "question", basis="anytime", item=prompt.prompt_id, split="forget")
    add("score", lower=lower_end, upper=upper_end)
    add("sd", upper=replace(upper_end, value=largest_sd))

    judged = prompt.scores[~np.isnan(prompt.scores)]
    if np.isin(judged, (0.0, 1.0)).all():
        add("leak", lower=lower_end, upper=upper_end)
        lows = at_least_once(lower, QUERIES)
        highs = at_least_once(upper, QUERIES)
        for k, low, high in zip(QUERIES, lows, highs, strict=True):
            least, most = both_ends(low, high, *guarantee)
            add("leak_at_k", lower=least, upper=most, at=float(k))
    return upper_end
