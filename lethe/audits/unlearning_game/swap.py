"""The SWAP test on an adversary's predictions: a table checked row by row, and its signed
advantages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lethe.audits.unlearning_game.result import HALVES
from lethe.errors import BadFile, BadRow, BadValue, check_columns
from lethe.io.ids import alike_in
from lethe.io.records import copied_group
from lethe.io.tables import file_line, numeric_column, read_table
from lethe.statistics.checks import check_share
from lethe.statistics.unlearning_game import Quality, signed_advantage, unlearning_quality

if TYPE_CHECKING:
    import pandas as pd

MEMBERS = ("forget", "test")
REQUIRED = ("split", "member", "attack", "accept")
IN_MEMORY = Path("predictions")  # the name in errors of a table without a file


# Attack to signed advantages, one per seed, in the order of the seeds.
Advantages = dict[str, np.ndarray]


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
    path = IN_MEMORY
    if isinstance(predictions, Path):
        path = predictions
        text = ("attack", "seed")
        predictions = read_table(predictions, REQUIRED, text=text, optional=("weight",))
    table = _checked(predictions, path)

    _check_no_copies(table, path)

    halves: dict[str, dict[str, dict[object, _Played]]] = {half: {} for half in HALVES}
    for (attack, half, seed), rows in table.groupby(["attack", "split", "seed"], sort=True):
        forget = rows[rows["member"] == "forget"]
        test = rows[rows["member"] == "test"]
        try:
            signed = signed_advantage(
                forget["accept"],
                test["accept"],
                forget["weight"],
                test["weight"],
            )
        except BadValue as error:
            place = f"attack {attack}, split {half}, seed {seed}"
            raise BadFile(path, f"{place}: {str(error).rstrip('.')}") from None
        halves[half].setdefault(attack, {})[seed] = _Played(signed, len(forget))

    original = halves["original"]
    swapped = halves["swapped"]
    for attack in original | swapped:
        sizes = set()
        for half, attacks in halves.items():
            if attack not in attacks:
                problem = f"attack {attack}: no rows with split {half}"
                raise BadFile(path, problem, "Both halves are needed.")
            sizes |= {played.points for played in attacks[attack].values()}
        if len(sizes) > 1:
            problem = f"attack {attack}: forget sets of {sorted(sizes)} points, expected one size"
            remedy = "Both halves and all seeds use the same two sets of points."
            raise BadFile(path, problem, remedy)

    paired = all(original[attack].keys() == swapped[attack].keys() for attack in original)
    return _signed(original), _signed(swapped), paired


def _check_no_copies(table: pd.DataFrame, path: Path) -> None:
    """Refuse predictions of an attack that stand under two seeds or in both halves: they are of one model."""
    for attack, of_attack in table.groupby("attack", sort=False):
        numbers_of_model: dict[str, list[float]] = {}
        for (split, seed), rows in of_attack.groupby(["split", "seed"], sort=False):
            ordered = rows.sort_values(["member", "accept"])
            numbers_of_model[f"split {split}, seed {seed}"] = ordered["accept"].tolist()
        copied = copied_group(numbers_of_model)
        if copied is not None:
            later, first = copied
            problem = f"attack {attack}: {later} has the predictions of {first}"
            remedy = "Give the predictions of a model once: the models are learned afresh for each half and seed."
            raise BadFile(path, problem, remedy)


@dataclass(frozen=True)
class _Played:
    """The signed advantage of one attack and seed, and the size of its forget set."""

    signed: float
    points: int


def _signed(attacks: dict[str, dict[object, _Played]]) -> Advantages:
    """The signed advantages of each attack, in the order of the seeds."""
    advantages = {}
    for attack, seeds in attacks.items():
        advantages[attack] = np.array([played.signed for played in seeds.values()])
    return advantages


def _checked(table: pd.DataFrame, path: Path) -> pd.DataFrame:
    """Return the table with checked columns; a missing weight is 1, a missing seed 0."""
    check_columns(path, REQUIRED, table.columns)
    if not len(table):
        raise BadFile(path, "has no rows", "Give at least one point of each set in both halves.")

    def refuse(broken: np.ndarray | pd.Series, column: str, legal: str) -> None:
        if not broken.any():
            return
        first = int(np.flatnonzero(broken)[0])
        got = table[column].tolist()[first]
        problem = f"column {column}: got {got!r}; must be {legal}"
        raise BadRow(path, file_line(path, first), problem)

    # Cell by cell: JSON lines may hold a list, which `isin` cannot take, and Parquet an array,
    # which equals nothing.
    def is_outside(column: str, names: Sequence[str]) -> np.ndarray:
        cells = table[column].tolist()
        return np.array([not isinstance(cell, str) or cell not in names for cell in cells])

    refuse(is_outside("split", HALVES), "split", "original or swapped")
    refuse(is_outside("member", MEMBERS), "member", "forget or test")
    accept = numeric_column(table, "accept", path, words=True)
    is_probability = (accept >= 0) & (accept <= 1)
    refuse(~is_probability, "accept", "a number in [0, 1]")
    weight = np.ones(len(table))
    if "weight" in table:
        weight = numeric_column(table, "weight", path)
        is_weight = np.isfinite(weight) & (weight >= 0)
        refuse(~is_weight, "weight", "a finite number of at least 0")
    for column in ("attack", "seed"):
        if column in table:
            are_labels = np.array([_is_label(cell) for cell in table[column]])
            refuse(~are_labels, column, "a label, not empty")
            found = alike_in(table[column])
            if found is not None:
                remedy = f"Write the {column} alike in all of its rows."
                raise BadRow(path, file_line(path, found.place), found.problem(column), remedy)
    return table.assign(
        accept=accept,
        weight=weight,
        seed=table.get("seed", 0),
        attack=table["attack"].astype(str),
    )


def _is_label(cell: object) -> bool:
    """Whether a cell is text or a number, and neither empty nor NaN."""
    is_nan = cell != cell
    return isinstance(cell, (str, int, float)) and cell != "" and not is_nan
