"""Output of OpenAI's batch API, which other servers write too: JSON lines, one request a line, with all of its choices."""

import itertools
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from lethe.errors import BadFile, BadRow, shortened
from lethe.io.answer_ends import ANSWERED, CUT_OFF, ERROR, REFUSED, end_of
from lethe.io.facts import named
from lethe.io.files import Json
from lethe.io.logs._json import is_integer, object_at, objects_at, text_at
from lethe.io.logs._log import Format, Log, is_request
from lethe.io.logs._settings import RequestSettings
from lethe.io.logs._table import NOT_WRITTEN, Table
from lethe.io.logs._untrusted import JsonFile
from lethe.io.logs.responses import question_of
from lethe.io.row_ends import kind_of

CODE = re.compile(r"[a-z_]{1,40}")  # of an error, whose other words come from outside
DONE = 200
RESPONSE = "response"  # the kind of an answer of the newer interface
MOST_BESIDE = 50  # files of a folder in which the input is looked for
MOST_CHOICES = 10_000  # that a request may ask for
ENDED = {"completed": "stop", "incomplete": "length", "failed": "error", "cancelled": "cancelled"}


@dataclass(frozen=True)
class BatchAnswer:
    """An answer to a request, and why it ended (`lethe.io.answer_ends`)."""

    sample: int
    text: str | None
    end: str


def _recognises(first: Mapping[str, Json]) -> bool:
    return first.keys() >= {"custom_id", "response", "error"}


def _read(source: JsonFile) -> Log:
    """Read the choices, of which the index is the sample; a request that brought none lacks as many as the others have.

    With the input file of the batch beside the output, requests of one question are read as its answers, numbered in the
    order of the input, and a request without a line in the output lacks its answers.
    """
    output = _Output(source)
    asked = _input_beside(source.path, output.line_of_request)
    settings = RequestSettings()
    for request, body in asked.body_of_request.items():
        sent = {**body, "response": output.response_of_request.get(request)}
        settings.add(sent, question=question_of(body) or request)
    if not asked.body_of_request:
        for request, response in output.response_of_request.items():
            settings.add({"response": response}, question=request)
        table = output.table_by_request()
    else:
        table = output.table_by_question(asked.body_of_request)
    return table.log(
        "OpenAI batch",
        means=named,
        model=table.models(),
        **settings.of_log(),
        notes=(asked.note,),
    )


class _Output:
    """The lines of an output: the choices of each request, or why a request brought none."""

    def __init__(self, source: JsonFile):
        self.path = source.path
        self.line_of_request: dict[str, int] = {}
        self.choices_of_request: dict[str, list[BatchAnswer]] = {}
        self.reason_of_lost: dict[str, str] = {}
        self.model_of_request: dict[str, str | None] = {}
        self.response_of_request: dict[str, dict[str, Json]] = {}
        for line, row in source.lines():
            self._add(line, row)
        counts = map(len, self.choices_of_request.values())
        self.most = max(counts, default=1)

    def _add(self, line: int, row: Mapping[str, Json]) -> None:
        name = row.get("custom_id")
        if not isinstance(name, str):
            problem = f"`custom_id` is {type(name).__name__}, expected a text"
            raise BadRow(self.path, line, problem)
        if name in self.line_of_request:
            problem = f"request {shortened(name)} also stands in line {self.line_of_request[name]}"
            raise BadRow(self.path, line, problem)
        self.line_of_request[name] = line
        body = object_at(object_at(row, "response"), "body")
        self.model_of_request[name] = text_at(body, "model")
        self.response_of_request[name] = object_at(row, "response")
        choices = list(choices_of(body))
        reason = _failure(row)
        if reason or not choices:
            self.reason_of_lost[name] = reason or "no choices"
        else:
            self.choices_of_request[name] = choices

    def table_by_request(self) -> Table:
        """The answers where nothing but a request names its question."""
        table = Table(self.path, first=0)
        for name in self.line_of_request:
            table.prompt(name)
            table.answered_by(name, self.model_of_request[name])
            for choice in self.choices_of_request.get(name, ()):
                _add_choice(table, name, choice.sample, choice)
        for name, reason in self.reason_of_lost.items():
            for sample in range(self.most):
                table.problem(name, sample, reason)
        return table

    def table_by_question(self, body_of_request: Mapping[str, Mapping[str, Json]]) -> Table:
        """The answers by the questions that the requests ask; the first request of a question names it."""
        table = Table(self.path, first=0)
        name_of_question: dict[str, str] = {}
        answers_of: Counter[str] = Counter()
        for request, body in body_of_request.items():
            question = question_of(body) or request
            name = name_of_question.setdefault(question, request)
            table.prompt(name, question_of(body))
            table.answered_by(name, self.model_of_request.get(request))
            stated = body.get("n")
            n = stated if is_integer(stated) and 0 < stated <= MOST_CHOICES else 1
            choices = self.choices_of_request.get(request, [])
            first = answers_of[name]
            for choice in choices:
                _add_choice(table, name, first + choice.sample, choice)
            lost = self.reason_of_lost.get(request, NOT_WRITTEN)
            known = {choice.sample for choice in choices}
            for sample in range(n):
                if sample not in known:
                    table.problem(name, first + sample, lost)
            answers_of[name] = first + max([n, *(sample + 1 for sample in known)])
        return table


def _add_choice(table: Table, name: str, sample: int, choice: BatchAnswer) -> None:
    if choice.end in ANSWERED:
        table.answer(name, sample, choice.text, {})
    else:
        table.problem(name, sample, choice.end)


@dataclass(frozen=True)
class _RequestBodies:
    """The bodies of the requests of a batch by their names, none where no input file was found, and what to say of it."""

    body_of_request: Mapping[str, Mapping[str, Json]]
    note: str


def _input_beside(path: Path, requests: Mapping[str, int]) -> _RequestBodies:
    """Find the input file of a batch among the files beside its output: the only one that has all of its requests."""
    found: dict[str, dict[str, Mapping[str, Json]]] = {}
    for beside in itertools.islice(sorted(path.parent.glob("*.jsonl*")), MOST_BESIDE):
        if beside == path or not beside.is_file():
            continue
        try:
            source = JsonFile(beside)
            if not is_request(source.first):
                continue
            bodies: dict[str, Mapping[str, Json]] = {}
            for _, row in source.lines():
                bodies[str(row.get("custom_id"))] = object_at(row, "body")
        except (BadFile, BadRow, OSError):
            continue  # a stranger's file, of which nothing is known
        if requests.keys() <= bodies.keys():
            found[beside.name] = bodies
    if len(found) == 1:
        ((name, body_of_request),) = found.items()
        return _RequestBodies(
            body_of_request, f"prompts and settings are those of the input file {name}"
        )
    note = "the output states no settings of sampling and no prompts"
    if found:
        names = ", ".join(list(found)[:3])
        note += f"; {len(found)} files beside it have its requests ({names}), and none was read"
    else:
        note += "; put the input file of the batch beside it"
    return _RequestBodies({}, note)


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
        body = object_at(response, "body")
        if body.get("object") == RESPONSE:  # whose status says how its answer ended
            return kind_of({"error": row.get("error"), "response.error": body.get("error")})
        return kind_of(row)
    if isinstance(status, int) and 0 <= status < 1000:
        return f"status {status}"
    return "error"


def choices_of(body: Mapping[str, Json]) -> Iterator[BatchAnswer]:
    """The choices of a completion, with or without chat, or the one answer of a response."""
    if body.get("object") == RESPONSE:
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
        if choice.get("error") or body.get("error"):
            end = ERROR
        yield BatchAnswer(sample, text, end)


def _response(body: Mapping[str, Json]) -> BatchAnswer:
    texts = []
    for item in objects_at(body, "output"):
        for part in objects_at(item, "content"):
            if isinstance(part.get("text"), str):
                texts.append(part["text"])
    text = "".join(texts) if texts else None
    stated = ENDED.get(str(body.get("status")))
    reason = text_at(object_at(body, "incomplete_details"), "reason")
    if stated == CUT_OFF and reason not in (None, "max_output_tokens", "max_tokens"):
        stated = reason
    return BatchAnswer(0, text, end_of(stated, text))


FORMAT = Format("openai-batch", "OpenAI batch output (.jsonl)", _recognises, _read)
