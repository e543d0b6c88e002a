"""The result of every audit and game: the stage writes it, MLflow and the report show it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
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
