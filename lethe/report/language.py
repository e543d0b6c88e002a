"""The section on the language of prompts: which production leaks, and the share of prompts above the threshold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lethe.evaluation.run import Model, Run
from lethe.statistics.bound import Bound
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
    return [_view(model, run) for model in run.models if model.language]


def _view(model: Model, run: Run) -> View:
    told = model.language
    every, choices = told["productions"], told["choices"]
    rest = len(every) - SHOWN
    return View(
        name=model.name,
        sentences=list(_sentences(told, run)),
        rows=[_row(one, told["binary"]) for one in every[:SHOWN]],
        more=f"{plural(rest, 'production')} with a lower mean, or without a draw, not shown." if rest > 0 else "",
        choices=[[one["part"], one["choice"], count(one["draws"]), _mean(one, told["binary"])] for one in choices],
    )


def _row(one: Mapping[str, Any], binary: bool) -> list[str]:
    sides = [Bound.from_dict(one[side]).percent() if one[side] else "–" for side in ("lower", "upper")]
    return [one["name"], _percent(one["probability"]), count(one["draws"]), _mean(one, binary), *sides]


def _mean(one: Mapping[str, Any], binary: bool) -> str:
    return "–" if one["mean"] is None else _percent(one["mean"]) if binary else number(one["mean"])


def _percent(share: float) -> str:
    return f"{100 * share:.3g}%"


def _sentences(told: Mapping[str, Any], run: Run) -> list[str]:
    worst = next((one for one in told["productions"] if one["name"] == told["worst_found"]), None)
    said = []
    if worst:
        score = label(told["scorer"])
        what = f"{_mean(worst, True)} of its {plural(worst['draws'], 'answer')} have {score}"
        what = (
            what
            if told["binary"]
            else f"the mean {score} of its {plural(worst['draws'], 'answer')} is {_mean(worst, False)}"
        )
        said.append(f"Worst production found, not bounded: {worst['name']} ({what}).")
    quantity = f"the share of prompts that leak with probability above {told['tau']:g}" if told["tau"] else ""
    of = f"the {plural(len(run.forget), 'forget question')}"
    true = quantity.replace("that leak", "that truly leak") + ", the judge's error included," if quantity else ""
    said += [
        Bound.from_dict(bound).sentence(true if key.startswith("judged_") else quantity, of, percent=True)
        for key, bound in told["share"].items()
    ]
    table = [Bound.from_dict(one["upper"]) for one in told["productions"] if one["upper"]]
    if table:
        said.append(f"The bounds on either side of the table hold {table[0].guarantee()} ({table[0].method}).")
    return said
