"""The table of a model's heaviest leaks in MLflow: the most likely leaking texts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from lethe.io.json_files import read_json, read_jsonl
from lethe.statistics.leak_certificates import Certificates

if TYPE_CHECKING:
    import pandas as pd

LEAKS = "heaviest_leaks.json"


def heaviest_leaks(name: str, workspace: Path, shown: Callable[[str], str]) -> pd.DataFrame:
    """A row per question and leaking text, the likeliest first; empty without exact bounds. ``shown`` makes texts visible."""
    import pandas as pd

    path = workspace / "data" / "exact" / f"{name}.json"
    values = read_json(path) if path.is_file() else {}
    found = Certificates.of_json(values) if values.get("model") else None
    asked = workspace / "data" / "dataset" / "forget.jsonl"
    rows = {row["id"]: row for _, row in read_jsonl(asked)} if asked.is_file() else {}
    table = [
        {
            "question": shown(str(rows.get(tree.id, {}).get("question", ""))),
            "leak": shown(leak.text),
            "probability": leak.probability,
            "leaks_at_least": tree.bounds["lower"].significant(),
            "leaks_at_most": tree.bounds["upper"].significant(),
            "prompt_id": shown(tree.id),
        }
        for tree in (found.trees if found else ())
        for leak in tree.heaviest_leaks
    ]
    return pd.DataFrame(sorted(table, key=lambda row: -float(str(row["probability"]))))
