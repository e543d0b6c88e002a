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
SMALLEST = 12  # square points: the area of the first dot of a strip
PARTS = ("retain", "forget", "test")
LEAKAGE = {"leakage_pooled_bound": "bound on leaks", "leakage_worst_bound": "bound, worst question"}


def page(name: str, result: GameResult) -> str:
    """The page of a game under a name; it needs no network."""
    environment = templates(at_budget)
    environment.globals.update(interval=_interval, leak_guarantee=leak_guarantee)
    leaks = []
    labels = {}
    for name_of_method, method in result.methods.items():
        labels[name_of_method] = label(result.defenders, name_of_method)
        if method.leakage:
            leaks.append(method.leakage)
    first_method = next(iter(result.methods.values()))

    return environment.get_template("game.html").render(
        title=f"game {name}",
        name=name,
        result=result,
        labels=labels,
        attacks=list(first_method.quality.by_attack),
        trends=trends(result),
        of_leaks=leak_columns(leaks),
        qualities=qualities(result),
        stability=stability(result),
    )


def summary(facts: dict[str, Json]) -> dict[str, Json]:
    """What the main report shows of a game; a headline without methods is shown as it is.

    ``facts`` are the headline of the game's result: sizes, numbers of pairs and seeds, a row a method, and the trends.
    """
    if "methods" not in facts:
        return facts

    shown: dict[str, Json] = {}
    for part in PARTS:
        shown[f"{part} set"] = f"{count(facts[f'{part}_points'])} {facts['unit']}"
    shown["swapped pairs"] = facts["pairs"]
    shown["models per split"] = facts["seeds"]

    methods = facts["methods"]
    defenders = {name: row["defender"] for name, row in methods.items()}
    qualities_of_method = {}
    for name, row in methods.items():
        qualities_of_method[label(defenders, name)] = _summary_of_method(row, facts)
    shown["unlearning quality"] = qualities_of_method

    trends_of_paper = []
    for trend in facts["trends"]:
        trends_of_paper.append({"claim": trend["claim"], "held": trend["held"]})
    shown["trends of the paper"] = trends_of_paper
    return shown


def _summary_of_method(row: dict[str, Json], facts: dict[str, Json]) -> dict[str, Json]:
    """The cells of a method by their headings; an upper bound on leaks is rounded up."""
    performs = facts["performs"]
    interval = Quality.interval(row["ci_low"], row["ci_high"], facts["alpha"])
    key_of_test = f"{performs}_test".replace(" ", "_")
    cells = {
        "Q": number(row["quality"]),
        "interval": _interval(interval),
        "strongest attack": row["attack"],
        f"{performs}, test": number(row[key_of_test]),
        "1 - attack AUC": number(row["mia_score"]),
    }
    for key, head in LEAKAGE.items():
        if key in row:
            cells[head] = number(row[key], 3, "upper")
    return cells


def _interval(ends: tuple[Bound, Bound] | None) -> str:
    """Both ends of an interval in words; a sign for none."""
    if ends is None:
        return NONE
    lower, upper = ends
    return f"{lower.number()} to {upper.number()}"


def at_budget(budget: str) -> str:
    """The heading of a privacy budget."""
    return f"ε = {infinity(budget)}"


def leak_columns(leaks: Sequence[Mapping[str, Json]]) -> list[tuple[str, str, Side | None]]:
    """Key, head and side of the numbers on leaks of which a method has one.

    ``leaks`` are those of the methods, all by one scorer and of equally many samples; a side of None is an estimate.
    """
    if not leaks:
        return []
    columns: list[tuple[str, str, Side | None]] = [
        ("greedy", f"leaks, greedy ({leaks[0]['scorer']})", None),
        ("mean", f"leaks, of {plural(leaks[0]['n'], 'sample')}", None),
        ("pooled_bound", "bound on leaks", "upper"),
        ("worst_bound", "bound, worst question", "upper"),
    ]
    shown = []
    for column in columns:
        key = column[0]
        if any(leakage[key] is not None for leakage in leaks):
            shown.append(column)
    return shown


def leak_guarantee(leakage: Mapping[str, Json], key: str) -> str:
    """How a bound on the leaks holds, the same for every method; empty where it has no guarantee."""
    facts = leakage["guarantees"][key]
    if not facts:
        return ""
    bound = Bound.from_dict(facts | {"value": leakage[key]})
    return bound.guarantee("the forget questions")


def qualities(result: GameResult) -> Markup:
    """The figure of the methods' unlearning quality Q, in [0, 1], with the interval of each."""
    with svg.style("qualities"):
        figure, axes = _rows(6.6, result, result.methods)
        for row, method in enumerate(reversed(result.methods.values())):
            quality = method.quality
            if quality.ci_low is not None and quality.ci_high is not None:
                ends = [quality.ci_low, quality.ci_high]
                axes.plot(ends, [row, row], color=svg.ACCENT, alpha=0.35, linewidth=5)
            axes.plot([quality.value], [row], "o", color=svg.ACCENT, markersize=5)

        axes.set_xlim(0, 1.02)  # a dot at 1 is whole
        description = "Unlearning quality of each method with its interval"
        return svg.inline(figure, "qualities", description)


def stability(result: GameResult) -> list[Markup]:
    """Figure 2 of the paper: quality by data set size and by repetition; none for a single game."""
    if result.figure is None:
        return []

    qualities_by_size: dict[str, list[float]] = {method: [] for method in result.methods}
    for quality_of_method in result.figure.points.values():
        for method, dots in qualities_by_size.items():
            dots.append(quality_of_method[method])
    by_size = "Unlearning quality by data set size"
    by_pair = "Unlearning quality of each swapped pair"
    return [
        _strips("by-points", by_size, qualities_by_size, result, growth=14),
        _strips("by-repeat", by_pair, result.figure.repeats, result, growth=0),
    ]


def _strips(
    name: str, words: str, values: dict[str, list[float]], result: GameResult, growth: int
) -> Markup:
    """A row of dots per method; the area of a dot, in square points, grows by ``growth`` from one to the next."""
    with svg.style(name):
        figure, axes = _rows(4.4, result, values)
        for row, dots in enumerate(reversed(values.values())):
            rows = [row] * len(dots)
            areas = [SMALLEST + growth * place for place in range(len(dots))]
            axes.scatter(dots, rows, areas, color=svg.ACCENT, alpha=0.55, linewidths=0)
        return svg.inline(figure, name, words)


def _rows(width: float, result: GameResult, methods: Mapping[str, object]) -> tuple[Figure, Axes]:
    """An empty figure of qualities with a row per method, the first on top; ``width`` is in inches."""
    figure, axes = svg.canvas(width, 0.7 + 0.2 * len(methods), LABELS)
    names = [label(result.defenders, method) for method in reversed(list(methods))]
    axes.set_yticks(range(len(methods)), names)
    axes.set_ylim(-0.6, len(methods) - 0.4)
    axes.set_xlabel("unlearning quality Q")
    return figure, axes
