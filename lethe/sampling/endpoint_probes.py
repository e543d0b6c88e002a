"""What a server does with a request: a bound assumes independent draws of one distribution.

A cache, a temperature that is ignored or a model that changes half-way breaks that without an error, so probes try each.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from lethe.config.measuring import Endpoint
from lethe.errors import LetheError, plural
from lethe.io.answer_ends import ASKED_AGAIN
from lethe.io.copies import log_chance_of_even
from lethe.models.endpoint_client import Ask, Client, Failed, ServedAnswer
from lethe.models.endpoint_reply import NO_NAME, named
from lethe.sampling.drift import LEVEL as NO_CHANGE
from lethe.sampling.drift import p_value_of_no_change, p_value_of_one_mean

OPEN = "Write ten words that come to mind."  # a question with many answers
# The numbers of requests of each probe, which are as few as their tests need.
REPEATED = 8  # equal ones
VARIED = 4  # that differ a little
COLD = 6  # at temperature 0
FIRST = 24  # for one token with its log-probabilities
SEEDS = 4  # one after the other
CUT = 4  # with a cut that leaves the likeliest token alone
NARROW = 1e-6  # a top_p that leaves it alone
UNCUT = {"top_p": 1, "top_k": 0}  # the settings that cut nothing
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
        if self.passed is None:
            outcome = "unknown"
        elif self.passed:
            outcome = "ok"
        else:
            outcome = "FAILED" if self.needed else "no"
        return f"probe {self.name}: {outcome}: {self.sentence}"


class NoProbe(LetheError):
    """A server that answered none of the first probes."""

    def __init__(self, endpoint: Endpoint, failures: Mapping[str, int]):
        kinds = ", ".join(failures)
        super().__init__(
            f"{endpoint} answered none of the probes ({kinds}): nothing was drawn. Answers of earlier calls are kept: "
            "run the same command again once the server answers."
        )


@dataclass(frozen=True)
class Probes:
    """What a server does: its probes, and whether it obeys ``n``, states ``logprobs``, draws by the ``seed`` that it is
    sent, and takes the ``whole`` distribution. ``spent`` tokens went into them; ``models`` are names with fingerprints."""

    tried: tuple[Probe, ...]
    n: bool
    logprobs: bool
    seed: bool
    whole: bool
    spent: float
    models: tuple[tuple[str, str | None], ...]

    def beside(self, earlier: Probes) -> Probes:
        """These probes, beside those before earlier answers: what either refutes holds of no set of both answers."""
        tried = map(_weaker, self.tried, earlier.tried)
        models = dict.fromkeys((*earlier.models, *self.models))
        return replace(
            self,
            tried=tuple(tried),
            seed=self.seed and earlier.seed,
            spent=self.spent + earlier.spent,
            models=tuple(models),
        )


def _weaker(later: Probe, earlier: Probe) -> Probe:
    """The probe that says less for the server; of two that say the same the later one."""
    from_weak_to_strong = (False, None, True)
    order = from_weak_to_strong.index
    if order(earlier.passed) >= order(later.passed):
        return later
    return replace(earlier, sentence=f"{earlier.sentence}, before answers of an earlier call")


class _Tester:
    """Sends the requests of the probes, and counts what they took."""

    def __init__(self, client: Client):
        self.client = client
        self.failures = Counter[str]()
        self.spent = 0.0  # tokens
        self.models: dict[tuple[str, str | None], None] = {}  # in the order of their first answers

    async def ask(self, name: str, *requests: Ask) -> list[ServedAnswer]:
        """The answers to requests that are sent at once, without those that failed."""
        sent = [self._answers(name, request) for request in requests]
        answered: list[ServedAnswer] = []
        for answers in await asyncio.gather(*sent):
            answered += answers
        for answer in answered:
            self.spent += sum(answer.spent)
            self.models[answer.model, answer.fingerprint] = None
        return answered

    async def _answers(self, name: str, request: Ask) -> list[ServedAnswer]:
        try:
            drawn = await self.client.ask(request, f"the probe {name}")
        except Failed as failure:
            self.failures[str(failure)] += 1
            return []
        answers = []
        for answer in drawn:
            if answer.reason in ASKED_AGAIN:
                self.failures[answer.kind] += 1
            else:
                answers.append(answer)
        return answers


async def probe(client: Client, law: Mapping[str, object] | None = None) -> Probes:
    """Try the server with some sixty short requests; the cuts of the ``law`` that will be asked for must be obeyed.

    Raises
    ------
    NoProbe
        If the first of them got no answer.
    ServerGone
        If the server takes no connection.
    """
    tester = _Tester(client)
    plain = Ask(OPEN)
    async with client:
        await client.alive("the first", retries=0)
        cut = await tester.ask("cuts", *[replace(plain, top_k=1)] * CUT)
        client.whole = bool(cut)
        repeated = await tester.ask("draws", plain)
        if not cut and not repeated:  # a server that lets each request time out would take hours
            raise NoProbe(client.endpoint, tester.failures)
        repeated += await tester.ask("draws", *[plain] * (REPEATED - 1))
        temperatures = [1 + step / 1000 for step in range(1, VARIED + 1)]
        warm_requests = [replace(plain, temperature=value) for value in temperatures]
        varied = await tester.ask("draws", *warm_requests)
        cold = await tester.ask("temperature", *[replace(plain, temperature=0)] * COLD)
        asked_cuts = {
            name for name, uncut in UNCUT.items() if (law or {}).get(name, uncut) != uncut
        }
        answers_of_cut = {"top_k": cut}
        if "top_p" in asked_cuts:
            narrow = [replace(plain, top_p=NARROW)] * CUT
            answers_of_cut["top_p"] = await tester.ask("top_p", *narrow)
        short = await tester.ask("max_tokens", replace(plain, max_tokens=2))
        several = await tester.ask("n", replace(plain, n=3))

        one_token = replace(plain, max_tokens=1, logprobs=TOP)
        first = await tester.ask("logprobs", one_token)
        states_logprobs = bool(first and first[0].stated)
        first = []
        whole: list[ServedAnswer] = []
        if states_logprobs:
            first = await tester.ask("logprobs", *[one_token] * FIRST)
            whole = await tester.ask("logprobs", replace(plain, logprobs=1))

        seeds = [SEED, SEED]
        if client.endpoint.seeded:
            seeds += range(SEED + 1, SEED + SEEDS)
        seeded = []
        for number in seeds:  # one after the other: several at once have ended a server
            seeded.append(await tester.ask("seed", replace(plain, max_tokens=8, seed=number)))

    certain = _is_certain(repeated, whole)
    n = _several(several, repeated)
    seed = _seed(seeded, differs=len(_texts([*repeated, *varied])) > 1)
    tried = (
        _differ(repeated, varied, certain),
        _temperature(repeated, varied, cold, certain),
        _cuts(cut, repeated),
        _limit(short),
        n,
        _frequencies(first),
        seed,
        *[_obeyed(name, answers_of_cut[name], repeated) for name in sorted(asked_cuts)],
    )
    return Probes(
        tried,
        n=bool(n.passed),
        logprobs=states_logprobs,
        seed=bool(seed.passed) and client.endpoint.seeded,
        whole=client.whole,
        spent=tester.spent,
        models=tuple(tester.models),
    )


def _texts(answers: Sequence[ServedAnswer]) -> set[str | None]:
    return {answer.text for answer in answers}


def _is_certain(repeated: Sequence[ServedAnswer], whole: Sequence[ServedAnswer]) -> bool:
    """Whether the model is so certain of an answer, by the server's word, that equal draws are no surprise."""
    for answer in whole:
        if _texts(repeated) == {answer.text}:
            return (answer.mass or 0) ** (REPEATED - 1) > LEVEL
    return False


def _differ(
    repeated: Sequence[ServedAnswer], varied: Sequence[ServedAnswer], certain: bool
) -> Probe:
    if not repeated:
        return Probe("draws", None, "no probe of equal requests was answered")
    distinct = len(_texts(repeated))
    if distinct > 1:
        sentence = f"{len(repeated)} equal requests got {distinct} distinct answers"
        return Probe("draws", True, sentence)
    sentence = f"{len(repeated)} equal requests got one answer"
    if len(_texts(varied)) > 1:
        sentence += (
            ", and requests that differ a little get others: the server repeats stored answers"
        )
    elif certain:
        return Probe("draws", None, f"{sentence}, of which the model is that certain")
    return Probe("draws", False, sentence)


def _temperature(
    repeated: Sequence[ServedAnswer],
    varied: Sequence[ServedAnswer],
    cold: Sequence[ServedAnswer],
    certain: bool,
) -> Probe:
    if not cold or not repeated:
        return Probe("temperature", None, "no probe of temperature 0 was answered")
    n_warm = len(_texts([*repeated[:COLD], *varied]))
    n_cold = len(_texts(cold))
    if n_warm == 1:
        alike = "temperatures 0 and 1 give one and the same answer:"
        if certain:
            return Probe("temperature", None, f"{alike} the model is certain of its answer")
        return Probe("temperature", False, f"{alike} the server ignores the temperature")
    if n_cold > COLD // 2:  # fewer may differ by rounding
        sentence = f"{len(cold)} requests at temperature 0 got {n_cold} distinct answers"
        return Probe("temperature", False, sentence)
    sentence = f"answers vary at temperature 1 ({n_warm}) and hardly at 0 ({n_cold})"
    return Probe("temperature", True, sentence)


def _cuts(cut: Sequence[ServedAnswer], repeated: Sequence[ServedAnswer]) -> Probe:
    if not cut or len(_texts(cut)) > CUT // 2:
        done = "ignores" if cut else "refuses"
        sentence = f"the server {done} top_k: its own settings may cut rare answers off"
        return Probe("cuts", None, sentence)
    if len(_texts(repeated)) < 2:
        return Probe("cuts", None, "draws do not differ, so nothing shows what top_k does")
    sentence = "top_k is obeyed, and no setting of the server's own cuts answers off"
    return Probe("cuts", True, sentence)


def _obeyed(name: str, cut: Sequence[ServedAnswer], repeated: Sequence[ServedAnswer]) -> Probe:
    """Whether a setting that the answers will have leaves the likeliest token alone, at a value where it should."""
    if len(_texts(repeated)) < 2:
        return Probe(name, None, f"draws do not differ, so nothing shows what {name} does")
    if not cut:
        return Probe(name, False, f"the server refuses {name}")
    n_texts = len(_texts(cut))
    sentence = f"{len(cut)} requests with the least {name} got {plural(n_texts, 'distinct answer')}"
    return Probe(name, n_texts <= CUT // 2, sentence)


def _limit(short: Sequence[ServedAnswer]) -> Probe:
    if not short:
        return Probe("max_tokens", None, "no probe of max_tokens was answered")
    longest = short[0].tokens
    words = len((short[0].text or "").split())
    if words > 4:  # two tokens may be written as a few words
        longest = max(longest, words)
    return Probe("max_tokens", longest <= 2, f"a limit of 2 tokens gave {longest}")


def _several(several: Sequence[ServedAnswer], repeated: Sequence[ServedAnswer]) -> Probe:
    """Whether ``n`` gives as many answers, which are not copies of one where answers differ."""
    sentence = f"n=3 gave {len(several)} answers"
    honoured = len(several) == 3
    if honoured and len(_texts(several)) == 1 and len(_texts(repeated)) == REPEATED:
        honoured = False
        sentence += " alike"
    return Probe("n", honoured, sentence, needed=False)


def _frequencies(first: Sequence[ServedAnswer]) -> Probe:
    """Whether first tokens come as often as the server states: exact binomial tests, one for each stated token."""
    from scipy.stats import binomtest

    stated = [answer.stated for answer in first if answer.stated]
    if not stated:
        return Probe("logprobs", None, "the server states no log-probabilities")
    n = len(first)
    counts = Counter(answer.first for answer in first)
    masses = {token: min(1.0, math.exp(value)) for token, value in stated[0].items()}
    p_values = [binomtest(counts[token], n, mass).pvalue for token, mass in masses.items()]
    p = min(1.0, len(masses) * min(p_values))  # Bonferroni
    likeliest = max(masses, key=masses.__getitem__)
    sentence = (
        f"the likeliest first token has the stated probability {masses[likeliest]:.2g} and came {counts[likeliest]} of {n} "
        "times"
    )
    return Probe("logprobs", bool(p >= LEVEL), sentence)


def _seed(seeded: Sequence[Sequence[ServedAnswer]], differs: bool) -> Probe:
    """Whether two requests with one seed get one answer; with more requests, whether other seeds get others."""
    texts = [answers[0].text for answers in seeded if answers]
    several = len(seeded) > 2
    passed: bool | None = False
    sent = "none is sent"
    if len(texts) < len(seeded):
        passed = None
        sentence = "a request with a seed got no answer"
    elif not differs:
        passed = None
        sentence = "draws do not differ, so nothing shows what a seed does"
    elif texts[0] != texts[1]:
        sentence = "a seed does not repeat an answer"
    elif several and len(set(texts)) == 1:
        sentence = f"{SEEDS} seeds give one answer"
    else:
        passed = True
        sentence = "a seed repeats an answer"
        if several:
            sentence += ", and others give others"
            sent = "each answer has one"
    return Probe("seed", passed, f"{sentence}; {sent}", needed=False)


def identity(models: Mapping[tuple[str, str | None], int], asked: str) -> Probe:
    """Whether the server gives one name and fingerprint with all answers, and that of the model that was ``asked``.

    ``models`` are those that it gave. A name with a version, a folder or a suffix is that of the model; of another name
    nothing is known, since some servers give one name of their own to all models.
    """
    names = [named(*model) for model in models]
    shown = names[:MOST_NAMES]
    if len(names) > MOST_NAMES:
        shown.append(plural(len(names) - MOST_NAMES, "other name"))
    sentence = f"the server says that it is {' and '.join(shown)}"
    passed = len(names) == 1 if names else None
    if passed and not any(_is_name_of(said, asked) for said, _ in models):
        return Probe("identity", None, f"{sentence}, and was asked for {asked}")
    return Probe("identity", passed, sentence)


def _is_name_of(said: str, asked: str) -> bool:
    """Whether a server's name of a model may be the one that was asked for."""
    if said == NO_NAME:
        return True
    last_of_said = said.casefold().rpartition("/")[2]
    last_of_asked = asked.casefold().rstrip("/").rpartition("/")[2]
    return last_of_said in last_of_asked or last_of_asked in last_of_said


def cycle(answers: Sequence[Sequence[str]]) -> Probe:
    """Whether the answers to each question stand as equally often as only a store that is read in turn brings them.

    ``answers`` are the texts of each question, in time.
    """
    log_chance = 0.0
    for texts in answers:
        times = Counter(text for text in texts if text.strip()).values()
        if not times or min(times) < 2 or max(times) - min(times) > 1:
            return Probe("cycle", True, "the texts of a question stand unequally often, or once")
        log_chance += log_chance_of_even(sum(times), len(times))
    if not answers:
        return Probe("cycle", None, "no question has an answer")
    passed = log_chance > math.log(STORED)
    p = math.exp(min(0.0, log_chance))
    sentence = f"all texts of each question stand equally often, p = {p:.2g} by chance"
    return Probe("cycle", passed, sentence)


def drift(answers: Sequence[Sequence[str]]) -> Probe:
    """Whether the first and the last answers come from one distribution; ``answers`` are those of a question, in time."""
    p = p_value_of_no_change(answers)
    if p is None:
        return Probe("drift", None, "too few answers for a test of the first against the last")
    return Probe("drift", p > NO_CHANGE, f"first against last answers: p = {p:.2g} of no change")


def takeover(answers: Sequence[Sequence[str]]) -> Probe:
    """Whether the most frequent answer took over at some time, as from a store that fills while it is asked.

    ``answers`` are the texts of each question, in time. In independent draws the d other answers have random places among
    the n: all of them are among the first k with probability C(k, d) / C(n, d). Bonferroni over the questions.
    """
    p_values = []
    for texts in answers:
        counts = Counter(texts)
        if len(counts) < 2:
            continue
        most_frequent = max(counts, key=lambda text: (counts[text], text))  # whatever the order
        others = [place for place, text in enumerate(texts, start=1) if text != most_frequent]
        n_others = len(others)
        p_values.append(math.comb(others[-1], n_others) / math.comb(len(texts), n_others))
    if not p_values:
        return Probe("takeover", None, "no question has two answers that differ")
    p = min(1.0, len(p_values) * min(p_values))
    sentence = f"a question has one answer from some time on, p = {p:.2g} by chance"
    return Probe("takeover", p >= STORED, sentence)


def first_token(answers: Sequence[Sequence[ServedAnswer]]) -> Probe:
    """Whether the server states one log-probability of the likeliest first token from the first answers to the last.

    ``answers`` are those of each question, in time. The mean over requests tells changes apart that texts do not show; it
    also moves where a server rounds in another way under another load, so no claim rests on it.
    """
    stated = []
    for in_time in answers:
        stated.append([max(answer.stated.values()) for answer in in_time if answer.stated])
    p = p_value_of_one_mean(stated)
    if p is None:
        sentence = "the server states no log-probabilities of enough answers"
        return Probe("first token", None, sentence, needed=False)
    sentence = (
        f"log-probability of the first token, first against last answers: p = {p:.2g} of no change"
    )
    return Probe("first token", p > NO_CHANGE, sentence, needed=False)


def repeats(answers: Sequence[Sequence[ServedAnswer]]) -> Probe:
    """Whether late answers repeat early ones more often than the server's own probabilities allow, as from a store.

    ``answers`` are those of each question, in time, with their stated probabilities (``mass``). Given the early half, a late
    answer is in it with the probability that the server states of its distinct texts together: an exact binomial test for
    each question, Bonferroni over the questions.
    """
    from scipy.stats import binom

    p_values = []
    for in_time in answers:
        if len(in_time) < 4 or None in [answer.mass for answer in in_time]:
            continue
        half = len(in_time) // 2
        mass_of_text: dict[str | None, float] = {}
        for early in in_time[:half]:
            known = mass_of_text.get(early.text, 0.0)
            mass_of_text[early.text] = max(early.mass or 0.0, known)
        repeated = [late.text in mass_of_text for late in in_time[half:]]
        together = min(1.0, sum(mass_of_text.values()))
        p_values.append(float(binom.sf(sum(repeated) - 1, len(repeated), together)))
    if not p_values:
        return Probe("repeats", None, "the server states no probabilities of whole answers")
    p = min(1.0, len(p_values) * min(p_values))
    sentence = (
        f"late answers repeat early ones, p = {p:.2g} by the probabilities that the server states"
    )
    return Probe("repeats", p >= STORED, sentence)
