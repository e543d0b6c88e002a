"""Connections to a server that may drip, never end, send a bomb or point elsewhere: limits of time and bytes, no redirect."""

import asyncio
import email.utils
import functools
import math
import random
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

import httpx2
import openai

BYTES = 1 << 20  # of a reply at least, with an error or a list of models
BYTES_OF_A_TOKEN = 512  # as JSON, and again with each log-probability beside it
# Seconds before the second try of a request, which double with each further try, and the most of them.
FIRST_WAIT = 0.5
LONGEST_WAIT = 8.0
JITTER = random.Random()  # requests that failed together are not sent together again
BUSY = (408, 409, 429)  # and every error of the server's own, from 500 on
Reply = TypeVar("Reply")


class Unreadable(openai.OpenAIError):
    """A reply that is not read to its end; the client does not ask again."""


class NoTimeToWait(openai.OpenAIError):
    """A busy server, and the wait before the next try is longer than the request has left."""

    def __init__(self, status: int):
        super().__init__(f"status {status} and a wait beyond the timeout")


@dataclass(frozen=True)
class Tries:
    """The tries of one request: ``retries`` after the first one, all of them and the waits between within ``seconds``."""

    retries: int
    seconds: float
    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    async def reply(self, send: Callable[[], Awaitable[Reply]]) -> Reply:
        """What ``send`` brings in the end; else its last error, `NoTimeToWait`, or `Unreadable` where time is over."""
        end = self.now() + self.seconds
        for number in range(self.retries + 1):
            try:
                async with asyncio.timeout(end - self.now()):
                    return await send()
            except TimeoutError:  # a server may charge for a reply that nobody waited for
                raise Unreadable("timeout") from None
            except (openai.APIConnectionError, openai.APIStatusError) as error:
                response = getattr(error, "response", None)
                if number == self.retries or not worth_another_try(response):
                    raise
                wait = wait_before_try(number + 1, response)
                if self.now() + wait < end:
                    await self.sleep(wait)
                    continue
                if response is None:
                    raise
                raise NoTimeToWait(response.status_code) from None
        raise AssertionError("the last try returns or raises")


def worth_another_try(response: httpx2.Response | None) -> bool:
    """Whether a request without a reply, or with this error, may bring an answer later."""
    if response is None:
        return True
    stated = response.headers.get("x-should-retry")  # OpenAI's own word
    if stated in ("true", "false"):
        return stated == "true"
    return response.status_code in BUSY or response.status_code >= 500


def wait_before_try(number: int, response: httpx2.Response | None) -> float:
    """Seconds before the try of this number, the first being 0: as the server says, else longer each time."""
    if response is not None:
        told = stated_wait(response.headers)
        if math.isfinite(told) and told > 0:
            return told
    doubled = FIRST_WAIT * 2.0 ** min(number - 1, 10)
    return min(doubled, LONGEST_WAIT) * JITTER.uniform(0.75, 1.0)


def stated_wait(headers: httpx2.Headers) -> float:
    """The seconds of a Retry-After, which are a number or the date of their end; not a number where none is stated."""
    for name, divisor in (("retry-after-ms", 1000), ("retry-after", 1)):
        try:
            return float(headers.get(name, "")) / divisor
        except ValueError:
            continue
    try:
        until = email.utils.parsedate_to_datetime(headers.get("retry-after", ""))
        return until.timestamp() - time.time()
    except (ValueError, OverflowError, TypeError):
        return math.nan


@functools.cache
def trusted() -> ssl.SSLContext:
    """The authorities of this machine, read once: each reading takes as long as twenty requests."""
    return httpx2.create_ssl_context()


class LimitedClient(openai.DefaultAsyncHttpxClient):
    """Reads at most ``most_bytes`` of a reply; the time is limited by `Tries`."""

    def __init__(self) -> None:
        # The key and the questions are for this server alone: a redirect is not followed. No reply is unpacked, since a
        # few bytes can be packed gigabytes.
        super().__init__(
            follow_redirects=False,
            verify=trusted(),
            headers={"Accept-Encoding": "identity"},
            event_hooks={"response": [self._limit]},
        )
        self.most_bytes = BYTES

    def expect(self, tokens: int, logprobs: int) -> None:
        """Let a reply be as long as so many tokens with so many log-probabilities each."""
        needed = BYTES + BYTES_OF_A_TOKEN * tokens * (1 + logprobs)
        self.most_bytes = max(self.most_bytes, needed)

    async def _limit(self, response: httpx2.Response) -> None:
        encoding = response.headers.get("Content-Encoding", "identity").strip().lower()
        if encoding not in ("", "identity"):
            raise Unreadable("a compressed reply")
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        response.stream = Limited(response.stream, self.most_bytes)


class Limited(httpx2.AsyncByteStream):
    """The bytes of a stream; raises `Unreadable` beyond the limit."""

    def __init__(self, stream: httpx2.AsyncByteStream, most_bytes: int):
        self.stream = stream
        self.most_bytes = most_bytes

    async def __aiter__(self) -> AsyncIterator[bytes]:
        read = 0
        async for part in self.stream:
            read += len(part)
            if read > self.most_bytes:
                raise Unreadable(f"a reply of more than {self.most_bytes:,} bytes")
            yield part

    async def aclose(self) -> None:
        await self.stream.aclose()
