"""The loop of every unlearning method: forget batches paired with uniformly drawn retain batches.

L = gamma F(forget) + w R(retain) + entropy.forget * ramp * H(forget) + entropy.retain * H(retain), where the method
defines F and may redefine w and R, and H is the mean token entropy on answers, or for `entropy.prefix` greedy or sampled on
the model's own continuations of the forget questions; `entropy.positions` all adds the tokens of the questions. Source:
Scholten, Günnemann and Schwinn, "A Probabilistic Perspective on Unlearning and Alignment for Large Language Models",
equation of L_EO.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, cast

import numpy as np
import torch

from lethe.config.schema import Entropy, Positions, UnlearnRecipe
from lethe.identity import digest, module_of
from lethe.io.artifacts import Row
from lethe.models.checkpoints import StepRecord, cache_name
from lethe.models.encoding import Example, collate
from lethe.models.likelihood import forward
from lethe.models.training import SCRATCH, Team, batches, optimise, precision, resumable
from lethe.registry import METHODS
from lethe.unlearning import protocol
from lethe.unlearning.protocol import Before, Method, MethodParams, Step, StepRows

if TYPE_CHECKING:
    from transformers import PreTrainedModel


SIZE = 32  # rows per pass of a `Watch`


def unlearn(
    model: PreTrainedModel,
    forget: Sequence[Example],
    retain: Sequence[Example],
    recipe: UnlearnRecipe,
    params: MethodParams,
    padding: int,
    label: str,
    second: Sequence[Sequence[Example]] | None = None,
    watches: Sequence[Watching] = (),
) -> list[StepRecord]:
    """Unlearn the forget rows in place, and return the history, one record per step.

    Parameters
    ----------
    forget, retain : The encoded rows of both sets.
    recipe : What all methods share: batches, seed, optimiser, precision.
    params : Those of the method, whose ``loss`` names it.
    second : The second answers to each forget row, for a method that needs them.
    watches : Each sees the model before the first step and after each epoch.
    padding : The token that fills rows of a batch.
    label : Names the run in progress and errors.
    """
    run = _Loop(model, forget, retain, recipe, params, padding, second, watches)

    # An interrupted run goes on where it stood, if nothing on which it depends has changed.
    alternatives = [_plain(answers) for answers in second or ()]
    rows = digest([*_plain(forget), *_plain(retain), *alternatives])
    modules = (__name__, module_of(METHODS[params.loss]))
    facts: dict[str, object] = {}
    for watch in watches:
        facts |= watch.facts
    saved_state = resumable(
        SCRATCH, model, recipe.compute, modules, recipe, params, rows=rows, **facts
    )

    history = optimise(
        model, run.steps, run.loss, recipe, params.lr, label, run.after, saved_state, run
    )
    if saved_state:
        saved_state.clear()
    return history


def second_answers(
    params: MethodParams, rows: Sequence[Row], before: Before
) -> list[list[Example]] | None:
    """The second answers to each row, encoded like the rows; None for a method that needs none."""
    method: Method = METHODS[params.loss](params)
    if not method.needs.second_answers:
        return None
    encoded = []
    for row, answers in zip(rows, method.all_second_answers(rows, before), strict=True):
        encoded.append([before.encoder.example(row, answer) for answer in answers])
    return encoded


class _Loop:
    """The loss of every step and the work after each update, with the state from which a run resumes.

    Attributes
    ----------
    steps
        Of each step its epoch and the places of its forget rows.
    longest
        The most tokens of the model's own continuations.
    end
        The token that ends an answer.
    before
        What the method may know of the model before unlearning.
    forget, retain_pool
        The rows of both sets.
    second
        All second answers, row after row; None for a method that needs none.
    counts
        (forget rows,) the number of second answers to each row.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        forget: Sequence[Example],
        retain: Sequence[Example],
        recipe: UnlearnRecipe,
        params: MethodParams,
        padding: int,
        second: Sequence[Sequence[Example]] | None,
        watches: Sequence[Watching],
    ):
        self.model = model
        self.retain = retain
        self.recipe = recipe
        self.params = params
        self.watches = watches
        self.method: Method = METHODS[params.loss](params)
        self.team = Team()

        # The last stream came last: a further one leaves those before it unchanged.
        seed = recipe.seed if params.seed is None else params.seed
        streams = map(np.random.default_rng, np.random.SeedSequence(seed).spawn(4))
        order, self.retain_draws, self.method_draws, self.token_draws = streams

        self.steps = list(batches(len(forget), recipe.forget_batch, params.epochs, order))
        self.uses_retain = self.method.uses_retain or bool(params.entropy and params.entropy.retain)
        self.longest = max(len(row.answer) for row in forget)  # of a continuation
        self.end = forget[0].answer[-1]

        # The model as it is, before the first step.
        for watch in watches:
            watch(model, -1)
        self.method.prepare(protocol.UnlearningRun(model, len(self.steps), self.method_draws))
        with evaluating(model), precision(model, recipe.compute):
            self.before = ModelBefore(model, self.method, recipe, padding, [*forget, *retain])
            self.forget = Pool(self.before, forget)
            self.retain_pool = Pool(self.before, retain, scored=False)
            self.second: Pool | None = None
            if second and self.method.needs.second_answers:
                self.counts = np.array(list(map(len, second)))  # of the second answers to each row
                self.second = Pool(self.before, list(itertools.chain.from_iterable(second)))

    def loss(self, number: int, picked: np.ndarray) -> Iterator[dict[str, torch.Tensor]]:
        """The parts of a step that this process takes; their losses add up to the step's.

        Everything random is drawn for the whole step first, so that the parts, and the number of processes, change no draw.

        Parameters
        ----------
        number
            The number of the step.
        picked
            The places of its forget rows.
        """
        size = self.recipe.retain_batch if self.uses_retain else 0
        retained = self.retain_draws.integers(len(self.retain), size=size)
        if self.second:
            starts = np.cumsum(self.counts) - self.counts
            second_picked = starts[picked] + self.method_draws.integers(self.counts[picked])
        written = self._continuations(picked)

        n_parts = min(self.recipe.compute.accumulate * self.team.size, len(picked))
        if size:
            n_parts = min(n_parts, size)
        forget_parts = np.array_split(np.arange(len(picked)), n_parts)
        retain_parts = np.array_split(np.arange(size), n_parts)
        parts = list(zip(forget_parts, retain_parts, strict=True))

        for on_forget, on_retain in self.team.share(parts):
            second = self.second.rows(second_picked, on_forget) if self.second else None
            step = Step(
                number,
                len(self.steps),
                self.steps[number][0],
                forget=self.forget.rows(picked, on_forget, second),
                retain=self.retain_pool.rows(retained, on_retain) if size else None,
            )
            continuations = None
            if written is not None:
                continuations = written.rows(np.arange(len(picked)), on_forget)
            values = self.method.loss(step)
            yield with_entropy(values, step, self.params.entropy, continuations)

    def _continuations(self, picked: np.ndarray) -> Pool | None:
        """The model's own continuations of the forget questions of a step; None if the true answers count."""
        entropy = self.params.entropy
        if entropy is None or entropy.prefix == "true":
            return None
        uniforms = None
        if entropy.prefix == "sampled":
            uniforms = self.token_draws.random((len(picked), self.longest))
        examples = [self.forget.examples[row] for row in picked]
        with precision(self.model, self.recipe.compute):
            written = continued(self.model, examples, self.longest, self.end, uniforms)
        return Pool(self.before, written, scored=False)

    def after(self, number: int, values: dict[str, float]) -> None:
        """Let the method, and after the last step of an epoch the watch, see the model."""
        epoch = self.steps[number][0]
        self.method.after_step(protocol.Done(number, len(self.steps), epoch), values)
        if number + 1 == len(self.steps) or self.steps[number + 1][0] != epoch:
            with evaluating(self.model):
                groups = in_groups(self.retain, self.recipe.retain_batch)
                self.method.after_epoch(epoch, map(self.before.rows, groups))
            for watch in self.watches:
                watch(self.model, epoch)

    @property
    def _generators(self) -> tuple[np.random.Generator, ...]:
        """The generators whose states a later process needs; the order of the rows is drawn at once."""
        return self.retain_draws, self.method_draws, self.token_draws

    def state(self) -> dict[str, object]:
        """What a later process needs besides weights and optimiser: generators, the method's state, the records."""
        generators = [generator.bit_generator.state for generator in self._generators]
        watched = [watch.records for watch in self.watches]
        return {"generators": generators, "method": self.method.state(), "watched": watched}

    def restore(self, state: Mapping[str, object]) -> None:
        """Go on from what `state` returned."""
        saved = cast("list[dict]", state["generators"])
        for generator, generator_state in zip(self._generators, saved, strict=True):
            generator.bit_generator.state = generator_state
        self.method.restore(cast("dict[str, object]", state["method"]))
        watched = cast("list[list[StepRecord]]", state["watched"])
        for watch, records in zip(self.watches, watched, strict=True):
            watch.records[:] = records


def _plain(examples: Iterable[Example]) -> list[list[tuple[int, ...]]]:
    """The tokens of examples, for a digest."""
    return [[example.prompt, example.answer] for example in examples]


def with_entropy(
    values: dict[str, torch.Tensor],
    step: Step,
    entropy: Entropy | None,
    continuations: StepRows | None = None,
) -> dict[str, torch.Tensor]:
    """The method's scalars with the entropy terms added to the loss and listed by name.

    Parameters
    ----------
    values
        What the method gives of a step, the loss among it.
    entropy
        The settings of the terms; None: there are none.
    continuations
        Rows whose answers the model wrote itself, in place of the forget rows.
    """
    if entropy is None:
        return values
    total = values["loss"]
    values = dict(values)
    forget = continuations or step.forget
    values["entropy_forget"] = _entropy_of(forget, entropy.positions) * forget.share("rows")
    ramp = 1.0
    if entropy.ramp:  # full weight at once locks in a memorised answer
        ramp = min(1.0, step.number / (entropy.ramp * step.steps))
    total = total + entropy.forget * ramp * values["entropy_forget"]
    if entropy.retain and step.retain is not None:
        share = step.retain.share("rows")
        values["entropy_retain"] = _entropy_of(step.retain, entropy.positions) * share
        total = total + entropy.retain * values["entropy_retain"]
    return {**values, "loss": total}


def _entropy_of(rows: StepRows, positions: Positions) -> torch.Tensor:
    """The mean entropy at the positions that predict a token of the answer, or of the whole row without its padding."""
    if positions == "answer":
        return rows.forward.entropy
    return rows.forward.entropy_at(rows.batch.mask[:, 1:])


class Pool:
    """Examples of which a step takes some, with their likelihoods before unlearning if the method needs them."""

    def __init__(self, before: ModelBefore, examples: Sequence[Example], scored: bool = True):
        self.before = before
        self.examples = examples
        self.scores: torch.Tensor | None = None
        if scored and before.scored:
            self.scores = reference_log_probs(before.model, examples, before.size, before.padding)

    def rows(
        self, picked: np.ndarray, place: np.ndarray, second: StepRows | None = None
    ) -> StepRows:
        """The part ``place`` of the rows that a step ``picked``."""
        whole = protocol.TokenCounts(tuple(self.examples[row].counted for row in picked))
        part = picked[place]
        scores = None if self.scores is None else self.scores[part]
        return self.before.rows([self.examples[row] for row in part], scores, second, whole)


def continued(
    model: PreTrainedModel,
    examples: Sequence[Example],
    longest: int,
    end: int,
    uniforms: np.ndarray | None,
) -> list[Example]:
    """The examples with the model's own continuation, greedy or drawn at temperature 1, as the answer.

    Sampling may reach a position that the published optimisation, at the positions of the true answer, never touches.

    Parameters
    ----------
    longest
        The most tokens of a continuation.
    end
        The token with which one ends.
    uniforms
        (rows, longest) numbers in [0, 1), which draw the tokens; None: the likeliest ones.
    """
    rows = len(examples)
    width = max(len(example.prompt) for example in examples)
    # Left of a shorter prompt stand zeros, which are masked.
    ids = torch.zeros((rows, width), dtype=torch.long, device=model.device)
    mask = torch.zeros((rows, width + longest), dtype=torch.long, device=model.device)
    for row, example in enumerate(examples):
        start = width - len(example.prompt)
        ids[row, start:] = torch.tensor(example.prompt)
        mask[row, start:] = 1
    places = (mask.cumsum(-1) - 1).clamp_min(0)

    written: list[list[int]] = [[] for _ in examples]
    cache = None
    name = cache_name(model)
    with evaluating(model):
        for number in range(longest):
            seen = width + number
            out = model(
                input_ids=ids,
                attention_mask=mask[:, :seen],
                position_ids=places[:, seen - ids.shape[1] : seen],
                use_cache=True,
                **{name: cache},
            )
            cache = getattr(out, name)
            draws = None if uniforms is None else uniforms[:, number]
            ids = chosen(out.logits[:, -1], draws)[:, None]
            for tokens, token in zip(written, ids[:, 0].tolist(), strict=True):
                if tokens[-1:] != [end]:
                    tokens.append(token)
            if all(tokens[-1] == end for tokens in written):
                break

    pairs = zip(examples, written, strict=True)
    return [Example(example.prompt, tuple(tokens)) for example, tokens in pairs]


def chosen(logits: torch.Tensor, uniforms: np.ndarray | None) -> torch.Tensor:
    """(rows,) the most likely token of each row, or the token that its number in [0, 1) draws."""
    if uniforms is None:
        return logits.argmax(-1)
    upper = logits.double().softmax(-1).cumsum(-1)
    numbers = torch.as_tensor(uniforms, device=logits.device)[:, None]
    drawn = numbers * upper[:, -1:]  # the sum may miss 1 by rounding
    tokens = torch.searchsorted(upper, drawn, right=True)[:, 0]
    return tokens.clamp_max(logits.shape[-1] - 1)


def reference_log_probs(
    model: PreTrainedModel, examples: Sequence[Example], size: int, padding: int
) -> torch.Tensor:
    """(N,) S_ref of each answer in nats, computed once, so the reference model need not stay loaded."""
    log_probs = []
    with torch.no_grad():
        for group in in_groups(examples, size):
            batch = collate(group, padding, model.device)
            log_probs.append(forward(model, batch).log_probs)
    return torch.cat(log_probs)


class ModelBefore:
    """The model before unlearning, reduced to the parts that a method and its retain loss use."""

    def __init__(
        self,
        model: PreTrainedModel,
        method: Method,
        recipe: UnlearnRecipe,
        padding: int,
        examples: Sequence[Example],
    ):
        self.model = model
        self.size = recipe.forget_batch
        self.padding = padding
        self.scored = method.needs.reference_log_probs
        self.before: protocol.Frozen | protocol.Values | None = None
        kl = method.uses_retain and method.params.retain_loss == "kl"
        if method.needs.reference_model or kl:
            if recipe.reference == "cached":
                groups = in_groups(examples, self.size)
                self.before = protocol.Values(model, padding, method.reference_block(model), groups)
            else:
                self.before = protocol.Frozen(copy.deepcopy(model).eval().requires_grad_(False))

    def rows(
        self,
        examples: Sequence[Example],
        scores: torch.Tensor | None = None,
        second: StepRows | None = None,
        whole: protocol.TokenCounts | None = None,
    ) -> StepRows:
        """The rows of a step, or of a part of a step whose counts are ``whole``."""
        batch = collate(examples, self.padding, self.model.device)
        return StepRows(
            self.model,
            batch,
            self.before,
            scores,
            second,
            whole,
        )


def in_groups(examples: Sequence[Example], size: int) -> Iterator[Sequence[Example]]:
    """The examples in their order, ``size`` at a time."""
    for start in range(0, len(examples), size):
        yield examples[start : start + size]


@contextlib.contextmanager
def evaluating(model: PreTrainedModel) -> Iterator[None]:
    """Evaluation mode without gradients; the model's mode is restored on exit."""
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        model.train(training)


class Watching(Protocol):
    """What sees the model before the first step (epoch -1) and after each epoch, and records what it finds."""

    @property
    def records(self) -> list[StepRecord]: ...

    @property
    def facts(self) -> Mapping[str, object]:
        """What the records depend on beside model, rows, recipe and method: a run with others resumes none of them."""

    def __call__(self, model: PreTrainedModel, epoch: int) -> None: ...


@dataclass(frozen=True)
class Watch:
    """Records confidence and entropy on some rows of each split: before the first step (epoch -1) and after each epoch
    (Figure 5b): per split the means over rows and answer positions of the largest next-token probability, the next-token
    entropy in nats, and the probability of the true token."""

    splits: Mapping[str, Sequence[Example]]
    padding: int
    records: list[dict[str, float]] = field(default_factory=list)
    facts: Mapping[str, object] = field(default_factory=dict)

    def __call__(self, model: PreTrainedModel, epoch: int) -> None:
        record: dict[str, float] = {"epoch": epoch}
        with evaluating(model):
            for split, examples in self.splits.items():
                for name, value in _observed(model, examples, self.padding).items():
                    record[f"{split}_{name}"] = value
        self.records.append(record)


def _observed(
    model: PreTrainedModel, examples: Sequence[Example], padding: int
) -> dict[str, float]:
    """The means over examples of what `Watch` records."""
    sums = dict.fromkeys(("confidence", "entropy", "probability"), 0.0)
    for group in in_groups(examples, SIZE):
        out = forward(model, collate(group, padding, model.device))
        counted = protocol.answered(out)
        log_p = out.logits.float().log_softmax(-1)
        of_tokens = {
            "confidence": log_p.amax(-1).exp(),
            "entropy": -(log_p.exp() * log_p).sum(-1),
            "probability": out.token_log_probs.exp(),
        }
        for name, values in of_tokens.items():
            sums[name] += float(((values * counted).sum(-1) / out.tokens).sum())
    return {name: value / len(examples) for name, value in sums.items()}
