"""The data with which the page's script shows any question of every model: one small, safe block of JSON.

The numbers are already rounded and worded, so the script only places them. Questions and answers are untrusted: the
script inserts them as text, invisible characters are named, and the block contains no ``<``, ``>`` or ``&``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import groupby
from types import SimpleNamespace
from typing import Any

from markupsafe import Markup

from lethe.evaluation.answers import (
    BINS,
    DrawnAnswer,
    QuestionAnswers,
    judged,
    question_answers,
    worst_answers,
)
from lethe.evaluation.run import Model, Question, Run
from lethe.io.artifacts import Row
from lethe.report.columns import Column, columns, end
from lethe.report.figures import BOUNDS, chosen_question
from lethe.report.templates import visible
from lethe.text import LONGEST, NONE, count, label, named

SHOWN = 5
KEPT = 3  # per question, for the reader who picks the question
RULE = (
    "For each question, the sampled answer with the highest score ({scores}; among equals, the one drawn most often, "
    "then the one drawn first); of these the {shown} highest. Answers that score 0 are left out."
)

Drawn = Mapping[str, QuestionAnswers]


def rule(run: Run) -> str:
    return RULE.format(scores=", then ".join(map(label, ranking(run))), shown=SHOWN)


def ranking(run: Run) -> list[str]:
    """The scores by which answers are ranked: the 0/1 score first, if there is one."""
    return [scorer for scorer in (run.params.metrics.binary, run.params.metrics.leak) if scorer]


def drawn(run: Run) -> dict[str, Drawn]:
    """The answers drawn from each model, by model and question; empty if the answers or their scores are absent."""
    leak = run.params.metrics.leak
    return {model.name: question_answers(model.answers, ranking(run), leak, KEPT) or {} for model in run.models}


def worst(model: Model, run: Run, found: Drawn) -> list[SimpleNamespace] | None:
    """At most ``SHOWN`` answers by the rule above; missing scores rank as zero here and are shown as missing.

    None if no answer was judged: then nothing is known about the worst answer.
    """
    if not found or not judged(model, ranking(run)):
        return None
    return [_worst(answer, run, found) for answer in worst_answers(found.values(), SHOWN)]


def _worst(answer: DrawnAnswer, run: Run, found: Drawn) -> SimpleNamespace:
    row = run.forget.get(answer.prompt_id)
    return SimpleNamespace(
        prompt_id=answer.prompt_id,
        question=visible(row["question"] if row else answer.prompt_id),
        expected=visible(row["answer"] if row else ""),
        text=visible(answer.text),
        times=answer.times,
        drawn=found[answer.prompt_id].drawn,
        first=answer.first,
        scores=dict(zip(ranking(run), answer.scores, strict=True)),
        greedy=answer.greedy,
    )


BUDGET = 1_500_000  # bytes for all answers, so that a page of many models and questions stays small
SHORTEST = 60  # bytes of an answer that a reader can still judge
OWN = ("score", "deviation", "number")  # units of the last columns, whose cells few questions share
UNSAFE = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})
# A text is a string, or a list of strings and named invisible characters [name, code point]; where it was cut,
# the number of all its characters comes last.
Text = str | list[str | list[str] | int]


def picker(run: Run, drawn: Mapping[str, Drawn]) -> SimpleNamespace | None:
    """All questions of all models; None where no question was measured."""
    rows = {model.name: {row.prompt_id: row for row in model.questions} for model in run.models}
    names = list(dict.fromkeys([*run.forget, *(name for known in rows.values() for name in known)]))
    if not any(rows.values()):
        return None
    groups = columns(run, "question", (row.numbers for known in rows.values() for row in known.values()))
    every = [column for _, own in groups for column in own]
    shared: dict[str, int] = {}
    longest = _allowance(drawn)
    told = []
    for model in run.models:
        known, found = rows[model.name], drawn[model.name]
        told.append([_entry(known.get(name), found.get(name), every, shared, longest) for name in names])
    chosen = chosen_question(run)
    block = {
        "noun": run.words.question,
        "bins": BINS,
        "scorer": label(run.params.metrics.leak),
        "scorers": list(map(label, ranking(run))),
        "columns": [[column.head, column.told] for column in every],
        "noted": [
            place
            for place, column in enumerate(every)
            if column.quantity.unit == "score" and len(column.names) == 1
        ],
        "chosen": names.index(chosen.prompt_id) if chosen and chosen.prompt_id in names else 0,
        "questions": [_question(name, run.forget.get(name)) for name in names],
        "models": [model.name for model in run.models],
        "shared": list(map(json.loads, shared)),
        "told": told,
    }
    cells = [(name, [_cell(rows[model.name].get(name)) for model in run.models]) for name in names]
    keywords = "keyword_leak" in run.params.score.names and any(row.get("keywords") for row in run.forget.values())
    return SimpleNamespace(
        data=as_data(block),
        columns=groups,
        heads=[model.name for model in run.models],
        rows=cells,
        told=_told_of_bound(every),
        keywords=keywords,
    )


def as_data(value: object) -> Markup:
    """JSON that can neither end its script element nor become markup."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Markup(text.translate(UNSAFE))


def text_parts(text: str, longest: int = LONGEST, most: int | None = None) -> Text:
    """An untrusted text as the script shows it."""
    parts = _parts(text[:longest])
    if most is not None:
        kept = min(len(text), longest)
        while kept and (size := _size(parts)) > most:
            kept = min(kept - 1, kept * most // size)
            parts = _parts(text[:kept])
        longest = kept
    if len(text) <= longest:
        return parts
    return [*([parts] if isinstance(parts, str) else parts), len(text)]


def _parts(text: str) -> Text:
    if text.isprintable():
        return text
    parts: list[str | list[str] | int] = []
    for invisible, characters in groupby(text, key=lambda character: named(character) is not None):
        if invisible:
            parts += [[named(character) or "", f"{ord(character):04X}"] for character in characters]
        else:
            parts.append("".join(characters))
    return parts


def _size(parts: Text) -> int:
    return len(as_data(parts).encode())


def _place(shared: dict[str, int], value: object) -> int:
    """The place of a value that many entries repeat and that is stored once."""
    return shared.setdefault(json.dumps(value), len(shared))


def _allowance(drawn: Mapping[str, Drawn]) -> int:
    answers = sum(len(one.worst) for found in drawn.values() for one in found.values())
    return max(SHORTEST, BUDGET // max(1, answers))


def _question(name: str, row: Row | None) -> list[Text]:
    told = (row["question"], row["answer"], ", ".join(row.get("keywords") or ())) if row else ("", "", "")
    return [name, *map(text_parts, (name, *told))]


def _entry(
    row: Question | None,
    found: QuestionAnswers | None,
    every: list[Column],
    shared: dict[str, int],
    longest: int,
) -> list[Any] | None:
    """The data of one question of one model: shared cells, own cells, answers drawn, histogram, worst answers."""
    if row is None:
        return None
    cells = [column.cell(row.numbers) for column in every]
    first = sum(column.quantity.unit not in OWN for column in every)
    kept = [_place(shared, cells[:first]), cells[first:]]
    if found is None:
        return [*kept, count(row.value("n")), [], []]
    worst = [_answer(answer, shared, longest) for answer in found.worst]
    return [*kept, count(found.drawn), list(found.histogram), worst]


def _answer(answer: DrawnAnswer, shared: dict[str, int], longest: int) -> list[Any]:
    scores = _place(shared, [NONE if score is None else f"{score:.3g}" for score in answer.scores])
    told = [text_parts(answer.text, most=longest), scores, count(answer.times), count(answer.first)]
    return [*told, 1] if answer.greedy else told


def _cell(row: Question | None) -> SimpleNamespace:
    if row is None:
        return SimpleNamespace(shown=NONE, greedy=False)
    key = next((key for key in BOUNDS if key in row.bounds), None)
    shown = NONE if key is None else end(row.bounds[key], "probability" if key == BOUNDS[0] else "score")
    greedy = row.numbers.row("leak", "greedy")
    return SimpleNamespace(shown=shown, greedy=bool(greedy and greedy.estimate))


def _told_of_bound(every: list[Column]) -> str:
    """What the table of all questions holds, with its guarantee; empty if it holds nothing."""
    known = {column.key: column for column in every}
    return next(
        (f"{known[key].head}, the upper bound on the {known[key].told}" for key in BOUNDS if key in known), ""
    )
