"""The points of a sweep: every combination of the values given for some keys of params.yaml, or points at random.

An axis is a list of values or a range: ``uniform(0, 1)``, ``log(1e-5, 1e-3)`` (log-uniform), ``whole(1, 20)`` (whole numbers,
both ends included). Ranges need a search at random, in which a list gives each of its values with the same probability.
"""

import dataclasses
import itertools
import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import Field, ValidationError

from lethe.config.fields import Count, Section, Seed
from lethe.config.load import parse, read_preset
from lethe.errors import BadParam, BadValue
from lethe.identity import digest
from lethe.io.files import Json
from lethe.report.sweep_figure import Figure, SweepClaim

RANGE = re.compile(r"\s*(uniform|log|whole)\s*\(([^(),]+),([^(),]+)\)\s*")
LEGAL_RANGE = (
    "uniform(LOW, HIGH), log(LOW, HIGH) with LOW above 0, or whole(LOW, HIGH), LOW below HIGH"
)
Axis = list[Json] | str
PRESETS = Path(__file__).parent / "sweeps"


@dataclasses.dataclass(frozen=True)
class SweepPoint:
    """One combination of values: the keys of params.yaml with their values, and a name for its folder."""

    settings: tuple[tuple[str, Json], ...]
    label: str = ""  # replaces the name made from the values

    @property
    def name(self) -> str:
        """A readable name, legal as a folder; different values have different names."""
        if self.label:
            return self.label
        values = []
        for key, value in self.settings:
            values.append(f"{key.rpartition('.')[2]}={json.dumps(value)}")
        text = ",".join(values)
        readable = re.sub(r"[^A-Za-z0-9.,=_-]+", "_", text)[:60]
        return f"{readable}-{digest(repr(self.settings))}"


@dataclasses.dataclass(frozen=True)
class Range:
    """A range of numbers from which a search at random draws."""

    law: str  # uniform | log | whole
    low: float
    high: float

    def draw(self, generator: np.random.Generator) -> float | int:
        if self.law == "whole":
            return int(generator.integers(int(self.low), int(self.high), endpoint=True))
        if self.law == "log":
            return float(np.exp(generator.uniform(math.log(self.low), math.log(self.high))))
        return float(generator.uniform(self.low, self.high))


def range_of(key: str, text: str) -> Range:
    """Read a range such as ``uniform(0, 1)``; raises `BadValue` for any other text."""
    problem = BadValue(key, text, f"a list of values, or {LEGAL_RANGE}")
    match = RANGE.fullmatch(text)
    if match is None:
        raise problem
    law = match[1]
    try:
        low, high = float(match[2]), float(match[3])
    except ValueError:
        raise problem from None
    if not -math.inf < low < high < math.inf:
        raise problem
    if law == "log" and low <= 0:
        raise problem
    if law == "whole" and not (low.is_integer() and high.is_integer()):
        raise problem
    return Range(law, low, high)


def axes_of(assignments: Sequence[str]) -> dict[str, Axis]:
    """Return the axis of each key from texts such as ``key=1,2`` or ``key=log(1e-4, 1e-2)``; raises `BadValue`."""
    axes: dict[str, Axis] = {}
    for assignment in assignments:
        key, equals, text = assignment.partition("=")
        values: Axis
        if equals and RANGE.fullmatch(text):
            key = key.strip()
            values = text
        else:
            if equals and not text.startswith("["):
                key, listed = parse(f"{key}=[{text}]")
            else:
                key, listed = parse(assignment)
            if not listed or not isinstance(listed, (list, str)):
                raise BadValue("-S", assignment, "key=value,value,... or key=[value, value]")
            values = listed
        if key in axes:
            raise BadValue("-S", key, "each key once", "Put all values of a key into one -S.")
        axes[key] = values
    return axes


def grid_of(axes: Mapping[str, Axis]) -> list[SweepPoint]:
    """Return every combination of the values; raises `BadValue` for a range, which has no end of values."""
    for key, values in axes.items():
        if isinstance(values, str):
            raise BadValue(
                key, values, "a list of values, unless --random gives the number of points"
            )
    pairs = [[(key, value) for value in values] for key, values in axes.items()]
    return _distinct([SweepPoint(values) for values in itertools.product(*pairs)])


def _distinct(points: Sequence[SweepPoint]) -> list[SweepPoint]:
    """Each point once: equal points share a folder, and a claim must not count one model twice."""
    return list({point.name: point for point in points}.values())


def random_points(axes: Mapping[str, Axis], count: int, seed: int) -> list[SweepPoint]:
    """Return the points of ``count`` draws without doubles; more draws of a seed begin with the fewer."""
    laws: dict[str, Range | list[Json]] = {}
    for key, values in axes.items():
        laws[key] = range_of(key, values) if isinstance(values, str) else values
    points = []
    for sequence in np.random.SeedSequence(seed).spawn(count):
        generator = np.random.default_rng(sequence)
        settings = [(key, _drawn(law, generator)) for key, law in laws.items()]
        points.append(SweepPoint(tuple(settings)))
    return _distinct(points)


def _drawn(law: Range | list[Json], generator: np.random.Generator) -> Json:
    if isinstance(law, Range):
        return law.draw(generator)
    return law[int(generator.integers(len(law)))]


class Random(Section):
    """How many points a preset draws, and the seed."""

    points: Count
    seed: Seed


class SweepPreset(Section):
    """A sweep fixed beforehand: its axes, its figure, and the claims that it tests."""

    params: dict[str, Json]
    axes: Annotated[dict[str, Axis], Field(min_length=1)]
    random: Random | None
    figure: Figure
    claims: Annotated[list[SweepClaim], Field(min_length=1)]

    @property
    def points(self) -> list[SweepPoint]:
        if self.random is None:
            return grid_of(self.axes)
        return random_points(self.axes, self.random.points, self.random.seed)


def read_sweep_preset(name: str) -> SweepPreset:
    """Return the preset of this name; raises `BadParam` for a key that is wrong."""
    document = read_preset(PRESETS, name)
    try:
        return SweepPreset.model_validate(document)
    except ValidationError as error:
        first = error.errors()[0]
        place = str(PRESETS / f"{name}.yaml")
        raise BadParam(
            ".".join(map(str, first["loc"])), first["input"], first["msg"], place
        ) from None
