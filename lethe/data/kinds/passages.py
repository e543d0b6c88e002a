"""A text of the user's own, cut into windows: each row asks for the words that follow a prefix.

A window lies inside one range of the text, so that none holds words of both splits. Rows have ``start``, the place of their
first character.
"""

import re
from itertools import pairwise
from pathlib import Path
from typing import Annotated, NamedTuple

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


class Span(NamedTuple):
    """A part of the text: the place of its first character, and the place behind its last."""

    start: int
    end: int


def load(data: Data, source: Path) -> dict[str, list[Row]]:
    """The splits ``forget`` and ``retain``; raises `BadValue` where a range is not in the text, or two ranges overlap."""
    options = data.of_kind(Params)
    path = source / options.file
    text = read_text(path)
    edges = [0, len(text)]
    in_chapters = options.chapter is not None
    if options.chapter is not None:
        edges = _chapters(text, options.chapter, path)
    forget = _spans("forget", options.forget, edges, in_chapters)
    if options.retain is None:
        retain = _between(forget, edges[0], edges[-1])
    else:
        retain = _spans("retain", options.retain, edges, in_chapters)
    _check_apart([*forget, *retain])
    return {
        "forget": _windows(text, sorted(forget), options),
        "retain": _windows(text, sorted(retain), options),
    }


def _between(spans: list[Span], start: int, end: int) -> list[Span]:
    """What the spans leave of the text from ``start`` to ``end``; a part between overlapping spans ends before it begins."""
    left = []
    for span in sorted(spans):
        left.append(Span(start, span.start))
        start = span.end
    return [*left, Span(start, end)]


def _check_apart(spans: list[Span]) -> None:
    """Raises `BadValue` where two spans overlap."""
    ordered = sorted(span for span in spans if span.start < span.end)
    for span, following in pairwise(ordered):
        if following.start < span.end:
            overlap = f"ranges from {span.start} to {span.end} and from {following.start}"
            raise BadValue("data.passages", overlap, "ranges apart")


def _chapters(text: str, heading: str, path: Path) -> list[int]:
    """Where each chapter begins, and the end of the text."""
    try:
        starts = [match.start() for match in re.finditer(heading, text, re.MULTILINE)]
    except re.error as error:
        legal = f"a regular expression ({error})"
        raise BadValue("data.passages.chapter", heading, legal) from None
    if not starts:
        problem = f"has no line that matches {heading!r}"
        raise BadFile(path, problem, "Change data.passages.chapter.")
    return [*starts, len(text)]


def _spans(split: str, ranges: list[Range], edges: list[int], in_chapters: bool) -> list[Span]:
    """The parts of the text that the ranges of a split name, by chapters or by characters."""
    first, last = edges[0], edges[-1]
    if in_chapters:
        first, last = 1, len(edges) - 1
    spans = []
    for low, high in ranges:
        is_within = first <= low <= high <= last
        is_empty = low == high and not in_chapters
        if not is_within or is_empty:
            legal = f"[first, last] from {first} to {last}"
            raise BadValue(f"data.passages.{split}", [low, high], legal)
        span = Span(low, high)
        if in_chapters:
            span = Span(edges[low - 1], edges[high])
        spans.append(span)
    return spans


def _windows(text: str, spans: list[Span], options: Params) -> list[Row]:
    """A row for each window of the spans, every ``stride`` words."""
    rows: list[Json] = []
    for span in spans:
        words = []
        for match in re.finditer(r"\S+", text[span.start : span.end]):
            words.append(Span(span.start + match.start(), span.start + match.end()))
        size = options.prefix + options.suffix
        for place in range(0, len(words) - size + 1, options.stride):
            prefix = words[place : place + options.prefix]
            suffix = words[place + options.prefix : place + size]
            first = prefix[0].start
            cut = suffix[0].start
            question = text[first:cut]
            # A prompt file joins prefix and suffix by a blank, unless the prefix ends in blanks of its own.
            if text[prefix[-1].end : cut] == " ":
                question = text[first : prefix[-1].end]
            row = {
                "id": f"p{first:07d}",
                "question": question,
                "answer": text[cut : suffix[-1].end],
                "start": first,
            }
            rows.append(row)
    return rows
