"""The kind servers: a server of answers that breaks its replies, lies in them, drips, never ends or points elsewhere."""

import contextlib
import copy
import gzip
import json
import math
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.fuzz.commands import Case
from tests.lethe.sampling.fault_server import FaultServer, Status

IMPORTED = (
    "openai",
    "httpx2",
    "pandas",
    "scipy.stats",
    "torch",
    "transformers",
    "lethe.api.evaluating",
    "lethe.api.probabilities",
    "lethe.cli.hooks.evaluating",
    "lethe.cli.hooks.probabilities",
    "lethe.sampling.endpoint",
    "lethe.models.endpoint_http",
    "lethe.sampling.endpoint_tree",
    "tests.lethe.sampling.fault_server",
)
JOBS = 8  # a case waits for its server most of the time
ROWS = [
    {"id": "a", "question": "A colour?", "answer": "It is blue.", "keywords": ["blue"]},
    {"id": "b", "question": "Another?", "answer": "It is red.", "keywords": ["red"]},
]
TEXTS = (
    "",
    "\ud800",
    "red \ud83d blue",
    "\x00",
    "\x1b]0;red\x07",
    "\u202ered",
    "a" * 200_000,
    "red\n" * 1000,
    "NaN",
    "token_id:0",
)
VALUES: tuple[Any, ...] = (
    *(None, True, False, [], {}, [[]], [None], {"a": {"b": []}}, "text", 0, -1, 1, 1000, 1e308),
    *(math.nan, math.inf, -math.inf, 2**63, 10**400, -(10**9), 0.5, *TEXTS),
)
ENDS = ("error", "abort", "tool_calls", "function_call", "", "STOP", "content_filter", "length", 7)
ENCODINGS = ("utf-16", "utf-32", "utf-8-sig", "latin-1")
# Of a whole connection; each is written by `served`.
CONNECTIONS = ("drip", "endless", "bomb", "half", "headers", "charset", "redirect", "closed")
HEADERS = (
    ("Retry-After", "nan"),
    ("Retry-After", "-1"),
    ("Retry-After", "1e9"),
    ("Location", "http://127.0.0.1:9/v1"),
    ("Content-Type", "text/html; charset=zlib"),
    ("x-request-id", "\x1b[31m"),
)
STATUSES = (204, 301, 307, 400, 401, 404, 413, 418, 422, 429, 500, 503, 599)
LAW = {0: 0.3, 1: 0.4, 2: 0.3}
WORDS = {0: "", 1: " red", 2: " blue"}


def prepare(valid: Path) -> None:
    lines = [json.dumps(row) for row in ROWS]
    (valid / "rows.jsonl").write_text("\n".join(lines) + "\n")
    (valid / "prompt.txt").write_text("Question: {question}\nAnswer:")


def sound(valid: Path) -> list[Case]:
    cases = []
    for name in ("eval", "plain", "exact"):
        server = TreeServer() if name == "exact" else FaultServer()
        server.__enter__()
        cases.append(Case(f"{name}, nothing", arguments_of(name, server.url, valid)))
    return cases


def arguments_of(name: str, url: str, valid: Path) -> list[str]:
    shared = ["--endpoint", url, "--model", "m", "--data", str(valid / "rows.jsonl")]
    if name == "exact":
        return ["exact", *shared, "--requests", "40", "--max-new-tokens", "3"]
    drawing = ["--n", "8", "--max-new-tokens", "4", "--timeout", "2", "--max-tokens-total", "50000"]
    if name == "plain":
        drawing += ["--prompt", str(valid / "prompt.txt")]
    return ["eval", *shared, *drawing]


class TreeServer(FaultServer):
    """A server that states the probabilities of three tokens by their ids."""

    def answer(self, asked: dict[str, Any], chat: bool) -> dict[str, Any]:
        if "max_tokens" in asked and not isinstance(asked.get("prompt"), list):
            return super().answer(asked, chat)  # a probe
        if "messages" in asked or isinstance(asked.get("prompt"), str):
            return {"tokens": [7, 7]}
        if "tokens" in asked:
            return {"prompt": "".join(WORDS[token] for token in asked["tokens"])}
        drawn = asked.get("allowed_token_ids", [1])[0]
        stated = {f"token_id:{token}": math.log(mass) for token, mass in LAW.items()}
        logprobs = {
            "tokens": [f"token_id:{drawn}"],
            "token_logprobs": [-1.0],
            "top_logprobs": [stated],
        }
        end = "length" if drawn else "stop"
        choice = {
            "index": 0,
            "text": WORDS[drawn],
            "finish_reason": end,
            "logprobs": logprobs,
        }
        return {"model": "m", "choices": [choice]}


def case(chance: random.Random, valid: Path, folder: Path) -> Case:
    # `exact` writes no page, which takes half of the time of `eval`.
    name = chance.choice(("eval", "plain", "exact", "exact"))
    start = chance.choice((0, 0, 1, 20, 60))  # replies that are sound
    share = chance.choice((1.0, 1.0, 0.5, 0.1))  # of the later replies that are broken
    how, break_reply = broken(chance)

    def fault(number: int, asked: dict[str, Any], answer: dict[str, Any]) -> Any:
        if number <= start or chance.random() > share:
            return answer
        return break_reply(copy.deepcopy(answer))

    server = (TreeServer if name == "exact" else FaultServer)(fault=fault)
    server.__enter__()
    server.server.handle_error = lambda *_: None  # the client closes what it reads no further
    if how in CONNECTIONS:
        break_connection(server, how, start)
    broken_words = f"{how}, {share:.0%} of the replies after {start}"
    return Case(broken_words, arguments_of(name, server.url, valid))


def broken(chance: random.Random) -> tuple[str, Callable[[Any], Any]]:
    """What is broken, and the function that breaks a reply."""
    kind = chance.choice(("fields", "fields", "fields", "bytes", "status", "choices", "connection"))
    if kind == "fields":
        changes = chance.choice((1, 1, 2, 4))
        return f"{changes} fields", lambda answer: with_changed_fields(answer, changes, chance)
    if kind == "bytes":
        return broken_bytes(chance)
    if kind == "status":
        return broken_status(chance)
    if kind == "choices":
        return broken_choices(chance)
    return chance.choice(CONNECTIONS), lambda answer: answer


def places_of(value: Any) -> list[tuple[Any, Any]]:
    """Every key and every index within a value, with what holds it."""
    found = []
    if isinstance(value, dict):
        found = [(value, key) for key in value]
    elif isinstance(value, list):
        found = [(value, place) for place in range(len(value))]
    for holder, key in list(found):
        found += places_of(holder[key])
    return found


def with_changed_fields(answer: Any, changes: int, chance: random.Random) -> Any:
    for _ in range(changes):
        places = places_of(answer)
        if not places:
            return answer
        holder, key = chance.choice(places)
        if isinstance(holder, dict) and chance.random() < 0.25:
            del holder[key]
        elif key == "finish_reason":
            holder[key] = chance.choice(ENDS)
        else:
            holder[key] = copy.deepcopy(chance.choice(VALUES))
    return answer


def broken_bytes(chance: random.Random) -> tuple[str, Callable[[Any], Any]]:
    def nested(answer: Any) -> bytes:
        return b'{"choices": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"

    def cut(answer: Any) -> bytes:
        content = json.dumps(answer).encode()
        return content[: chance.randrange(len(content))]

    def flipped(answer: Any) -> bytes:
        content = bytearray(json.dumps(answer).encode())
        for _ in range(chance.choice((1, 3, 30))):
            content[chance.randrange(len(content))] = chance.randrange(256)
        return bytes(content)

    def encoded(answer: Any) -> bytes:
        return json.dumps(answer, ensure_ascii=False).encode(chance.choice(ENCODINGS), "replace")

    def many(answer: Any) -> bytes:
        return b'{"choices": [' + b"{}," * 300_000 + b"{}]}"

    def large_number(answer: Any) -> bytes:
        return json.dumps(answer).replace(": 10", ": 1" + "0" * 10_000).encode()

    breaks = (nested, cut, flipped, encoded, many, large_number, lambda answer: b"[" * 50_000)
    chosen = chance.choice(breaks)
    return f"bytes {chosen.__name__}", chosen


def broken_status(chance: random.Random) -> tuple[str, Callable[[Any], Any]]:
    code = chance.choice(STATUSES)
    headers = chance.sample(HEADERS, chance.choice((0, 1, 2)))
    words = {"code": chance.choice(VALUES), "param": chance.choice((*VALUES, "max_tokens"))}

    def raised(answer: Any) -> Any:
        raise Status(code, headers, message=chance.choice(TEXTS), **words)

    return f"status {code}", raised


def broken_choices(chance: random.Random) -> tuple[str, Callable[[Any], Any]]:
    how = chance.choice(("none", "twice", "many", "one index", "wrong end", "no content"))

    def changed(answer: Any) -> Any:
        choices = answer.get("choices")
        if not choices:
            return answer
        if how == "none":
            answer["choices"] = []
        elif how == "twice":
            answer["choices"] = choices * 2
        elif how == "many":
            answer["choices"] = [choices[0] | {"index": place} for place in range(3000)]
        for choice in answer["choices"]:
            if how == "one index":
                choice["index"] = 0
            elif how == "wrong end":
                choice["finish_reason"] = chance.choice(ENDS)
            elif how == "no content":
                choice["text"] = None
                choice["message"] = {"role": "assistant", "content": None}
        return answer

    return f"choices {how}", changed


def break_connection(server: FaultServer, how: str, start: int) -> None:
    """Let every reply but the first ``start`` ones be written to its connection as ``how`` says."""
    handler = server.server.RequestHandlerClass
    usual = handler.reply

    def reply(request: Any, code: int, content: bytes, headers: Any = ()) -> None:
        if request.command == "GET" or len(server.bodies) <= start:
            usual(request, code, content, headers)
            return
        with contextlib.suppress(OSError):
            served(request, how, content)

    handler.reply = reply


def served(request: Any, how: str, content: bytes) -> None:
    request.close_connection = True
    if how == "closed":
        return
    request.send_response(307 if how == "redirect" else 200)
    if how == "redirect":
        request.send_header("Location", "http://127.0.0.1:9/v1/chat/completions")
    elif how == "charset":
        request.send_header("Content-Type", "application/json; charset=zlib")
    elif how == "bomb":
        content = gzip.compress(b" " * 50_000_000, 1)
        request.send_header("Content-Encoding", "gzip")
    elif how == "half":
        request.send_header("Content-Length", str(len(content) * 2))
    elif how == "headers":
        for number in range(300):
            request.send_header(f"x-{number}", "a" * 1000)
    request.end_headers()
    request.wfile.write(content)
    if how == "drip":
        while True:
            request.wfile.write(b" ")
            time.sleep(0.05)
    if how == "endless":
        while True:
            request.wfile.write(b" " * 65536)
