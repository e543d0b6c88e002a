"""Requests to an OpenAI-compatible server, and what came back: answers, what they cost, or why there is none."""

from __future__ import annotations

import asyncio
import math
import os
import time
from collections.abc import Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from lethe.config.evaluating import Endpoint
from lethe.errors import BadInput, BadValue, LetheError

if TYPE_CHECKING:
    from openai import APIStatusError

MISSING = ("refused", "filtered", "failed")  # a finish_reason of a text that is null
CHARACTERS = 3  # of a token, for an estimate before the server has counted
NO_KEY = "none"  # the client wants a key, and a local server reads none
Done = TypeVar("Done")


class ServerGone(LetheError):
    """The server no longer answers: what was drawn stays on disk."""

    def __init__(self, endpoint: Endpoint, request: str, why: str):
        super().__init__(
            f"{endpoint} no longer answers ({why}); the request was {request}. The answers so far are kept: start the server "
            "and run the same command again."
        )


class Failed(Exception):
    """A request without an answer; ``kind`` is counted."""

    def __init__(self, kind: str):
        super().__init__(kind)
        self.kind = kind


@dataclass(frozen=True)
class Drawn:
    """One answer of the server; ``text`` is null where ``reason`` is one of `MISSING`.

    ``stated`` maps the likeliest first tokens to their log-probabilities, where the server gives them, and ``first`` is the
    first token drawn. ``spent`` are the answer's shares of the tokens that its request read and wrote.
    """

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


@dataclass(frozen=True)
class Ask:
    """One request: ``n`` answers to a text."""

    text: str
    n: int = 1
    max_tokens: int = 16
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    logprobs: int | None = None
    seed: int | None = None

    def most(self) -> int:
        """The most tokens that the request reads and writes, by estimate."""
        return len(self.text) // CHARACTERS + 8 + self.n * self.max_tokens


class Client:
    """A server and its model, asked in chat or with plain prompts; a context, whose connections belong to one loop."""

    def __init__(self, endpoint: Endpoint, chat: bool):
        key = NO_KEY if endpoint.key_env is None else os.environ.get(endpoint.key_env)
        if not key:
            raise BadValue("key_env", endpoint.key_env, "the name of an environment variable that holds the key")
        self.endpoint, self.chat, self.limit, self._key = endpoint, chat, "max_tokens", key

    async def __aenter__(self) -> Client:
        import openai

        self.openai = openai.AsyncOpenAI(
            base_url=self.endpoint.endpoint,
            api_key=self._key,
            # Organization and project of the environment belong to another server.
            default_headers={"OpenAI-Organization": openai.omit, "OpenAI-Project": openai.omit},  # type: ignore[dict-item]
            timeout=self.endpoint.timeout,
            max_retries=self.endpoint.retries,  # the client waits longer each time, or as long as Retry-After says
        )
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.openai.close()

    async def ask(self, ask: Ask, request: str) -> list[Drawn]:
        """The answers to one request; ``request`` names it in errors."""
        import openai

        try:
            response = await self._send(ask)
            return [self._drawn(choice, response, ask) for choice in response.choices]
        except openai.APITimeoutError:
            raise Failed("timeout") from None
        except openai.APIConnectionError:
            await self.alive(request)
            raise Failed("connection") from None
        except openai.APIStatusError as error:
            raise self._refused(error, request) from None
        except (openai.OpenAIError, AttributeError, TypeError, ValueError, IndexError):
            raise Failed("not the JSON of an answer") from None

    async def _send(self, ask: Ask) -> Any:
        given: dict[str, Any] = {
            "model": self.endpoint.name,
            "temperature": ask.temperature,
            self.limit: ask.max_tokens,
            **({"n": ask.n} if ask.n > 1 else {}),
            **({"top_p": ask.top_p} if ask.top_p < 1 else {}),
            **({"extra_body": {"top_k": ask.top_k}} if ask.top_k else {}),
            **({"seed": ask.seed} if ask.seed is not None else {}),
        }
        if ask.logprobs:
            given |= {"logprobs": True, "top_logprobs": ask.logprobs} if self.chat else {"logprobs": ask.logprobs}
        if not self.chat:
            return await self.openai.completions.create(prompt=ask.text, **given)
        from openai import BadRequestError

        messages: Any = [{"role": "user", "content": ask.text}]
        try:
            return await self.openai.chat.completions.create(messages=messages, **given)
        except BadRequestError as error:
            if error.param != "max_tokens" or self.limit != "max_tokens":
                raise
            self.limit = "max_completion_tokens"  # newer models take this name alone
            return await self._send(ask)

    def _drawn(self, choice: Any, response: Any, ask: Ask) -> Drawn:
        text, reason = (choice.message.content if self.chat else choice.text), choice.finish_reason
        if self.chat and getattr(choice.message, "refusal", None):
            text, reason = None, "refused"
        elif reason == "content_filter":
            text, reason = None, "filtered"
        elif text is not None and not isinstance(text, str):
            raise TypeError(text)
        else:
            text, reason = text or "", "length" if reason == "length" else "stop"
        steps = _steps(choice.logprobs, self.chat)
        usage, share = response.usage, max(1, len(response.choices))
        read = usage.prompt_tokens if usage else len(ask.text) / CHARACTERS
        wrote = (usage.completion_tokens if usage else len(text or "") / CHARACTERS) / share
        sure = [math.exp(max([own, *tops.values()])) for _, own, tops in steps]
        return Drawn(
            text,
            reason,
            len(steps) or round(wrote),
            math.fsum(sure) / len(sure) if sure else None,
            str(response.model),
            response.system_fingerprint,
            time.time(),
            (read / share, wrote),
            steps[0][0] if steps else None,
            steps[0][2] or None if steps else None,
            math.exp(math.fsum(own for _, own, _ in steps)) if steps else None,
        )

    def _refused(self, error: APIStatusError, request: str) -> Exception:
        """What an answer with an error status means; its text is not quoted, since it may hold the key."""
        status, url = error.status_code, self.endpoint.endpoint
        if status in (401, 403):
            asked = self.endpoint.key_env
            which = f"the key in {asked}" if asked else "a request without a key (--key-env names a variable)"
            return BadInput(f"{url} refuses {which} (status {status}).")
        if status == 404:
            kind = "chat" if self.chat else "plain completions (--prompt chat asks in chat)"
            return BadInput(
                f"{url} has no model {self.endpoint.name!r}, or no {kind} at this address (status 404)."
            )
        if getattr(error, "code", None) == "content_filter":
            return Failed("filtered")
        return Failed(f"status {status}")

    async def alive(self, request: str, retries: int = 1) -> None:
        """Raise `ServerGone` where the server takes no connection at all."""
        import openai

        try:
            await self.openai.with_options(max_retries=retries).models.list()
        except openai.APIStatusError:
            return
        except openai.APIConnectionError:
            raise ServerGone(self.endpoint, request, "no connection") from None
        except (openai.OpenAIError, ValueError):
            return


def _steps(logprobs: Any, chat: bool) -> list[tuple[str, float, dict[str, float]]]:
    """Each token of an answer: the token, its log-probability, and those of the likeliest tokens."""
    if logprobs is None:
        return []
    if chat:
        return [
            (step.token, step.logprob, {top.token: top.logprob for top in step.top_logprobs or ()})
            for step in logprobs.content or ()
        ]
    tops = logprobs.top_logprobs or [{}] * len(logprobs.tokens or ())
    chosen = zip(logprobs.tokens or (), logprobs.token_logprobs or (), tops, strict=True)
    return [(token, own, dict(top or {})) for token, own, top in chosen]


def run(work: Coroutine[Any, Any, Done]) -> Done:
    """Run a coroutine to its end, also inside a loop, as a notebook has one; of several errors the first is raised."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return _unwrapped(work)
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(_unwrapped, work).result()


def _unwrapped(work: Coroutine[Any, Any, Done]) -> Done:
    try:
        return asyncio.run(work)
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None
