"""A user's file of scores: reading, checks, and bounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lethe.errors import BadFile, BadRow
from lethe.evaluation.prompt_scores import ALL, PromptScores
from lethe.evaluation.prompts import Levels, PromptMeasures, Worst, measure_each, measure_prompts
from lethe.evaluation.together import REASON, MeasureSettings
from lethe.io.artifacts import GREEDY
from lethe.results.table import Numbers, Result, Results, Rows

if TYPE_CHECKING:
    from lethe.statistics.bound import Bound


def read_scores(
    path: Path, missing: str | None, column: str = "score", by: str | None = None
) -> list[PromptScores]:
    """Return the prompts of a file, which its column ``by`` names, in order of first appearance."""
    import pandas as pd

    from lethe.io.tables import file_line, numeric_column, read_table

    name = by or "prompt_id"
    table = read_table(path, required=[column, by] if by else [column], text=[name], optional=["sample"])
    if table.empty:
        raise BadFile(path, "holds no rows", "Give one row per sampled answer.")
    values, lines = numeric_column(table, column, path), np.arange(len(table))
    if "sample" in table:
        lines = np.flatnonzero((table["sample"] != GREEDY) & (table["sample"] != str(GREEDY)))
        values, table = values[lines], table.iloc[lines]
        if table.empty:
            raise BadFile(path, "holds the greedy answers (sample -1) only", "Give one row per sampled answer.")

    def refuse(wrong: np.ndarray, problem: str, remedy: str = "") -> None:
        if wrong.any():
            place = int(np.argmax(wrong))
            raise BadRow(path, file_line(path, int(lines[place])), problem.format(values[place]), remedy)

    absent = np.isnan(values)
    if missing is None:
        refuse(absent, f"{column} is missing", "Say how it counts: --missing worst or --missing drop.")
    refuse(~absent & ~((values >= 0) & (values <= 1)), f"{column}: got {{}}; must be a number in [0, 1]")
    names = table[name] if name in table else pd.Series([ALL] * len(table))
    refuse(names.isna().to_numpy(), f"{name} is missing")
    codes, labels = pd.factorize(names)
    same, labels = pd.factorize(np.array([str(label) for label in labels], dtype=object))
    codes = same[codes]  # 7 and "7" are one prompt: JSON lines may hold both
    order = np.argsort(codes, kind="stable")
    parts = np.split(values[order], np.flatnonzero(np.diff(codes[order])) + 1)
    counts = np.bincount(codes, weights=absent).astype(int).tolist()
    if missing == "drop":
        parts = [part[~np.isnan(part)] if count else part for part, count in zip(parts, counts, strict=True)]
    for label, part in zip(labels, parts, strict=True):
        if not len(part):
            raise BadFile(
                path, f"prompt {label!r} has no score left", "Remove the prompt, or use --missing worst."
            )
    return [PromptScores(label, *rest) for label, *rest in zip(labels, parts, counts, strict=True)]


def measure_file(
    prompts: Sequence[PromptScores], settings: MeasureSettings, levels: Levels | None = None
) -> PromptMeasures:
    """Apply `measure_prompts`; where missing scores count as the worst, also measure the judged scores alone.

    Parameters are those of `measure_each`.
    """
    measures = measure_prompts(prompts, settings, levels=levels)
    if settings.missing != "worst":
        return measures
    judged = [(prompt, prompt.scores[~np.isnan(prompt.scores)]) for prompt in prompts if prompt.missing]
    without = [replace(prompt, scores=scores, missing=0) for prompt, scores in judged]
    alone = measure_each([prompt for prompt in without if len(prompt.scores)], settings, levels)
    by_id = {measure.prompt_id: measure for measure in alone}
    return replace(
        measures,
        prompts=tuple(
            replace(measure, judged=by_id.get(measure.prompt_id) if measure.missing else measure)
            for measure in measures.prompts
        ),
    )


def as_json(measures: PromptMeasures) -> dict[str, object]:
    """The keys of `lethe bounds --json`.

    If ``missing`` is set, each entry has the number of missing scores. If they count as the worst, each entry also has the
    same values over the judged scores alone as ``judged_alone`` (null if no score was judged), and under the deprecated name
    ``judged``. With a calibration, ``judged`` is instead the bound of the true leak probability, for each prompt and for the
    pool (null if the numbers of answers differ). ``leak_at_k`` holds for all k at once, each side at alpha by itself; it
    is null unless all scores of the prompt are 0 or 1. ``together`` is present only if a correction was requested.
    """
    settings, judged = measures.settings, measures.judged
    entries = entries_of(rows_of("", measures))
    for entry in entries if settings.missing is None else ():
        del entry["missing"]
    if settings.missing == "worst":
        alone = PromptMeasures(replace(settings, calibration=None), measures.judged_alone())
        known = {entry["prompt_id"]: entry for entry in entries_of(rows_of("", alone))}
        for entry in entries:
            own = known.get(entry["prompt_id"])
            kept = own and {key: value for key, value in own.items() if key not in ("prompt_id", "missing")}
            entry["judged_alone"] = entry["judged"] = kept
    for entry, rate in zip(entries, judged.each if judged else (), strict=bool(judged)):
        entry["judged"] = rate and judged and rate.as_dict(judged.error, judged.alpha)
    found = summary(settings, entries, measures.worst(), measures.pooled, measures.share_above())
    if measures.together:
        found["together"] = measures.together.as_dict()
    if judged:
        found["judged"] = judged.pool and judged.pool.as_dict(judged.error, judged.alpha)
    return found


def summary(
    settings: MeasureSettings,
    entries: Sequence[Mapping[str, object]],
    worst: Worst | None,
    pooled: Bound | None,
    share: float | None,
) -> dict[str, object]:
    """The keys of `lethe bounds --json` that every source has."""
    named = worst and {"prompt_id": worst.prompt_id, "metric": worst.metric, "bound": worst.bound.value}
    return {
        "alpha": settings.alpha,
        "n_prompts": len(entries),
        "per_prompt": entries,
        "worst_prompt": named,
        "pooled": pooled and pooled.value,
        "share_above": {"threshold": settings.share_above, "share": share},
    }


# The numbers of an entry of ``per_prompt``, and those of a prompt that a rule stopped.
NUMBERS = (
    *("n", "mean", "sd", "max", "ed_score", "missing"),
    *("m_bin", "m_bin_lower", "m_mu", "m_mu_lower", "m_sigma"),
)
STOPPED = ("anytime_upper", "anytime_lower", "anytime_sd_upper")


def entries_of(rows: Sequence[Result]) -> list[dict[str, Any]]:
    """The entries of ``per_prompt`` in JSON: views of the rows of each prompt."""
    return [_entry(item, numbers) for item, numbers in Results({"": tuple(rows)}).questions("").items()]


def _entry(item: str, numbers: Numbers) -> dict[str, Any]:
    values = numbers.values
    stopped = {name: values[name] for name in STOPPED if name in values}
    points = numbers.series("leak_at_k", "anytime" if stopped else "sampled")
    bands = [
        {"k": int(row.at or 0), "estimate": row.estimate, "lower": row.lower, "upper": row.upper} for row in points
    ]
    found: dict[str, Any] = {"prompt_id": item} | {name: values.get(name) for name in NUMBERS}
    found |= {"leak_at_k": bands or None, "m_gen": None, "tighter": None}
    if stopped:
        return found | stopped | {"fixed_bounds": REASON}
    tails, sharper = (numbers.series(one) for one in ("exceedance", "exceedance_sharper"))
    found["m_gen"] = [{"x": row.at, "bound": row.upper, "lower": row.lower} for row in tails]
    found["tighter"] = {name: values[f"tighter_{name}"] for name in ("mean_upper", "mean_lower", "sd_upper")}
    method = values["tighter_exceedance_method"]
    found["tighter"]["exceedance"] = [{"x": row.at, "bound": row.upper, "method": method} for row in sharper]
    return found


def rows_of(name: str, measures: PromptMeasures) -> list[Result]:
    """The measures of a file of scores as rows of the table of results."""
    from lethe.evaluation.measure import WORST

    rows = Rows(name)
    measures.to_rows(rows)
    for quantity, bound in WORST.items():
        if worst := measures.worst(bound):
            rows.add("model", quantity, "sampled", None, None, worst.bound)
    if measures.pooled:
        rows.add("model", "leak", "sampled", None, None, measures.pooled)
    rows.add("model", "share_above", "sampled", measures.share_above())
    return rows.rows
