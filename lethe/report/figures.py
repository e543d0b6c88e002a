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
from lethe.evaluation.answers import BINS, QuestionAnswers
from lethe.evaluation.run import Model, Question, Run, TailPoint
from lethe.evaluation.wording import Wording
from lethe.report import svg
from lethe.report.svg import ACCENT, INK, MUTED, WARM
from lethe.results import quantities
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
    rows = [(model, row) for model in run.subjects or run.models for row in model.questions]
    for key in BOUNDS:
        if measured := [
            (value, model, row) for model, row in rows if (value := row.value(key)) is not None
        ]:
            _, model, row = max(measured, key=lambda entry: entry[0])  # among equals the first
            why = f"its upper bound with {model.name} is the highest of all {run.words.question}s and models under test"
            return Chosen(row.prompt_id, model.name, why)
    return None


def draw(run: Run, drawn: Mapping[str, Mapping[str, QuestionAnswers]]) -> dict[str, list[Panel]]:
    """All figures of the report, by kind; ``drawn`` are the answers by model and question."""
    chosen, scorer = chosen_question(run), label(run.params.metrics.leak)
    references = [(run.role("base"), (1, 1.2)), (run.role("retrain"), (4, 1.5))]
    histograms, bounded = [], []
    for model in run.models:
        row = next(
            (row for row in model.questions if chosen and row.prompt_id == chosen.prompt_id), None
        )
        answers = drawn[model.name].get(row.prompt_id) if row else None
        if row and answers and any(answers.histogram):
            histograms.append(_histogram(model.name, row, answers.histogram, scorer))
        bounds = [(bound, row) for row in model.questions if (bound := row.numbers.upper("leak"))]
        if bounds:
            bounded.append(
                _questions(model, sorted(bounds, key=lambda row: -row[0].value), run.words)
            )
    tails = [_m_gen(model, references, scorer) for model in run.models if model.m_gen]
    return {"histograms": histograms, "m_gen": tails, "per_question": bounded}


def _histogram(model: str, row: Question, counts: Sequence[int], scorer: str) -> Panel:
    """How often each score was drawn for one question; the greedy answer's score as a dashed line."""
    greedy, mean = (row.numbers.estimate("score", basis) for basis in ("greedy", "sampled"))
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
    half = max(
        (point for point in model.m_gen if point.x <= 0.5), key=lambda point: point.x, default=None
    )
    panel = Panel(
        model.name,
        f"above {half.x:g}: bound {number(half.bound, 3, 'upper')} on average" if half else "",
    )
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
    bounds, shares = (
        [bound.value for bound, _ in rows],
        [_or_nan(row.numbers.estimate("leak")) for _, row in rows],
    )
    leaks = [
        place
        for place, (_, row) in zip(places, rows, strict=True)
        if row.numbers.estimate("leak", "greedy")
    ]
    with drawing(
        panel,
        f"questions-{model.name}",
        f"{plural(len(rows), words.question)}, greedy {words.leaks} {len(leaks)}",
    ) as axes:
        if len(rows) <= BARS:
            axes.bar(places, bounds, width=0.9, color=ACCENT, alpha=0.28, linewidth=0)
            axes.plot(places, shares, "o", color=ACCENT, markersize=2.4, clip_on=False)
        else:
            axes.stairs(
                bounds,
                np.arange(len(rows) + 1) + 0.5,
                fill=True,
                color=ACCENT,
                alpha=0.28,
                linewidth=0,
            )
            axes.add_patch(_dots(places, shares))
        axes.plot(
            leaks, np.ones(len(leaks)), "D", markersize=3.2, mec=WARM, mfc="none", clip_on=False
        )
        axes.grid(False, axis="x")
        axes.locator_params(axis="x", integer=True)
        axes.set(
            xlim=(0.4, len(rows) + 0.6), ylim=(0, 1), xlabel=f"{words.forget_question}s, sorted"
        )
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
    name = panel.name = name.replace(".", "_")
    with svg.style(name):
        figure, axes = svg.canvas(*size, left)
        yield axes
        panel.svg = svg.inline(
            figure, name, "; ".join(filter(None, (f"{panel.title}: {panel.note}", words)))
        )
