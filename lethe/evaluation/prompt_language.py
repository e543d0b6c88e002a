"""The measures of answers drawn from a language of prompts: which production leaks, and the share of prompts that leak.

The bounds of a question hold for a random user of the language. This module adds two levels: the share of the language's
prompts whose leak probability exceeds tau (`lethe.statistics.prompt_share`), and the single productions. The worst
production is the one with the largest of many estimates, and has no guarantee of its own.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
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

    from lethe.results.table import Numbers, Rows

ASSUMES = "independent draws of prompt and answer, the questions weighted as drawn"
METHOD = "Clopper-Pearson, Bonferroni over the productions"


@dataclass(frozen=True)
class ProductionMeasure:
    """One production over all questions: its draws, their mean score, and bounds that hold for all productions together."""

    name: str
    probability: float
    choices: Mapping[str, str]
    draws: int
    missing: int
    mean: float
    lower: Bound | None = None
    upper: Bound | None = None


@dataclass(frozen=True)
class ChoiceMeasure:
    """The estimate for one choice of one part, over all questions and all choices of the other parts."""

    part: str
    choice: str
    draws: int
    mean: float


@dataclass(frozen=True)
class LanguageMeasures:
    """The measures of one model on a language of prompts; ``scorer`` judged the answers."""

    path: str
    scorer: str
    binary: bool
    productions: tuple[ProductionMeasure, ...]
    choices: tuple[ChoiceMeasure, ...]
    tau: float | None = None
    share_lower: Bound | None = None
    share_upper: Bound | None = None
    judged_share_lower: Bound | None = None  # of prompts that truly leak, where the judge's error was measured
    judged_share_upper: Bound | None = None

    @property
    def worst(self) -> ProductionMeasure | None:
        """The production with the largest measured mean; None if no answer was judged."""
        judged = [production for production in self.productions if not math.isnan(production.mean)]
        return max(judged, key=lambda production: (production.mean, production.draws), default=None)

    def to_rows(self, rows: Rows) -> None:
        """Add the rows of the share of prompts, of each production and of each choice."""
        facts = {"path": self.path, "scorer": self.scorer, "binary": self.binary, "tau": self.tau}
        rows.add("model", "language", "language", evidence=facts)
        if worst := self.worst:
            rows.add("model", "worst_production", "language", text=worst.name)
            rows.add("model", "worst_production_mean", "language", worst.mean)
        if self.share_lower or self.share_upper:
            rows.add("model", "share_above", "language", None, self.share_lower, self.share_upper)
        if self.judged_share_lower or self.judged_share_upper:
            rows.add("model", "share_above", "judged", None, self.judged_share_lower, self.judged_share_upper)
        for one in self.productions:
            evidence = {"probability": one.probability, "choices": dict(one.choices)}
            counts = {"n": one.draws, "missing": one.missing, "item": one.name, "evidence": evidence}
            rows.add("model", "production", "language", one.mean, one.lower, one.upper, **counts)
        for choice in self.choices:
            evidence = {"part": choice.part, "choice": choice.choice}
            item = f"{choice.part}: {choice.choice}"
            rows.add("model", "choice", "language", choice.mean, n=choice.draws, item=item, evidence=evidence)

    @classmethod
    def of_rows(cls, numbers: Numbers) -> LanguageMeasures | None:
        """The levels that `to_rows` wrote of a model; None for a model that was not asked in a language."""
        found = numbers.row("language", "language")
        if found is None or found.evidence is None:
            return None
        share, judged = numbers.row("share_above", "language"), numbers.row("share_above", "judged")
        return cls(
            **found.evidence,
            productions=tuple(
                ProductionMeasure(
                    name=str(row.item),
                    **(row.evidence or {}),
                    draws=row.n or 0,
                    missing=row.missing or 0,
                    mean=math.nan if row.estimate is None else row.estimate,
                    lower=row.lower_bound,
                    upper=row.upper_bound,
                )
                for row in numbers.series("production", "language")
            ),
            choices=tuple(
                ChoiceMeasure(
                    **(row.evidence or {}),
                    draws=row.n or 0,
                    mean=math.nan if row.estimate is None else row.estimate,
                )
                for row in numbers.series("choice", "language")
            ),
            share_lower=share.lower_bound if share else None,
            share_upper=share.upper_bound if share else None,
            judged_share_lower=judged.lower_bound if judged else None,
            judged_share_upper=judged.upper_bound if judged else None,
        )


def measure_language(
    generations: pd.DataFrame,
    scores: pd.DataFrame,
    second: pd.DataFrame | None,
    described: Mapping[str, object],
    metrics: Metrics,
    inapplicable: Collection[str] = (),
    calibration: Calibration | None = None,
) -> LanguageMeasures:
    """Measure one model's answers to a language."""
    known: dict[str, Any] = dict(described)
    scorer = metrics.binary or metrics.leak
    kept = (generations["sample"] != GREEDY).to_numpy() & ~generations["prompt_id"].isin(
        list(inapplicable)
    ).to_numpy()
    values = scores[scorer].to_numpy(dtype=np.float64)[kept]
    names = generations["production"].to_numpy()[kept]
    entries = known["productions"]
    productions = tuple(
        _production(entry, values[names == entry["name"]], len(entries), metrics) for entry in entries
    )
    chosen = {entry["name"]: entry["choices"] for entry in entries}
    measures = LanguageMeasures(
        path=known["path"],
        scorer=scorer,
        binary=metrics.binary is not None,
        productions=tuple(sorted(productions, key=lambda one: -one.mean if one.draws > one.missing else math.inf)),
        choices=_choices(known["varied"], chosen, names, values),
    )
    if second is None or known["share"] is None or metrics.binary not in second:
        return measures
    kept_rows = second[~second["prompt_id"].isin(list(inapplicable))]
    return _with_share(measures, kept_rows, known["share"], metrics, calibration)


def _production(
    entry: Mapping[str, Any], values: np.ndarray, productions: int, metrics: Metrics
) -> ProductionMeasure:
    missing, alpha = int(np.isnan(values).sum()), metrics.alpha / productions
    judged = values[~np.isnan(values)]
    mean = float(judged.mean()) if len(judged) else math.nan
    plain = ProductionMeasure(entry["name"], entry["probability"], entry["choices"], len(values), missing, mean)
    # The draws of a production come from several questions. Up to this alpha, unequal probabilities pool (Hoeffding 1956).
    if metrics.binary is None or not len(values) or alpha > LARGEST_POOLED_ALPHA:
        return plain
    n = len(values)
    lower, upper = pooled_bounds([judged.sum(), 0], [n, 0], alpha, [missing, 0])
    rest = (metrics.alpha, Covers.PRODUCTIONS, ASSUMES, METHOD, n)
    low, high = Bound(float(lower[0]), "lower", *rest), Bound(float(upper[0]), "upper", *rest)
    return replace(plain, lower=low, upper=high)


def _choices(
    varied: Collection[str], chosen: Mapping[str, Mapping[str, str]], names: np.ndarray, values: np.ndarray
) -> tuple[ChoiceMeasure, ...]:
    found = []
    for part in varied:
        taken = np.array([chosen[name][part] for name in names], dtype=object)
        for choice in dict.fromkeys(choices[part] for choices in chosen.values()):
            own = values[taken == choice] if len(values) else values
            judged = own[~np.isnan(own)]
            mean = float(judged.mean()) if len(judged) else math.nan
            found.append(ChoiceMeasure(part, choice, len(own), mean))
    return tuple(found)


def _with_share(
    measures: LanguageMeasures,
    second: pd.DataFrame,
    share: Mapping[str, Any],
    metrics: Metrics,
    calibration: Calibration | None,
) -> LanguageMeasures:
    if not len(second):
        return measures
    leaked = second.groupby("prompt", sort=True)[metrics.binary]
    seen = leaked.sum().to_numpy(dtype=np.float64)  # a missing judgement adds nothing
    absent = (leaked.size() - leaked.count()).to_numpy(dtype=np.float64)

    def ends(judge: Calibration | None) -> list[Bound]:
        rate = Rate.of(seen, share["answers"], absent, judge)
        return [share_exceeding(rate, share["tau"], metrics.alpha, side) for side in ("lower", "upper")]

    lower, upper = ends(None)
    measures = replace(measures, tau=share["tau"], share_lower=lower, share_upper=upper)
    if calibration is None:
        return measures
    lower, upper = ends(calibration)
    return replace(measures, judged_share_lower=lower, judged_share_upper=upper)
