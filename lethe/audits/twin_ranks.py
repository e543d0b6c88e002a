"""The reader of a table of twins: the score of every candidate, or the rank of each true one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lethe.errors import BadFile, BadRow, check_columns
from lethe.io.ids import id_text
from lethe.io.records import check_one_model, copied_group
from lethe.io.tables import file_line, numeric_column, read_table
from lethe.statistics.twins import ranks_of, tie_digest

if TYPE_CHECKING:
    import pandas as pd

SCORED = ("secret", "candidate", "score", "true")
RANKED = ("secret", "rank", "candidates")
IN_MEMORY = Path("ranks")  # the name in errors of a table without a file
MOST_CANDIDATES = 1_000_000  # of a secret; the statistic's tables have a place for each
# Orders candidates with one score by their texts alone, where no sealed key is at hand.
PUBLIC = b""


@dataclass(frozen=True)
class TwinRanks:
    """The rank of each true candidate, in the order of the file.

    Attributes
    ----------
    secrets
        The names of the m secrets.
    ranks
        (m,) the rank of each true candidate, from 1.
    candidates
        (m,) the number of candidates of each secret.
    scores
        (m, k) those of all candidates; None where the file has ranks, or secrets differ in their number.
    drawn
        The draw of each secret by its name; empty where the file has ranks.
    """

    secrets: tuple[str, ...]
    ranks: tuple[int, ...]
    candidates: tuple[int, ...]
    scores: np.ndarray | None = None
    drawn: Mapping[str, TwinDraw] = field(default_factory=dict)


@dataclass(frozen=True)
class TwinDraw:
    """The texts of the candidates of a secret, and the ``true`` one."""

    candidates: frozenset[str]
    true: str


def check_control(model: TwinRanks, control: TwinRanks, path: Path) -> None:
    """Refuse a control, read from ``path``, on other draws than those of the model."""
    remedy = "Give the control's scores of the candidates that the model's table has."
    candidates_of_secret = dict(zip(control.secrets, control.candidates, strict=True))
    for secret in model.secrets:
        if secret not in candidates_of_secret:
            raise BadFile(path, f"lacks the secret {secret} of the model's table", remedy)
    if len(control.secrets) > len(model.secrets):
        secret = next(name for name in control.secrets if name not in model.secrets)
        problem = f"has the secret {secret}, which the model's table lacks"
        raise BadFile(path, problem, remedy)
    for secret, n_candidates in zip(model.secrets, model.candidates, strict=True):
        draw = model.drawn.get(secret)
        of_control = control.drawn.get(secret)
        is_other = candidates_of_secret[secret] != n_candidates
        if draw and of_control:
            is_other = draw.candidates != of_control.candidates
        if is_other:
            problem = f"has other candidates of the secret {secret} than the model's table"
            raise BadFile(path, problem, remedy)
        if draw and of_control and draw.true != of_control.true:
            problem = f"has another true candidate of the secret {secret} than the model's table"
            raise BadFile(path, problem, remedy)


def read_ranks(source: Path | pd.DataFrame) -> TwinRanks:
    """Read a file or a table with the columns ``secret, candidate, score, true``, or ``secret, rank, candidates``.

    Raises
    ------
    BadFile, BadRow
        If a column is absent, or a secret has no true candidate, several, fewer than two candidates, the same candidate
        twice, or a score that is no number; or a rank is not among its candidates.
    """
    path = IN_MEMORY
    if isinstance(source, Path):
        path = source
        source = read_table(path, ("secret",), text=("candidate",), ids=("secret",))
    table = source
    check_columns(path, ("secret",), table.columns)
    if not len(table):
        raise BadFile(path, "has no rows", "Give at least one secret.")
    has_ranks = "rank" in table.columns and "candidate" not in table.columns
    check_columns(path, RANKED if has_ranks else SCORED, table.columns)
    is_without_id = table["secret"].isna().to_numpy()
    _refuse(is_without_id, path, "secret: got nothing; must be an id")
    check_one_model(path, table)
    secrets = list(map(id_text, table["secret"]))
    if has_ranks:
        return _ranked(table, secrets, path)
    return _scored(table, secrets, path)


def _refuse(broken: np.ndarray, path: Path, problem: str) -> None:
    """Raise `BadRow` of the first broken row, if there is one."""
    if broken.any():
        line = file_line(path, int(np.argmax(broken)))
        raise BadRow(path, line, problem)


def _ranked(table: pd.DataFrame, secrets: list[str], path: Path) -> TwinRanks:
    """The ranks of a table with a row per secret."""
    candidates = numeric_column(table, "candidates", path)
    ranks = numeric_column(table, "rank", path)

    is_possible = (candidates >= 2) & (candidates <= MOST_CANDIDATES) & (candidates % 1 == 0)
    legal = f"a whole number from 2 to {MOST_CANDIDATES:,}"
    _refuse(~is_possible, path, f"candidates: must be {legal}")

    is_among = (ranks >= 1) & (ranks <= candidates) & (ranks % 1 == 0)
    _refuse(~is_among, path, "rank: must be a whole number from 1 to the number of candidates")

    is_repeated = table["secret"].map(id_text).duplicated().to_numpy()
    _refuse(is_repeated, path, "secret: stands in an earlier row; each secret has a single rank")
    return TwinRanks(tuple(secrets), _whole(ranks), _whole(candidates))


def _whole(values: np.ndarray) -> tuple[int, ...]:
    """Whole numbers of a column of floats."""
    return tuple(map(int, values))


def _scored(table: pd.DataFrame, secrets: list[str], path: Path) -> TwinRanks:
    """The ranks of a table with a row per candidate, by its scores."""
    scores = numeric_column(table, "score", path)
    true = numeric_column(table, "true", path, words=True)
    is_flag = np.isin(true, (0, 1))
    is_without_text = table["candidate"].isna().to_numpy()
    _refuse(np.isnan(scores), path, "score: got nothing; every candidate needs a number")
    _refuse(~is_flag, path, "true: must be 1 for the true candidate and 0 for a twin")
    _refuse(is_without_text, path, "candidate: got nothing; must be a text")
    texts = list(map(id_text, table["candidate"]))

    rows_of_secret: dict[str, list[int]] = {}
    for row, secret in enumerate(secrets):
        rows_of_secret.setdefault(secret, []).append(row)

    ranks = []
    drawn = {}
    numbers_of_secret: dict[str, list[float]] = {}
    for secret, rows in rows_of_secret.items():
        of_secret = [texts[row] for row in rows]
        _check_candidates(path, secret, rows, of_secret, true[rows])

        # Equal scores are ordered by hashes, which do not depend on the order of the file.
        digests = np.array([tie_digest(PUBLIC, secret, text) for text in of_secret])
        order = np.argsort(np.argsort(digests))
        place = int(np.argmax(true[rows]))
        (rank,) = ranks_of([scores[rows]], [place], [order])
        ranks.append(int(rank))
        drawn[secret] = TwinDraw(frozenset(of_secret), of_secret[place])
        numbers_of_secret[secret] = sorted(scores[rows].tolist())

    copied = copied_group(numbers_of_secret)
    if copied is not None:
        later, first = copied
        problem = f"{later} has the scores of {first}, as if one secret stood under two names"
        raise BadFile(path, problem, "Give the candidates of a draw once.")
    if all(len(set(scores[rows].tolist())) == 1 for rows in rows_of_secret.values()):
        problem = "all candidates of each secret have one score, which tells none of them apart"
        raise BadFile(path, problem, "Give the model's score of each candidate.")
    sizes = tuple(map(len, rows_of_secret.values()))
    matrix = None
    if len(set(sizes)) == 1 and np.isfinite(scores).all():
        matrix = np.array([scores[rows] for rows in rows_of_secret.values()])
    return TwinRanks(tuple(rows_of_secret), tuple(ranks), sizes, matrix, drawn)


def _check_candidates(
    path: Path,
    secret: str,
    rows: list[int],
    texts: list[str],
    true: np.ndarray,
) -> None:
    """Raises `BadRow` where the candidates of a secret cannot be ranked; ``true`` (k,) marks the true one."""
    line = file_line(path, rows[0])
    name = f"secret {secret}"
    if len(rows) < 2:
        raise BadRow(path, line, f"{name}: got 1 candidate; must be at least 2")
    if len(rows) > MOST_CANDIDATES:
        problem = f"{name}: got {len(rows):,} candidates; must be at most {MOST_CANDIDATES:,}"
        raise BadRow(path, line, problem)
    if true.sum() != 1:
        problem = f"{name}: got {int(true.sum())} true candidates; must be exactly 1"
        raise BadRow(path, line, problem)
    if len(set(texts)) < len(texts):
        raise BadRow(path, line, f"{name}: a candidate stands twice; its twins must differ")
