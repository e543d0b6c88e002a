"""Output of OpenAI's batch API, which other servers write too: JSON lines, one request a line, with all of its choices."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from lethe.errors import BadRow, shortened
from lethe.io.answer_ends import ANSWERED, REFUSED, end_of
from lethe.io.facts import named
from lethe.io.files import Json
from lethe.io.logs._log import Format, Log, Table, as_list, as_object, as_text
from lethe.io.logs._untrusted import Source

CODE = re.compile(r"[a-z_]{1,40}")  # of an error, whose other words come from outside
DONE = 200
ENDED = {"completed": "stop", "incomplete": "length", "failed": "error", "cancelled": "cancelled"}


@dataclass(frozen=True)
class Choice:
    sample: int
    text: str | None
    end: str


def _recognises(first: Mapping[str, Json]) -> bool:
    return first.keys() >= {"custom_id", "response", "error"}


def _read(source: Source) -> Log:
    """Read the choices, of which the index is the sample; a request that brought none lacks as many as the others have."""
    table = Table(source.path, first=0)
    seen: dict[str, int] = {}
    lost: dict[str, str] = {}
    models: dict[str, None] = {}
    most = 1
    for line, row in source.lines():
        name = row.get("custom_id")
        if not isinstance(name, str):
            problem = f"`custom_id` is {type(name).__name__}, expected a text"
            raise BadRow(source.path, line, problem)
        if name in seen:
            problem = f"request {shortened(name)} also stands in line {seen[name]}"
            raise BadRow(source.path, line, problem)
        seen[name] = line
        table.prompt(name)
        body = as_object(as_object(row.get("response")).get("body"))
        if model := as_text(body.get("model")):
            models[model] = None
        choices = list(_choices(body))
        most = max(most, len(choices))
        if reason := _failure(row) or (None if choices else "no choices"):
            lost[name] = reason
            continue
        for choice in choices:
            if choice.end in ANSWERED:
                table.answer(name, choice.sample, choice.text, {})
            else:
                table.problem(name, choice.sample, choice.end)
    for name, reason in lost.items():
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
    if error := as_object(row.get("error")):
        code = as_text(error.get("code")) or ""
        return f"error {code}" if CODE.fullmatch(code) else "error"
    response = as_object(row.get("response"))
    if not response:
        return "no response"
    status = response.get("status_code")
    if status == DONE:
        return None
    return f"status {status}" if isinstance(status, int) and 0 <= status < 1000 else "error"


def _choices(body: Mapping[str, Json]) -> Iterator[Choice]:
    """The choices of a completion, with or without chat, or the one answer of a response."""
    if body.get("object") == "response":
        parts = [as_object(part) for item in as_list(body.get("output")) for part in _parts(item)]
        texts = [part["text"] for part in parts if isinstance(part.get("text"), str)]
        text = "".join(texts) if texts else None
        yield Choice(0, text, end_of(ENDED.get(str(body.get("status"))), text))
        return
    for place, choice in enumerate(map(as_object, as_list(body.get("choices")))):
        message = as_object(choice.get("message"))
        text = as_text(message.get("content") if message else choice.get("text"))
        index = choice.get("index")
        sample = index if isinstance(index, int) and not isinstance(index, bool) else place
        end = REFUSED if message.get("refusal") else end_of(choice.get("finish_reason"), text)
        yield Choice(sample, text, end)


def _parts(item: Json) -> list[Json]:
    return as_list(as_object(item).get("content"))


FORMAT = Format("openai-batch", "OpenAI batch output (.jsonl)", _recognises, _read)
