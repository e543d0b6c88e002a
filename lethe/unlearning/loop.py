"""The loop of every unlearning method: forget batches paired with uniformly drawn retain batches.

L = gamma F(forget) + w R(retain) + entropy.forget * ramp * H(forget) + entropy.retain * H(retain), where the method
defines F and may redefine w and R, and H is the mean token entropy on answers, or for `entropy.prefix` greedy or sampled on
the model's own continuations of the forget questions. Source: Scholten, Günnemann and Schwinn,
"A Probabilistic Perspective on Unlearning and Alignment for Large Language Models", equation of L_EO.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

import numpy as np

from lethe.io.cache import digest, module_of
from lethe.models.encoding import Example, collate
from lethe.models.forward import forward
from lethe.models.team import Team
from lethe.models.training import SCRATCH, StepRecord, batches, optimise, precision, resumable
from lethe.registry import METHODS
from lethe.unlearning.protocol import Counts, Done, Method, MethodParams, Rows, Run, Step, Values, answered

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

    from lethe.config.schema import Entropy, UnlearnRecipe

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
    """Unlearn in place; returns the history."""
    run = _Loop(model, forget, retain, recipe, params, padding, second, watch)
    facts = {"rows": digest([*_plain(forget), *_plain(retain), *(_plain(one) for one in second or ())])}
    modules = (__name__, module_of(METHODS[params.loss]))
    saved_state = resumable(SCRATCH, model, recipe.compute, modules, recipe, params, **facts)
    history = optimise(model, run.steps, run.loss, recipe, params.lr, label, run.after, saved_state, run)
    if saved_state:
        saved_state.clear()
    return history


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
        self.model, self.retain, self.recipe, self.params, self.watch = model, retain, recipe, params, watch
        self.method: Method = METHODS[params.loss](params)
        self.team, self.last = Team(), 0
        self.uses_retain = self.method.uses_retain or bool(params.entropy and params.entropy.retain)
        self.longest = max(len(one.answer) for one in forget)  # of a continuation
        self.end = forget[0].answer[-1]
        if watch is not None:
            watch(model, -1)
        self.method.prepare(Run(model, len(self.steps), self.own))
        with evaluating(model), precision(model, recipe.compute):
            self.before = Reference(model, self.method, recipe, padding)
            needed = second if self.method.needs.second_answers else None
            self.on_forget = _ForgetRows(self.before, forget, needed, self.own)
            if self.before.values is not None:
                self.before.values.keep([*forget, *retain], recipe.forget_batch)

    def loss(self, number: int, picked: np.ndarray) -> Iterator[dict[str, torch.Tensor]]:
        """The parts of a step that this process takes; their losses add up to the step's."""
        drawn_retain = (
            self.draws.integers(len(self.retain), size=self.recipe.retain_batch) if self.uses_retain else None
        )
        drawn = self.on_forget.draw(picked)
        own = self._own_prefixes(picked)
        self.last = number
        most = self.recipe.compute.accumulate * self.team.size
        parts = min(most, len(picked), most if drawn_retain is None else len(drawn_retain))
        places = np.array_split(np.arange(len(picked)), parts)
        retained = [None] * parts if drawn_retain is None else np.array_split(drawn_retain, parts)
        whole = None if drawn_retain is None else _counts([self.retain[i] for i in drawn_retain])
        for place, rows in self.team.share(list(zip(places, retained, strict=True))):
            on_forget = self.on_forget.part(picked, drawn, place)
            on_retain = None if rows is None else self.before.rows([self.retain[i] for i in rows], whole=whole)
            step = Step(number, len(self.steps), self.steps[number][0], on_forget, on_retain)
            mine = step.forget if own is None else self.before.rows([own[i] for i in place], whole=_counts(own))
            yield with_entropy(self.method.loss(step), step, self.params.entropy, mine)

    def _own_prefixes(self, picked: np.ndarray) -> list[Example] | None:
        """The model's own continuations of the forget questions of a step; None if the true answers count."""
        entropy = self.params.entropy
        if entropy is None or entropy.prefix == "true":
            return None
        uniforms = self.tokens.random((len(picked), self.longest)) if entropy.prefix == "sampled" else None
        examples = [self.on_forget.examples[i] for i in picked]
        with precision(self.model, self.recipe.compute):
            return continued(self.model, examples, self.longest, self.end, uniforms)

    def after(self, number: int, values: dict[str, float]) -> None:
        """Called after each update of the weights."""
        epoch = self.steps[number][0]
        self.method.after_step(Done(number, len(self.steps), epoch), values)
        if number + 1 == len(self.steps) or self.steps[number + 1][0] != epoch:
            with evaluating(self.model):
                self.method.after_epoch(epoch, self.before.all_rows(self.retain, self.recipe.retain_batch))
            if self.watch is not None:
                self.watch(self.model, epoch)

    def state(self) -> dict[str, object]:
        """The state that the next step depends on."""
        generators = [one.bit_generator.state for one in (self.draws, self.own, self.tokens)]
        watched = self.watch.records if self.watch else []
        return {"generators": generators, "method": self.method.state(), "watched": watched}

    def restore(self, state: Mapping[str, object]) -> None:
        """Restore what `state` returned."""
        generators = cast("list[dict]", state["generators"])
        for generator, generator_state in zip((self.draws, self.own, self.tokens), generators, strict=True):
            generator.bit_generator.state = generator_state
        self.method.restore(cast("dict[str, object]", state["method"]))
        if self.watch is not None:
            self.watch.records[:] = cast("list[StepRecord]", state["watched"])


def _plain(examples: Iterable[Example]) -> list[list[tuple[int, ...]]]:
    return [[one.prompt, one.answer] for one in examples]


def _counts(examples: Iterable[Example]) -> Counts:
    return Counts(tuple(one.counted for one in examples))


def with_entropy(
    values: dict[str, torch.Tensor], step: Step, entropy: Entropy | None, own: Rows | None = None
) -> dict[str, torch.Tensor]:
    """The method's scalars with the entropy terms added to the loss and listed by name."""
    if entropy is None:
        return values
    total, values = values["loss"], dict(values)
    asked = step.forget if own is None else own
    values["entropy_forget"] = asked.forward.entropy * asked.share("rows")
    total = total + entropy.forget * ramped(step.number, step.steps, entropy.ramp) * values["entropy_forget"]
    if entropy.retain and step.retain is not None:
        values["entropy_retain"] = step.retain.forward.entropy * step.retain.share("rows")
        total = total + entropy.retain * values["entropy_retain"]
    return {**values, "loss": total}


def ramped(step: int, steps: int, share: float) -> float:
    """The factor on the forget entropy: linear from 0 to 1 over a share of the steps.

    Entropy at full weight from the first step locks in a memorised answer: the model starts out certain of the answer,
    and a lower entropy makes the model more certain.
    """
    return min(1.0, step / (share * steps)) if share else 1.0


class _ForgetRows:
    """The forget rows of a step, each with a newly drawn second answer if the method uses them."""

    def __init__(
        self,
        before: Reference,
        examples: Sequence[Example],
        second: Sequence[Sequence[Example]] | None,
        generator: np.random.Generator,
    ):
        self.before, self.examples, self.generator = before, examples, generator
        self.scores = before.log_probs(examples)
        self.counts = np.array([len(answers) for answers in second or ()])
        self.starts = np.cumsum(self.counts) - self.counts
        self.answers = [answer for answers in second or () for answer in answers]
        self.answer_scores = before.log_probs(self.answers) if self.answers else None

    def draw(self, picked: np.ndarray) -> np.ndarray | None:
        """The number of the second answer to each row of a step."""
        return self.starts[picked] + self.generator.integers(self.counts[picked]) if self.answers else None

    def part(self, picked: np.ndarray, drawn: np.ndarray | None, place: np.ndarray) -> Rows:
        """The part of a step's rows that ``place`` selects."""
        second = None
        if drawn is not None:
            own, whole = drawn[place], _counts([self.answers[i] for i in drawn])
            scores = _at(self.answer_scores, own)
            second = self.before.rows([self.answers[i] for i in own], scores, whole=whole)
        rows, whole = picked[place], _counts([self.examples[i] for i in picked])
        return self.before.rows([self.examples[i] for i in rows], _at(self.scores, rows), second, whole)


def _at(scores: torch.Tensor | None, places: np.ndarray) -> torch.Tensor | None:
    return None if scores is None else scores[places]


def continued(
    model: PreTrainedModel, examples: Sequence[Example], longest: int, end: int, uniforms: np.ndarray | None
) -> list[Example]:
    """The examples with the model's own continuation, on whose positions the forget entropy may be taken, as the answer.

    Entropy optimisation as published takes the entropy at the positions of the true answer, each given the true earlier
    tokens. Sampling follows the tokens that the model itself wrote, so a position that sampling reaches may never have been
    optimised. A continuation is greedy, or drawn at temperature 1, from the weights of the current step. The gradient is that
    of the entropy given the continuation: the part through the choice of the tokens is left out.
    """
    import torch

    width, rows = max(len(one.prompt) for one in examples), len(examples)
    ids = torch.zeros((rows, width), dtype=torch.long, device=model.device)  # masked left of the prompt
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
            ids = chosen(out.logits[:, -1], None if uniforms is None else uniforms[:, number])[:, None]
            for tokens, token in zip(written, ids[:, 0].tolist(), strict=True):
                if tokens[-1:] != [end]:
                    tokens.append(token)
            if all(tokens[-1] == end for tokens in written):
                break
    return [Example(one.prompt, tuple(tokens)) for one, tokens in zip(examples, written, strict=True)]


def chosen(logits: torch.Tensor, uniforms: np.ndarray | None) -> torch.Tensor:
    """(rows,) the most likely token of each row, or the token that its number in [0, 1) draws."""
    import torch

    if uniforms is None:
        return logits.argmax(-1)
    upper = logits.double().softmax(-1).cumsum(-1)
    # The sum may miss 1 by rounding.
    drawn = torch.as_tensor(uniforms, device=logits.device)[:, None] * upper[:, -1:]
    return torch.searchsorted(upper, drawn, right=True)[:, 0].clamp_max(logits.shape[-1] - 1)


# The model before unlearning: kept whole and frozen, or reduced to its values on the answers.


def reference_log_probs(
    model: PreTrainedModel, examples: Sequence[Example], size: int, padding: int
) -> torch.Tensor:
    """(N,) S_ref of each answer in nats, computed once, so the reference model need not stay loaded."""
    import torch

    groups = (examples[start : start + size] for start in range(0, len(examples), size))
    with torch.no_grad():
        return torch.cat([forward(model, collate(group, padding, model.device)).log_probs for group in groups])


class Reference:
    """The model before unlearning, reduced to the parts that a method and its retain loss use."""

    def __init__(self, model: PreTrainedModel, method: Method, recipe: UnlearnRecipe, padding: int):
        self.model, self.size, self.padding = model, recipe.forget_batch, padding
        self.scored = method.needs.reference_log_probs
        self.frozen: PreTrainedModel | None = None
        self.values: Values | None = None
        if method.needs.reference_model or (method.uses_retain and method.params.retain_loss == "kl"):
            if recipe.reference == "cached":
                self.values = Values(model, padding, method.reference_block(model))
            else:
                self.frozen = copy.deepcopy(model).eval().requires_grad_(False)

    def log_probs(self, examples: Sequence[Example]) -> torch.Tensor | None:
        """(N,) S_ref of each answer, for a method that needs it."""
        return reference_log_probs(self.model, examples, self.size, self.padding) if self.scored else None

    def rows(
        self,
        examples: Sequence[Example],
        scores: torch.Tensor | None = None,
        second: Rows | None = None,
        whole: Counts | None = None,
    ) -> Rows:
        """The rows of a step, or of a part of a step whose counts are ``whole``."""
        return Rows(
            self.model,
            collate(examples, self.padding, self.model.device),
            reference_model=self.frozen,
            reference_log_probs=scores,
            second=second,
            whole=whole,
            values=self.values,
        )

    def all_rows(self, examples: Sequence[Example], size: int) -> Iterator[Rows]:
        """All rows in file order, in batches."""
        return (self.rows(examples[start : start + size]) for start in range(0, len(examples), size))


@contextlib.contextmanager
def evaluating(model: PreTrainedModel) -> Iterator[None]:
    """Evaluation mode without gradients; the model's mode is restored on exit."""
    import torch

    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        model.train(training)


@dataclass(frozen=True)
class Watch:
    """Records confidence and entropy on some rows of each split: before the first step and after each epoch (Figure 5b).

    Each record has ``epoch`` (-1 before the first step) and per split the means over the rows of: the largest next-token
    probability (confidence), the next-token entropy in nats, and the probability of the true token, each a mean over the
    answer's positions.
    """

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


def _observed(model: PreTrainedModel, examples: Sequence[Example], padding: int) -> dict[str, float]:
    sums = dict.fromkeys(("confidence", "entropy", "probability"), 0.0)
    for start in range(0, len(examples), SIZE):
        group = examples[start : start + SIZE]
        out = forward(model, collate(group, padding, model.device))
        counted = answered(out)
        log_p = out.logits.float().log_softmax(-1)
        of_tokens = {
            "confidence": log_p.amax(-1).exp(),
            "entropy": -(log_p.exp() * log_p).sum(-1),
            "probability": out.token_log_probs.exp(),
        }
        for name, values in of_tokens.items():
            sums[name] += float(((values * counted).sum(-1) / out.tokens).sum())
    return {name: value / len(examples) for name, value in sums.items()}
