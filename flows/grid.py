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
class Point:
    settings: tuple[tuple[str, Json], ...]
    label: str = ""  # replaces the name made from the values

    @property
    def name(self) -> str:
        """A readable name, legal as a folder; different values have different names."""
        if self.label:
            return self.label
        text = ",".join(
            f"{key.rpartition('.')[2]}={json.dumps(value)}" for key, value in self.settings
        )
        readable = re.sub(r"[^A-Za-z0-9.,=_-]+", "_", text)[:60]
        return f"{readable}-{digest(repr(self.settings))}"


@dataclasses.dataclass(frozen=True)
class Range:
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
    match = RANGE.fullmatch(text)
    try:
        law, low, high = (match[1], float(match[2]), float(match[3])) if match else ("", 0.0, 0.0)
    except ValueError:
        law, low, high = "", 0.0, 0.0
    whole = law != "whole" or (low.is_integer() and high.is_integer())
    if not (law and -math.inf < low < high < math.inf and whole and (law != "log" or low > 0)):
        raise BadValue(key, text, f"a list of values, or {LEGAL_RANGE}")
    return Range(law, low, high)


def axes_of(assignments: Sequence[str]) -> dict[str, Axis]:
    axes: dict[str, Axis] = {}
    for assignment in assignments:
        key, equals, text = assignment.partition("=")
        values: Axis
        if equals and RANGE.fullmatch(text):
            key, values = key.strip(), text
        else:
            key, listed = parse(
                assignment if not equals or text.startswith("[") else f"{key}=[{text}]"
            )
            if not listed or not isinstance(listed, (list, str)):
                raise BadValue("-S", assignment, "key=value,value,... or key=[value, value]")
            values = listed
        if key in axes:
            raise BadValue("-S", key, "each key once", "Put all values of a key into one -S.")
        axes[key] = values
    return axes


def grid_of(axes: Mapping[str, Axis]) -> list[Point]:
    for key, values in axes.items():
        if isinstance(values, str):
            raise BadValue(
                key, values, "a list of values, unless --random gives the number of points"
            )
    pairs = [[(key, value) for value in values] for key, values in axes.items()]
    return _distinct([Point(values) for values in itertools.product(*pairs)])


def _distinct(points: Sequence[Point]) -> list[Point]:
    """Each point once: equal points share a folder, and a claim must not count one model twice."""
    return list({point.name: point for point in points}.values())


def random_points(axes: Mapping[str, Axis], count: int, seed: int) -> list[Point]:
    """Return the points of ``count`` draws without doubles; more draws of a seed begin with the fewer."""
    laws = {
        key: range_of(key, values) if isinstance(values, str) else values
        for key, values in axes.items()
    }

    def draw(law: Range | list[Json], generator: np.random.Generator) -> Json:
        return (
            law.draw(generator)
            if isinstance(law, Range)
            else law[int(generator.integers(len(law)))]
        )

    generators = map(np.random.default_rng, np.random.SeedSequence(seed).spawn(count))
    return _distinct(
        [Point(tuple((key, draw(law, each)) for key, law in laws.items())) for each in generators]
    )


class Random(Section):
    points: Count
    seed: Seed


class SweepPreset(Section):
    params: dict[str, Json]
    axes: Annotated[dict[str, Axis], Field(min_length=1)]
    random: Random | None
    figure: Figure
    claims: Annotated[list[SweepClaim], Field(min_length=1)]

    @property
    def points(self) -> list[Point]:
        if self.random is None:
            return grid_of(self.axes)
        return random_points(self.axes, self.random.points, self.random.seed)


def read_sweep_preset(name: str) -> SweepPreset:
    document = read_preset(PRESETS, name)
    try:
        return SweepPreset.model_validate(document)
    except ValidationError as error:
        first = error.errors()[0]
        place = str(PRESETS / f"{name}.yaml")
        raise BadParam(
            ".".join(map(str, first["loc"])), first["input"], first["msg"], place
        ) from None
