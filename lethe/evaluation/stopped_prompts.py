"""Prompts whose sampling was stopped by a rule that looked at the answers: only anytime-valid values hold.

A log does not always record the order of the answers, so every bound is a bound at the stop, which needs no order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lethe.errors import plural
from lethe.evaluation.leaks_at_k import LeakPoint, Points
from lethe.evaluation.prompt_scores import PromptScores
from lethe.evaluation.prompts import SHOWN, Worst
from lethe.evaluation.together import QUANTITY, REASON, MeasureSettings
from lethe.statistics.bound import Assumes, Bound, Covers, Side
from lethe.statistics.bounds import LARGEST
from lethe.statistics.counts import at_least_once
from lethe.statistics.leak_rates import QUERIES
from lethe.statistics.many_prompts import share_above, worst_prompt
from lethe.statistics.sequential import METHOD, stopped_upper

METRIC = "anytime_upper"


@dataclass(frozen=True, slots=True)
class StoppedPrompt:
    """One prompt: plain statistics over the judged scores (NaN if there are none), and anytime-valid bounds.

    ``leak_at_k`` is None unless all judged scores are 0 or 1. Its estimates are NaN, because a stopping rule biases them.
    """

    prompt_id: str
    n: int
    missing: int
    mean: float
    sd: float
    max: float
    ed_score: float
    upper: Bound
    lower: Bound
    sd_upper: Bound
    leak_at_k: Points | None

    def row(self) -> dict[str, object]:
        """The entry of ``per_prompt`` in JSON: the bounds, and the keys of a fixed sample as null with the reason."""
        return {
            "prompt_id": self.prompt_id,
            "n": self.n,
            "mean": self.mean,
            "sd": self.sd,
            "max": self.max,
            "ed_score": self.ed_score,
            **dict.fromkeys(("m_bin", "m_bin_lower", "m_mu", "m_mu_lower", "m_sigma", "m_gen", "tighter")),
            "fixed_bounds": REASON,
            "leak_at_k": self.leak_at_k and [point.row() for point in self.leak_at_k],
            "anytime_upper": self.upper.value,
            "anytime_lower": self.lower.value,
            "anytime_sd_upper": self.sd_upper.value,
            "missing": self.missing,
        }


@dataclass(frozen=True)
class StoppedPrompts:
    """The measures of the prompts of a run that a rule may have stopped."""

    settings: MeasureSettings
    prompts: tuple[StoppedPrompt, ...]

    def worst(self) -> Worst:
        """The prompt with the largest bound."""
        place, bound = worst_prompt([prompt.upper for prompt in self.prompts])
        return Worst(self.prompts[place].prompt_id, METRIC, bound)

    def as_json(self) -> dict[str, object]:
        """The keys of `lethe bounds --json`."""
        worst, threshold = self.worst(), self.settings.share_above
        share = share_above([prompt.upper for prompt in self.prompts], threshold)
        return {
            "alpha": self.settings.alpha,
            "n_prompts": len(self.prompts),
            "per_prompt": [prompt.row() for prompt in self.prompts],
            "worst_prompt": {"prompt_id": worst.prompt_id, "metric": METRIC, "bound": worst.bound.value},
            "pooled": None,
            "share_above": {"threshold": threshold, "share": share},
            "fixed_bounds": REASON,
        }

    def table(self) -> tuple[list[str], list[list[str | int | float | Bound]]]:
        """The head and the first rows of the table for people."""
        head = ["prompt", "n", "mean", "mean <= (anytime)", "mean >= (anytime)", "sd", "sd <= (anytime)"]
        return head, [
            [one.prompt_id, one.n, one.mean, one.upper, one.lower, one.sd, one.sd_upper]
            for one in self.prompts[:SHOWN]
        ]

    def sentences(self) -> list[str]:
        """The statements on all prompts, each with its guarantee."""
        worst, of = self.worst(), f"the {plural(len(self.prompts), 'prompt')}"
        return [
            f"A stopping rule looked at the answers: {REASON}.",
            f"Each bound of a prompt: {self.prompts[0].upper.guarantee(of)} ({METHOD}).",
            f"{worst.bound.sentence(QUANTITY['mean_upper'], of)} The bound is that of {worst.prompt_id}.",
        ]


def measure_stopped(prompts: Sequence[PromptScores], settings: MeasureSettings) -> StoppedPrompts:
    """Bound each prompt at its stopping time.

    Notes
    -----
    The bound on the standard deviation is sqrt(u (1 - u)) at the upper bound u of the mean (Bhatia and Davis 2000), or 1/2
    if u is above 1/2. For scores of 0 and 1, the two bounds of the mean give the band of leak@k.

    Examples
    --------
    >>> found = measure_stopped([PromptScores("q", np.zeros(100))], MeasureSettings(alpha=0.05))
    >>> found.worst().bound.percent()
    '3.8%'
    """
    return StoppedPrompts(settings, tuple(_one(prompt, settings) for prompt in prompts))


def _one(prompt: PromptScores, settings: MeasureSettings) -> StoppedPrompt:
    judged, alpha, n = prompt.scores[~np.isnan(prompt.scores)], settings.alpha, len(prompt.scores)
    upper = stopped_upper(np.nan_to_num(prompt.scores, nan=1.0), alpha)
    lower = 1 - stopped_upper(1 - np.nan_to_num(prompt.scores, nan=0.0), alpha)
    sd = LARGEST if upper >= 0.5 else math.sqrt(upper * (1 - upper))

    def bound(value: float, side: Side) -> Bound:
        return Bound(value, side, alpha, Covers.ONE_PROMPT, Assumes.DRAWS, METHOD, n)

    points: Points | None = None
    if np.isin(judged, (0.0, 1.0)).all():
        bands = zip(QUERIES, at_least_once(lower, QUERIES), at_least_once(upper, QUERIES), strict=True)
        points = tuple(
            LeakPoint(k, math.nan, bound(float(low), "lower"), bound(float(high), "upper"))
            for k, low, high in bands
        )
    some = len(judged) > 0
    mean, spread = (float(judged.mean()), float(judged.std())) if some else (math.nan, math.nan)
    return StoppedPrompt(
        prompt_id=prompt.prompt_id,
        n=n,
        missing=prompt.missing,
        mean=mean,
        sd=spread,
        max=float(judged.max()) if some else math.nan,
        ed_score=mean + settings.rho * spread,
        upper=bound(upper, "upper"),
        lower=bound(lower, "lower"),
        sd_upper=bound(sd, "upper"),
        leak_at_k=points,
    )
