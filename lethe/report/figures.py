"""The report's figures: small panels, one per model, all on the same axes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from markupsafe import Markup

from lethe.errors import plural
from lethe.measure.answers import BINS, QuestionAnswers
from lethe.measure.run import Model, Question, Run, TailPoint
from lethe.report import svg
from lethe.report.svg import ACCENT, INK, MUTED, WARM
from lethe.results import quantities
from lethe.results.wording import Wording
from lethe.statistics.bound import Bound
from lethe.text import label, number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.patches import PathPatch

TICKS = (0, 0.5, 1)
ROOTS = (0, 0.05, 0.25, 1)
# The upper bound that represents a question: of leaks, else of its mean score.
BOUNDS = quantities.upper_bounds(
    "question", ("leak", "score_betting", "score"), ("sampled", "anytime")
)
BARS = 60  # per panel; more questions are drawn as one outline, which takes a fraction of the bytes


@dataclass
class Panel:
    title: str
    note: str = ""
    name: str = ""
    svg: Markup | None = None


@dataclass(frozen=True)
class Chosen:
    """The question whose distribution is shown, and the reason for the choice."""

    prompt_id: str
    model: str  # where the bound is highest
    why: str


def chosen_question(run: Run) -> Chosen | None:
    """The question with the highest bound in any model under test: of leaks, else of its mean score."""
    for key in BOUNDS:
        highest = None
        chosen = None
        for model in run.subjects or run.models:
            for question in model.questions:
                bound = question.value(key)
                if bound is not None and (highest is None or bound > highest):
                    highest = bound
                    chosen = (question.prompt_id, model.name)
        if chosen:
            prompt_id, name = chosen
            others = f"all {run.words.question}s and models under test"
            why = f"its upper bound with {name} is the highest of {others}"
            return Chosen(prompt_id, name, why)
    return None


def draw(run: Run, drawn: Mapping[str, Mapping[str, QuestionAnswers]]) -> dict[str, list[Panel]]:
    """All figures of the report, by kind; ``drawn`` are the answers by model and question."""
    scorer = label(run.params.metrics.leak)
    references = [(run.role("base"), (1, 1.2)), (run.role("retrain"), (4, 1.5))]
    tails = [_m_gen(model, references, scorer) for model in run.models if model.m_gen]
    return {
        "histograms": _histograms(run, drawn, scorer),
        "m_gen": tails,
        "per_question": _bounds_by_question(run),
    }


def _histograms(
    run: Run, drawn: Mapping[str, Mapping[str, QuestionAnswers]], scorer: str
) -> list[Panel]:
    """The distribution of the chosen question's scores, a panel for each model that answered it."""
    chosen = chosen_question(run)
    panels = []
    for model in run.models:
        for question in model.questions:
            if chosen is None or question.prompt_id != chosen.prompt_id:
                continue
            answers = drawn[model.name].get(question.prompt_id)
            if answers and any(answers.histogram):
                panels.append(_histogram(model.name, question, answers.histogram, scorer))
    return panels


def _bounds_by_question(run: Run) -> list[Panel]:
    panels = []
    for model in run.models:
        rows = []
        for question in model.questions:
            bound = question.numbers.upper("leak")
            if bound:
                rows.append((bound, question))
        if rows:
            rows.sort(key=lambda row: -row[0].value)
            panels.append(_questions(model, rows, run.words))
    return panels


def _histogram(model: str, row: Question, counts: Sequence[int], scorer: str) -> Panel:
    """How often each score was drawn for one question; the greedy answer's score as a dashed line."""
    greedy = row.numbers.estimate("score", "greedy")
    mean = row.numbers.estimate("score", "sampled")
    most = row.numbers.estimate("max")
    panel = Panel(model, f"greedy {number(greedy)}, mean {number(mean)}, max {number(most)}")
    answers = sum(counts)
    with drawing(panel, f"histogram-{model}", plural(answers, "answer")) as axes:
        middles = (np.arange(BINS) + 0.5) / BINS
        axes.bar(middles, counts, width=0.9 / BINS, color=ACCENT, alpha=0.75, log=True)
        axes.axvline(_or_nan(mean), color=INK, linewidth=1)
        if greedy is not None:
            axes.axvline(greedy, color=WARM, linewidth=1.6, dashes=(3, 1.6), clip_on=False)
        powers = [10**power for power in range(9) if 10**power <= answers]
        axes.set_yticks(powers, [f"{power:,}" for power in powers])
        axes.minorticks_off()
        axes.set(xlim=(-0.02, 1.02), xticks=TICKS, ylim=(0.7, answers * 1.3), xlabel=scorer)
        _upright(axes, "answers, log scale")
    return panel


def _m_gen(model: Model, references: list, scorer: str) -> Panel:
    """The bound on the share of answers above each score, the empirical share, the bounds of both references."""
    panel = Panel(model.name)
    lower_half = [point for point in model.m_gen if point.x <= 0.5]
    if lower_half:
        middle = max(lower_half, key=lambda point: point.x)
        bound = number(middle.bound, 3, "upper")
        panel.note = f"above {middle.x:g}: bound {bound} on average"
    with drawing(panel, f"mgen-{model.name}", "share of answers above each score") as axes:
        steps = partial(axes.plot, drawstyle="steps-post")
        for reference, dashes in references:
            if reference and reference.m_gen and reference is not model:
                steps(*_line(reference.m_gen, "bound"), color=MUTED, linewidth=1, dashes=dashes)
        steps(*_line(model.m_gen, "empirical"), color=ACCENT, linewidth=0.8, alpha=0.7)
        steps(*_line(model.m_gen, "bound"), color=ACCENT, linewidth=1.8)
        axes.set(xlim=(0, 1), ylim=(0, 1.02), xticks=TICKS, yticks=TICKS, xlabel=f"{scorer} x")
        _upright(axes, "share of answers above x")
    return panel


def _line(points: Sequence[TailPoint], key: str) -> tuple[list[float], list[float]]:
    return [point.x for point in points], [getattr(point, key) for point in points]


def _questions(model: Model, rows: list[tuple[Bound, Question]], words: Wording) -> Panel:
    """M_bin of every forget question, sorted, with the sampled share below it and greedy leaks marked."""
    panel = Panel(model.name)
    places = np.arange(1, len(rows) + 1)
    bounds = [bound.value for bound, _ in rows]
    shares = [_or_nan(question.numbers.estimate("leak")) for _, question in rows]
    leaks = []
    for place, (_, question) in zip(places, rows, strict=True):
        if question.numbers.estimate("leak", "greedy"):
            leaks.append(place)
    description = f"{plural(len(rows), words.question)}, greedy {words.leaks} {len(leaks)}"
    with drawing(panel, f"questions-{model.name}", description) as axes:
        if len(rows) <= BARS:
            axes.bar(places, bounds, width=0.9, color=ACCENT, alpha=0.28, linewidth=0)
            axes.plot(places, shares, "o", color=ACCENT, markersize=2.4, clip_on=False)
        else:
            edges = np.arange(len(rows) + 1) + 0.5
            axes.stairs(bounds, edges, fill=True, color=ACCENT, alpha=0.28, linewidth=0)
            axes.add_patch(_dots(places, shares))
        top = np.ones(len(leaks))
        axes.plot(leaks, top, "D", markersize=3.2, mec=WARM, mfc="none", clip_on=False)
        axes.grid(False, axis="x")
        axes.locator_params(axis="x", integer=True)
        axes.set(xlim=(0.4, len(rows) + 0.6), ylim=(0, 1))
        axes.set_xlabel(f"{words.forget_question}s, sorted")
        axes.set_yscale("function", functions=(np.sqrt, np.square))
        axes.set_yticks(ROOTS, [f"{root:g}" for root in ROOTS])
        _upright(axes, f"share that {words.leaks}, root scale")
    return panel


def _dots(places: np.ndarray, heights: Sequence[float]) -> PathPatch:
    """Many dots as one path: zero-length lines with round ends."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    points = np.repeat(np.column_stack([places, heights]), 2, axis=0)
    codes = np.tile(np.array([Path.MOVETO, Path.LINETO], dtype=Path.code_type), len(places))
    return PathPatch(
        Path(points, codes),
        fill=False,
        edgecolor=ACCENT,
        linewidth=1.6,
        capstyle="round",
        clip_on=False,
    )


def _or_nan(value: float | None) -> float:
    return np.nan if value is None else value


def _upright(axes: Axes, words: str) -> None:
    axes.set_title(words, loc="left", fontsize=8, color=MUTED, pad=5, x=-0.06)


@contextmanager
def drawing(
    panel: Panel,
    name: str,
    words: str = "",
    size: tuple[float, float] = (2.25, 1.75),
    left: float = 0.36,
) -> Iterator[Axes]:
    """Empty axes in the house style; on exit, ``panel`` holds the drawing. ``words`` describes it in words."""
    panel.name = name.replace(".", "_")
    with svg.style(panel.name):
        figure, axes = svg.canvas(*size, left)
        yield axes
        description = f"{panel.title}: {panel.note}"
        if words:
            description += f"; {words}"
        panel.svg = svg.inline(figure, panel.name, description)
