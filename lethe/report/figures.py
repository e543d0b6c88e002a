"""The report's figures: small panels, one per model, all on the same axes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from markupsafe import Markup

from lethe.errors import plural
from lethe.measure.answers import BINS, QuestionAnswers
from lethe.measure.run import Question, Role, Run, RunModel, TailPoint
from lethe.report import svg
from lethe.report.svg import ACCENT, INK, MUTED, WARM
from lethe.results import quantities
from lethe.results.wording import Wording
from lethe.text import label, number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.patches import PathPatch

TICKS = (0, 0.5, 1)
POWERS_OF_TEN = [10**power for power in range(9)]
DASHES_OF_ROLE: dict[Role, tuple[float, float]] = {"base": (1, 1.2), "retrain": (4, 1.5)}
ROOTS = (0, 0.05, 0.25, 1)
# The upper bound that represents a question: of leaks, else of its mean score.
BOUNDS = quantities.upper_bounds(
    "question", ("leak", "score_betting", "score"), ("sampled", "anytime")
)
BARS = 60  # per panel; more questions are drawn as one outline, which takes a fraction of the bytes


@dataclass
class Panel:
    """A small figure with its title and a note; ``name`` and ``svg`` are set by `drawing`."""

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
    """The question with the highest bound in any model under test: of leaks, else of its mean score.

    Of equal bounds the first counts; without a model under test the references do. None where no question has a bound.
    """
    for key in BOUNDS:
        highest = -math.inf
        prompt_id = None
        name = ""
        for model in run.subjects or run.models:
            for question in model.questions:
                bound = question.value(key)
                if bound is not None and bound > highest:
                    highest = bound
                    prompt_id = question.prompt_id
                    name = model.name
        if prompt_id is not None:
            others = f"all {run.words.question}s and models under test"
            why = f"its upper bound with {name} is the highest of {others}"
            return Chosen(prompt_id, name, why)
    return None


def draw(run: Run, drawn: Mapping[str, Mapping[str, QuestionAnswers]]) -> dict[str, list[Panel]]:
    """All figures of the report by kind: histograms, tail curves (``m_gen``), and bounds by question.

    ``drawn`` are the answers by model and question. A panel is drawn for each model that has what it shows.
    """
    scorer = label(run.params.metrics.leak)
    return {
        "histograms": _histograms(run, drawn, scorer),
        "m_gen": _tails(run, scorer),
        "per_question": _bounds_by_question(run),
    }


def _tails(run: Run, scorer: str) -> list[Panel]:
    """The bounds on the shares of answers above each score, a panel for each model that has them."""
    panels = []
    for model in run.models:
        if model.m_gen:
            panels.append(_m_gen(model, run, scorer))
    return panels


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
    """The upper bounds of the questions, the highest first, a panel for each model that has any."""
    panels = []
    for model in run.models:
        rows = []
        for question in model.questions:
            bound = question.numbers.upper("leak")
            if bound:
                rows.append(_Bounded(question, bound.value))
        if rows:
            rows.sort(key=lambda row: -row.bound)
            panels.append(_questions(model, rows, run.words))
    return panels


@dataclass(frozen=True)
class _Bounded:
    """A question with its upper bound of the leak probability."""

    question: Question
    bound: float


def _histogram(model: str, row: Question, counts: Sequence[int], scorer: str) -> Panel:
    """How often each score was drawn for one question; the greedy answer's score as a dashed line.

    ``counts`` are the answers by score, in `BINS` equal parts of [0, 1].
    """
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

        powers = [power for power in POWERS_OF_TEN if power <= answers]
        axes.set_yticks(powers, [f"{power:,}" for power in powers])
        axes.minorticks_off()
        axes.set_ylim(0.7, answers * 1.3)  # a bar of one answer shows
        axes.set(xlim=(-0.02, 1.02), xticks=TICKS, xlabel=scorer)
        _upright(axes, "answers, log scale")
    return panel


def _m_gen(model: RunModel, run: Run, scorer: str) -> Panel:
    """The bound on the share of answers above each score, the empirical share, the bounds of both references."""
    panel = Panel(model.name)
    lower_half = [point for point in model.m_gen if point.x <= 0.5]
    if lower_half:
        middle = max(lower_half, key=lambda point: point.x)
        bound = number(middle.bound, 3, "upper")
        panel.note = f"above {middle.x:g}: bound {bound} on average"

    with drawing(panel, f"mgen-{model.name}", "share of answers above each score") as axes:
        steps = partial(axes.plot, drawstyle="steps-post")
        for role, dashes in DASHES_OF_ROLE.items():
            reference = run.role(role)
            if reference and reference.m_gen and reference is not model:
                scores, bounds = _bounds(reference.m_gen)
                steps(scores, bounds, color=MUTED, linewidth=1, dashes=dashes)

        scores, bounds = _bounds(model.m_gen)
        shares = [point.empirical for point in model.m_gen]
        steps(scores, shares, color=ACCENT, linewidth=0.8, alpha=0.7)
        steps(scores, bounds, color=ACCENT, linewidth=1.8)

        axes.set(xlim=(0, 1), ylim=(0, 1.02), xticks=TICKS, yticks=TICKS)
        axes.set_xlabel(f"{scorer} x")
        _upright(axes, "share of answers above x")
    return panel


def _bounds(points: Sequence[TailPoint]) -> tuple[list[float], list[float]]:
    """The scores of a curve, and the bound at each."""
    scores = [point.x for point in points]
    bounds = [point.bound for point in points]
    return scores, bounds


def _questions(model: RunModel, rows: list[_Bounded], words: Wording) -> Panel:
    """M_bin of every forget question, sorted, with the sampled share below it and greedy leaks marked."""
    panel = Panel(model.name)
    places = np.arange(1, len(rows) + 1)
    bounds = []
    shares = []
    leaks = []
    for place, row in zip(places, rows, strict=True):
        numbers = row.question.numbers
        bounds.append(row.bound)
        shares.append(_or_nan(numbers.estimate("leak")))
        if numbers.estimate("leak", "greedy"):
            leaks.append(place)

    description = f"{plural(len(rows), words.question)}, greedy {words.leaks} {len(leaks)}"
    with drawing(panel, f"questions-{model.name}", description) as axes:
        _draw_questions(axes, places, bounds, shares)
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


def _draw_questions(
    axes: Axes, places: np.ndarray, bounds: Sequence[float], shares: Sequence[float]
) -> None:
    """Draw the bound of each question as a bar with its share as a dot, or many questions as one outline."""
    if len(places) <= BARS:
        axes.bar(places, bounds, width=0.9, color=ACCENT, alpha=0.28, linewidth=0)
        axes.plot(places, shares, "o", color=ACCENT, markersize=2.4, clip_on=False)
        return
    edges = np.arange(len(places) + 1) + 0.5
    axes.stairs(bounds, edges, fill=True, color=ACCENT, alpha=0.28, linewidth=0)
    axes.add_patch(_dots(places, shares))


def _dots(places: np.ndarray, heights: Sequence[float]) -> PathPatch:
    """Many dots as one path: zero-length lines with round ends."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    centres = np.column_stack([places, heights])
    points = np.repeat(centres, 2, axis=0)
    line = np.array([Path.MOVETO, Path.LINETO], dtype=Path.code_type)
    codes = np.tile(line, len(places))
    return PathPatch(
        Path(points, codes),
        fill=False,
        edgecolor=ACCENT,
        linewidth=1.6,
        capstyle="round",
        clip_on=False,
    )


def _or_nan(value: float | None) -> float:
    """A number, or NaN, which matplotlib does not draw."""
    if value is None:
        return np.nan
    return value


def _upright(axes: Axes, words: str) -> None:
    """Write what the vertical axis shows above it, where it can be read without turning the head."""
    axes.set_title(words, loc="left", fontsize=8, color=MUTED, pad=5, x=-0.06)


@contextmanager
def drawing(
    panel: Panel,
    name: str,
    words: str = "",
    size: tuple[float, float] = (2.25, 1.75),
    left: float = 0.36,
) -> Iterator[Axes]:
    """Empty axes in the house style; on exit, ``panel`` holds the drawing. ``words`` describes it in words.

    ``size`` is its width and height, ``left`` the margin on the left, all in inches.
    """
    panel.name = name.replace(".", "_")
    with svg.style(panel.name):
        figure, axes = svg.canvas(*size, left)
        yield axes
        description = f"{panel.title}: {panel.note}"
        if words:
            description += f"; {words}"
        panel.svg = svg.inline(figure, panel.name, description)
