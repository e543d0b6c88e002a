"""The page of `lethe compare`: the differences that hold first, each with its interval."""

from __future__ import annotations

import math

from lethe.errors import plural, visible
from lethe.evaluation.compared import BETTER, NEITHER, WORSE, Compared, Comparison
from lethe.report.templates import templates

UNDECIDED = "open"


def render(found: Comparison) -> str:
    """Return the whole page; it needs no network."""
    reach = _reach(found)
    return (
        templates()
        .get_template("compare.html")
        .render(
            title=f"{visible(found.a)} and {visible(found.b)}",
            headline=_headline(found),
            sentences=[visible(sentence) for sentence in found.sentences()],
            scale=f"−{reach:g} to {reach:g}",
            rows=[_row(one, reach) for one in found.ranked()],
            missing=[visible(f"{one.id}: {one.reason}" if one.id else one.reason) for one in found.not_compared],
        )
    )


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
        "a": _number(effect.a),
        "b": _number(effect.b),
        "difference": _number(effect.difference),
        "low": low.number(4),
        "high": high.number(4),
        "left": f"{left:.2f}",
        "right": f"{right:.2f}",
        "place": f"{place:.2f}",
    }


def _number(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.4f}"
