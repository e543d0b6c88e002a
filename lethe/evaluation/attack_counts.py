"""The attack curves of a run, each with the reference models under the same attack."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from lethe.statistics.attack_curve import Counted, Excess, HalfLife, Point, band, excess, half_life

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Curve:
    """One entry of ``attacks``: its curve, half-life against Base, and excess over Retrain under the same attack."""

    name: str
    path: str
    kind: str
    title: str  # the attack in words, the same for all models under it
    budget: str
    role: str  # base, retrain, subject
    points: list[Point]
    by_seed: list[dict[str, float]]
    half_life: HalfLife | None
    excess: list[Excess]
    alpha: float


def counts_of(answers: pd.DataFrame) -> list[Counted]:
    """The counts at every budget, summed over seeds, questions and sampled answers."""
    sampled = answers[answers["sample"] >= 0]
    found = []
    for budget, own in sampled.groupby("budget"):
        scores = own["score"].dropna()
        binary = bool(scores.isin([0.0, 1.0]).all())
        total, missing = float(scores.sum()), int(own["score"].isna().sum())
        found.append(Counted(float(cast("float", budget)), total, total + missing, len(own), binary))
    return found


def curves(results: Mapping[str, dict], base: str | None, retrain: str | None) -> list[Curve]:
    """The curves of the results of the stage `attack`; ``base`` and ``retrain`` are the paths of the references."""
    counted = {
        name: [Counted(**one) for one in result["counts"]]
        for name, result in results.items()
        if "counts" in result
    }

    def counts_under(name: str, path: str | None) -> list[Counted] | None:  # of the model at ``path``, same attack
        mine = _attack(results[name])
        same = (own for own in counted if results[own]["path"] == path and _attack(results[own]) == mine)
        return next((counted[own] for own in same), None)

    found = []
    for name, counts in counted.items():
        result = results[name]
        alpha = float(result["alpha"])
        role = "base" if result["path"] == base else "retrain" if result["path"] == retrain else "subject"
        of_base, of_retrain = counts_under(name, base), counts_under(name, retrain)
        points = band(counts, alpha)
        found.append(
            Curve(
                name,
                result["path"],
                result["kind"],
                title(result),
                result["budget"],
                role,
                points,
                result["by_seed"],
                half_life(points, band(of_base, alpha)[0]) if of_base and role != "base" else None,
                excess(counts, of_retrain, alpha) if of_retrain and role == "subject" else [],
                alpha,
            )
        )
    return found


def title(result: Mapping) -> str:
    """A title for the attack: its kind and its parameters, except the list of budgets."""
    own = {key: value for key, value in result["after"].items() if key != "kind" and not isinstance(value, list)}
    parameters = ", ".join(f"{key} {value}" for key, value in own.items())
    return f"{result['kind']} ({parameters})" if parameters else str(result["kind"])


def _attack(result: Mapping) -> tuple:
    return (repr(result["after"]), result["scorer"], result["n"], tuple(result["seeds"]))
