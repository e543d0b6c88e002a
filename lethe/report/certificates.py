"""The report's section of exact bounds: a row per model, a line per question, and the likeliest leaking texts found."""

from __future__ import annotations

from collections.abc import Sequence
from math import nextafter
from types import SimpleNamespace
from typing import TYPE_CHECKING

from markupsafe import Markup

from lethe.evaluation.run import Model, Run
from lethe.report.templates import visible
from lethe.statistics.bound import significant
from lethe.statistics.leak_trees import AnswerTree, Certificates, HeavyLeak
from lethe.text import NONE, number, queries

if TYPE_CHECKING:
    pass

LEAST = 1e-12  # the left end of the axis; smaller bounds are drawn there
BELOW_ONE = nextafter(1.0, 0.0)
EVIDENCE = 5
TONES = {"proved to leak": "bad", "bounded": "good", "open": "open"}
WORST = "worst question"
HEAD = (
    "model",
    "proved to leak",
    "bounded",
    "open",
    WORST,
    "mean",
    "leaks above 1e-06",
    "against Retrain",
)


def section(run: Run) -> SimpleNamespace | None:
    there = [(model, model.exact) for model in run.models if model.exact]
    if not there:
        return None
    first = there[0][1]
    shown = [n for n in (1000, 1_000_000, 1_000_000_000) if n in first.trees[0].leak_at]
    strips = tuple(_strip(model, found, run, shown) for model, found in there)
    asked = tuple(f"{n:,}" for n in shown)
    head = tuple(f"worst {run.words.question}" if one == WORST else one for one in HEAD)
    return SimpleNamespace(tau=f"{first.tau:g}", leak=first.how.leak, head=head, queries=asked, strips=strips)


def _strip(model: Model, found: Certificates, run: Run, shown: Sequence[int]) -> SimpleNamespace:
    asked = {key: row["question"] for key, row in run.forget.items()}
    trees = sorted(found.trees, key=lambda tree: (-tree.lower, -tree.upper))
    words = found.verdicts
    lines = tuple(
        SimpleNamespace(
            question=asked.get(tree.id, tree.id),
            lower=tree.bounds["lower"].significant(3),
            upper=tree.bounds["upper"].significant(3),
            verdict=words[tree.id],
            tone=TONES[words[tree.id]],
            queries=queries(tree.queries_until_half),
            leaks=tuple(_band(*tree.leak_at[n]) for n in shown),
            text=visible(tree.heaviest_leaks[0].text) if tree.heaviest_leaks else Markup(""),
        )
        for tree in trees
    )
    return SimpleNamespace(
        model=model.name,
        row=_row(model, found),
        lines=lines,
        evidence=tuple(
            SimpleNamespace(
                question=asked.get(tree.id, tree.id),
                text=visible(leak.text),
                probability=f"{significant(leak.probability, 3, 'lower')}",
            )
            for tree, leak in heaviest(found)
        ),
        sentences=tuple(found.sentences()),
    )


def _row(model: Model, found: Certificates) -> tuple[str, ...]:
    summary, bounds = found.model, found.model.bounds
    worst = f"{bounds['tree_lower_worst'].significant(3)} to {bounds['tree_upper_worst'].significant(3)}"
    median, above = (model.numbers.row(one, "exact") for one in ("excess", "above_retrain"))
    held = f"{above.value} above {(median.evidence or {})['factor']:g}×" if median and above else NONE
    return (
        model.name,
        *(str(summary.verdicts[word]) for word in TONES),
        worst,
        f"{bounds['tree_upper_mean'].relation} {bounds['tree_upper_mean'].significant(3)}",
        f"{next(iter(summary.certain_leaks.values()))} of {summary.questions}",
        held,
    )


def heaviest(found: Certificates, most: int = EVIDENCE) -> list[tuple[AnswerTree, HeavyLeak]]:
    every = [(tree, leak) for tree in found.trees for leak in tree.heaviest_leaks]
    return sorted(every, key=lambda pair: -pair[1].probability)[:most]


def _band(low: float, high: float) -> str:
    """Leak@k from its lower to its upper end, each rounded outward; a lower end that only rounding takes to 1 is below it."""
    return f"{number(min(low, BELOW_ONE), 3, 'down')} to {number(high, 3, 'up')}"
