"""Exact bounds as rows of the table, and a model's leakage relative to Retrain."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import TypeAdapter

from lethe.io.json_files import restored
from lethe.results import quantities
from lethe.results.table import Results, Rows
from lethe.statistics.bound import Bound, Covers
from lethe.statistics.leak_trees import PROVED, AnswerTree, Certificates, How, compared_with_retrain

if TYPE_CHECKING:
    from lethe.results.table import Result

TREE_ROW = ("question", "leak", "tree")
TREE = TypeAdapter(AnswerTree)
MEDIAN = quantities.of("model", "excess", "exact").names[0]


def rows_of(found: Certificates) -> list[Result]:
    """The rows of one model's exact bounds.

    The row "tree" of a question has the whole answer tree as its evidence, so that any end follows at any level.
    """
    rows, model = Rows(found.name), found.model
    for tree in found.trees:
        place: dict[str, Any] = {"item": tree.id, "split": "forget"}
        ends, whole = tree.bounds, tree.as_json()
        rows.add("question", "leak", "exact", None, ends["lower"], ends["upper_certain"], **place)
        masses = whole.pop("masses")
        evidence = whole | masses | {"rounding": list(asdict(found.rounding).values())}
        sampled = (ends["lower_sampled"], ends["upper"])
        rows.add("question", "leak", "tree", None, *sampled, evidence=evidence, **place)
    bounds = model.bounds
    rows.add("model", "leak_worst", "exact", None, bounds["tree_lower_worst"], split="forget")
    rows.add("model", "leak_worst", "tree", None, None, bounds["tree_upper_worst"], split="forget")
    mean_lower = replace(ends["lower"], value=model.mean_lower, alpha=0.0, covers=Covers.AVERAGE)
    rows.add("model", "leak", "tree", None, mean_lower, bounds["tree_upper_mean"], split="forget")
    rows.add("model", "leaking", "exact", model.certain_leaks[PROVED[0]], split="forget")
    facts = {"how": asdict(found.how), "tau": found.tau, "skipped": list(found.skipped)}
    rows.add("model", "queried", "exact", evidence=facts)
    return rows.rows


def certificates_of(results: Results, name: str) -> Certificates | None:
    """The exact bounds that `rows_of` wrote; None where the model has none."""
    queried = results.model(name).row("queried", "exact")
    if queried is None or queried.evidence is None:
        return None
    facts = queried.evidence
    rows = [row for row in results.rows(name) if (row.scope, row.quantity, row.basis) == TREE_ROW]
    trees = tuple(tree_from({**(row.evidence or {}), "masses": row.evidence}) for row in rows)
    return Certificates(name, trees, How(**facts["how"]), facts["tau"], tuple(facts["skipped"]))


def certificates_from(values: Mapping[str, Any]) -> Certificates:
    """The exact bounds from the plain values that `Certificates.as_json` made with ``whole``."""
    model, trees = values["model"], tuple(tree_from(row) for row in values["per_question"])
    return Certificates(model["name"], trees, restored(How, model), model["tau"], tuple(values["skipped"]))


def tree_from(values: Mapping[str, Any]) -> AnswerTree:
    """The tree from the plain values that `AnswerTree.as_json` made."""
    queries = [math.inf if n is None else n for n in values["queries_until_half"]]
    return TREE.validate_python({**values, "queries_until_half": queries})


@dataclass(frozen=True)
class Excess:
    """Lower bounds of the ratio of a model's leak probability to Retrain's, one per question.

    Each entry of ``ratios`` holds by itself at ``alpha``. ``holds`` marks the questions whose ratio is at least ``factor``;
    all marked questions are right together with probability 1 - ``alpha`` (Holm). ``of_lowers`` is the median ratio of the
    two certain lower ends; it describes the two trees and is not a bound. The ratio is infinite where Retrain's end is 0.
    """

    ids: tuple[str, ...]
    ratios: tuple[float, ...]
    p_values: tuple[float, ...]
    holds: tuple[bool, ...]
    factor: float
    alpha: float
    method: str
    assumes: str
    of_lowers: float

    @property
    def median(self) -> float:
        return float(np.median(self.ratios))

    def to_rows(self, rows: Rows) -> None:
        for name, ratio, p_value, holds in zip(self.ids, self.ratios, self.p_values, self.holds, strict=True):
            bound = Bound(ratio, "lower", self.alpha, Covers.ONE_PROMPT, self.assumes, self.method)
            evidence = {"p_value": p_value, "holds": holds}
            place: dict[str, Any] = {"item": name, "split": "forget", "evidence": evidence}
            rows.add("question", "excess", "exact", None, bound, **place)
        facts = {"factor": self.factor, "of_lowers": self.of_lowers}
        rows.add("model", "excess", "exact", self.median, evidence=facts, split="forget")
        rows.add("model", "above_retrain", "exact", sum(self.holds), split="forget")


def excess_over_retrain(
    models: Mapping[str, Certificates], retrain: str, factor: float, alpha: float
) -> dict[str, Excess]:
    """Compare each model with Retrain on the questions that both models answered.

    Models without exact bounds, and models that share no question with Retrain, are left out. The ratio divides the
    model's certain lower end by Retrain's upper end. This is the only comparison per question, so no comparison is
    chosen after the numbers are seen.

    Parameters
    ----------
    models, retrain
        The exact bounds of each model by name, and the name of Retrain among them.
    factor
        The ratio of interest, at least 1, fixed beforehand.
    alpha
        Error probability of Retrain's upper end of each question.
    """
    if retrain not in models:
        return {}
    reference = models[retrain]
    asked = {tree.id for tree in reference.trees}
    return {
        name: _excess(found, reference, factor, alpha)
        for name, found in models.items()
        if name != retrain and any(tree.id in asked for tree in found.trees)
    }


def _excess(found: Certificates, reference: Certificates, factor: float, alpha: float) -> Excess:
    known = {tree.id: tree for tree in reference.trees}
    own = [tree for tree in found.trees if tree.id in known]
    lowers = np.array([[tree.lower, known[tree.id].lower] for tree in own]).T
    with np.errstate(divide="ignore", invalid="ignore"):
        of_lowers = np.nan_to_num(lowers[0] / lowers[1], nan=1.0, posinf=np.inf)
    against = compared_with_retrain(own, [known[tree.id] for tree in own], factor, alpha, reference.rounding)
    return Excess(
        ids=tuple(tree.id for tree in own),
        ratios=tuple(against.ratio.tolist()),
        p_values=tuple(against.p_values.tolist()),
        holds=tuple(bool(each) for each in against.holds),
        factor=factor,
        alpha=alpha,
        method=against.method,
        assumes=against.assumes,
        of_lowers=float(np.median(of_lowers)),
    )
