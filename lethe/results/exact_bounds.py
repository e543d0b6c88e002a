"""Exact bounds as rows of the table, and a model's leakage relative to Retrain."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial

import numpy as np
from pydantic import TypeAdapter

from lethe.io.files import Json
from lethe.results import quantities
from lethe.results.licence import without_ends
from lethe.results.table import Result, Results, Rows, result
from lethe.results.views import MASSES
from lethe.statistics.answer_tree import EXACT, AgainstRetrain, against_retrain
from lethe.statistics.bound import Bound, Covers
from lethe.statistics.leak_trees import PROVED, AnswerTree, Certificates, How

TREE_ROW = ("question", "leak", "tree")
# The evidence from which ends follow, of a question and of a model: null, or left out, where nothing may be claimed.
ENDS_OF_QUESTION = (
    "lower",
    "lower_confirmed_share",
    "upper_certain",
    "upper",
    "lower_sampled",
    "queries_until_half",
    "leak_at",
)
ENDS_OF_MODEL = (
    *("verdicts", "share_proved", "certain_leaks", "lower_worst", "lower_median", "mean_lower"),
    *("mean_upper_certain", "upper_worst", "worst_question", "upper_median", "pooled"),
)
TREE = TypeAdapter(AnswerTree)
MEDIAN = quantities.of("model", "excess", "exact").names[0]


def rows_of(certificates: Certificates) -> list[Result]:
    """The rows of one model's exact bounds.

    The row "tree" of a question has the whole answer tree as its evidence, so that any end follows at any level.
    Where nothing may be claimed, the rows have no ends and no evidence that ends follow from, and one more row says why.
    """
    rows = Rows(certificates.name)
    model = certificates.model
    for tree in certificates.trees:
        add = partial(rows.add, "question", "leak", item=tree.id, split="forget")
        ends, whole = tree.bounds, values_of(tree)
        add("exact", None, ends["lower"], ends["upper_certain"])
        masses = whole.pop("masses")
        evidence = whole | masses | {"rounding": list(asdict(certificates.rounding).values())}
        add("tree", None, ends["lower_sampled"], ends["upper"], evidence=evidence)
    bounds = model.bounds
    rows.add("model", "leak_worst", "exact", None, bounds["tree_lower_worst"], split="forget")
    rows.add("model", "leak_worst", "tree", None, None, bounds["tree_upper_worst"], split="forget")
    mean_lower = replace(ends["lower"], value=model.mean_lower, alpha=0.0, covers=Covers.AVERAGE)
    rows.add("model", "leak", "tree", None, mean_lower, bounds["tree_upper_mean"], split="forget")
    rows.add("model", "leaking", "exact", model.certain_leaks[PROVED[0]], split="forget")
    facts = {
        "how": asdict(certificates.how),
        "tau": certificates.tau,
        "skipped": list(certificates.skipped),
    }
    rows.add("model", "queried", "exact", evidence=facts)
    if not certificates.refused:
        return rows.rows
    reasons = {"reasons": list(certificates.refused)}
    rows.add("model", "refused", "sampled", evidence=reasons)
    return [_without_claims(row) for row in rows.rows]


def _without_claims(row: Result) -> Result:
    row = without_ends(row)
    if row.quantity == "leaking":
        return replace(row, estimate=None)
    if (row.scope, row.quantity, row.basis) != TREE_ROW:
        return row
    facts = {key: value for key, value in row.facts.items() if key not in MASSES}
    return replace(row, evidence=facts | dict.fromkeys(ENDS_OF_QUESTION))


def certificates_of(results: Results, name: str) -> Certificates | None:
    """The exact bounds that `rows_of` wrote; None where the model has none."""
    facts = results.model(name).facts("queried", "exact")
    if not facts:
        return None
    rows = [row for row in results.rows(name) if (row.scope, row.quantity, row.basis) == TREE_ROW]
    trees = tuple(tree_from({**row.facts, "masses": row.evidence}) for row in rows)
    return Certificates(name, trees, How(**facts["how"]), facts["tau"], tuple(facts["skipped"]))


def summary_of(certificates: Certificates) -> Result:
    """What follows from the rows of the questions: counts, medians and the mean's ends, as evidence."""
    model = asdict(certificates.model)
    certain_leaks = certificates.model.certain_leaks
    model["certain_leaks"] = {f"{tau:g}": count for tau, count in certain_leaks.items()}
    if certificates.refused:
        model |= dict.fromkeys(ENDS_OF_MODEL)
    evidence = _without_the_usual(model)
    return result(certificates.name, "model", "summary", "exact", evidence=evidence)


def values_of(tree: AnswerTree) -> dict[str, Json]:
    """Plain numbers, strings, lists and objects; an infinite number of queries is null."""
    values = asdict(tree)
    queries: list[float | None] = list(tree.queries_until_half)
    for place, n in enumerate(tree.queries_until_half):
        if not math.isfinite(n):
            queries[place] = None
    values["queries_until_half"] = queries
    values["leak_at"] = {str(n): list(band) for n, band in tree.leak_at.items()}
    return _without_the_usual(values)


def _without_the_usual(values: dict[str, Json]) -> dict[str, Json]:
    """The values without the usual assumption, which the bounds state."""
    if values.get("assumes") != EXACT:
        return values
    return {key: value for key, value in values.items() if key != "assumes"}


def tree_from(values: Mapping[str, Json]) -> AnswerTree:
    """The tree from the plain values that `values_of` made."""
    queries = list(values["queries_until_half"])
    for place, n in enumerate(queries):
        if n is None:
            queries[place] = math.inf
    return TREE.validate_python({**values, "queries_until_half": queries})


@dataclass(frozen=True)
class Excess:
    """Lower bounds of the ratio of a model's leak probability to Retrain's, one per question of ``ids``.

    ``of_lowers`` is the median ratio of the two certain lower ends; it describes the two trees and is not a bound.
    """

    ids: tuple[str, ...]
    against: AgainstRetrain
    of_lowers: float

    @property
    def median(self) -> float:
        return float(np.median(self.against.ratio))

    def to_rows(self, rows: Rows) -> None:
        against = self.against
        guarantee = (against.alpha, Covers.ONE_PROMPT, against.assumes, against.method)
        for place, name in enumerate(self.ids):
            bound = Bound(float(against.ratio[place]), "lower", *guarantee)
            holds = bool(against.holds[place])
            evidence = {"p_value": float(against.p_values[place]), "holds": holds}
            add = partial(rows.add, "question", item=name, split="forget", evidence=evidence)
            add("excess", "exact", None, bound)
        facts = {"factor": against.factor, "of_lowers": self.of_lowers}
        rows.add("model", "excess", "exact", self.median, evidence=facts, split="forget")
        rows.add("model", "above_retrain", "exact", int(against.holds.sum()), split="forget")


def excess_over_retrain(
    models: Mapping[str, Certificates], retrain: str, factor: float, alpha: float
) -> dict[str, Excess]:
    """Compare each model with Retrain on the questions that both models answered.

    Models that share no question with Retrain are left out. The ratio divides the model's certain lower end by Retrain's
    upper end at ``alpha``; ``factor``, at least 1, is fixed beforehand. This is the only comparison per question, so no
    comparison is chosen after the numbers are seen.
    """
    if retrain not in models:
        return {}
    reference = models[retrain]
    asked = {tree.id for tree in reference.trees}
    excesses = {}
    for name, model in models.items():
        if name != retrain and any(tree.id in asked for tree in model.trees):
            excesses[name] = _excess(model, reference, factor, alpha)
    return excesses


def _excess(model: Certificates, reference: Certificates, factor: float, alpha: float) -> Excess:
    by_id = {tree.id: tree for tree in reference.trees}
    trees = [tree for tree in model.trees if tree.id in by_id]
    of_retrain = [by_id[tree.id] for tree in trees]
    lowers = np.array([tree.lower for tree in trees])
    lowers_of_retrain = np.array([tree.lower for tree in of_retrain])
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.nan_to_num(lowers / lowers_of_retrain, nan=1.0, posinf=np.inf)
    explored = [(tree.masses, tree.remainder) for tree in of_retrain]
    against = against_retrain(lowers, explored, factor, alpha, reference.rounding)
    return Excess(tuple(tree.id for tree in trees), against, float(np.median(ratios)))
