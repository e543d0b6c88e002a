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
        """The probability that the prefix is continued by the suffix, token by token."""
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
        """The probability of each window's suffix, one per window of `asked`."""
        return np.array([passage.p_z for passage in self.asked])

    @cached_property
    def searched(self) -> tuple[Passage, ...]:
        """The windows whose near-verbatim continuations were searched."""
        return tuple(passage for passage in self.passages if passage.near)

    def ends(self, passage: Passage) -> tuple[float, float]:
        """The certain ends of a window's p_z under the error of the logits."""
        factor = self.rounding.factor
        lower = passage.p_z / factor
        upper = min(1.0, passage.p_z * factor)
        return lower, upper

    def interval(self, passage: Passage) -> LeakInterval | None:
        """The ends of a window's near-verbatim probability; None where it was not searched."""
        near = passage.near
        if near is None:
            return None
        return leak_interval(near.masses, near.remainder, self.alpha, self.rounding)

    def verbatim_ends(self) -> Ends:
        """The certain ends of each window's p_z."""
        ends = [self.ends(passage) for passage in self.asked]
        lower, upper = np.array(ends).T
        items = tuple(passage.id for passage in self.asked)
        return Ends.of_arrays(items, certain_lower=lower, certain_upper=upper)

    def near_ends(self) -> Ends:
        """The ends of the near-verbatim probability of each window that was searched."""
        tree_of_window = {}
        for passage in self.passages:
            near = passage.near
            if near is not None:
                tree_of_window[passage.id] = (near.masses, near.remainder, self.rounding)
        trees = Trees.of(list(tree_of_window.values()))
        upper = np.maximum(trees.low, trees.certain)
        return Ends.of_arrays(
            tuple(tree_of_window),
            trees=trees,
            certain_lower=trees.low,
            certain_upper=upper,
        )


def rows_of(text: Extraction) -> list[Result]:
    """The rows of one text under one model: every window, and the numbers of the text."""
    rows = Rows(text.name)
    for passage in text.passages:
        add = partial(rows.add, "question", item=passage.id, split=passage.split)
        certain = both_ends(*text.ends(passage), 0.0, Covers.ONE_PROMPT, EXACT, METHOD)
        add("verbatim", "exact", passage.p_z, *certain, evidence=_queries(passage))
        if passage.near is not None:
            _add_near(rows, text, passage, passage.near)
    _add_text(rows, text)
    return rows.rows


def _add_near(rows: Rows, text: Extraction, passage: Passage, near: Near) -> None:
    """Add the certain and the sampled ends of a window's near-verbatim probability."""
    ends = leak_interval(near.masses, near.remainder, text.alpha, text.rounding)
    covers = Covers.ONE_PROMPT
    certain = both_ends(
        ends.lower,
        ends.upper_certain,
        0.0,
        covers,
        EXACT,
        TREE,
    )
    sampled = both_ends(
        ends.lower_sampled,
        ends.upper,
        text.alpha,
        covers,
        ends.assumes,
        TREE,
    )
    evidence = {
        **asdict(near.masses),
        "rho": near.remainder.rho,
        "sampled": near.remainder.sampled,
        "sampled_leaks": near.remainder.leaks,
        "rows": near.rows,
        "rounding": _values(text.rounding),
    }
    add = partial(rows.add, "question", "near_verbatim", item=passage.id, split=passage.split)
    add("exact", None, *certain)
    add("tree", None, *sampled, evidence=evidence)


def _values(rounding: Rounding) -> list[float]:
    return list(asdict(rounding).values())


def _add_text(rows: Rows, text: Extraction) -> None:
    """Add the numbers of all windows together."""
    p_z = text.p_z
    add = partial(rows.add, "model")
    facts = {"rounding": _values(text.rounding), "alpha": text.alpha}
    add("windows", "exact", len(p_z), evidence=facts)
    is_extractable = p_z >= EXTRACTABLE
    count = {"threshold": EXTRACTABLE, "windows": int(is_extractable.sum())}
    add("extractable", "exact", float(is_extractable.mean()), evidence=count)
    add("verbatim", "exact", float(p_z.mean()))
    first, length = longest_run(p_z)
    first_window = text.asked[first].id if length else None
    add("longest_run", "exact", length, item=first_window)
    for n, shares in zip(QUERIES, discoverable(p_z), strict=True):
        for chance, share in zip(CHANCES, shares, strict=True):
            add("discoverable", "exact", float(share), at=float(n), item=f"{chance:g}")


def _queries(passage: Passage) -> dict[str, float]:
    """Where a window begins, and how many queries bring it out."""
    p_z = float(passage.p_z)
    expected = 1 / p_z if p_z else float("inf")
    return {
        "start": passage.start,
        "queries_until_half": float(queries_until(p_z)),
        "expected_queries": expected,
    }


def extraction_of(results: Results, name: str) -> Extraction | None:
    """The windows that `rows_of` wrote, without their texts; None where the model has none."""
    facts = results.model(name).facts("windows", "exact")
    if not facts:
        return None
    windows = []
    near_of_window = {}
    for row in results.rows(name):
        if row.scope != "question":
            continue
        if row.quantity == "verbatim":
            windows.append(row)
        if (row.quantity, row.basis) == ("near_verbatim", "tree") and row.evidence:
            near_of_window[row.item] = _near(row.evidence)

    passages = []
    for place, row in enumerate(windows):
        passage = Passage(
            str(row.item),
            place,
            prefix="",
            suffix="",
            chances=(row.estimate or 0.0,),
            near=near_of_window.get(row.item),
            split=row.split,
        )
        passages.append(passage)
    return Extraction(name, tuple(passages), Rounding(*facts["rounding"]), facts["alpha"])


def _near(evidence: Mapping[str, Json]) -> Near:
    """The search of a window from the evidence of its row."""
    masses = Masses(**{field.name: evidence[field.name] for field in fields(Masses)})
    remainder = Remainder(evidence["rho"], evidence["sampled"], evidence["sampled_leaks"])
    return Near(masses, remainder, evidence["rows"])
