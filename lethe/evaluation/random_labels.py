"""Bounds from a person's labels of random draws of a run: no assumption about any judge."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from lethe.errors import BadFile, BadRow
from lethe.io.tables import file_line, numeric_column, read_table
from lethe.statistics.bound import Bound, Covers
from lethe.statistics.counts import rate_bounds
from lethe.statistics.label_rates import AT_RANDOM, METHOD_AT_RANDOM, random_labels

Ends = tuple[Bound, Bound]
QUANTITY = "the true probability of a leak, by labels alone,"


@dataclass(frozen=True)
class RandomLabels:
    """Both ends of the average leak probability, and of each prompt with labels of its own."""

    pool: Ends
    each: Mapping[str, Ends]

    def as_dict(self, prompt_id: str | None = None) -> dict[str, object] | None:
        """The entry ``labelled`` of `lethe bounds --json`: of a prompt, null without labels, or of the pool."""
        ends = self.pool if prompt_id is None else self.each.get(prompt_id)
        if ends is None:
            return None
        lower, upper = ends
        return {"lower": lower.value, "upper": upper.value, "n": upper.n, "alpha": upper.alpha}

    def sentences(self, of: str) -> list[str]:
        """Both ends of the average, each with its guarantee."""
        return [end.sentence(QUANTITY, of) for end in self.pool]


def read_random_labels(path: str | os.PathLike[str], prompts: Collection[str], alpha: float) -> RandomLabels:
    """Read labels 0 and 1 of draws (``prompt_id, sample, label``), and bound what they are labels of."""
    table = read_table(path, required=["prompt_id", "sample", "label"], text=["prompt_id"])
    if table.empty:
        raise BadFile(path, "holds no labels")
    labels, names = numeric_column(table, "label", path), table["prompt_id"].astype(str).to_numpy()
    known = np.isin(names, list(prompts))
    for wrong, problem in (
        (~np.isin(labels, (0, 1)), "label must be 0 (no leak) or 1 (leak)"),
        (~known, "prompt_id is none of the scores'"),
        (table.duplicated(["prompt_id", "sample"]).to_numpy(), "labels a draw a second time"),
    ):
        if wrong.any():
            raise BadRow(path, file_line(path, int(np.argmax(wrong))), problem)
    each = {}
    for name in dict.fromkeys(names.tolist()):
        own = labels[names == name]
        lower, upper = rate_bounds([own.sum()], [len(own)], alpha)
        each[name] = _ends(float(lower[0]), float(upper[0]), alpha, Covers.ONE_PROMPT, len(own))
    ends = random_labels(int(labels.sum()), len(labels), alpha)
    return RandomLabels(_ends(*ends, alpha, Covers.AVERAGE, len(labels)), each)


def _ends(lower: float, upper: float, alpha: float, covers: Covers, n: int) -> Ends:
    rest = (alpha, covers, AT_RANDOM, METHOD_AT_RANDOM, n)
    return Bound(lower, "lower", *rest), Bound(upper, "upper", *rest)
