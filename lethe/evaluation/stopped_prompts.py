"""Prompts whose sampling was stopped by a rule that looked at the answers: only anytime-valid values hold.

A log does not always record the order of the answers, so every bound is a bound at the stop, which needs no order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lethe.evaluation.prompt_scores import PromptScores, plain_rows
from lethe.evaluation.together import MeasureSettings
from lethe.statistics.bound import Assumes, Bound, Covers, Side
from lethe.statistics.bounds import LARGEST
from lethe.statistics.counts import at_least_once
from lethe.statistics.leak_rates import QUERIES
from lethe.statistics.many_prompts import worst_prompt
from lethe.statistics.sequential import METHOD, stopped_upper

if TYPE_CHECKING:
    from lethe.results.table import Rows


def measure_stopped(rows: Rows, prompts: Sequence[PromptScores], settings: MeasureSettings) -> None:
    """Add the rows of each prompt at its stopping time, and of the worst prompt.

    Notes
    -----
    The bound on the standard deviation is sqrt(u (1 - u)) at the upper bound u of the mean (Bhatia and Davis 2000), or 1/2
    if u is above 1/2. For scores of 0 and 1, the two bounds of the mean give the band of leak@k, whose estimates are
    missing, because a stopping rule biases them.
    """
    uppers = [_measure(rows, prompt, settings) for prompt in prompts]
    rows.add("model", "score_worst", "anytime", None, None, worst_prompt(uppers)[1])


def _measure(rows: Rows, prompt: PromptScores, settings: MeasureSettings) -> Bound:
    """Add the rows of one prompt; return the upper bound of its mean."""
    judged, alpha, n = prompt.scores[~np.isnan(prompt.scores)], settings.alpha, len(prompt.scores)
    upper = stopped_upper(np.nan_to_num(prompt.scores, nan=1.0), alpha)
    lower = 1 - stopped_upper(1 - np.nan_to_num(prompt.scores, nan=0.0), alpha)
    sd = LARGEST if upper >= 0.5 else math.sqrt(upper * (1 - upper))

    def bound(value: float, side: Side) -> Bound:
        return Bound(float(value), side, alpha, Covers.ONE_PROMPT, Assumes.DRAWS, METHOD, n)

    def ends(low: float, high: float) -> tuple[Bound, Bound]:
        return bound(low, "lower"), bound(high, "upper")

    plain_rows(rows, prompt, settings.rho)
    place: dict[str, Any] = {"item": prompt.prompt_id, "split": "forget"}
    rows.add("question", "score", "anytime", None, *ends(lower, upper), **place)
    rows.add("question", "sd", "anytime", None, None, bound(sd, "upper"), **place)
    if np.isin(judged, (0.0, 1.0)).all():
        rows.add("question", "leak", "anytime", None, *ends(lower, upper), **place)
        bands = zip(QUERIES, at_least_once(lower, QUERIES), at_least_once(upper, QUERIES), strict=True)
        for k, low, high in bands:
            rows.add("question", "leak_at_k", "anytime", None, *ends(low, high), at=float(k), **place)
    return bound(upper, "upper")
