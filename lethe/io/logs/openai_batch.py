"""Output of OpenAI's batch API, which other servers write too: JSON lines, one request a line, with all of its choices."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from lethe.errors import BadRow, shortened
from lethe.io.answer_ends import ANSWERED, REFUSED, end_of
from lethe.io.facts import named
from lethe.io.files import Json
from lethe.io.logs._log import (
    Format,
    Log,
    Table,
    is_integer,
    object_at,
    objects_at,
    text_at,
)
from lethe.io.logs._untrusted import Source

CODE = re.compile(r"[a-z_]{1,40}")  # of an error, whose other words come from outside
DONE = 200
ENDED = {"completed": "stop", "incomplete": "length", "failed": "error", "cancelled": "cancelled"}


@dataclass(frozen=True)
class Choice:
    """An answer to a request, and why it ended (`lethe.io.answer_ends`)."""

    sample: int
    text: str | None
    end: str


def _recognises(first: Mapping[str, Json]) -> bool:
    return first.keys() >= {"custom_id", "response", "error"}


def _read(source: Source) -> Log:
    """Read the choices, of which the index is the sample; a request that brought none lacks as many as the others have."""
    table = Table(source.path, first=0)
    line_of_request: dict[str, int] = {}
    reason_of_lost: dict[str, str] = {}
    models: dict[str, None] = {}
    most = 1
    for line, row in source.lines():
        name = row.get("custom_id")
        if not isinstance(name, str):
            problem = f"`custom_id` is {type(name).__name__}, expected a text"
            raise BadRow(source.path, line, problem)
        if name in line_of_request:
            problem = f"request {shortened(name)} also stands in line {line_of_request[name]}"
            raise BadRow(source.path, line, problem)
        line_of_request[name] = line
        table.prompt(name)
        body = object_at(object_at(row, "response"), "body")
        model = text_at(body, "model")
        if model:
            models[model] = None
        choices = list(_choices(body))
        most = max(most, len(choices))
        reason = _failure(row)
        if reason or not choices:
            reason_of_lost[name] = reason or "no choices"
            continue
        for choice in choices:
            if choice.end in ANSWERED:
                table.answer(name, choice.sample, choice.text, {})
            else:
                table.problem(name, choice.sample, choice.end)
    for name, reason in reason_of_lost.items():
        for sample in range(most):
            table.problem(name, sample, reason)
    return table.log(
        "OpenAI batch",
        means=named,
        model=", ".join(models) or None,
        notes=("the output states no settings of sampling and no prompts",),
    )


def _failure(row: Mapping[str, Json]) -> str | None:
    """Why a request brought no answer, or None."""
    error = object_at(row, "error")
    if error:
        code = text_at(error, "code") or ""
        if CODE.fullmatch(code):
            return f"error {code}"
        return "error"
    response = object_at(row, "response")
    if not response:
        return "no response"
    status = response.get("status_code")
    if status == DONE:
        return None
    if isinstance(status, int) and 0 <= status < 1000:
        return f"status {status}"
    return "error"


def _choices(body: Mapping[str, Json]) -> Iterator[Choice]:
    """The choices of a completion, with or without chat, or the one answer of a response."""
    if body.get("object") == "response":
        yield _response(body)
        return
    for place, choice in enumerate(objects_at(body, "choices")):
        message = object_at(choice, "message")
        text = text_at(message, "content") if message else text_at(choice, "text")
        sample = choice.get("index")
        if not is_integer(sample):
            sample = place
        end = end_of(choice.get("finish_reason"), text)
        if message.get("refusal"):
            end = REFUSED
        yield Choice(sample, text, end)


def _response(body: Mapping[str, Json]) -> Choice:
    texts = []
    for item in objects_at(body, "output"):
        for part in objects_at(item, "content"):
            if isinstance(part.get("text"), str):
                texts.append(part["text"])
    text = "".join(texts) if texts else None
    return Choice(0, text, end_of(ENDED.get(str(body.get("status"))), text))


FORMAT = Format("openai-batch", "OpenAI batch output (.jsonl)", _recognises, _read)
