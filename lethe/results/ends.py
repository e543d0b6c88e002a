"""Both ends of the leak probability of many questions, at any one-sided level.

A question may have certain ends and several kinds of evidence. Certain ends cost nothing and always count. The kinds share
the level in equal parts, so that all their ends hold together at the level (union bound): a single kind takes the whole
level, and each of two takes half. The kinds of evidence on a question must be fixed before its draws.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from lethe.errors import BadValue
from lethe.io.files import Json
from lethe.results.evidence import AtLevel, LeakCounts, LeakEvidence, Tree, Trees
from lethe.statistics.answer_tree import EXACTLY, Masses, Remainder, Rounding
from lethe.statistics.checks import SMALLEST_ALPHA

if TYPE_CHECKING:
    from lethe.results.table import Result

# All about one question's draws: the first that a question has is used.
SAME_DRAWS = ("labelled", "anytime", "sampled")
BASES = (*SAME_DRAWS, "tree", "exact")


@dataclass(frozen=True, eq=False)
class Ends:
    """Both ends of the leak probability (or mean score) of m questions, at any one-sided level.

    ``certain_lower`` and ``certain_upper``, (m,) in [0, 1], cannot fail: 0 and 1 where there are none. Each end holds for
    its question by itself with probability 1 - level, by a union bound over the kinds of evidence. The ends are nested: a
    smaller level never moves an end inwards. An end that a certain end contradicts gives way to it.

    >>> ends = Ends.of_arrays(("q1", "q2"), leaks=[0, 3], n=100, certain_lower=[0, 0.02])
    >>> ends.upper(0.05).round(4).tolist(), ends.lower(0.05).round(4).tolist()
    ([0.0295, 0.0757], [0.0, 0.02])
    """

    items: tuple[str, ...]
    certain_lower: np.ndarray
    certain_upper: np.ndarray
    evidence: tuple[LeakEvidence, ...] = ()

    def __post_init__(self) -> None:
        m, low, high = len(self.items), self.certain_lower, self.certain_upper
        if len(set(self.items)) != m:
            raise BadValue(
                "items", f"{len(set(self.items))} ids for {m} questions", "a different id for each"
            )
        arrays = [low, high, *(kind.has_ends for kind in self.evidence)]
        if any(len(values) != m for values in arrays):
            raise BadValue(
                "ends", "arrays of other lengths", f"one entry for each of the {m} questions"
            )
        if not ((low >= 0) & (low <= high) & (high <= 1)).all():
            raise BadValue("certain ends", (low, high), "numbers with 0 <= lower <= upper <= 1")

    @classmethod
    def of_arrays(
        cls,
        items: Sequence[str],
        leaks: ArrayLike | None = None,
        n: ArrayLike = 0,
        missing: ArrayLike = 0,
        *,
        stopped: ArrayLike = False,
        trees: Trees | None = None,
        certain_lower: ArrayLike = 0.0,
        certain_upper: ArrayLike = 1.0,
        others: Sequence[LeakEvidence] = (),
    ) -> Ends:
        """Ends from plain arrays, each of shape (m,) or one number for all questions.

        ``leaks``, ``n``, ``missing`` and ``stopped`` are those of `LeakCounts`, None for no sampled answers. The certain
        ends of ``trees`` join the certain ends given; ``others`` is further evidence on the same probabilities.
        """
        m = len(items)
        low, high = (
            np.array(np.broadcast_to(end, m), dtype=np.float64)
            for end in (certain_lower, certain_upper)
        )
        evidence = list(others)
        if leaks is not None:
            arrays = [np.broadcast_to(values, m) for values in (leaks, n, missing, stopped)]
            evidence.append(LeakCounts.of(*arrays))
        if trees is not None:
            evidence.append(trees)
            low = np.maximum(low, trees.low)
            # float sums may separate equal masses
            high = np.maximum(low, np.minimum(high, trees.certain))
        return cls(tuple(items), low, high, tuple(evidence))

    @classmethod
    def of_rows(cls, rows: Iterable[Result], items: Sequence[str], quantity: str = "leak") -> Ends:
        """Ends from rows of one model and one scorer, in the order of ``items``; a question without a row has 0 and 1.

        Rows of other scopes, quantities, questions or bases are left out. Evidence by basis: "sampled", "anytime" and
        "labelled" have counts ``leaks`` (judged 1), ``n`` (all draws) and ``missing`` (not judged; 0 if absent), of all
        draws up to the stop for "anytime", of the labelled draws for "labelled". Such a row without counts has fixed ends,
        each at its alpha. These three are about the same draws, so a question takes the first of labelled, anytime, sampled.
        "tree" has ``leak_by_length``, ``clean_by_length``, ``rho`` and ``sampled_leaks``, and may have ``blank``,
        ``unscored``, ``unconfirmed``, ``sampled`` and ``rounding`` (logit allowance, tokens, temperature). "exact" has none:
        its ends are certain.
        """
        table = _by_item(rows, set(items), quantity)
        drawn = [_first_drawn(table, item) for item in items]
        counts = np.array([_counts(row) for row in drawn], dtype=np.float64)
        leaks, n, missing = counts.reshape(-1, 3).T
        fixed: list[Result | None] = []
        trees: list[Tree | None] = []
        for item, row in zip(items, drawn, strict=True):
            has_counts = row is not None and "leaks" in row.facts
            ends = None if has_counts else row
            fixed.append(ends)
            row_of_tree = table.get((item, "tree"))
            tree = None if row_of_tree is None else _tree(row_of_tree)
            trees.append(tree)
        exact = [_certain(table.get((item, "exact"))) for item in items]
        low, high = np.array(exact, dtype=np.float64).reshape(-1, 2).T
        return cls.of_arrays(
            items,
            leaks,
            n,
            missing,
            stopped=[row is not None and row.basis == "anytime" for row in drawn],
            trees=Trees.of(trees) if any(trees) else None,
            certain_lower=low,
            certain_upper=np.maximum(low, high),
            others=[_fixed(fixed)] if any(fixed) else [],
        )

    def lower(self, level: float | np.ndarray) -> np.ndarray:
        """(m,) lower ends: 0 where nothing is known. ``level``, a float or (m,), is at most 0.5."""
        share = self._shares(level)
        ends = [np.where(kind.has_ends, kind.lower(share), 0.0) for kind in self.evidence]
        return np.minimum(np.maximum.reduce([self.certain_lower, *ends]), self.certain_upper)

    def upper(self, level: float | np.ndarray) -> np.ndarray:
        """(m,) upper ends: 1 where nothing is known. ``level``, a float or (m,), is at most 0.5."""
        share = self._shares(level)
        ends = [np.where(kind.has_ends, kind.upper(share), 1.0) for kind in self.evidence]
        return np.maximum(np.minimum.reduce([self.certain_upper, *ends]), self.certain_lower)

    def _shares(self, level: float | np.ndarray) -> np.ndarray:
        """(m,) the part of the level that each kind of evidence on a question takes."""
        wanted = np.array(np.broadcast_to(level, len(self.items)), dtype=np.float64)
        if not ((wanted >= SMALLEST_ALPHA) & (wanted <= 0.5)).all():
            raise BadValue("level", level, f"a number from {SMALLEST_ALPHA:g} to 0.5")
        kinds = np.sum([kind.has_ends for kind in self.evidence], axis=0)
        return np.asarray(wanted / np.maximum(kinds, 1))

    @property
    def answers(self) -> np.ndarray:
        """(m,) the number of sampled answers to each question."""
        answers = np.zeros(len(self.items))
        for kind in self.evidence:
            if isinstance(kind, LeakCounts):
                answers = answers + kind.n
        return answers

    def take(self, places: ArrayLike) -> Ends:
        """The ends of the questions at ``places``, an array of indices."""
        at = np.atleast_1d(places)
        items = tuple(self.items[place] for place in at)
        evidence = tuple(kind.take(at) for kind in self.evidence)
        return Ends(items, self.certain_lower[at], self.certain_upper[at], evidence)

    def scaled(self, times: float) -> Ends:
        """The ends after ``times`` as many draws with the present shares: a plan, and no result."""
        return replace(self, evidence=tuple(kind.scaled(times) for kind in self.evidence))


def _first_drawn(table: Mapping[tuple[str, str], Result], item: str) -> Result | None:
    """The row of a question's draws: the first of `SAME_DRAWS` that it has."""
    for basis in SAME_DRAWS:
        row = table.get((item, basis))
        if row is not None:
            return row
    return None


def _by_item(
    rows: Iterable[Result], items: set[str], quantity: str
) -> dict[tuple[str, str], Result]:
    """The row of each question and basis; two rows with one end each are one interval."""
    table: dict[tuple[str, str], Result] = {}
    models = set()
    for row in rows:
        if (row.scope, row.quantity) != ("question", quantity) or row.basis not in BASES:
            continue
        if row.item in items:
            models.add(row.model)
            key = (row.item, row.basis)
            table[key] = _joined(table[key], row) if key in table else row
    if len(models) > 1:
        raise BadValue("rows", f"rows of {sorted(models)}", "rows of one model")
    return table


def _joined(first: Result, second: Result) -> Result:
    for with_upper, with_lower in ((first, second), (second, first)):
        is_split = with_upper.lower is None and with_lower.upper is None
        if is_split and with_upper.evidence == with_lower.evidence:
            lower, alpha_lower = with_lower.lower, with_lower.alpha_lower
            return replace(with_upper, lower=lower, alpha_lower=alpha_lower)
    raise BadValue(
        f"rows of {first.item}", f"two of basis {first.basis!r}", "one row of each basis"
    )


def _certain(row: Result | None) -> tuple[float, float]:
    if row and (row.alpha_lower or row.alpha_upper):
        raise BadValue(
            f"alpha of the exact row of {row.item}", (row.alpha_lower, row.alpha_upper), "0 and 0"
        )
    low, high = 0.0, 1.0
    if row and row.lower is not None:
        low = row.lower
    if row and row.upper is not None:
        high = row.upper
    return low, high


def _counts(row: Result | None) -> tuple[float, float, float]:
    """Leaks, draws and missing judgements; 0 of 0 for a question without counts."""
    if row is None or "leaks" not in row.facts:
        return 0, 0, 0
    evidence = _evidence(row, "leaks", "n")
    return evidence["leaks"], evidence["n"], evidence.get("missing") or 0


def _fixed(rows: Sequence[Result | None]) -> AtLevel:
    columns = []
    for name in ("lower", "upper", "alpha_lower", "alpha_upper"):
        values = [getattr(row, name, None) for row in rows]
        columns.append(np.array(values, dtype=np.float64))  # NaN for None
    return AtLevel.fixed(*columns)


def _tree(row: Result) -> Tree:
    evidence = _evidence(row, "leak_by_length", "clean_by_length", "rho", "sampled_leaks")
    parts = (evidence.get(part) or 0.0 for part in ("blank", "unscored", "unconfirmed"))
    masses = Masses(tuple(evidence["leak_by_length"]), tuple(evidence["clean_by_length"]), *parts)
    leaks, rounding = evidence["sampled_leaks"], evidence.get("rounding")
    remainder = Remainder(evidence["rho"], evidence.get("sampled", leaks), leaks)
    return masses, remainder, EXACTLY if rounding is None else Rounding(*rounding)


def _evidence(row: Result, *keys: str) -> Mapping[str, Json]:
    missing = [key for key in keys if key not in row.facts]
    if missing:
        name = f"evidence of {row.item}, basis {row.basis}"
        raise BadValue(name, sorted(row.facts), f"with {', '.join(missing)} too")
    return row.facts
