"""The result of every audit and game: the stage writes it, MLflow and the report show it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

    from lethe.statistics.bound import Bound

Headline = Mapping[str, object]


@dataclass(frozen=True)
class AuditResult:
    """The result of one entry of ``audits`` or ``games``.

    ``headline`` holds the plain values of NAME.json, which `dvc metrics` and MLflow show; a game adds one table of plain
    values per method. ``details`` are everything beyond it, as JSON, for the report's section. Each of ``tables`` becomes
    one Parquet file in the entry's folder. ``sentences`` are the lines that the stage prints. ``bounds`` are the guarantees
    of the headline's bounds by their dotted keys.
    """

    headline: Headline
    details: Mapping[str, object] = field(default_factory=dict)
    tables: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    sentences: tuple[str, ...] = ()
    bounds: Mapping[str, Bound] = field(default_factory=dict)


def write_rows(stage: str, name: str, result: AuditResult, root: Path) -> None:
    """Write the table of an audit or game: every number of its headline and details by dotted key, and the record whole."""
    from lethe.io.json_files import flat_numbers
    from lethe.results import table

    rows, bounds = table.Rows(name), result.bounds
    numbers = flat_numbers(result.headline)
    numbers |= {key: value for key, value in flat_numbers(result.details).items() if key not in numbers}
    for key in dict.fromkeys((*numbers, *bounds)):  # an infinite bound is not among the finite numbers
        bound = bounds.get(key)
        ends = (bound, None) if bound and bound.side == "lower" else (None, bound)
        rows.add("audit", "number", "run", None if bound else numbers[key], *ends, item=key)
    whole = result.headline if stage == "game" else {**result.headline, **result.details}
    rows.add("audit", "record", "run", evidence=whole)
    table.write(table.place(root, stage, name), rows.rows)
