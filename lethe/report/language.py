"""The section on the language of prompts: which production leaks, and the share of prompts above the threshold."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from lethe.evaluation.prompt_language import LanguageMeasures, ProductionMeasure
from lethe.evaluation.run import Model, Run
from lethe.results.table import Numbers
from lethe.text import count, label, number, plural

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
    return [_view(model, model.language, run) for model in run.models if model.language]


def _view(model: Model, told: LanguageMeasures, run: Run) -> View:
    every, choices = told.productions, told.choices
    rest = len(every) - SHOWN
    return View(
        name=model.name,
        sentences=list(_sentences(told, model.numbers, run)),
        rows=[_row(one, told.binary) for one in every[:SHOWN]],
        more=f"{plural(rest, 'production')} with a lower mean, or without a draw, not shown." if rest > 0 else "",
        choices=[[one.part, one.choice, count(one.draws), _mean(one.mean, told.binary)] for one in choices],
    )


def _row(one: ProductionMeasure, binary: bool) -> list[str]:
    sides = [side.percent() if side else "–" for side in (one.lower, one.upper)]
    return [one.name, _percent(one.probability), count(one.draws), _mean(one.mean, binary), *sides]


def _mean(mean: float, binary: bool) -> str:
    return "–" if math.isnan(mean) else _percent(mean) if binary else number(mean)


def _percent(share: float) -> str:
    return f"{100 * share:.3g}%"


def _sentences(told: LanguageMeasures, numbers: Numbers, run: Run) -> list[str]:
    worst, said = told.worst, []
    if worst:
        score, answers = label(told.scorer), plural(worst.draws, "answer")
        what = (
            f"{_mean(worst.mean, True)} of its {answers} have {score}"
            if told.binary
            else f"the mean {score} of its {answers} is {_mean(worst.mean, False)}"
        )
        said.append(f"Worst production found, not bounded: {worst.name} ({what}).")
    quantity = f"the share of prompts that leak with probability above {told.tau:g}" if told.tau else ""
    of = f"the {plural(len(run.forget), run.words.forget_question)}"
    true = quantity.replace("that leak", "that truly leak") + ", the judge's error included," if quantity else ""
    said += [
        bound.sentence(true if key.startswith("judged_") else quantity, of, percent=True)
        for key, bound in numbers.bounds.items()
        if "language_share" in key
    ]
    table = [one.upper for one in told.productions if one.upper]
    if table:
        said.append(f"The bounds on either side of the table hold {table[0].guarantee()} ({table[0].method}).")
    return said
