"""The pages of `lethe compare` and `lethe extract`, and the report's section of passages."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

from lethe.config.schema import Params
from lethe.errors import plural, visible
from lethe.evaluation.compared import BETTER, NEITHER, WORSE, Compared, Comparison, Ranking
from lethe.report.templates import templates
from lethe.results.extraction import KEPT, WORDS, Extraction, Passage, verdict_of
from lethe.results.verdict import sentence
from lethe.statistics.extraction import CHANCES, QUERIES, discoverable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lethe.evaluation.run import Run
    from lethe.io.artifacts import Row

UNDECIDED = "open"


def comparison_page(found: Comparison | Ranking) -> str:
    """The page of two runs, question by question, or of the ranks of several runs."""
    if isinstance(found, Comparison):
        title, headline, tables = f"{found.a} and {found.b}", _headline(found), _questions(found)
    else:
        title, headline, tables = ", ".join(found.runs), _headline_of_ranks(found), _ranks(found)
    return (
        templates()
        .get_template("compare.html")
        .render(
            title=visible(title),
            headline=headline,
            sentences=[visible(sentence) for sentence in found.sentences()],
            tables=tables,
            missing=[visible(f"{one.id}: {one.reason}" if one.id else one.reason) for one in found.not_compared],
        )
    )


def _questions(found: Comparison) -> list[dict[str, object]]:
    reach = _reach(found)
    table: dict[str, object] = {
        "id": "compared",
        "title": "Every question",
        "head": ["question", "outcome"],
        "cells": ["A", "B", "B − A", "at least", "at most"],
        "scale": f"−{reach:g} to {reach:g}",
        "zero": True,
        "rows": [_row(one, reach) for one in found.ranked()],
    }
    return [table] if found.per_question else []


def _headline_of_ranks(found: Ranking) -> str:
    differ = int(max(found.pooled.higher.sum(), found.population.higher.sum()))
    pairs = plural(len(found.pooled.effects), "pair")
    return f"{differ} of {pairs} of runs differ" if differ else "No two runs are shown to differ"


def _ranks(found: Ranking) -> list[dict[str, object]]:
    """A table per population: a line for the ranks that a run may have, and a mark for the rank of its mean."""
    order, steps = found.order(), len(found.runs) - 1
    tables: list[dict[str, object]] = []
    for name, ranks in (("these questions", found.pooled), ("questions like these", found.population)):
        rows: list[dict[str, object]] = []
        for place, run in enumerate(order if ranks.ranges else []):
            low, high = (ranks.ranges or ())[run]
            left, right, mark = (f"{4 + 92 * step / steps:.2f}" for step in (low - 1, high - 1, place))
            label = f"rank {low} to {high}" if low < high else f"rank {low}"
            rows.append(
                {
                    "id": visible(found.runs[run]),
                    "kind": "",
                    "outcome": label,
                    "label": label,
                    "cells": [_number(found.means[run])],
                    "left": left,
                    "right": right,
                    "place": mark,
                }
            )
        table: dict[str, object] = {
            "id": name.replace(" ", "-"),
            "title": f"Ranks over {name}",
            "head": ["run", "rank"],
            "cells": ["mean"],
            "scale": f"1 to {len(order)}",
            "zero": False,
            "rows": rows,
        }
        tables += [table] if rows else []
    return tables


def _headline(found: Comparison) -> str:
    if not found.per_question:
        return "Nothing could be compared"
    questions = plural(len(found.per_question), "question")
    worse, better = (sum(one.outcome == kind for one in found.per_question) for kind in (WORSE, BETTER))
    if not worse + better:
        return f"No difference is shown on any of {questions}"
    return f"B is worse on {worse} of {questions} and better on {better}"


def _reach(found: Comparison) -> float:
    """The end of the bars' scale: 1, 2 or 5 times a power of ten, above every interval, and at most 1."""
    ends = [abs(end) for one in found.per_question for end in (one.effect.low, one.effect.high)]
    steps = [digit * 10.0**power for power in range(-6, 0) for digit in (1, 2, 5)]
    return next((step for step in steps if step >= max(ends, default=1.0)), 1.0)


def _row(one: Compared, reach: float) -> dict[str, object]:
    effect = one.effect
    left, right = (50 * (1 + end / reach) for end in (effect.low, effect.high))
    low, high = effect.bounds()
    place = 50 * (1 + (0.0 if math.isnan(effect.difference) else effect.difference) / reach)
    return {
        "id": visible(one.id),
        "kind": one.outcome if one.holds else "",
        "outcome": UNDECIDED if one.outcome == NEITHER else one.outcome,
        "cells": [*map(_number, (effect.a, effect.b, effect.difference)), low.number(4), high.number(4)],
        "label": f"B − A from {low.number(4)} to {high.number(4)}",
        "left": f"{left:.2f}",
        "right": f"{right:.2f}",
        "place": f"{place:.2f}",
    }


def _number(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.4f}"


FLOOR = 1e-12  # p_z whose shade is white
LISTED = {"easiest": 100, "hardest": 10}  # passages on the page


def write_extraction(
    page: Path, models: Sequence[Extraction], headline: str, sentences: Sequence[str]
) -> tuple[Path, Path]:
    from lethe.io.atomic import write_text

    picture = page.with_suffix(".png")
    write_text(page, extraction_page(models, headline, sentences))
    draw_strips(picture, models)
    return page, picture


def extraction_page(models: Sequence[Extraction], headline: str, sentences: Sequence[str]) -> str:
    """Return the whole page of the first of ``models``, beside the reference models; it needs no network."""
    return (
        templates()
        .get_template("extraction.html")
        .render(
            title=visible(f"{models[0].name}: extraction"),
            headline=visible(headline),
            passages=passages(models, sentences),
        )
    )


def of_run(run: Run) -> SimpleNamespace | None:
    """The section of a report: the windows of every model one above the other, and the word on each."""
    there = [model for model in run.models if model.extraction]
    params = run.params
    if not there or not isinstance(params, Params) or params.extract is None:
        return None
    rule = params.metrics.alpha, params.extract.tau, len(run.subjects), params.report.look
    retrains = [model.extraction for model in run.retrains if model.extraction]
    within = f"within {plural(params.extract.distance, f'{params.extract.unit[:-1]} edit')}"
    sentences = []
    for model in run.subjects:
        if found := model.extraction:
            words = [(model.name, Extraction.verbatim_ends)]
            words += [(f"{model.name}, {within}", Extraction.near_ends)] if found.searched else []
            for name, ends in words:
                verdict = verdict_of(ends(found), [ends(each) for each in retrains], *rule)
                sentences.append(sentence(verdict, name, words=WORDS))
    return passages([model.extraction for model in there if model.extraction], sentences, run.forget)


def passages(
    models: Sequence[Extraction], sentences: Sequence[str], rows: Mapping[str, Row] | None = None
) -> SimpleNamespace:
    """What both pages show: strips, sentences, queries, and the easiest and the hardest windows of the first model.

    ``rows`` are the questions whose answers the windows are; without them a window has its own text.
    """
    found = models[0]
    ranked = sorted(found.asked, key=lambda passage: -passage.p_z)
    easiest, rest = ranked[: LISTED["easiest"]], ranked[LISTED["easiest"] :]
    lists = {"easiest": easiest, "hardest": rest[::-1][: LISTED["hardest"]]}
    shown = {passage.id for listed in lists.values() for passage in listed}
    others = [{passage.id: passage for passage in each.passages} for each in models]
    return SimpleNamespace(
        name=visible(found.name),
        sentences=[visible(sentence) for sentence in sentences],
        strips=[_strip(each, shown) for each in models],
        kept=any(passage.split == KEPT for passage in found.passages),
        floor=f"{FLOOR:g}",
        chances=[f"{chance:g}" for chance in CHANCES],
        queries=[
            SimpleNamespace(n=f"{n:,}", shares=[f"{share:.1%}" for share in row])
            for n, row in zip(QUERIES, discoverable(found.p_z), strict=True)
        ],
        lists=[
            SimpleNamespace(
                id=which,
                title=f"The {which} passages",
                passages=[_passage(passage, models, others, rows or {}) for passage in listed],
            )
            for which, listed in lists.items()
        ],
    )


def draw_strips(picture_file: Path, models: Sequence[Extraction]) -> None:
    import numpy as np

    from lethe.report.svg import picture

    with picture(picture_file, 9, 0.7 + 0.6 * len(models), nrows=len(models), sharex=True) as (_, axes):
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
            axis.set_yticks([])
            axis.set_ylabel(each.name, rotation=0, ha="right", va="center")
            axis.grid(visible=False)
        axes[-1, 0].set_xlabel(f"window of the text (shade: log p_z from {FLOOR:g} to 1)")


def shade(chance: float) -> float:
    """The darkness of a window, in [0, 1]: the logarithm of its probability."""
    return 0.0 if chance <= FLOOR else 1 - math.log(chance) / math.log(FLOOR)


def _strip(each: Extraction, shown: set[str]) -> SimpleNamespace:
    width = 1000 / len(each.passages)
    return SimpleNamespace(
        name=visible(each.name),
        label=visible(f"{each.name}: {plural(len(each.passages), 'window')} by position"),
        bands=[
            SimpleNamespace(
                id=passage.id,
                link=passage.id in shown,
                x=f"{width * place:.2f}",
                width=f"{width:.2f}",
                shade=f"{shade(passage.p_z):.2f}",
                kept=passage.split == KEPT,
                title=f"{passage.id}: p_z {passage.p_z:.3g}",
            )
            for place, passage in enumerate(each.passages)
        ],
    )


def _passage(
    passage: Passage,
    models: Sequence[Extraction],
    others: Sequence[Mapping[str, Passage]],
    rows: Mapping[str, Row],
) -> SimpleNamespace:
    near, row = models[0].interval(passage), rows.get(passage.id)
    prefix, suffix = (row["question"], f" {row['answer']}") if row else (passage.prefix, passage.suffix)
    return SimpleNamespace(
        id=passage.id,
        p_z=f"{passage.p_z:.3g}",
        near=f"{near.lower:.3g} to {near.upper:.3g}" if near else "",
        others=[
            visible(f"{each.name} {own[passage.id].p_z:.3g}")
            for each, own in zip(models[1:], others[1:], strict=True)
            if passage.id in own
        ],
        prefix=visible(prefix),
        suffix=visible(suffix),
    )
