"""An OpenAI-compatible server on 127.0.0.1 with a small model of words, and every way in which servers go wrong."""

import json
import math
import random
import re
import threading
import time
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

WORDS = {"red": 0.4, "blue": 0.3, "green": 0.2, "grey": 0.1}
END = 0.3  # the probability that an answer ends after a word
Answer = tuple[list[str], bool]  # tokens, and whether it was cut off
Draw = Callable[[dict[str, Any], random.Random], Answer]
Fault = Callable[[int, dict[str, Any], dict[str, Any]], Any]


def words(asked: dict[str, Any], generator: random.Random, law: dict[str, float] = WORDS) -> Answer:
    """Words until the end or the limit: the tokens, and whether the answer was cut off."""
    temperature, limit = asked["temperature"], asked["max_tokens"]
    if temperature == 0 or asked.get("top_k") == 1:
        return [max(law, key=lambda word: law[word])] * min(2, limit), limit < 2
    weights = [mass ** (1 / temperature) for mass in law.values()]
    found: list[str] = []
    while True:
        found += generator.choices(list(law), weights)
        if generator.random() < END:
            return found, False
        if len(found) >= limit:
            return found, True


class FaultServer:
    """A context with the ``url``; ``bodies`` and ``keys`` came in, and ``fault`` changes an answer or raises `Status`."""

    def __init__(self, draw: Draw = words, fault: Fault | None = None, n: bool = True):
        self.draw = draw
        self.fault = fault
        self.n = n
        self.bodies: list[dict[str, Any]] = []
        self.keys: set[str | None] = set()
        self.wrote = 0
        self.dead = False
        self.generator = random.Random(0)
        self.lock = threading.Lock()

    def __enter__(self) -> Self:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self.reply(200, b'{"object": "list", "data": []}')

            def do_POST(self) -> None:
                if outer.dead:
                    self.close_connection = True
                    return
                asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with outer.lock:
                    outer.bodies.append(asked)
                    outer.keys.add(self.headers.get("Authorization"))
                    number = len(outer.bodies)
                    answer = outer.answer(asked, chat=self.path.endswith("/chat/completions"))
                try:
                    changed = outer.fault(number, asked, answer) if outer.fault else None
                except Status as status:
                    self.reply(status.code, json.dumps(status.body).encode(), status.headers)
                    return
                sent = (
                    changed
                    if isinstance(changed, bytes)
                    else json.dumps(changed or answer).encode()
                )
                self.reply(200, sent)

            def reply(
                self, code: int, content: bytes, headers: Sequence[tuple[str, str]] = ()
            ) -> None:
                self.send_response(code)
                self.send_header("Content-Type", "application/json")
                for name, value in [("Content-Length", str(len(content))), *headers]:
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True)
        self.thread.start()
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/v1"
        return self

    def __exit__(self, *args: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Take no more connections, and answer no more requests on open ones."""
        self.dead = True
        self.server.shutdown()
        self.server.server_close()

    def answer(self, asked: dict[str, Any], chat: bool) -> dict[str, Any]:
        seeded = random.Random(asked["seed"]) if "seed" in asked else self.generator
        drawn = [self.draw(asked, seeded) for _ in range(asked.get("n", 1) if self.n else 1)]
        choices = []
        for index, (tokens, cut) in enumerate(drawn):
            text = " ".join(tokens)
            said = {"message": {"role": "assistant", "content": text}} if chat else {"text": text}
            choices.append({"index": index, "finish_reason": "length" if cut else "stop", **said})
            if asked.get("logprobs"):
                choices[-1]["logprobs"] = stated(tokens, chat)
        wrote = sum(len(tokens) for tokens, _ in drawn)
        self.wrote += wrote
        return {
            "id": f"answer-{len(self.bodies)}",
            "object": "chat.completion" if chat else "text_completion",
            "created": int(time.time()),
            "model": asked["model"],
            "system_fingerprint": "fp-1",
            "choices": choices,
            "usage": {"prompt_tokens": 10, "completion_tokens": wrote, "total_tokens": 10 + wrote},
        }


def stated(tokens: list[str], chat: bool) -> dict[str, Any]:
    """The log-probabilities of an answer's tokens, with those of every word beside each."""
    law = {word: math.log(mass) for word, mass in WORDS.items()}
    log_probs = [law.get(token, -9.0) for token in tokens]
    if not chat:
        return {"tokens": tokens, "token_logprobs": log_probs, "top_logprobs": [law] * len(tokens)}
    tops = [{"token": word, "logprob": mass} for word, mass in law.items()]
    places = zip(tokens, log_probs, strict=True)
    return {
        "content": [
            {"token": token, "logprob": value, "top_logprobs": tops} for token, value in places
        ]
    }


class Status(Exception):
    def __init__(self, status: int, headers: Sequence[tuple[str, str]] = (), **error: Any):
        super().__init__(status)
        self.code = status
        self.headers = headers
        self.body = {"error": {"message": "no", "type": "x", "code": None, "param": None, **error}}


class EchoServer(FaultServer):
    """Repeats a prompt with the log-probability of each token: of completions as OpenAI's, of a chat as vLLM's.

    ``law`` gives that of a token by the text before it; a token is a word with the space before it.
    """

    FIRST = "<s>"  # stands before each text, and has no probability

    def __init__(self, law: Callable[[str, str], float], fault: Fault | None = None):
        super().__init__(fault=fault)
        self.law = law

    def answer(self, asked: dict[str, Any], chat: bool) -> dict[str, Any]:
        answer = super().answer(asked, chat)
        if chat and "prompt_logprobs" in asked:
            turns = [f"[{turn['role']}] {turn['content']}" for turn in asked["messages"]]
            tokens, values = self._read("".join(turns))
            stated: list[dict[str, Any] | None] = [None]
            for number, (token, value) in enumerate(zip(tokens[1:], values[1:], strict=True)):
                entry = {"logprob": value, "rank": 1, "decoded_token": token}
                stated.append({str(number): entry})
            answer["prompt_logprobs"] = stated
        elif asked.get("echo"):
            tokens, values = self._read(asked["prompt"])
            drawn, _ = self.draw(asked, self.generator)
            tokens += drawn
            values += [-1.0] * len(drawn)
            lengths = [len(token) for token in tokens]
            offsets = [sum(lengths[:number]) for number in range(len(tokens))]
            told = {"tokens": tokens, "token_logprobs": values, "text_offset": offsets}
            answer["choices"][0] |= {"text": "".join(tokens[1:]), "logprobs": told}
        return answer

    def _read(self, text: str) -> tuple[list[str], list[float | None]]:
        tokens = [self.FIRST]
        values: list[float | None] = [None]
        for token in re.findall(r"\s*\S+|\s+$", text):
            before = "".join(tokens[1:])
            tokens.append(token)
            values.append(self.law(token, before))
        return tokens, values
