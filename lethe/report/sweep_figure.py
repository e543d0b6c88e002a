"""The claims of a sweep, decided by its rows, and its figure: one quantity against another, a colour a series."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import Annotated, Literal

from pydantic import Field

from lethe.config.fields import Name, Place, Section
from lethe.report.svg import COLOURS, MARKS, picture
from lethe.statistics.two_sample import Trend, trend

LEVEL = 0.05  # of the two directions together, for one claim
Expected = Literal["falls", "rises", "unrelated"]
SweepVerdict = Literal[
    "held", "the opposite held", "did not show", "a relation showed", "no relation showed"
]
Row = Mapping[str, object]  # one model at one point: the point's settings and the model's numbers


class SweepClaim(Section):
    """A claim on how an effect changes with a cause, each a key of params.yaml or a metric."""

    says: Annotated[str, Field(min_length=1)]
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
    series_label: Annotated[str, Field(min_length=1)] | None = (
        None  # the name of ``series`` in the legend
    )
    title: Annotated[str, Field(min_length=1)]
    x_label: Annotated[str, Field(min_length=1)]
    y_label: Annotated[str, Field(min_length=1)]


@dataclass(frozen=True)
class SweepOutcome:
    says: str
    verdict: SweepVerdict
    trend: Trend
    sentence: str


def outcome(claim: SweepClaim, model: str, rows: Sequence[Row]) -> SweepOutcome:
    """Test one claim on the rows of one model; rows that lack the cause or the effect are left out."""
    causes: list[float] = []
    effects: list[float] = []
    groups: list[str] = []
    for cause, effect, row in points(rows, model, claim.cause, claim.effect):
        causes.append(cause)
        effects.append(effect)
        groups.append(repr(row.get(claim.within)) if claim.within else "")
    relation = trend(causes, effects, groups)
    falls = relation.p_falls <= LEVEL / 2
    rises = relation.p_rises <= LEVEL / 2
    verdict: SweepVerdict
    if claim.expected == "unrelated":
        verdict = "a relation showed" if falls or rises else "no relation showed"
    elif falls or rises:
        verdict = "held" if falls == (claim.expected == "falls") else "the opposite held"
    else:
        verdict = "did not show"
    statistic = "all values equal" if relation.tau is None else f"Kendall's tau {relation.tau:.2f}"
    p = min(1.0, 2 * min(relation.p_falls, relation.p_rises))
    proves = ", which is no proof that there is none" if verdict == "no relation showed" else ""
    sentence = (
        f"{claim.says}: {verdict} over {relation.points} points{proves} ({statistic}, p = {p:.2g} by permutations; "
        f"a claim is tested at {LEVEL:g})."
    )
    return SweepOutcome(claim.says, verdict, relation, sentence)


def number(value: object) -> float | None:
    """A finite number; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    return float(value)


def points(
    rows: Sequence[Row], model: str | None, x: str, y: str
) -> list[tuple[float, float, Row]]:
    """The rows of one model that have both numbers, behind these."""
    measured = []
    for row in rows:
        if row.get("model") != model:
            continue
        first = number(row.get(x))
        second = number(row.get(y))
        if first is not None and second is not None:
            measured.append((first, second, row))
    return measured


def sweep_figure(path: Path, figure: Figure, rows: Sequence[Row]) -> int:
    """Draw the points of one model and save them; return the number of points."""
    points_of_series: dict[object, list[tuple[float, float]]] = {}
    for x, y, row in points(rows, figure.model, figure.x, figure.y):
        series = row.get(figure.series) if figure.series else None
        points_of_series.setdefault(series, []).append((x, y))
    control = []
    if figure.control:
        control = [y for _, y, _ in points(rows, figure.control, figure.y, figure.y)]
    # Only an axis of the sweep has an order along which a line means something.
    linestyle = "-" if "." in figure.x else "none"
    series_name = figure.series_label or (figure.series or "").rpartition(".")[2]
    path.parent.mkdir(parents=True, exist_ok=True)
    with picture(path, 4.4, 3.0) as (_, grid):
        axes = grid[0][0]
        for turn, (series, measured) in enumerate(points_of_series.items()):
            xs, ys = zip(*sorted(measured), strict=True)
            axes.plot(
                xs,
                ys,
                color=COLOURS[turn % len(COLOURS)],
                marker=MARKS[turn % len(MARKS)],
                markersize=4,
                linestyle=linestyle,
                label=f"{series_name} {series}" if figure.series else figure.model,
            )
        if control:
            mean = fmean(control)
            name = str(figure.control)
            axes.axhline(mean, color="#1c1d1f", linestyle="--", linewidth=0.9, label=name)
        axes.set(title=figure.title, xlabel=figure.x_label, ylabel=figure.y_label)
        if points_of_series or control:
            axes.legend(frameon=False, fontsize=7)
    return sum(map(len, points_of_series.values()))


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
    size = (0.6 + 3.4 * len(shown), 0.5 + 2.1 * len(measured) + 0.2 * math.ceil(len(models) / 4))
    with picture(
        path, *size, nrows=len(measured), ncols=len(shown), sharex="col", sharey="row"
    ) as (figure, grid):
        for across, axis in enumerate(shown):
            for down, key in enumerate(measured):
                panel = grid[down][across]
                for turn, model in enumerate(models):
                    colour = COLOURS[turn % len(COLOURS)]
                    mark = MARKS[turn % len(MARKS)]
                    values_of_place: dict[float, list[float]] = {}
                    for x, y, _ in sorted(points(rows, model, axis, key), key=lambda row: row[:2]):
                        values_of_place.setdefault(x, []).append(y)
                    means = [fmean(values) for values in values_of_place.values()]
                    panel.plot(list(values_of_place), means, color=colour, alpha=0.5, linewidth=1)
                    xs = [x for x, values in values_of_place.items() for _ in values]
                    ys = list(chain.from_iterable(values_of_place.values()))
                    panel.plot(xs, ys, mark, color=colour, markersize=4, label=model)
            grid[-1][across].set_xlabel(axis)
        for down, key in enumerate(measured):
            grid[down][0].set_ylabel(key)
        figure.legend(
            *grid[0][0].get_legend_handles_labels(),
            loc="outside upper left",
            ncols=4,
            frameon=False,
            fontsize=7,
        )
    return True


def _numbers(rows: Sequence[Row], key: str) -> set[float]:
    """The different numbers of a key."""
    values = {number(row.get(key)) for row in rows}
    return {value for value in values if value is not None}


def _models_that_change(rows: Sequence[Row], keys: Sequence[str]) -> list[str]:
    """The models whose numbers differ between points, or all models where there is none."""
    values_of_model: dict[str, set[tuple[object, ...]]] = {}
    for row in rows:
        values = tuple(row.get(key) for key in keys)
        values_of_model.setdefault(str(row["model"]), set()).add(values)
    changing = [name for name, values in values_of_model.items() if len(values) > 1]
    return changing or list(values_of_model)
