"""The SWAP test on an adversary's predictions: a table checked row by row, and its signed
advantages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lethe.audits.unlearning_game.result import HALVES
from lethe.errors import BadFile, BadRow, BadValue, check_columns
from lethe.io.tables import file_line, numeric_column, read_table
from lethe.statistics.checks import check_share
from lethe.statistics.unlearning_game import Quality, signed_advantage, unlearning_quality

if TYPE_CHECKING:
    import pandas as pd

MEMBERS = ("forget", "test")
REQUIRED = ("split", "member", "attack", "accept")
IN_MEMORY = Path("predictions")  # the name in errors of a table without a file


Advantages = dict[
    str, np.ndarray
]  # attack to signed advantages, one per seed, in the order of the seeds


def audit(predictions: Path | pd.DataFrame, alpha: float = 0.05) -> Quality:
    """Return the unlearning quality by the SWAP test; raise the `BadInput` that names the broken
    row or group.
    """
    check_share("alpha", alpha)
    original, swapped, paired = advantages(predictions)
    return unlearning_quality(original, swapped, paired=paired, alpha=alpha)


def advantages(predictions: Path | pd.DataFrame) -> tuple[Advantages, Advantages, bool]:
    """The advantages of both halves from a file or table, and whether both halves of every attack
    have the same seeds.
    """
    path = predictions if isinstance(predictions, Path) else IN_MEMORY
    if isinstance(predictions, Path):
        predictions = read_table(
            predictions, REQUIRED, text=("attack", "seed"), optional=("weight",)
        )
    table = _checked(predictions, path)
    halves: dict[str, dict[str, dict[object, tuple[float, int]]]] = {half: {} for half in HALVES}
    for (attack, half, seed), rows in table.groupby(["attack", "split", "seed"], sort=True):
        sets = [rows[rows["member"] == member] for member in MEMBERS]
        try:
            value = signed_advantage(
                *(one["accept"] for one in sets), *(one["weight"] for one in sets)
            )
        except BadValue as error:
            raise BadFile(
                path, f"attack {attack}, split {half}, seed {seed}: {str(error).rstrip('.')}"
            ) from None
        halves[half].setdefault(attack, {})[seed] = (value, len(sets[0]))
    for attack in halves["original"] | halves["swapped"]:
        for half in HALVES:
            if attack not in halves[half]:
                raise BadFile(
                    path, f"attack {attack}: no rows with split {half}", "Both halves are needed."
                )
        if len(sizes := {size for half in HALVES for _, size in halves[half][attack].values()}) > 1:
            problem = f"attack {attack}: forget sets of {sorted(sizes)} points, expected one size"
            raise BadFile(
                path, problem, "Both halves and all seeds use the same two sets of points."
            )
    original, swapped = (
        {
            attack: np.array([value for value, _ in seeds.values()])
            for attack, seeds in halves[half].items()
        }
        for half in HALVES
    )
    paired = all(
        halves["original"][attack].keys() == halves["swapped"][attack].keys() for attack in original
    )
    return original, swapped, paired


def _checked(table: pd.DataFrame, path: Path) -> pd.DataFrame:
    """Return the table with checked columns; a missing weight is 1, a missing seed 0."""
    check_columns(path, REQUIRED, table.columns)
    if not len(table):
        raise BadFile(path, "has no rows", "Give at least one point of each set in both halves.")

    def refuse(broken: np.ndarray | pd.Series, column: str, legal: str) -> None:
        if broken.any():
            first = int(np.flatnonzero(broken)[0])
            got = table[column].tolist()[first]
            raise BadRow(
                path, file_line(path, first), f"column {column}: got {got!r}; must be {legal}"
            )

    # Cell by cell: JSON lines may hold a list, which `isin` cannot take, and Parquet an array,
    # which equals nothing.
    def one_of(names: Sequence[str]) -> Callable[[object], bool]:
        return lambda value: isinstance(value, str) and value in names

    refuse(~table["split"].map(one_of(HALVES)), "split", "original or swapped")
    refuse(~table["member"].map(one_of(MEMBERS)), "member", "forget or test")
    accept = numeric_column(table, "accept", path)
    refuse(~((accept >= 0) & (accept <= 1)), "accept", "a number in [0, 1]")
    weight = numeric_column(table, "weight", path) if "weight" in table else np.ones(len(table))
    if "weight" in table:
        refuse(~(np.isfinite(weight) & (weight >= 0)), "weight", "a finite number of at least 0")
    for column in ("attack", "seed"):
        if column in table:
            labels = [
                isinstance(one, (str, int, float)) and one != "" and one == one
                for one in table[column]
            ]
            refuse(~np.array(labels), column, "a label, not empty")
    seed = table.get("seed", 0)
    return table.assign(accept=accept, weight=weight, seed=seed, attack=table["attack"].astype(str))
