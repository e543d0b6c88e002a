"""The privacy-utility landscape as a picture: Figs 1 and 2 of Negoescu et al. (2024)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lethe.report.svg import COLOURS, MARKS, picture
from studies.landscape.study import LandscapeResult, MeasuredStrategy

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PLACES = 400  # points at which a marginal density is drawn


def landscape(path: Path, result: LandscapeResult) -> None:
    """Every strategy's mean Epsilon* and utility with min-max bars, marginal densities of DP and no DP, the frontier."""
    shown = [one for one in result.strategies if np.isfinite(one.epsilon_star.mean)]
    groups = list(dict.fromkeys(one.group for one in shown))
    with picture(
        path,
        6.6,
        4.8,
        nrows=2,
        ncols=2,
        sharex="col",
        sharey="row",
        width_ratios=(4, 1),
        height_ratios=(1, 4),
    ) as (_, grid):
        (top, corner), (main, side) = grid
        corner.axis("off")
        for group, colour, mark in zip(groups, COLOURS, MARKS, strict=False):
            mine = [one for one in shown if one.group == group]
            x, y = (_means(mine, key) for key in ("epsilon_star", "utility_population"))
            main.errorbar(
                x,
                y,
                yerr=_reach(mine, "utility_population"),
                xerr=_reach(mine, "epsilon_star"),
                linestyle="none",
                marker=mark,
                markersize=4,
                color=colour,
                elinewidth=0.7,
                label=group,
            )
        best = [result.strategies[i] for i in result.frontier]
        main.plot(
            _means(best, "epsilon_star"),
            _means(best, "utility_population"),
            color="#1c1d1f",
            linewidth=0.9,
            linestyle="--",
            label="Pareto frontier",
        )
        main.set(xlabel=f"Epsilon* (parametric, no cut, δ = {result.delta:.2g})", ylabel=result.utility)
        main.set_xlim(left=-0.02 * main.get_xlim()[1])
        main.legend(loc="lower right", fontsize=7, framealpha=0.9, edgecolor="none")
        for private, name, colour in ((False, "no DP", COLOURS[0]), (True, "DP", COLOURS[1])):
            mine = [one for one in shown if (one.epsilon is not None) == private]
            _density(top, _means(mine, "epsilon_star"), main.get_xlim(), colour, name)
            _density(side, _means(mine, "utility_population"), main.get_ylim(), colour, name, upright=True)
        top.set(yticks=[], title=result.data)
        side.set(xticks=[])
        top.legend(frameon=False, fontsize=7)


def _means(strategies: list[MeasuredStrategy], key: str) -> np.ndarray:
    return np.array([getattr(one, key).mean for one in strategies])


def _reach(strategies: list[MeasuredStrategy], key: str) -> np.ndarray:
    """(2, k) from the mean down to the smallest run and up to the largest."""
    low, mean, high = (
        np.array([getattr(getattr(one, key), what) for one in strategies]) for what in ("min", "mean", "max")
    )
    return np.maximum([mean - low, high - mean], 0)


def _density(
    axes: Axes, values: np.ndarray, limits: tuple[float, float], colour: str, name: str, upright: bool = False
) -> None:
    """A Gaussian kernel density of the strategies' means, each at its own height; none for fewer than two values."""
    spread = values.std(ddof=1) if len(values) > 1 else 0.0
    if spread == 0:
        return
    width = 1.06 * spread * len(values) ** -0.2  # Silverman's rule
    places = np.linspace(max(limits[0], 0), limits[1], PLACES)  # neither Epsilon* nor utility is negative
    heights = np.exp(-0.5 * ((places[:, None] - values) / width) ** 2).mean(axis=1)
    heights /= heights.max()
    if upright:
        axes.fill_betweenx(places, heights, color=colour, alpha=0.3, linewidth=0, label=name)
    else:
        axes.fill_between(places, heights, color=colour, alpha=0.3, linewidth=0, label=name)
