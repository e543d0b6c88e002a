"""Results: the rows of ``data/results/STAGE/NAME.parquet``, the only source of results.

A row is an interval: an estimate, the ends that exist, what they cover and assume, and the evidence from which an end at
another level is computed (`lethe.results.ends`). Every reader reads through `Results`.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypedDict, Unpack

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


@dataclass(
    slots=True, unsafe_hash=True
)  # a frozen one takes ten times as long to make: a table has a million
class Result:
    """One row, which nobody changes.

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
        """The row of the vocabulary; raises `BadValue` where there is none."""
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
        if unit == "count" and float(self.estimate).is_integer():
            return int(self.estimate)
        return self.estimate

    @property
    def lower_bound(self) -> Bound | None:
        """The lower end with its guarantee; None where there is no such end."""
        return self._bound("lower", self.lower, self.alpha_lower)

    @property
    def upper_bound(self) -> Bound | None:
        """The upper end with its guarantee; None where there is no such end."""
        return self._bound("upper", self.upper, self.alpha_upper)

    @property
    def ends(self) -> list[Bound]:
        """The ends with a guarantee, the lower one first."""
        return [end for end in (self.lower_bound, self.upper_bound) if end]

    def _bound(self, side: Side, value: float | None, alpha: float | None) -> Bound | None:
        if value is None or alpha is None:
            return None
        covers = Covers(self.covers)
        return Bound(
            value,
            side,
            alpha,
            covers,
            self.assumes,
            self.method,
            self.n,
        )

    def names(self) -> tuple[str, str, str]:
        """The names of estimate, lower and upper end in exports; empty for one that is not exported."""
        at = ""
        if self.at is not None:
            at = f"{self.at:.10g}"
        names = []
        for pattern in self.kind.names:
            names.append(pattern.format(split=self.split, item=self.item, at=at))
        estimate, lower, upper = names
        return estimate, lower, upper

    def named(self) -> list[tuple[str, Value, Bound | None]]:
        """Estimate, lower and upper end under their names, each end with its guarantee."""
        estimate, lower, upper = self.names()
        return [
            (estimate, self.value, None),
            (lower, self.lower, self.lower_bound),
            (upper, self.upper, self.upper_bound),
        ]


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
    """One row from bounds that share a guarantee; a NaN is a missing estimate, and ``further`` other fields of `Result`.

    Raises `BadValue` for a quantity that the vocabulary lacks, and ``ValueError`` for ends with two guarantees.
    """
    if lower and upper and not _share_a_guarantee(lower, upper):
        raise ValueError(
            f"{quantity} ({basis}): its two ends have two guarantees; write a row for each"
        )
    return _row((model, scope, quantity, basis), estimate, lower, upper, further)


def _row(
    key: tuple[str, str, str, str],
    estimate: float | None,
    lower: Bound | None,
    upper: Bound | None,
    further: Further,
) -> Result:
    """The row of `result`, of ends that share a guarantee: a table of many prompts has a million rows."""
    quantities.of(*key[1:])
    if estimate is not None:
        estimate = None if math.isnan(estimate) else float(estimate)
    end = upper or lower
    if end is None:
        return Result(*key, estimate=estimate, **further)
    further.setdefault("n", end.n)
    least = most = alpha_lower = alpha_upper = None
    if lower is not None:
        least = float(lower.value)
        alpha_lower = float(lower.alpha)
    if upper is not None:
        most = float(upper.value)
        alpha_upper = float(upper.alpha)
    return Result(
        *key,
        estimate=estimate,
        lower=least,
        upper=most,
        alpha_lower=alpha_lower,
        alpha_upper=alpha_upper,
        covers=str(end.covers),
        assumes=str(end.assumes),
        method=end.method,
        **further,
    )


def _share_a_guarantee(lower: Bound, upper: Bound) -> bool:
    """Whether two ends may stand in a row: the level alone may differ."""
    same_claim = lower.covers == upper.covers and lower.assumes == upper.assumes
    return same_claim and lower.method == upper.method and lower.n == upper.n


class IntervalAt(NamedTuple):
    """An interval at a threshold or a number of answers; None or NaN for an estimate, None for an end that is missing."""

    at: float
    estimate: float | None
    lower: float | None
    upper: float


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
        """Add the row of an interval, or two where its ends have two guarantees.

        Parameters
        ----------
        scope, quantity, basis
            The row of the vocabulary.
        estimate
            The value; None or NaN where it is missing.
        lower, upper
            The ends with their guarantees; None where there is no such end.
        **further
            Other fields of `Result`: the item, the split, the evidence.
        """
        key = (self.model, scope, quantity, basis)
        if lower is None or upper is None or _share_a_guarantee(lower, upper):
            self.rows.append(_row(key, estimate, lower, upper, further))
        else:
            self.rows.append(result(*key, estimate, upper=upper, **further))
            self.rows.append(result(*key, lower=lower, **further))


def rows_at(about: Result, end: Bound, points: Iterable[IntervalAt]) -> list[Result]:
    """A row of a quantity for each of its points, of which all ends have the guarantee of ``end``; none for a NaN upper end.

    ``about`` has what the rows share beside that: model, scope, quantity, basis, item and split. A table of many prompts has
    a million such rows.
    """
    quantities.of(about.scope, about.quantity, about.basis)
    alpha = float(end.alpha)
    covers = str(end.covers)
    assumes = str(end.assumes)
    rows = []
    for at, estimate, lower, upper in points:
        if math.isnan(upper):
            continue
        if estimate is not None and math.isnan(estimate):
            estimate = None
        alpha_lower = alpha if lower is not None else None
        row = Result(
            about.model,
            about.scope,
            about.quantity,
            about.basis,
            about.item,
            about.split,
            at,
            estimate,
            lower,
            upper,
            alpha_lower,
            alpha,
            covers,
            assumes,
            end.method,
            end.n,
        )
        rows.append(row)
    return rows


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
    restated = []
    for row in rows:
        if row.assumes:
            row = replace(row, assumes=f"{when}, {row.assumes}")
        restated.append(row)
    return restated


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
        bounds = {}
        for row in self.single:
            for name, _, end in row.named():
                if name and end:
                    bounds[name] = end
        return bounds

    @cached_property
    def single(self) -> list[Result]:
        """The rows that are exported as single numbers, in the order of the vocabulary."""
        place = quantities.order()
        single = [row for row in self.rows if row.at is None or row.at in row.kind.exported_at]
        return sorted(single, key=lambda row: place[row.scope, row.quantity, row.basis])

    @cached_property
    def points(self) -> dict[str, tuple[Value, Bound | None]]:
        """The numbers whose names hold a threshold or a number of answers, each with its guarantee where it is an end."""
        points: dict[str, tuple[Value, Bound | None]] = {}
        for row in self.rows:
            for pattern, (name, value, end) in zip(row.kind.names, row.named(), strict=True):
                if "{at}" in pattern:
                    points[name] = (value, end)
        return points

    @property
    def columns(self) -> dict[str, Value]:
        """`values` and `points`: a row of a table of questions."""
        columns = dict(self.values)
        for name, (value, _) in self.points.items():
            columns[name] = value
        return columns

    def kind_of(self, name: str) -> Quantity:
        """The quantity that is exported under a name. Raises `KeyError` for a name of none."""
        for row in self.rows:
            if name in row.names():
                return row.kind
        raise KeyError(name)

    def value(self, name: str) -> float | None:
        """The number under ``name``, if there is one."""
        value = self.values.get(name)
        if isinstance(value, (int, float)):
            return value
        return None

    def estimate(self, quantity: str, basis: str = "sampled") -> float | None:
        """The estimate of a quantity, if there is one."""
        for row in self.series(quantity, basis):
            if row.estimate is not None:
                return row.estimate
        return None

    def upper(self, quantity: str, basis: str = "sampled") -> Bound | None:
        """The upper end of a quantity, if there is one."""
        for row in self.series(quantity, basis):
            if row.upper_bound:
                return row.upper_bound
        return None

    def series(
        self, quantity: str, basis: str = "sampled", item: str | None = None
    ) -> tuple[Result, ...]:
        """The rows of a quantity in their order, of one ``item`` if it is named."""
        found = [row for row in self.rows if (row.quantity, row.basis) == (quantity, basis)]
        if item is not None:
            found = [row for row in found if row.item == item]
        return tuple(found)

    def row(self, quantity: str, basis: str = "sampled") -> Result | None:
        """The only row of a quantity; None where there is none."""
        rows = self.series(quantity, basis)
        return rows[0] if rows else None

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

    def scorers(self, name: str) -> dict[str, Json]:
        """The scorers that judged the answers of a model: ``score`` of mean scores, ``leak`` of leaks, and ``parameters`` of
        each that has any; empty where the rows do not say.
        """
        return self.model(name).facts("answers")

    def audit(self, name: str) -> Numbers:
        """The rows of the scope "audit"."""
        return Numbers([row for row in self.rows(name) if row.scope == "audit"])


def place(root: Path, stage: str, name: str) -> Path:
    """The file of one stage and model below the folder of artifacts ``root``."""
    return root / FOLDER / stage / f"{name}.parquet"


def is_place(path: Path) -> bool:
    """Whether a file is a table of results, by where it lies; other stages' tables are Parquet files too."""
    return path.suffix == ".parquet" and path.parent.parent.name == FOLDER


def write(path: str | os.PathLike[str], rows: Iterable[Result]) -> None:
    """Write rows as Parquet, with the schema version of artifacts in the file."""
    from lethe.io.tables import write_arrow

    write_arrow(path, _arrow(rows))


def frame_of(rows: Iterable[Result]) -> pd.DataFrame:
    """Rows as a DataFrame, as `write` puts them into a file."""
    return _arrow(rows).to_pandas()


def _arrow(rows: Iterable[Result]) -> pa.Table:
    import pyarrow as pa

    rows = list(rows)
    types = {"text": pa.string(), "number": pa.float64(), "count": pa.int64()}
    columns = {}
    for name, kind in COLUMNS.items():
        values = [getattr(row, name) for row in rows]
        if name == "evidence":
            values = list(map(_dumped, values))
        columns[name] = pa.array(values, types[kind])
    return pa.table(columns)


def _dumped(evidence: Mapping[str, Json] | None) -> str | None:
    """The evidence as the text of its column."""
    if evidence is None:
        return None
    return json.dumps(evidence, allow_nan=True)


def _loaded(text: str | None) -> Mapping[str, Json] | None:
    """The evidence that `_dumped` wrote; raises ``ValueError`` for text that is no JSON."""
    if text is None:
        return None
    evidence: dict[str, Json] = json.loads(text)
    return evidence


COLUMNS = {
    "model": "text",
    "scope": "text",
    "item": "text",
    "split": "text",
    "quantity": "text",
    "at": "number",
    "basis": "text",
    "estimate": "number",
    "lower": "number",
    "upper": "number",
    "alpha_lower": "number",
    "alpha_upper": "number",
    "covers": "text",
    "assumes": "text",
    "method": "text",
    "n": "count",
    "missing": "count",
    "evidence": "text",
    "text": "text",
}
assert set(COLUMNS) == {field.name for field in fields(Result)}


def read(
    root: Path, models: Iterable[str] | None = None, *, without: Collection[str] = ()
) -> Results:
    """Read every table below ``root/results``; of the names in ``models`` alone, if given, and none of stages ``without``."""
    wanted = None if models is None else set(models)
    by_model: dict[str, list[Result]] = {}
    for path in sorted((root / FOLDER).glob("*/*.parquet")):
        if path.parent.name in without:
            continue
        if wanted is None or path.stem in wanted or path.parent.name in SHARED:
            for row in read_rows(path):
                if wanted is None or row.model in wanted:
                    by_model.setdefault(row.model, []).append(row)
    return Results({name: tuple(rows) for name, rows in by_model.items()})


def compared(root: Path) -> list[Result]:
    """The rows that the stage `compare` wrote of all models together; empty where there is no such table."""
    path = place(root, "compare", "models")
    if not path.is_file():
        return []
    return read_rows(path)


SHARED = ("compare",)  # stages with one table of all models
# What the stage `compare` reads no table of: DVC lets it wait for no stage that a run may lack.
NOT_COMPARED = (*SHARED, "utility")


def read_rows(path: Path) -> list[Result]:
    """The rows of one table; raises `BadFile` where it lacks a column, or holds evidence that is not JSON."""
    from lethe.errors import BadFile
    from lethe.io.tables import read_arrow

    arrow = read_arrow(path)
    for name in COLUMNS:
        if name not in arrow.column_names:
            raise BadFile(path, f"has no column {name!r}", AGAIN)
    rows = []
    for values in arrow.select(list(COLUMNS)).to_pylist():
        try:
            evidence = _loaded(values.pop("evidence"))
        except ValueError:
            raise BadFile(path, "holds evidence that is not JSON", AGAIN) from None
        rows.append(Result(**values, evidence=evidence))
    return rows


def frame(root: Path) -> pd.DataFrame:
    """Every table below ``root/results`` as one DataFrame, with a column ``stage``."""
    import pandas as pd

    from lethe.io.tables import read_table

    tables = []
    for path in sorted((root / FOLDER).glob("*/*.parquet")):
        table = read_table(path)
        tables.append(table.assign(stage=path.parent.name))
    if not tables:
        return pd.DataFrame(columns=[*COLUMNS, "stage"])
    return pd.concat(tables, ignore_index=True)
