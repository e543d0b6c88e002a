"""The one-run audits on the page: facts and methods as a table, the verdict as a sentence, p-values as a curve."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from stages.reporting import svg
from stages.reporting.run import Run
from stages.reporting.text import number

COLOURS = {"exact": svg.ACCENT, "chernoff": svg.WARM, "steinke": svg.MUTED, "mahloujifar": svg.INK}
DRAWN_APART = ("curve", "verdict")  # and so not among the facts


@dataclass(frozen=True)
class View:
    name: str
    facts: dict[str, Any]
    sentence: str
    curve: Markup | None


def views(run: Run) -> list[View]:
    return [
        View(
            name,
            {key: item for key, item in value.items() if key not in DRAWN_APART},
            sentence(value),
            curve(name, value),
        )
        for name, value in run.audits.items()
    ]


def sentence(value: dict[str, Any]) -> str:
    """The claim and what the deciding method says of it, with the assumptions that it rests on."""
    if "verdict" not in value:
        return ""
    verdict = value["verdict"]
    row = next(row for row in value["results"] if row["method"] == verdict["method"])
    lower = row["epsilon_lower"]
    found = (
        "no member of the family explains so few errors"
        if lower is None
        else f"epsilon is at least {number(lower, 3, 'down')}"
    )
    ends = "contradicts" if verdict["contradicted"] else "does not contradict"
    return (
        f"The run {ends} the claimed epsilon of {number(verdict['claimed_epsilon'], 3, 'up')} at delta "
        f"{value['delta']:g}: by {verdict['method']} {found}, with probability {1 - value['alpha']:g}, "
        f"assuming {', '.join(row['assumes'])}."
    )


def curve(name: str, value: dict[str, Any]) -> Markup | None:
    if not value.get("curve"):
        return None
    points, methods = value["curve"], [row["method"] for row in value["results"]]
    with svg.style(f"audit-{name}"):
        figure, axes = svg.canvas(4.6, 2.2, 0.5)
        for method in methods:
            if method in COLOURS:
                line = [(point["epsilon"], max(point[method], 1e-6)) for point in points]
                axes.plot(*zip(*line, strict=True), color=COLOURS[method], label=method)
        axes.axhline(value["alpha"], color=svg.MUTED, linestyle="--", linewidth=0.8)
        if value.get("verdict"):
            axes.axvline(value["verdict"]["claimed_epsilon"], color=svg.MUTED, linewidth=0.8)
        axes.set_yscale("log")
        axes.set_ylim(1e-6, 1.5)
        axes.set_xlabel("epsilon (vertical line: claimed)" if value.get("verdict") else "epsilon")
        axes.legend(frameon=False, fontsize=7)
        return svg.inline(figure, f"audit-{name}", "p-value of each method by epsilon")
