"""Leakage beside utility along unlearning: a panel for each method, with the others behind it."""

from collections.abc import Sequence

import numpy as np

from lethe.errors import plural
from lethe.measure.trajectories import KEPT, MeasuredAlong, Trajectories
from lethe.report.figures import Panel, drawing
from lethe.report.overview import ROOTS, root
from lethe.report.svg import ACCENT, INK, MUTED, WARM


def panels(trajectories: Trajectories) -> list[Panel]:
    """A panel for each method that was measured along unlearning."""
    return [_panel(method, trajectories.methods) for method in trajectories.methods]


def _panel(method: MeasuredAlong, methods: Sequence[MeasuredAlong]) -> Panel:
    """The line of a method over that of the others; a square is Base, a ring the point at matched utility.

    A dashed line is the utility that matches Base, and a thin bar the interval of a point's leakage.
    """
    note = f"no point keeps {KEPT:.0%} of Base's score"
    if method.chosen is not None:
        note = f"at matched utility: epoch {method.chosen.epoch}"
    panel = Panel(method.method, note)
    words = f"{plural(len(method.points), 'point')}, leakage to the right, utility up"
    with drawing(panel, f"along-{method.method}", words) as axes:
        # Behind: the other methods.
        for other in methods:
            if other is not method:
                leakage, utility = _line(other)
                axes.plot(leakage, utility, color=MUTED, linewidth=0.6, alpha=0.5)

        # The line of the method, and the utility that it should keep.
        leakage, utility = _line(method)
        axes.axhline(KEPT * utility[0], color=MUTED, linewidth=0.7, dashes=(4, 2))
        axes.plot(leakage, utility, "-", color=ACCENT, linewidth=1.2)

        # Its points with their intervals, of which Base is the first.
        for point in method.points:
            ends = (point.lower, point.upper)
            axes.plot(ends, (point.utility, point.utility), color=ACCENT, linewidth=0.4)
        axes.plot(leakage, utility, ".", color=ACCENT, markersize=4)
        axes.plot(leakage[0], utility[0], "s", color=INK, markersize=4, clip_on=False)
        if method.chosen is not None:
            place = (method.chosen.leakage, method.chosen.utility)
            axes.plot(*place, "o", mec=WARM, mfc="none", markersize=8, clip_on=False)

        axes.set_xscale("function", functions=(root, np.square))
        axes.set_xticks(ROOTS, [f"{share:g}" for share in ROOTS])
        axes.set(xlim=(0, 1), ylim=(0, 1.02), xlabel="leakage, root scale")
    return panel


def _line(method: MeasuredAlong) -> tuple[list[float], list[float]]:
    """Leakage and utility of the points, in the order of their epochs."""
    leakage = [point.leakage for point in method.points]
    utility = [point.utility for point in method.points]
    return leakage, utility
