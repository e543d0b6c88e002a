"""The models under test beside each other: the ranks that each may have, and every pair."""

from collections.abc import Sequence

from lethe.comparison.ranking import Ranking
from lethe.text import NONE, plural

DIGITS = 4


def headline(ranking: Ranking) -> str:
    """How many pairs of models differ over these questions, or that no rank is claimed."""
    if ranking.record["refused"]:
        return "No rank is claimed of these models, for the reason below."
    models = plural(len(ranking.record["runs"]), "model")
    pairs = ranking.of("difference")
    differ = ranking.differ("difference")
    of = f"Of {plural(len(pairs), 'pair')} of {models} under test"
    return f"{of}, {differ} are shown to differ on average over these questions."


def models_of(ranking: Ranking) -> tuple[list[str], list[list[str]]]:
    """The headings and the cells of a row for each model, the lowest mean first."""
    (_, *columns), rows = ranking.table()
    return ["model", *columns], cells(rows)


def pairs_of(ranking: Ranking) -> tuple[list[str], list[list[str]]]:
    """The headings and the cells of a row for each pair with an interval."""
    columns, rows = ranking.pair_table()
    return columns, cells(rows)


def cells(rows: Sequence[Sequence[object]]) -> list[list[str]]:
    """The cells as texts; ends are rounded outward before."""
    texts = []
    for row in rows:
        texts.append([_cell(value) for value in row])
    return texts


def _cell(value: object) -> str:
    if value is None:
        return NONE
    if isinstance(value, float):
        return f"{value:.{DIGITS}g}"
    return str(value)
