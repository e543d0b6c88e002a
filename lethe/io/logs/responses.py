"""Answers as a list per question, as scripts and vLLM's offline outputs write them: JSON lines, or a list of objects."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from lethe.errors import BadRow, plural
from lethe.io import ids
from lethe.io.column_names import meant, spread
from lethe.io.facts import named
from lethe.io.files import Json
from lethe.io.logs._json import as_text, conversation, is_integer, number, objects_at
from lethe.io.logs._log import Format, Log
from lethe.io.logs._settings import RequestSettings, setting_of
from lethe.io.logs._table import Table
from lethe.io.logs._untrusted import JsonFile
from lethe.io.row_ends import STATED, ending, kind_of

LISTS = ("responses", "outputs", "generations", "completions", "answers", "samples", "predictions")
TEXTS = ("text", "response", "output", "content", "generation", "completion", "answer")
QUESTIONS = ("prompt", "question", "query", "input", "messages")
IDS = ("prompt_id", "question_id", "id", "request_id")
# Numbers of an answer that say nothing of what it reveals.
NO_SCORES = frozenset("index cumulative_logprob logprob logprobs id attempt".split())


@dataclass(frozen=True)
class Response:
    """An answer of a list, why it is missing, and its scores."""

    text: str | None
    missing: str | None = None
    scores: Mapping[str, float] = field(default_factory=dict)


def list_of(row: Mapping[str, Json]) -> str | None:
    """The key of a question's answers: a list of texts, or of objects with a text; None where there is none."""
    for key in LISTS:
        answers = row.get(key)
        if isinstance(answers, list) and answers and all(map(_is_response, answers)):
            return key
    return None


def _is_response(value: Json) -> bool:
    if isinstance(value, dict):
        return any(isinstance(value.get(key), str) for key in TEXTS)
    return value is None or isinstance(value, str)


def _recognises(first: Mapping[str, Json]) -> bool:
    return list_of(first) is not None and any(key in first for key in (*QUESTIONS, *IDS))


def _read(source: JsonFile) -> Log:
    """Read the lists. Lines of one question are read as one list; a question without an id is counted."""
    table = Table(source.path)
    settings = RequestSettings()
    answers_of: dict[str, int] = {}
    name_of_question: dict[str, str] = {}
    is_vllm = False
    for line, row in source.lines():
        key = list_of(row)
        if key is None:
            legal = ", ".join(f"`{name}`" for name in LISTS)
            problem = "holds no list of answers: texts, or objects with a text"
            raise BadRow(source.path, line, problem, f"Name the list by one of {legal}.")
        is_vllm |= "prompt_token_ids" in row
        question = question_of(row)
        name = name_of(row, IDS, table)
        if name is None or is_vllm:  # vLLM numbers requests, and several may ask one question
            place = f"question {len(name_of_question) + 1}"
            name = name_of_question.setdefault(question or str(line), name or place)
        settings.add_answers(row, row[key], name)
        table.prompt(name, question)
        table.answered_by(name, as_text(row.get("model", row.get("model_id"))))
        for response in _responses(source, line, row, key):
            answers_of[name] = sample = answers_of.get(name, 0) + 1
            if response.missing:
                table.problem(name, sample, response.missing)
            else:
                table.answer(name, sample, response.text, response.scores)
    tool = "a list of answers per question"
    if is_vllm:
        tool = "vLLM"
    return log_of(table, settings, tool)


def log_of(table: Table, settings: RequestSettings, tool: str) -> Log:
    """The log of a table as a script stores it, with the settings of its requests."""
    return table.log(
        tool,
        means=named,
        model=table.models(),
        **settings.of_log(),
    )


def question_of(row: Mapping[str, Json]) -> str | None:
    """The text of the question of a row: a text, or a conversation as its messages."""
    for key in QUESTIONS:
        value = row.get(key)
        if isinstance(value, str):
            return value
        if isinstance(value, list) and value:
            messages = []
            for message in objects_at(row, key):
                messages.append((message.get("role"), message.get("content")))
            return conversation(messages)
    return None


def name_of(row: Mapping[str, Json], keys: Iterable[str], table: Table) -> str | None:
    """The id of a row's question by the first of ``keys`` that has one; None where none has."""
    for key in keys:
        value = row.get(key)
        if isinstance(value, str) or is_integer(value):
            return table.name(value)
    return None


def _responses(
    source: JsonFile, line: int, row: Mapping[str, Json], key: str
) -> Iterator[Response]:
    """The answers of a list, with the numbers that lie beside them."""
    answers = row[key]
    scores_of = _lists_of_scores(source, line, row, key)
    ends_of = {}
    members = spread(row)
    for name in ending(members):
        values = members[name]
        if isinstance(values, list) and len(values) == len(answers):
            ends_of[name] = values
        elif not isinstance(values, (dict, list)):  # of the request that brought them all
            ends_of[name] = [values] * len(answers)
    for place, answer in enumerate(answers):
        scores = {name: values[place] for name, values in scores_of.items()}
        ends = {name: values[place] for name, values in ends_of.items()}
        if isinstance(answer, dict):
            yield _of_object({**ends, **answer}, scores)
        elif answer is None:
            yield Response(None, "no text")
        else:
            yield Response(answer, kind_of(ends), scores)


def _of_object(answer: Mapping[str, Json], scores: dict[str, float]) -> Response:
    """An answer that is an object: its text, why it is missing, and its numbers beside ``scores``."""
    (text, *_) = [answer[key] for key in TEXTS if isinstance(answer.get(key), str)]
    for name, value in answer.items():
        if isinstance(value, (int, float)) and is_score(name):
            scores[name] = number(value)
    return Response(as_text(text), kind_of(answer), scores)


def scores_beside(answer: Mapping[str, Json]) -> dict[str, float]:
    """The scores in an answer: its numbers, NaN for a null, without what states its place or its sampling."""
    scores = {}
    for name, value in answer.items():
        if is_score(name) and (value is None or isinstance(value, (int, float))):
            scores[name] = number(value)
    return scores


def is_score(name: str) -> bool:
    """Whether a number of this name beside an answer may be a score: no place, no count and no setting of its sampling."""
    words = set(name.casefold().split("_"))
    return not _is_no_score(name) and not ids.MEASURES & words


def _is_no_score(name: str) -> bool:
    states_end = meant(name, STATED) is not None
    return name.casefold() in NO_SCORES or states_end or setting_of(name) is not None


def _lists_of_scores(
    source: JsonFile, line: int, row: Mapping[str, Json], key: str
) -> dict[str, list[float]]:
    """The lists of numbers beside the answers, one number for each answer."""
    lists = {}
    n = len(row[key])
    for name, values in row.items():
        if name == key or "token" in name or not isinstance(values, list) or not values:
            continue
        are_numbers = all(value is None or isinstance(value, (int, float)) for value in values)
        if not are_numbers:
            continue
        if len(values) != n:
            problem = f"`{name[:60]}` has {plural(len(values), 'number')} for {plural(n, 'answer')}"
            raise BadRow(source.path, line, problem, "Give one number for each answer.")
        if not _is_no_score(name):
            lists[name] = [number(value) for value in values]
    return lists


FORMAT = Format(
    "responses",
    "a list of answers per question, such as `responses: [...]` or vLLM's `outputs` (.json, .jsonl)",
    _recognises,
    _read,
)
