"""Exact leak probabilities: the keys of the answer trees, the mean certain lower bound, and its ratio to Retrain's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict

from lethe.results.exact_bounds import MEDIAN, excess_over_retrain
from lethe.statistics.leak_trees import PROVED
from studies.meta_evaluation.knowledge import TREE_PART, Asking, Number, Seen, of_flat

# Fields of the model's summary that say how was measured, or that take part under another name.
OTHERS = frozenset(
    {"questions", "tau", "alpha", "rho", "rows", "sampled", "lower_worst", "upper_worst", "mean_lower"}
)
UPPER = ("tree_upper_worst", "tree_upper_mean")


def values(seen: Seen, retrain: Seen | None, asking: Asking) -> Iterator[Number]:
    """Nothing without exact bounds; the ratio needs those of Retrain on the same questions."""
    if seen.trees is None:
        return
    lower = {tree.id: tree.lower for tree in seen.trees.trees}
    upper = {tree.id: tree.upper for tree in seen.trees.trees}
    model = seen.trees.model
    summary = {key: bound.value for key, bound in model.bounds.items()} | {
        "tree_certain_leaks": model.certain_leaks[PROVED[0]]
    }
    for key, value in of_flat(summary, frozenset()):
        yield Number(key, value, value, (TREE_PART,), upper if key in UPPER else lower)
    yield Number("tree_lower_mean", model.mean_lower, model.mean_lower, (TREE_PART,), lower)
    for key, value in of_flat(asdict(model), OTHERS):
        yield Number(f"tree_{key}", value, value, (TREE_PART,))
    if retrain is None or retrain.trees is None:
        return
    # Under other names the model is compared with Retrain even where the model is Retrain itself.
    pair = {"model": seen.trees, "retrain": retrain.trees}
    found = excess_over_retrain(pair, "retrain", asking.tree_ratio, asking.tree_alpha).get("model")
    if found is None:
        return
    each = dict(zip(found.ids, found.ratios, strict=True))
    printed = {
        MEDIAN: found.median,
        "tree_above_retrain": sum(found.holds),
        "excess_over_retrain": found.of_lowers,
    }
    for key, value in printed.items():
        own = each if key == MEDIAN else {}
        yield Number(key, float(value), float(value), (TREE_PART,), own)
