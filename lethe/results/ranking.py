"""The rows of a ranking of models among those of the stage `compare`."""

from collections.abc import Iterable

from lethe.results.table import Result

# The record of what was compared, means and ranks of the models, and the differences of pairs.
QUANTITIES = (
    "comparison",
    "score",
    "rank",
    "rank_population",
    "difference",
    "difference_population",
)


def ranking_of(rows: Iterable[Result]) -> tuple[Result, ...]:
    """The rows of a ranking, its record first; empty where no models were compared."""
    kept = []
    for row in rows:
        if row.basis == "compared" and row.quantity in QUANTITIES:
            kept.append(row)
    return tuple(kept)
