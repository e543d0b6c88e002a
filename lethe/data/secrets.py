"""The secrets of a dataset: what was drawn among twins, with the rows that state it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lethe.errors import BadInput
from lethe.io.artifacts import Row
from lethe.statistics.twins import tie_digest

# Orders candidates with one score by their texts alone, where no sealed key is at hand.
PUBLIC = b""


@dataclass(frozen=True)
class Secret:
    """A drawn value and the rows that state it, which share its draw.

    ``answers`` (rows, k) are whole answers: those at one place state the same candidate. The true ones stand first.
    """

    name: str
    rows: tuple[Row, ...]
    answers: tuple[tuple[str, ...], ...]

    @property
    def candidates(self) -> tuple[str, ...]:
        """The texts by which candidates are named: the answers to the first row."""
        return self.answers[0]

    @property
    def author(self) -> str | None:
        """Whom the secret is about, by its first row."""
        return self.rows[0].get("author")

    def order(self, key: bytes = PUBLIC) -> np.ndarray:
        """(k,) the place of each candidate in the order that decides between equal scores."""
        digests = np.array([tie_digest(key, self.name, text) for text in self.candidates])
        return np.argsort(np.argsort(digests))


def name_of_secret(row: Row) -> str:
    """The name of a row's secret; by default each row has its own."""
    return row.get("secret") or row["id"]


def secrets_of(rows: Sequence[Row]) -> list[Secret]:
    """Return the secrets of the rows that have twins, in the order of their first rows.

    Raises
    ------
    BadInput
        If two rows of a secret differ in their number of twins, some rows of a secret have none, or a candidate stands twice.
    """
    rows_of_secret: dict[str, list[Row]] = {}
    for row in rows:
        rows_of_secret.setdefault(name_of_secret(row), []).append(row)
    secrets = []
    for name, of_secret in rows_of_secret.items():
        has_twins = any(row.get("twins") for row in of_secret)
        if not has_twins:
            continue
        answers = []
        for row in of_secret:
            texts = (row["answer"], *(row.get("twins") or ()))
            if len(set(texts)) < len(texts):
                problem = "twins: the answer or a twin stands twice; all candidates must differ"
                raise BadInput(f"Row {row['id']}, key {problem}.")
            answers.append(texts)
        sizes = sorted({len(texts) for texts in answers})
        if len(sizes) > 1:
            numbers = " and ".join(str(size - 1) for size in sizes)
            problem = f"rows with {numbers} twins; all rows of a secret must have the same number"
            raise BadInput(f"Secret {name}: got {problem}.")
        secrets.append(Secret(name, tuple(of_secret), tuple(answers)))
    return secrets


def questions_of(secrets: Sequence[Secret]) -> dict[str, list[str]]:
    """Return the ids of the questions that ask for each secret, by its name."""
    return {secret.name: [row["id"] for row in secret.rows] for secret in secrets}
