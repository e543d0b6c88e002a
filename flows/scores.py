"""A user's file of scores: read, checked, bounded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from stages.errors import BadFile, BadRow, BadValue
from stages.levels import Levels

ALL = "all"  # the name of the one prompt of a file without prompt_id
SHARE_ABOVE = 0.1  # of prompts whose bound exceeds it (paper 001, Fig. 3a)


@dataclass(frozen=True)
class PromptScores:
    """One prompt's scores in file order; a missing one is NaN."""

    prompt_id: str
    scores: np.ndarray


def read_scores(path: Path, missing: str | None) -> tuple[list[PromptScores], int]:
    """The prompts of a file in the order in which they first appear, and how many scores are missing.

    A null or NaN is a `BadRow` unless ``missing`` is "worst" (kept as NaN) or "drop" (left out).
    """
    import pandas as pd

    from stages.artifacts import file_line, numeric_column, read_table

    table = read_table(path, required=["score"])
    if table.empty:
        raise BadFile(path, "holds no rows", "It needs one row a sampled answer.")
    values, first = numeric_column(table, "score", path), file_line(path)
    absent = np.isnan(values)
    if absent.any() and missing is None:
        row = int(np.argmax(absent)) + first
        raise BadRow(path, row, "score is missing", "Say how it counts: --missing worst or --missing drop.")
    outside = ~absent & ~((values >= 0) & (values <= 1))
    if outside.any():
        place = int(np.argmax(outside))
        raise BadRow(path, place + first, f"score: got {values[place]:g}, legal is a number in [0, 1]")
    names = table["prompt_id"] if "prompt_id" in table else pd.Series([ALL] * len(table))
    if names.isna().any():
        raise BadRow(path, int(np.argmax(names.isna())) + first, "prompt_id is missing")
    codes, labels = pd.factorize(names)
    order = np.argsort(codes, kind="stable")
    parts = np.split(values[order], np.flatnonzero(np.diff(codes[order])) + 1)
    if missing == "drop":
        parts = [part[~np.isnan(part)] for part in parts]
    for label, part in zip(labels, parts, strict=True):
        if not len(part):
            raise BadFile(path, f"prompt {label!r} has no score left", "Leave it out, or use --missing worst.")
    prompts = [PromptScores(str(label), part) for label, part in zip(labels, parts, strict=True)]
    return prompts, int(absent.sum())


def summarise(
    prompts: Sequence[PromptScores], alpha: float, thresholds: Sequence[float], levels: Levels
) -> dict[str, Any]:
    """The result of `lethe bounds`, under the keys of its JSON."""
    from stages.statistics.many_prompts import LARGEST_POOLED_ALPHA, pooled_average, share_above, worst_prompt

    for threshold in thresholds:
        if not 0 <= threshold <= 1:
            raise BadValue("--threshold", threshold, "a number in [0, 1]")
    rows: list[dict | None] = [None] * len(prompts)
    sizes = np.array([len(prompt.scores) for prompt in prompts])
    for n in np.unique(sizes):  # prompts of one size go through the vectorised bounds together
        places = np.flatnonzero(sizes == n)
        for place, row in zip(places, _rows([prompts[i] for i in places], alpha, thresholds, levels), strict=True):
            rows[place] = row
    binary = all(row["m_bin"] is not None for row in rows)
    metric = "m_bin" if binary else "m_mu"
    bounds = np.array([row[metric] for row in rows])
    worst, claim = worst_prompt(bounds, alpha)
    pooled = None
    if binary and len(set(sizes)) == 1 and alpha <= LARGEST_POOLED_ALPHA:
        successes = np.array([np.where(np.isnan(p.scores), 1.0, p.scores).sum() for p in prompts])
        pooled = pooled_average(successes, int(sizes[0]), alpha).value
    return {
        "alpha": alpha,
        "n_prompts": len(prompts),
        "per_prompt": rows,
        "worst_prompt": {"prompt_id": rows[worst]["prompt_id"], "metric": metric, "bound": claim.value},
        "pooled": pooled,
        "share_above": {"threshold": SHARE_ABOVE, "share": share_above(bounds, SHARE_ABOVE)},
    }


def _rows(
    prompts: Sequence[PromptScores], alpha: float, thresholds: Sequence[float], levels: Levels
) -> list[dict[str, Any]]:
    """The entries of prompts with the same number of scores."""
    from stages.statistics.bounds import paper_bounds
    from stages.statistics.tighter import tighter_bounds

    raw = np.stack([prompt.scores for prompt in prompts])
    absent = np.isnan(raw)
    # A missing score counts as 1 in what bounds from above and as 0 in what bounds from below.
    high, low = np.where(absent, 1.0, raw), np.where(absent, 0.0, raw)
    upper = paper_bounds(high, alpha, thresholds)
    sharp = tighter_bounds(high, alpha, thresholds, levels)
    lower = paper_bounds(low, alpha, thresholds) if absent.any() else upper
    sharp_lower = tighter_bounds(low, alpha, thresholds, levels) if absent.any() else sharp
    rows = []
    for i, prompt in enumerate(prompts):
        judged = raw[i][~absent[i]]
        binary, whole = not np.isnan(upper.m_bin[i]), not absent[i].any()
        mean, sd = (float(judged.mean()), float(judged.std())) if len(judged) else (None, None)
        rows.append(
            {
                "prompt_id": prompt.prompt_id,
                "n": upper.n,
                "missing": int(absent[i].sum()),
                "mean": mean,
                "sd": sd,
                "max": float(judged.max()) if len(judged) else None,
                "ed_score": mean + 2 * sd if len(judged) else None,
                "m_bin": upper.m_bin[i] if binary else None,
                "m_bin_lower": lower.m_bin_lower[i] if binary else None,
                "m_gen": [
                    {"x": x, "bound": upper.m_gen[i, k], "lower": lower.m_gen_lower[i, k]}
                    for k, x in enumerate(thresholds)
                ],
                "m_mu": upper.m_mu[i],
                "m_mu_lower": lower.m_mu_lower[i],
                # A missing score has no worst side for the spread: its bound needs all of them.
                "m_sigma": upper.m_sigma[i] if whole else None,
                "tighter": {
                    "mean_upper": sharp.mean_upper[i],
                    "mean_lower": sharp_lower.mean_lower[i],
                    "mean_method": "betting",
                    "exceedance": [
                        {"x": x, "bound": sharp.exceedance[i, k], "method": sharp.exceedance_method}
                        for k, x in enumerate(thresholds)
                    ],
                    "sd_upper": sharp.sd_upper[i] if whole else None,
                    "sd_method": "betting with predictable centre",
                },
            }
        )
    return rows
