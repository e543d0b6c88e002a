"""The attack curves of a run, each with the reference models under the same attack."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from lethe.statistics.many_prompts import Counted, Excess, HalfLife, Point, band, excess, half_life

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class SeedMean:
    """The mean score of the answers after an attack with one seed and one budget."""

    seed: int
    budget: float
    mean: float


@dataclass(frozen=True)
class AttackResult:
    """The record of one attack on one model, as the stage `attack` wrote it."""

    path: str
    kind: str
    scorer: str
    alpha: float
    n: int
    seeds: tuple[int, ...]
    budget: str  # what is spent, in words
    after: Mapping[str, object]  # the attack as params.yaml has it
    counts: tuple[Counted, ...]
    by_seed: tuple[SeedMean, ...]

    @property
    def title(self) -> str:
        parameters = []
        for key, value in self.after.items():
            if key != "kind" and not isinstance(value, list):
                parameters.append(f"{key} {value}")
        return f"{self.kind} ({', '.join(parameters)})" if parameters else self.kind

    @property
    def attack(self) -> tuple[object, ...]:
        """What two attacks must share to be compared."""
        return (repr(self.after), self.scorer, self.n, self.seeds)


@dataclass(frozen=True)
class Curve:
    """One entry of ``attacks``: its curve, half-life against Base, and excess over Retrain under the same attack."""

    name: str
    result: AttackResult
    role: str  # base, retrain, subject
    points: list[Point]
    half_life: HalfLife | None
    excess: list[Excess]


def counts_of(answers: pd.DataFrame) -> list[Counted]:
    """The counts at every budget, summed over seeds, questions and sampled answers."""
    sampled = answers[answers["sample"] >= 0]
    counts = []
    for budget, at_budget in sampled.groupby("budget"):
        scores = at_budget["score"].dropna()
        binary = bool(scores.isin([0.0, 1.0]).all())
        least = float(scores.sum())
        most = least + int(at_budget["score"].isna().sum())
        counts.append(Counted(float(cast("float", budget)), least, most, len(at_budget), binary))
    return counts


def curves(
    results: Mapping[str, AttackResult], base: str | None, retrain: str | None
) -> list[Curve]:
    """The curve of each attack by name; ``base`` and ``retrain`` are the paths of these models, if the run has them."""
    drawn = []
    for name, result in results.items():
        points = band(result.counts, result.alpha)
        of_base = _counts_under(result, results, base)
        of_retrain = _counts_under(result, results, retrain)
        role = _role(result.path, base, retrain)
        half = None
        if of_base and role != "base":
            half = half_life(points, band(of_base, result.alpha)[0])
        more: list[Excess] = []
        if of_retrain and role == "subject":
            more = excess(result.counts, of_retrain, result.alpha)
        drawn.append(
            Curve(
                name,
                result,
                role,
                points,
                half,
                more,
            )
        )
    return drawn


def _role(path: str, base: str | None, retrain: str | None) -> str:
    if path == base:
        return "base"
    return "retrain" if path == retrain else "subject"


def _counts_under(
    result: AttackResult, results: Mapping[str, AttackResult], path: str | None
) -> tuple[Counted, ...] | None:
    """The counts of the first entry that makes the same attack on the model at ``path``; None without one."""
    for other in results.values():
        if other.path == path and other.attack == result.attack:
            return other.counts
    return None
