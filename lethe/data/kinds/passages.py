"""A text of the user's own, cut into windows: each row asks for the words that follow a prefix.

A window lies inside one range of the text, so that none holds words of both splits. Rows have ``start``, the place of their
first character.
"""

import re
from itertools import chain, pairwise
from pathlib import Path
from typing import Annotated

from pydantic import Field

from lethe.config.fields import Count, Integer, Place, Section
from lethe.config.schema import Data
from lethe.errors import BadFile, BadValue
from lethe.io.artifacts import Row
from lethe.io.files import Json, read_text

Range = tuple[Integer, Integer]


class Params(Section):
    """The text, a file of the folder ``data.source``, and its ranges.

    With ``chapter``, a regular expression that the first line of each chapter matches, a range is the numbers of its first
    and last chapter, from 1; without it, its first character and the one behind it. ``retain`` null: all other text, or all
    other chapters. ``prefix``, ``suffix`` and ``stride`` count words.
    """

    file: Place
    chapter: Place | None = None
    forget: Annotated[list[Range], Field(min_length=1)]
    retain: list[Range] | None = None
    prefix: Count = 50
    suffix: Count = 50
    stride: Count = 50


def load(data: Data, source: Path) -> dict[str, list[Row]]:
    options = data.own(Params)
    path = source / options.file
    text = read_text(path)
    edges = [0, len(text)] if options.chapter is None else _chapters(text, options.chapter, path)
    forget = _spans("forget", options.forget, edges, options.chapter is not None)
    if options.retain is None:
        ends = [edges[0], *chain.from_iterable(sorted(forget)), edges[-1]]
        retain = list(zip(ends[::2], ends[1::2], strict=True))
    else:
        retain = _spans("retain", options.retain, edges, options.chapter is not None)
    ordered = sorted(span for span in [*forget, *retain] if span[0] < span[1])
    for (start, end), (following, _) in pairwise(ordered):
        if following < end:
            overlap = f"ranges from {start} to {end} and from {following}"
            raise BadValue("data.passages", overlap, "ranges apart")
    spans_of = {"forget": forget, "retain": retain}
    return {split: _windows(text, sorted(spans), options) for split, spans in spans_of.items()}


def _chapters(text: str, heading: str, path: Path) -> list[int]:
    try:
        starts = [match.start() for match in re.finditer(heading, text, re.MULTILINE)]
    except re.error as error:
        raise BadValue(
            "data.passages.chapter", heading, f"a regular expression ({error})"
        ) from None
    if not starts:
        raise BadFile(
            path, f"has no line that matches {heading!r}", "Change data.passages.chapter."
        )
    return [*starts, len(text)]


def _spans(
    split: str, ranges: list[Range], edges: list[int], in_chapters: bool
) -> list[tuple[int, int]]:
    first, last = (1, len(edges) - 1) if in_chapters else (edges[0], edges[-1])
    spans = []
    for low, high in ranges:
        if not first <= low <= high <= last or (low == high and not in_chapters):
            raise BadValue(
                f"data.passages.{split}", [low, high], f"[first, last] from {first} to {last}"
            )
        spans.append((edges[low - 1], edges[high]) if in_chapters else (low, high))
    return spans


def _windows(text: str, spans: list[tuple[int, int]], options: Params) -> list[Row]:
    rows: list[Json] = []
    for start, end in spans:
        words = [match.span() for match in re.finditer(r"\S+", text[start:end])]
        for at in range(0, len(words) - options.prefix - options.suffix + 1, options.stride):
            first, cut = start + words[at][0], start + words[at + options.prefix][0]
            before = start + words[at + options.prefix - 1][1]
            after = start + words[at + options.prefix + options.suffix - 1][1]
            # A prompt file joins prefix and suffix by a blank, unless the prefix ends in blanks of its own.
            question = text[first:before] if text[before:cut] == " " else text[first:cut]
            row = {
                "id": f"p{first:07d}",
                "question": question,
                "answer": text[cut:after],
                "start": first,
            }
            rows.append(row)
    return rows
