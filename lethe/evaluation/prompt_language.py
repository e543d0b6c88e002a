"""The measures of answers drawn from a language of prompts: which production leaks, and the share of prompts that leak.

The bounds of a question hold for a random user of the language. This module adds two levels: the share of the language's
prompts whose leak probability exceeds tau (`lethe.statistics.prompt_share`), and the single productions. The worst
production is the one with the largest of many estimates, and has no guarantee of its own.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lethe.config.evaluating import Metrics
from lethe.io.artifacts import GREEDY
from lethe.statistics.bound import Bound, Covers
from lethe.statistics.counts import pooled_bounds
from lethe.statistics.judge_error import Calibration
from lethe.statistics.leak_rates import Rate
from lethe.statistics.many_prompts import LARGEST_POOLED_ALPHA
from lethe.statistics.prompt_share import share_exceeding

if TYPE_CHECKING:
    import pandas as pd

    from lethe.results.table import Rows

ASSUMES = "independent draws of prompt and answer, the questions weighted as drawn"
METHOD = "Clopper-Pearson, Bonferroni over the productions"


def measure_language(
    rows: Rows,
    generations: pd.DataFrame,
    scores: pd.DataFrame,
    second: pd.DataFrame | None,
    described: Mapping[str, object],
    metrics: Metrics,
    inapplicable: Collection[str] = (),
    calibration: Calibration | None = None,
) -> None:
    """Add the rows of one model's answers to a language: of the share of prompts, of each production and of each choice."""
    known: dict[str, Any] = dict(described)
    scorer, left_out = metrics.binary or metrics.leak, list(inapplicable)
    kept = (generations["sample"] != GREEDY).to_numpy() & ~generations["prompt_id"].isin(left_out).to_numpy()
    values = scores[scorer].to_numpy(dtype=np.float64)[kept]
    names = generations["production"].to_numpy()[kept]
    entries, share = known["productions"], known["share"]
    shares: list[tuple[str, list[Bound]]] = []
    if second is not None and share is not None and metrics.binary in second:
        kept_rows = second[~second["prompt_id"].isin(left_out)]
        shares = _shares(kept_rows, share, metrics, calibration) if len(kept_rows) else []
    tau = share["tau"] if shares else None
    facts = {"path": known["path"], "scorer": scorer, "binary": metrics.binary is not None, "tau": tau}
    rows.add("model", "language", "language", evidence=facts)
    made = [_production(entry, values[names == entry["name"]], len(entries), metrics) for entry in entries]
    made.sort(key=lambda one: math.inf if math.isnan(one["estimate"]) else -one["estimate"])
    judged = [one for one in made if not math.isnan(one["estimate"])]
    if judged:
        worst = max(judged, key=lambda one: (one["estimate"], one["n"]))
        rows.add("model", "worst_production", "language", text=worst["item"])
        rows.add("model", "worst_production_mean", "language", worst["estimate"])
    for basis, ends in shares:
        rows.add("model", "share_above", basis, None, *ends)
    for one in made:
        rows.add("model", "production", "language", **one)
    chosen = {entry["name"]: entry["choices"] for entry in entries}
    for one in _choices(known["varied"], chosen, names, values):
        rows.add("model", "choice", "language", **one)


def _production(
    entry: Mapping[str, Any], values: np.ndarray, productions: int, metrics: Metrics
) -> dict[str, Any]:
    """One production over all questions; its bounds hold for all productions together."""
    n, judged = len(values), values[~np.isnan(values)]
    found = {
        "estimate": _mean(judged),
        "n": n,
        "missing": n - len(judged),
        "item": entry["name"],
        "evidence": {"probability": entry["probability"], "choices": dict(entry["choices"])},
    }
    alpha = metrics.alpha / productions
    # The draws of a production come from several questions. Up to this alpha, unequal probabilities pool (Hoeffding 1956).
    if metrics.binary is None or not n or alpha > LARGEST_POOLED_ALPHA:
        return found
    lower, upper = pooled_bounds([judged.sum(), 0], [n, 0], alpha, [n - len(judged), 0])
    rest = (metrics.alpha, Covers.PRODUCTIONS, ASSUMES, METHOD, n)
    return found | {
        "lower": Bound(float(lower[0]), "lower", *rest),
        "upper": Bound(float(upper[0]), "upper", *rest),
    }


def _choices(
    varied: Sequence[str], chosen: Mapping[str, Mapping[str, str]], names: np.ndarray, values: np.ndarray
) -> Iterator[dict[str, Any]]:
    """Each choice of each part, over all questions and all choices of the other parts."""
    for part in varied:
        taken = np.array([chosen[name][part] for name in names], dtype=object)
        for choice in dict.fromkeys(choices[part] for choices in chosen.values()):
            own = values[taken == choice] if len(values) else values
            evidence = {"part": part, "choice": choice}
            place = {"item": f"{part}: {choice}", "evidence": evidence}
            yield {"estimate": _mean(own[~np.isnan(own)]), "n": len(own), **place}


def _mean(judged: np.ndarray) -> float:
    return float(judged.mean()) if len(judged) else math.nan


def _shares(
    second: pd.DataFrame, share: Mapping[str, Any], metrics: Metrics, calibration: Calibration | None
) -> list[tuple[str, list[Bound]]]:
    """Both ends of the share of prompts, by basis: of those called a leak, and with a calibration of true leaks."""
    leaked = second.groupby("prompt", sort=True)[metrics.binary]
    seen = leaked.sum().to_numpy(dtype=np.float64)  # a missing judgement adds nothing
    absent = (leaked.size() - leaked.count()).to_numpy(dtype=np.float64)

    def ends(judge: Calibration | None) -> list[Bound]:
        rate = Rate.of(seen, share["answers"], absent, judge)
        return [share_exceeding(rate, share["tau"], metrics.alpha, side) for side in ("lower", "upper")]

    return [("language", ends(None)), *([("judged", ends(calibration))] if calibration else [])]
