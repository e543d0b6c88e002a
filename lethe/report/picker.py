"""The data with which the page's script shows any question of every model: one small, safe block of JSON.

The numbers are already rounded and worded, so the script only places them. Questions and answers are untrusted: the
script inserts them as text, invisible characters are named, and the block contains no ``<``, ``>`` or ``&``.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain, groupby

from markupsafe import Markup

from lethe.io.artifacts import Row
from lethe.measure.answers import (
    BINS,
    DrawnAnswer,
    QuestionAnswers,
    judged,
    question_answers,
    worst_answers,
)
from lethe.measure.run import Question, Run, RunModel
from lethe.report.columns import Column, columns, end
from lethe.report.evidence import EvidencePath
from lethe.report.figures import BOUNDS, chosen_question
from lethe.report.redraw import Redraw
from lethe.results.quantities import Unit
from lethe.text import LONGEST, NONE, count, label, named

SHOWN = 5
LISTED = 5  # per question, for the reader who picks the question
Drawn = Mapping[str, QuestionAnswers]


def ranking(run: Run) -> list[str]:
    """The scores by which answers are ranked: the 0/1 score first, if there is one."""
    return [scorer for scorer in (run.params.metrics.binary, run.params.metrics.leak) if scorer]


def drawn(run: Run) -> dict[str, Drawn]:
    """The answers drawn from each model, by model and question; empty if the answers or their scores are absent."""
    leak = run.params.metrics.leak
    answers_of_model: dict[str, Drawn] = {}
    for model in run.models:
        answers = question_answers(model.answers, ranking(run), leak, LISTED)
        answers_of_model[model.name] = answers or {}
    return answers_of_model


def worst(model: RunModel, run: Run, answers: Drawn) -> list[DrawnAnswer] | None:
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


@dataclass(frozen=True)
class Cell:
    """A question of a model in the table of questions: its upper bound, and whether its greedy answer leaks."""

    shown: str = NONE
    greedy: bool = False


@dataclass(frozen=True)
class Picker:
    """All questions of all models: the script's data, its columns, and the table that needs no script."""

    data: Markup
    columns: list[tuple[str, list[Column]]]
    rows: list[tuple[str, list[Cell]]]
    bound: str  # what the table's bounds are
    keywords: bool


def picker(run: Run, drawn: Mapping[str, Drawn]) -> Picker | None:
    """All questions of all models; None where no question was measured."""
    questions_of_model: dict[str, dict[str, Question]] = {}
    names = dict.fromkeys(run.forget)
    measured: list[Question] = []
    for model in run.models:
        questions = {question.prompt_id: question for question in model.questions}
        questions_of_model[model.name] = questions
        measured += questions.values()
        names |= dict.fromkeys(questions)
    if not measured:
        return None
    groups = columns(run, "question", (question.numbers for question in measured))
    shown_columns = list(chain.from_iterable(members for _, members in groups))

    rows = []
    for name in names:
        cells = []
        for questions in questions_of_model.values():
            cells.append(_cell(questions.get(name)))
        rows.append((name, cells))
    has_keywords = any(row.get("keywords") for row in run.forget.values())
    return Picker(
        data=as_data(_block(run, list(names), questions_of_model, drawn, shown_columns)),
        columns=groups,
        rows=rows,
        bound=_bound_in_words(shown_columns),
        keywords=has_keywords and "keyword_leak" in run.params.score.names,
    )


def _block(
    run: Run,
    names: list[str],
    questions_of_model: Mapping[str, Mapping[str, Question]],
    drawn: Mapping[str, Drawn],
    shown_columns: list[Column],
) -> dict[str, object]:
    """What the script reads; what many entries repeat is stored once."""
    longest = _longest_answer(drawn)
    shared: dict[str, int] = {}
    entries = []
    for model in run.models:
        questions = questions_of_model[model.name]
        answers_of_question = drawn[model.name]
        entries_of_model = []
        for name in names:
            question = questions.get(name)
            answers = answers_of_question.get(name)
            entries_of_model.append(_entry(question, answers, shown_columns, shared, longest))
        entries.append(entries_of_model)

    noted = []
    heads = []
    for place, column in enumerate(shown_columns):
        heads.append([column.head, column.meaning])
        if column.quantity.unit == "score" and len(column.names) == 1:
            noted.append(place)
    keywords = []
    questions_as_text = []
    for name in names:
        row = run.forget.get(name)
        keywords.append(_keywords(row, run))
        questions_as_text.append(_question(name, row))
    chosen = chosen_question(run)
    place_of_chosen = 0
    if chosen and chosen.prompt_id in names:
        place_of_chosen = names.index(chosen.prompt_id)
    return {
        "noun": run.words.question,
        "bins": BINS,
        "scorer": label(run.params.metrics.leak),
        "scorers": list(map(label, ranking(run))),
        "decides": run.params.metrics.binary is not None,
        "keywords": keywords,
        "seed": run.params.sample.seed,
        "redraw": [list(Redraw.of(run, model).as_data()) for model in run.models],
        "columns": heads,
        "noted": noted,
        "chosen": place_of_chosen,
        "questions": questions_as_text,
        "models": [model.name for model in run.models],
        "shared": list(map(json.loads, shared)),
        "told": entries,
    }


def _longest_answer(drawn: Mapping[str, Drawn]) -> int:
    """The bytes for each answer, so that all of them keep within `BUDGET`."""
    n_answers = 0
    for answers_of_question in drawn.values():
        for answers in answers_of_question.values():
            n_answers += len(answers.worst)
    return max(SHORTEST, BUDGET // max(1, n_answers))


def _keywords(row: Row | None, run: Run) -> list[str]:
    """What the script marks in an answer: the keywords of a row, where keywords are scored."""
    if row is None or "keyword_leak" not in run.params.score.names:
        return []
    return list(row.get("keywords") or ())


def _bound_in_words(shown_columns: list[Column]) -> str:
    column_of_key = {column.key: column for column in shown_columns}
    for key in BOUNDS:
        if key in column_of_key:
            column = column_of_key[key]
            return f"{column.head}, the upper bound on the {column.meaning}"
    return ""


def as_data(value: object) -> Markup:
    """JSON that can neither end its script element nor become markup."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Markup(text.translate(UNSAFE))


def text_parts(text: str, most: int | None = None) -> Text:
    """An untrusted text as the script shows it."""
    length = min(len(text), LONGEST)
    parts = _parts(text[:length])
    if most is not None:
        size = _size(parts)
        while length and size > most:
            length = min(length - 1, length * most // size)
            parts = _parts(text[:length])
            size = _size(parts)
    if len(text) <= length:
        return parts
    if isinstance(parts, str):
        return [parts, len(text)]
    return [*parts, len(text)]


def _parts(text: str) -> Text:
    if text.isprintable():
        return text
    parts: list[str | list[str] | int] = []
    for invisible, characters in groupby(text, key=lambda character: named(character) is not None):
        if not invisible:
            parts.append("".join(characters))
            continue
        for character in characters:
            parts.append([named(character) or "", f"{ord(character):04X}"])
    return parts


def _size(parts: Text) -> int:
    return len(as_data(parts).encode())


def _place(shared: dict[str, int], value: object) -> int:
    """The place of a value that many entries repeat and that is stored once."""
    return shared.setdefault(json.dumps(value), len(shared))


def _question(name: str, row: Row | None) -> list[Text]:
    texts = [name, "", "", ""]
    if row:
        keywords = ", ".join(row.get("keywords") or ())
        texts = [name, row["question"], row["answer"], keywords]
    return [name, *map(text_parts, texts)]


def _entry(
    row: Question | None,
    answers: QuestionAnswers | None,
    shown_columns: list[Column],
    shared: dict[str, int],
    longest: int,
) -> list[object] | None:
    """The data of one question of one model: shared cells, own cells, answers drawn, histogram, worst answers,
    and the path of the evidence where there is one.
    """
    if row is None:
        return None
    cells = []
    n_shared = 0
    for column in shown_columns:
        cells.append(column.cell(row.numbers))
        n_shared += column.quantity.unit not in OWN
    entry: list[object] = [_place(shared, cells[:n_shared]), cells[n_shared:]]
    if answers is None:
        entry += [count(row.value("n")), [], []]
    else:
        worst = [_answer(answer, shared, longest) for answer in answers.worst]
        entry += [count(answers.drawn), list(answers.histogram), worst]
    path = EvidencePath.of(row)
    if path is not None:
        *axes, forgot, leaks = path.as_data()
        entry.append([_place(shared, axes), forgot, leaks])
    return entry


def _answer(answer: DrawnAnswer, shared: dict[str, int], longest: int) -> list[object]:
    """The data of an answer: its text, the place of its scores, how often and when first it was drawn; 1 if it is greedy."""
    scores = []
    for score in answer.scores:
        scores.append(NONE if score is None else f"{score:.3g}")
    shown: list[object] = [
        text_parts(answer.text, most=longest),
        _place(shared, scores),
        count(answer.times),
        count(answer.first),
    ]
    if answer.greedy:
        shown.append(1)
    return shown


def _cell(row: Question | None) -> Cell:
    if row is None:
        return Cell()
    shown = NONE
    for key in BOUNDS:
        if key in row.bounds:
            unit: Unit = "score"
            if key == BOUNDS[0]:
                unit = "probability"
            shown = end(row.bounds[key], unit)
            break
    greedy = row.numbers.row("leak", "greedy")
    return Cell(shown, greedy=bool(greedy and greedy.estimate))
