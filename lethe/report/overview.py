"""Two figures of all models: the first screen, and forgetting beside utility."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lethe.measure.run import Run
from lethe.report.figures import Panel, drawing
from lethe.report.first_screen import Line, Lines
from lethe.report.svg import ACCENT, INK, MUTED, WARM
from lethe.text import label
from lethe.verdict.finding import LEAKAGE, Findings
from lethe.verdict.standing import Standing

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from lethe.statistics.bound import Interval

COLOURS = {"bad": WARM, "good": ACCENT}  # by the tone of a word; all others are muted
HEIGHT = 0.24  # inches of a row
EDGES = 0.62  # inches above and below the rows
END = 400  # of the axis, in the units of `lethe.report.first_screen`
HALF = 0.5  # to the right of it, a name stands on the left of its model
ROOTS = (0, 0.05, 0.25, 0.5, 1)


def first_screen(lines: Lines, run: Run) -> Panel:
    """The first screen as a figure: a row per model with its words, the ends of its worst question and its greedy answers."""
    words = run.words
    panel = Panel("First screen", f"from the lower to the upper end of {words.of_worst}")
    size = (6.6, EDGES + HEIGHT * max(1, len(lines.rows)))
    with drawing(panel, "first-screen", size=size, left=2.6) as axes:
        for low, high in lines.bands:
            axes.axvspan(low, max(high, low + 2), color=MUTED, alpha=0.25, linewidth=0)
        names = []
        for place, line in enumerate(lines.rows):
            names.append(f"{line.model.name}: {words.words(line.standing.words)}")
            _draw_line(axes, place, line)

        places, texts = zip(*lines.ticks, strict=True)
        axes.set_xticks(places, texts)
        axes.set_yticks(range(len(names)), names)
        axes.set(xlim=(0, END), ylim=(len(names) - 0.5, -0.5))
        axes.set_xlabel(words.of_worst)
        axes.grid(visible=False, axis="y")
    return panel


def _draw_line(axes: Axes, place: int, line: Line) -> None:
    """Draw the ends of a model's worst question as a bar, and its highest greedy score as a diamond."""
    if line.reach:
        colour = COLOURS.get(line.standing.tone, MUTED)
        axes.plot(line.reach, (place, place), color=colour, linewidth=5)
    if line.greedy is not None:
        axes.plot(line.greedy, place, "D", color=INK, markersize=4, mfc="none")


def forgetting_and_utility(
    run: Run, standings: Sequence[Standing], found: Findings
) -> Panel | None:
    """What each model leaks on average beside its utility, both as intervals; None where fewer than two models have both."""
    points = []
    quantity = ""
    for model, standing in zip(run.models, standings, strict=True):
        leakage = found.about(model.name, LEAKAGE)
        useful = standing.utility.interval
        if leakage is not None and leakage.interval is not None and useful is not None:
            quantity = leakage.details["quantity"]
            points.append(_Point(model.name, model.role, leakage.interval, useful))
    if len(points) < 2:
        return None

    panel = Panel("Forgetting and utility", "intervals that hold together; best: top left")
    with drawing(panel, "forgetting-and-utility", size=(4.6, 3.0), left=0.42) as axes:
        for point in points:
            point.draw(axes)

        axes.set_xscale("function", functions=(root, np.square))
        axes.set_xticks(ROOTS, [f"{root:g}" for root in ROOTS])
        axes.set(xlim=(0, 1), ylim=(0, 1.02))
        measured, _, _ = quantity.partition(",")
        axes.set_xlabel(f"{measured}, root scale")
        score = label(run.params.metrics.utility_scorer)
        above = f"{score} where it should answer"
        axes.set_title(above, loc="left", fontsize=8, color=MUTED, pad=5)
    return panel


@dataclass(frozen=True)
class _Point:
    """A model with the intervals of its leakage and of its usefulness; ``role`` says whether it is under test."""

    name: str
    role: str
    leaks: Interval
    useful: Interval

    def draw(self, axes: Axes) -> None:
        """Draw the estimate as a dot with the name beside it, and each interval as a line through it."""
        x, y = self.leaks.value, self.useful.value
        colour = MUTED
        if self.role == "subject":
            colour = ACCENT
        axes.plot((self.leaks.lower, self.leaks.upper), (y, y), color=colour, linewidth=0.8)
        axes.plot((x, x), (self.useful.lower, self.useful.upper), color=colour, linewidth=0.8)
        axes.plot(x, y, "o", color=colour, markersize=4)

        # The name stands on the side that has more room.
        side = "left"
        gap = 4  # points between dot and name
        if x > HALF:
            side = "right"
            gap = -4
        axes.annotate(
            self.name,
            (x, y),
            xytext=(gap, 3),
            textcoords="offset points",
            horizontalalignment=side,
            fontsize=7,
        )


def root(values: np.ndarray) -> np.ndarray:
    """The scale of leakage, on which small shares are told apart; a value below 0, as in a margin, counts as 0."""
    return np.sqrt(np.maximum(values, 0))
