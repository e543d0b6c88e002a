"""Connections to a server that may drip, never end, send a bomb or point elsewhere: limits of time and bytes, no redirect."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import openai

BYTES = 1 << 20  # of a reply at least, with an error or a list of models
BYTES_OF_A_TOKEN = 512  # as JSON, and again with each log-probability beside it


class Unreadable(openai.OpenAIError):
    """A reply that is not read to its end; the client does not ask again."""


class LimitedClient(openai.DefaultAsyncHttpxClient):
    """Reads a reply within ``seconds`` from the request to the last byte, and at most ``most_bytes`` of it."""

    def __init__(self, seconds: float):
        # The key and the questions are for this server alone: a redirect is not followed. No reply is unpacked, since a
        # few bytes can be packed gigabytes.
        super().__init__(
            follow_redirects=False,
            headers={"Accept-Encoding": "identity"},
            event_hooks={"response": [self._limit]},
        )
        self.seconds, self.most_bytes = seconds, BYTES

    def expect(self, tokens: int, logprobs: int) -> None:
        """Let a reply be as long as so many tokens with so many log-probabilities each."""
        needed = BYTES + BYTES_OF_A_TOKEN * tokens * (1 + logprobs)
        self.most_bytes = max(self.most_bytes, needed)

    async def send(self, request: httpx2.Request, **how: Any) -> httpx2.Response:
        try:
            async with asyncio.timeout(self.seconds):
                return await super().send(request, **how)
        except TimeoutError:  # asking again would take as long, and a server may charge for both
            raise Unreadable("timeout") from None

    async def _limit(self, response: httpx2.Response) -> None:
        encoding = response.headers.get("Content-Encoding", "identity").strip().lower()
        if encoding not in ("", "identity"):
            raise Unreadable("a compressed reply")
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        response.stream = Limited(response.stream, self.most_bytes)


class Limited(httpx2.AsyncByteStream):
    """The bytes of a stream; raises `Unreadable` beyond the limit."""

    def __init__(self, stream: httpx2.AsyncByteStream, most_bytes: int):
        self.stream, self.most_bytes = stream, most_bytes

    async def __aiter__(self) -> AsyncIterator[bytes]:
        read = 0
        async for part in self.stream:
            read += len(part)
            if read > self.most_bytes:
                raise Unreadable(f"a reply of more than {self.most_bytes:,} bytes")
            yield part

    async def aclose(self) -> None:
        await self.stream.aclose()
