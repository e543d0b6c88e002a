"""Results: the rows of ``data/results/STAGE/NAME.parquet``, the only source of results.

A row is an interval: an estimate, the ends that exist, what they cover and assume, and the evidence from which an end at
another level is computed (`lethe.results.ends`). Every reader reads through `Results`.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, Unpack

from lethe.io.files import Json
from lethe.results import quantities
from lethe.results.quantities import Quantity
from lethe.statistics.bound import Bound, Covers, Side

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

FOLDER = "results"
AGAIN = "Delete the file, and `lethe run` makes it again."
Value = float | int | bool | str | None


@dataclass(frozen=True, slots=True)
class Result:
    """One row.

    ``model`` may be the name of an audit, game or attack, whose ``scope`` is "audit". ``quantity`` and ``basis`` name a row
    of `lethe.results.quantities`. ``item`` is the question's id, or the part that the row is about (a production, a method,
    an attack), ``at`` a threshold, a number of answers or a step. ``estimate``, ``lower`` and ``upper`` are unrounded, None
    where there is none; an end may be infinite, and fails with the probability of its alpha (0: certain). ``covers``,
    ``assumes`` and ``method`` are the guarantee of the ends. ``n`` counts the draws behind the row, and ``missing`` those
    without a value. ``evidence`` holds counts, masses or log capital as plain JSON values, ``text`` a value that is a word.
    """

    model: str
    scope: str
    quantity: str
    basis: str
    item: str | None = None
    split: str | None = None
    at: float | None = None
    estimate: float | None = None
    lower: float | None = None
    upper: float | None = None
    alpha_lower: float | None = None
    alpha_upper: float | None = None
    covers: str = ""
    assumes: str = ""
    method: str = ""
    n: int | None = None
    missing: int | None = None
    evidence: Mapping[str, Json] | None = None
    text: str | None = None

    @property
    def kind(self) -> Quantity:
        return quantities.of(self.scope, self.quantity, self.basis)

    @property
    def facts(self) -> Mapping[str, Json]:
        """The evidence; empty where there is none."""
        return self.evidence or {}

    @property
    def value(self) -> Value:
        """The estimate in the unit of the quantity, or the word; None where it is missing."""
        if self.text is not None or self.estimate is None:
            return self.text
        unit = self.kind.unit
        if unit == "yes or no":
            return bool(self.estimate)
        return (
            int(self.estimate)
            if unit == "count" and float(self.estimate).is_integer()
            else self.estimate
        )

    @property
    def lower_bound(self) -> Bound | None:
        return self._bound("lower", self.lower, self.alpha_lower)

    @property
    def upper_bound(self) -> Bound | None:
        return self._bound("upper", self.upper, self.alpha_upper)

    @property
    def ends(self) -> list[Bound]:
        """The ends with a guarantee, the lower one first."""
        return [end for end in (self.lower_bound, self.upper_bound) if end]

    def _bound(self, side: Side, value: float | None, alpha: float | None) -> Bound | None:
        if value is None or alpha is None:
            return None
        return Bound(value, side, alpha, Covers(self.covers), self.assumes, self.method, self.n)

    def names(self) -> tuple[str, str, str]:
        """The names of estimate, lower and upper end in exports; empty for one that is not exported."""
        parts = {
            "split": self.split,
            "item": self.item,
            "at": "" if self.at is None else f"{self.at:.10g}",
        }
        first, second, third = (name.format(**parts) for name in self.kind.names)
        return first, second, third

    def named(self) -> list[tuple[str, Value, Bound | None]]:
        """Estimate, lower and upper end under their names, each end with its guarantee."""
        values, bounds = (
            (self.value, self.lower, self.upper),
            (None, self.lower_bound, self.upper_bound),
        )
        return list(zip(self.names(), values, bounds, strict=True))


class Further(TypedDict, total=False):
    """Other fields of a row."""

    item: str | None
    split: str | None
    at: float | None
    n: int | None
    missing: int | None
    evidence: Mapping[str, Json] | None
    text: str | None


def result(
    model: str,
    scope: str,
    quantity: str,
    basis: str,
    estimate: float | None = None,
    lower: Bound | None = None,
    upper: Bound | None = None,
    **further: Unpack[Further],
) -> Result:
    """One row from bounds that share a guarantee; a NaN is a missing estimate, and ``further`` other fields of `Result`."""
    quantities.of(scope, quantity, basis)
    if lower and upper and _guarantee(lower) != _guarantee(upper):
        raise ValueError(
            f"{quantity} ({basis}): its two ends have two guarantees; write a row for each"
        )
    ends: dict[str, Json] = {}
    for bound in filter(None, (lower, upper)):
        ends |= _guarantee(bound)
        ends |= {bound.side: float(bound.value), f"alpha_{bound.side}": float(bound.alpha)}
    value = None if estimate is None or math.isnan(estimate) else float(estimate)
    return Result(model, scope, quantity, basis, estimate=value, **{**ends, **further})


def _guarantee(bound: Bound) -> dict[str, object]:
    return {
        "covers": str(bound.covers),
        "assumes": str(bound.assumes),
        "method": bound.method,
        "n": bound.n,
    }


class Rows:
    """The rows of one model, audit, game or attack in the making."""

    def __init__(self, model: str):
        self.model = model
        self.rows: list[Result] = []

    def add(
        self,
        scope: quantities.Scope,
        quantity: str,
        basis: str,
        estimate: float | None = None,
        lower: Bound | None = None,
        upper: Bound | None = None,
        **further: Unpack[Further],
    ) -> None:
        """Add the row of an interval, or two where its ends have two guarantees. Parameters are those of `result`."""
        about = (self.model, scope, quantity, basis)
        if lower is None or upper is None or _guarantee(lower) == _guarantee(upper):
            self.rows.append(result(*about, estimate, lower, upper, **further))
        else:
            self.rows.append(result(*about, estimate, None, upper, **further))
            self.rows.append(result(*about, None, lower, None, **further))


def in_language(row: Result) -> Result:
    """The row restated for draws that each consist of a random prompt of a language and its answer."""
    bound = row.lower_bound or row.upper_bound
    if bound is None:
        return row
    restated = bound.in_language()
    return replace(row, covers=str(restated.covers), assumes=str(restated.assumes))


def as_served(rows: Sequence[Result], served: Mapping[str, Json] | None) -> list[Result]:
    """The rows restated for answers of a server: it may change tomorrow what it draws from."""
    if not served:
        return list(rows)
    when = f"as served between {served['first']} and {served['last']}"
    return [replace(row, assumes=f"{when}, {row.assumes}") if row.assumes else row for row in rows]


class Numbers:
    """The rows of one model, question or audit under their exported names."""

    def __init__(self, rows: Sequence[Result]):
        self.rows = tuple(rows)

    @cached_property
    def values(self) -> dict[str, Value]:
        """Every single number and word by its name, in the order of the vocabulary; None where it is missing."""
        values: dict[str, Value] = {}
        for row in self.single:
            for name, value, _ in row.named():
                if name and (value is not None or name not in values):
                    values[name] = value
        return values

    @cached_property
    def bounds(self) -> dict[str, Bound]:
        """The ends with a guarantee by their names."""
        return {name: end for row in self.single for name, _, end in row.named() if name and end}

    @cached_property
    def single(self) -> list[Result]:
        """The rows that are exported as single numbers, in the order of the vocabulary."""
        order = quantities.order()
        single = [row for row in self.rows if row.at is None or row.at in row.kind.exported_at]
        return sorted(single, key=lambda row: order[row.scope, row.quantity, row.basis])

    @cached_property
    def points(self) -> dict[str, tuple[Value, Bound | None]]:
        """The numbers whose names hold a threshold or a number of answers, each with its guarantee where it is an end."""
        points: dict[str, tuple[Value, Bound | None]] = {}
        for row in self.rows:
            named = zip(row.kind.names, row.named(), strict=True)
            points |= {
                name: (value, end) for pattern, (name, value, end) in named if "{at}" in pattern
            }
        return points

    @property
    def columns(self) -> dict[str, Value]:
        """`values` and `points`: a row of a table of questions."""
        return self.values | {name: value for name, (value, _) in self.points.items()}

    def value(self, name: str) -> float | None:
        """The number under ``name``, if there is one."""
        value = self.values.get(name)
        return value if isinstance(value, (int, float)) else None

    def estimate(self, quantity: str, basis: str = "sampled") -> float | None:
        """The estimate of a quantity, if there is one."""
        return next(
            (row.estimate for row in self.series(quantity, basis) if row.estimate is not None), None
        )

    def upper(self, quantity: str, basis: str = "sampled") -> Bound | None:
        """The upper end of a quantity, if there is one."""
        return next(filter(None, (row.upper_bound for row in self.series(quantity, basis))), None)

    def series(
        self, quantity: str, basis: str = "sampled", item: str | None = None
    ) -> tuple[Result, ...]:
        """The rows of a quantity in their order, of one ``item`` if it is named."""
        wanted = [row for row in self.rows if (row.quantity, row.basis) == (quantity, basis)]
        return tuple(row for row in wanted if item is None or row.item == item)

    def row(self, quantity: str, basis: str = "sampled") -> Result | None:
        """The only row of a quantity; None where there is none."""
        return next(iter(self.series(quantity, basis)), None)

    def facts(self, quantity: str, basis: str = "sampled") -> dict[str, Json]:
        """What the row of a quantity records besides numbers; empty where there is none."""
        row = self.row(quantity, basis)
        return dict(row.facts) if row else {}


@dataclass(frozen=True)
class Results:
    """The rows of a folder of artifacts, model by model."""

    by_model: Mapping[str, tuple[Result, ...]]

    def rows(self, model: str) -> tuple[Result, ...]:
        """All rows of one model, audit, game or attack; empty for an unknown one."""
        return self.by_model.get(model, ())

    def model(self, name: str) -> Numbers:
        """The rows of the scope "model"."""
        return Numbers([row for row in self.rows(name) if row.scope == "model"])

    def questions(self, name: str) -> dict[str, Numbers]:
        """The rows of each question by its id, in the order of the file; not those of what the model should keep."""
        by_item: dict[str, list[Result]] = {}
        for row in self.rows(name):
            if row.scope == "question" and row.split != "retain":
                by_item.setdefault(str(row.item), []).append(row)
        return {item: Numbers(rows) for item, rows in by_item.items()}

    def scorers(self, name: str) -> dict[str, str | None]:
        """The scorers that judged the answers of a model: of mean scores, and of leaks; empty where the rows do not say."""
        return self.model(name).facts("answers")

    def audit(self, name: str) -> Numbers:
        """The rows of the scope "audit"."""
        return Numbers([row for row in self.rows(name) if row.scope == "audit"])


def place(root: Path, stage: str, name: str) -> Path:
    """The file of one stage and model below the folder of artifacts ``root``."""
    return root / FOLDER / stage / f"{name}.parquet"


def write(path: str | os.PathLike[str], rows: Iterable[Result]) -> None:
    """Write rows as Parquet, with the schema version of artifacts in the file."""
    from lethe.io.tables import write_arrow

    write_arrow(path, _arrow(rows))


def frame_of(rows: Iterable[Result]) -> pd.DataFrame:
    """Rows as a DataFrame, as `write` puts them into a file."""
    return _arrow(rows).to_pandas()


def _arrow(rows: Iterable[Result]) -> pa.Table:
    import pyarrow as pa

    columns: dict[str, list[Json]] = {name: [] for name in COLUMNS}
    for row in rows:
        for name, values in columns.items():
            own = getattr(row, name)
            values.append(
                json.dumps(own, allow_nan=True) if name == "evidence" and own is not None else own
            )
    types = {"text": pa.string(), "number": pa.float64(), "count": pa.int64()}
    schema = pa.schema([(name, types[kind]) for name, kind in COLUMNS.items()])
    return pa.table(columns, schema=schema)


COLUMNS = {
    **dict.fromkeys(("model", "scope", "item", "split", "quantity"), "text"),
    "at": "number",
    "basis": "text",
    **dict.fromkeys(("estimate", "lower", "upper", "alpha_lower", "alpha_upper"), "number"),
    **dict.fromkeys(("covers", "assumes", "method"), "text"),
    **dict.fromkeys(("n", "missing"), "count"),
    **dict.fromkeys(("evidence", "text"), "text"),
}
assert set(COLUMNS) == {field.name for field in fields(Result)}


def read(root: Path, models: Iterable[str] | None = None) -> Results:
    """Read every table below ``root/results``; of the names in ``models`` alone, if given."""
    wanted = None if models is None else set(models)
    by_model: dict[str, list[Result]] = {}
    for path in sorted((root / FOLDER).glob("*/*.parquet")):
        if wanted is None or path.stem in wanted or path.parent.name in SHARED:
            for row in read_rows(path):
                by_model.setdefault(row.model, []).append(row)
    return Results(
        {name: tuple(rows) for name, rows in by_model.items() if wanted is None or name in wanted}
    )


SHARED = ("compare",)  # stages with one table of all models


def read_rows(path: Path) -> list[Result]:
    """The rows of one table."""
    from lethe.errors import BadFile
    from lethe.io.tables import read_arrow

    arrow = read_arrow(path)
    if absent := [name for name in COLUMNS if name not in arrow.column_names]:
        raise BadFile(path, f"has no column {absent[0]!r}", AGAIN)
    try:
        return [
            Result(
                **{
                    **row,
                    "evidence": None if row["evidence"] is None else json.loads(row["evidence"]),
                }
            )
            for row in arrow.select(list(COLUMNS)).to_pylist()
        ]
    except ValueError:
        raise BadFile(path, "holds evidence that is not JSON", AGAIN) from None


def frame(root: Path) -> pd.DataFrame:
    """Every table below ``root/results`` as one DataFrame, with a column ``stage``."""
    import pandas as pd

    from lethe.io.tables import read_table

    paths = sorted((root / FOLDER).glob("*/*.parquet"))
    tables = [read_table(path).assign(stage=path.parent.name) for path in paths]
    return (
        pd.concat(tables, ignore_index=True)
        if tables
        else pd.DataFrame(columns=[*COLUMNS, "stage"])
    )
