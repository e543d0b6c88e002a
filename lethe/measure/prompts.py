"""Rows of the bounds of each prompt and of all, from the scores of sampled answers: the only path of measurement. The
quantity of a joint claim is fixed beforehand: P(leak) by Clopper-Pearson for scores of 0 and 1, else the mean by betting.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import NamedTuple, TypeVar

import numpy as np

from lethe.config.evaluating import METRICS
from lethe.errors import BadInput, check
from lethe.io.cache import Levels
from lethe.measure.scores import Missing, PromptScores, mean, plain_rows, plain_statistics
from lethe.progress import progress
from lethe.results.licence import ROUNDING, containing, excluded, without_ends
from lethe.results.table import Result, Rows
from lethe.results.views import ALONE
from lethe.statistics import betting, many_prompts
from lethe.statistics.bound import Assumes, Bound, Covers, both_ends
from lethe.statistics.bounds import LARGEST, leak_bounds, paper_bounds, tighter_bounds
from lethe.statistics.checks import check_alpha
from lethe.statistics.counts import at_least_once, rate_bounds
from lethe.statistics.judge_error import METHOD as JUDGE_METHOD
from lethe.statistics.judge_error import Calibration
from lethe.statistics.leak_rates import QUERIES, Band, Rate
from lethe.statistics.many_prompts import share_above
from lethe.statistics.sequential import METHOD as AT_THE_STOP
from lethe.statistics.sequential import stopped_upper

REASON = "the question stopped early: bounds for a fixed number of samples do not hold; anytime-valid bounds replace them"
VALUES = 1 << 18  # of one matrix: a function that makes ten arrays of its size then needs 20 MiB
MANY = 100  # matrices; with more, the work takes seconds
SHOWN_QUERIES = 1000  # the number of queries in sentences
# The quantity and basis behind each metric by which prompts are compared.
METRIC = {
    "m_bin": ("leak", "sampled"),
    "m_mu": ("score", "sampled"),
    "anytime_upper": ("score", "anytime"),
}
WORST = (
    "score",
    "sd",
    "score_betting",
    "sd_betting",
    "leak",
)  # whose largest upper end has a row of its own
# The levels at which an order refutes independent draws; lower ones refute less. A betting bound at the level 0.01 lay below
# the mean of its own 150 independent draws of Bernoulli(0.1) in 5 of 20,000 questions, and all questions share the level.
CHANCE = 0.01
CHANCE_OF_MANY = 0.001
IN_ORDER = ("score_betting", "sd_betting")  # whose ends need the order of the draws
T = TypeVar("T")


@dataclass(frozen=True)
class MeasureSettings:
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


def by_length(rows: Sequence[np.ndarray], function: Callable[[np.ndarray], Sequence[T]]) -> list[T]:
    """Apply ``function``, which treats each row by itself, to `matrices`; return the results in the order of ``rows``."""
    results: dict[int, T] = {}
    for places, matrix in matrices(rows):
        results |= zip(places, function(matrix), strict=True)
    return [results[place] for place in range(len(rows))]


def matrices(rows: Sequence[np.ndarray]) -> Iterator[tuple[list[int], np.ndarray]]:
    """The rows as matrices of equally long ones, of at most `VALUES` values or one row, each with the places of its rows."""
    sizes, parts = np.array([len(row) for row in rows]), []
    order = np.argsort(sizes, kind="stable")
    for places in np.split(order, np.flatnonzero(np.diff(sizes[order])) + 1) if len(sizes) else []:
        most = max(1, VALUES // max(1, int(sizes[places[0]])))
        parts += [places[start : start + most].tolist() for start in range(0, len(places), most)]
    for part in progress(parts, "measure", "parts") if len(parts) > MANY else parts:
        yield part, np.stack([rows[place] for place in part])


def measure_prompts(
    rows: Rows,
    prompts: Sequence[PromptScores],
    settings: MeasureSettings,
    leaks: Sequence[np.ndarray | None] | None = None,
) -> list[list[Result]]:
    """Add high-probability bounds on the scores of each prompt, and what holds of all prompts; return those of each.

    ``leaks`` are the scores of a 0/1 scorer on the same answers, None for a prompt out of its scope; by default the scores
    themselves, where all are 0 or 1.

    Each bound holds by itself with probability 1 - alpha for its prompt, assuming independent draws of the prompt.
    ``settings.together`` adds joint statements on all prompts.

    >>> rows = Rows("model")
    >>> prompts = [PromptScores("a", np.array([0, 0, 1, 0])), PromptScores("b", np.zeros(4))]
    >>> _ = measure_prompts(rows, prompts, MeasureSettings(alpha=0.05))
    >>> worst = worst_of(rows.rows, "leak")
    >>> worst.prompt_id, worst.bound.significant()
    ('a', '0.7514')
    """
    rate = counts_of([prompt.scores for prompt in prompts] if leaks is None else leaks)
    each, add = (
        _each(rows.model, prompts, settings, rate),
        partial(rows.add, "model", split="forget"),
    )
    rows.rows += [row for own in each for row in own]
    judged = [place for place, count in enumerate(rate.leaks) if not math.isnan(count)]
    counted = Rate(rate.leaks[judged], rate.n[judged], rate.missing[judged])
    # A 0/1 scorer is about the prompts in its scope. In a file that mixes 0/1 prompts with graded ones, which prompts seem
    # to be of 0 and 1 depends on the draws, so nothing is said of them together.
    binary = bool(judged) and (leaks is not None or len(judged) == len(prompts))
    if binary:
        band_rows(add, "leak_at_k_worst", "sampled", counted.worst(settings.alpha, QUERIES))
        band_rows(add, "leak_at_k", "sampled", counted.mean(settings.alpha, QUERIES))
    if settings.calibration:
        names = [prompts[place].prompt_id for place in judged] if binary else []
        _judged_rows(rows, names, replace(counted, judge=settings.calibration), settings.alpha)
    if settings.together != "none":
        about = [prompts[place] for place in judged] if binary else prompts
        _together_rows(rows, about, counted, settings, binary)
    return each


def counts_of(scores: Sequence[np.ndarray | None]) -> Rate:
    """The scores of 1, the draws and the missing scores of each prompt; NaN leaks unless all its scores are 0 or 1."""
    counts = []
    for own in scores:
        judged = np.array([math.nan]) if own is None else own[~np.isnan(own)]
        leaks = judged.sum() if ((judged == 0) | (judged == 1)).all() else math.nan
        counts.append((leaks, *((1, 0) if own is None else (len(own), len(own) - len(judged)))))
    leaks, n, missing = np.array(counts, dtype=np.float64).reshape(-1, 3).T
    return Rate(leaks, n.astype(np.int64), np.where(np.isnan(leaks), 0, missing).astype(np.int64))


def _each(
    model: str, prompts: Sequence[PromptScores], settings: MeasureSettings, rate: Rate
) -> list[list[Result]]:
    """The rows of each prompt by itself; prompts with equally many scores share one vectorised call."""
    if not prompts:
        return []
    alpha, thresholds, levels = (
        settings.alpha,
        np.asarray(settings.thresholds, dtype=np.float64),
        Levels(),
    )
    rows = [Rows(model) for _ in prompts]
    named = zip(rows, prompts, strict=True)
    add = [
        partial(own.add, "question", item=prompt.prompt_id, split="forget") for own, prompt in named
    ]
    for places, matrix in matrices([prompt.scores for prompt in prompts]):
        paper = paper_bounds(matrix, alpha, thresholds, missing="worst")
        sharp = tighter_bounds(matrix, alpha, thresholds, levels, missing="worst")
        bounds = [paper.bounds(name) for name in ("m_mu_lower", "m_mu", "m_sigma")]
        bounds += [sharp.bounds(name) for name in ("mean_lower", "mean_upper", "sd_upper")]
        tails = zip(paper.tables("m_gen_lower"), paper.tables("m_gen"), sharp.tables(), strict=True)
        for place, tail, *each in zip(places, tails, *bounds, strict=True):
            lower, upper, sd, betting_lower, betting_upper, betting_sd = each
            plain = plain_statistics(prompts[place].scores, settings.rho)
            add[place]("answers", "sampled", prompts[place].n)
            add[place]("unscored", "sampled", prompts[place].missing)
            add[place]("max", "sampled", plain["max"])
            add[place]("ed_score", "sampled", plain["ed_score"])
            add[place]("score", "sampled", plain["score"], lower, upper)
            add[place]("score_betting", "sampled", None, betting_lower, betting_upper)
            add[place]("sd", "sampled", plain["sd"], None, sd)
            add[place]("sd_betting", "sampled", None, None, betting_sd)
            for x, lower, upper, sharper in zip(settings.thresholds, *tail, strict=True):
                add[place]("exceedance", "sampled", None, lower, upper, at=x)
                add[place]("exceedance_sharper", "sampled", None, None, sharper, at=x)
            add[place]("exceedance_method", "sampled", text=sharp.exceedance_method)
    ends, band = rate_bounds(rate.leaks, rate.n, alpha, rate.missing), rate.each(alpha, QUERIES)
    for place, own in enumerate(add):
        if not math.isnan(rate.leaks[place]):
            called, n, missing = (
                int(counts[place]) for counts in (rate.leaks, rate.n, rate.missing)
            )
            guarantee = (alpha, Covers.ONE_PROMPT, Assumes.DRAWS, "Clopper-Pearson", n)
            share = called / (n - missing) if n > missing else None
            both = both_ends(*(end[place] for end in ends), *guarantee)
            evidence = {"leaks": called, "n": n, "missing": missing}
            own("leak", "sampled", share, *both, missing=missing, evidence=evidence)
            own("leaks", "sampled", called + missing)
            own("unjudged", "sampled", missing)
        band_rows(own, "leak_at_k", "sampled", band, place)
    return _in_plausible_order([own.rows for own in rows], prompts, alpha)


def _in_plausible_order(
    rows: list[list[Result]], prompts: Sequence[PromptScores], alpha: float
) -> list[list[Result]]:
    """The rows of each prompt, of which no bound excludes the mean or the spread of its own scores, but where this tells.

    A bound by betting depends on the order of the draws. Independent draws bring, rarely, an order in which it excludes the
    mean of the same draws: where chance explains that, the bound moves outward to the mean. Where chance does not, an upper
    bound below the mean stays, for `lethe.results.licence.below_own_mean` to find; after any other order, such as that of
    a sorted file, the bounds that need the order are left out.

    Chance is refused if a bound at the level `CHANCE`, shared by all prompts, excludes the mean too; or if so many of the
    prompts are excluded at alpha that this has at most the probability `CHANCE_OF_MANY`.
    """
    suspects = [place for place, row in enumerate(rows) if excluded(row)]
    if not suspects:
        return rows
    from scipy.stats import binom  # half a second to import, for a rare case

    many = float(binom.sf(len(suspects) - 1, len(prompts), alpha))
    too_many = alpha <= 0.1 and many <= CHANCE_OF_MANY
    level = min(alpha, CHANCE / len(prompts))
    plausible = list(rows)
    for place in suspects:
        if not (too_many or _refutes_its_order(prompts[place].scores, level)):
            plausible[place] = _moved_outward(rows[place])
        elif not any(found.is_below_the_mean for found in excluded(rows[place])):
            plausible[place] = [
                without_ends(row) if row.quantity in IN_ORDER else row for row in rows[place]
            ]
    return plausible


def _refutes_its_order(scores: np.ndarray, level: float) -> bool:
    """Whether bounds at ``level`` exclude the mean or the standard deviation of the scores of a prompt."""
    table = scores[None, :]
    high, low = (np.nan_to_num(table, nan=worst) for worst in (1.0, 0.0))
    ends = betting.all_ends(low, high, level, betting.predictable_squares(table))
    least, most, squares = (float(end[0]) for end in ends)
    plain = plain_statistics(scores, rho=0.0)
    outside_mean = not least - ROUNDING <= plain["score"] <= most + ROUNDING
    return outside_mean or plain["sd"] > math.sqrt(squares) + ROUNDING


def refuted_by_order(prompts: Sequence[PromptScores]) -> tuple[str, ...]:
    """The prompts whose mean lies above its own upper bound at the level `CHANCE`, shared by all of them."""
    level = CHANCE / max(1, len(prompts))
    filled = [np.nan_to_num(prompt.scores, nan=1.0) for prompt in prompts]
    uppers = by_length(filled, lambda rows: betting.mean_upper(rows, level).tolist())
    means = [plain_statistics(prompt.scores, rho=0.0)["score"] for prompt in prompts]
    return tuple(
        prompt.prompt_id
        for prompt, upper, mean in zip(prompts, uppers, means, strict=True)
        if mean > upper + ROUNDING
    )


def _moved_outward(rows: Sequence[Result]) -> list[Result]:
    values = {id(found.row): found.value for found in excluded(rows)}
    return [containing(row, values[id(row)]) if id(row) in values else row for row in rows]


def band_rows(
    add: Callable[..., None], quantity: str, basis: str, band: Band, row: int | None = None
) -> None:
    """Add a row for each k of a band, or of one ``row`` of its tables; none where its ends do not exist.

    The band is the result: an estimate has no guarantee, and lies above the band for k close to the number of answers.
    """
    estimates = band.estimate if row is None else band.estimate[row]
    for place, (k, estimate) in enumerate(zip(band.k.tolist(), estimates.tolist(), strict=True)):
        if ends := band.bounds(row, place):
            add(quantity, basis, estimate, *ends, at=float(k))


def _judged_rows(rows: Rows, names: Sequence[str], rate: Rate, alpha: float) -> None:
    """Add bounds of the true leak probability from the verdicts and the judge's measured error."""
    judge = rate.judge
    if judge is None or not names:
        problem = "A calibration needs verdicts, and the scores are not all 0 or 1."
        raise BadInput(f"{problem} Give the judge's verdicts as the scores.")
    one, many, fits = rate.each(alpha), rate.each(alpha, QUERIES), rate.fits(alpha)
    for place, name in enumerate(names):
        add = partial(rows.add, "question", item=name, split="forget")
        add("leak", "judged", float(one.estimate[place, 0]), *(one.bounds(place) or ()))
        add("judge_fits", "judged", bool(fits[place]))
        band_rows(add, "leak_at_k", "judged", many, place)
    worst, add = rate.worst(alpha, QUERIES), partial(rows.add, "model", split="forget")
    if ends := worst.bounds():
        add("leak_worst", "judged", None, *ends)
    if (rate.n == rate.n[0]).all():
        average = rate.average(alpha)
        add("leak", "judged", float(average.estimate[0]), *(average.bounds() or ()))
    band_rows(add, "leak_at_k_worst", "judged", worst)
    band_rows(add, "leak_at_k", "judged", rate.mean(alpha, QUERIES))
    error, counts = judge.error(alpha / 3), asdict(judge)
    for name in ("sensitivity", "false_positive"):
        ends = both_ends(
            *getattr(error, name), error.alpha, Covers.AVERAGE, judge.assumes(), JUDGE_METHOD
        )
        rows.add("model", name, "judged", getattr(judge, name), *ends, evidence=counts)
    rows.add("model", "labels", "judged", judge.leaks + judge.clean)
    rows.add("model", "judge_fits", "judged", bool(fits.all()))


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
    filled = [np.nan_to_num(prompt.scores, nan=1.0) for prompt in prompts]
    counts, sizes = counted.leaks + counted.missing, np.array([len(own) for own in filled])
    tau, alpha = settings.share_above, settings.alpha

    def uppers(level: float) -> list[Bound]:
        if binary:
            return leak_bounds(counts, sizes, level)
        values = by_length(filled, lambda rows: betting.mean_upper(rows, level).tolist())
        how = (level, Covers.ONE_PROMPT, Assumes.DRAWS_IN_ORDER, "betting")
        return [
            Bound(value, "upper", *how, n) for value, n in zip(values, sizes.tolist(), strict=True)
        ]

    (every, all_at_once), bounds = (
        many_prompts.every_prompt_under(uppers(alpha), tau),
        list[Bound](),
    )
    if settings.together == "bonferroni":
        bounds = many_prompts.bonferroni(uppers, len(prompts), alpha)
        passed, method = [bound.value <= tau for bound in bounds], bounds[0].method
    else:  # the p-values of "the quantity of this prompt is at least tau"
        p_values = (
            many_prompts.binary_p_value(counts, sizes, tau)
            if binary
            else by_length(filled, lambda rows: betting.p_value(rows, tau, alpha).tolist())
        )
        passed, method = many_prompts.holm(np.array(p_values), tau, alpha)[0].tolist(), "Holm"
    claim = replace(all_at_once, covers=Covers.CERTIFIED, method=method, n=None)
    rows.add("model", "certified_together", "sampled", sum(passed), split="forget")
    facts = {
        "correction": settings.together,
        "metric": "m_bin" if binary else "mean_upper",
        "every": every,
    }
    rows.add("model", "together", "sampled", None, None, claim, evidence=facts, split="forget")
    for place, prompt in enumerate(prompts):
        add = partial(rows.add, "question", item=prompt.prompt_id, split="forget")
        if bounds:
            add("leak_together", "sampled", None, None, bounds[place])
        add("certified_together", "sampled", passed[place])


class Worst(NamedTuple):
    """The prompt with the largest bound; ``bound`` covers the worst of the prompts."""

    prompt_id: str
    bound: Bound


def of_prompts(rows: Sequence[Result], quantity: str, basis: str = "sampled") -> list[Result]:
    """The rows of a quantity of the prompts, in their order."""
    about = ("question", quantity, basis, "forget")
    return [row for row in rows if (row.scope, row.quantity, row.basis, row.split) == about]


def worst_of(rows: Sequence[Result], quantity: str, basis: str = "sampled") -> Worst | None:
    """The prompt with the largest upper end of a quantity; None where no prompt has one."""
    own = [row for row in of_prompts(rows, quantity, basis) if row.upper is not None]
    if not own:
        return None
    place, bound = many_prompts.worst_prompt([row.upper_bound for row in own])
    return Worst(str(own[place].item), bound)


def metric_of(rows: Sequence[Result]) -> str:
    """The metric by which prompts are compared: ``m_bin`` where every prompt's scores are 0 or 1, else ``m_mu``."""
    return "m_bin" if len(of_prompts(rows, "leak")) == len(of_prompts(rows, "score")) else "m_mu"


def pooled_of(rows: Sequence[Result], alpha: float) -> Bound | None:
    """The bound of the average probability of a score of 1 over the prompts, where a pooled bound is proven."""
    counts = {row.item: row.estimate for row in of_prompts(rows, "leaks")}
    sizes = {row.item: int(row.estimate or 0) for row in of_prompts(rows, "answers")}
    return many_prompts.pooled([counts.get(item) for item in sizes], list(sizes.values()), alpha)


def measure_file(rows: Rows, prompts: Sequence[PromptScores], settings: MeasureSettings) -> None:
    """Add the rows of a file of scores; where missing scores count as the worst, also those of the judged scores alone."""
    measured, alpha = Rows(rows.model), settings.alpha
    each = dict(
        zip(
            (p.prompt_id for p in prompts),
            measure_prompts(measured, prompts, settings),
            strict=True,
        )
    )
    metric = metric_of(measured.rows)
    facts = {
        "alpha": alpha,
        "threshold": settings.share_above,
        "metric": metric,
        "missing": settings.missing,
    }
    rows.add("model", "settings", "sampled", evidence=facts)
    rows.rows += measured.rows
    if settings.missing == "worst":
        judged = [
            replace(p, scores=p.scores[~np.isnan(p.scores)], missing=0)
            for p in prompts
            if p.missing
        ]
        left = [prompt for prompt in judged if prompt.n]
        again = _each(rows.model, left, settings, counts_of([prompt.scores for prompt in left]))
        alone = {prompt.prompt_id: own for prompt, own in zip(left, again, strict=True)}
        for prompt in prompts:
            own = alone.get(prompt.prompt_id, []) if prompt.missing else each[prompt.prompt_id]
            rows.rows += [replace(row, split=ALONE) for row in own]
    for quantity in WORST:
        if worst := worst_of(measured.rows, quantity):
            evidence = {"prompt_id": worst.prompt_id}
            rows.add(
                "model", f"{quantity}_worst", "sampled", None, None, worst.bound, evidence=evidence
            )
    if average := pooled_of(measured.rows, alpha):
        rows.add("model", "leak", "sampled", None, None, average)
    if len(prompts) > 1:  # the expected score of a prompt like these
        means = [row.estimate for row in of_prompts(measured.rows, "score")]
        sizes = np.array([prompt.n for prompt in prompts])
        absent = (
            np.array([0 if settings.missing == "drop" else prompt.missing for prompt in prompts])
            / sizes
        )
        low = np.nan_to_num(np.array(means, dtype=np.float64)) * (1 - absent)
        binary = metric == "m_bin" and bool((sizes == 1).all())
        *ends, method = many_prompts.population_ends(
            low, np.minimum(low + absent, 1), alpha, binary
        )
        both = both_ends(*ends, alpha, Covers.POPULATION, Assumes.QUESTIONS, method, len(sizes))
        rows.add("model", "score_population", "sampled", mean(means), *both)
    bounds = [row.upper_bound for row in of_prompts(measured.rows, *METRIC[metric])]
    rows.add("model", "share_above", "sampled", share_above(bounds, settings.share_above))


def measure_stopped(rows: Rows, prompts: Sequence[PromptScores], settings: MeasureSettings) -> None:
    """Add the rows of prompts that a rule could stop early, each at its stopping time, and of the worst prompt.

    A log does not always record the order of the answers, so every bound is a bound at the stop, which needs no order. The
    bound on the standard deviation is sqrt(u (1 - u)) at the upper bound u of the mean (Bhatia and Davis 2000), or 1/2 if u
    is above 1/2. For scores of 0 and 1, the two bounds of the mean give the band of leak@k, whose estimates are missing,
    because a stopping rule biases them.
    """
    uppers = [_stopped_rows(rows, prompt, settings) for prompt in prompts]
    facts = {"alpha": settings.alpha, "threshold": settings.share_above, "metric": "anytime_upper"}
    rows.add("model", "settings", "sampled", evidence=facts | {"fixed_bounds": REASON})
    place, worst = many_prompts.worst_prompt(uppers)
    evidence = {"prompt_id": prompts[place].prompt_id}
    rows.add("model", "score_worst", "anytime", None, None, worst, evidence=evidence)
    rows.add("model", "share_above", "sampled", share_above(uppers, settings.share_above))


def _stopped_rows(rows: Rows, prompt: PromptScores, settings: MeasureSettings) -> Bound:
    """Add the rows of one prompt; return the upper bound of its mean."""
    judged, alpha = prompt.scores[~np.isnan(prompt.scores)], settings.alpha
    upper = stopped_upper(np.nan_to_num(prompt.scores, nan=1.0), alpha)
    lower = 1 - stopped_upper(1 - np.nan_to_num(prompt.scores, nan=0.0), alpha)
    guarantee = (alpha, Covers.ONE_PROMPT, Assumes.DRAWS, AT_THE_STOP, prompt.n)
    ends = both_ends(lower, upper, *guarantee)
    sd = replace(ends[1], value=LARGEST if upper >= 0.5 else math.sqrt(upper * (1 - upper)))
    plain_rows(rows, prompt, settings.rho)
    add = partial(rows.add, "question", item=prompt.prompt_id, split="forget")
    add("score", "anytime", None, *ends)
    add("sd", "anytime", None, None, sd)
    if np.isin(judged, (0.0, 1.0)).all():
        add("leak", "anytime", None, *ends)
        for k, low, high in zip(
            QUERIES, at_least_once(lower, QUERIES), at_least_once(upper, QUERIES), strict=True
        ):
            add("leak_at_k", "anytime", None, *both_ends(low, high, *guarantee), at=float(k))
    return ends[1]
