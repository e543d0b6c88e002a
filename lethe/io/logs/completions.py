"""Responses of a server that speaks OpenAI's interface, as scripts store them: vLLM, LM Studio, llama.cpp, Ollama.

A line or an item of a list is a response (`chat.completion`, `text_completion`), or an object with `request` and `response`.
A response does not name its question. The user's key beside it does, or the request.
"""

from __future__ import annotations

from collections.abc import Mapping

from lethe.errors import BadFile, plural
from lethe.io.answer_ends import ANSWERED
from lethe.io.files import Json
from lethe.io.logs._json import object_at, text_at
from lethe.io.logs._log import Format, Log
from lethe.io.logs._settings import RequestSettings
from lethe.io.logs._table import Table
from lethe.io.logs._untrusted import JsonFile
from lethe.io.logs.openai_batch import choices_of
from lethe.io.logs.responses import log_of, name_of, question_of
from lethe.io.row_ends import kind_of

OBJECTS = ("chat.completion", "text_completion")
IDS = ("prompt_id", "question_id", "custom_id")  # `id` is that of the response
ALONE = "question"  # the name of the only question, which nothing names


def _body(row: Mapping[str, Json]) -> dict[str, Json]:
    """The response of a row, which may lie beside its request; empty where there is none."""
    if row.get("object") in OBJECTS:
        return dict(row)
    return object_at(row, "response")


def _recognises(first: Mapping[str, Json]) -> bool:
    body = _body(first)
    return body.get("object") in OBJECTS and isinstance(body.get("choices"), list)


def _read(source: JsonFile) -> Log:
    table = Table(source.path)
    settings = RequestSettings()
    answers_of: dict[str, int] = {}
    name_of_question: dict[str, str] = {}
    servers: dict[str, None] = {}
    nameless = 0
    responses = 0
    for _, row in source.lines():
        responses += 1
        body = _body(row)
        request = object_at(row, "request") or row
        question = question_of(request)
        name = name_of(row, IDS, table)
        if name is None and question is not None:
            place = f"question {len(name_of_question) + 1}"
            name = name_of_question.setdefault(question, place)
        if name is None:
            nameless += 1
            name = ALONE
        settings.add(row, question=name)
        lost = kind_of(row)
        table.prompt(name, question)
        table.answered_by(name, text_at(body, "model"))
        servers |= dict.fromkeys(_servers_of(body))
        choices = list(choices_of(body))
        if not choices:
            answers_of[name] = answers_of.get(name, 0) + 1
            table.problem(name, answers_of[name], "no choices")
        for choice in choices:
            answers_of[name] = sample = answers_of.get(name, 0) + 1
            if choice.end not in ANSWERED or lost:
                table.problem(name, sample, lost or choice.end)
            else:
                table.answer(name, sample, choice.text, {})
    if nameless and responses > 1:
        problem = f"{plural(nameless, 'response')} of {responses} name no question"
        remedy = (
            "Add a key `prompt_id` or `prompt` to each, or store request and response together."
        )
        raise BadFile(source.path, problem, remedy)
    tool = ", ".join(servers) or "a server with OpenAI's interface"
    return log_of(table, settings, tool)


def _servers_of(body: Mapping[str, Json]) -> list[str]:
    """The servers whose own keys a response has; empty where no key tells."""
    servers = []
    if "model_info" in body or "stats" in body:
        servers.append("LM Studio")
    has_id_of_vllm = str(body.get("id")).startswith(("chatcmpl-", "cmpl-"))
    if has_id_of_vllm and "kv_transfer_params" in body:
        servers.append("vLLM")
    return servers


FORMAT = Format(
    "completions",
    "responses of a server with OpenAI's interface, such as vLLM or LM Studio (.json, .jsonl)",
    _recognises,
    _read,
)
