"""The pages of `lethe compare` and `lethe extract`, and the report's section of passages."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

from lethe.config.schema import Params
from lethe.errors import plural, visible
from lethe.evaluation.compared import AVERAGES, BETTER, RANKS, WORSE, Comparison, Ranking, outcome
from lethe.report.templates import templates
from lethe.results.extraction import RETAIN, WORDS, Extraction, verdict_of
from lethe.results.verdict import sentence
from lethe.statistics.extraction import CHANCES, QUERIES, discoverable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from markupsafe import Markup

    from lethe.evaluation.run import Run
    from lethe.io.artifacts import Row


def comparison_page(comparison: Comparison | Ranking) -> str:
    """The page of two runs, question by question, or of the ranks of several runs."""
    ranking, record = isinstance(comparison, Ranking), comparison.record
    facts = {
        "title": visible(
            ", ".join(record["runs"]) if ranking else "{a} and {b}".format_map(record)
        ),
        "headline": _headline(comparison),
        "missing": [
            f"{one['id']}: " * bool(one["id"]) + one["reason"] for one in record["not_compared"]
        ],
        "reach": None if isinstance(comparison, Ranking) else _reach(comparison),
        "populations": dict(zip(RANKS, ("these questions", "questions like these"), strict=True))
        if ranking
        else {},
    }
    page = templates(decimals).get_template("compare.html")
    return page.render(comparison=comparison, outcome=outcome, **facts)


def _headline(comparison: Comparison | Ranking) -> str:
    if isinstance(comparison, Ranking):
        differ, pairs = (
            max(map(comparison.differ, AVERAGES)),
            plural(len(comparison.of(AVERAGES[0])), "pair"),
        )
        return (
            f"{differ} of {pairs} of runs differ" if differ else "No two runs are shown to differ"
        )
    if comparison.record["refused"]:
        return "Nothing is claimed of these two sides"
    if not comparison.per_question:
        return "Nothing could be compared"
    questions = plural(len(comparison.per_question), "question")
    worse, better = (len(comparison.with_outcome(kind)) for kind in (WORSE, BETTER))
    if not worse + better:
        return f"No difference is shown on any of {questions}"
    above, below = comparison.words
    return f"B is {above} on {worse} of {questions} and {below} on {better}"


def _reach(comparison: Comparison) -> float:
    """The end of the bars' scale: 1, 2 or 5 times a power of ten, above every interval, and at most 1."""
    ends = [abs(end.value) for row in comparison.per_question for end in row.ends]
    steps = [digit * 10.0**power for power in range(-6, 0) for digit in (1, 2, 5)]
    return next((step for step in steps if step >= max(ends, default=1.0)), 1.0)


def decimals(value: float | None) -> str:
    return "–" if value is None or math.isnan(value) else f"{value:.4f}"


FLOOR = 1e-12  # p_z whose shade is white
CURVE_POINTS, EVEN = (
    241,
    0.5,
)  # of the figure: numbers of queries, and the chance with which a window comes out
DASHES = ("-", "--", ":", "-.", (0, (6, 2)))
LISTED, MOST = 20, 2000  # passages at either end, and on the page


def write_extraction(
    page: Path, models: Sequence[Extraction], headline: str, sentences: Sequence[str]
) -> tuple[Path, Path]:
    from lethe.io.files import write_text

    picture = page.with_suffix(".png")
    write_text(page, extraction_page(models, headline, sentences))
    draw_strips(picture, models)
    return page, picture


def extraction_page(models: Sequence[Extraction], headline: str, sentences: Sequence[str]) -> str:
    """Return the whole page of the first of ``models``, beside the reference models; it needs no network."""
    page, title = (
        templates().get_template("extraction.html"),
        visible(f"{models[0].name}: extraction"),
    )
    return page.render(
        title=title, headline=visible(headline), passages=passages(models, sentences)
    )


def of_run(run: Run) -> SimpleNamespace | None:
    """The section of a report: the windows of every model one above the other, and the word on each."""
    there = [model for model in run.models if model.extraction]
    params = run.params
    if not there or not isinstance(params, Params) or params.extract is None:
        return None
    rule = params.metrics.alpha, params.extract.tau, run.sharing, params.report.look
    retrains = [model.extraction for model in run.retrains if model.extraction]
    within = f"within {plural(params.extract.distance, f'{params.extract.unit[:-1]} edit')}"
    sentences = []
    for model in run.subjects:
        if extraction := model.extraction:
            words = [(model.name, Extraction.verbatim_ends)]
            words += (
                [(f"{model.name}, {within}", Extraction.near_ends)] if extraction.searched else []
            )
            for name, ends in words:
                verdict = verdict_of(ends(extraction), [ends(each) for each in retrains], *rule)
                sentences.append(sentence(verdict, name, words=WORDS))
    return passages(
        [model.extraction for model in there if model.extraction], sentences, run.forget
    )


def passages(
    models: Sequence[Extraction], sentences: Sequence[str], rows: Mapping[str, Row] | None = None
) -> SimpleNamespace:
    """What both pages show: strips, sentences, queries, and passages of the first model, the easiest and hardest first.

    ``rows`` are the questions whose answers the windows are; without them a window has its own text.
    """
    first, *others = models
    ranked = sorted(first.asked, key=lambda passage: -passage.p_z)
    edge = min(LISTED, (len(ranked) + 1) // 2)
    lists = {"easiest": ranked[:edge], "hardest": ranked[edge:][: -edge - 1 : -1]}
    lists["other"] = sorted(
        ranked[edge : -edge or None][: MOST - 2 * edge], key=lambda passage: passage.start
    )
    return SimpleNamespace(
        models=models,
        sentences=sentences,
        rows=rows or {},
        lists=lists,
        shown={passage.id for listed in lists.values() for passage in listed},
        others=[
            (each.name, {passage.id: passage.p_z for passage in each.passages}) for each in others
        ],
        retained=any(passage.split == RETAIN for passage in first.passages),
        shade=shade,
        floor=FLOOR,
        chances=CHANCES,
        curve=_curve(models),
        queries=zip(QUERIES, discoverable(first.p_z), strict=True),
    )


def _curve(models: Sequence[Extraction]) -> Markup:
    """The share of windows that n queries bring out with an even chance, a line per model."""
    import numpy as np

    from lethe.report import svg

    queries = np.geomspace(QUERIES[0], QUERIES[-1], CURVE_POINTS)
    with svg.style("queries"):
        figure, axes = svg.canvas(6.4, 2.2, 0.4)
        for place, each in enumerate(models):
            colour, dashes = svg.MUTED if place else svg.ACCENT, DASHES[place % len(DASHES)]
            shares = discoverable(each.p_z, queries, EVEN)
            axes.plot(
                queries, shares, label=each.name, color=colour, linestyle=dashes, clip_on=False
            )
        axes.set(
            xscale="log", xlim=(1, 2 * QUERIES[-1]), ylim=(0, None), xlabel="queries, log scale"
        )
        axes.minorticks_off()
        axes.legend(frameon=False, fontsize=7, loc="lower right")
        return svg.inline(
            figure, "queries", "share of windows that come out with an even chance, by queries"
        )


def draw_strips(picture_file: Path, models: Sequence[Extraction]) -> None:
    import numpy as np

    from lethe.report.svg import LIGHT, picture

    with picture(picture_file, 9, 0.7 + 0.6 * len(models), nrows=len(models), sharex=True) as (
        _,
        axes,
    ):
        for axis, each in zip(axes[:, 0], models, strict=True):
            shades = np.array([[shade(passage.p_z) for passage in each.passages]])
            axis.imshow(
                shades,
                cmap="Blues",
                vmin=0,
                vmax=1,
                aspect="auto",
                extent=(0, shades.size, 0, 1),
                interpolation="nearest",
            )
            forgotten = np.flatnonzero([passage.split != RETAIN for passage in each.passages])
            if forgotten.size < shades.size:
                below = np.full(forgotten.size, -0.08)
                axis.hlines(
                    below,
                    forgotten,
                    forgotten + 1,
                    colors=LIGHT["warm"],
                    linewidth=2,
                    clip_on=False,
                )
            axis.set_yticks([])
            axis.set_ylabel(each.name, rotation=0, ha="right", va="center")
            axis.grid(visible=False)
        axes[-1, 0].set_xlabel(f"window of the text (shade: log p_z from {FLOOR:g} to 1)")


def shade(chance: float) -> float:
    """The darkness of a window, in [0, 1]: the logarithm of its probability."""
    return 0.0 if chance <= FLOOR else 1 - math.log(chance) / math.log(FLOOR)
