"""The figure of a sweep: one quantity against another, a mark per point, a colour per series."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from lethe.evaluation.sweep_claims import Figure, Row, number
from lethe.report.svg import COLOURS, MARKS, picture


def sweep_figure(path: Path, figure: Figure, rows: Sequence[Row]) -> int:
    """Draw the points of one model and save them; return the number of points."""
    groups: dict[object, list[tuple[float, float]]] = {}
    for row in rows:
        place = number(row.get(figure.x)), number(row.get(figure.y))
        if row.get("model") == figure.model and place[0] is not None and place[1] is not None:
            key = row.get(figure.series) if figure.series else None
            groups.setdefault(key, []).append((place[0], place[1]))
    control = [
        value
        for row in rows
        if row.get("model") == figure.control and (value := number(row.get(figure.y))) is not None
    ]
    named = figure.series_label or (figure.series or "").rpartition(".")[2]
    path.parent.mkdir(parents=True, exist_ok=True)
    with picture(path, 4.4, 3.0) as (_, grid):
        axes = grid[0][0]
        for turn, (key, points) in enumerate(groups.items()):
            points.sort()
            axes.plot(
                *zip(*points, strict=True),
                color=COLOURS[turn % len(COLOURS)],
                marker=MARKS[turn % len(MARKS)],
                markersize=4,
                # Only an axis of the sweep has an order along which a line means something.
                linestyle="-" if "." in figure.x else "none",
                label=f"{named} {key}" if figure.series else figure.model,
            )
        if control:
            axes.axhline(fmean(control), color="#1c1d1f", linestyle="--", linewidth=0.9, label=str(figure.control))
        axes.set(title=figure.title, xlabel=figure.x_label, ylabel=figure.y_label)
        if groups or control:
            axes.legend(frameon=False, fontsize=7)
    return sum(map(len, groups.values()))
