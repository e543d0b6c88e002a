"""The result of a game on any kind of data: qualities, their comparisons, and the trends of the
paper that they show.

The paper is "Towards Reliable Empirical Machine Unlearning Evaluation: A Game-Theoretic View" (Tu
et al. 2024). The rules of the trends are fixed before any result, and judge a trend on all values,
never on a selection of methods, attacks or budgets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import combinations, pairwise
from typing import TYPE_CHECKING

import numpy as np

from lethe.audits import AuditResult
from lethe.io.files import Json
from lethe.statistics.bound import Bound
from lethe.statistics.unlearning_game import CertifiedBound, Quality, unlearning_quality
from lethe.text import listing

if TYPE_CHECKING:
    import pandas as pd

HALVES = ("original", "swapped")
RANDOM = "random"  # a second random split instead of the swapped half, for comparison
LEAKAGE_BOUNDS = (
    "worst_bound",
    "pooled_bound",
)  # the part of a method's leakage that the headline shows


@dataclass(frozen=True)
class AttackOutcome:
    """One attack on one unlearned model: acceptances on forget and test points, and the values that
    follow.
    """

    method: str
    pair: int
    half: str
    seed: int
    attack: str
    forget: np.ndarray
    test: np.ndarray
    signed: float
    auc: float


@dataclass(frozen=True)
class RandomSplits:
    """The quality, over all pairs and per pair, from two random splits in place of a swapped pair."""

    quality: float
    by_pair: list[float]


@dataclass(frozen=True)
class Deviation:
    """Standard deviations of the quality over pairs, by the SWAP test and from random splits."""

    swap: float
    random: float


@dataclass(frozen=True)
class Confusion:
    """Interclass confusion: 1 minus the memorised share, and the test accuracy of the confused
    models.
    """

    score: float
    accuracy: float


@dataclass(frozen=True)
class PlayedMethod:
    """The result of one method; a value is None where the game did not play that part. ``mia_auc``
    is by attack, and ``mia_score`` is 1 minus the largest. ``performance`` is by part of the split.
    Only image games have ``confusion``, only text games ``leakage``.
    """

    quality: Quality
    by_pair: list[float]
    random_splits: RandomSplits | None
    deviation: Deviation | None
    mia_auc: dict[str, float]
    mia_score: float
    performance: dict[str, float] = field(default_factory=dict)
    confusion: Confusion | None = None
    leakage: Mapping[str, Json] | None = None


@dataclass(frozen=True)
class Table:
    """One table of the paper: budget to method to value, and to the accuracy of that game."""

    values: dict[str, dict[str, float | None]]
    accuracy: dict[str, dict[str, float | None]]


@dataclass(frozen=True)
class Tables:
    """Tables 1, 3 and 4 by budget; Table 2 has two deviations per method."""

    quality: Table
    confusion: Table
    mia: Table
    deviation: dict[str, Deviation | None]


@dataclass(frozen=True)
class Figure:
    """Figure 2: the quality of each method by number of points, and per pair of ``repetitions``
    pairs.
    """

    points: dict[int, dict[str, float]]
    repetitions: int
    repeats: dict[str, list[float]]


@dataclass(frozen=True)
class GameResult:
    """The result of a whole game. ``sizes`` are in ``unit``, by part of the split. ``defenders``
    maps each method to its defender. ``privacy`` is the guarantee of the budget for a forget set.
    Only `image_tables` has ``tables``, ``figure`` and ``bounds`` (by budget).
    """

    kind: str
    unit: str
    performs: str
    sizes: dict[str, int]
    pairs: int
    seeds: int
    alpha: float
    shared_retrain: bool
    defenders: dict[str, str]
    methods: dict[str, PlayedMethod]
    privacy: CertifiedBound | None = None
    tables: Tables | None = None
    figure: Figure | None = None
    bounds: dict[str, CertifiedBound | None] = field(default_factory=dict)

    def as_json(self) -> dict[str, object]:
        """The result under the keys of details.json, without keys that the kind of game lacks."""
        text = self.kind == "text"
        absent = ({"privacy"} if text else set()) | (
            set() if self.tables else {"tables", "figure", "bounds"}
        )
        whole = {key: value for key, value in asdict(self).items() if key not in absent}
        methods = whole.pop("methods")
        for method in methods.values():
            del method["confusion" if text else "leakage"]
        return {**whole, "methods": methods}


def results_by_method(outcomes: Sequence[AttackOutcome], alpha: float) -> dict[str, PlayedMethod]:
    """Map every attacked method to the result of its outcomes, without the parts that need more
    than attacks.
    """
    methods = dict.fromkeys(one.method for one in outcomes)
    return {
        method: _summary([one for one in outcomes if one.method == method], alpha)
        for method in methods
    }


def _summary(outcomes: Sequence[AttackOutcome], alpha: float) -> PlayedMethod:
    original, swapped, random = (signed_advantages(outcomes, half) for half in (*HALVES, RANDOM))
    by_pair, by_random_pair = (
        _by_pair(original, swapped),
        _by_pair(original, random) if random else [],
    )
    # The usual AUC uses only the drawn splits. An average over swapped pairs would be grounded,
    # like the quality.
    areas = {
        attack: float(
            np.mean([one.auc for one in outcomes if one.attack == attack and one.half == HALVES[0]])
        )
        for attack in original
    }
    splits = deviation = None
    if random:
        splits = RandomSplits(
            unlearning_quality(original, random, alpha=alpha).value, by_random_pair
        )
    if random and len(by_pair) > 1:
        deviation = Deviation(float(np.std(by_pair, ddof=1)), float(np.std(by_random_pair, ddof=1)))
    quality = unlearning_quality(original, swapped, alpha=alpha)
    return PlayedMethod(
        quality, by_pair, splits, deviation, areas, mia_score=1 - max(areas.values())
    )


def signed_advantages(outcomes: Sequence[AttackOutcome], half: str) -> dict[str, np.ndarray]:
    """Map each attack to the signed advantages (pairs, seeds) of one half of every pair."""
    values: dict[str, dict[int, dict[int, float]]] = {}
    for one in outcomes:
        if one.half == half:
            values.setdefault(one.attack, {}).setdefault(one.pair, {})[one.seed] = one.signed
    return {
        attack: np.array(
            [[seeds[seed] for seed in sorted(seeds)] for _, seeds in sorted(pairs.items())]
        )
        for attack, pairs in values.items()
    }


def predictions(outcomes: Sequence[AttackOutcome]) -> pd.DataFrame:
    """Return the acceptances as a table: the columns that `lethe audit swap` reads, ``method`` and
    ``pair``.
    """
    import pandas as pd

    parts = []
    for one in outcomes:
        for member, accepted in (("forget", one.forget), ("test", one.test)):
            place = {"method": one.method, "pair": one.pair, "split": one.half, "member": member}
            parts.append(
                pd.DataFrame({**place, "attack": one.attack, "seed": one.seed, "accept": accepted})
            )
    return pd.concat(parts, ignore_index=True)


def _by_pair(first: dict[str, np.ndarray], second: dict[str, np.ndarray]) -> list[float]:
    pairs = len(next(iter(first.values())))
    return [
        unlearning_quality(
            *({attack: half[attack][pair] for attack in half} for half in (first, second))
        ).value
        for pair in range(pairs)
    ]


def headline(result: GameResult) -> dict[str, object]:
    """Return plain values and one row per method, for `dvc metrics` and the report's section."""
    rows = {}
    for name, method in result.methods.items():
        quality = method.quality
        rows[name] = {
            "defender": result.defenders[name],
            "quality": quality.value,
            "ci_low": quality.ci_low,
            "ci_high": quality.ci_high,
            "attack": quality.attack,
            **{
                f"{result.performs}_{part}".replace(" ", "_"): value
                for part, value in method.performance.items()
            },
            "mia_score": method.mia_score,
            "confusion_score": method.confusion.score if method.confusion else None,
            "random_splits_quality": method.random_splits.quality if method.random_splits else None,
            **(
                {f"leakage_{key}": method.leakage[key] for key in LEAKAGE_BOUNDS}
                if method.leakage
                else {}
            ),
        }
    plain = {key: value for key, value in result.as_json().items() if not isinstance(value, dict)}
    return {
        **plain,
        **{f"{part}_points": size for part, size in result.sizes.items()},
        "methods": rows,
    }


def played(result: GameResult, outcomes: Sequence[AttackOutcome]) -> AuditResult:
    """Return a game as the stage writes it: the headline with the trends that hold, all details,
    the acceptances.
    """
    qualities = {name: method.quality for name, method in result.methods.items()}
    sentences = (
        f"{name}: unlearning quality {own.value:.3f} ({own.attack})"
        for name, own in qualities.items()
    )
    shown = {**headline(result), "trends": [asdict(trend) for trend in trends(result)]}
    tables = {"predictions": predictions(outcomes)}
    return AuditResult(shown, result.as_json(), tables, tuple(sentences), headline_bounds(result))


def headline_bounds(result: GameResult) -> dict[str, Bound]:
    """Return the bounds of the headline with their guarantees, by the dotted keys of the headline."""
    bounds: dict[str, Bound] = {}
    for name, method in result.methods.items():
        ends = method.quality.ends()
        leaks = method.leakage or {}
        for key in LEAKAGE_BOUNDS if leaks else ():
            if guarantee := leaks["guarantees"][key]:
                ends[f"leakage_{key}"] = Bound.from_dict({**guarantee, "value": leaks[key]})
        bounds |= {f"methods.{name}.{key}": bound for key, bound in ends.items()}
    return bounds


ALONE = "this game"  # the only column of a game without tables
GROUNDED = (
    0.98  # a quality of Retrain of at least this counts as 1, up to the randomness of training
)
RANKS = (
    ("neg_grad",),
    ("fisher",),
    ("ft_final", "retr_final", "none"),
)  # from the highest, without privacy
NAMES = {
    "retrain": "Retrain",
    "fisher": "Fisher",
    "ft_final": "FtFinal",
    "retr_final": "RetrFinal",
    "neg_grad": "NegGrad",
    "none": "None",
}
Column = dict[str, float]  # method to value
MEASURES: dict[str, Callable[[PlayedMethod], float | None]] = {
    "quality": lambda method: method.quality.value,
    "confusion": lambda method: method.confusion.score if method.confusion else None,
    "mia": lambda method: method.mia_score,
}


@dataclass(frozen=True)
class Trend:
    claim: str
    measured: str
    held: bool


def label(defenders: Mapping[str, str], method: str) -> str:
    """Return the paper's name of a method, with the name of the params entry where the names
    differ.
    """
    name = NAMES.get(defenders[method])
    return method if name is None else name if method == defenders[method] else f"{name} ({method})"


def trends(result: GameResult) -> list[Trend]:
    rules = (grounding, falling, order, stable_ranking, smaller_deviation, ungrounded)
    return [trend for rule in rules for trend in rule(result)]


def grounding(result: GameResult) -> Iterator[Trend]:
    """Corollary 3.8: Q(Retrain) is 1, at every budget."""
    for retrain in _named(result, "retrain"):
        values = {
            epsilon: column[retrain] for epsilon, column in _columns(result, "quality").items()
        }
        yield Trend(
            f"Retraining has quality 1 (at least {GROUNDED}){' at every budget' if len(values) > 1 else ''}",
            _listed(
                {
                    key if key == ALONE else f"ε = {infinity(key)}:": value
                    for key, value in values.items()
                }
            ),
            min(values.values()) >= GROUNDED,
        )


def falling(result: GameResult) -> Iterator[Trend]:
    """Table 1: Q falls as epsilon grows, for every method but Retrain."""
    columns = _columns(result, "quality")
    if len(columns) > 1:
        rising = _rising(result, columns)
        claim = "The quality falls as epsilon grows, for every method but Retrain"
        yield Trend(claim, _risen(result, rising), not rising)


def order(result: GameResult) -> Iterator[Trend]:
    """Table 1, no privacy: NegGrad > Fisher > {FtFinal, RetrFinal, None}."""
    if result.privacy:
        return
    ranks = [[name for defender in rank for name in _named(result, defender)] for rank in RANKS]
    if not all(ranks):
        return
    quality = {name: result.methods[name].quality.value for rank in ranks for name in rank}
    values = [[quality[name] for name in rank] for rank in ranks]
    last = listing([NAMES[defender] for defender in RANKS[-1] if _named(result, defender)])
    yield Trend(
        f"Without privacy NegGrad is above Fisher, and Fisher above {last}",
        _listed({label(result.defenders, name): value for name, value in quality.items()}),
        all(min(above) > max(below) for above, below in pairwise(values)),
    )


def stable_ranking(result: GameResult) -> Iterator[Trend]:
    """Figure 2: the ranking of the methods is stable over data set sizes and over repetitions."""
    figure = result.figure
    if not figure:
        return
    methods = list(figure.repeats)
    rankings = zip(*figure.repeats.values(), strict=True)
    repeats: list[Column] = [dict(zip(methods, values, strict=True)) for values in rankings]
    for what, columns in (
        ("data set sizes", list(figure.points.values())),
        ("repetitions", repeats),
    ):
        if len(columns) > 1:
            agreement = min(kendall(one, other) for one, other in combinations(columns, 2))
            yield Trend(
                f"The methods keep their ranking over {what}",
                f"smallest Kendall tau between two of {len(columns)}: {agreement:.2f}",
                agreement == 1,
            )


def smaller_deviation(result: GameResult) -> Iterator[Trend]:
    """Table 2: the swapped pair's standard deviation is below that of two random splits (paper: .5
    to .7 of it).
    """
    methods = {name: method.deviation for name, method in result.methods.items()}
    every = result.tables.deviation if result.tables else methods
    deviations = {name: one for name, one in every.items() if one}
    if len(deviations) == len(methods):
        ratios = {
            # No ratio to a deviation of zero is below 1.
            label(result.defenders, name): one.swap / one.random if one.random else float("inf")
            for name, one in deviations.items()
        }
        yield Trend(
            "The quality varies less over swapped pairs than over two random splits (paper: 0.5 to 0.7 as much)",
            _listed(ratios),
            all(ratio < 1 for ratio in ratios.values()),
        )


def ungrounded(result: GameResult) -> Iterator[Trend]:
    """Tables 3 and 4: interclass confusion and attack AUC lack both properties of the quality."""
    for name, title, ideal in (
        ("confusion", "Interclass confusion", 1.0),
        ("mia", "1 - attack AUC", 0.5),
    ):
        columns = _columns(result, name)
        if not columns:
            continue
        for retrain in _named(result, "retrain"):
            off, own = (
                max(abs(column[retrain] - target) for column in table.values())
                for table, target in ((columns, ideal), (_columns(result, "quality"), 1.0))
            )
            yield Trend(
                f"{title} is not grounded: Retrain is further from {ideal:g} than its quality is from 1",
                f"{off:.3f} against {own:.3f}{', the largest over budgets' if len(columns) > 1 else ''}",
                off > own,
            )
        if len(columns) > 1:
            rising = _rising(result, columns)
            claim = f"{title} does not fall as epsilon grows, for at least one method"
            yield Trend(claim, _risen(result, rising), bool(rising))


def kendall(one: Column, other: Column) -> float:
    """Kendall's tau-a of two rankings of the same names."""
    pairs = list(combinations(one, 2))
    return float(sum(np.sign((one[a] - one[b]) * (other[a] - other[b])) for a, b in pairs)) / len(
        pairs
    )


def _columns(result: GameResult, name: str) -> dict[str, Column]:
    """Map budget to method to value; a single game has one column. The result is empty unless every
    method has a value.
    """
    columns = {ALONE: {method: MEASURES[name](values) for method, values in result.methods.items()}}
    if result.tables:
        columns = getattr(result.tables, name).values
    measured = {
        budget: {method: value for method, value in column.items() if value is not None}
        for budget, column in columns.items()
    }
    return (
        measured
        if all(len(measured[budget]) == len(column) for budget, column in columns.items())
        else {}
    )


def _rising(result: GameResult, columns: dict[str, Column]) -> dict[str, str]:
    """Return the methods other than Retrain whose value does not fall from every budget to the
    next, with their values.
    """
    risen = {}
    for name in result.defenders:
        values = [column[name] for column in columns.values()]
        if name not in _named(result, "retrain") and any(b >= a for a, b in pairwise(values)):
            risen[name] = " to ".join(f"{value:.3f}" for value in values)
    return risen


def _named(result: GameResult, defender: str) -> list[str]:
    return [name for name, method in result.defenders.items() if method == defender]


def _listed(values: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.3f}" for name, value in values.items())


def _risen(result: GameResult, rising: dict[str, str]) -> str:
    exceptions = [
        f"not for {label(result.defenders, name)}: {values}" for name, values in rising.items()
    ]
    return "; ".join(exceptions) or "it falls for every method"


def infinity(epsilon: str) -> str:
    return "∞" if epsilon == "inf" else epsilon
