"""Exact bounds as rows of the table, and a model's leakage relative to Retrain."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial

import numpy as np

from lethe.io.files import Json, restored
from lethe.results.licence import without_ends
from lethe.results.table import Result, Results, Rows, result
from lethe.results.views import MASSES
from lethe.statistics.answer_tree import EXACT, AgainstRetrain, against_retrain
from lethe.statistics.bound import Bound, Covers
from lethe.statistics.leak_trees import PROVED, AnswerTree, Certificates, How, Version

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
    "verdicts",
    "share_proved",
    "certain_leaks",
    "lower_worst",
    "lower_median",
    "mean_lower",
    "mean_upper_certain",
    "upper_worst",
    "worst_question",
    "upper_median",
    "pooled",
)


def rows_of(certificates: Certificates) -> list[Result]:
    """The rows of one model's exact bounds.

    The row "tree" of a question has the whole answer tree as its evidence, so that any end follows at any level.
    Where nothing may be claimed, the rows have no ends and no evidence that ends follow from, and one more row says why.
    """
    rows = Rows(certificates.name)
    rounding = list(asdict(certificates.rounding).values())
    for tree in certificates.trees:
        ends = tree.bounds
        add = partial(rows.add, "question", "leak", item=tree.id, split="forget")
        add("exact", None, ends["lower"], ends["upper_certain"])
        values = values_of(tree)
        masses = values.pop("masses")
        evidence = {**values, **masses, "rounding": rounding}
        if certificates.repeat is not None and tree.remainder.rho > 0:
            evidence["version"] = certificates.repeat
        add("tree", None, ends["lower_sampled"], ends["upper"], evidence=evidence)
    _add_model(rows, certificates, like=ends["lower"])
    facts = {
        "how": asdict(certificates.how),
        "tau": certificates.tau,
        "skipped": list(certificates.skipped),
    }
    if certificates.of is not None:
        facts["of"] = asdict(certificates.of)
    rows.add("model", "queried", "exact", evidence=facts)
    if not certificates.refused:
        return rows.rows
    reasons = {"reasons": list(certificates.refused)}
    rows.add("model", "refused", "sampled", evidence=reasons)
    return [_without_claims(row) for row in rows.rows]


def _add_model(rows: Rows, certificates: Certificates, like: Bound) -> None:
    """Add the ends of all questions together; the lower end of the mean is certain, and assumes as much as ``like``."""
    model = certificates.model
    bounds = model.bounds
    mean_lower = replace(like, value=model.mean_lower, alpha=0.0, covers=Covers.AVERAGE)
    add = partial(rows.add, "model", split="forget")
    add("leak_worst", "exact", lower=bounds["tree_lower_worst"])
    add("leak_worst", "tree", upper=bounds["tree_upper_worst"])
    add("leak", "tree", lower=mean_lower, upper=bounds["tree_upper_mean"])
    add("leaking", "exact", model.certain_leaks[PROVED[0]])


def _without_claims(row: Result) -> Result:
    """The row as a record of what was asked and explored."""
    plain = without_ends(row)
    if row.quantity == "leaking":
        return replace(plain, estimate=None)
    if not _is_of_tree(row):
        return plain
    facts = {key: value for key, value in row.facts.items() if key not in MASSES}
    return replace(plain, evidence=facts | dict.fromkeys(ENDS_OF_QUESTION))


def _is_of_tree(row: Result) -> bool:
    return (row.scope, row.quantity, row.basis) == TREE_ROW


def certificates_of(results: Results, name: str) -> Certificates | None:
    """The exact bounds that `rows_of` wrote; None where the model has none."""
    facts = results.model(name).facts("queried", "exact")
    if not facts:
        return None
    trees = []
    for row in results.rows(name):
        if _is_of_tree(row):
            trees.append(tree_from({**row.facts, "masses": row.evidence}))
    how = How(**facts["how"])
    of = Version(**facts["of"]) if "of" in facts else None
    return Certificates(name, tuple(trees), how, facts["tau"], tuple(facts["skipped"]), of=of)


def summary_of(certificates: Certificates) -> Result:
    """What follows from the rows of the questions: counts, medians and the mean's ends, as evidence."""
    summary = asdict(certificates.model)
    certain_leaks = certificates.model.certain_leaks
    summary["certain_leaks"] = {f"{tau:g}": count for tau, count in certain_leaks.items()}
    if certificates.refused:
        summary |= dict.fromkeys(ENDS_OF_MODEL)
    evidence = _without_the_usual(summary)
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
    return restored(AnswerTree, {**values, "queries_until_half": queries})


@dataclass(frozen=True)
class RatioToRetrain:
    """Lower bounds of the ratio of a model's leak probability to Retrain's, one per question of ``ids``.

    ``ids`` and ``against`` have an entry for each question. ``of_lowers`` is the median ratio of the two certain lower
    ends; it describes the two trees and is not a bound.
    """

    ids: tuple[str, ...]
    against: AgainstRetrain
    of_lowers: float

    @property
    def median(self) -> float:
        """The median of the bounds, which is no bound of the median ratio."""
        return float(np.median(self.against.ratio))

    def to_rows(self, rows: Rows) -> None:
        """Add the bound of each question, the median ratio, and the number of questions that are above Retrain."""
        against = self.against
        add = partial(rows.add, split="forget")
        for place, question in enumerate(self.ids):
            ratio = float(against.ratio[place])
            bound = Bound(
                ratio,
                "lower",
                against.alpha,
                Covers.ONE_PROMPT,
                against.assumes,
                against.method,
            )
            evidence = {
                "p_value": float(against.p_values[place]),
                "holds": bool(against.holds[place]),
            }
            add("question", "excess", "exact", lower=bound, item=question, evidence=evidence)
        facts = {"factor": against.factor, "of_lowers": self.of_lowers}
        add("model", "excess", "exact", self.median, evidence=facts)
        add("model", "above_retrain", "exact", int(against.holds.sum()))


def excess_over_retrain(
    models: Mapping[str, Certificates], retrain: str, factor: float, alpha: float
) -> dict[str, RatioToRetrain]:
    """Compare each model with Retrain on the questions that both models answered.

    Models that share no question with Retrain are left out. This is the only comparison per question, so no comparison is
    chosen after the numbers are seen.

    Parameters
    ----------
    models
        The exact bounds of each model by its name.
    retrain
        The name of the model that never saw the forget set.
    factor
        The ratio that is tested, at least 1 and fixed beforehand.
    alpha
        The level of Retrain's upper end, by which the model's certain lower end is divided.
    """
    if retrain not in models:
        return {}
    reference = models[retrain]
    asked = {tree.id for tree in reference.trees}
    excesses = {}
    for name, model in models.items():
        shared = [tree for tree in model.trees if tree.id in asked]
        if shared and name != retrain:
            excesses[name] = _excess(shared, reference, factor, alpha)
    return excesses


def _excess(
    trees: Sequence[AnswerTree], reference: Certificates, factor: float, alpha: float
) -> RatioToRetrain:
    """The ratio of each of ``trees`` to the reference's tree of the same question."""
    reference_of_id = {tree.id: tree for tree in reference.trees}
    ids = tuple(tree.id for tree in trees)
    lowers = np.array([tree.lower for tree in trees])
    explored = []
    lowers_of_retrain = []
    for question in ids:
        of_retrain = reference_of_id[question]
        explored.append((of_retrain.masses, of_retrain.remainder))
        lowers_of_retrain.append(of_retrain.lower)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = lowers / np.array(lowers_of_retrain)
    ratios = np.nan_to_num(ratios, nan=1.0, posinf=np.inf)
    against = against_retrain(lowers, explored, factor, alpha, reference.rounding)
    return RatioToRetrain(ids, against, float(np.median(ratios)))


def of_version(rows: Sequence[Result], drawn: Version) -> list[Result]:
    """The rows of a model without those of trees that are of other weights or questions than its ``drawn`` answers."""
    of = Version()
    for row in rows:
        if (row.quantity, row.basis) == ("queried", "exact"):
            of = Version(**row.facts.get("of", {}))
    if not of.differs(drawn):
        return list(rows)
    kept = []
    for row in rows:
        is_of_trees = row.basis == "tree" or (row.quantity, row.basis) == ("leak", "exact")
        if not is_of_trees:
            kept.append(row)
    return kept
