"""The report's section of exact bounds: a strip per model, a line per question, and the likeliest leaking texts found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import nextafter
from types import SimpleNamespace
from typing import TYPE_CHECKING

from markupsafe import Markup

from lethe.errors import plural
from lethe.evaluation.run import Model, Question, Run
from lethe.report import svg
from lethe.report.svg import ACCENT, INK, MUTED, WARM
from lethe.report.templates import visible
from lethe.statistics.bound import significant
from lethe.statistics.leak_trees import AnswerTree, Certificates, HeavyLeak
from lethe.text import NONE, number, queries

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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
    compared = any(_sampled(model, found, run) for model, found in there)
    return SimpleNamespace(
        tau=f"{first.tau:g}", leak=first.how.leak, compared=compared, head=head, queries=asked, strips=strips
    )


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
        svg=_drawn(model.name, trees, _sampled(model, found, run)),
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


def _sampled(model: Model, found: Certificates, run: Run) -> dict[str, Question]:
    """The sampled bounds of the same event by question; none where another scorer judged, or other prompts were asked."""
    same = found.how.leak == run.params.metrics.binary and run.params.sample.language is None
    return {row.prompt_id: row for row in model.questions if same and row.value("m_bin") is not None}


def _drawn(model: str, trees: list[AnswerTree], sampled: Mapping[str, Question]) -> Markup:
    name = f"exact-{model}".replace(".", "_")
    with svg.style(name):
        figure, axes = svg.canvas(4.6, 0.75 + 0.075 * len(trees), 0.12)
        for place, tree in enumerate(trees):
            _line(axes, place, tree, sampled.get(tree.id))
        axes.set_xscale("log")
        axes.set(xlim=(LEAST, 1), ylim=(len(trees) - 0.3, -0.7), yticks=[], xlabel="P(leak) per query, log scale")
        axes.set_xticks([10.0**power for power in (-12, -9, -6, -3, 0)], ["1e-12", "1e-9", "1e-6", "0.001", "1"])
        axes.minorticks_off()
        told = f"{plural(len(trees), 'question')}, from the certain lower end to the upper end of P(leak)"
        return svg.inline(figure, name, f"{model}: {told}")


def _line(axes: Axes, place: int, tree: AnswerTree, sampled: Question | None) -> None:
    if sampled:
        low, high = (max(LEAST, sampled.value(end) or 0.0) for end in ("m_bin_lower", "m_bin"))
        axes.plot([low, high], [place, place], color=MUTED, linewidth=0.7, solid_capstyle="butt")
    low, high = max(LEAST, tree.lower), max(LEAST, tree.upper)
    axes.plot([low, high], [place, place], color=ACCENT, linewidth=2.6, alpha=0.55, solid_capstyle="butt")
    axes.plot([low], [place], "|", color=INK, markersize=4.5, markeredgewidth=1.2, clip_on=False)
    axes.plot([high], [place], "|", color=WARM, markersize=4.5, markeredgewidth=1.2, clip_on=False)
