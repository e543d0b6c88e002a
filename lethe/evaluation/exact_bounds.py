"""The results of the stage `exact` that other stages read: a model's metrics, and its leakage relative to Retrain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lethe.io.schema import read_artifact
from lethe.statistics.bound import Bound
from lethe.statistics.leak_certificates import Certificates
from lethe.statistics.leak_trees import compared_with_retrain

MEDIAN = "tree_excess_median"
COMPARED = "tree_above_retrain"  # the number of questions of Holm's list


def tree_metrics(root: Path, name: str) -> tuple[dict[str, float | int], dict[str, Bound]]:
    """The flat keys that exact bounds add to a model's metrics, and their guarantees; both are empty without exact bounds."""
    found = read_certificates(root, name)
    return (found.model.flat(), found.model.bounds) if found else ({}, {})


def read_certificates(root: Path, name: str) -> Certificates | None:
    """Return the exact bounds of a model; None if the model has none."""
    path = root / "exact" / f"{name}.json"
    values = read_artifact(path) if path.is_file() else {}
    return Certificates.of_json(values) if values.get("model") else None


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
        """The median ratio over the questions."""
        return float(np.median(self.ratios))

    def flat(self) -> dict[str, float | int]:
        """The keys of ``data/compare.json``, without the model's name."""
        return {MEDIAN: self.median, COMPARED: sum(self.holds)}

    def as_json(self) -> dict[str, object]:
        """Plain values; a ratio is infinite where Retrain cannot leak, and is then null."""
        rows = zip(self.ids, self.ratios, self.p_values, self.holds, strict=True)
        return {
            "factor": self.factor,
            "alpha": self.alpha,
            "method": self.method,
            "assumes": self.assumes,
            "excess_over_retrain": self.of_lowers if np.isfinite(self.of_lowers) else None,
            "per_question": [
                {"id": key, "ratio": ratio if np.isfinite(ratio) else None, "p_value": p_value, "holds": holds}
                for key, ratio, p_value, holds in rows
            ],
        }

    @classmethod
    def of_json(cls, values: Mapping[str, object]) -> Excess:
        """The ratios that `as_json` wrote."""
        known: dict[str, Any] = dict(values)
        rows = known["per_question"]
        return cls(
            ids=tuple(row["id"] for row in rows),
            ratios=tuple(np.inf if row["ratio"] is None else row["ratio"] for row in rows),
            p_values=tuple(row["p_value"] for row in rows),
            holds=tuple(row["holds"] for row in rows),
            factor=known["factor"],
            alpha=known["alpha"],
            method=known["method"],
            assumes=known["assumes"],
            of_lowers=np.inf if known.get("excess_over_retrain") is None else known["excess_over_retrain"],
        )


def excess_over_retrain(
    models: Mapping[str, Certificates], retrain: str, factor: float, alpha: float
) -> dict[str, Excess]:
    """Compare each model with Retrain on the questions that both models answered.

    Models without exact bounds, and models that share no question with Retrain, are left out. The ratio divides the
    model's certain lower end by Retrain's upper end. This is the only comparison per question, so no comparison is
    chosen after the numbers are seen.

    Parameters
    ----------
    models
        The exact bounds of each model by name.
    retrain
        The name of Retrain among them.
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


def compared(
    root: Path, names: Sequence[str], retrain: str | None, factor: float, alpha: float
) -> dict[str, Excess]:
    """`excess_over_retrain` of the models of a run; empty without Retrain or without exact bounds.

    Parameters
    ----------
    root
        The folder of artifacts.
    names
        The models of the run.
    retrain, factor, alpha
        As in `excess_over_retrain`; None for no Retrain.
    """
    found = {name: read_certificates(root, name) for name in names}
    there = {name: certificates for name, certificates in found.items() if certificates is not None}
    return excess_over_retrain(there, retrain, factor, alpha) if retrain else {}
