"""Shards of one model's questions: a part of the work of a stage, done and cached by itself.

A shard's result carries the key of everything that determines it. The stage of the whole takes the results whose keys are
those that it would have itself, and does the rest, so a stale shard is never read.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from lethe.errors import BadValue

T = TypeVar("T")
FOLDER = "shards"  # below data/
STAGES = ("sample", "likelihood", "score")


@dataclass(frozen=True)
class Shard:
    """Number ``number`` of ``of`` shards, counted from 1.

    Examples
    --------
    >>> [Shard(number, 3).part(list("abcdefgh")) for number in (1, 2, 3)]
    [['a', 'b'], ['c', 'd', 'e'], ['f', 'g', 'h']]
    >>> str(Shard.parse("2of3"))
    '2of3'
    """

    number: int
    of: int

    def __post_init__(self) -> None:
        if not 1 <= self.number <= self.of:
            raise BadValue("shard", str(self), "NUMBERofCOUNT, the number from 1 to the count")

    def __str__(self) -> str:
        return f"{self.number}of{self.of}"

    @classmethod
    def parse(cls, text: str) -> Shard:
        """Read a text such as ``2of3``; raises `BadValue`."""
        if not (found := re.fullmatch(r"([0-9]{1,6})of([0-9]{1,6})", text)):
            raise BadValue("shard", text, "NUMBERofCOUNT, such as 2of3")
        return cls(int(found.group(1)), int(found.group(2)))

    def part(self, items: Sequence[T]) -> list[T]:
        """The items of this shard: neighbours, and every item is in exactly one shard."""
        first, last = ((number * len(items)) // self.of for number in (self.number - 1, self.number))
        return list(items[first:last])


def name_of(model: str, shard: Shard) -> str:
    """The name of a shard of a model, as in the names of its stages and folders."""
    return f"{model}-{shard}"


def model_of(name: str) -> str:
    """The model of a shard's name."""
    return name.rpartition("-")[0]


def place_of(root: Path, stage: str, model: str, shard: Shard) -> Path:
    """The folder of a shard's result."""
    return root / FOLDER / stage / name_of(model, shard)


def found(root: Path, stage: str, model: str) -> dict[Shard, Path]:
    """The folders of a model's shards that are there, in the order of their numbers."""
    places: dict[Shard, Path] = {}
    for folder in (root / FOLDER / stage).glob(f"{model}-*of*"):
        own, _, told = folder.name.rpartition("-")
        if own == model and folder.is_dir():
            places[Shard.parse(told)] = folder
    return dict(sorted(places.items(), key=lambda pair: (pair[0].of, pair[0].number)))
