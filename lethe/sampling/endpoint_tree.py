"""Certain ends of P(leak) of a served model, from the next-token probabilities that the server states.

The walk opens the heaviest prefixes first, one request each. A server names the likeliest tokens alone, so the rest of
each step stays unknown: the lower end is the mass of the leaks that were found, the upper end 1 minus the clean mass.
Tokens are sent and named by their ids (vLLM), because a text can be spelled in several ways.
"""

import asyncio
import heapq
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TypeVar

from lethe.errors import BadInput
from lethe.io.answer_ends import CUT_OFF, STOPPED, end_of
from lethe.io.artifacts import Row
from lethe.io.files import Json
from lethe.models.encoding import CHAT, read_template, worded
from lethe.sampling.answer_tree.asking import Rule
from lethe.sampling.endpoint_client import Client, Failed, Probe
from lethe.sampling.endpoint_reply import (
    ROUNDING,
    BadReply,
    Detokenized,
    PlainChoice,
    PlainReply,
    Tokenized,
    read,
)
from lethe.statistics.answer_tree import Masses, Remainder, leak_interval
from lethe.statistics.leak_trees import AS_STATED, AnswerTree, HeavyLeak

NAMED, TOP = (
    "token_id:",
    20,
)  # how vLLM writes an id; the most log-probabilities that it gives by default
TOKEN_NAME = re.compile(f"{NAMED}(0|[1-9][0-9]{{0,9}})")
SHOWN = 5  # heavy leaks of a question
# How far a stated probability may move while one model answers: arithmetic in bfloat16 moves it by less in batches of other
# sizes, and a token at the end of the list that is no longer named had at most 1 / TOP.
SAME_STEP = 1 / TOP
TokenReply = TypeVar("TokenReply", Tokenized, Detokenized)


class Walker:
    """The requests of a walk, each counted; what a token does is asked once."""

    def __init__(self, client: Client, prompt: str):
        given = prompt == CHAT or "{question}" in prompt
        self.client, self.template = client, prompt if given else read_template(prompt)
        self.root = client.endpoint.endpoint.rstrip("/").removesuffix("/v1")
        self.kinds: dict[int, asyncio.Task[str]] = {}
        self.requests = 0
        self.models = Counter[tuple[str, str | None]]()  # name and fingerprint of each reply
        self.first_steps: dict[tuple[int, ...], dict[int, float]] = {}  # by the prompt's tokens

    async def tree(
        self, row: Row, rule: Rule, most: int, longest: int, alpha: float, queries: Sequence[int]
    ) -> AnswerTree:
        ids, started = await self.ids(row), self.requests
        leak, clean = [0.0] * longest, [0.0] * longest
        heavy: list[HeavyLeak] = []
        open_prefixes: list[tuple[float, tuple[int, ...]]] = [(-1.0, ())]

        def settle(text: str, mass: float, length: int, leaks: bool) -> None:
            (leak if leaks else clean)[length - 1] += mass
            if leaks:
                heavy.append(HeavyLeak(text, mass))

        async def grow(mass: float, prefix: tuple[int, ...]) -> None:
            text = await self._text(prefix)
            if prefix and rule.begun(text):
                settle(text, mass, len(prefix), leaks=True)
            elif len(prefix) == longest:
                settle(text, mass, longest, bool(rule.leaks([text])[0]))
            else:
                shares = await self._next([*ids, *prefix])
                if not prefix:
                    self.first_steps.setdefault(tuple(ids), shares)
                for token, share in shares.items():
                    kind = await self._kind(token, ids)
                    if kind == "end":
                        settle(text, mass * share, len(prefix) + 1, bool(rule.leaks([text])[0]))
                    elif kind == "text":
                        heapq.heappush(open_prefixes, (-mass * share, (*prefix, token)))

        while open_prefixes and self.requests - started < most:
            room = min(self.client.endpoint.concurrency, most - self.requests + started)
            heaviest = [heapq.heappop(open_prefixes) for _ in range(min(room, len(open_prefixes)))]
            async with asyncio.TaskGroup() as group:
                for mass, prefix in heaviest:
                    group.create_task(grow(-mass, prefix))
        masses = Masses(tuple(leak), tuple(clean))
        return AnswerTree.of(
            row["id"],
            leak_interval(masses, Remainder(), alpha),
            masses,
            Remainder(),
            queries,
            rows=self.requests - started,
            heaviest_leaks=tuple(sorted(heavy, key=lambda one: -one.probability)[:SHOWN]),
            assumes=AS_STATED,
        )

    async def drift(self) -> Probe:
        """Whether the server states the first step of each question as it did when the walk began; one request each."""
        moved = 0.0
        for ids, before in self.first_steps.items():
            after = await self._next(ids)
            for token in before.keys() | after.keys():
                moved = max(moved, abs(after.get(token, 0.0) - before.get(token, 0.0)))
        sentence = (
            f"a stated probability moved by {moved:.2g} from the first steps to the end of the walk"
        )
        return Probe("drift", moved <= SAME_STEP, sentence)

    async def ids(self, row: Row) -> list[int]:
        """The tokens of a question's prompt, by the server."""
        given: dict[str, Json] = {"prompt": worded(self.template, row)}
        if self.template == CHAT:
            given = {
                "messages": [{"role": "user", "content": given["prompt"]}],
                "add_generation_prompt": True,
            }
        return (await self._asked("tokenize", given, Tokenized)).tokens

    async def _text(self, ids: Sequence[int]) -> str:
        if not ids:
            return ""
        return (await self._asked("detokenize", {"tokens": list(ids)}, Detokenized)).prompt

    async def _asked(
        self, path: str, given: Mapping[str, Json], kind: type[TokenReply]
    ) -> TokenReply:
        body = {"model": self.client.endpoint.name, **given}
        self.client.http.expect(sum(map(len, map(str, given.values()))), 0)
        try:
            sent = self.client.post(f"{self.root}/{path}", body)
            return read(kind, await self.client.received(sent, f"/{path}"))
        except (Failed, BadReply):
            pass
        except BadInput as error:
            if "redirects" in str(error):
                raise
        raise self._refusal(f"has no /{path}, without which tokens cannot be told apart")

    def _refusal(self, fault: str) -> BadInput:
        return BadInput(
            f"{self.client.endpoint}: the server {fault}. Exact bounds of a served model need vLLM's server; sample it "
            "(lethe eval --endpoint)."
        )

    async def _complete(self, ids: Sequence[int], **more: object) -> PlainChoice:
        self.requests += 1
        body = {
            "model": self.client.endpoint.name,
            "prompt": list(ids),
            "max_tokens": 1,
            "temperature": 1.0,
            "logprobs": TOP,
            "return_tokens_as_token_ids": True,
            "add_special_tokens": False,
            **more,
        }
        try:
            sent = self.client.post("/completions", body)
            content = await self.client.received(sent, "a step of the walk")
            reply = read(PlainReply, content)
        except (Failed, BadReply) as failure:
            raise BadInput(
                f"{self.client.endpoint}: a step of the walk failed ({failure}). Start vLLM's server with "
                f"--max-logprobs {TOP}, and see that question and answer fit its context."
            ) from None
        self.models[reply.model, reply.system_fingerprint] += 1
        if len(reply.choices) != 1:
            raise self._refusal(f"gives {len(reply.choices)} answers to a request for one")
        return reply.choices[0]

    async def _next(self, ids: Sequence[int]) -> dict[int, float]:
        """The stated probabilities of the likeliest next tokens."""
        logprobs = (await self._complete(ids)).logprobs
        steps = logprobs.steps if logprobs else []
        stated = steps[0].likeliest if steps else {}
        named = {token: TOKEN_NAME.fullmatch(token) for token in stated}
        if not stated or not all(named.values()):
            raise self._refusal("does not state log-probabilities by token id")
        shares = {
            int(match[1]): math.exp(min(0.0, stated[token]))
            for token, match in named.items()
            if match
        }
        total = math.fsum(shares.values())
        if total > 1 + ROUNDING:
            raise self._refusal(
                f"states probabilities of the next token that add up to {total:.3g}, more than 1"
            )
        return shares

    def _kind(self, token: int, ids: Sequence[int]) -> asyncio.Task[str]:
        """Whether a token ends an answer, adds text, or neither, which leaves what it opens unknown."""
        if token not in self.kinds:
            self.kinds[token] = asyncio.create_task(self._forced(token, ids))
        return self.kinds[token]

    async def _forced(self, token: int, ids: Sequence[int]) -> str:
        choice = await self._complete(ids, allowed_token_ids=[token])
        steps = choice.logprobs.steps if choice.logprobs else []
        if not steps or steps[0].token != f"{NAMED}{token}":
            raise self._refusal(
                "does not draw the token that it is allowed (allowed_token_ids), so the end of an answer cannot be told"
            )
        reason = end_of(choice.finish_reason, choice.text)
        if reason == STOPPED:
            return "end"
        if reason != CUT_OFF:
            raise self._refusal(
                f"ends a step of one token with {reason!r}, expected stop or length"
            )
        return "text" if choice.text else "hidden"
