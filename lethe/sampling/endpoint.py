"""Answers of a served model: drawn request by request, each kept as soon as it is paid for."""

import asyncio
import json
import sys
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from itertools import count, zip_longest
from math import ceil
from pathlib import Path

from lethe.config.evaluating import Endpoint
from lethe.errors import BadInput, LetheError, plural, visible
from lethe.identity import digest
from lethe.io.answer_ends import ANSWERED, ASKED_AGAIN, FAILED, FILTERED
from lethe.io.artifacts import GREEDY
from lethe.io.cache import keep, recall
from lethe.io.files import restored
from lethe.progress import progress
from lethe.sampling.endpoint_client import (
    Ask,
    Client,
    Drawn,
    Failed,
    Probe,
    Probes,
    ServerGone,
    drift,
    identity,
    probe,
    repeats,
    run,
)
from lethe.sampling.endpoint_reply import cleaned_within
from lethe.sampling.engine import Answers, Belief, Prompt, Settings

MOST_AT_ONCE = 16  # answers of one request
NONE = Drawn(None, FAILED, 0, None, "", None, 0.0, (0.0, 0.0))
SPREAD = 2654435761  # odd, so that multiples differ
ROUNDS = 4  # requests for a question at least, so that its first and last answers are apart in time


class CapReached(LetheError):
    def __init__(self, cap: int, drawn: int, planned: int):
        super().__init__(
            f"Stopped at the cap of {cap:,} tokens with {drawn:,} of {planned:,} answers, which are kept. A larger "
            "--max-tokens-total and the same command draw the others."
        )


@dataclass(frozen=True)
class Job:
    prompt: Prompt
    numbers: tuple[int, ...]
    ask: Ask

    def __str__(self) -> str:
        first, last = self.numbers[0], self.numbers[-1]
        which = "the greedy answer" if first == GREEDY else f"answers {first} to {last}"
        return f"{which} to question {self.prompt.prompt_id!r}"


class Journal:
    """What requests for one prompt brought under one way of drawing, a line for each answer and each failure, whose
    ``model`` is its kind; a line that a kill cut short is left out."""

    def __init__(self, place: Path):
        self.place = place
        self.lines: dict[int, Drawn] = {}
        self.failed: Counter[str] = (
            Counter()
        )  # by kind, also where a later request brought the answer
        content = place.read_bytes() if place.is_file() else b""
        for line in content.split(b"\n"):
            try:
                # An earlier release kept texts as the server sent them.
                values = cleaned_within(json.loads(line))
                number = values.pop("sample")
                self.take({number: Drawn(**{**values, "spent": tuple(values["spent"])})})
            except (ValueError, KeyError, TypeError, AttributeError):
                continue
        self.torn = bool(content) and not content.endswith(b"\n")

    @property
    def answers(self) -> dict[int, Drawn]:
        return {
            number: drawn for number, drawn in self.lines.items() if drawn.reason not in ASKED_AGAIN
        }

    def add(self, answers: Mapping[int, Drawn]) -> None:
        """Append answers; they are on disk before the next request starts."""
        self.place.parent.mkdir(parents=True, exist_ok=True)
        lines = [json.dumps({"sample": number, **vars(own)}) for number, own in answers.items()]
        with self.place.open("a", encoding="utf-8") as file:
            file.write("\n" * self.torn + "\n".join(lines) + "\n")
        self.torn = False
        self.take(answers)

    def take(self, answers: Mapping[int, Drawn]) -> None:
        again = [drawn for drawn in answers.values() if drawn.reason in ASKED_AGAIN]
        self.failed.update(
            drawn.model if drawn.reason == FAILED else drawn.reason for drawn in again
        )
        self.lines |= answers


class EndpointEngine:
    """Draws in rounds over all questions, so that a change of the model shows between first and last answers."""

    name = "endpoint"
    in_memory = False
    reason = "the model is served"
    belief: Belief | None = None  # `probes` say what the server does

    def __init__(self, endpoint: Endpoint, scratch: Path, chat: bool):
        self.endpoint, self.scratch, self.chat = endpoint, scratch, chat
        self.client = Client(endpoint, chat)
        self.journals: dict[Path, Journal] = {}
        self.in_a_row = 0  # failed requests since the last answer
        self.spent, self.reserved, self.capped = 0.0, 0, False
        self.as_stated = True  # every answer was drawn from the law whose probabilities are stated

    def answer(self, prompts: Sequence[Prompt], settings: Settings) -> Iterator[Answers]:
        if settings.adaptive_threshold is not None:
            raise BadInput(
                f"{self.endpoint}: a server has no adaptive temperature; leave adaptive_threshold out."
            )
        plain = (settings.temperature, settings.top_p, settings.top_k) == (1, 1, 0)
        self.as_stated = self.as_stated and plain
        journals = {prompt.prompt_id: self.remember(prompt, settings) for prompt in prompts}
        jobs = self._jobs(prompts, settings, journals)
        planned = sum(len(settings.of(prompt).sample_numbers()) for prompt in prompts)
        asked = (
            set(settings.of(one).sample_numbers()) <= journals[one.prompt_id].lines.keys()
            for one in prompts
        )
        again = all(
            asked
        )  # in an earlier process, whose result stands if these answers fail once more
        try:
            run(self._draw(jobs, journals))
        except ServerGone as gone:
            if not again:
                raise
            print(visible(str(gone)), file=sys.stderr)
        if self.capped and not again:
            drawn = sum(len(journal.answers) for journal in self.journals.values())
            raise CapReached(self.endpoint.max_tokens_total or 0, drawn, planned)
        for prompt in prompts:
            own = _answers(prompt, settings.of(prompt), journals[prompt.prompt_id])
            yield own if self.chat else replace(own, thinking=None)

    @cached_property
    def probes(self) -> Probes:
        """The probes of this endpoint: those on disk, else new ones."""
        place = self.scratch / "probes" / f"{digest(self.endpoint.identity, self.chat)}.json"
        if (finished := recall(place)) is not None:
            probes = restored(Probes, finished)
        else:
            probes = run(probe(self.client))
            keep(place, asdict(probes))
        show_probes(probes.each)
        self.spent, self.client.whole = self.spent + probes.spent, probes.whole
        return probes

    def remember(self, prompt: Prompt, settings: Settings) -> Journal:
        other = {"n", "greedy", "first_sample", *["seed"] * (not self.endpoint.seeded)}
        drawing = settings.model_dump(exclude=other)
        conversation = (prompt.prompt_id, prompt.text, *prompt.before)
        key = digest(self.endpoint.identity, self.chat, conversation, drawing)
        place = self.scratch / "drawn" / key[:2] / f"{key}.jsonl"
        if place not in self.journals:
            self.journals[place] = Journal(place)
            self.spent += sum(sum(drawn.spent) for drawn in self.journals[place].lines.values())
        return self.journals[place]

    def _missing(self, prompt: Prompt, settings: Settings) -> set[int]:
        return (
            set(settings.of(prompt).sample_numbers())
            - self.remember(prompt, settings).answers.keys()
        )

    def _jobs(
        self, prompts: Sequence[Prompt], settings: Settings, journals: Mapping[str, Journal]
    ) -> deque[Job]:
        """The requests for all missing answers, in rounds over the questions."""
        all_jobs: list[list[Job]] = []
        for prompt in prompts:
            own = settings.of(prompt)
            how = {key: getattr(own, key) for key in ("temperature", "top_p", "top_k")}
            logprobs = 1 if self.probes.logprobs else None
            ask = Ask(
                prompt.text,
                max_tokens=own.max_new_tokens,
                logprobs=logprobs,
                before=prompt.before,
                **how,
            )
            missing = self._missing(prompt, settings)
            drawn = sorted(missing - {GREEDY})
            seeds = _seeds(own, prompt) if self.probes.seed else None
            size = (
                max(1, min(MOST_AT_ONCE, -(-len(drawn) // ROUNDS)))
                if self.probes.n and not seeds
                else 1
            )
            cold = replace(ask, temperature=0, top_p=1, top_k=0)
            jobs = [Job(prompt, (GREEDY,), cold)] if GREEDY in missing else []
            parts = [tuple(drawn[start : start + size]) for start in range(0, len(drawn), size)]
            jobs += [
                Job(
                    prompt,
                    numbers,
                    replace(ask, n=len(numbers), seed=seeds(numbers[0]) if seeds else None),
                )
                for numbers in parts
            ]
            all_jobs.append(jobs)
        return deque(job for own in zip_longest(*all_jobs) for job in own if job)

    async def _draw(self, jobs: deque[Job], journals: Mapping[str, Journal]) -> None:
        total = sum(len(job.numbers) for job in jobs)
        ticks = progress(count(), f"requests to {self.endpoint.name}", "answers", total)

        async def worker() -> None:
            while jobs and not self.capped:
                for _ in range(await self._one(jobs.popleft(), jobs, journals)):
                    next(ticks)

        async with self.client, asyncio.TaskGroup() as group:
            for _ in range(min(self.endpoint.concurrency, total)):
                group.create_task(worker())

    async def _one(self, job: Job, jobs: deque[Job], journals: Mapping[str, Journal]) -> int:
        """Send one request and keep its answers; answers that the server left out are asked for one by one."""
        cap, most = self.endpoint.max_tokens_total, job.ask.most()
        if cap is not None and self.spent + self.reserved + most > cap:
            self.capped = True
            return 0
        self.reserved += most
        try:
            drawn = (await self.client.ask(job.ask, str(job)))[: len(job.numbers)]
            if not drawn:
                raise Failed("no answer in it", answered=True)
        except Failed as failure:
            kind = str(failure)
            missing = replace(NONE, model=kind)
            if kind == FILTERED:
                missing = replace(NONE, reason=FILTERED, model=self.endpoint.name)
            if (
                failure.answered
            ):  # the server may charge for it, and says nothing that can be believed
                missing = replace(missing, spent=(most / len(job.numbers), 0.0))
            drawn = [missing] * len(job.numbers)
        finally:
            self.reserved -= most
        self.spent += sum(sum(answer.spent) for answer in drawn)
        journals[job.prompt.prompt_id].add(dict(zip(job.numbers, drawn, strict=False)))
        self._count_failures(job, drawn)
        for number in job.numbers[len(drawn) :]:
            jobs.append(Job(job.prompt, (number,), replace(job.ask, n=1)))
        return len(drawn)

    def _count_failures(self, job: Job, drawn: Sequence[Drawn]) -> None:
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
        each = [(prompt, settings) for prompts, settings in work for prompt in prompts]
        answers = [
            (prompt, len(self._missing(prompt, own)), own.max_new_tokens) for prompt, own in each
        ]
        many = sum(n for _, n, _ in answers)
        read = sum(
            n * Ask(prompt.text, n=0, before=prompt.before).most() for prompt, n, _ in answers
        )
        wrote = sum(n * limit for _, n, limit in answers)
        own = self.endpoint
        cents = ceil(((own.price_in or 0) * read + (own.price_out or 0) * wrote) / 1e4)
        priced = own.price_in is not None or own.price_out is not None
        cap = (
            ""
            if own.max_tokens_total is None
            else f"; the cap is {plural(own.max_tokens_total, 'token')}"
        )
        return (
            f"{own}: {plural(many, 'answer')} in at most {plural(many, 'request')}, about {read:,} tokens read and at most "
            f"{wrote:,} written{f', for at most {cents / 100:,.2f} at the given prices' if priced else ''}{cap}"
        )

    def served(self) -> dict[str, object]:
        """What the file beside the answers says of the server: who answered, when, the probes, and what is missing."""
        every = [own for journal in self.journals.values() for own in journal.lines.values()]
        drawn = [own for own in every if own.at]
        models = Counter((own.model, own.fingerprint) for own in drawn)
        models += Counter(own for own in self.probes.models if own not in models)
        missing = Counter(own.kind for own in every if own.reason not in ANSWERED)
        ordered = [
            sorted(own.answers.items(), key=lambda item: item[1].at)
            for own in self.journals.values()
        ]
        in_time = [
            [own.text for at, own in one if at != GREEDY and own.text is not None]
            for one in ordered
        ]
        # Where a setting changes the law, the probabilities that a server states may be of another one.
        whole = [
            [own for at, own in one if at != GREEDY and own.text is not None]
            for one in ordered
            if self.as_stated
        ]
        probes = (*self.probes.each, identity(models), drift(in_time), repeats(whole))
        show_probes(probes[-3:])
        first, last = (
            (min(own.at for own in drawn), max(own.at for own in drawn)) if drawn else (0.0, 0.0)
        )
        return {
            "endpoint": self.endpoint.endpoint,
            "model": self.endpoint.name,
            "chat": self.chat,
            "first": time_of(first),
            "last": time_of(last),
            "tokens": round(self.spent),
            "seeded": self.probes.seed,
            "missing": missing,
            "failed": sum((journal.failed for journal in self.journals.values()), Counter[str]()),
            "probes": [vars(one) for one in probes],
        }

    def clear(self) -> None:
        """Remove the answers on disk, once the artifact is written."""
        for place in self.journals:
            place.unlink(missing_ok=True)


def _seeds(settings: Settings, prompt: Prompt) -> Callable[[int], int]:
    """The seed of each answer to a prompt: 31 bits, as servers read them, and no two answers have one seed."""
    first = int(
        settings.model_copy(update={"first_sample": 0})
        .stream(prompt.prompt_id)
        .generate_state(1)[0]
    )
    return lambda number: (first + number * SPREAD) % (1 << 31)


def _answers(prompt: Prompt, settings: Settings, journal: Journal) -> Answers:
    numbers = settings.sample_numbers()
    drawn = [journal.lines.get(number, NONE) for number in numbers]
    columns = ("text", "tokens", "reason", "confidence", "thinking")
    return Answers(
        prompt.prompt_id, numbers, *([getattr(own, name) for own in drawn] for name in columns)
    )


def show_probes(probes: Sequence[Probe]) -> None:
    for tried in probes:
        print(visible(str(tried)), file=sys.stderr)


def time_of(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
