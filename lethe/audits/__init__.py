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

    Parameters
    ----------
    headline
        Plain values by name, which `dvc metrics` and MLflow show: the content of NAME.json. A game adds one table of
        plain values per method.
    details
        Everything beyond the headline, as JSON. The report's section for a known kind reads the details.
    tables
        Name to table; each table becomes one Parquet file in the entry's folder.
    sentences
        The lines that the stage prints, without the entry's name.
    bounds
        The guarantees of the headline's bounds by their dotted keys, which the table of results and MLflow's tags hold.
    """

    headline: Headline
    details: Mapping[str, object] = field(default_factory=dict)
    tables: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    sentences: tuple[str, ...] = ()
    bounds: Mapping[str, Bound] = field(default_factory=dict)
