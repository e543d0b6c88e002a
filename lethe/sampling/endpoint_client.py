"""Requests to an OpenAI-compatible server, what came back, and what the server does with a request.

A bound assumes independent draws of one distribution. A cache, a temperature that is ignored or a model that changes
half-way breaks that without an error, so probes try each.
"""

from __future__ import annotations

import asyncio
import math
import os
import time
from collections import Counter
from collections.abc import Awaitable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from lethe.config.evaluating import Endpoint
from lethe.errors import BadInput, BadValue, LetheError, plural
from lethe.io.answer_ends import (
    ANSWERED,
    ASKED_AGAIN,
    FAILED,
    FILTERED,
    REFUSED,
    TOOL_CALLS,
    end_of,
)
from lethe.io.files import Json
from lethe.sampling.drift import LEVEL as NO_CHANGE
from lethe.sampling.drift import p_value_of_no_change
from lethe.sampling.endpoint_reply import (
    BadReply,
    ChatChoice,
    ChatReply,
    PlainChoice,
    PlainReply,
    Usage,
    read,
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


class Failed(Exception):
    """A request without an answer; its text is the kind that is counted. ``answered``: the server may charge for it."""

    def __init__(self, kind: str, answered: bool = False):
        super().__init__(kind)
        self.answered = answered


@dataclass(frozen=True)
class Drawn:
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
    thinking: str | None = (
        None  # in a field of its own; without an answer after it, the text is null
    )

    @property
    def kind(self) -> str:
        """Why the answer is missing; of a request that brought nothing, ``model`` says why."""
        return f"failed: {self.model}" if self.reason == FAILED else self.reason


@dataclass(frozen=True)
class Ask:
    text: str
    n: int = 1
    max_tokens: int = 16
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    logprobs: int | None = None
    seed: int | None = None
    before: tuple[tuple[str, str], ...] = ()  # role and text of each earlier message

    def most(self) -> int:
        """The most tokens that the request reads and writes, by estimate."""
        read = len(self.text) + sum(len(text) for _, text in self.before)
        return read // CHARACTERS + 8 * (1 + len(self.before)) + self.n * self.max_tokens


class Client:
    """A server and its model, asked in chat or with plain prompts; a context, whose connections belong to one loop."""

    def __init__(self, endpoint: Endpoint, chat: bool):
        key = NO_KEY if endpoint.key_env is None else os.environ.get(endpoint.key_env)
        if not key:
            raise BadValue(
                "key_env",
                endpoint.key_env,
                "the name of an environment variable that holds the key",
            )
        self.endpoint, self.chat, self.limit, self._key = endpoint, chat, "max_tokens", key
        self.whole = True  # whether the server takes `WHOLE`

    async def __aenter__(self) -> Client:
        import openai

        from lethe.sampling.endpoint_http import LimitedClient

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

    async def ask(self, ask: Ask, request: str) -> list[Drawn]:
        """The answers to one request; ``request`` names it in errors."""
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

        from lethe.sampling.endpoint_http import NoTimeToWait, Unreadable

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

        from lethe.sampling.endpoint_http import Tries

        tries = Tries(self.endpoint.retries, self.endpoint.timeout)
        response = await tries.reply(
            lambda: self.openai.post(address, body=body, cast_to=httpx2.Response)
        )
        return response.content

    async def _send(self, ask: Ask) -> bytes:
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
    ) -> Drawn:
        refused, called, thinking = False, False, None
        if isinstance(choice, ChatChoice):
            text = choice.message.content
            thinking = choice.message.reasoning_content or choice.message.reasoning or None
            refused = bool(choice.message.refusal)
            called = bool(choice.message.tool_calls)
        else:
            text = choice.text
        if thinking and not text:
            text = None  # thinking without an answer after it left none, which is not an empty one
        if refused:
            reason = REFUSED
        elif called and not text:
            reason = TOOL_CALLS
        else:
            reason = end_of(choice.finish_reason, thinking if text is None else text)
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

        steps = choice.logprobs.steps if choice.logprobs else []
        stated = [step.log_probability for step in steps]
        sure = [
            math.exp(min(0.0, max([step.log_probability, *step.likeliest.values()])))
            for step in steps
        ]
        return Drawn(
            text,
            reason,
            len(steps) or round(written),
            math.fsum(sure) / len(sure) if sure else None,
            reply.model,
            reply.system_fingerprint,
            time.time(),
            (read_tokens / share, written),
            first=steps[0].token if steps else None,
            stated=steps[0].likeliest or None if steps else None,
            mass=math.exp(min(0.0, math.fsum(stated))) if steps else None,
            thinking=thinking,
        )

    def _refused(self, error: APIStatusError) -> Exception:
        """What an answer with an error status means; its text is not quoted, since it may hold the key."""
        status, url = error.status_code, self.endpoint.endpoint
        if status in (401, 403):
            asked = self.endpoint.key_env
            which = (
                f"the key in {asked}"
                if asked
                else "a request without a key (--key-env names a variable)"
            )
            return BadInput(f"{url} refuses {which} (status {status}).")
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

        from lethe.sampling.endpoint_http import Tries

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


OPEN = "Write ten words that come to mind."  # a question with many answers
# requests: equal ones, ones that differ a little, greedy ones, one token each
REPEATED, VARIED, COLD, FIRST, SEEDS, CUT = 8, 4, 6, 24, 4, 4
TOP = 5  # log-probabilities of a token, the most that every server gives
LEVEL = 1e-3  # of a test that could fail by chance
# Of a test whose law is the server's own word: a text that can be spelled in several ways has a little more probability than
# is stated of one spelling.
STORED = 1e-6
SEED = 7
MOST_NAMES = 4  # of a server, in a sentence


@dataclass(frozen=True)
class Probe:
    """One property of a server: ``passed`` is None where nothing can be said. Bounds need the ``needed`` properties."""

    name: str
    passed: bool | None
    sentence: str
    needed: bool = True

    def __str__(self) -> str:
        word = {True: "ok", False: "FAILED" if self.needed else "no", None: "unknown"}[self.passed]
        return f"probe {self.name}: {word}: {self.sentence}"


class NoProbe(LetheError):
    """A server that answered none of the first probes."""

    def __init__(self, endpoint: Endpoint, failures: Mapping[str, int]):
        kinds = ", ".join(failures)
        super().__init__(f"{endpoint} answered none of the probes ({kinds}): nothing was drawn.")


@dataclass(frozen=True)
class Probes:
    each: tuple[Probe, ...]
    n: bool
    logprobs: bool
    seed: bool
    whole: bool
    spent: float
    models: tuple[tuple[str, str | None], ...]


async def probe(client: Client) -> Probes:
    """Try the server with some sixty short requests."""
    spent, models = 0.0, dict[tuple[str, str | None], None]()

    failures = Counter[str]()

    async def one(name: str, ask: Ask) -> list[Drawn]:
        try:
            drawn = await client.ask(ask, f"the probe {name}")
        except Failed as failure:  # no answers
            failures[str(failure)] += 1
            return []
        failures.update(answer.kind for answer in drawn if answer.reason in ASKED_AGAIN)
        return [answer for answer in drawn if answer.reason not in ASKED_AGAIN]

    async def ask(name: str, asks: Sequence[Ask]) -> list[Drawn]:
        nonlocal spent, models
        answers = [
            drawn
            for own in await asyncio.gather(*(one(name, ask) for ask in asks))
            for drawn in own
        ]
        spent += sum(sum(drawn.spent) for drawn in answers)
        models |= dict.fromkeys((drawn.model, drawn.fingerprint) for drawn in answers)
        return answers

    async with client:
        await client.alive("the first", retries=0)
        cut = await ask("cuts", [Ask(OPEN, top_k=1)] * CUT)
        client.whole = bool(cut)
        repeated = await ask("draws", [Ask(OPEN)])
        if not (cut or repeated):  # a server that lets each request time out would take hours
            raise NoProbe(client.endpoint, failures)
        repeated += await ask("draws", [Ask(OPEN)] * (REPEATED - 1))
        varied = await ask(
            "draws", [Ask(OPEN, temperature=1 + step / 1000) for step in range(1, VARIED + 1)]
        )
        cold = await ask("temperature", [Ask(OPEN, temperature=0)] * COLD)
        short = await ask("max_tokens", [Ask(OPEN, max_tokens=2)])
        several = await ask("n", [Ask(OPEN, n=3)])
        one_token = Ask(OPEN, max_tokens=1, logprobs=TOP)
        first = await ask("logprobs", [one_token])
        logprobs = bool(first and first[0].stated)
        first = await ask("logprobs", [one_token] * FIRST) if logprobs else []
        sure = await ask("logprobs", [Ask(OPEN, logprobs=1)]) if logprobs else []
        # One after the other: several at once have ended a server.
        seeds = [SEED] * 2 + [SEED + number for number in range(1, SEEDS)] * client.endpoint.seeded
        seeded = [await ask("seed", [Ask(OPEN, max_tokens=8, seed=seed)]) for seed in seeds]
    honoured = len(several) == 3 and (len(_texts(several)) > 1 or len(_texts(repeated)) < REPEATED)
    copies = " alike" if len(several) == 3 and not honoured else ""
    seed = _seed(seeded, len(_texts([*repeated, *varied])) > 1)
    alike = [(own.mass or 0) ** (REPEATED - 1) for own in sure if _texts(repeated) == {own.text}]
    certain = bool(alike and alike[0] > LEVEL)  # so likely are equal answers, by the server's word
    each = (
        _differ(repeated, varied, certain),
        _temperature(repeated, varied, cold, certain),
        _cuts(cut, repeated),
        _limit(short),
        Probe("n", honoured, f"n=3 gave {len(several)} answers{copies}", needed=False),
        _frequencies(first),
        seed,
    )
    seeded_draws = bool(seed.passed) and client.endpoint.seeded
    return Probes(each, honoured, logprobs, seeded_draws, client.whole, spent, tuple(models))


def _texts(drawn: Sequence[Drawn]) -> set[str | None]:
    return {own.text for own in drawn}


def _first(name: str, *cases: tuple[bool, bool | None, str], needed: bool = True) -> Probe:
    """The probe with the result of the first case that holds."""
    return next(Probe(name, passed, sentence, needed) for holds, passed, sentence in cases if holds)


def _differ(repeated: Sequence[Drawn], varied: Sequence[Drawn], certain: bool) -> Probe:
    distinct, cached, number = len(_texts(repeated)), len(_texts(varied)) > 1, len(repeated)
    alike = f"{number} equal requests got one answer"
    why = (
        ", and requests that differ a little get others: the server repeats stored answers"
        if cached
        else ""
    )
    return _first(
        "draws",
        (not repeated, None, "no probe of equal requests was answered"),
        (distinct > 1, True, f"{number} equal requests got {distinct} distinct answers"),
        (certain and not cached, None, f"{alike}, of which the model is that certain"),
        (True, False, alike + why),
    )


def _temperature(
    repeated: Sequence[Drawn], varied: Sequence[Drawn], cold: Sequence[Drawn], certain: bool
) -> Probe:
    warm, greedy = len(_texts([*repeated[:COLD], *varied])), len(_texts(cold))
    alike = "temperatures 0 and 1 give one and the same answer:"
    return _first(
        "temperature",
        (not cold or not repeated, None, "no probe of temperature 0 was answered"),
        (warm == 1 and certain, None, f"{alike} the model is certain of its answer"),
        (warm == 1, False, f"{alike} the server ignores the temperature"),
        # fewer may differ by rounding
        (
            greedy > COLD // 2,
            False,
            f"{len(cold)} requests at temperature 0 got {greedy} distinct answers",
        ),
        (True, True, f"answers vary at temperature 1 ({warm}) and hardly at 0 ({greedy})"),
    )


def _cuts(cut: Sequence[Drawn], repeated: Sequence[Drawn]) -> Probe:
    unknown = f"the server {'ignores' if cut else 'refuses'} top_k: its own settings may cut rare answers off"
    return _first(
        "cuts",
        (not cut or len(_texts(cut)) > CUT // 2, None, unknown),
        (len(_texts(repeated)) < 2, None, "draws do not differ, so nothing shows what top_k does"),
        (True, True, "top_k is obeyed, and no setting of the server's own cuts answers off"),
    )


def _limit(short: Sequence[Drawn]) -> Probe:
    if not short:
        return Probe("max_tokens", None, "no probe of max_tokens was answered")
    words = len((short[0].text or "").split())
    longest = max(
        short[0].tokens, words if words > 4 else 0
    )  # two tokens may be written as a few words
    return Probe("max_tokens", longest <= 2, f"a limit of 2 tokens gave {longest}")


def _frequencies(first: Sequence[Drawn]) -> Probe:
    """Whether first tokens come as often as the server states: exact binomial tests, one for each stated token."""
    from scipy.stats import binomtest

    stated = [own.stated for own in first if own.stated]
    if not stated:
        return Probe("logprobs", None, "the server states no log-probabilities")
    counts, n = Counter(own.first for own in first), len(first)
    masses = {token: min(1.0, math.exp(value)) for token, value in stated[0].items()}
    p = min(
        1.0,
        len(masses)
        * min(binomtest(counts[token], n, mass).pvalue for token, mass in masses.items()),
    )
    likely = max(masses, key=lambda token: masses[token])
    seen = f"the likeliest first token has the stated probability {masses[likely]:.2g} and came {counts[likely]} of {n} times"
    return Probe("logprobs", bool(p >= LEVEL), seen)


def _seed(drawn: Sequence[Sequence[Drawn]], random: bool) -> Probe:
    """Whether two requests with one seed get one answer; with more requests, whether other seeds get others."""
    texts = [own[0].text for own in drawn if own]
    asked, several = len(drawn) > 2, len(set(texts)) > 1
    repeats = "a seed repeats an answer" + ", and others give others" * asked
    return _first(
        "seed",
        (len(texts) < len(drawn), None, "a request with a seed got no answer; none is sent"),
        (not random, None, "draws do not differ, so nothing shows what a seed does; none is sent"),
        (texts[:1] != texts[1:2], False, "a seed does not repeat an answer; none is sent"),
        (asked and not several, False, f"{SEEDS} seeds give one answer; none is sent"),
        (True, True, f"{repeats}; {'each answer has one' if asked else 'none is sent'}"),
        needed=False,
    )


def identity(models: Mapping[tuple[str, str | None], int]) -> Probe:
    names = [f"{model} ({fingerprint})" if fingerprint else model for model, fingerprint in models]
    shown = names[:MOST_NAMES]
    if len(names) > MOST_NAMES:
        shown.append(plural(len(names) - MOST_NAMES, "other name"))
    text = f"the server says that it is {' and '.join(shown)}"
    return Probe("identity", len(names) == 1 if names else None, text)


def drift(answers: Sequence[Sequence[str]]) -> Probe:
    """Whether the first and the last answers come from one distribution; ``answers`` are those of a question, in time."""
    p = p_value_of_no_change(answers)
    if p is None:
        return Probe("drift", None, "too few answers for a test of the first against the last")
    return Probe("drift", p > NO_CHANGE, f"first against last answers: p = {p:.2g} of no change")


def repeats(answers: Sequence[Sequence[Drawn]]) -> Probe:
    """Whether late answers repeat early ones more often than the server's own probabilities allow, as from a store.

    ``answers`` are those of each question, in time, with their stated probabilities (``mass``). Given the early half, a late
    answer is in it with the probability that the server states of its distinct texts together: an exact binomial test for
    each question, Bonferroni over the questions.
    """
    from scipy.stats import binom

    p_values = []
    for drawn in answers:
        if len(drawn) < 4 or any(own.mass is None for own in drawn):
            continue
        half = len(drawn) // 2
        mass_of_text: dict[str | None, float] = {}
        for own in drawn[:half]:
            mass_of_text[own.text] = max(own.mass or 0.0, mass_of_text.get(own.text, 0.0))
        late = [own.text in mass_of_text for own in drawn[half:]]
        together = min(1.0, sum(mass_of_text.values()))
        p_values.append(float(binom.sf(sum(late) - 1, len(late), together)))
    if not p_values:
        return Probe("repeats", None, "the server states no probabilities of whole answers")
    p = min(1.0, len(p_values) * min(p_values))
    seen = (
        f"late answers repeat early ones, p = {p:.2g} by the probabilities that the server states"
    )
    return Probe("repeats", p >= STORED, seen)
