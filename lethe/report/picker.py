"""The data with which the page's script shows any question of every model: one small, safe block of JSON.

The numbers are already rounded and worded, so the script only places them. Questions and answers are untrusted: the
script inserts them as text, invisible characters are named, and the block contains no ``<``, ``>`` or ``&``.
"""

import json
from collections.abc import Mapping
from itertools import groupby
from types import SimpleNamespace

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
from lethe.text import LONGEST, NONE, count, label, named

SHOWN = 5
LISTED = 3  # per question, for the reader who picks the question
Drawn = Mapping[str, QuestionAnswers]


def ranking(run: Run) -> list[str]:
    """The scores by which answers are ranked: the 0/1 score first, if there is one."""
    return [scorer for scorer in (run.params.metrics.binary, run.params.metrics.leak) if scorer]


def drawn(run: Run) -> dict[str, Drawn]:
    """The answers drawn from each model, by model and question; empty if the answers or their scores are absent."""
    leak = run.params.metrics.leak
    return {
        model.name: question_answers(model.answers, ranking(run), leak, LISTED) or {}
        for model in run.models
    }


def worst(model: Model, run: Run, answers: Drawn) -> list[DrawnAnswer] | None:
    """At most ``SHOWN`` answers by the page's rule, a missing score as zero; None if no answer was judged."""
    if not answers or not judged(model.answers, ranking(run)):
        return None
    return worst_answers(answers.values(), SHOWN)


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
    names = list(
        dict.fromkeys([*run.forget, *(name for measured in rows.values() for name in measured)])
    )
    if not any(rows.values()):
        return None
    groups = columns(
        run, "question", (row.numbers for measured in rows.values() for row in measured.values())
    )
    every = [column for _, own in groups for column in own]
    shared: dict[str, int] = {}
    answers = sum(len(one.worst) for sampled in drawn.values() for one in sampled.values())
    longest = max(SHORTEST, BUDGET // max(1, answers))
    entries = []
    for model in run.models:
        measured, sampled = rows[model.name], drawn[model.name]
        entries.append(
            [
                _entry(measured.get(name), sampled.get(name), every, shared, longest)
                for name in names
            ]
        )
    chosen = chosen_question(run)
    block = {
        "noun": run.words.question,
        "bins": BINS,
        "scorer": label(run.params.metrics.leak),
        "scorers": list(map(label, ranking(run))),
        "columns": [[column.head, column.meaning] for column in every],
        "noted": [
            at
            for at, one in enumerate(every)
            if one.quantity.unit == "score" and len(one.names) == 1
        ],
        "chosen": names.index(chosen.prompt_id) if chosen and chosen.prompt_id in names else 0,
        "questions": [_question(name, run.forget.get(name)) for name in names],
        "models": [model.name for model in run.models],
        "shared": list(map(json.loads, shared)),
        "told": entries,
    }
    cells = [(name, [_cell(rows[model.name].get(name)) for model in run.models]) for name in names]
    keywords = "keyword_leak" in run.params.score.names and any(
        row.get("keywords") for row in run.forget.values()
    )
    by_key = {column.key: column for column in every}
    first = next((by_key[key] for key in BOUNDS if key in by_key), None)
    bound = f"{first.head}, the upper bound on the {first.meaning}" if first else ""
    return SimpleNamespace(
        data=as_data(block), columns=groups, rows=cells, bound=bound, keywords=keywords
    )


def as_data(value: object) -> Markup:
    """JSON that can neither end its script element nor become markup."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Markup(text.translate(UNSAFE))


def text_parts(text: str, longest: int = LONGEST, most: int | None = None) -> Text:
    """An untrusted text as the script shows it."""
    parts = _parts(text[:longest])
    if most is not None:
        length = min(len(text), longest)
        while length and (size := _size(parts)) > most:
            length = min(length - 1, length * most // size)
            parts = _parts(text[:length])
        longest = length
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


def _question(name: str, row: Row | None) -> list[Text]:
    texts = (
        (row["question"], row["answer"], ", ".join(row.get("keywords") or ()))
        if row
        else ("", "", "")
    )
    return [name, *map(text_parts, (name, *texts))]


def _entry(
    row: Question | None,
    answers: QuestionAnswers | None,
    every: list[Column],
    shared: dict[str, int],
    longest: int,
) -> list[object] | None:
    """The data of one question of one model: shared cells, own cells, answers drawn, histogram, worst answers."""
    if row is None:
        return None
    cells = [column.cell(row.numbers) for column in every]
    first = sum(column.quantity.unit not in OWN for column in every)
    entry = [_place(shared, cells[:first]), cells[first:]]
    if answers is None:
        return [*entry, count(row.value("n")), [], []]
    worst = [_answer(answer, shared, longest) for answer in answers.worst]
    return [*entry, count(answers.drawn), list(answers.histogram), worst]


def _answer(answer: DrawnAnswer, shared: dict[str, int], longest: int) -> list[object]:
    scores = _place(shared, [NONE if score is None else f"{score:.3g}" for score in answer.scores])
    shown: list[object] = [
        text_parts(answer.text, most=longest),
        scores,
        count(answer.times),
        count(answer.first),
    ]
    return [*shown, 1] if answer.greedy else shown


def _cell(row: Question | None) -> SimpleNamespace:
    if row is None:
        return SimpleNamespace(shown=NONE, greedy=False)
    key = next((key for key in BOUNDS if key in row.bounds), None)
    shown = (
        NONE
        if key is None
        else end(row.bounds[key], "probability" if key == BOUNDS[0] else "score")
    )
    greedy = row.numbers.row("leak", "greedy")
    return SimpleNamespace(shown=shown, greedy=bool(greedy and greedy.estimate))
