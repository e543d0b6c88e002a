"""The tables of a model's exact bounds in MLflow: its likeliest leaking texts, and how soon each question leaks."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from lethe.io.json_files import read_jsonl
from lethe.results import table
from lethe.results.exact_bounds import certificates_of
from lethe.statistics.leak_trees import AnswerTree

if TYPE_CHECKING:
    import pandas as pd

LEAKS, QUERIES = "heaviest_leaks.json", "leak_at.json"


def heaviest_leaks(name: str, workspace: Path, shown: Callable[[str], str]) -> pd.DataFrame:
    """A row per question and leaking text, the likeliest first; empty without exact bounds."""
    import pandas as pd

    rows = [
        {
            "question": shown(question),
            "leak": shown(leak.text),
            "probability": leak.probability,
            "leaks_at_least": tree.bounds["lower"].significant(),
            "leaks_at_most": tree.bounds["upper"].significant(),
            "prompt_id": shown(tree.id),
        }
        for question, tree in _asked(name, workspace)
        for leak in tree.heaviest_leaks
    ]
    return pd.DataFrame(sorted(rows, key=lambda row: -float(str(row["probability"]))))


def leaks_at(name: str, workspace: Path, shown: Callable[[str], str]) -> pd.DataFrame:
    """A row per question: queries until an even chance of a leak, and leak@N from and to, for every N; the worst first.

    An end that is never reached is an empty cell. The parameters are those of `heaviest_leaks`.
    """
    import pandas as pd

    trees = sorted(_asked(name, workspace), key=lambda pair: -pair[1].lower)
    rows = [
        {
            "question": shown(question),
            "queries_from": _finite(tree.queries_until_half[0]),
            "queries_to": _finite(tree.queries_until_half[1]),
            **{
                f"leak@{n} {end}": value
                for n, band in tree.leak_at.items()
                for end, value in zip(("from", "to"), band, strict=True)
            },
            "prompt_id": shown(tree.id),
        }
        for question, tree in trees
    ]
    return pd.DataFrame(rows)


def _finite(queries: float) -> float | None:
    return queries if math.isfinite(queries) else None


def _asked(name: str, workspace: Path) -> list[tuple[str, AnswerTree]]:
    """The text of each question with its tree; none without exact bounds."""
    path = table.place(workspace / "data", "exact", name)
    found = certificates_of(table.Results({name: tuple(table.read_rows(path))}), name) if path.is_file() else None
    asked = workspace / "data" / "dataset" / "forget.jsonl"
    rows = {row["id"]: row for _, row in read_jsonl(asked)} if asked.is_file() else {}
    return [(str(rows.get(tree.id, {}).get("question", "")), tree) for tree in (found.trees if found else ())]
