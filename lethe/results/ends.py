"""Both ends of the leak probability of many questions, at any one-sided level.

A question may have certain ends and several kinds of evidence. Certain ends cost nothing and always count. The kinds share
the level in equal parts, so that all their ends hold together at the level (union bound): a single kind takes the whole
level, and each of two takes half. The kinds of evidence on a question must be fixed before its draws.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from lethe.errors import BadValue
from lethe.io.files import Json
from lethe.results.evidence import AtLevel, LeakCounts, LeakEvidence, ScoreDraws, Tree, Trees
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

    Each end holds for its question by itself with probability 1 - level, by a union bound over the kinds of evidence. The
    ends are nested: a smaller level never moves an end inwards. An end that a certain end contradicts gives way to it.

    Attributes
    ----------
    items
        The ids of the questions, all different.
    certain_lower, certain_upper
        (m,) in [0, 1]: they cannot fail; 0 and 1 where there are none.
    evidence
        The kinds of evidence, each about some of the questions.

    Raises
    ------
    BadValue
        If two questions have one id, or the arrays are no ends of m questions.

    >>> ends = Ends.of_arrays(("q1", "q2"), leaks=[0, 3], n=100, certain_lower=[0, 0.02])
    >>> ends.upper(0.05).round(4).tolist(), ends.lower(0.05).round(4).tolist()
    ([0.0295, 0.0757], [0.0, 0.02])
    """

    items: tuple[str, ...]
    certain_lower: np.ndarray
    certain_upper: np.ndarray
    evidence: tuple[LeakEvidence, ...] = ()

    def __post_init__(self) -> None:
        m = len(self.items)
        different = len(set(self.items))
        if different != m:
            raise BadValue("items", f"{different} ids for {m} questions", "a different id for each")

        low = self.certain_lower
        high = self.certain_upper
        lengths = {len(low), len(high)}
        for kind in self.evidence:
            lengths.add(len(kind.has_ends))
        if lengths != {m}:
            legal = f"one entry for each of the {m} questions"
            raise BadValue("ends", "arrays of other lengths", legal)
        is_legal = (low >= 0) & (low <= high) & (high <= 1)
        if not is_legal.all():
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
        low = np.array(np.broadcast_to(certain_lower, m), dtype=np.float64)
        high = np.array(np.broadcast_to(certain_upper, m), dtype=np.float64)

        evidence = list(others)
        if leaks is not None:
            arrays = [np.broadcast_to(values, m) for values in (leaks, n, missing, stopped)]
            evidence.append(LeakCounts.of(*arrays))
        if trees is not None:
            evidence.append(trees)
            low = np.maximum(low, trees.low)
            high = np.minimum(high, trees.certain)
            high = np.maximum(low, high)  # float sums may separate equal masses
        return cls(tuple(items), low, high, tuple(evidence))

    @classmethod
    def of_rows(cls, rows: Iterable[Result], items: Sequence[str], quantity: str = "leak") -> Ends:
        """Ends from rows of one model and one scorer, in the order of ``items``; a question without a row has 0 and 1.

        Rows of other scopes, quantities, questions or bases are left out. Evidence by basis: "sampled", "anytime" and
        "labelled" have counts ``leaks`` (judged 1), ``n`` (all draws) and ``missing`` (not judged; 0 if absent), of all
        draws up to the stop for "anytime", of the labelled draws for "labelled". Such a row without counts has fixed ends,
        each at its alpha. These three are about the same draws, so a question takes the first of labelled, anytime, sampled.
        "tree" has ``leak_by_length``, ``clean_by_length``, ``rho`` and ``sampled_leaks``, and may have ``blank``,
        ``unscored``, ``unconfirmed``, ``sampled``, ``rounding`` (logit allowance, tokens, temperature) and ``version``, the
        number of a repeated tree. "exact" has none: its ends are certain.
        """
        rows_of_item = _by_item(rows, set(items), quantity)
        counts: list[_Counts] = []
        stopped: list[bool] = []
        fixed: list[Result | None] = []
        trees: list[Tree | None] = []
        versions: list[int | None] = []
        certain: list[tuple[float, float]] = []
        for item in items:
            row_of_basis = rows_of_item.get(item, {})
            drawn = _first_drawn(row_of_basis)
            has_counts = drawn is not None and "leaks" in drawn.facts
            counts.append(_counts(drawn))
            stopped.append(drawn is not None and drawn.basis == "anytime")
            fixed.append(None if has_counts else drawn)
            of_tree = row_of_basis.get("tree")
            trees.append(_tree(of_tree))
            versions.append(None if of_tree is None else of_tree.facts.get("version"))
            certain.append(_certain(row_of_basis.get("exact")))

        leaks, n, missing = np.array(counts, dtype=np.float64).reshape(-1, 3).T
        low, high = np.array(certain, dtype=np.float64).reshape(-1, 2).T
        return cls.of_arrays(
            items,
            leaks,
            n,
            missing,
            stopped=stopped,
            trees=Trees.of(trees, versions) if any(trees) else None,
            certain_lower=low,
            certain_upper=np.maximum(low, high),
            others=[_fixed(fixed)] if any(fixed) else [],
        )

    def lower(self, level: float | np.ndarray) -> np.ndarray:
        """(m,) lower ends: 0 where nothing is known. ``level``, a float or (m,), is at most 0.5."""
        share = self._shares(level)
        lower = self.certain_lower
        for kind in self.evidence:
            end = np.where(kind.has_ends, kind.lower(share), 0.0)
            lower = np.maximum(lower, end)
        return np.minimum(lower, self.certain_upper)

    def upper(self, level: float | np.ndarray) -> np.ndarray:
        """(m,) upper ends: 1 where nothing is known. ``level``, a float or (m,), is at most 0.5."""
        share = self._shares(level)
        upper = self.certain_upper
        for kind in self.evidence:
            end = np.where(kind.has_ends, kind.upper(share), 1.0)
            upper = np.minimum(upper, end)
        return np.maximum(upper, self.certain_lower)

    def _shares(self, level: float | np.ndarray) -> np.ndarray:
        """(m,) the part of the level that each kind of evidence on a question takes."""
        wanted = np.array(np.broadcast_to(level, len(self.items)), dtype=np.float64)
        is_legal = (wanted >= SMALLEST_ALPHA) & (wanted <= 0.5)
        if not is_legal.all():
            raise BadValue("level", level, f"a number from {SMALLEST_ALPHA:g} to 0.5")
        n_kinds = np.zeros(len(self.items))
        for kind in self.evidence:
            n_kinds = n_kinds + kind.has_ends
        return np.asarray(wanted / np.maximum(n_kinds, 1))

    @property
    def answers(self) -> np.ndarray:
        """(m,) the number of sampled answers to each question."""
        answers = np.zeros(len(self.items))
        for kind in self.evidence:
            if isinstance(kind, (LeakCounts, ScoreDraws)):
                answers = answers + kind.n
        return answers

    def with_counts(self, leaks: ArrayLike, n: ArrayLike, missing: ArrayLike) -> Ends:
        """The ends with other counts, of shape (m,), in place of those that they have."""
        counts = LeakCounts.of(leaks, n, missing, True)
        others = [kind for kind in self.evidence if not isinstance(kind, LeakCounts)]
        return replace(self, evidence=(counts, *others))

    def take(self, places: ArrayLike) -> Ends:
        """The ends of the questions at ``places``, an array of indices."""
        at = np.atleast_1d(places)
        items = tuple(self.items[place] for place in at)
        evidence = tuple(kind.take(at) for kind in self.evidence)
        return Ends(items, self.certain_lower[at], self.certain_upper[at], evidence)

    def at_any_time(self) -> Ends:
        """The ends whose counts may come from draws that any rule stopped."""
        kinds: list[LeakEvidence] = []
        for kind in self.evidence:
            if isinstance(kind, LeakCounts):
                kind = replace(kind, stopped=np.ones(len(kind.n), dtype=bool))
            kinds.append(kind)
        return replace(self, evidence=tuple(kinds))


def counted_rows(rows: Iterable[Result], bases: Sequence[str] = SAME_DRAWS) -> dict[str, Result]:
    """The row of leaks of each question with counts ``leaks``, ``n`` and ``missing``.

    It is the first of ``bases`` that the question has, and left out where that one has no counts.
    """
    leaks = [row for row in rows if (row.scope, row.quantity) == ("question", "leak")]
    first: dict[str, Result] = {}
    for basis in bases:
        for row in leaks:
            if row.basis == basis:
                first.setdefault(str(row.item), row)
    return {item: row for item, row in first.items() if row.facts.get("n")}


def _first_drawn(row_of_basis: Mapping[str, Result]) -> Result | None:
    """The row of a question's draws: the first of `SAME_DRAWS` that it has."""
    for basis in SAME_DRAWS:
        if basis in row_of_basis:
            return row_of_basis[basis]
    return None


def _by_item(
    rows: Iterable[Result], items: set[str], quantity: str
) -> dict[str, dict[str, Result]]:
    """The row of each basis of each question; two rows with one end each are one interval."""
    rows_of_item: dict[str, dict[str, Result]] = {}
    models = set()
    for row in rows:
        if (row.scope, row.quantity) != ("question", quantity):
            continue
        if row.basis not in BASES or row.item not in items:
            continue
        models.add(row.model)
        row_of_basis = rows_of_item.setdefault(row.item, {})
        if row.basis in row_of_basis:
            row = _joined(row_of_basis[row.basis], row)
        row_of_basis[row.basis] = row
    if len(models) > 1:
        raise BadValue("rows", f"rows of {sorted(models)}", "rows of one model")
    return rows_of_item


def _joined(first: Result, second: Result) -> Result:
    """The interval of two rows with one end each; raises `BadValue` for two rows of one basis that are no such pair."""
    for with_upper, with_lower in ((first, second), (second, first)):
        is_split = with_upper.lower is None and with_lower.upper is None
        if is_split and with_upper.evidence == with_lower.evidence:
            lower, alpha_lower = with_lower.lower, with_lower.alpha_lower
            return replace(with_upper, lower=lower, alpha_lower=alpha_lower)
    raise BadValue(
        f"rows of {first.item}", f"two of basis {first.basis!r}", "one row of each basis"
    )


def _certain(row: Result | None) -> tuple[float, float]:
    """The ends of an exact row, which cannot fail; 0 and 1 where there are none."""
    low, high = 0.0, 1.0
    if row is None:
        return low, high
    if row.alpha_lower or row.alpha_upper:
        alphas = (row.alpha_lower, row.alpha_upper)
        raise BadValue(f"alpha of the exact row of {row.item}", alphas, "0 and 0")
    if row.lower is not None:
        low = row.lower
    if row.upper is not None:
        high = row.upper
    return low, high


class _Counts(NamedTuple):
    """What was drawn of a question; 0 of 0 where nothing was."""

    leaks: float = 0
    n: float = 0
    missing: float = 0


def _counts(row: Result | None) -> _Counts:
    """The counts of a row; 0 of 0 where it has none. Raises `BadValue` where it has leaks without answers."""
    if row is None or "leaks" not in row.facts:
        return _Counts()
    evidence = _evidence(row, "leaks", "n")
    return _Counts(evidence["leaks"], evidence["n"], evidence.get("missing") or 0)


def _fixed(rows: Sequence[Result | None]) -> AtLevel:
    """The ends that the rows state, each at its alpha."""
    columns = []
    for name in ("lower", "upper", "alpha_lower", "alpha_upper"):
        values = [getattr(row, name, None) for row in rows]
        columns.append(np.array(values, dtype=np.float64))  # NaN for None
    return AtLevel.fixed(*columns)


def _tree(row: Result | None) -> Tree | None:
    """The explored tree that a row records; None without a row."""
    if row is None:
        return None
    evidence = _evidence(row, "leak_by_length", "clean_by_length", "rho", "sampled_leaks")
    masses = Masses(
        tuple(evidence["leak_by_length"]),
        tuple(evidence["clean_by_length"]),
        evidence.get("blank") or 0.0,
        evidence.get("unscored") or 0.0,
        evidence.get("unconfirmed") or 0.0,
    )
    leaks = evidence["sampled_leaks"]
    remainder = Remainder(evidence["rho"], evidence.get("sampled", leaks), leaks)
    rounding = EXACTLY
    if evidence.get("rounding") is not None:
        rounding = Rounding(*evidence["rounding"])
    return masses, remainder, rounding


def _evidence(row: Result, *keys: str) -> Mapping[str, Json]:
    """The evidence of a row; raises `BadValue` where a key is missing."""
    missing = [key for key in keys if key not in row.facts]
    if missing:
        name = f"evidence of {row.item}, basis {row.basis}"
        raise BadValue(name, sorted(row.facts), f"with {', '.join(missing)} too")
    return row.facts
