"""Requests to an OpenAI-compatible server, and what came back."""

from __future__ import annotations

import asyncio
import math
import os
import time
from collections.abc import Awaitable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from lethe.config.measuring import Endpoint
from lethe.errors import BadInput, BadValue, LetheError, plural
from lethe.io.answer_ends import (
    ANSWERED,
    ERROR,
    FAILED,
    FILTERED,
    REFUSED,
    TOOL_CALLS,
    end_of,
)
from lethe.io.files import Json
from lethe.models.endpoint_reply import (
    BadReply,
    ChatChoice,
    ChatReply,
    PlainChoice,
    PlainReply,
    Usage,
    read,
    spell,
)

if TYPE_CHECKING:
    from openai import APIStatusError

CHARACTERS = 3  # of a token, for an estimate before the server has counted
# What overrides a server's own settings, such as those of a model's generation_config.json, which cut rare answers off.
WHOLE = {"top_k": -1, "top_p": 1.0, "min_p": 0.0, "repetition_penalty": 1.0}
NO_KEY = "none"  # the client wants a key, and a local server reads none
Done = TypeVar("Done")


class ServerGone(LetheError):
    """The server no longer answers: what was drawn stays on disk."""

    def __init__(self, endpoint: Endpoint, request: str, why: str):
        super().__init__(
            f"{endpoint} no longer answers ({why}); the request was {request}. The answers so far are kept: start the server "
            "and run the same command again."
        )


class CapReached(LetheError):
    """The next requests could spend more tokens than the user allows; the replies so far are kept."""


class Failed(Exception):
    """A request without an answer; its text is the kind that is counted. ``answered``: the server may charge for it."""

    def __init__(self, kind: str, answered: bool = False):
        super().__init__(kind)
        self.answered = answered


@dataclass(frozen=True)
class ServedAnswer:
    """One answer of the server; ``text`` is null where ``reason`` is no end of `ANSWERED`. ``stated`` maps the likeliest
    first tokens to their log-probabilities, ``first`` is the first token drawn, ``spent`` the answer's shares of the
    tokens read and written."""

    text: str | None
    reason: str
    tokens: int
    confidence: float | None
    model: str
    fingerprint: str | None
    at: float
    spent: tuple[float, float]
    first: str | None = None
    stated: Mapping[str, float] | None = None
    mass: float | None = None  # the probability of the answer, by the server's word
    thinking: str | None = None  # in a field of its own; without an answer after it, no text

    @property
    def kind(self) -> str:
        """Why the answer is missing; of a request that brought nothing, ``model`` says why."""
        if self.reason == FAILED:
            return f"failed: {self.model}"
        return self.reason


@dataclass(frozen=True)
class Ask:
    """A request for ``n`` answers to a text, each of at most ``max_tokens`` tokens."""

    text: str
    n: int = 1
    max_tokens: int = 16
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    logprobs: int | None = None
    seed: int | None = None
    before: tuple[tuple[str, str], ...] = ()  # role and text of each earlier message
    form: Mapping[str, Json] | None = None  # the JSON schema that a chat's answer must fit

    def most(self) -> int:
        """The most tokens that the request reads and writes, by estimate."""
        read = len(self.text) + sum(len(text) for _, text in self.before)
        return read // CHARACTERS + 8 * (1 + len(self.before)) + self.n * self.max_tokens


def plan_of(
    server: Endpoint,
    requests: Sequence[Ask],
    price_in: float | None = None,
    price_out: float | None = None,
    cap: int | None = None,
) -> str:
    """What the requests may take at most, in one sentence; prices are of a million tokens."""
    written = sum(request.n * request.max_tokens for request in requests)
    read = sum(request.most() for request in requests) - written
    asked = plural(len(requests), "request")
    sentence = (
        f"{server}: at most {asked}, about {read:,} tokens read and at most {written:,} written"
    )
    if price_in is not None or price_out is not None:
        price = (price_in or 0) * read + (price_out or 0) * written
        sentence += f", for at most {math.ceil(price / 1e4) / 100:,.2f} at the given prices"
    if cap is not None:
        sentence += f"; the cap is {plural(cap, 'token')}"
    return f"{sentence}."


class Client:
    """A server and its model, asked in chat or with plain prompts; a context, whose connections belong to one loop."""

    def __init__(self, endpoint: Endpoint, chat: bool):
        key: str | None = NO_KEY
        if endpoint.key_env is not None:
            key = os.environ.get(endpoint.key_env)
        if not key:
            legal = "the name of an environment variable that holds the key"
            raise BadValue("key_env", endpoint.key_env, legal)
        self.endpoint = endpoint
        self.chat = chat
        self.limit = "max_tokens"
        self._key = key
        self.whole = True  # whether the server takes `WHOLE`

    async def __aenter__(self) -> Client:
        import openai

        from lethe.models.endpoint_http import LimitedClient

        self.http = LimitedClient()
        self.openai = openai.AsyncOpenAI(
            base_url=self.endpoint.endpoint,
            api_key=self._key,
            # Organization and project of the environment belong to another server.
            default_headers={"OpenAI-Organization": openai.omit, "OpenAI-Project": openai.omit},  # type: ignore[dict-item]
            timeout=None,  # `Tries` limits the whole of a request, with the waits before its further tries
            max_retries=0,
            http_client=self.http,
        )
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.openai.close()

    async def ask(self, ask: Ask, request: str) -> list[ServedAnswer]:
        """The answers to one request; ``request`` names it in errors.

        Raises
        ------
        Failed
            If the server gave none.
        ServerGone, BadInput
            If the server takes no connection, or refuses this key, model or address.
        """
        self.http.expect(ask.n * ask.max_tokens, ask.logprobs or 0)
        content = await self.received(self._send(ask), request)
        reply: ChatReply | PlainReply
        try:
            if self.chat:
                reply = read(ChatReply, content)
            else:
                reply = read(PlainReply, content)
        except BadReply as wrong:
            raise Failed(str(wrong), answered=True) from None
        if len(reply.choices) > ask.n:
            raise Failed("more answers than asked for", answered=True)
        return [self._drawn(choice, reply, ask) for choice in reply.choices]

    async def received(self, sent: Awaitable[bytes], request: str) -> bytes:
        """The content of a reply that has come whole; `Failed`, `BadInput` or `ServerGone` where none came."""
        import openai

        from lethe.models.endpoint_http import NoTimeToWait, Unreadable

        try:
            return await sent
        except Unreadable as unread:
            raise Failed(str(unread), answered=True) from None
        except NoTimeToWait as busy:
            raise Failed(str(busy)) from None
        except openai.APIConnectionError:
            await self.alive(request)
            raise Failed("connection") from None
        except openai.APIStatusError as error:
            raise self._refused(error) from None
        except Exception:  # whatever a library raises of a reply that was made to break it
            raise Failed("a reply that cannot be read", answered=True) from None

    async def post(self, address: str, body: Mapping[str, Json]) -> bytes:
        """The content of the reply, unread; ``address`` continues that of the endpoint, unless it is whole."""
        import httpx2

        from lethe.models.endpoint_http import Tries

        tries = Tries(self.endpoint.retries, self.endpoint.timeout)
        response = await tries.reply(
            lambda: self.openai.post(address, body=body, cast_to=httpx2.Response)
        )
        return response.content

    async def _send(self, ask: Ask) -> bytes:
        """The content of the reply to a request."""
        body: dict[str, Json] = {
            "model": self.endpoint.name,
            "temperature": ask.temperature,
            self.limit: ask.max_tokens,
        }
        if self.whole:
            body |= WHOLE
        if ask.top_p != 1:
            body["top_p"] = ask.top_p
        if ask.top_k != 0:
            body["top_k"] = ask.top_k
        if ask.n > 1:
            body["n"] = ask.n
        if ask.seed is not None:
            body["seed"] = ask.seed
        if not self.chat:
            if ask.logprobs:
                body["logprobs"] = ask.logprobs
            return await self.post("/completions", body | {"prompt": ask.text})

        from openai import BadRequestError

        if ask.logprobs:
            body |= {"logprobs": True, "top_logprobs": ask.logprobs}
        if ask.form is not None:
            schema = {"name": "reply", "strict": True, "schema": ask.form}
            body["response_format"] = {"type": "json_schema", "json_schema": schema}
        turns = (*ask.before, ("user", ask.text))
        body["messages"] = [{"role": role, "content": text} for role, text in turns]
        try:
            return await self.post("/chat/completions", body)
        except BadRequestError as error:
            if error.param != "max_tokens" or self.limit != "max_tokens":
                raise
            self.limit = "max_completion_tokens"  # newer models take this name alone
            return await self._send(ask)

    def _drawn(
        self, choice: ChatChoice | PlainChoice, reply: ChatReply | PlainReply, ask: Ask
    ) -> ServedAnswer:
        """The answer of one choice; tokens that the server does not count are estimated from characters."""
        refused = False
        called = False
        thinking = None
        if isinstance(choice, ChatChoice):
            text = choice.message.content
            thinking = choice.message.reasoning_content or choice.message.reasoning or None
            refused = bool(choice.message.refusal)
            called = bool(choice.message.tool_calls)
        else:
            text = choice.text
        if thinking and not text:
            text = None  # thinking without an answer after it left none, which is not an empty one
        if choice.error or reply.error:
            reason = ERROR
        elif refused:
            reason = REFUSED
        elif called and not text:
            reason = TOOL_CALLS
        else:
            said = thinking if text is None else text
            reason = end_of(choice.finish_reason, said)
        if reason not in ANSWERED:
            text = None

        usage = reply.usage or Usage()
        read_tokens: float | None = usage.prompt_tokens
        if read_tokens is None:
            read_tokens = len(ask.text) / CHARACTERS
        share = len(reply.choices)
        written: float = len(text or "") / CHARACTERS
        if usage.completion_tokens is not None:
            written = usage.completion_tokens / share

        drawn = ServedAnswer(
            text,
            reason,
            tokens=round(written),
            confidence=None,
            model=reply.model,
            fingerprint=reply.system_fingerprint,
            at=time.time(),
            spent=(read_tokens / share, written),
            thinking=thinking,
        )
        steps = choice.logprobs.steps if choice.logprobs else []
        if not steps:
            return drawn
        mass = None  # of the tokens of another text nothing is known
        if spell(steps, text or ""):
            mass = math.exp(min(0.0, math.fsum(step.log_probability for step in steps)))
        largest = [max([step.log_probability, *step.likeliest.values()]) for step in steps]
        confidences = [math.exp(min(0.0, value)) for value in largest]
        return replace(
            drawn,
            tokens=len(steps),
            confidence=math.fsum(confidences) / len(steps),
            first=steps[0].token,
            stated=steps[0].likeliest or None,
            mass=mass,
        )

    def _refused(self, error: APIStatusError) -> Exception:
        """What an answer with an error status means; its text is not quoted, since it may hold the key."""
        status = error.status_code
        url = self.endpoint.endpoint
        if status in (401, 403):
            refused = "a request without a key (--key-env names a variable)"
            if self.endpoint.key_env:
                refused = f"the key in {self.endpoint.key_env}"
            return BadInput(f"{url} refuses {refused} (status {status}).")
        if status == 404:
            kind = "chat" if self.chat else "plain completions (--prompt chat asks in chat)"
            return BadInput(
                f"{url} has no model {self.endpoint.name!r}, or no {kind} at this address (status 404)."
            )
        if 300 <= status < 400:
            return BadInput(
                f"{url} redirects to another address (status {status}), and Lethe sends the questions nowhere else. Give "
                "the address that answers."
            )
        if getattr(error, "code", None) == "content_filter":
            return Failed(FILTERED)
        return Failed(f"status {status}")

    async def alive(self, request: str, retries: int = 1) -> None:
        """Raise `ServerGone` where the server takes no connection at all."""
        import httpx2
        import openai

        from lethe.models.endpoint_http import Tries

        tries = Tries(retries, self.endpoint.timeout)
        try:
            await tries.reply(lambda: self.openai.get("/models", cast_to=httpx2.Response))
        except openai.APIStatusError:
            return
        except openai.APIConnectionError:
            raise ServerGone(self.endpoint, request, "no connection") from None
        except Exception:  # an answer that no library reads is one
            return


def run(work: Coroutine[object, None, Done]) -> Done:
    """Run a coroutine to its end, also inside a loop, as a notebook has one; of several errors the first is raised."""

    def unwrapped() -> Done:
        try:
            return asyncio.run(work)
        except BaseExceptionGroup as group:
            first: BaseException = group
            while isinstance(first, BaseExceptionGroup):
                first = first.exceptions[0]
            raise first from None

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return unwrapped()
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(unwrapped).result()
