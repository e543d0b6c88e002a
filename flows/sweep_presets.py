"""Presets of sweeps: settings of every point, axes or random ranges, a figure, and claims to test."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError

from flows.grid import Axis, Point, grid_of, random_points
from lethe.config import yaml as presets
from lethe.config.fields import Count, Section, Seed
from lethe.errors import BadParam
from lethe.report.sweep_figure import Figure, SweepClaim

PRESETS = Path(__file__).parent / "sweeps"


class Random(Section):
    """Points at random: how many, and the seed that draws them."""

    points: Count
    seed: Seed


class SweepPreset(Section):
    """One file of flows/sweeps."""

    params: dict[str, Any]
    axes: Annotated[dict[str, Axis], Field(min_length=1)]
    random: Random | None
    figure: Figure
    claims: Annotated[list[SweepClaim], Field(min_length=1)]

    @property
    def points(self) -> list[Point]:
        """The points of the grid, or those at random."""
        if self.random is None:
            return grid_of(self.axes)
        return random_points(self.axes, self.random.points, self.random.seed)


def read_sweep_preset(name: str) -> SweepPreset:
    """Read a preset by its name; raise `BadValue` for an unknown name and `BadParam` for a broken file."""
    document = presets.read_preset(PRESETS, name)
    try:
        return SweepPreset.model_validate(document)
    except ValidationError as error:
        first = error.errors()[0]
        place = str(PRESETS / f"{name}.yaml")
        raise BadParam(".".join(map(str, first["loc"])), first["input"], first["msg"], place) from None
