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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

import numpy as np
import torch

from lethe.config.schema import Entropy, Positions, UnlearnRecipe
from lethe.identity import digest, module_of
from lethe.io.artifacts import Row
from lethe.models.checkpoints import StepRecord
from lethe.models.encoding import Example, collate
from lethe.models.likelihood import forward
from lethe.models.training import SCRATCH, Team, batches, optimise, precision, resumable
from lethe.registry import METHODS
from lethe.unlearning import protocol
from lethe.unlearning.protocol import Before, Method, MethodParams, Rows, Step

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
    watch: Watch | None = None,
) -> list[StepRecord]:
    run = _Loop(model, forget, retain, recipe, params, padding, second, watch)
    facts = {
        "rows": digest([*_plain(forget), *_plain(retain), *(_plain(one) for one in second or ())])
    }
    modules = (__name__, module_of(METHODS[params.loss]))
    saved_state = resumable(SCRATCH, model, recipe.compute, modules, recipe, params, **facts)
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
    answers = method.all_second_answers(rows, before)
    return [
        [before.encoder.example(row, one) for one in own]
        for row, own in zip(rows, answers, strict=True)
    ]


class _Loop:
    """The loss of every step and the work after each update, with the state from which a run resumes."""

    def __init__(
        self,
        model: PreTrainedModel,
        forget: Sequence[Example],
        retain: Sequence[Example],
        recipe: UnlearnRecipe,
        params: MethodParams,
        padding: int,
        second: Sequence[Sequence[Example]] | None,
        watch: Watch | None,
    ):
        # A further stream leaves those before it unchanged.
        seed = recipe.seed if params.seed is None else params.seed
        streams = (np.random.default_rng(s) for s in np.random.SeedSequence(seed).spawn(4))
        order, self.draws, self.own, self.tokens = streams
        self.steps = list(batches(len(forget), recipe.forget_batch, params.epochs, order))
        self.model, self.retain, self.recipe, self.params, self.watch = (
            model,
            retain,
            recipe,
            params,
            watch,
        )
        self.method, self.team = METHODS[params.loss](params), Team()
        self.uses_retain = self.method.uses_retain or bool(params.entropy and params.entropy.retain)
        self.longest = max(len(one.answer) for one in forget)  # of a continuation
        self.end = forget[0].answer[-1]
        if watch is not None:
            watch(model, -1)
        self.method.prepare(protocol.Run(model, len(self.steps), self.own))
        with evaluating(model), precision(model, recipe.compute):
            self.before = Reference(model, self.method, recipe, padding, [*forget, *retain])
            self.forget, self.retain_pool = (
                Pool(self.before, forget),
                Pool(self.before, retain, scored=False),
            )
            each = second if second and self.method.needs.second_answers else ()
            self.counts = np.array([len(answers) for answers in each])
            self.second = (
                Pool(self.before, [answer for answers in each for answer in answers])
                if each
                else None
            )

    def loss(self, number: int, picked: np.ndarray) -> Iterator[dict[str, torch.Tensor]]:
        """The parts of a step that this process takes; their losses add up to the step's."""
        size = self.recipe.retain_batch if self.uses_retain else 0
        retained = self.draws.integers(len(self.retain), size=size)
        drawn = (
            (np.cumsum(self.counts) - self.counts)[picked] + self.own.integers(self.counts[picked])
            if self.second
            else picked
        )
        own = self._own_prefixes(picked)
        parts = min(
            self.recipe.compute.accumulate * self.team.size, len(picked), size or len(picked)
        )
        places, rests = (np.array_split(np.arange(count), parts) for count in (len(picked), size))
        for place, rest in self.team.share(list(zip(places, rests, strict=True))):
            second = self.second.rows(drawn, place) if self.second else None
            on_forget = self.forget.rows(picked, place, second)
            on_retain = self.retain_pool.rows(retained, rest) if size else None
            step = Step(number, len(self.steps), self.steps[number][0], on_forget, on_retain)
            mine = None if own is None else own.rows(np.arange(len(picked)), place)
            yield with_entropy(self.method.loss(step), step, self.params.entropy, mine)

    def _own_prefixes(self, picked: np.ndarray) -> Pool | None:
        """The model's own continuations of the forget questions of a step; None if the true answers count."""
        entropy = self.params.entropy
        if entropy is None or entropy.prefix == "true":
            return None
        uniforms = (
            self.tokens.random((len(picked), self.longest)) if entropy.prefix == "sampled" else None
        )
        examples = [self.forget.examples[i] for i in picked]
        with precision(self.model, self.recipe.compute):
            written = continued(self.model, examples, self.longest, self.end, uniforms)
        return Pool(self.before, written, scored=False)

    def after(self, number: int, values: dict[str, float]) -> None:
        epoch = self.steps[number][0]
        self.method.after_step(protocol.Done(number, len(self.steps), epoch), values)
        if number + 1 == len(self.steps) or self.steps[number + 1][0] != epoch:
            with evaluating(self.model):
                groups = in_groups(self.retain, self.recipe.retain_batch)
                self.method.after_epoch(epoch, (self.before.rows(group) for group in groups))
            if self.watch is not None:
                self.watch(self.model, epoch)

    def state(self) -> dict[str, object]:
        generators = [one.bit_generator.state for one in (self.draws, self.own, self.tokens)]
        watched = self.watch.records if self.watch else []
        return {"generators": generators, "method": self.method.state(), "watched": watched}

    def restore(self, state: Mapping[str, object]) -> None:
        generators = cast("list[dict]", state["generators"])
        for generator, generator_state in zip(
            (self.draws, self.own, self.tokens), generators, strict=True
        ):
            generator.bit_generator.state = generator_state
        self.method.restore(cast("dict[str, object]", state["method"]))
        if self.watch is not None:
            self.watch.records[:] = cast("list[StepRecord]", state["watched"])


def _plain(examples: Iterable[Example]) -> list[list[tuple[int, ...]]]:
    return [[one.prompt, one.answer] for one in examples]


def with_entropy(
    values: dict[str, torch.Tensor], step: Step, entropy: Entropy | None, own: Rows | None = None
) -> dict[str, torch.Tensor]:
    """The method's scalars with the entropy terms added to the loss and listed by name."""
    if entropy is None:
        return values
    total, values = values["loss"], dict(values)
    asked = step.forget if own is None else own
    values["entropy_forget"] = _entropy_of(asked, entropy.positions) * asked.share("rows")
    # Full weight at once locks in a memorised answer.
    ramp = min(1.0, step.number / (entropy.ramp * step.steps)) if entropy.ramp else 1.0
    total = total + entropy.forget * ramp * values["entropy_forget"]
    if entropy.retain and step.retain is not None:
        share = step.retain.share("rows")
        values["entropy_retain"] = _entropy_of(step.retain, entropy.positions) * share
        total = total + entropy.retain * values["entropy_retain"]
    return {**values, "loss": total}


def _entropy_of(rows: Rows, positions: Positions) -> torch.Tensor:
    """The mean entropy at the positions that predict a token of the answer, or of the whole row without its padding."""
    if positions == "answer":
        return rows.forward.entropy
    return rows.forward.entropy_at(rows.batch.mask[:, 1:])


class Pool:
    """Examples of which a step takes some, with their likelihoods before unlearning if the method needs them."""

    def __init__(self, before: Reference, examples: Sequence[Example], scored: bool = True):
        self.before, self.examples, self.scores = before, examples, None
        if scored and before.scored:
            self.scores = reference_log_probs(before.model, examples, before.size, before.padding)

    def rows(self, picked: np.ndarray, place: np.ndarray, second: Rows | None = None) -> Rows:
        """The part ``place`` of the rows that a step ``picked``."""
        own, whole = picked[place], protocol.Counts(tuple(self.examples[i].counted for i in picked))
        scores = None if self.scores is None else self.scores[own]
        return self.before.rows([self.examples[i] for i in own], scores, second, whole)


def continued(
    model: PreTrainedModel,
    examples: Sequence[Example],
    longest: int,
    end: int,
    uniforms: np.ndarray | None,
) -> list[Example]:
    """The examples with the model's own continuation, greedy or drawn at temperature 1, as the answer: sampling may reach
    a position that the published optimisation, at the positions of the true answer, never touches."""
    width, rows = max(len(one.prompt) for one in examples), len(examples)
    ids = torch.zeros(
        (rows, width), dtype=torch.long, device=model.device
    )  # masked left of the prompt
    mask = torch.zeros((rows, width + longest), dtype=torch.long, device=model.device)
    for row, one in enumerate(examples):
        ids[row, width - len(one.prompt) :] = torch.tensor(one.prompt)
        mask[row, width - len(one.prompt) :] = 1
    places = (mask.cumsum(-1) - 1).clamp_min(0)
    written: list[list[int]] = [[] for _ in examples]
    cache = None
    with evaluating(model):
        for number in range(longest):
            seen = width + number
            out = model(
                input_ids=ids,
                attention_mask=mask[:, :seen],
                position_ids=places[:, seen - ids.shape[1] : seen],
                past_key_values=cache,
                use_cache=True,
            )
            cache = out.past_key_values
            ids = chosen(out.logits[:, -1], None if uniforms is None else uniforms[:, number])[
                :, None
            ]
            for tokens, token in zip(written, ids[:, 0].tolist(), strict=True):
                if tokens[-1:] != [end]:
                    tokens.append(token)
            if all(tokens[-1] == end for tokens in written):
                break
    return [
        Example(one.prompt, tuple(tokens)) for one, tokens in zip(examples, written, strict=True)
    ]


def chosen(logits: torch.Tensor, uniforms: np.ndarray | None) -> torch.Tensor:
    """(rows,) the most likely token of each row, or the token that its number in [0, 1) draws."""
    if uniforms is None:
        return logits.argmax(-1)
    upper = logits.double().softmax(-1).cumsum(-1)
    # The sum may miss 1 by rounding.
    drawn = torch.as_tensor(uniforms, device=logits.device)[:, None] * upper[:, -1:]
    return torch.searchsorted(upper, drawn, right=True)[:, 0].clamp_max(logits.shape[-1] - 1)


def reference_log_probs(
    model: PreTrainedModel, examples: Sequence[Example], size: int, padding: int
) -> torch.Tensor:
    """(N,) S_ref of each answer in nats, computed once, so the reference model need not stay loaded."""
    with torch.no_grad():
        passes = (
            forward(model, collate(group, padding, model.device))
            for group in in_groups(examples, size)
        )
        return torch.cat([one.log_probs for one in passes])


class Reference:
    """The model before unlearning, reduced to the parts that a method and its retain loss use."""

    def __init__(
        self,
        model: PreTrainedModel,
        method: Method,
        recipe: UnlearnRecipe,
        padding: int,
        examples: Sequence[Example],
    ):
        self.model, self.size, self.padding = model, recipe.forget_batch, padding
        self.scored = method.needs.reference_log_probs
        self.before: protocol.Frozen | protocol.Values | None = None
        if method.needs.reference_model or (
            method.uses_retain and method.params.retain_loss == "kl"
        ):
            if recipe.reference == "cached":
                groups = in_groups(examples, self.size)
                self.before = protocol.Values(model, padding, method.reference_block(model), groups)
            else:
                self.before = protocol.Frozen(copy.deepcopy(model).eval().requires_grad_(False))

    def rows(
        self,
        examples: Sequence[Example],
        scores: torch.Tensor | None = None,
        second: Rows | None = None,
        whole: protocol.Counts | None = None,
    ) -> Rows:
        """The rows of a step, or of a part of a step whose counts are ``whole``."""
        batch = collate(examples, self.padding, self.model.device)
        return Rows(self.model, batch, self.before, scores, second, whole)


def in_groups(examples: Sequence[Example], size: int) -> Iterator[Sequence[Example]]:
    return (examples[start : start + size] for start in range(0, len(examples), size))


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


@dataclass(frozen=True)
class Watch:
    """Records confidence and entropy on some rows of each split: before the first step (epoch -1) and after each epoch
    (Figure 5b): per split the means over rows and answer positions of the largest next-token probability, the next-token
    entropy in nats, and the probability of the true token."""

    splits: Mapping[str, Sequence[Example]]
    padding: int
    records: list[dict[str, float]] = field(default_factory=list)

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
