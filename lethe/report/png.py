"""Stand-alone pictures as PNG, in the report's style."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from lethe.report.svg import INK, LIGHT, MUTED, RULE, STYLE

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.figure import Figure

Share = bool | Literal["none", "all", "row", "col"]
COLOURS = ("#2459a9", "#c2410c", "#0f766e", "#7c3aed", "#a16207", "#be185d", "#4d7c0f", "#1c1d1f")
MARKS = ("o", "s", "D", "^", "v", "P", "X", "*")
DOTS_PER_INCH = 160


@contextmanager
def picture(
    path: Path,
    width: float,
    height: float,
    *,
    nrows: int = 1,
    ncols: int = 1,
    sharex: Share = False,
    sharey: Share = False,
    width_ratios: Sequence[float] | None = None,
    height_ratios: Sequence[float] | None = None,
) -> Iterator[tuple[Figure, np.ndarray]]:
    """Yield a figure with its axes (rows, columns), then save it."""
    import matplotlib
    from matplotlib.figure import Figure

    drawn = {INK: LIGHT["ink"], MUTED: LIGHT["muted"], RULE: LIGHT["rule"]}
    style: dict[Any, Any] = {
        key: drawn.get(value, value) if isinstance(value, str) else value for key, value in STYLE.items()
    }
    with matplotlib.rc_context(style):
        figure = Figure(figsize=(width, height), layout="constrained")
        yield (
            figure,
            figure.subplots(
                nrows,
                ncols,
                sharex=sharex,
                sharey=sharey,
                squeeze=False,
                width_ratios=width_ratios,
                height_ratios=height_ratios,
            ),
        )
        # No version of the library in the file: the same data gives the same bytes.
        figure.savefig(path, dpi=DOTS_PER_INCH, metadata={"Software": None})
