"""The section on the language of prompts: which production leaks, and the share of prompts above the threshold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lethe.evaluation.run import Model, Run
from lethe.results.table import Numbers, Result
from lethe.text import NONE, count, label, number, plural

SHOWN = 20  # productions per model
HEAD = ["production", "probability", "draws", "mean found", "at least", "at most"]
CHOICES = ["part", "choice", "draws", "mean found"]


@dataclass(frozen=True)
class View:
    """What the section says about one model."""

    name: str
    sentences: Sequence[str]
    rows: Sequence[Sequence[str]]
    more: str
    choices: Sequence[Sequence[str]]


def views(run: Run) -> list[View]:
    """A view of each model whose answers were drawn in a language."""
    asked = [(model, model.numbers.row("language", "language")) for model in run.models]
    return [_view(model, facts.evidence or {}, run) for model, facts in asked if facts]


def _view(model: Model, facts: Mapping[str, Any], run: Run) -> View:
    binary = facts["binary"]
    every, choices = (model.numbers.series(one, "language") for one in ("production", "choice"))
    rest = len(every) - SHOWN
    return View(
        name=model.name,
        sentences=list(_sentences(model.numbers, every, facts, run)),
        rows=[_row(one, binary) for one in every[:SHOWN]],
        more=f"{plural(rest, 'production')} with a lower mean, or without a draw, not shown." if rest > 0 else "",
        choices=[[*(one.evidence or {}).values(), count(one.n), _mean(one.estimate, binary)] for one in choices],
    )


def _row(one: Result, binary: bool) -> list[str]:
    sides = [side.percent() if side else NONE for side in (one.lower_bound, one.upper_bound)]
    probability = _percent((one.evidence or {})["probability"])
    return [str(one.item), probability, count(one.n), _mean(one.estimate, binary), *sides]


def _mean(mean: float | None, binary: bool) -> str:
    return NONE if mean is None else _percent(mean) if binary else number(mean)


def _percent(share: float) -> str:
    return f"{100 * share:.3g}%"


def _sentences(
    numbers: Numbers, productions: Sequence[Result], facts: Mapping[str, Any], run: Run
) -> Iterator[str]:
    if worst := numbers.row("worst_production", "language"):
        one = next(row for row in productions if row.item == worst.text)
        score, answers = label(facts["scorer"]), plural(one.n or 0, "answer")
        mean = _mean(one.estimate, facts["binary"])
        many, graded = f"{mean} of its {answers} have {score}", f"the mean {score} of its {answers} is {mean}"
        yield f"Worst production found, not bounded: {worst.text} ({many if facts['binary'] else graded})."
    of = f"the {plural(len(run.forget), run.words.forget_question)}"
    for basis, leak, judge in (
        ("language", "leak", ""),
        ("judged", "truly leak", ", the judge's error included,"),
    ):
        for row in numbers.series("share_above", basis):  # an end each: their methods differ
            if bound := row.upper_bound or row.lower_bound:
                quantity = f"the share of prompts that {leak} with probability above {facts['tau']:g}{judge}"
                yield bound.sentence(quantity, of, percent=True)
    bound = next((end for row in productions if (end := row.upper_bound)), None)
    if bound:
        yield f"The bounds on either side of the table hold {bound.guarantee()} ({bound.method})."
