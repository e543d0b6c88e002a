"""The trends of the paper that a game shows: each claim with its measured values, and whether the claim holds.

The paper is "Towards Reliable Empirical Machine Unlearning Evaluation: A Game-Theoretic View" (Tu et al. 2024).

The rules are fixed here, before any result. The rules judge a trend on all values, never on a selection of methods,
attacks or budgets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations, pairwise

from lethe.audits.unlearning_game.result import GameResult, PlayedMethod, Table
from lethe.text import listing

ALONE = "this game"  # the only column of a game without tables
GROUNDED = 0.98  # a quality of Retrain of at least this counts as 1, up to the randomness of training
RANKS = (("neg_grad",), ("fisher",), ("ft_final", "retr_final", "none"))  # from the highest, without privacy
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
    """One claim of the paper, with its measured values and whether the claim holds."""

    claim: str
    measured: str
    held: bool


def label(defenders: Mapping[str, str], method: str) -> str:
    """Return the paper's name of a method, with the name of the params entry where the names differ."""
    defender = defenders[method]
    known = NAMES.get(defender)
    return method if known is None else known if method == defender else f"{known} ({method})"


def trends(result: GameResult) -> list[Trend]:
    """Return the trends that this result can test, in the paper's order."""
    return [trend for rule in RULES for trend in rule(result)]


def grounding(result: GameResult) -> Iterator[Trend]:
    """Corollary 3.8: Q(Retrain) is 1, at every budget."""
    for retrain in _named(result, "retrain"):
        values = {epsilon: column[retrain] for epsilon, column in _columns(result, "quality").items()}
        yield Trend(
            f"Retraining has quality 1 (at least {GROUNDED}){' at every budget' if len(values) > 1 else ''}",
            _listed({_budget(epsilon): value for epsilon, value in values.items()}),
            min(values.values()) >= GROUNDED,
        )


def falling(result: GameResult) -> Iterator[Trend]:
    """Table 1: Q falls as epsilon grows, for every method but Retrain."""
    columns = _columns(result, "quality")
    if len(columns) > 1:
        rising = _rising(result, columns)
        yield Trend(
            "The quality falls as epsilon grows, for every method but Retrain", _risen(result, rising), not rising
        )


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
    repeats: list[Column] = [
        dict(zip(methods, values, strict=True)) for values in zip(*figure.repeats.values(), strict=True)
    ]
    for what, columns in (("data set sizes", list(figure.points.values())), ("repetitions", repeats)):
        if len(columns) > 1:
            agreement = min(kendall(one, other) for one, other in combinations(columns, 2))
            yield Trend(
                f"The methods keep their ranking over {what}",
                f"smallest Kendall tau between two of {len(columns)}: {agreement:.2f}",
                agreement == 1,
            )


def smaller_deviation(result: GameResult) -> Iterator[Trend]:
    """Table 2: the swapped pair's standard deviation is below that of two random splits (paper: .5 to .7 of it)."""
    methods = {name: method.deviation for name, method in result.methods.items()}
    deviations = {
        name: one for name, one in (result.tables.deviation if result.tables else methods).items() if one
    }
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
    for name, title, ideal in (("confusion", "Interclass confusion", 1.0), ("mia", "1 - attack AUC", 0.5)):
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
            yield Trend(
                f"{title} does not fall as epsilon grows, for at least one method",
                _risen(result, rising),
                bool(rising),
            )


RULES: tuple[Callable[[GameResult], Iterator[Trend]], ...] = (
    grounding,
    falling,
    order,
    stable_ranking,
    smaller_deviation,
    ungrounded,
)


def kendall(one: Column, other: Column) -> float:
    """Return Kendall's tau-a between two rankings of the same names: (agreeing - disagreeing pairs) / all pairs."""
    pairs = list(combinations(one, 2))
    signs = [
        ((one[a] > one[b]) - (one[a] < one[b])) * ((other[a] > other[b]) - (other[a] < other[b])) for a, b in pairs
    ]
    return sum(signs) / len(pairs)


def _columns(result: GameResult, name: str) -> dict[str, Column]:
    """Map budget to method to value; a single game has one column. The result is empty unless every method has a value."""
    if result.tables:
        table: Table = getattr(result.tables, name)
        columns = table.values
    else:
        measure = MEASURES[name]
        columns = {ALONE: {method: measure(values) for method, values in result.methods.items()}}
    known = {
        budget: {method: value for method, value in column.items() if value is not None}
        for budget, column in columns.items()
    }
    return known if all(len(known[budget]) == len(column) for budget, column in columns.items()) else {}


def _rising(result: GameResult, columns: dict[str, Column]) -> dict[str, str]:
    """Return the methods other than Retrain whose value does not fall from every budget to the next, with their values."""
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
    exceptions = [f"not for {label(result.defenders, name)}: {values}" for name, values in rising.items()]
    return "; ".join(exceptions) or "it falls for every method"


def _budget(epsilon: str) -> str:
    return epsilon if epsilon == ALONE else f"ε = {infinity(epsilon)}:"


def infinity(epsilon: str) -> str:
    """Return a budget as the tables print it."""
    return "∞" if epsilon == "inf" else epsilon
