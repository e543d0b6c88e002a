"""Exact bounds of questions with known masses."""

import dataclasses
from collections.abc import Iterable

from lethe.statistics.answer_tree import Masses, Remainder, leak_bands, leak_interval
from lethe.statistics.leak_trees import AnswerTree, Certificates, How

HOW = How("keyword_leak", 1.0, 0, 1.0, None, 40, "float32", 0.0)


def certified(
    ids: Iterable[str], leak: float, clean: float, rho: float, leaks: int = 0, **how: object
) -> Certificates:
    """Exact bounds of questions with these exactly known masses and this sample of the rest."""
    masses, rest = Masses((leak,), (clean,)), Remainder(rho, 10_000 if rho else 0, leaks)
    ends = leak_interval(masses, rest, 0.01)
    trees = tuple(
        AnswerTree(
            key, ends.lower, 1.0, ends.upper_certain, ends.upper, ends.lower_sampled, 0.01, leak, clean, 0.0, 0.0, 10,
            0.1, rho, rest.sampled, leaks, 0.0, 1.0, (1.0, 2.0), leak_bands(0.1, 0.2, (1000,)), (), masses,
        )
        for key in ids
    )  # fmt: skip
    return Certificates("model", trees, dataclasses.replace(HOW, **how), 0.01)  # type: ignore[arg-type]
