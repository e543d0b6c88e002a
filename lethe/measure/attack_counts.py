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
        own = [
            (key, value)
            for key, value in self.after.items()
            if key != "kind" and not isinstance(value, list)
        ]
        parameters = ", ".join(f"{key} {value}" for key, value in own)
        return f"{self.kind} ({parameters})" if parameters else self.kind

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
    for budget, own in sampled.groupby("budget"):
        scores = own["score"].dropna()
        binary = bool(scores.isin([0.0, 1.0]).all())
        total, missing = float(scores.sum()), int(own["score"].isna().sum())
        counts.append(
            Counted(float(cast("float", budget)), total, total + missing, len(own), binary)
        )
    return counts


def curves(
    results: Mapping[str, AttackResult], base: str | None, retrain: str | None
) -> list[Curve]:
    every = []
    for name, result in results.items():
        role = "base" if result.path == base else "retrain" if result.path == retrain else "subject"
        same = {
            own.path: own.counts for own in [*results.values()][::-1] if own.attack == result.attack
        }
        of_base, of_retrain = same.get(base or ""), same.get(retrain or "")
        points = band(result.counts, result.alpha)
        half = (
            half_life(points, band(of_base, result.alpha)[0])
            if of_base and role != "base"
            else None
        )
        more = (
            excess(result.counts, of_retrain, result.alpha)
            if of_retrain and role == "subject"
            else []
        )
        every.append(Curve(name, result, role, points, half, more))
    return every
