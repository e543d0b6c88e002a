"""How mean and deviation of one question, and their bounds, go on with the number of answers, a panel for each model.

Source: "A Probabilistic Perspective on Unlearning and Alignment for Large Language Models", Figures 3e and 3f.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from lethe.measure.run import Run, RunModel
from lethe.report.figures import Panel, drawing
from lethe.report.svg import ACCENT, WARM
from lethe.results.table import Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DRAWN = (("convergence_mean", ACCENT), ("convergence_sd", WARM))


def panels(run: Run) -> list[Panel]:
    """The panels of the models under test that have several numbers of answers."""
    drawn = []
    for model in run.subjects:
        rows_of_quantity = {}
        for quantity, _ in DRAWN:
            rows_of_quantity[quantity] = _rows(model, quantity)
        if min(map(len, rows_of_quantity.values())) > 1:
            drawn.append(_panel(model, rows_of_quantity))
    return drawn


def _rows(model: RunModel, quantity: str) -> list[Result]:
    """The rows of the one question that has them, by the number of answers."""
    rows: list[Result] = []
    for question in model.questions:
        rows += [row for row in question.numbers.series(quantity) if row.estimate is not None]
    return sorted(rows, key=lambda row: row.at or 0.0)


def _panel(model: RunModel, rows_of_quantity: dict[str, list[Result]]) -> Panel:
    """The curves of a model; the rows of each quantity are by the number of answers, on which the axis has every second."""
    means = rows_of_quantity["convergence_mean"]
    panel = Panel(model.name, str(means[-1].item))
    with drawing(panel, f"convergence-{model.name}", "by the number of answers") as axes:
        for quantity, colour in DRAWN:
            _draw(axes, rows_of_quantity[quantity], colour)

        axes.set_xscale("log", base=2)
        ticks = [row.at or 0.0 for row in means[::2]]
        axes.set_xticks(ticks, [f"{answers:,.0f}" for answers in ticks])
        axes.minorticks_off()
        axes.set(ylim=(0, 1.02), xlabel="answers, log scale")
    return panel


def _draw(axes: Axes, rows: list[Result], colour: str) -> None:
    """A line through the estimates and a dashed one through the bounds."""
    answers = [row.at or 0.0 for row in rows]
    estimates = [row.estimate or 0.0 for row in rows]
    axes.plot(answers, estimates, color=colour, linewidth=1.4)

    bounds = [math.nan if row.upper is None else row.upper for row in rows]  # NaN: a gap
    axes.plot(answers, bounds, color=colour, linewidth=1, dashes=(4, 1.5))
