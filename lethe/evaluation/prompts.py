"""Bounds of each prompt and of all prompts from the scores of sampled answers: the only path of measurement.

`lethe bounds`, the stage metrics, `lethe eval` and the leakage of the text game all call `measure_prompts`. A missing
score counts as 1 in an upper bound and as 0 in a lower bound, so both stay valid. The plain statistics are over the judged
scores only.
"""

from __future__ import annotations

import math
from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from lethe.errors import plural
from lethe.evaluation.joint import (
    QUANTITY,
    JudgedMeasures,
    MeasureSettings,
    OverPrompts,
    TogetherResult,
    by_length,
    each_leak_at_k,
    hold_together,
    judged_measures,
    leak_at_k_over,
)
from lethe.evaluation.scores import ALL, Plain, PromptScores, Scores, as_prompts
from lethe.results.table import both_ends
from lethe.statistics.bound import Assumes, Bound, Covers
from lethe.statistics.bounds import paper_bounds, possible, tighter_bounds
from lethe.statistics.many_prompts import pooled, population_ends, share_above, worst_prompt

if TYPE_CHECKING:
    from lethe.results.table import Rows

SHOWN = 20  # prompts in a table for people
DKW = ("m_mu", "m_mu_lower", "m_sigma")
BINARY = ("m_bin", "m_bin_lower")
TIGHTER = ("mean_upper", "mean_lower", "sd_upper")
# A model's quantity of the worst question -> the bound of `PromptMeasure`.
WORST = {
    "score_worst": "m_mu",
    "sd_worst": "m_sigma",
    "score_betting_worst": "mean_upper",
    "sd_betting_worst": "sd_upper",
    "leak_worst": "m_bin",
}

Levels = MutableMapping[tuple[int, float], float]


@dataclass(frozen=True, slots=True)
class Tail:
    """Bounds on the probability of a score above ``x``; ``tighter`` is an upper bound by a sharper method."""

    x: float
    upper: Bound
    lower: Bound
    tighter: Bound


@dataclass(frozen=True, slots=True)
class PromptMeasure:
    """The statistics and bounds of one prompt.

    The plain statistics are over the judged scores, and NaN if there are none. ``m_bin`` and ``m_bin_lower`` bound the
    probability of a score of 1; both are None unless all scores are 0 or 1. ``leaking`` counts the scores of 1 and the
    missing scores, ``leaks_missing`` only the missing scores. Where missing scores count as the worst, ``judged`` is the same
    measure over the judged scores only.
    """

    prompt_id: str
    n: int
    missing: int
    mean: float
    sd: float
    max: float
    ed_score: float
    m_mu: Bound
    m_mu_lower: Bound
    m_sigma: Bound
    tails: tuple[Tail, ...]
    mean_upper: Bound
    mean_lower: Bound
    sd_upper: Bound
    exceedance_method: str
    leaking: float | None = None
    m_bin: Bound | None = None
    m_bin_lower: Bound | None = None
    leaks_missing: int = 0
    judged: PromptMeasure | None = None

    def bounds(self) -> dict[str, Bound]:
        """The bounds that the prompt has, by name."""
        every = {name: getattr(self, name) for name in (*DKW, *BINARY)}
        every |= {f"tighter_{name}": getattr(self, name) for name in TIGHTER}
        return {name: bound for name, bound in every.items() if bound is not None}

    def to_rows(self, rows: Rows) -> None:
        add = partial(rows.add, "question", item=self.prompt_id, split="forget")
        add("answers", "sampled", self.n)
        add("unscored", "sampled", self.missing)
        add("max", "sampled", self.max)
        add("ed_score", "sampled", self.ed_score)
        add("score", "sampled", self.mean, self.m_mu_lower, self.m_mu)
        add("score_betting", "sampled", None, self.mean_lower, self.mean_upper)
        add("sd", "sampled", self.sd, None, self.m_sigma)
        add("sd_betting", "sampled", None, None, self.sd_upper)
        for tail in self.tails:
            add("exceedance", "sampled", None, tail.lower, tail.upper, at=tail.x)
            add("exceedance_sharper", "sampled", None, None, tail.tighter, at=tail.x)
        add("exceedance_method", "sampled", text=self.exceedance_method)
        if self.leaking is not None:
            missing, called = self.leaks_missing, int(self.leaking) - self.leaks_missing
            counts = {"leaks": called, "n": self.n, "missing": missing}
            ends = (self.m_bin_lower, self.m_bin)
            add("leak", "sampled", self.leak_share, *ends, missing=missing, evidence=counts)
            add("leaks", "sampled", self.leaking)
            add("unjudged", "sampled", missing)

    @property
    def leak_share(self) -> float:
        """The share of the judged answers that leak; NaN where none is judged."""
        judged = self.n - self.leaks_missing
        return math.nan if self.leaking is None or not judged else (self.leaking - self.leaks_missing) / judged


@dataclass(frozen=True)
class Worst:
    """The prompt with the largest bound of a metric; ``bound`` covers the worst of the prompts."""

    prompt_id: str
    metric: str
    bound: Bound


@dataclass(frozen=True)
class PromptMeasures:
    """The measures of each prompt and of all prompts; see `measure_prompts`."""

    settings: MeasureSettings
    prompts: tuple[PromptMeasure, ...]
    together: TogetherResult | None = None

    def __getitem__(self, prompt_id: str) -> PromptMeasure:
        return {prompt.prompt_id: prompt for prompt in self.prompts}[prompt_id]

    @property
    def metric(self) -> str:
        """``m_bin`` where every prompt's scores are 0 or 1, else ``m_mu``."""
        return "m_bin" if all(prompt.m_bin is not None for prompt in self.prompts) else "m_mu"

    def column(self, name: str) -> list[Bound | None]:
        return [getattr(prompt, name) for prompt in self.prompts]

    def worst(self, name: str | None = None) -> Worst | None:
        """The prompt with the largest bound called ``name`` (default: `metric`); None where no prompt has one."""
        name = name or self.metric
        bounds = self.column(name)
        if all(bound is None for bound in bounds):
            return None
        place, bound = worst_prompt(bounds)
        return Worst(self.prompts[place].prompt_id, name, bound)

    @property
    def pooled(self) -> Bound | None:
        """The bound of the average probability of a score of 1 over the prompts, where a pooled bound is proven."""
        counts, sizes = [prompt.leaking for prompt in self.prompts], [prompt.n for prompt in self.prompts]
        return pooled(counts, sizes, self.settings.alpha)

    @cached_property
    def population(self) -> tuple[Bound, Bound] | None:
        """Ends of the expected score of a prompt like these, each at alpha; None for a single prompt."""
        if len(self.prompts) < 2:
            return None
        sizes = np.array([prompt.n for prompt in self.prompts])
        dropped = self.settings.missing == "drop"
        absent = np.array([0 if dropped else prompt.missing for prompt in self.prompts]) / sizes
        low = np.nan_to_num([prompt.mean for prompt in self.prompts]) * (1 - absent)
        binary, alpha = self.metric == "m_bin" and bool((sizes == 1).all()), self.settings.alpha
        *ends, method = population_ends(low, np.minimum(low + absent, 1), alpha, binary)
        return both_ends(*ends, alpha, Covers.POPULATION, Assumes.QUESTIONS, method, len(sizes))

    def share_above(self, name: str | None = None) -> float | None:
        """The share of prompts whose bound called ``name`` exceeds ``settings.share_above``: no joint guarantee."""
        return share_above(self.column(name or self.metric), self.settings.share_above)

    @cached_property
    def leak_at_k(self) -> OverPrompts | None:
        """Leak@k of the worst prompt and of the mean, over the prompts with 0/1 scores; None if there is no such prompt."""
        return leak_at_k_over(self.prompts, self.settings.alpha)

    @cached_property
    def judged(self) -> JudgedMeasures | None:
        """Bounds of the true leak probability, including the judge's error; None without ``settings.calibration``."""
        known = self.settings.calibration
        return None if known is None else judged_measures(self.prompts, known, self.settings.alpha)

    def to_rows(self, rows: Rows) -> None:
        for prompt, points in zip(self.prompts, each_leak_at_k(self.prompts, self.settings.alpha), strict=True):
            prompt.to_rows(rows)
            for point in points or ():
                point.to_row(rows, "question", "leak_at_k", "sampled", prompt.prompt_id)
        for joint in (self.leak_at_k, self.judged, self.together):
            if joint:
                joint.to_rows(rows)

    def sentences(self) -> list[str]:
        worst, share, of = self.worst(), self.share_above(), f"the {plural(len(self.prompts), 'prompt')}"
        first = self.prompts[0].mean_upper
        lines = [f"Each bound of a prompt: {first.guarantee(of)}."]
        if worst:
            lines.append(
                f"{worst.bound.sentence(f'{QUANTITY[worst.metric]} ({worst.metric})', of)} "
                f"The bound is that of {worst.prompt_id}."
            )
        if self.pooled:
            lines.append(self.pooled.sentence(QUANTITY["m_bin"], of))
        if self.population:
            least, most = self.population
            lines.append(
                f"{QUANTITY['m_mu'].capitalize()} is {least.significant()} to {most.significant()} {most.on(of)}, each side "
                f"{most.level()}, assuming {most.assumes} ({most.method})."
            )
        for joint in (self.leak_at_k, self.judged):
            lines += joint.sentences(of) if joint else []
        if share is not None:
            lines.append(
                f"Share of prompts whose {self.metric} exceeds {self.settings.share_above:g}: {share:.3f} "
                "(a count, no joint guarantee)."
            )
        return lines + (self.together.sentences(of) if self.together else [])

    def judged_alone(self) -> tuple[PromptMeasure, ...]:
        """The measures of the judged scores alone, of the prompts that have any; set by `measure_file`."""
        return tuple(prompt.judged for prompt in self.prompts if prompt.judged)

    def table(self) -> tuple[list[str], list[list[str | int | float | Bound | None]]]:
        head = ["prompt", "n", "mean", "mean <= (betting)", "M_mu", "M_bin", "sd", "sd <= (betting)"]
        return head, [
            [p.prompt_id, p.n, p.mean, p.mean_upper, p.m_mu, p.m_bin, p.sd, possible(p.sd_upper)]
            for p in self.prompts[:SHOWN]
        ]


def measure_prompts(
    scores: Scores,
    settings: MeasureSettings | None = None,
    leaks: Sequence[np.ndarray | None] | None = None,
    levels: Levels | None = None,
) -> PromptMeasures:
    """High-probability bounds on the scores of each prompt, of the worst one, and of the average.

    Notes
    -----
    Each bound holds by itself with probability 1 - alpha for its prompt, assuming independent draws of the prompt. The
    largest bound covers the worst prompt without a correction; ``settings.together`` adds joint statements on all prompts.

    Examples
    --------
    >>> found = measure_prompts({"a": [0, 0, 1, 0], "b": [0, 0, 0, 0]}, MeasureSettings(alpha=0.05))
    >>> worst = found.worst()
    >>> worst.prompt_id, worst.bound.significant()
    ('a', '0.7514')
    >>> found.pooled.n
    8
    """
    settings = settings or MeasureSettings()
    given = as_prompts(scores, settings.missing)
    measured = measure_each(given, settings, levels)
    if leaks is not None:
        measured = _with_leaks(measured, leaks, settings)
    together = None
    if settings.together != "none":
        together = hold_together(measured, [prompt.scores for prompt in given], settings, leaks is not None)
    return PromptMeasures(settings, tuple(measured), together)


def measure_each(
    prompts: Sequence[PromptScores], settings: MeasureSettings, levels: Levels | None = None
) -> list[PromptMeasure]:
    """Measure each prompt by itself; prompts with equally many scores share one vectorised call."""
    if levels is None:
        from lethe.io.cache import Levels as LevelsOnDisk

        levels = LevelsOnDisk()
    known = levels
    measured = by_length([prompt.scores for prompt in prompts], lambda rows: _equally_many(rows, settings, known))
    return [
        replace(measure, prompt_id=prompt.prompt_id, missing=prompt.missing)
        for prompt, measure in zip(prompts, measured, strict=True)
    ]


def _equally_many(scores: np.ndarray, settings: MeasureSettings, levels: Levels) -> list[PromptMeasure]:
    """Measure prompts of n scores each, (prompts, n); NaN counts as the worst. The measures have no prompt id yet."""
    alpha, thresholds = settings.alpha, np.asarray(settings.thresholds, dtype=np.float64)
    paper = paper_bounds(scores, alpha, thresholds, missing="worst")
    sharp = tighter_bounds(scores, alpha, thresholds, levels, missing="worst")
    bounds: dict[str, Any] = {name: paper.bounds(name) for name in DKW} | {
        name: sharp.bounds(name) for name in TIGHTER
    }
    tails = zip(paper.tables("m_gen"), paper.tables("m_gen_lower"), sharp.tables(), strict=True)
    measures = []
    for place, (own, tables, leak) in enumerate(zip(scores, tails, paper.leaks(), strict=True)):
        judged = own[~np.isnan(own)]
        measure = PromptMeasure(
            prompt_id=ALL,
            n=paper.n,
            missing=0,
            tails=tuple(Tail(*each) for each in zip(settings.thresholds, *tables, strict=True)),
            exceedance_method=sharp.exceedance_method,
            **Plain.of(judged, settings.rho)._asdict(),
            **{name: each[place] for name, each in bounds.items()},
        )
        measures.append(_leaking(measure, leak, len(own) - len(judged)))
    return measures


def _with_leaks(
    measured: Sequence[PromptMeasure], leaks: Sequence[np.ndarray | None], settings: MeasureSettings
) -> list[PromptMeasure]:
    """The measures with ``m_bin`` from the 0/1 score of the same answers."""
    asked, nothing = [own for own in leaks if own is not None], np.array([])
    judged = iter(
        by_length(asked, lambda rows: paper_bounds(rows, settings.alpha, nothing, missing="worst").leaks())
    )
    return [
        _leaking(measure, None, 0) if own is None else _leaking(measure, next(judged), int(np.isnan(own).sum()))
        for measure, own in zip(measured, leaks, strict=True)
    ]


def _leaking(measure: PromptMeasure, leak: tuple[float, Bound, Bound] | None, missing: int) -> PromptMeasure:
    count, upper, lower = leak or (None, None, None)
    absent = 0 if count is None else missing
    return replace(measure, leaking=count, m_bin=upper, m_bin_lower=lower, leaks_missing=absent)
