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
        own = {key: value for key, value in self.after.items() if key != "kind" and not isinstance(value, list)}
        parameters = ", ".join(f"{key} {value}" for key, value in own.items())
        return f"{self.kind} ({parameters})" if parameters else self.kind

    @property
    def attack(self) -> tuple[object, ...]:
        """What two attacks must share to be compared."""
        return (repr(self.after), self.scorer, self.n, self.seeds)


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
    by_seed: tuple[SeedMean, ...]
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


def curves(results: Mapping[str, AttackResult], base: str | None, retrain: str | None) -> list[Curve]:
    def counts_under(attacked: AttackResult, path: str | None) -> tuple[Counted, ...] | None:
        same = (own for own in results.values() if own.path == path and own.attack == attacked.attack)
        return next((own.counts for own in same), None)

    found = []
    for name, result in results.items():
        role = "base" if result.path == base else "retrain" if result.path == retrain else "subject"
        of_base, of_retrain = counts_under(result, base), counts_under(result, retrain)
        points = band(result.counts, result.alpha)
        found.append(
            Curve(
                name,
                result.path,
                result.kind,
                result.title,
                result.budget,
                role,
                points,
                result.by_seed,
                half_life(points, band(of_base, result.alpha)[0]) if of_base and role != "base" else None,
                excess(result.counts, of_retrain, result.alpha) if of_retrain and role == "subject" else [],
                result.alpha,
            )
        )
    return found
