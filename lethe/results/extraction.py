"""Windows of a text under a model: their numbers, and their rows of the table."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from functools import cached_property, partial

import numpy as np

from lethe.io.files import Json
from lethe.results.ends import Ends
from lethe.results.evidence import Trees
from lethe.results.table import Result, Results, Rows
from lethe.statistics.answer_tree import (
    EXACT,
    LeakInterval,
    Masses,
    Remainder,
    Rounding,
    leak_interval,
    queries_until,
)
from lethe.statistics.bound import Covers, both_ends
from lethe.statistics.extraction import CHANCES, EXTRACTABLE, QUERIES, discoverable, longest_run

METHOD = "product of next-token probabilities"
TREE = "prefixes by beam and mass; the rest by Garwood's limits (1936)"
RETAIN = "retain"  # windows of this split are on the strip, and no number of the text counts them


@dataclass(frozen=True)
class Near:
    """What a near-verbatim search explored and sampled, and the tokens put through the model.

    ``masses.leak`` lies within the edit distance, ``masses.clean`` outside.
    """

    masses: Masses
    remainder: Remainder
    rows: int


@dataclass(frozen=True)
class Passage:
    """One window: the place of its first token, its text, the probability of each suffix token, and the search if made;
    the split of the question whose answer it is."""

    id: str
    start: int
    prefix: str
    suffix: str
    chances: tuple[float, ...]
    near: Near | None = None
    split: str | None = None

    @cached_property
    def p_z(self) -> float:
        return float(np.prod(self.chances))


@dataclass(frozen=True)
class Extraction:
    """The windows of a text under one model.

    ``rounding`` is the error of a suffix's probability, ``alpha`` that of a sampled end.
    """

    name: str
    passages: tuple[Passage, ...]
    rounding: Rounding
    alpha: float

    @cached_property
    def asked(self) -> tuple[Passage, ...]:
        """The windows that the numbers are about."""
        return tuple(passage for passage in self.passages if passage.split != RETAIN)

    @cached_property
    def p_z(self) -> np.ndarray:
        return np.array([passage.p_z for passage in self.asked])

    @cached_property
    def searched(self) -> tuple[Passage, ...]:
        return tuple(passage for passage in self.passages if passage.near)

    def ends(self, passage: Passage) -> tuple[float, float]:
        """The certain ends of a window's p_z under the error of the logits."""
        return passage.p_z / self.rounding.factor, min(1.0, passage.p_z * self.rounding.factor)

    def interval(self, passage: Passage) -> LeakInterval | None:
        """The ends of a window's near-verbatim probability; None where it was not searched."""
        near = passage.near
        return (
            leak_interval(near.masses, near.remainder, self.alpha, self.rounding) if near else None
        )

    def verbatim_ends(self) -> Ends:
        lower, upper = np.array([self.ends(passage) for passage in self.asked]).T
        items = tuple(passage.id for passage in self.asked)
        return Ends.of_arrays(items, certain_lower=lower, certain_upper=upper)

    def near_ends(self) -> Ends:
        near = {
            one.id: (one.near.masses, one.near.remainder, self.rounding)
            for one in self.passages
            if one.near
        }
        trees = Trees.of(list(near.values()))
        upper = np.maximum(trees.low, trees.certain)
        return Ends.of_arrays(
            tuple(near), trees=trees, certain_lower=trees.low, certain_upper=upper
        )


def rows_of(text: Extraction) -> list[Result]:
    """The rows of one text under one model: every window, and the numbers of the text."""
    rows = Rows(text.name)
    rounding = list(asdict(text.rounding).values())
    for passage in text.passages:
        add = partial(rows.add, "question", item=passage.id, split=passage.split)
        certain = both_ends(*text.ends(passage), 0.0, Covers.ONE_PROMPT, EXACT, METHOD)
        add("verbatim", "exact", passage.p_z, *certain, evidence=_queries(passage))
        if (near := passage.near) and (ends := text.interval(passage)):
            certain = both_ends(ends.lower, ends.upper_certain, 0.0, Covers.ONE_PROMPT, EXACT, TREE)
            add("near_verbatim", "exact", None, *certain)
            sampled = both_ends(
                ends.lower_sampled, ends.upper, text.alpha, Covers.ONE_PROMPT, ends.assumes, TREE
            )
            sample = {"rho": near.remainder.rho, "sampled": near.remainder.sampled}
            sample |= {"sampled_leaks": near.remainder.leaks, "rows": near.rows}
            evidence = {**asdict(near.masses), **sample, "rounding": rounding}
            add("near_verbatim", "tree", None, *sampled, evidence=evidence)
    facts = {"rounding": rounding, "alpha": text.alpha}
    rows.add("model", "windows", "exact", len(text.p_z), evidence=facts)
    hits = text.p_z >= EXTRACTABLE
    count = {"threshold": EXTRACTABLE, "windows": int(hits.sum())}
    rows.add("model", "extractable", "exact", float(hits.mean()), evidence=count)
    rows.add("model", "verbatim", "exact", float(text.p_z.mean()))
    first, length = longest_run(text.p_z)
    rows.add("model", "longest_run", "exact", length, item=text.asked[first].id if length else None)
    for n, shares in zip(QUERIES, discoverable(text.p_z), strict=True):
        for chance, share in zip(CHANCES, shares, strict=True):
            rows.add(
                "model", "discoverable", "exact", float(share), at=float(n), item=f"{chance:g}"
            )
    return rows.rows


def _queries(passage: Passage) -> dict[str, float]:
    """Where a window begins, and how many queries bring it out."""
    p_z = float(passage.p_z)
    expected = 1 / p_z if p_z else float("inf")
    return {
        "start": passage.start,
        "queries_until_half": float(queries_until(p_z)),
        "expected_queries": expected,
    }


def extraction_of(
    results: Results, name: str, texts: Mapping[str, tuple[str, str]] | None = None
) -> Extraction | None:
    """The windows that `rows_of` wrote, with their prefixes and suffixes by id; None where the model has none."""
    if not (facts := results.model(name).facts("windows", "exact")):
        return None
    of_window = {
        (row.item, row.basis, row.quantity): row
        for row in results.rows(name)
        if row.scope == "question"
    }
    passages: list[Passage] = []
    for (item, _, quantity), row in of_window.items():
        if quantity == "verbatim":
            tree = of_window.get((item, "tree", "near_verbatim"))
            text = (texts or {}).get(str(item), ("", ""))
            near = _near(tree.evidence) if tree and tree.evidence else None
            passages.append(
                Passage(str(item), len(passages), *text, (row.estimate or 0.0,), near, row.split)
            )
    return Extraction(name, tuple(passages), Rounding(*facts["rounding"]), facts["alpha"])


def _near(evidence: Mapping[str, Json]) -> Near:
    masses = Masses(**{each.name: evidence[each.name] for each in fields(Masses)})
    return Near(
        masses,
        Remainder(evidence["rho"], evidence["sampled"], evidence["sampled_leaks"]),
        evidence["rows"],
    )
