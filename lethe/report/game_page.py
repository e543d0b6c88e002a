"""A game's own page: qualities with their intervals, other measures, and which of the paper's trends held."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from markupsafe import Markup

from lethe.audits.unlearning_game.result import GameResult, infinity, label, trends
from lethe.errors import plural
from lethe.io.files import Json
from lethe.report import svg
from lethe.report.templates import templates
from lethe.statistics.bound import Bound, Side
from lethe.statistics.unlearning_game import Quality
from lethe.text import NONE, count, number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LABELS = 1.0  # inches beside the axes for the methods' names
PARTS = ("retain", "forget", "test")
LEAKAGE = {"leakage_pooled_bound": "bound on leaks", "leakage_worst_bound": "bound, worst question"}


def page(name: str, result: GameResult) -> str:
    environment = templates(at_budget)
    environment.globals.update(interval=_interval, leak_guarantee=leak_guarantee)
    return environment.get_template("game.html").render(
        title=f"game {name}",
        name=name,
        result=result,
        labels={method: label(result.defenders, method) for method in result.methods},
        attacks=list(next(iter(result.methods.values())).quality.by_attack),
        trends=trends(result),
        of_leaks=leak_columns(
            [method.leakage for method in result.methods.values() if method.leakage]
        ),
        qualities=qualities(result),
        stability=stability(result),
    )


def summary(facts: dict[str, Json]) -> dict[str, Json]:
    """What the main report shows of a game; a headline without methods is shown as it is."""
    if "methods" not in facts:
        return facts
    methods, performs = facts["methods"], facts["performs"]
    defenders = {name: row["defender"] for name, row in methods.items()}
    shown = {
        label(defenders, name): {
            "Q": number(row["quality"]),
            "interval": _interval(Quality.interval(row["ci_low"], row["ci_high"], facts["alpha"])),
            "strongest attack": row["attack"],
            f"{performs}, test": number(row[f"{performs}_test".replace(" ", "_")]),
            "1 - attack AUC": number(row["mia_score"]),
            **{name: number(row[key], 3, "upper") for key, name in LEAKAGE.items() if key in row},
        }
        for name, row in methods.items()
    }
    return {
        **{f"{part} set": f"{count(facts[f'{part}_points'])} {facts['unit']}" for part in PARTS},
        "swapped pairs": facts["pairs"],
        "models per split": facts["seeds"],
        "unlearning quality": shown,
        "trends of the paper": [
            {"claim": trend["claim"], "held": trend["held"]} for trend in facts["trends"]
        ],
    }


def _interval(ends: tuple[Bound, Bound] | None) -> str:
    return " to ".join(end.number() for end in ends) if ends else NONE


def at_budget(budget: str) -> str:
    return f"ε = {infinity(budget)}"


def leak_columns(leaks: Sequence[Mapping[str, Json]]) -> list[tuple[str, str, Side | None]]:
    """Key, head and side of the numbers on leaks of which a method has one."""
    if not leaks:
        return []
    columns: list[tuple[str, str, Side | None]] = [
        ("greedy", f"leaks, greedy ({leaks[0]['scorer']})", None),
        ("mean", f"leaks, of {plural(leaks[0]['n'], 'sample')}", None),
        ("pooled_bound", "bound on leaks", "upper"),
        ("worst_bound", "bound, worst question", "upper"),
    ]
    return [one for one in columns if any(own[one[0]] is not None for own in leaks)]


def leak_guarantee(leakage: Mapping[str, Json], key: str) -> str:
    """How a bound on the leaks holds, the same for every method; empty where it has no guarantee."""
    guarantee = leakage["guarantees"][key]
    return guarantee and Bound.from_dict({**guarantee, "value": leakage[key]}).guarantee(
        "the forget questions"
    )


def qualities(result: GameResult) -> Markup:
    with svg.style("qualities"):
        figure, axes = _rows(6.6, result, result.methods)
        for row, method in enumerate(reversed(result.methods.values())):
            quality = method.quality
            if quality.ci_low is not None and quality.ci_high is not None:
                axes.plot(
                    [quality.ci_low, quality.ci_high],
                    [row, row],
                    color=svg.ACCENT,
                    alpha=0.35,
                    linewidth=5,
                )
            axes.plot([quality.value], [row], "o", color=svg.ACCENT, markersize=5)
        axes.set_xlim(0, 1.02)
        return svg.inline(
            figure, "qualities", "Unlearning quality of each method with its interval"
        )


def stability(result: GameResult) -> list[Markup]:
    """Figure 2: quality by data set size and by repetition; none for a single game."""
    if result.figure is None:
        return []
    sizes = {
        method: [column[method] for column in result.figure.points.values()]
        for method in result.methods
    }
    return [
        _strips("by-points", "Unlearning quality by data set size", sizes, result, 14),
        _strips(
            "by-repeat", "Unlearning quality of each swapped pair", result.figure.repeats, result, 0
        ),
    ]


def _strips(
    name: str, words: str, values: dict[str, list[float]], result: GameResult, growth: int
) -> Markup:
    with svg.style(name):
        figure, axes = _rows(4.4, result, values)
        for row, dots in enumerate(reversed(values.values())):
            areas = [12 + growth * at for at in range(len(dots))]
            axes.scatter(dots, [row] * len(dots), areas, color=svg.ACCENT, alpha=0.55, linewidths=0)
        return svg.inline(figure, name, words)


def _rows(width: float, result: GameResult, methods: Mapping[str, object]) -> tuple[Figure, Axes]:
    """An empty figure of qualities with a row per method, the first on top."""
    figure, axes = svg.canvas(width, 0.7 + 0.2 * len(methods), LABELS)
    axes.set_yticks(
        range(len(methods)), [label(result.defenders, method) for method in reversed(list(methods))]
    )
    axes.set_ylim(-0.6, len(methods) - 0.4)
    axes.set_xlabel("unlearning quality Q")
    return figure, axes
