"""The claims of a sweep, decided by its rows, and its figure: one quantity against another, a colour a series."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

from pydantic import Field

from lethe.config.fields import Name, Place, Section
from lethe.report.svg import COLOURS, MARKS, picture
from lethe.statistics.two_sample import Trend, trend

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LEVEL = 0.05  # of the two directions together, for one claim
COLUMNS_OF_LEGEND = 4
Expected = Literal["falls", "rises", "unrelated"]
SweepVerdict = Literal[
    "held", "the opposite held", "did not show", "a relation showed", "no relation showed"
]
Words = Annotated[str, Field(min_length=1)]
Row = Mapping[str, object]  # one model at one point: the point's settings and the model's numbers


class SweepClaim(Section):
    """A claim on how an effect changes with a cause, each a key of params.yaml or a metric."""

    says: Words
    cause: Place
    effect: Place
    expected: Expected
    within: Place | None = None  # points are compared where this key has the same value


class Figure(Section):
    """What a figure shows: a mark per point, of one model, with the control's mean as a dashed line."""

    x: Place
    y: Place
    model: Name
    control: Name | None
    series: Place | None
    series_label: Words | None = None  # the name of ``series`` in the legend
    title: Words
    x_label: Words
    y_label: Words


@dataclass(frozen=True)
class SweepOutcome:
    """What the rows say of a claim: the verdict, the test behind it, and both in a sentence."""

    says: str
    verdict: SweepVerdict
    trend: Trend
    sentence: str


def outcome(claim: SweepClaim, model: str, rows: Sequence[Row]) -> SweepOutcome:
    """Test one claim on the rows of one model; rows that lack the cause or the effect are left out.

    The test is Kendall's, by permutations within the groups that ``claim.within`` makes. Both directions are tested,
    each at half of `LEVEL`.
    """
    causes: list[float] = []
    effects: list[float] = []
    groups: list[str] = []
    for point in points(rows, model, claim.cause, claim.effect):
        causes.append(point.x)
        effects.append(point.y)
        group = ""
        if claim.within:
            group = repr(point.row.get(claim.within))
        groups.append(group)

    relation = trend(causes, effects, groups)
    verdict = _verdict(claim.expected, relation)

    over = f"over {relation.points} points"
    if verdict == "no relation showed":
        over += ", which is no proof that there is none"
    statistic = "all values equal"
    if relation.tau is not None:
        statistic = f"Kendall's tau {relation.tau:.2f}"
    p = min(1.0, 2 * min(relation.p_falls, relation.p_rises))
    test = f"{statistic}, p = {p:.2g} by permutations; a claim is tested at {LEVEL:g}"
    sentence = f"{claim.says}: {verdict} {over} ({test})."
    return SweepOutcome(claim.says, verdict, relation, sentence)


def _verdict(expected: Expected, relation: Trend) -> SweepVerdict:
    """The word on a claim: a direction shows where its p-value is at most half of `LEVEL`."""
    falls = relation.p_falls <= LEVEL / 2
    rises = relation.p_rises <= LEVEL / 2
    if expected == "unrelated":
        if falls or rises:
            return "a relation showed"
        return "no relation showed"
    if not falls and not rises:
        return "did not show"
    if falls == (expected == "falls"):
        return "held"
    return "the opposite held"


def number(value: object) -> float | None:
    """A finite number; None for anything else, such as a truth value, a text or a missing number."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    return float(value)


class FigurePoint(NamedTuple):
    """A row as a point of a figure: the numbers under two of its keys."""

    x: float
    y: float
    row: Row


def points(rows: Sequence[Row], model: str | None, x: str, y: str) -> list[FigurePoint]:
    """The rows of one model that have both numbers, under the keys ``x`` and ``y``, in the order of ``rows``."""
    measured = []
    for row in rows:
        if row.get("model") != model:
            continue
        first = number(row.get(x))
        second = number(row.get(y))
        if first is not None and second is not None:
            measured.append(FigurePoint(first, second, row))
    return measured


def sweep_figure(path: Path, figure: Figure, rows: Sequence[Row]) -> int:
    """Draw the points of one model and save them; return the number of points.

    ``rows`` are those of the sweep, a model at a point each. A file that is there is replaced.
    """
    measured = points(rows, figure.model, figure.x, figure.y)
    points_of_series: dict[object, list[tuple[float, float]]] = {}
    for point in measured:
        series = None
        if figure.series:
            series = point.row.get(figure.series)
        points_of_series.setdefault(series, []).append((point.x, point.y))
    control = []
    if figure.control:
        control = [point.y for point in points(rows, figure.control, figure.y, figure.y)]

    path.parent.mkdir(parents=True, exist_ok=True)
    with picture(path, 4.4, 3.0) as (_, grid):
        axes = grid[0][0]
        _draw_series(axes, figure, points_of_series)

        if control:
            mean = fmean(control)
            name = str(figure.control)
            axes.axhline(mean, color="#1c1d1f", linestyle="--", linewidth=0.9, label=name)
        axes.set(title=figure.title, xlabel=figure.x_label, ylabel=figure.y_label)
        if points_of_series or control:
            axes.legend(frameon=False, fontsize=7)
    return len(measured)


def _draw_series(
    axes: Axes, figure: Figure, points_of_series: Mapping[object, Sequence[tuple[float, float]]]
) -> None:
    """Draw the points of each series in the order of x, with a colour and a mark of its own."""
    linestyle = "none"
    if "." in figure.x:  # only along an axis of the sweep does a line mean something
        linestyle = "-"
    _, _, last_key = (figure.series or "").rpartition(".")
    series_name = figure.series_label or last_key
    for turn, (series, places) in enumerate(points_of_series.items()):
        name = figure.model
        if figure.series:
            name = f"{series_name} {series}"
        xs, ys = zip(*sorted(places), strict=True)
        axes.plot(
            xs,
            ys,
            color=COLOURS[turn % len(COLOURS)],
            marker=MARKS[turn % len(MARKS)],
            markersize=4,
            linestyle=linestyle,
            label=name,
        )


def axes_figure(
    path: Path, axes: Sequence[str], quantities: Sequence[str], rows: Sequence[Row]
) -> bool:
    """Draw each quantity against each axis of numbers, a colour a model; return whether there was anything to draw.

    Points of one value are joined at their mean, because they differ in the other axes. A model that is the same at all
    points, such as Base, is left out, as in the table: it would stretch the scale.
    """
    shown = [axis for axis in axes if len(_numbers(rows, axis)) > 1]
    measured = [key for key in quantities if _numbers(rows, key)]
    if not shown or not measured:
        return False
    models = _models_that_change(rows, measured)

    path.parent.mkdir(parents=True, exist_ok=True)
    lines_of_legend = math.ceil(len(models) / COLUMNS_OF_LEGEND)
    width = 0.6 + 3.4 * len(shown)  # inches
    height = 0.5 + 2.1 * len(measured) + 0.2 * lines_of_legend
    panels = picture(
        path, width, height, nrows=len(measured), ncols=len(shown), sharex="col", sharey="row"
    )
    with panels as (figure, grid):
        for across, axis in enumerate(shown):
            for down, key in enumerate(measured):
                for turn, model in enumerate(models):
                    _draw_model(grid[down][across], turn, model, points(rows, model, axis, key))
            grid[-1][across].set_xlabel(axis)

        for down, key in enumerate(measured):
            grid[down][0].set_ylabel(key)

        handles, labels = grid[0][0].get_legend_handles_labels()
        figure.legend(
            handles,
            labels,
            loc="outside upper left",
            ncols=COLUMNS_OF_LEGEND,
            frameon=False,
            fontsize=7,
        )
    return True


def _draw_model(panel: Axes, turn: int, model: str, measured: Sequence[FigurePoint]) -> None:
    """Draw the points of a model and, in the same colour, the line of their means."""
    xs = []
    ys = []
    values_of_place: dict[float, list[float]] = {}
    for x, y in sorted((point.x, point.y) for point in measured):
        xs.append(x)
        ys.append(y)
        values_of_place.setdefault(x, []).append(y)

    means = [fmean(values) for values in values_of_place.values()]
    colour = COLOURS[turn % len(COLOURS)]
    mark = MARKS[turn % len(MARKS)]
    panel.plot(list(values_of_place), means, color=colour, alpha=0.5, linewidth=1)
    panel.plot(xs, ys, mark, color=colour, markersize=4, label=model)


def _numbers(rows: Sequence[Row], key: str) -> set[float]:
    """The different numbers of a key."""
    values = set()
    for row in rows:
        value = number(row.get(key))
        if value is not None:
            values.add(value)
    return values


def _models_that_change(rows: Sequence[Row], keys: Sequence[str]) -> list[str]:
    """The models whose numbers differ between points, or all models where there is none."""
    first_of_model: dict[str, list[object]] = {}
    changing: set[str] = set()
    for row in rows:
        model = str(row["model"])
        values = [row.get(key) for key in keys]
        if first_of_model.setdefault(model, values) != values:
            changing.add(model)
    return [model for model in first_of_model if model in changing] or list(first_of_model)
