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
# The part of a method's leakage that the headline shows.
LEAKAGE_BOUNDS = ("worst_bound", "pooled_bound")


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
class BudgetTable:
    """One table of the paper: budget to method to value, and to the accuracy of that game."""

    values: dict[str, dict[str, float | None]]
    accuracy: dict[str, dict[str, float | None]]


@dataclass(frozen=True)
class PaperTables:
    """Tables 1, 3 and 4 by budget; Table 2 has two deviations per method."""

    quality: BudgetTable
    confusion: BudgetTable
    mia: BudgetTable
    deviation: dict[str, Deviation | None]


@dataclass(frozen=True)
class QualityByPoints:
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
    tables: PaperTables | None = None
    figure: QualityByPoints | None = None
    bounds: dict[str, CertifiedBound | None] = field(default_factory=dict)

    def as_json(self) -> dict[str, object]:
        """The result under the keys of details.json, without keys that the kind of game lacks."""
        whole = asdict(self)
        methods = whole.pop("methods")
        if self.kind == "text":
            del whole["privacy"]
        if not self.tables:
            del whole["tables"], whole["figure"], whole["bounds"]
        lacking = "leakage"
        if self.kind == "text":
            lacking = "confusion"
        for method in methods.values():
            del method[lacking]
        return {**whole, "methods": methods}


def results_by_method(outcomes: Sequence[AttackOutcome], alpha: float) -> dict[str, PlayedMethod]:
    """Map every attacked method to the result of its outcomes, without the parts that need more
    than attacks.
    """
    by_method: dict[str, list[AttackOutcome]] = {}
    for outcome in outcomes:
        by_method.setdefault(outcome.method, []).append(outcome)
    return {method: _summary(played, alpha) for method, played in by_method.items()}


def _summary(outcomes: Sequence[AttackOutcome], alpha: float) -> PlayedMethod:
    """The result of one method's outcomes."""
    original = signed_advantages(outcomes, "original")
    swapped = signed_advantages(outcomes, "swapped")
    random = signed_advantages(outcomes, RANDOM)
    by_pair = _by_pair(original, swapped)
    splits = None
    deviation = None
    if random:
        of_random = unlearning_quality(original, random, alpha=alpha)
        splits = RandomSplits(of_random.value, _by_pair(original, random))
    if splits and len(by_pair) > 1:
        swap = float(np.std(by_pair, ddof=1))
        deviation = Deviation(swap, float(np.std(splits.by_pair, ddof=1)))

    # The usual AUC uses only the drawn splits. An average over swapped pairs would be grounded,
    # like the quality.
    areas: dict[str, list[float]] = {attack: [] for attack in original}
    for outcome in outcomes:
        if outcome.half == HALVES[0]:
            areas[outcome.attack].append(outcome.auc)
    mia_auc = {attack: float(np.mean(values)) for attack, values in areas.items()}
    mia_score = 1 - max(mia_auc.values())
    quality = unlearning_quality(original, swapped, alpha=alpha)
    return PlayedMethod(
        quality,
        by_pair,
        splits,
        deviation,
        mia_auc,
        mia_score,
    )


def signed_advantages(outcomes: Sequence[AttackOutcome], half: str) -> dict[str, np.ndarray]:
    """Map each attack to the signed advantages (pairs, seeds) of one half of every pair."""
    by_attack: dict[str, dict[int, dict[int, float]]] = {}
    for outcome in outcomes:
        if outcome.half == half:
            pairs = by_attack.setdefault(outcome.attack, {})
            pairs.setdefault(outcome.pair, {})[outcome.seed] = outcome.signed

    advantages = {}
    for attack, pairs in by_attack.items():
        rows = []
        for _, seeds in sorted(pairs.items()):
            rows.append([seeds[seed] for seed in sorted(seeds)])
        advantages[attack] = np.array(rows)
    return advantages


def predictions(outcomes: Sequence[AttackOutcome]) -> pd.DataFrame:
    """Return the acceptances as a table: the columns that `lethe audit swap` reads, ``method`` and
    ``pair``.
    """
    import pandas as pd

    parts = []
    for outcome in outcomes:
        for member, accepted in (("forget", outcome.forget), ("test", outcome.test)):
            columns = {
                "method": outcome.method,
                "pair": outcome.pair,
                "split": outcome.half,
                "member": member,
                "attack": outcome.attack,
                "seed": outcome.seed,
                "accept": accepted,
            }
            parts.append(pd.DataFrame(columns))
    return pd.concat(parts, ignore_index=True)


def _by_pair(first: dict[str, np.ndarray], second: dict[str, np.ndarray]) -> list[float]:
    """The quality of each pair, from the signed advantages (pairs, seeds) of both halves."""
    pairs = len(next(iter(first.values())))
    qualities = []
    for pair in range(pairs):
        of_first = {attack: signed[pair] for attack, signed in first.items()}
        of_second = {attack: signed[pair] for attack, signed in second.items()}
        qualities.append(unlearning_quality(of_first, of_second).value)
    return qualities


def headline(result: GameResult) -> dict[str, object]:
    """Return plain values and one row per method, for `dvc metrics` and the report's section."""
    shown: dict[str, object] = {}
    for key, value in result.as_json().items():
        if not isinstance(value, dict):
            shown[key] = value
    for part, size in result.sizes.items():
        shown[f"{part}_points"] = size
    methods = {}
    for name, method in result.methods.items():
        row = {"defender": result.defenders[name]}
        methods[name] = row | _headline_row(method, result.performs)
    shown["methods"] = methods
    return shown


def _headline_row(method: PlayedMethod, performs: str) -> dict[str, object]:
    """The row of a method in the headline."""
    quality = method.quality
    row: dict[str, object] = {
        "quality": quality.value,
        "ci_low": quality.ci_low,
        "ci_high": quality.ci_high,
        "attack": quality.attack,
    }
    for part, value in method.performance.items():
        row[f"{performs}_{part}".replace(" ", "_")] = value
    row["mia_score"] = method.mia_score
    row["confusion_score"] = _confusion_score(method)
    row["random_splits_quality"] = method.random_splits and method.random_splits.quality
    if method.leakage:
        for key in LEAKAGE_BOUNDS:
            row[f"leakage_{key}"] = method.leakage[key]
    return row


def played(result: GameResult, outcomes: Sequence[AttackOutcome]) -> AuditResult:
    """Return a game as the stage writes it: the headline with the trends that hold, all details,
    the acceptances.
    """
    sentences = []
    for name, method in result.methods.items():
        quality = method.quality
        sentences.append(f"{name}: unlearning quality {quality.value:.3f} ({quality.attack})")
    shown = headline(result)
    shown["trends"] = [asdict(trend) for trend in trends(result)]
    tables = {"predictions": predictions(outcomes)}
    return AuditResult(shown, result.as_json(), tables, tuple(sentences), headline_bounds(result))


def headline_bounds(result: GameResult) -> dict[str, Bound]:
    """Return the bounds of the headline with their guarantees, by the dotted keys of the headline."""
    bounds: dict[str, Bound] = {}
    for name, method in result.methods.items():
        ends = method.quality.ends()
        if method.leakage:
            ends |= _leakage_bounds(method.leakage)
        bounds |= {f"methods.{name}.{key}": bound for key, bound in ends.items()}
    return bounds


def _confusion_score(method: PlayedMethod) -> float | None:
    """The score of interclass confusion; None where it was not played."""
    if method.confusion is None:
        return None
    return method.confusion.score


def _leakage_bounds(leakage: Mapping[str, Json]) -> dict[str, Bound]:
    """The bounds of a method's leakage that the headline shows."""
    bounds = {}
    for key in LEAKAGE_BOUNDS:
        guarantee = leakage["guarantees"][key]
        if guarantee:
            bounds[f"leakage_{key}"] = Bound.from_dict({**guarantee, "value": leakage[key]})
    return bounds


ALONE = "this game"  # the only column of a game without tables
# A quality of Retrain of at least this counts as 1, up to the randomness of training.
GROUNDED = 0.98
# Defenders from the highest quality, without privacy.
RANKS = (("neg_grad",), ("fisher",), ("ft_final", "retr_final", "none"))
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
    "confusion": _confusion_score,
    "mia": lambda method: method.mia_score,
}


@dataclass(frozen=True)
class JudgedClaim:
    """A claim of the paper, the values by which it is judged, and whether they show it."""

    claim: str
    measured: str
    held: bool


def label(defenders: Mapping[str, str], method: str) -> str:
    """Return the paper's name of a method, with the name of the params entry where the names
    differ.
    """
    name = NAMES.get(defenders[method])
    if name is None:
        return method
    if method == defenders[method]:
        return name
    return f"{name} ({method})"


def trends(result: GameResult) -> list[JudgedClaim]:
    """The trends of the paper that the game has values to judge."""
    judged: list[JudgedClaim] = []
    for rule in (grounding, falling, order, stable_ranking, smaller_deviation, ungrounded):
        judged += rule(result)
    return judged


def grounding(result: GameResult) -> Iterator[JudgedClaim]:
    """Corollary 3.8: Q(Retrain) is 1, at every budget."""
    for retrain in _named(result, "retrain"):
        values = {}
        for budget, column in _columns(result, "quality").items():
            name = budget if budget == ALONE else f"ε = {infinity(budget)}:"
            values[name] = column[retrain]
        claim = f"Retraining has quality 1 (at least {GROUNDED})"
        if len(values) > 1:
            claim += " at every budget"
        yield JudgedClaim(claim, _listed(values), min(values.values()) >= GROUNDED)


def falling(result: GameResult) -> Iterator[JudgedClaim]:
    """Table 1: Q falls as epsilon grows, for every method but Retrain."""
    columns = _columns(result, "quality")
    if len(columns) > 1:
        rising = _rising(result, columns)
        claim = "The quality falls as epsilon grows, for every method but Retrain"
        yield JudgedClaim(claim, _risen(result, rising), not rising)


def order(result: GameResult) -> Iterator[JudgedClaim]:
    """Table 1, no privacy: NegGrad > Fisher > {FtFinal, RetrFinal, None}."""
    if result.privacy:
        return
    measured: Column = {}
    ranks = []
    for rank in RANKS:
        qualities = []
        for defender in rank:
            for name in _named(result, defender):
                quality = result.methods[name].quality.value
                measured[label(result.defenders, name)] = quality
                qualities.append(quality)
        ranks.append(qualities)
    if not all(ranks):
        return
    last = listing([NAMES[defender] for defender in RANKS[-1] if _named(result, defender)])
    claim = f"Without privacy NegGrad is above Fisher, and Fisher above {last}"
    held = all(min(above) > max(below) for above, below in pairwise(ranks))
    yield JudgedClaim(claim, _listed(measured), held)


def stable_ranking(result: GameResult) -> Iterator[JudgedClaim]:
    """Figure 2: the ranking of the methods is stable over data set sizes and over repetitions."""
    figure = result.figure
    if not figure:
        return
    repetitions: list[Column] = []
    for values in zip(*figure.repeats.values(), strict=True):
        repetitions.append(dict(zip(figure.repeats, values, strict=True)))
    yield from _stable("data set sizes", list(figure.points.values()))
    yield from _stable("repetitions", repetitions)


def _stable(over: str, columns: Sequence[Column]) -> Iterator[JudgedClaim]:
    """Whether the ranking is the same in all columns; no trend of a single column."""
    if len(columns) < 2:
        return
    agreement = min(kendall(first, second) for first, second in combinations(columns, 2))
    claim = f"The methods keep their ranking over {over}"
    measured = f"smallest Kendall tau between two of {len(columns)}: {agreement:.2f}"
    yield JudgedClaim(claim, measured, agreement == 1)


def smaller_deviation(result: GameResult) -> Iterator[JudgedClaim]:
    """Table 2: the swapped pair's standard deviation is below that of two random splits (paper: .5
    to .7 of it).
    """
    deviations = {name: method.deviation for name, method in result.methods.items()}
    if result.tables:
        deviations = result.tables.deviation
    ratios = {}
    for name, deviation in deviations.items():
        if deviation is None:
            continue
        ratio = float("inf")  # no ratio to a deviation of zero is below 1
        if deviation.random:
            ratio = deviation.swap / deviation.random
        ratios[name] = ratio
    if len(ratios) < len(result.methods):
        return
    labelled = {label(result.defenders, name): ratio for name, ratio in ratios.items()}
    claim = (
        "The quality varies less over swapped pairs than over two random splits (paper: 0.5 to 0.7 "
        "as much)"
    )
    yield JudgedClaim(claim, _listed(labelled), all(ratio < 1 for ratio in ratios.values()))


def ungrounded(result: GameResult) -> Iterator[JudgedClaim]:
    """Tables 3 and 4: interclass confusion and attack AUC lack both properties of the quality."""
    for name, title, ideal in (
        ("confusion", "Interclass confusion", 1.0),
        ("mia", "1 - attack AUC", 0.5),
    ):
        columns = _columns(result, name)
        if not columns:
            continue
        qualities = _columns(result, "quality")
        for retrain in _named(result, "retrain"):
            off = max(abs(column[retrain] - ideal) for column in columns.values())
            quality_off = max(abs(column[retrain] - 1) for column in qualities.values())
            measured = f"{off:.3f} against {quality_off:.3f}"
            if len(columns) > 1:
                measured += ", the largest over budgets"
            claim = (
                f"{title} is not grounded: Retrain is further from {ideal:g} than its quality is "
                "from 1"
            )
            yield JudgedClaim(claim, measured, off > quality_off)
        if len(columns) > 1:
            rising = _rising(result, columns)
            claim = f"{title} does not fall as epsilon grows, for at least one method"
            yield JudgedClaim(claim, _risen(result, rising), bool(rising))


def kendall(first: Column, second: Column) -> float:
    """Kendall's tau-a of two rankings of the same names."""
    pairs = list(combinations(first, 2))
    agreeing = 0.0
    for a, b in pairs:
        of_first = first[a] - first[b]
        of_second = second[a] - second[b]
        agreeing += float(np.sign(of_first * of_second))
    return agreeing / len(pairs)


def _columns(result: GameResult, name: str) -> dict[str, Column]:
    """Map budget to method to value; a single game has one column. The result is empty unless every
    method has a value.
    """
    if result.tables:
        columns = getattr(result.tables, name).values
    else:
        measure = MEASURES[name]
        columns = {ALONE: {method: measure(values) for method, values in result.methods.items()}}
    measured: dict[str, Column] = {}
    for budget, column in columns.items():
        present = {method: value for method, value in column.items() if value is not None}
        if len(present) < len(column):
            return {}
        measured[budget] = present
    return measured


def _rising(result: GameResult, columns: dict[str, Column]) -> dict[str, str]:
    """Return the methods other than Retrain whose value does not fall from every budget to the
    next, with their values.
    """
    risen = {}
    for name, defender in result.defenders.items():
        if defender == "retrain":
            continue
        values = [column[name] for column in columns.values()]
        has_risen = any(after >= before for before, after in pairwise(values))
        if has_risen:
            shown = [f"{value:.3f}" for value in values]
            risen[name] = " to ".join(shown)
    return risen


def _named(result: GameResult, defender: str) -> list[str]:
    """The names of the methods that play this defender."""
    return [name for name, method in result.defenders.items() if method == defender]


def _listed(values: dict[str, float]) -> str:
    """Values with their names, for people."""
    shown = [f"{name} {value:.3f}" for name, value in values.items()]
    return ", ".join(shown)


def _risen(result: GameResult, rising: dict[str, str]) -> str:
    """For which methods a trend does not hold, for people."""
    exceptions = []
    for name, values in rising.items():
        exceptions.append(f"not for {label(result.defenders, name)}: {values}")
    return "; ".join(exceptions) or "it falls for every method"


def infinity(epsilon: str) -> str:
    """A budget of the tables as text, with the sign of infinity."""
    if epsilon == "inf":
        return "∞"
    return epsilon
