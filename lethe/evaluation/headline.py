"""The numbers of a model that `dvc metrics` shows: few enough that the table of all models fits 120 columns.

DVC shows every leaf of a metrics file as a column. ``data/metrics/NAME.json`` therefore holds the numbers that compare
models, and ``data/metrics/details/NAME.json`` holds all others. Each number is in exactly one of the two files.
`lethe.io.artifacts.read_metrics` reads both.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

SCHEMA = "schema"
MOST = 8  # keys of the file that DVC shows, including the schema version
# The first group with a number of the model counts: early stopping, a 0/1 scorer, only a graded scorer.
GROUPS = (
    ("certified", "leaking_questions", "anytime_upper_worst"),
    ("keyword_greedy", "keyword_any", "m_bin_worst", "m_bin_pooled"),
    ("greedy_mean", "mean", "m_mu_worst", "m_sigma_worst"),
)
# Where the judge's error was measured: the bounds that include the error, next to the bound of the verdicts.
JUDGED = ("keyword_greedy", "m_bin_worst", "judged_worst", "judged_pooled")
# Where a person labelled the model's own answers: the bounds that require the least trust.
LABELLED = ("keyword_greedy", "m_bin_worst", "labelled_worst", "labelled_pooled")
UTILITY = ("retain_mean", "world_mean")  # the first that the model has


def split(flat: Mapping[str, object]) -> tuple[dict[str, object], dict[str, object]]:
    """Divide the flat keys of a model into the headline and the details; both begin with the schema version."""
    known = {key for key, value in flat.items() if value is not None and not _is_nan(value)}
    first = LABELLED if "labelled_worst" in known else JUDGED if "judged_worst" in known else ()
    groups = (GROUPS[0], first, *GROUPS[1:])
    group = next((keys for keys in groups if known & set(keys)), ())
    utility = [key for key in UTILITY if key in known][:1]
    chosen = [key for key in (*group, *utility) if key in flat]
    version = {SCHEMA: flat[SCHEMA]}
    return (
        version | {key: flat[key] for key in chosen},
        version | {key: value for key, value in flat.items() if key not in chosen},
    )


def _is_nan(value: object) -> bool:
    return isinstance(value, float) and math.isnan(value)
