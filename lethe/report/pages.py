"""The pages of `lethe compare` and `lethe extract`, and the report's section of passages."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from lethe.comparison.comparison import AVERAGES, BETTER, WORSE, Comparison, outcome
from lethe.comparison.ranking import RANKS, Ranking
from lethe.config.schema import Params
from lethe.errors import plural, visible
from lethe.report.templates import templates
from lethe.results.extraction import RETAIN, Extraction
from lethe.statistics.extraction import CHANCES, QUERIES, discoverable
from lethe.text import NONE
from lethe.verdict.finding import EXTRACTION, EXTRACTION_NEAR, Findings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from markupsafe import Markup
    from matplotlib.axes import Axes

    from lethe.io.artifacts import Row
    from lethe.measure.run import Run
    from lethe.results.extraction import Passage


def comparison_page(comparison: Comparison | Ranking) -> str:
    """The page of two runs, question by question, or of the ranks of several runs."""
    record = comparison.record
    if isinstance(comparison, Ranking):
        title = ", ".join(record["runs"])
        reach = None
        population_of_ranks = dict(zip(RANKS, POPULATIONS, strict=True))
    else:
        title = f"{record['a']} and {record['b']}"
        reach = _reach(comparison)
        population_of_ranks = {}

    missing = []
    for question in record["not_compared"]:
        sentence = question["reason"]
        if question["id"]:
            sentence = f"{question['id']}: {sentence}"
        missing.append(sentence)

    page = templates(decimals).get_template("compare.html")
    return page.render(
        comparison=comparison,
        outcome=outcome,
        title=visible(title),
        headline=_headline(comparison),
        missing=missing,
        reach=reach,
        populations=population_of_ranks,
    )


def _headline(comparison: Comparison | Ranking) -> str:
    """What a comparison shows, in a sentence without its period."""
    if isinstance(comparison, Ranking):
        return _headline_of_ranking(comparison)
    if comparison.record["refused"]:
        return "Nothing is claimed of these two sides"
    if not comparison.per_question:
        return "Nothing could be compared"
    questions = plural(len(comparison.per_question), "question")
    worse = len(comparison.with_outcome(WORSE))
    better = len(comparison.with_outcome(BETTER))
    if not worse + better:
        return f"No difference is shown on any of {questions}"
    above, below = comparison.words
    return f"B is {above} on {worse} of {questions} and {below} on {better}"


def _headline_of_ranking(ranking: Ranking) -> str:
    if ranking.record["refused"]:
        return "No rank is claimed of these runs"
    differ = max(map(ranking.differ, AVERAGES))
    if not differ:
        return "No two runs are shown to differ"
    pairs = plural(len(ranking.of(AVERAGES[0])), "pair")
    return f"{differ} of {pairs} of runs differ"


def _reach(comparison: Comparison) -> float:
    """The end of the bars' scale: 1, 2 or 5 times a power of ten, above every interval, and at most 1."""
    distances = []
    for row in comparison.per_question:
        for end in row.ends:
            distances.append(abs(end.value))
    farthest = max(distances, default=1.0)
    for power in range(-6, 0):
        for digit in (1, 2, 5):
            step = digit * 10.0**power
            if step >= farthest:
                return step
    return 1.0


def decimals(value: float | None) -> str:
    """A number with four decimals, to nearest; a dash where there is none."""
    if value is None or math.isnan(value):
        return NONE
    return f"{value:.4f}"


POPULATIONS = ("these questions", "questions like these")  # of the ranks
FLOOR = 1e-12  # p_z whose shade is white
CURVE_POINTS = 241  # numbers of queries in the figure
EVEN = 0.5  # the chance with which a window of the figure comes out
DASHES = ("-", "--", ":", "-.", (0, (6, 2)))
LISTED = 20  # passages at either end
MOST = 2000  # passages on the page


def write_extraction(
    page: Path, models: Sequence[Extraction], headline: str, sentences: Sequence[str]
) -> tuple[Path, Path]:
    """Write the page of the first of ``models`` and, beside it, the picture of the windows of all; return both places."""
    from lethe.io.files import write_text

    picture = page.with_suffix(".png")
    write_text(page, extraction_page(models, headline, sentences))
    draw_strips(picture, models)
    return page, picture


def extraction_page(models: Sequence[Extraction], headline: str, sentences: Sequence[str]) -> str:
    """Return the whole page of the first of ``models``, beside the reference models; it needs no network."""
    page = templates().get_template("extraction.html")
    return page.render(
        title=visible(f"{models[0].name}: extraction"),
        headline=visible(headline),
        passages=passages(models, sentences),
    )


def of_run(run: Run, found: Findings) -> Passages | None:
    """The section of a report: the windows of every model one above the other, and the word on each."""
    extractions = []
    for model in run.models:
        if model.extraction:
            extractions.append(model.extraction)
    if not extractions or not isinstance(run.params, Params) or run.params.extract is None:
        return None
    sentences = [finding.sentence for finding in found.asked(EXTRACTION, EXTRACTION_NEAR)]
    return passages(extractions, sentences, run.forget)


@dataclass(frozen=True)
class Passages:
    """What both pages show of windows of a text; see `passages`."""

    models: Sequence[Extraction]
    sentences: Sequence[str]
    rows: Mapping[str, Row]
    lists: dict[str, list[Passage]]  # easiest, hardest, other
    others: list[tuple[str, dict[str, float]]]  # name and p_z by window of the reference models
    curve: Markup
    queries: Iterable[tuple[int, float]]
    shade: Callable[[float], float]
    floor: float = FLOOR
    chances: Sequence[float] = CHANCES

    @cached_property
    def shown(self) -> set[str]:
        """The ids of the windows with a text on the page."""
        ids: set[str] = set()
        for listed in self.lists.values():
            ids.update(passage.id for passage in listed)
        return ids

    @property
    def retained(self) -> bool:
        """Whether some windows are of the retain set."""
        return any(passage.split == RETAIN for passage in self.models[0].passages)


def passages(
    models: Sequence[Extraction], sentences: Sequence[str], rows: Mapping[str, Row] | None = None
) -> Passages:
    """What both pages show: strips, sentences, queries, and passages of the first model, the easiest and hardest first.

    ``rows`` are the questions whose answers the windows are; without them a window has its own text. The page lists
    `LISTED` windows at either end, and the others as far as `MOST` allows.
    """
    first, *others = models
    ranked = sorted(first.asked, key=lambda passage: -passage.p_z)
    edge = min(LISTED, (len(ranked) + 1) // 2)
    after_easiest = ranked[edge:]
    middle = ranked[edge : -edge or None][: MOST - 2 * edge]
    lists = {
        "easiest": ranked[:edge],
        "hardest": after_easiest[: -edge - 1 : -1],
        "other": sorted(middle, key=lambda passage: passage.start),
    }

    p_z_of_others = []
    for other in others:
        p_z_of_window = {passage.id: passage.p_z for passage in other.passages}
        p_z_of_others.append((other.name, p_z_of_window))

    return Passages(
        models=models,
        sentences=sentences,
        rows=rows or {},
        lists=lists,
        others=p_z_of_others,
        curve=_curve(models),
        queries=zip(QUERIES, discoverable(first.p_z), strict=True),
        shade=shade,
    )


def _curve(models: Sequence[Extraction]) -> Markup:
    """The share of windows that n queries bring out with an even chance, a line per model."""
    import numpy as np

    from lethe.report import svg

    queries = np.geomspace(QUERIES[0], QUERIES[-1], CURVE_POINTS)
    with svg.style("queries"):
        figure, axes = svg.canvas(6.4, 2.2, 0.4)
        colour = svg.ACCENT
        for place, model in enumerate(models):
            axes.plot(
                queries,
                discoverable(model.p_z, queries, EVEN),
                label=model.name,
                color=colour,
                linestyle=DASHES[place % len(DASHES)],
                clip_on=False,
            )
            colour = svg.MUTED  # of the references

        axes.set(xscale="log", xlim=(1, 2 * QUERIES[-1]), ylim=(0, None))
        axes.set_xlabel("queries, log scale")
        axes.minorticks_off()
        axes.legend(frameon=False, fontsize=7, loc="lower right")
        description = "share of windows that come out with an even chance, by queries"
        return svg.inline(figure, "queries", description)


def draw_strips(picture_file: Path, models: Sequence[Extraction]) -> None:
    """Save the windows of each model as a strip, a window darker the likelier it is; the models are below each other."""
    from lethe.report.svg import picture

    height = 0.7 + 0.6 * len(models)  # inches
    strips = picture(picture_file, 9, height, nrows=len(models), sharex=True)
    with strips as (_, axes):
        for axis, model in zip(axes[:, 0], models, strict=True):
            _draw_strip(axis, model)
        axes[-1, 0].set_xlabel(f"window of the text (shade: log p_z from {FLOOR:g} to 1)")


def _draw_strip(axis: Axes, model: Extraction) -> None:
    import numpy as np

    from lethe.report.svg import LIGHT

    shades = [shade(passage.p_z) for passage in model.passages]
    axis.imshow(
        np.array([shades]),
        cmap="Blues",
        vmin=0,
        vmax=1,
        aspect="auto",
        extent=(0, len(shades), 0, 1),
        interpolation="nearest",
    )

    forgotten = np.flatnonzero([passage.split != RETAIN for passage in model.passages])
    if forgotten.size < len(shades):  # a line below the windows of the forget set
        below = np.full(forgotten.size, -0.08)
        ends = forgotten + 1
        axis.hlines(below, forgotten, ends, colors=LIGHT["warm"], linewidth=2, clip_on=False)

    axis.set_yticks([])
    axis.set_ylabel(model.name, rotation=0, ha="right", va="center")
    axis.grid(visible=False)


def shade(chance: float) -> float:
    """The darkness of a window, in [0, 1]: the logarithm of its probability."""
    if chance <= FLOOR:
        return 0.0
    return 1 - math.log(chance) / math.log(FLOOR)
