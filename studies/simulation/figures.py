"""Figures 3 to 6 of Negoescu et al. (2024), drawn from their data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lethe.report.svg import COLOURS, MARKS, picture
from studies.simulation.simulation import ESTIMATES, Curves, Simulated

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DRAWN = ESTIMATES[:2]  # the paper's own estimates
CERTIFIED = ESTIMATES[-1]
LEVEL = 0.05  # of the test of fit


def ratio_curves(path: Path, laws: Curves, drawn: Curves) -> None:
    """Fig. 3: the first two ratios along the thresholds; of the laws and of samples."""
    with picture(path, 6.4, 2.6, ncols=2, sharey=True) as (_, grid):
        for side, curves, title in zip(grid[0], (laws, drawn), ("(a) the laws", "(b) samples"), strict=True):
            for ratio, colour, name in zip(
                curves.ratios, COLOURS, ("(TPR − δ) / FPR", "(TNR − δ) / FNR"), strict=False
            ):
                there = np.isfinite(ratio) & (ratio > 0)
                side.plot(curves.x[there], ratio[there], color=colour, label=name)
            side.set(yscale="log", xlim=(0, 1), title=title, xlabel="(TPR + FPR) / 2")
        grid[0][0].set_ylabel("ratio")
        grid[0][0].legend(frameon=False)


def same_laws(path: Path, cells: Sequence[Simulated]) -> None:
    """Fig. 4: mean and standard deviation of both estimates against n where the truth is 0."""
    with picture(path, 3.6, 2.6) as (_, grid):
        sizes = [cell.n for cell in cells]
        axes: Axes = grid[0][0]
        _bars(axes, sizes, cells)
        axes.axhline(0, color="#1c1d1f", linewidth=0.9, label="truth")
        axes.set(xscale="log", xlabel="losses per side", ylabel="Epsilon*", title="The same law on both sides")
        axes.legend(frameon=False)


def growing_gap(path: Path, cells: Sequence[Simulated]) -> None:
    """Fig. 5: the estimates against the gap between the laws, one panel per sample size, with both truths and the bound."""
    sizes = sorted({cell.n for cell in cells})
    with picture(path, 2.5 * len(sizes), 2.8, ncols=len(sizes), sharey=True) as (_, grid):
        for axes, n in zip(grid[0], sizes, strict=True):
            row = sorted((cell for cell in cells if cell.n == n), key=lambda cell: cell.gap)
            gaps = [cell.gap for cell in row]
            axes.plot(gaps, [cell.truth for cell in row], color="#1c1d1f", label="truth")
            axes.plot(
                gaps, [cell.truth_cut for cell in row], color="#1c1d1f", linestyle="--", label="truth, cut delta"
            )
            _bars(axes, gaps, row)
            means = [cell.mean(CERTIFIED) for cell in row]
            axes.plot(gaps, means, color=COLOURS[2], marker="_", linestyle=":", label=CERTIFIED)
            axes.set(title=f"n = {n:,}", xlabel="gap between the shapes", xticks=gaps)
        grid[0][0].set_ylabel("Epsilon*")
        grid[0][0].legend(frameon=False, fontsize=6.5)


def goodness_of_fit(path: Path, tables: Mapping[str, np.ndarray], components: Sequence, sizes: Sequence) -> None:
    """Fig. 6: p-values of the test of fit, a column per number of components, a row per sample size; rejections crossed."""
    width = 0.6 + 0.15 * len(components)
    with picture(path, width * len(tables) + 0.6, 2.6, ncols=len(tables), sharey=True) as (
        figure,
        grid,
    ):
        for axes, (name, table) in zip(grid[0], tables.items(), strict=True):
            image = axes.imshow(table.T, cmap="Blues", vmin=0, vmax=1, aspect="auto", origin="lower")
            column, row = np.nonzero(table < LEVEL)
            axes.plot(column, row, "x", color="#c2410c", markersize=4, linestyle="none")
            shown = range(0, len(components), 4)
            axes.set_xticks(shown, [components[place] for place in shown])
            axes.set_yticks(range(len(sizes)), sizes)
            axes.set(title=name, xlabel="Gaussians in the mixture")
            axes.grid(False)
        grid[0][0].set_ylabel("samples")
        figure.colorbar(image, ax=grid[0][-1], label=f"p-value (KS); crossed below {LEVEL:g}")


def _bars(axes: Axes, places: Sequence[float], cells: Sequence[Simulated]) -> None:
    for name, colour, mark in zip(DRAWN, COLOURS, MARKS, strict=False):
        means, sds = [cell.mean(name) for cell in cells], [cell.sd(name) for cell in cells]
        axes.errorbar(places, means, sds, color=colour, marker=mark, markersize=3.5, capsize=2, label=name)
