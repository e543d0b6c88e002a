"""What a server does with a request, measured before anything is believed, and whether it stayed the same to the end.

A bound assumes independent draws of one distribution. A cache, a temperature that is ignored or a model that changes
half-way breaks that without an error, so each is tried.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from lethe.sampling.endpoint_client import Ask, Client, Drawn, Failed

OPEN = "Write ten words that come to mind."  # a question with many answers
# requests: equal ones, ones that differ a little, greedy ones, one token each
REPEATED, VARIED, COLD, FIRST = 8, 4, 6, 24
TOP = 5  # log-probabilities of a token, the most that every server gives
LEVEL = 1e-3  # of a test that could fail by chance
DRIFT, SHUFFLES, BLOCK = 0.01, 1999, 200  # level of the test for a change, its permutations, answers of a block
SEED = 7


@dataclass(frozen=True)
class Probe:
    """One property of a server: ``passed`` is None where nothing can be said.

    Bounds need ``needed`` properties; the others only change how the server is asked.
    """

    name: str
    passed: bool | None
    sentence: str
    needed: bool = True


@dataclass(frozen=True)
class Probes:
    """What was found before the first draw, the tokens that it took, and the models that answered."""

    each: tuple[Probe, ...]
    n: bool
    logprobs: bool
    spent: float
    models: tuple[tuple[str, str | None], ...]

    def as_json(self) -> dict[str, object]:
        """For the file beside the answers, from which a resumed run reads them."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, object]) -> Probes:
        """The probes of `as_json`."""
        given: dict[str, object] = dict(values)
        each, models = given.pop("each"), given.pop("models")
        assert isinstance(each, list)
        assert isinstance(models, list)
        return cls(
            each=tuple(Probe(**one) for one in each),
            models=tuple((model, fingerprint) for model, fingerprint in models),
            **given,  # type: ignore[arg-type]
        )


async def probe(client: Client) -> Probes:
    """Try the server with some sixty short requests."""
    async with client:
        await client.alive("the first", retries=0)
        return await _probed(_Asking(client))


async def _probed(ask: _Asking) -> Probes:
    repeated = await ask.many("draws", [Ask(OPEN)])
    repeated += await ask.many("draws", [Ask(OPEN)] * (REPEATED - 1))
    varied = await ask.many("draws", [Ask(OPEN, temperature=1 + step / 1000) for step in range(1, VARIED + 1)])
    cold = await ask.many("temperature", [Ask(OPEN, temperature=0)] * COLD)
    short = await ask.many("max_tokens", [Ask(OPEN, max_tokens=2)])
    several = await ask.many("n", [Ask(OPEN, n=3)])
    honoured = len(several) == 3 and (len(_texts(several)) > 1 or len(_texts(repeated)) < REPEATED)
    one = Ask(OPEN, max_tokens=1, logprobs=TOP)
    first = await ask.many("logprobs", [one])
    logprobs = bool(first and first[0].stated)
    first = await ask.many("logprobs", [one] * FIRST) if logprobs else []
    sure = await ask.many("logprobs", [Ask(OPEN, logprobs=1)]) if logprobs else []
    fixed = [await ask.many("seed", [Ask(OPEN, max_tokens=8, seed=SEED)]) for _ in range(2)]
    alike = [(own.mass or 0) ** (REPEATED - 1) for own in sure if _texts(repeated) == {own.text}]
    certain = bool(alike and alike[0] > LEVEL)  # so likely are equal answers, by the server's word
    return Probes(
        (
            _differ(repeated, varied, certain),
            _temperature(repeated, varied, cold, certain),
            _limit(short),
            _several(len(several), honoured),
            _frequencies(first),
            _seed(fixed),
        ),
        honoured,
        logprobs,
        ask.spent,
        tuple(ask.models),
    )


class _Asking:
    """Requests of the probes; one that fails has no answers."""

    def __init__(self, client: Client):
        self.client, self.spent = client, 0.0
        self.models: dict[tuple[str, str | None], None] = {}

    async def many(self, name: str, asks: Sequence[Ask]) -> list[Drawn]:
        answered = await asyncio.gather(*(self._one(name, ask) for ask in asks))
        found = [drawn for own in answered for drawn in own]
        self.spent += sum(sum(drawn.spent) for drawn in found)
        self.models |= dict.fromkeys((drawn.model, drawn.fingerprint) for drawn in found)
        return found

    async def _one(self, name: str, ask: Ask) -> list[Drawn]:
        try:
            return await self.client.ask(ask, f"the probe {name}")
        except Failed:
            return []


def _texts(drawn: Sequence[Drawn]) -> set[str | None]:
    return {own.text for own in drawn}


def _differ(repeated: Sequence[Drawn], varied: Sequence[Drawn], certain: bool) -> Probe:
    distinct = len(_texts(repeated))
    if not repeated:
        return Probe("draws", None, "no probe of equal requests was answered")
    if distinct > 1:
        return Probe("draws", True, f"{len(repeated)} equal requests got {distinct} distinct answers")
    cached = len(_texts(varied)) > 1
    if certain and not cached:
        return Probe(
            "draws", None, f"{len(repeated)} equal requests got one answer, of which the model is that certain"
        )
    why = ", and requests that differ a little get others: the server repeats stored answers" if cached else ""
    return Probe("draws", False, f"{len(repeated)} equal requests got one answer{why}")


def _temperature(
    repeated: Sequence[Drawn], varied: Sequence[Drawn], cold: Sequence[Drawn], certain: bool
) -> Probe:
    warm, greedy = len(_texts([*repeated[:COLD], *varied])), len(_texts(cold))
    if not cold or not repeated:
        return Probe("temperature", None, "no probe of temperature 0 was answered")
    if warm == 1:
        what = "the model is certain of its answer" if certain else "the server ignores the temperature"
        return Probe(
            "temperature", None if certain else False, f"temperatures 0 and 1 give one and the same answer: {what}"
        )
    if greedy > COLD // 2:  # fewer may differ by rounding
        return Probe("temperature", False, f"{len(cold)} requests at temperature 0 got {greedy} distinct answers")
    return Probe("temperature", True, f"answers vary at temperature 1 ({warm}) and hardly at 0 ({greedy})")


def _limit(short: Sequence[Drawn]) -> Probe:
    if not short:
        return Probe("max_tokens", None, "no probe of max_tokens was answered")
    words = len((short[0].text or "").split())
    longest = max(short[0].tokens, words if words > 4 else 0)  # two tokens may be written as a few words
    return Probe("max_tokens", longest <= 2, f"a limit of 2 tokens gave {longest}")


def _several(count: int, honoured: bool) -> Probe:
    copies = " alike" if count == 3 and not honoured else ""
    return Probe("n", honoured, f"n=3 gave {count} answers{copies}", needed=False)


def _frequencies(first: Sequence[Drawn]) -> Probe:
    """Whether first tokens come as often as the server states: exact binomial tests, one for each stated token."""
    from scipy.stats import binomtest

    stated = [own.stated for own in first if own.stated]
    if not stated:
        return Probe("logprobs", None, "the server states no log-probabilities")
    counts, n = Counter(own.first for own in first), len(first)
    masses = {token: min(1.0, math.exp(value)) for token, value in stated[0].items()}
    values = [binomtest(counts[token], n, mass).pvalue for token, mass in masses.items()]
    p = min(1.0, len(values) * min(values))
    likely = max(masses, key=lambda token: masses[token])
    said = f"the likeliest first token has the stated probability {masses[likely]:.2g} and came {counts[likely]} of {n} times"
    return Probe("logprobs", bool(p >= LEVEL), said)


def _seed(fixed: Sequence[Sequence[Drawn]]) -> Probe:
    if not all(fixed):
        return Probe("seed", None, "a request with a seed got no answer", needed=False)
    same = fixed[0][0].text == fixed[1][0].text
    return Probe(
        "seed", same, f"a seed {'repeats' if same else 'does not repeat'} an answer; none is sent", needed=False
    )


def identity(models: Mapping[tuple[str, str | None], int]) -> Probe:
    """Whether one model answered all requests, by its name and fingerprint."""
    names = [f"{model} ({fingerprint})" if fingerprint else model for model, fingerprint in models]
    text = f"the server says that it is {' and '.join(names)}"
    return Probe("identity", len(names) == 1 if names else None, text)


def drift(answers: Sequence[Sequence[str]]) -> Probe:
    """Whether the first and the last answers come from one distribution; ``answers`` are those of a question, in time.

    A permutation test within each question, of lengths, first words and whole texts (Bonferroni over the three).
    """
    blocks = [own for own in answers if len(own) >= 4]
    if not blocks:
        return Probe("drift", None, "too few answers for a test of the first against the last")
    generator = np.random.default_rng(0)
    coded = _coded(blocks)
    seen, above = sum(map(_apart, coded)), np.zeros(3)
    for _ in range(SHUFFLES):
        above += sum(_apart(generator.permuted(own, axis=1)) for own in coded) >= seen - 1e-9
    p = min(1.0, 3 * float(((1 + above) / (1 + SHUFFLES)).min()))
    return Probe("drift", p >= DRIFT, f"first against last answers: p = {p:.2g} of no change")


def _coded(blocks: Sequence[Sequence[str]]) -> list[np.ndarray]:
    """For each question (3, answers): ranks of the lengths, then numbers of the first words and of the texts."""
    found = []
    for own in blocks:
        half = min(len(own) // 2, BLOCK)
        texts = [*own[:half], *own[-half:]]
        lengths = np.array([len(text) for text in texts], dtype=float)
        ranks = np.searchsorted(np.sort(lengths), lengths)
        words = [(text.split() or [""])[0] for text in texts]
        codes = [np.unique(each, return_inverse=True)[1] for each in (words, texts)]
        found.append(np.stack([ranks, *codes]))
    return found


def _apart(coded: np.ndarray) -> np.ndarray:
    """How far the two halves of one question are apart: by the mean rank, and by the counts of words and texts."""
    half = coded.shape[1] // 2
    ranks = coded[0] / coded.shape[1]
    values = [abs(ranks[:half].mean() - ranks[half:].mean())]
    for codes in coded[1:]:
        first, all_ = (np.bincount(own, minlength=codes.max() + 1) for own in (codes[:half], codes))
        values.append(float(((2 * first - all_) ** 2 / all_).sum()))
    return np.array(values)
