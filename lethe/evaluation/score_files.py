"""A user's file of scores: reading, checks, and bounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lethe.errors import BadFile, BadRow
from lethe.evaluation.leaks_at_k import Points, each_leak_at_k
from lethe.evaluation.prompt_scores import ALL, PromptScores
from lethe.evaluation.prompts import Levels, PromptMeasure, PromptMeasures, Worst, measure_each, measure_prompts
from lethe.evaluation.together import MeasureSettings
from lethe.io.artifacts import GREEDY

if TYPE_CHECKING:
    from lethe.evaluation.stopped_prompts import StoppedPrompts
    from lethe.results.table import Result, Rows


def read_scores(path: Path, missing: str | None, column: str = "score") -> list[PromptScores]:
    """Return the prompts of a file in order of first appearance."""
    import pandas as pd

    from lethe.io.tables import file_line, numeric_column, read_table

    table = read_table(path, required=[column], text=["prompt_id"], optional=["sample"])
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
    names = table["prompt_id"] if "prompt_id" in table else pd.Series([ALL] * len(table))
    refuse(names.isna().to_numpy(), "prompt_id is missing")
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
    without = [replace(prompt, scores=_judged(prompt), missing=0) for prompt in prompts if prompt.missing]
    alone = measure_each([prompt for prompt in without if len(prompt.scores)], settings, levels)
    by_id = {measure.prompt_id: measure for measure in alone}
    return replace(
        measures,
        prompts=tuple(
            replace(measure, judged=by_id.get(measure.prompt_id) if measure.missing else measure)
            for measure in measures.prompts
        ),
    )


def _judged(prompt: PromptScores) -> np.ndarray:
    return prompt.scores[~np.isnan(prompt.scores)]


def as_json(measures: PromptMeasures) -> dict[str, object]:
    """The keys of `lethe bounds --json`.

    If ``missing`` is set, each entry has the number of missing scores. If they count as the worst, each entry also has the
    same values over the judged scores alone as ``judged_alone`` (null if no score was judged), and under the deprecated name
    ``judged``. With a calibration, ``judged`` is instead the bound of the true leak probability, for each prompt and for the
    pool (null if the numbers of answers differ). ``leak_at_k`` holds for all k at once, each side at alpha by itself; it
    is null unless all scores of the prompt are 0 or 1. ``together`` is present only if a correction was requested.
    """
    worst, pooled = measures.worst(), measures.pooled
    result: dict[str, object] = {
        "alpha": measures.settings.alpha,
        "n_prompts": len(measures.prompts),
        "per_prompt": _per_prompt(measures),
        "worst_prompt": worst and _worst(worst),
        "pooled": pooled and pooled.value,
        "share_above": {"threshold": measures.settings.share_above, "share": measures.share_above()},
    }
    if measures.together:
        result["together"] = measures.together.as_dict()
    if measures.judged:
        judged = measures.judged
        result["judged"] = judged.pool and judged.pool.as_dict(judged.error, judged.alpha)
    return result


def rows_of(name: str, measures: PromptMeasures | StoppedPrompts) -> list[Result]:
    """The measures of a file of scores as rows of the table of results."""
    from lethe.evaluation.measure import WORST
    from lethe.results.table import Rows

    rows = Rows(name)
    if not isinstance(measures, PromptMeasures):
        _stopped_rows(rows, measures)
        return rows.rows
    measures.to_rows(rows)
    for quantity, bound in WORST.items():
        if worst := measures.worst(bound):
            rows.add("model", quantity, "sampled", None, None, worst.bound)
    if measures.pooled:
        rows.add("model", "leak", "sampled", None, None, measures.pooled)
    rows.add("model", "share_above", "sampled", measures.share_above())
    return rows.rows


def _stopped_rows(rows: Rows, measures: StoppedPrompts) -> None:
    """Add the rows of prompts that a rule may have stopped: no end holds but those at the stop."""
    for prompt in measures.prompts:
        place: dict[str, Any] = {"item": prompt.prompt_id, "split": "forget"}
        numbers = {"answers": prompt.n, "unscored": prompt.missing, "score": prompt.mean}
        numbers |= {key: getattr(prompt, key) for key in ("sd", "max", "ed_score")}
        for quantity, number in numbers.items():
            rows.add("question", quantity, "sampled", number, **place)
        ends = (prompt.lower, prompt.upper)
        rows.add("question", "score", "anytime", None, *ends, **place)
        rows.add("question", "sd", "anytime", None, None, prompt.sd_upper, **place)
        if prompt.leak_at_k is not None:  # scores of 0 and 1
            rows.add("question", "leak", "anytime", None, *ends, **place)
    rows.add("model", "score_worst", "anytime", None, None, measures.worst().bound)


def to_mlflow(name: str, measures: PromptMeasures, params: Mapping[str, object]) -> str:
    """Log the bounds of the worst prompt and of the average as an MLflow run; return a sentence with its location."""
    from lethe.tracking.bounded import log_bounded

    worst, alpha = measures.worst(), measures.settings.alpha
    bounds = {f"{worst.metric}_worst": worst.bound} if worst else {}
    if sharp := measures.worst("mean_upper"):
        bounds["tighter_mean_worst"] = sharp.bound
    if measures.pooled:
        bounds["m_bin_pooled"] = measures.pooled
    if measures.leak_at_k:
        bounds |= measures.leak_at_k.bounds()
    counts = {
        "questions": float(len(measures.prompts)),
        "answers": float(sum(prompt.n for prompt in measures.prompts)),
        "missing": float(sum(prompt.missing for prompt in measures.prompts)),
    }
    return log_bounded(name, counts, bounds, {"alpha": alpha, **params}, measures.to_frame(), Path.cwd())


def _worst(worst: Worst) -> dict[str, object]:
    return {"prompt_id": worst.prompt_id, "metric": worst.metric, "bound": worst.bound.value}


def _per_prompt(measures: PromptMeasures) -> list[dict[str, object]]:
    missing, alpha = measures.settings.missing, measures.settings.alpha
    points = measures.each_leak_at_k()
    entries = [
        {"prompt_id": prompt.prompt_id, **_entry(prompt, own)}
        for prompt, own in zip(measures.prompts, points, strict=True)
    ]
    if missing:
        for entry, prompt in zip(entries, measures.prompts, strict=True):
            entry["missing"] = prompt.missing
    if missing == "worst":
        alone = [prompt.judged for prompt in measures.prompts if prompt.judged]
        found = iter(zip(alone, each_leak_at_k(alone, alpha), strict=True))
        for entry, prompt in zip(entries, measures.prompts, strict=True):
            entry["judged_alone"] = entry["judged"] = prompt.judged and _entry(*next(found))
    if judged := measures.judged:
        for entry, own in zip(entries, judged.each, strict=True):
            entry["judged"] = own and own.as_dict(judged.error, judged.alpha)
    return entries


def _entry(prompt: PromptMeasure, points: Points | None) -> dict[str, object]:
    return {
        "n": prompt.n,
        "mean": prompt.mean,
        "sd": prompt.sd,
        "max": prompt.max,
        "ed_score": prompt.ed_score,
        "m_bin": prompt.m_bin and prompt.m_bin.value,
        "m_bin_lower": prompt.m_bin_lower and prompt.m_bin_lower.value,
        "leak_at_k": points and [point.row() for point in points],
        "m_mu": prompt.m_mu.value,
        "m_mu_lower": prompt.m_mu_lower.value,
        "m_sigma": prompt.m_sigma.value,
        "m_gen": [{"x": tail.x, "bound": tail.upper.value, "lower": tail.lower.value} for tail in prompt.tails],
        "tighter": {
            "mean_upper": prompt.mean_upper.value,
            "mean_lower": prompt.mean_lower.value,
            "exceedance": [
                {"x": tail.x, "bound": tail.tighter.value, "method": prompt.exceedance_method}
                for tail in prompt.tails
            ],
            "sd_upper": prompt.sd_upper.value,
        },
    }
