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
from lethe.models.endpoint_client import Client, Failed
from lethe.models.endpoint_reply import (
    ROUNDING,
    BadReply,
    Detokenized,
    PlainChoice,
    PlainReply,
    Tokenized,
    TokenStep,
    read,
)
from lethe.sampling.answer_tree.asking import LeakRule
from lethe.sampling.endpoint_probes import Probe
from lethe.statistics.answer_tree import Masses, Remainder, leak_interval
from lethe.statistics.leak_trees import AS_STATED, AnswerTree, HeavyLeak

NAMED = "token_id:"  # how vLLM writes an id
TOP = 20  # the most log-probabilities that vLLM gives by default
TOKEN_NAME = re.compile(f"{NAMED}(0|[1-9][0-9]{{0,9}})")
SHOWN = 5  # heavy leaks of a question
# How far a stated probability may move while one model answers: arithmetic in bfloat16 moves it by less in batches of other
# sizes, and a token at the end of the list that is no longer named had at most 1 / TOP.
SAME_STEP = 1 / TOP
TokenReply = TypeVar("TokenReply", Tokenized, Detokenized)


class Walker:
    """The requests of a walk, each counted; what a token does is asked once."""

    def __init__(self, client: Client, prompt: str):
        self.client = client
        self.template = prompt
        if prompt != CHAT and "{question}" not in prompt:
            self.template = read_template(prompt)
        self.root = client.endpoint.endpoint.rstrip("/").removesuffix("/v1")
        self.kinds: dict[int, asyncio.Task[str]] = {}
        self.requests = 0
        self.models = Counter[tuple[str, str | None]]()  # name and fingerprint of each reply
        self.first_steps: dict[tuple[int, ...], dict[int, float]] = {}  # by the prompt's tokens

    async def tree(
        self,
        row: Row,
        rule: LeakRule,
        most: int,
        longest: int,
        alpha: float,
        queries: Sequence[int],
    ) -> AnswerTree:
        """The bounds of a question after about ``most`` requests; answers have up to ``longest`` tokens.

        Raises
        ------
        BadInput
            If the server is not vLLM's, or a step fails.
        ServerGone
            If the server takes no connection.
        """
        ids = await self.ids(row)
        started = self.requests
        leak = [0.0] * longest
        clean = [0.0] * longest
        heavy: list[HeavyLeak] = []
        # The heaviest first: a heap pops the smallest entry, so the masses have a minus sign.
        open_prefixes: list[tuple[float, tuple[int, ...]]] = [(-1.0, ())]

        def settle(text: str, mass: float, length: int, leaks: bool) -> None:
            if leaks:
                leak[length - 1] += mass
                heavy.append(HeavyLeak(text, mass))
            else:
                clean[length - 1] += mass

        async def grow(mass: float, prefix: tuple[int, ...]) -> None:
            text = await self._text(prefix)
            if prefix and rule.begun(text):
                settle(text, mass, len(prefix), leaks=True)
                return
            leaks_here = bool(rule.leaks([text])[0])
            if len(prefix) == longest:
                settle(text, mass, longest, leaks_here)
                return
            shares = await self._next([*ids, *prefix])
            if not prefix:
                self.first_steps.setdefault(tuple(ids), shares)
            for token, share in shares.items():
                kind = await self._kind(token, ids)
                if kind == "end":
                    settle(text, mass * share, len(prefix) + 1, leaks_here)
                elif kind == "text":
                    heapq.heappush(open_prefixes, (-mass * share, (*prefix, token)))

        while open_prefixes and self.requests - started < most:
            left = most - self.requests + started
            n_heaviest = min(self.client.endpoint.concurrency, left, len(open_prefixes))
            heaviest = [heapq.heappop(open_prefixes) for _ in range(n_heaviest)]
            async with asyncio.TaskGroup() as group:
                for negative_mass, prefix in heaviest:
                    group.create_task(grow(-negative_mass, prefix))
        masses = Masses(tuple(leak), tuple(clean))
        return AnswerTree.of(
            row["id"],
            leak_interval(masses, Remainder(), alpha),
            masses,
            Remainder(),
            queries,
            rows=self.requests - started,
            heaviest_leaks=tuple(sorted(heavy, key=lambda leak: -leak.probability)[:SHOWN]),
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
        prompt = worded(self.template, row)
        body: dict[str, Json] = {"prompt": prompt}
        if self.template == CHAT:
            messages = [{"role": "user", "content": prompt}]
            body = {"messages": messages, "add_generation_prompt": True}
        reply = await self._asked("tokenize", body, Tokenized)
        return reply.tokens

    async def _text(self, ids: Sequence[int]) -> str:
        """The text of tokens, by the server."""
        if not ids:
            return ""
        reply = await self._asked("detokenize", {"tokens": list(ids)}, Detokenized)
        return reply.prompt

    async def _asked(
        self, path: str, question: Mapping[str, Json], kind: type[TokenReply]
    ) -> TokenReply:
        """The reply of one of vLLM's own services; raises `BadInput` where the server has none."""
        body = {"model": self.client.endpoint.name, **question}
        size = sum(len(str(value)) for value in question.values())
        self.client.http.expect(size, logprobs=0)
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
        """The one answer, of one token, that continues tokens."""
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
        steps = _steps(await self._complete(ids))
        stated = steps[0].likeliest if steps else {}
        shares: dict[int, float] = {}
        for name, log_probability in stated.items():
            token = TOKEN_NAME.fullmatch(name)
            if token is None:
                shares = {}
                break
            shares[int(token[1])] = math.exp(min(0.0, log_probability))
        if not shares:
            raise self._refusal("does not state log-probabilities by token id")
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
        """The kind of a token, from an answer in which no other one is allowed."""
        choice = await self._complete(ids, allowed_token_ids=[token])
        steps = _steps(choice)
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


def _steps(choice: PlainChoice) -> list[TokenStep]:
    return choice.logprobs.steps if choice.logprobs else []
