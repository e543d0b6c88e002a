"""Bounds of a user's file of scores: measured, as JSON, and as Inspect's `precomputed_scores`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from lethe.errors import BadInput, shortened
from lethe.evaluation.joint import REASON, MeasureSettings
from lethe.evaluation.prompts import (
    TIGHTER,
    WORST,
    Levels,
    PromptMeasures,
    Worst,
    measure_each,
    measure_prompts,
)
from lethe.evaluation.scores import PromptScores, mean, plain_rows
from lethe.io.artifacts import Row
from lethe.io.logs._log import KEYS, Log
from lethe.results.table import Numbers, Result, Results, Rows, both_ends, values_of
from lethe.scoring._tables import score_answers
from lethe.statistics.bound import Assumes, Bound, Covers
from lethe.statistics.bounds import LARGEST
from lethe.statistics.counts import at_least_once
from lethe.statistics.leak_rates import QUERIES
from lethe.statistics.many_prompts import worst_prompt
from lethe.statistics.sequential import METHOD, stopped_upper

if TYPE_CHECKING:
    import pandas as pd


# The numbers of an entry of ``per_prompt``, and those of a prompt that a rule stopped.
NUMBERS = (
    "n",
    "mean",
    "sd",
    "max",
    "ed_score",
    "missing",
    "m_bin",
    "m_bin_lower",
    "m_mu",
    "m_mu_lower",
    "m_sigma",
)
STOPPED = ("anytime_upper", "anytime_lower", "anytime_sd_upper")


def measure_file(
    prompts: Sequence[PromptScores], settings: MeasureSettings, levels: Levels | None = None
) -> PromptMeasures:
    """Apply `measure_prompts`; where missing scores count as the worst, also measure the judged scores alone."""
    measures = measure_prompts(prompts, settings, levels=levels)
    if settings.missing != "worst":
        return measures
    judged = [(prompt, prompt.scores[~np.isnan(prompt.scores)]) for prompt in prompts if prompt.missing]
    without = [replace(prompt, scores=scores, missing=0) for prompt, scores in judged if len(scores)]
    alone = {measure.prompt_id: measure for measure in measure_each(without, settings, levels)}
    both = [replace(own, judged=alone.get(own.prompt_id) if own.missing else own) for own in measures.prompts]
    return replace(measures, prompts=tuple(both))


def as_json(measures: PromptMeasures) -> dict[str, object]:
    """The keys of `lethe bounds --json`.

    If ``missing`` is set, each entry has the number of missing scores. If they count as the worst, each entry also has the
    same values over the judged scores alone as ``judged_alone`` (null if no score was judged), and as ``judged``. With a
    calibration, ``judged`` is instead the bound of the true leak probability, for each prompt and for the
    pool (null if the numbers of answers differ). ``leak_at_k`` holds for all k at once, each side at alpha by itself; it
    is null unless all scores of the prompt are 0 or 1. ``together`` is present only if a correction was requested.
    """
    settings, judged, rows = measures.settings, measures.judged, rows_of("", measures)
    entries = entries_of(rows)
    if settings.missing is None:
        for entry in entries:
            del entry["missing"]
    if settings.missing == "worst":
        alone = PromptMeasures(replace(settings, calibration=None), measures.judged_alone())
        known = {entry["prompt_id"]: entry for entry in entries_of(rows_of("", alone))}
        for entry in entries:
            own = known.get(entry["prompt_id"])
            kept = own and {key: value for key, value in own.items() if key not in ("prompt_id", "missing")}
            entry["judged_alone"] = entry["judged"] = kept
    for entry, rate in zip(entries, judged.each if judged else (), strict=bool(judged)):
        entry["judged"] = values_of(rate)
    found = summary(settings, entries, measures.worst(), measures.pooled, measures.share_above())
    of_all = Results({"": tuple(rows)}).model("")
    ends, guarantee = ("estimate", "lower", "upper"), ("covers", "assumes", "method", "n")
    like = of_all.row("score_population")
    shown = like and {name: getattr(like, name) for name in (*ends, *guarantee)}
    found["population"] = shown and {**shown, "alpha": settings.alpha}
    if claim := of_all.row("together"):
        found["together"] = _together(claim, rows)
    if judged:
        found["judged"] = values_of(judged.pool)
    return found


def _together(claim: Result, rows: Sequence[Result]) -> dict[str, object]:
    facts = claim.evidence or {}
    each = [row for row in rows if row.scope == "question"]
    return {
        "correction": facts["correction"],
        "metric": facts["metric"],
        "alpha": claim.alpha_upper,
        "threshold": claim.upper,
        "every_prompt_under": facts["every"],
        "certified": [row.item for row in each if row.quantity == "certified_together" and row.value],
        "bounds": [{"prompt_id": row.item, "bound": row.upper} for row in each if row.quantity == "leak_together"],
        "covers": claim.covers,
        "assumes": claim.assumes,
        "method": claim.method,
    }


def summary(
    settings: MeasureSettings,
    entries: Sequence[Mapping[str, object]],
    worst: Worst | None,
    pooled: Bound | None,
    share: float | None,
) -> dict[str, object]:
    """The keys of `lethe bounds --json` that every source has."""
    return {
        "alpha": settings.alpha,
        "n_prompts": len(entries),
        "per_prompt": entries,
        "worst_prompt": values_of(worst),
        "pooled": pooled and pooled.value,
        "share_above": {"threshold": settings.share_above, "share": share},
    }


def entries_of(rows: Sequence[Result]) -> list[dict[str, Any]]:
    """The entries of ``per_prompt`` in JSON: views of the rows of each prompt."""
    return [_entry(item, numbers) for item, numbers in Results({"": tuple(rows)}).questions("").items()]


def _entry(item: str, numbers: Numbers) -> dict[str, Any]:
    values = numbers.values
    stopped = {name: values[name] for name in STOPPED if name in values}
    bands = [
        {"k": int(row.at or 0), "estimate": row.estimate, "lower": row.lower, "upper": row.upper}
        for row in numbers.series("leak_at_k", "anytime" if stopped else "sampled")
    ]
    found: dict[str, Any] = {"prompt_id": item} | {name: values.get(name) for name in NUMBERS}
    found |= {"leak_at_k": bands or None, "m_gen": None, "tighter": None}
    if stopped:
        return found | stopped | {"fixed_bounds": REASON}
    method = values["tighter_exceedance_method"]
    tails = [{"x": row.at, "bound": row.upper, "method": method} for row in numbers.series("exceedance_sharper")]
    return found | {
        "m_gen": [{"x": row.at, "bound": row.upper, "lower": row.lower} for row in numbers.series("exceedance")],
        "tighter": {name: values[f"tighter_{name}"] for name in TIGHTER} | {"exceedance": tails},
    }


def rows_of(name: str, measures: PromptMeasures) -> list[Result]:
    """The measures of a file of scores as rows of the table of results."""
    rows = Rows(name)
    measures.to_rows(rows)
    for quantity, bound in WORST.items():
        if worst := measures.worst(bound):
            rows.add("model", quantity, "sampled", None, None, worst.bound)
    if measures.pooled:
        rows.add("model", "leak", "sampled", None, None, measures.pooled)
    if measures.population:
        estimate = mean(prompt.mean for prompt in measures.prompts)
        rows.add("model", "score_population", "sampled", estimate, *measures.population)
    rows.add("model", "share_above", "sampled", measures.share_above())
    return rows.rows


def measure_stopped(rows: Rows, prompts: Sequence[PromptScores], settings: MeasureSettings) -> None:
    """Add the rows of prompts that a rule could stop early, each at its stopping time, and of the worst prompt.

    Notes
    -----
    A log does not always record the order of the answers, so every bound is a bound at the stop, which needs no order. The
    bound on the standard deviation is sqrt(u (1 - u)) at the upper bound u of the mean (Bhatia and Davis 2000), or 1/2 if u
    is above 1/2. For scores of 0 and 1, the two bounds of the mean give the band of leak@k, whose estimates are missing,
    because a stopping rule biases them.
    """
    uppers = [_measure(rows, prompt, settings) for prompt in prompts]
    rows.add("model", "score_worst", "anytime", None, None, worst_prompt(uppers)[1])


def _measure(rows: Rows, prompt: PromptScores, settings: MeasureSettings) -> Bound:
    """Add the rows of one prompt; return the upper bound of its mean."""
    judged, alpha = prompt.scores[~np.isnan(prompt.scores)], settings.alpha
    upper = stopped_upper(np.nan_to_num(prompt.scores, nan=1.0), alpha)
    lower = 1 - stopped_upper(1 - np.nan_to_num(prompt.scores, nan=0.0), alpha)
    guarantee = (alpha, Covers.ONE_PROMPT, Assumes.DRAWS, METHOD, len(prompt.scores))
    ends = both_ends(lower, upper, *guarantee)
    sd = replace(ends[1], value=LARGEST if upper >= 0.5 else math.sqrt(upper * (1 - upper)))
    plain_rows(rows, prompt, settings.rho)
    place: dict[str, Any] = {"item": prompt.prompt_id, "split": "forget"}
    rows.add("question", "score", "anytime", None, *ends, **place)
    rows.add("question", "sd", "anytime", None, None, sd, **place)
    if np.isin(judged, (0.0, 1.0)).all():
        rows.add("question", "leak", "anytime", None, *ends, **place)
        bands = zip(QUERIES, at_least_once(lower, QUERIES), at_least_once(upper, QUERIES), strict=True)
        for k, low, high in bands:
            band = both_ends(low, high, *guarantee)
            rows.add("question", "leak_at_k", "anytime", None, *band, at=float(k), **place)
    return ends[1]


Record = Mapping[str, object]


@dataclass(frozen=True)
class ScoredLog:
    """The table of scores of a log: ``prompt_id, sample`` and one column per scorer, NaN where an answer is missing.

    ``matched_by`` names the key that joins the log's prompts with the rows: "id" or "question".
    """

    log: Log
    table: pd.DataFrame
    scorers: tuple[str, ...]
    matched_by: str

    def rows(self) -> list[tuple[str, int, int, float | None]]:
        """Name, scored answers, missing answers and mean of each scorer; the mean is None if no answer has a score."""
        found = []
        for name in self.scorers:
            values = self.table[name].dropna()
            mean = float(values.mean()) if len(values) else None
            found.append((name, len(values), len(self.table) - len(values), mean))
        return found

    def warnings(self) -> list[str]:
        """The reasons why bounds from the table would not hold, and the log's own warnings."""
        reasons = [self.log.refusal] if self.log.refusal else []
        if self.log.stopping == "early":
            reasons.append("a rule could stop the run early, so bounds for a fixed number of answers do not hold")
        return [f"{one}; a table of scores does not show this" for one in reasons] + list(self.log.warnings)


def score_log(log: Log, rows: Sequence[Row], scorers: Sequence[str], source: str) -> ScoredLog:
    items, matched_by = _matched(log, rows, source)
    table = _texts(log)
    scores = score_answers(table, items, scorers)
    texts = bool((table["text"].fillna("").str.strip() != "").any())
    for name in scorers:
        if texts and scores[name].isna().all():
            raise BadInput(
                f"scorer {name}: cannot judge any text of {log.path}. Give keywords or answers in {source}."
            )
    return ScoredLog(log, scores, tuple(scorers), matched_by)


def _texts(log: Log) -> pd.DataFrame:
    """Every planned answer in the log's order; the text of a missing answer is None."""
    import pandas as pd

    lost = log.problems[log.problems["score"].isna()][[*KEYS]].drop_duplicates()
    table = log.answers[[*KEYS, "text"]].merge(lost, on=[*KEYS], how="outer", indicator=True)
    table["text"] = table["text"].where(table["_merge"] == "left_only", None)
    place = pd.Series(range(len(log.prompts)), index=log.prompts["prompt_id"])
    order = pd.DataFrame({"prompt": table["prompt_id"].map(place), "sample": table["sample"]})
    return table.loc[order.sort_values(["prompt", "sample"]).index, [*KEYS, "text"]].reset_index(drop=True)


def _matched(log: Log, rows: Sequence[Row], source: str) -> tuple[Mapping[str, Row], str]:
    by_id = {row["id"]: row for row in rows}
    prompts = dict(zip(log.prompts["prompt_id"], log.prompts["prompt"], strict=True))
    if all(prompt_id in by_id for prompt_id in prompts):
        return by_id, "id"
    found = {}
    for prompt_id, prompt in prompts.items():
        row = _last_question(prompt, rows) if isinstance(prompt, str) else None
        if row is None:
            raise BadInput(
                f"{log.path}: prompt {shortened(prompt_id)} belongs to no row of {source}: no row has this id, and its text "
                f"({shortened(prompt)}) contains no row's question. Add the row, or use the prompt's id as the row's id."
            )
        found[prompt_id] = row
    return found, "question"


def _last_question(prompt: str, rows: Sequence[Row]) -> Row | None:
    """The row whose question ends last in the prompt, because few-shot examples precede the question."""
    asked = [(row["question"].strip(), row) for row in rows]
    ends = [(prompt.rfind(text) + len(text), len(text), row) for text, row in asked if text in prompt]
    return max(ends, key=lambda end: end[:2])[2] if ends else None


def score_records(found: ScoredLog) -> list[Record]:
    """Return one record per scored answer; a missing answer has no record, so Inspect leaves the answer unscored.

    A record has an id, optional epoch, value, explanation and metadata. With one scorer the value is a number. With several
    scorers the value is an object with one key per scorer, and Inspect's ``metrics`` must be an object too.
    """
    ids = inspect_ids(found.log.prompts["prompt_id"])
    records: list[Record] = []
    for row in found.table.dropna(subset=list(found.scorers)).to_dict("records"):
        values = {name: row[name] for name in found.scorers}
        value = values if len(values) > 1 else row[found.scorers[0]]
        records.append({"id": ids[row["prompt_id"]], "epoch": row["sample"], "value": value})
    return records


def bound_records(measures: PromptMeasures) -> list[Record]:
    """Return one record per prompt, for all its epochs: the value is the upper bound, ``explanation`` the guarantee."""
    ids, name = inspect_ids(prompt.prompt_id for prompt in measures.prompts), measures.metric
    records: list[Record] = []
    for prompt in measures.prompts:
        bounds = prompt.bounds()
        facts = {key: bound.value for key, bound in bounds.items()} | {"n": prompt.n, "missing": prompt.missing}
        shown = {"value": bounds[name].value, "explanation": bounds[name].sentence(name), "metadata": facts}
        records.append({"id": ids[prompt.prompt_id], **shown})
    return records


def inspect_ids(prompt_ids: Iterable[str]) -> dict[str, str]:
    """The id of each prompt in Inspect, which compares ids as text; the log reader quotes a text that is also a number."""
    ids = {prompt_id: prompt_id for prompt_id in prompt_ids}
    for prompt_id in ids:
        bare = prompt_id[1:-1]
        if prompt_id.startswith('"') and prompt_id.endswith('"') and bare in ids:
            raise BadInput(
                f"The log has the id {bare} as a number and as text, which Inspect's precomputed scores cannot distinguish. "
                "Rename one in the dataset."
            )
    return ids
