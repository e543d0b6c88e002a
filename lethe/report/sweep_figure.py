"""The claims of a sweep, decided by its rows, and its figure: one quantity against another, a colour a series."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
    own = points(rows, model, claim.cause, claim.effect)
    groups = [repr(row.get(claim.within)) if claim.within else "" for _, _, row in own]
    relation = trend([x for x, _, _ in own], [y for _, y, _ in own], groups)
    falls, rises = relation.p_falls <= LEVEL / 2, relation.p_rises <= LEVEL / 2
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
    own = (
        (number(row.get(x)), number(row.get(y)), row) for row in rows if row.get("model") == model
    )
    return [
        (first, second, row)
        for first, second, row in own
        if first is not None and second is not None
    ]


def sweep_figure(path: Path, figure: Figure, rows: Sequence[Row]) -> int:
    """Draw the points of one model and save them; return the number of points."""
    groups: dict[object, list[tuple[float, float]]] = {}
    for x, y, row in points(rows, figure.model, figure.x, figure.y):
        groups.setdefault(row.get(figure.series) if figure.series else None, []).append((x, y))
    control = (
        [y for _, y, _ in points(rows, figure.control, figure.y, figure.y)]
        if figure.control
        else []
    )
    named = figure.series_label or (figure.series or "").rpartition(".")[2]
    path.parent.mkdir(parents=True, exist_ok=True)
    with picture(path, 4.4, 3.0) as (_, grid):
        axes = grid[0][0]
        for turn, (key, own) in enumerate(groups.items()):
            axes.plot(
                *zip(*sorted(own), strict=True),
                color=COLOURS[turn % len(COLOURS)],
                marker=MARKS[turn % len(MARKS)],
                markersize=4,
                # Only an axis of the sweep has an order along which a line means something.
                linestyle="-" if "." in figure.x else "none",
                label=f"{named} {key}" if figure.series else figure.model,
            )
        if control:
            axes.axhline(
                fmean(control),
                color="#1c1d1f",
                linestyle="--",
                linewidth=0.9,
                label=str(figure.control),
            )
        axes.set(title=figure.title, xlabel=figure.x_label, ylabel=figure.y_label)
        if groups or control:
            axes.legend(frameon=False, fontsize=7)
    return sum(map(len, groups.values()))


def axes_figure(
    path: Path, axes: Sequence[str], quantities: Sequence[str], rows: Sequence[Row]
) -> bool:
    """Draw each quantity against each axis of numbers, a colour a model; return whether there was anything to draw.

    Points of one value are joined at their mean, because they differ in the other axes. A model that is the same at all
    points, such as Base, is left out, as in the table: it would stretch the scale.
    """
    shown = [axis for axis in axes if len({number(row.get(axis)) for row in rows} - {None}) > 1]
    measured = [key for key in quantities if any(number(row.get(key)) is not None for row in rows)]
    values: dict[str, set[tuple[object, ...]]] = {}
    for row in rows:
        values.setdefault(str(row["model"]), set()).add(tuple(row.get(key) for key in measured))
    models = [name for name, own in values.items() if len(own) > 1] or list(values)
    if not shown or not measured:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    size = (0.6 + 3.4 * len(shown), 0.5 + 2.1 * len(measured) + 0.2 * math.ceil(len(models) / 4))
    with picture(
        path, *size, nrows=len(measured), ncols=len(shown), sharex="col", sharey="row"
    ) as (figure, grid):
        for across, axis in enumerate(shown):
            for down, key in enumerate(measured):
                for turn, model in enumerate(models):
                    own = sorted((x, y) for x, y, _ in points(rows, model, axis, key))
                    colour, mark = COLOURS[turn % len(COLOURS)], MARKS[turn % len(MARKS)]
                    panel, places = grid[down][across], list(dict.fromkeys(x for x, _ in own))
                    means = [fmean(y for other, y in own if other == x) for x in places]
                    panel.plot(places, means, color=colour, alpha=0.5, linewidth=1)
                    xs, ys = [x for x, _ in own], [y for _, y in own]
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
