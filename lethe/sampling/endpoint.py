"""Answers of a served model: drawn request by request, each kept as soon as it is paid for."""

import asyncio
import json
import sys
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from itertools import count, zip_longest
from math import ceil
from pathlib import Path

from lethe.config.measuring import Endpoint
from lethe.errors import BadInput, plural, visible
from lethe.identity import digest
from lethe.io.answer_ends import ANSWERED, ASKED_AGAIN, FAILED, FILTERED
from lethe.io.artifacts import GREEDY
from lethe.io.cache import keep, recall
from lethe.io.files import restored
from lethe.models.endpoint_client import (
    Ask,
    CapReached,
    Client,
    Failed,
    ServedAnswer,
    ServerGone,
    run,
)
from lethe.models.endpoint_reply import cleaned_within, named
from lethe.progress import progress
from lethe.sampling.answer import Answers
from lethe.sampling.endpoint_probes import (
    NoProbe,
    Probe,
    Probes,
    cycle,
    drift,
    first_token,
    identity,
    probe,
    repeats,
    takeover,
)
from lethe.sampling.engine import Belief, Prompt, Settings

MOST_AT_ONCE = 16  # answers of one request
NONE = ServedAnswer(None, FAILED, 0, None, "", None, 0.0, (0.0, 0.0))  # nothing came
SPREAD = 2654435761  # odd, so that multiples differ
ROUNDS = 4  # requests for a question at least, so that its first and last answers are apart in time


@dataclass(frozen=True)
class EndpointRequest:
    """A request and the numbers of the answers that it asks for; in words it names them, for errors."""

    prompt: Prompt
    numbers: tuple[int, ...]
    ask: Ask

    def __str__(self) -> str:
        first = self.numbers[0]
        last = self.numbers[-1]
        which = "the greedy answer" if first == GREEDY else f"answers {first} to {last}"
        return f"{which} to question {self.prompt.prompt_id!r}"


class Journal:
    """What requests for one prompt brought under one way of drawing, in a file that only grows.

    A line is an answer or a failure, whose ``model`` is its kind. A line that a kill cut short is left out.

    Attributes
    ----------
    lines
        The last line of each answer, by its number.
    failed
        The number of failures by kind, also where a later request brought the answer.
    torn
        Whether the file ends within a line, so that the next one needs a break before it.
    """

    def __init__(self, place: Path):
        self.place = place
        self.lines: dict[int, ServedAnswer] = {}
        self.failed = Counter[str]()

        content = place.read_bytes() if place.is_file() else b""
        for line in content.split(b"\n"):
            try:
                # An earlier release kept texts as the server sent them.
                values = cleaned_within(json.loads(line))
                number = values.pop("sample")
                values["spent"] = tuple(values["spent"])
                self.take({number: ServedAnswer(**values)})
            except (ValueError, KeyError, TypeError, AttributeError):
                continue
        self.torn = bool(content) and not content.endswith(b"\n")

    @property
    def answers(self) -> dict[int, ServedAnswer]:
        """The answers by number, without those that are asked for again."""
        answers = {}
        for number, drawn in self.lines.items():
            if drawn.reason not in ASKED_AGAIN:
                answers[number] = drawn
        return answers

    @property
    def sampled_in_time(self) -> list[ServedAnswer]:
        """The drawn answers with a text, in the order in which they came."""
        texts = []
        for number, drawn in self.answers.items():
            if number != GREEDY and drawn.text is not None:
                texts.append(drawn)
        return sorted(texts, key=lambda drawn: drawn.at)

    def add(self, answers: Mapping[int, ServedAnswer]) -> None:
        """Append answers; they are on disk before the next request starts."""
        self.place.parent.mkdir(parents=True, exist_ok=True)
        with self.place.open("a", encoding="utf-8") as file:
            if self.torn:
                file.write("\n")
            for number, drawn in answers.items():
                line = {"sample": number, **vars(drawn)}
                file.write(f"{json.dumps(line)}\n")
        self.torn = False
        self.take(answers)

    def take(self, answers: Mapping[int, ServedAnswer]) -> None:
        """Note answers by number, and the kinds of those that failed."""
        for drawn in answers.values():
            if drawn.reason == FAILED:
                self.failed[drawn.model] += 1
            elif drawn.reason in ASKED_AGAIN:
                self.failed[drawn.reason] += 1
        self.lines |= answers


class EndpointEngine:
    """Draws in rounds over all questions, so that a change of the model shows between first and last answers.

    Parameters
    ----------
    endpoint
        The address, the name of the model, and the caps.
    scratch
        The folder that keeps what the server answered.
    chat
        Whether prompts are messages of a chat, not texts to continue.
    """

    name = "endpoint"
    in_memory = False
    repeatable = False
    reason = "the model is served"
    belief: Belief | None = None  # `probes` say what the server does

    def __init__(self, endpoint: Endpoint, scratch: Path, chat: bool):
        self.endpoint = endpoint
        self.scratch = scratch
        self.chat = chat
        self.client = Client(endpoint, chat)
        self.journals: dict[Path, Journal] = {}
        self.in_a_row = 0  # failed requests since the last answer
        self.spent = 0.0  # tokens
        self.reserved = 0  # tokens that requests under way may spend
        self.capped = False
        self.as_stated = True  # every answer was drawn from the law whose probabilities are stated
        self.law: Mapping[str, object] = {}  # of the first answers that were asked for
        self.asks = False  # whether this process asks for answers

    def answer(self, prompts: Sequence[Prompt], settings: Settings) -> Iterator[Answers]:
        """The answers to each prompt, once all are drawn; those on disk are not asked for again.

        Raises
        ------
        BadInput
            If the settings ask for an adaptive temperature.
        CapReached, ServerGone
            If answers are missing, unless each was asked for in an earlier process, whose result then stands.
        """
        if settings.adaptive_threshold is not None:
            raise BadInput(
                f"{self.endpoint}: a server has no adaptive temperature; leave adaptive_threshold out."
            )
        plain = (settings.temperature, settings.top_p, settings.top_k) == (1, 1, 0)
        self.as_stated = self.as_stated and plain
        journals = {prompt.prompt_id: self.remember(prompt, settings) for prompt in prompts}
        planned = 0
        asked_before = True
        for prompt in prompts:
            numbers = settings.of(prompt).sample_numbers()
            planned += len(numbers)
            asked_before &= journals[prompt.prompt_id].lines.keys() >= set(numbers)
        self.asks |= any(self._missing(prompt, settings) for prompt in prompts)

        # What an earlier process could not get is no reason to fail now.
        try:
            jobs = self._jobs(prompts, settings)
            run(self._draw(jobs, journals))
        except (NoProbe, ServerGone) as gone:
            if not asked_before:
                raise
            self.asks = False
            print(visible(str(gone)), file=sys.stderr)
        if self.capped and not asked_before:
            drawn = sum(len(journal.answers) for journal in self.journals.values())
            cap = self.endpoint.max_tokens_total or 0
            raise CapReached(
                f"Stopped at the cap of {cap:,} tokens with {drawn:,} of {planned:,} answers, which are kept. A larger "
                "--max-tokens-total and the same command draw the others."
            )

        for prompt in prompts:
            answers = _answers(prompt, settings.of(prompt), journals[prompt.prompt_id])
            if not self.chat:
                answers = replace(answers, thinking=None)
            yield answers

    @cached_property
    def probes(self) -> Probes:
        """What the server does, as probed before each process that asked it for these answers, this one among them.

        What passed before earlier answers may fail now, and what failed then may be mended: answers of another law have
        probes of their own.
        """
        key = digest(self.endpoint.identity, self.chat, self.law)
        place = self.scratch / "probed" / f"{key}.json"
        kept = recall(place)
        earlier = None if kept is None else restored(Probes, kept)
        if earlier is not None and not self.asks:
            probes = earlier
        else:
            probes = run(probe(self.client, self.law))
            if earlier is not None and any(journal.lines for journal in self.journals.values()):
                probes = probes.beside(earlier)
            keep(place, asdict(probes))
        show_probes(probes.tried)
        self.spent += probes.spent
        self.client.whole = probes.whole
        return probes

    def remember(self, prompt: Prompt, settings: Settings) -> Journal:
        """The journal of a prompt under these settings, whose tokens count as spent."""
        changes_nothing = {"n", "greedy", "first_sample", "batch"}
        if not self.endpoint.seeded:
            changes_nothing.add("seed")
        drawing = settings.model_dump(exclude=changes_nothing)
        self.law = self.law or drawing
        conversation = (prompt.prompt_id, prompt.text, *prompt.before)
        key = digest(self.endpoint.identity, self.chat, conversation, drawing)
        place = self.scratch / "drawn" / key[:2] / f"{key}.jsonl"
        if place not in self.journals:
            journal = Journal(place)
            self.journals[place] = journal
            self.spent += sum(sum(drawn.spent) for drawn in journal.lines.values())
        return self.journals[place]

    def _missing(self, prompt: Prompt, settings: Settings) -> set[int]:
        """The numbers of the answers that no request has brought yet."""
        wanted = set(settings.of(prompt).sample_numbers())
        return wanted - self.remember(prompt, settings).answers.keys()

    def _jobs(self, prompts: Sequence[Prompt], settings: Settings) -> deque[EndpointRequest]:
        """The requests for all missing answers, in rounds over the questions."""
        jobs_of_prompts = [self._jobs_of(prompt, settings) for prompt in prompts]
        jobs = deque[EndpointRequest]()
        for in_round in zip_longest(*jobs_of_prompts):
            jobs += filter(None, in_round)
        return jobs

    def _jobs_of(self, prompt: Prompt, settings: Settings) -> list[EndpointRequest]:
        """The requests for the missing answers to one prompt, the greedy one first.

        A request asks for several answers where the server gives them, but for so few that a question has several requests.
        With a seed each answer has a request of its own.
        """
        missing = self._missing(prompt, settings)
        if not missing:
            return []
        ask = Ask(
            prompt.text,
            max_tokens=settings.max_new_tokens,
            temperature=settings.temperature,
            top_p=settings.top_p,
            top_k=settings.top_k,
            logprobs=1 if self.probes.logprobs else None,
            before=prompt.before,
        )
        jobs = []
        if GREEDY in missing:
            missing.remove(GREEDY)
            likeliest = replace(ask, temperature=0, top_p=1, top_k=0)
            jobs.append(EndpointRequest(prompt, (GREEDY,), likeliest))

        drawn = sorted(missing)
        size = 1
        if self.probes.n and not self.probes.seed:
            size = max(1, min(MOST_AT_ONCE, -(-len(drawn) // ROUNDS)))
        for start in range(0, len(drawn), size):
            numbers = tuple(drawn[start : start + size])
            seed = None
            if self.probes.seed:
                seed = _seed(settings, prompt, numbers[0])
            jobs.append(EndpointRequest(prompt, numbers, replace(ask, n=len(numbers), seed=seed)))
        return jobs

    async def _draw(self, jobs: deque[EndpointRequest], journals: Mapping[str, Journal]) -> None:
        """Send all requests, several at once, until none is left or the cap is reached."""
        total = sum(len(job.numbers) for job in jobs)
        ticks = progress(count(), f"requests to {self.endpoint.name}", "answers", total)

        async def worker() -> None:
            """Send requests one after the other."""
            while jobs and not self.capped:
                for _ in range(await self._send(jobs.popleft(), jobs, journals)):
                    next(ticks)

        async with self.client, asyncio.TaskGroup() as group:
            for _ in range(min(self.endpoint.concurrency, total)):
                group.create_task(worker())

    async def _send(
        self, job: EndpointRequest, jobs: deque[EndpointRequest], journals: Mapping[str, Journal]
    ) -> int:
        """Send one request and keep its answers, whose number is returned.

        Answers that the server left out become jobs of their own. Sets ``capped`` instead of sending what the cap forbids.
        """
        cap = self.endpoint.max_tokens_total
        most = job.ask.most()
        if cap is not None and self.spent + self.reserved + most > cap:
            self.capped = True
            return 0

        self.reserved += most
        try:
            drawn = (await self.client.ask(job.ask, str(job)))[: len(job.numbers)]
            if not drawn:
                raise Failed("no answer in it", answered=True)
        except Failed as failure:
            missing = replace(NONE, model=str(failure))
            if str(failure) == FILTERED:
                missing = replace(NONE, reason=FILTERED, model=self.endpoint.name)
            # The server may charge for an answer, and says nothing that can be believed.
            if failure.answered:
                missing = replace(missing, spent=(most / len(job.numbers), 0.0))
            drawn = [missing] * len(job.numbers)
        finally:
            self.reserved -= most

        self.spent += sum(sum(answer.spent) for answer in drawn)
        journals[job.prompt.prompt_id].add(dict(zip(job.numbers, drawn, strict=False)))
        self._count_failures(job, drawn)
        for number in job.numbers[len(drawn) :]:
            jobs.append(EndpointRequest(job.prompt, (number,), replace(job.ask, n=1)))
        return len(drawn)

    def _count_failures(self, job: EndpointRequest, drawn: Sequence[ServedAnswer]) -> None:
        """Raise `ServerGone` after so many requests in a row that brought no answer."""
        if any(answer.reason != FAILED for answer in drawn):
            self.in_a_row = 0
            return
        self.in_a_row += 1
        if self.in_a_row < max(MOST_AT_ONCE, 2 * self.endpoint.concurrency):
            return
        why = f"{self.in_a_row} requests in a row failed: {drawn[-1].kind.removeprefix('failed: ')}"
        raise ServerGone(self.endpoint, str(job), why)

    def plan(self, work: Sequence[tuple[Sequence[Prompt], Settings]]) -> str:
        """What the missing answers will take at most, in words: requests, tokens, money and the cap."""
        answers = read = written = 0
        for prompts, settings in work:
            for prompt in prompts:
                missing = len(self._missing(prompt, settings))
                answers += missing
                read += missing * Ask(prompt.text, n=0, before=prompt.before).most()
                written += missing * settings.max_new_tokens

        endpoint = self.endpoint
        sentence = (
            f"{endpoint}: {plural(answers, 'answer')} in at most {plural(answers, 'request')}, about {read:,} tokens read "
            f"and at most {written:,} written"
        )
        if endpoint.price_in is not None or endpoint.price_out is not None:  # per million tokens
            price = (endpoint.price_in or 0) * read + (endpoint.price_out or 0) * written
            sentence += f", for at most {ceil(price / 1e4) / 100:,.2f} at the given prices"
        if endpoint.max_tokens_total is not None:
            sentence += f"; the cap is {plural(endpoint.max_tokens_total, 'token')}"
        return sentence

    def served(self) -> dict[str, object]:
        """What the file beside the answers says of the server: who answered, when, the probes, and what is missing."""
        models = Counter[tuple[str, str | None]]()
        missing = Counter[str]()
        failed = Counter[str]()
        times = []
        for journal in self.journals.values():
            failed += journal.failed
            for drawn in journal.lines.values():
                if drawn.at:
                    times.append(drawn.at)
                    models[drawn.model, drawn.fingerprint] += 1
                if drawn.reason not in ANSWERED:
                    missing[drawn.kind] += 1
        for model in self.probes.models:
            models.setdefault(model, 1)

        in_time = [journal.sampled_in_time for journal in self.journals.values()]
        texts = []
        for answers in in_time:
            texts.append([drawn.text or "" for drawn in answers])
        # Where a setting changes the law, the probabilities that a server states may be of another one.
        stated = in_time if self.as_stated else []
        later_probes = (
            identity(models, self.endpoint.name),
            drift(texts),
            takeover(texts),
            cycle(texts),
            repeats(stated),
            first_token(in_time),
        )
        show_probes(later_probes)
        probes = (*self.probes.tried, *later_probes)
        return {
            "endpoint": self.endpoint.endpoint,
            "model": self.endpoint.name,
            "names": [named(*model) for model in models],
            "chat": self.chat,
            "first": time_of(min(times, default=0.0)),
            "last": time_of(max(times, default=0.0)),
            "tokens": round(self.spent),
            "seeded": self.probes.seed,
            "missing": missing,
            "failed": failed,
            "probes": list(map(vars, probes)),
        }

    def clear(self) -> None:
        """Remove the answers on disk, once the artifact is written."""
        for place in self.journals:
            place.unlink(missing_ok=True)


def _seed(settings: Settings, prompt: Prompt, number: int) -> int:
    """The seed of an answer to a prompt: 31 bits, as servers read them, and no two answers have one seed."""
    first = int(settings.stream(prompt.prompt_id).generate_state(1)[0])
    return (first + number * SPREAD) % (1 << 31)


def _answers(prompt: Prompt, settings: Settings, journal: Journal) -> Answers:
    """The answers to a prompt, as the journal has them; an answer that it lacks has failed."""
    numbers = settings.sample_numbers()
    answers = [journal.lines.get(number, NONE) for number in numbers]
    return Answers(
        prompt.prompt_id,
        numbers,
        texts=[drawn.text for drawn in answers],
        tokens=[drawn.tokens for drawn in answers],
        finish_reasons=[drawn.reason for drawn in answers],
        mean_confidences=[drawn.confidence for drawn in answers],
        thinking=[drawn.thinking for drawn in answers],
    )


def show_probes(probes: Sequence[Probe]) -> None:
    """Print each probe's outcome to standard error, without what could move a terminal."""
    for tried in probes:
        print(visible(str(tried)), file=sys.stderr)


def time_of(seconds: float) -> str:
    """The time in UTC, from seconds since 1970."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
