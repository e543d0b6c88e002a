"""A game's own page: qualities with their intervals, other measures, and which of the paper's trends held."""

from __future__ import annotations

from typing import Any

from markupsafe import Markup

from lethe.audits.unlearning_game.result import GameResult, infinity, label, trends
from lethe.errors import plural
from lethe.report import svg
from lethe.report.templates import templates
from lethe.statistics.bound import Bound
from lethe.statistics.unlearning_game import Quality
from lethe.text import NONE, Rounding, count, number

LABELS = 1.0  # inches beside the axes for the methods' names
PARTS = ("retain", "forget", "test")
LEAKAGE = {"leakage_pooled_bound": "bound on leaks", "leakage_worst_bound": "bound, worst question"}
TABLES = {
    "quality": "Table 1. Unlearning quality by privacy budget",
    "deviation": "Table 2. Standard deviation of the quality over repetitions",
    "confusion": "Table 3. Interclass confusion score (1 - memorisation) by privacy budget",
    "mia": "Table 4. 1 - attack AUC by privacy budget",
}


def page(name: str, result: GameResult) -> str:
    environment = templates(number, count, plural)
    environment.globals["interval"] = _interval
    return environment.get_template("game.html").render(
        title=f"game {name}",
        name=name,
        result=result,
        labels={method: label(result.defenders, method) for method in result.methods},
        attacks=attacks(result),
        trends=trends(result),
        qualities=qualities(result),
        tables=tables(result),
        figures=figures(result),
        beside=beside(result),
        leak_guarantees=leak_guarantees(result),
        advantages=advantages(result),
        bounds=bounds(result),
    )


def summary(headline: dict[str, object]) -> dict[str, object]:
    """What the main report shows of a game; a headline without methods is shown as it is."""
    if "methods" not in headline:
        return headline
    known: dict[str, Any] = dict(headline)
    methods = known["methods"]
    defenders = {name: row["defender"] for name, row in methods.items()}
    performs = known["performs"]
    shown = {
        label(defenders, name): {
            "Q": number(row["quality"]),
            "interval": _interval(Quality.interval(row["ci_low"], row["ci_high"], known["alpha"])),
            "strongest attack": row["attack"],
            f"{performs}, test": number(row[f"{performs}_test".replace(" ", "_")]),
            "1 - attack AUC": number(row["mia_score"]),
            **{name: number(row[key], 3, "up") for key, name in LEAKAGE.items() if key in row},
        }
        for name, row in methods.items()
    }
    return {
        **{f"{part} set": f"{count(known[f'{part}_points'])} {known['unit']}" for part in PARTS},
        "swapped pairs": headline["pairs"],
        "models per split": headline["seeds"],
        "unlearning quality": shown,
        "trends of the paper": [{"claim": trend["claim"], "held": trend["held"]} for trend in known["trends"]],
    }


def _interval(ends: tuple[Bound, Bound] | None) -> str:
    return " to ".join(end.number() for end in ends) if ends else NONE


def attacks(result: GameResult) -> list[str]:
    return list(next(iter(result.methods.values())).quality.by_attack)


def beside(result: GameResult) -> list[list[str]]:
    """The other measures of each method, where there are any: the heads, then one row per method."""
    methods = list(result.methods.values())
    read: dict[str, list[float | None]] = {
        "1 - attack AUC": [method.mia_score for method in methods],
        "1 - interclass confusion": [method.confusion.score if method.confusion else None for method in methods],
        "Q, random splits": [method.random_splits.quality if method.random_splits else None for method in methods],
    }
    leaks: list[Any] = [method.leakage for method in methods if method.leakage]
    if leaks:
        read |= {
            f"leaks, greedy ({leaks[0]['scorer']})": [one["greedy"] for one in leaks],
            f"leaks, of {plural(leaks[0]['n'], 'sample')}": [one["mean"] for one in leaks],
            "bound on their rate": [one["pooled_bound"] for one in leaks],
            "bound, worst question": [one["worst_bound"] for one in leaks],
        }
    rounding: dict[str, Rounding] = {"bound on their rate": "up", "bound, worst question": "up"}
    shown = {
        head: [number(value, 3, rounding.get(head, "near")) for value in values]
        for head, values in read.items()
        if any(value is not None for value in values)
    }
    rows = zip(result.methods, *shown.values(), strict=True)
    return [["method", *shown], *([label(result.defenders, name), *values] for name, *values in rows)]


def leak_guarantees(result: GameResult) -> list[str]:
    """How the bounds on the leaks hold: one sentence per kind of bound, the same for every method."""
    found: Any = next((method.leakage for method in result.methods.values() if method.leakage), None)
    if found is None:
        return []
    kinds = {"bound on their rate": "pooled_bound", "bound, worst question": "worst_bound"}
    guarantees = found["guarantees"]
    return [
        f"{head}: {Bound.from_dict({**guarantees[key], 'value': found[key]}).guarantee('the forget questions')}."
        for head, key in kinds.items()
        if guarantees[key]
    ]


def advantages(result: GameResult) -> list[list[str]]:
    """One row per method and one column per attack: the advantage, with the signed advantages of the two halves."""
    return [
        [
            label(result.defenders, name),
            *(
                f"{one.value:.3f} ({one.a_original:+.3f},\u00a0{one.a_swapped:+.3f})"
                for one in method.quality.by_attack.values()
            ),
        ]
        for name, method in result.methods.items()
    ]


def bounds(result: GameResult) -> list[list[str]]:
    """The guarantee of group privacy for a whole forget set, one row per budget."""
    found = [item for item in (result.privacy, *result.bounds.values()) if item]
    return [
        [
            one.method + ": " + one.assumes,
            "1 (vacuous)" if one.vacuous else one.advantage.number(),
            "vacuous" if one.paper_vacuous else one.advantage_paper.number(),
            one.quality.number(),
        ]
        for one in found
    ]


def qualities(result: GameResult) -> Markup:
    with svg.style("qualities"):
        methods = result.methods
        figure, axes = svg.canvas(6.6, 0.7 + 0.2 * len(methods), LABELS)
        for row, method in enumerate(reversed(methods.values())):
            quality = method.quality
            if quality.ci_low is not None and quality.ci_high is not None:
                axes.plot([quality.ci_low, quality.ci_high], [row, row], color=svg.ACCENT, alpha=0.35, linewidth=5)
            axes.plot([quality.value], [row], "o", color=svg.ACCENT, markersize=5)
        axes.set_yticks(range(len(methods)), [label(result.defenders, name) for name in reversed(methods)])
        axes.set_ylim(-0.6, len(methods) - 0.4)
        axes.set_xlim(0, 1.02)
        axes.set_xlabel("unlearning quality Q")
        return svg.inline(figure, "qualities", "Unlearning quality of each method with its interval")


def tables(result: GameResult) -> list[dict[str, object]]:
    if result.tables is None:
        return []
    found: list[dict[str, object]] = []
    by_budget = {"quality": result.tables.quality, "confusion": result.tables.confusion, "mia": result.tables.mia}
    for name, title in TABLES.items():
        if name == "deviation":
            rows = [
                [
                    label(result.defenders, method),
                    number(one.swap if one else None),
                    number(one.random if one else None),
                ]
                for method, one in result.tables.deviation.items()
            ]
            found.append({"title": title, "head": ["method", "swapped pair", "two random splits"], "rows": rows})
            continue
        table = by_budget[name]
        budgets = list(table.values)
        rows = [
            [label(result.defenders, method), *(number(table.values[budget][method]) for budget in budgets)]
            for method in result.methods
        ]
        learned = next((name for name, method in result.defenders.items() if method == "none"), None)
        if learned:
            rows.append(["accuracy before unlearning", *(number(table.accuracy[b][learned]) for b in budgets)])
        found.append({"title": title, "head": ["method", *(f"ε = {infinity(b)}" for b in budgets)], "rows": rows})
    return found


def figures(result: GameResult) -> list[dict[str, object]]:
    """Figure 2: quality by data set size (A) and by repetition (B); none for a single game."""
    if result.figure is None:
        return []
    by_points = result.figure.points
    sizes = {method: [column[method] for column in by_points.values()] for method in result.methods}
    return [
        {
            "title": "A. By data set size",
            "note": f"{', '.join(map(str, by_points))} points; the larger the dot, the more points",
            "svg": strips("by-points", "Unlearning quality by data set size", sizes, result, growing=True),
        },
        {
            "title": "B. By the seed of the swapped pair",
            "note": plural(result.figure.repetitions, "pair"),
            "svg": strips("by-repeat", "Unlearning quality of each swapped pair", result.figure.repeats, result),
        },
    ]


def strips(
    name: str, told: str, values: dict[str, list[float]], result: GameResult, growing: bool = False
) -> Markup:
    with svg.style(name):
        figure, axes = svg.canvas(4.4, 0.7 + 0.2 * len(values), LABELS)
        for row, dots in enumerate(reversed(values.values())):
            areas = [12 + 14 * at * growing for at in range(len(dots))]
            axes.scatter(dots, [row] * len(dots), areas, color=svg.ACCENT, alpha=0.55, linewidths=0)
        axes.set_yticks(range(len(values)), [label(result.defenders, method) for method in reversed(values)])
        axes.set_ylim(-0.6, len(values) - 0.4)
        axes.set_xlabel("unlearning quality Q")
        return svg.inline(figure, name, told)
