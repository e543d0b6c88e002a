"""The section of the page on methods over their seeds: a row per method, and the tests between methods."""

from itertools import chain

from lethe.comparison.over_seeds import MATCHED, OverSeeds
from lethe.measure.run import Run
from lethe.report.columns import columns

__all__ = ["MATCHED", "heads_of", "methods_of"]


def methods_of(run: Run, found: OverSeeds) -> tuple[list[str], list[list[str]]]:
    """The headings, and the cells of a row for each method, with the words on its models."""
    heads = heads_of(run, found)
    rows = []
    for title in found.titles:
        cells = [found.cell(title, name) for name in heads]
        rows.append([title, *cells, found.words(title)])
    return ["method", *heads.values(), "forgetting, utility: models"], rows


def heads_of(run: Run, found: OverSeeds) -> dict[str, str]:
    """The heading of each number that some method has, by its exported name."""
    groups = columns(run, "model", [model.numbers for model in run.models])
    heads = {}
    for column in chain.from_iterable(members for _, members in groups):
        if column.key in found.names:
            heads[column.key] = f"{column.group}: {column.head}"
    return heads
