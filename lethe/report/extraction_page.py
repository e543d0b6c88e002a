"""The page of `lethe extract`: the text as a strip of colour by position, which opens on the passage, and as PNG."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

from lethe.errors import plural, visible
from lethe.report.templates import templates
from lethe.statistics.extraction import CHANCES, QUERIES, discoverable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lethe.results.extraction import Extraction, Passage

FLOOR = 1e-12  # p_z whose shade is white
LISTED = {"easiest": 100, "hardest": 10}  # passages on the page


def write(page: Path, models: Sequence[Extraction], headline: str, sentences: Sequence[str]) -> tuple[Path, Path]:
    """Write the page and, beside it, its strips as PNG."""
    from lethe.io.atomic import write_text

    picture = page.with_suffix(".png")
    write_text(page, render(models, headline, sentences))
    draw(picture, models)
    return page, picture


def render(models: Sequence[Extraction], headline: str, sentences: Sequence[str]) -> str:
    """Return the whole page of the first of ``models``, beside the reference models; it needs no network."""
    found = models[0]
    ranked = sorted(found.passages, key=lambda passage: -passage.p_z)
    easiest = ranked[: LISTED["easiest"]]
    hardest = [passage for passage in ranked[::-1][: LISTED["hardest"]] if passage not in easiest]
    shown = {passage.id for passage in (*easiest, *hardest)}
    return (
        templates()
        .get_template("extraction.html")
        .render(
            title=visible(f"{found.name}: extraction"),
            headline=visible(headline),
            sentences=[visible(sentence) for sentence in sentences],
            strips=[_strip(each, shown) for each in models],
            floor=f"{FLOOR:g}",
            chances=[f"{chance:g}" for chance in CHANCES],
            queries=[
                {"n": f"{n:,}", "shares": [f"{share:.1%}" for share in row]}
                for n, row in zip(QUERIES, discoverable(found.p_z), strict=True)
            ],
            lists=[
                {
                    "id": "easiest",
                    "title": "The easiest passages",
                    "passages": [_passage(one, models) for one in easiest],
                },
                {
                    "id": "hardest",
                    "title": "The hardest passages",
                    "passages": [_passage(one, models) for one in hardest],
                },
            ],
        )
    )


def draw(picture_file: Path, models: Sequence[Extraction]) -> None:
    """Draw the strips one above the other."""
    import numpy as np

    from lethe.report.svg import picture

    with picture(picture_file, 9, 0.7 + 0.6 * len(models), nrows=len(models), sharex=True) as (_, axes):
        for axis, each in zip(axes[:, 0], models, strict=True):
            shades = np.array([[shade(passage.p_z) for passage in each.passages]])
            end = each.passages[-1].start + each.stride
            axis.imshow(
                shades, cmap="Blues", vmin=0, vmax=1, aspect="auto", extent=(0, end, 0, 1), interpolation="nearest"
            )
            axis.set_yticks([])
            axis.set_ylabel(each.name, rotation=0, ha="right", va="center")
            axis.grid(visible=False)
        axes[-1, 0].set_xlabel(f"token of the text (shade: log p_z from {FLOOR:g} to 1)")


def shade(chance: float) -> float:
    """The darkness of a window, in [0, 1]: the logarithm of its probability."""
    return 0.0 if chance <= FLOOR else 1 - math.log(chance) / math.log(FLOOR)


def _strip(each: Extraction, shown: set[str]) -> dict[str, object]:
    end = each.passages[-1].start + each.stride
    return {
        "name": visible(each.name),
        "label": visible(f"{each.name}: {plural(len(each.passages), 'window')} by position"),
        "bands": [
            {
                "id": passage.id,
                "link": passage.id in shown and shade(passage.p_z) > 0,
                "x": f"{1000 * passage.start / end:.2f}",
                "width": f"{1000 * each.stride / end:.2f}",
                "shade": f"{shade(passage.p_z):.2f}",
                "title": f"{passage.id}: p_z {passage.p_z:.3g}",
            }
            for passage in each.passages
        ],
    }


def _passage(passage: Passage, models: Sequence[Extraction]) -> dict[str, object]:
    place = models[0].passages.index(passage)
    near = models[0].interval(passage)
    return {
        "id": passage.id,
        "p_z": f"{passage.p_z:.3g}",
        "near": f"{near.lower:.3g} to {near.upper:.3g}" if near else "",
        "others": [visible(f"{each.name} {each.passages[place].p_z:.3g}") for each in models[1:]],
        "prefix": visible(passage.prefix),
        "suffix": visible(passage.suffix),
    }
