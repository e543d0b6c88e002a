"""The log-probabilities of given texts that a server states: of a prompt that it repeats, or of a chat by vLLM.

The server is never told which of several texts is true, and each is asked for once. A text without an answer has the kind
of its failure instead.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass

from lethe.config.measuring import Endpoint
from lethe.io.files import Json
from lethe.models.endpoint_client import CHARACTERS, Client, Failed, run
from lethe.models.endpoint_reply import BadReply, ChatEchoReply, EchoReply, named, read


@dataclass(frozen=True)
class GivenText:
    """An ``answer`` that is scored after its ``prompt``: the message of a user in chat, else the text that it continues."""

    name: str  # of the question, in errors
    prompt: str
    answer: str

    @property
    def most(self) -> int:
        """The most tokens that a request for it reads and writes, by estimate."""
        return (len(self.prompt) + len(self.answer)) // CHARACTERS + 9


@dataclass(frozen=True)
class StatedText:
    """The sum of the log-probabilities of an answer's tokens in nats, without its end, and the ``model`` that the server
    named; or why it is ``missing``, and whether a reply ``came``, for which the server may charge."""

    nats: float = -math.inf
    tokens: int = 0
    missing: str = ""
    model: str = ""
    came: bool = True


def stated_texts(server: Endpoint, chat: bool, texts: Sequence[GivenText]) -> list[StatedText]:
    """Return what the server states of each text. They are asked for in their order, ``server.concurrency`` at once.

    Raises
    ------
    ServerGone, BadInput
        If the server takes no connection, or refuses this key, model or address.
    """
    return run(_stated_texts(Client(server, chat), texts))


async def _stated_texts(client: Client, texts: Sequence[GivenText]) -> list[StatedText]:
    at_once = asyncio.Semaphore(client.endpoint.concurrency)

    async def stated(text: GivenText) -> StatedText:
        async with at_once:
            return await _stated(client, text)

    async with client, asyncio.TaskGroup() as group:
        tasks = [group.create_task(stated(text)) for text in texts]
    return [task.result() for task in tasks]


async def _stated(client: Client, text: GivenText) -> StatedText:
    body: dict[str, Json] = {"model": client.endpoint.name, "max_tokens": 1, "temperature": 1.0}
    kind: type[EchoReply | ChatEchoReply] = EchoReply
    address = "/completions"
    if client.chat:
        turns = [("user", text.prompt), ("assistant", text.answer)]
        body["messages"] = [{"role": role, "content": content} for role, content in turns]
        body |= {"prompt_logprobs": 0, "add_generation_prompt": False}
        body["continue_final_message"] = True  # no mark of the template ends the answer
        kind = ChatEchoReply
        address = "/chat/completions"
    else:
        body |= {"prompt": text.prompt + text.answer, "echo": True, "logprobs": 1}

    client.http.expect(len(text.prompt) + len(text.answer), logprobs=1)
    try:
        sent = client.post(address, body)
        content = await client.received(sent, f"that for an answer to question {text.name!r}")
        reply = read(kind, content)
        values = reply.after(text.prompt, text.answer)
    except Failed as failure:
        return StatedText(missing=str(failure), came=failure.answered)
    except BadReply as wrong:
        return StatedText(missing=str(wrong))
    return StatedText(
        math.fsum(values), len(values), model=named(reply.model, reply.system_fingerprint)
    )
