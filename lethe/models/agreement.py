"""Whether what reads a model in batches reads that model: its probabilities of the next token beside single whole passes.

An engine reads an answer token by token, with a cache, many rows at once. Where the cache of an architecture is not what
the engine takes it for, or a batch is wrong in a library, every answer looks well and comes from another distribution. So
an engine is believed on a model only after a few prompts of unequal length agreed with passes of the model without a cache,
one prefix at a time. The same holds for whatever pads prompts to a batch: judges that read a first token, and likelihoods.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np

from lethe.errors import BadFile, LetheError, of_the_machine, shortened
from lethe.progress import tell

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

LENGTHS = (3, 11, 6)  # tokens of the prompts; one is longer than a small window or a convolution
SAMPLES = 2  # answers to each, which part and share rows
TOKENS = 3  # of each answer: the second and third depend on the cache
ROOM = max(LENGTHS) + TOKENS  # tokens of the longest prompt with its answer
# The largest difference between two probabilities that rounding explains: many times what float32 and half formats show on
# right engines, and a fraction of what a wrong cache gives.
LIMIT, LIMIT_OF_HALF = 1e-3, 0.1
LONGEST = 120  # characters kept of a library's message


class Diverged(LetheError):
    """The model's next-token probabilities are not numbers; ``name`` names the model in the message."""

    def __init__(self, name: str | None = None):
        whose = f"Model {name!r}: its" if name else "The model's"
        super().__init__(
            f"{whose} next-token probabilities are not numbers, so its training has diverged. Train the model again with a "
            "lower learning rate, or name another checkpoint."
        )


@dataclass(frozen=True)
class EngineStep:
    """What an engine computed after a prefix: the (V,) next-token probabilities at temperature 1, NaN where not stated."""

    prefix: tuple[int, ...]
    probabilities: np.ndarray


def steps_of(prefixes: np.ndarray | torch.Tensor, logits: torch.Tensor) -> list[EngineStep]:
    """The steps of rows (rows, length) with their (rows, V) logits, each prefix once for each of its rows."""
    shares = logits.double().softmax(-1).cpu().numpy()
    rows = [tuple(row) for row in prefixes.tolist()]
    return [EngineStep(prefix, share) for prefix, share in zip(rows, shares, strict=True)]


@runtime_checkable
class Watched(Protocol):
    """An engine that shows its steps. ``watched`` draws ``samples`` answers of exactly ``tokens`` tokens to each prompt, and
    ``whole_model`` is the model for passes without a cache, None where it has no room."""

    def watched(
        self, prompts: Sequence[tuple[int, ...]], samples: int, tokens: int
    ) -> Iterable[EngineStep]: ...

    def whole_model(self) -> PreTrainedModel | None: ...


@dataclass(frozen=True)
class Agreement:
    """The largest ``difference`` between an engine's probability of a token and that of a whole pass, or ``unchecked``: why
    nothing was compared, a sentence without its full stop. ``failure``: what ended the engine."""

    difference: float | None = None
    limit: float = LIMIT
    unchecked: str | None = None
    failure: str | None = None

    @property
    def is_refuted(self) -> bool:
        """Whether the engine ended, or differs by more than rounding."""
        too_far = self.difference is not None and self.difference > self.limit
        return too_far or self.failure is not None

    def sentence(self) -> str:
        """Why the engine is not believed, without a subject."""
        if self.failure:
            return f"it ends with {self.failure} on this model"
        return (
            f"its probabilities of the next token differ by up to {self.difference:.2g} from those of whole passes of "
            f"this model (at most {self.limit:g} is rounding)"
        )


class NotCausal(BadFile):
    """A model whose probabilities of a token depend on later tokens."""

    def __init__(self, source: object, difference: float):
        super().__init__(
            str(source),
            "is no causal language model: what follows a token changes its probability "
            f"(by {difference:.2g}), so it has no distribution of answers",
            "Name a model that reads from left to right.",
        )


def agreement(engine: Watched, source: object, vocabulary: int, context: int | None) -> Agreement:
    """Compare an engine with whole passes of its model; raises `NotCausal`."""
    prompts, tokens = prompts_within(vocabulary, context)
    try:
        steps = list(engine.watched(prompts, SAMPLES, tokens))
    except Diverged:
        return Agreement(unchecked="The next-token probabilities of the model are not numbers")
    except Exception as error:
        # An engine may meet anything in an architecture that it does not know.
        if isinstance(error, LetheError) or of_the_machine(error):
            raise
        return Agreement(failure=f"{type(error).__name__} ({shortened(error, LONGEST)})")

    model = engine.whole_model()
    if model is None:
        return Agreement(
            unchecked="The free memory holds no second copy of the model for whole passes"
        )
    passes = WholePasses(model)
    differences = [passes.difference(step) for step in steps]
    longest = max(steps, key=lambda step: len(step.prefix)).prefix
    ahead = passes.reads_ahead(longest, [step.prefix for step in steps])
    limit = LIMIT if str(model.dtype) in ("torch.float32", "torch.float64") else LIMIT_OF_HALF
    if ahead > limit:
        raise NotCausal(source, ahead)
    return Agreement(max(differences), limit)


def prompts_within(vocabulary: int, context: int | None) -> tuple[list[tuple[int, ...]], int]:
    """Prompts of random tokens, of which all differ in length where the context allows, and the tokens of an answer."""
    room = ROOM if context is None else context
    tokens = max(1, min(TOKENS, room - 1))
    random = np.random.default_rng(0)
    prompts = []
    for length in LENGTHS:
        fitting = max(1, min(length, room - tokens))
        prompts.append(tuple(random.integers(vocabulary, size=fitting).tolist()))
    return prompts, tokens


# (prompts, V) the probabilities of the token after each of several prompts, which are padded to one batch
Read = Callable[[Sequence[tuple[int, ...]]], np.ndarray]


@dataclass(frozen=True)
class Padded:
    """A reader of padded batches, of at most ``rows`` prompts, as something that shows its steps."""

    read: Read
    model: PreTrainedModel | None
    rows: int | None = None

    def watched(
        self, prompts: Sequence[tuple[int, ...]], samples: int, tokens: int
    ) -> Iterator[EngineStep]:
        """One step a prompt, the token behind it: whatever comes later is no part of a batch of prompts."""
        size = self.rows or len(prompts)
        for start in range(0, len(prompts), size):
            batch = prompts[start : start + size]
            shares = self.read(batch)
            if np.isnan(shares).all(axis=1).any():
                raise Diverged
            yield from map(EngineStep, batch, shares)

    def whole_model(self) -> PreTrainedModel | None:
        return self.model


def rows_of_batch(
    read: Read,
    model: PreTrainedModel | None,
    source: object,
    vocabulary: int,
    context: int | None,
) -> int | None:
    """The most prompts that may share a padded batch of this model: None for any number, and 1 where padded batches differ
    from whole passes; raises `BadFile` where single prompts differ too."""
    padded = Padded(read, model)
    found = agreement(padded, source, vocabulary, context)
    if not found.is_refuted:
        return None
    alone = agreement(replace(padded, rows=1), source, vocabulary, context)
    if alone.is_refuted:
        raise BadFile(
            str(source),
            f"cannot be read as whole passes read it: {alone.sentence()}",
            "Name another model, another engine, or install another release of the engine's library.",
        )
    tell(f"{source}: in padded batches {found.sentence()}, so it reads one text at a time.")
    return 1


class WholePasses:
    """The next-token probabilities of a model by passes over one whole prefix, without a cache."""

    def __init__(self, model: PreTrainedModel):
        self.model = model
        accepts = inspect.signature(model.forward).parameters
        self.without_cache = {"use_cache": False} if "use_cache" in accepts else {}
        self.found: dict[tuple[int, ...], np.ndarray] = {}

    def probabilities(self, prefix: tuple[int, ...]) -> np.ndarray:
        """(length of the prefix, V) the probabilities of the token after each of its tokens, float64."""
        import torch

        if prefix not in self.found:
            ids = torch.tensor([prefix], device=self.model.device)
            with torch.inference_mode():
                logits = self.model(input_ids=ids, **self.without_cache).logits
            self.found[prefix] = logits[0].double().softmax(-1).cpu().numpy()
        return self.found[prefix]

    def difference(self, step: EngineStep) -> float:
        """The largest difference of a probability between a step and a whole pass over its prefix."""
        whole = self.probabilities(step.prefix)[-1][: len(step.probabilities)]
        return float(np.nanmax(np.abs(step.probabilities - whole)))

    def reads_ahead(self, longest: tuple[int, ...], prefixes: Iterable[tuple[int, ...]]) -> float:
        """How far a pass over the longest prefix differs, within it, from passes that end there."""
        inner = self.probabilities(longest)
        differences = [0.0]
        for prefix in prefixes:
            if longest[: len(prefix)] == prefix:
                at_its_end = self.probabilities(prefix)[-1]
                differences.append(float(np.abs(inner[len(prefix) - 1] - at_its_end).max()))
        return max(differences)
