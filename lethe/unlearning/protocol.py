"""The protocol of unlearning methods: one file with a parameter model and a class that defines the loss.

A method minimises L = gamma F(forget) + w R(retain); the loop (`lethe.unlearning.loop`) adds the entropy terms. The class
may use the model's pass over a batch, the same pass of the model before unlearning, hidden states of both, and second
answers to the forget questions (refusals, alternatives). The class may keep state between steps. Published losses use a
token mean, a sum per row, or a mean per row; `StepRows` offers the parts of each.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Literal, TypeVar

import numpy as np

from lethe.config.fields import Place, Positive, Weight, WithParams
from lethe.config.schema import MethodParams
from lethe.io.artifacts import Row
from lethe.models.encoding import IGNORED, Encoder, Example, TokenBatch, collate
from lethe.models.likelihood import Forward, block_output, forward, from_logits, number_of_blocks

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

__all__ = [
    "Before",
    "Method",
    "MethodParams",
    "Needs",
    "Place",
    "Positive",
    "Step",
    "StepRows",
    "UnlearningRun",
    "Weight",
]

P = TypeVar("P", bound=MethodParams)


@dataclass(frozen=True)
class Needs:
    """Requirements of a method.

    ``reference_log_probs``: S_ref of every answer, computed once (`Rows.reference_log_probs`). ``reference_model``: the
    whole model before unlearning, frozen, in evaluation mode (`Rows.reference`, `Rows.reference_hidden`); a KL retain loss
    gets it without this flag. ``second_answers``: `Method.second_answers` returns texts for each forget row, and each step
    draws one of them (`Rows.second`).
    """

    reference_log_probs: bool = False
    reference_model: bool = False
    second_answers: bool = False


Mean = Literal["rows", "tokens"]


@dataclass(frozen=True)
class TokenCounts:
    """The numbers of answer tokens of some rows, as far as a loss counts them."""

    lengths: tuple[int, ...]

    def total(self, mean: Mean, without_first: int = 0) -> int:
        """The number of rows, or of tokens, where each row leaves out its first ``without_first`` answer tokens."""
        if mean == "rows":
            return len(self.lengths)
        return sum(max(0, length - without_first) for length in self.lengths)


class Frozen:
    """The model before unlearning, whole: its passes over batches, without a gradient."""

    def __init__(self, model: PreTrainedModel):
        self.model = model

    def forward(self, batch: TokenBatch) -> Forward:
        """The pass of the model over a batch."""
        import torch

        with torch.no_grad():
            return forward(self.model, batch)

    def hidden(self, batch: TokenBatch, block: int) -> torch.Tensor:
        """(B, T, D) the output of one block."""
        import torch

        with torch.no_grad():
            return block_output(self.model, batch, block)


class Values:
    """Logits, or states of one block, of the model before unlearning on the answers of known examples, in CPU memory."""

    def __init__(
        self,
        model: PreTrainedModel,
        padding: int,
        block: int | None,
        groups: Iterable[Sequence[Example]],
    ):
        import torch

        # The row's tokens -> (answer tokens, V or D).
        self.by_row: dict[tuple[int, ...], torch.Tensor] = {}
        for group in groups:
            batch = collate(group, padding, model.device)
            with torch.no_grad():
                if block is None:
                    values = model(input_ids=batch.ids, attention_mask=batch.mask).logits[:, :-1]
                    on_answer = batch.labels[:, 1:] != IGNORED
                else:
                    values = block_output(model, batch, block)
                    on_answer = batch.labels != IGNORED
            for example, of_row, places in zip(group, values, on_answer, strict=True):
                self.by_row[example.prompt + example.answer] = of_row[places].cpu()

    def forward(self, batch: TokenBatch) -> Forward:
        """The pass over a batch of known rows, from their logits."""
        return from_logits(self._spread(batch, batch.labels[:, 1:] != IGNORED), batch)

    def hidden(self, batch: TokenBatch, block: int) -> torch.Tensor:
        """(B, T, D) the states of a batch of known rows, 0 outside the answers."""
        return self._spread(batch, batch.labels != IGNORED)

    def _spread(self, batch: TokenBatch, on_answer: torch.Tensor) -> torch.Tensor:
        import torch

        rows = []
        for ids, mask in zip(batch.ids, batch.mask, strict=True):
            rows.append(self.by_row[tuple(ids[mask.bool()].tolist())])
        shape = (*on_answer.shape, rows[0].shape[-1])
        spread = torch.zeros(shape, dtype=rows[0].dtype, device=batch.ids.device)
        for target, places, values in zip(spread, on_answer, rows, strict=True):
            target[places] = values.to(spread.device)
        return spread


class StepRows:
    """Rows of one step; each pass is computed at its first use. ``batch`` holds the encoded rows. The passes of the model
    ``before`` unlearning, ``reference_log_probs`` (B,) and ``second``, the same questions with the drawn second answers, are
    there if `Needs` requests them. ``whole`` has the counts of all rows of the step, if these rows are a part of them."""

    def __init__(
        self,
        model: PreTrainedModel,
        batch: TokenBatch,
        before: Frozen | Values | None = None,
        reference_log_probs: torch.Tensor | None = None,
        second: StepRows | None = None,
        whole: TokenCounts | None = None,
    ):
        self.model = model
        self.batch = batch
        self.counts = TokenCounts(tuple((batch.labels[:, 1:] != IGNORED).sum(-1).tolist()))
        self.whole = whole or self.counts
        self._model_before = before
        self._second = second
        self._reference_log_probs = reference_log_probs
        self._hidden: dict[int, torch.Tensor] = {}

    @cached_property
    def forward(self) -> Forward:
        """The model's pass, with a gradient: logits, labels, log-probabilities, NLL, entropy."""
        return forward(self.model, self.batch)

    @cached_property
    def reference(self) -> Forward:
        """The pass of the model before unlearning, without a gradient."""
        return self._before.forward(self.batch)

    def share(self, mean: Mean) -> float:
        """The weight of these rows in a mean over the step's rows or answer tokens: the parts' means add up to the step's."""
        return self.counts.total(mean) / max(1, self.whole.total(mean))

    @property
    def reference_log_probs(self) -> torch.Tensor:
        """(B,) S_ref: the answers' summed log-probabilities before unlearning."""
        if self._reference_log_probs is None:
            return self.reference.log_probs
        return self._reference_log_probs

    @property
    def second(self) -> StepRows:
        """The questions of these rows, each with a second answer."""
        if self._second is None:
            raise LookupError("no second answers: the method's `needs` must request them")
        return self._second

    @property
    def blocks(self) -> int:
        """The number of the model's transformer blocks."""
        return number_of_blocks(self.model, self.batch)

    def hidden(self, block: int) -> torch.Tensor:
        """(B, T, D) output of transformer block ``block``, counted from 0, at each token, with a gradient."""
        if block not in self._hidden:
            self._hidden[block] = block_output(self.model, self.batch, block)
        return self._hidden[block]

    def reference_hidden(self, block: int) -> torch.Tensor:
        """(B, T, D) output of the same block in the model before unlearning, without a gradient."""
        return self._before.hidden(self.batch, block)

    @property
    def on_answer(self) -> torch.Tensor:
        """(B, T) whether a token belongs to the answer; `Forward.labels` are shifted by one position."""
        return self.batch.labels != IGNORED

    @property
    def _before(self) -> Frozen | Values:
        if self._model_before is None:
            raise LookupError("no reference model: the method's `needs` must request one")
        return self._model_before


@dataclass(frozen=True)
class Done:
    """The position of a step in the run: its number from 0, the number of steps, the epoch."""

    number: int
    steps: int
    epoch: int


@dataclass(frozen=True)
class Step(Done):
    """One step, or a part of one, with its forget rows and, if any term needs them, its retain rows."""

    forget: StepRows
    retain: StepRows | None


@dataclass(frozen=True)
class Before:
    """The model before unlearning, with its encoder and a seed, for a method whose second answers that model writes."""

    model: PreTrainedModel
    encoder: Encoder
    seed: int


@dataclass(frozen=True)
class UnlearningRun:
    """The state before the first step: the model, the number of steps, and a generator for the method's own draws."""

    model: PreTrainedModel
    steps: int
    generator: np.random.Generator


class Method(WithParams[P]):
    """An unlearning method; the loop creates one instance per run, so attributes are state between steps.

    A module of `lethe.unlearning.methods` holds one class ``Method``, derived from this class with its own parameters::

        class Params(MethodParams):
            beta: Positive

        class Method(protocol.Method[Params], params=Params):
            needs = Needs(reference_log_probs=True)

            def forget_loss(self, rows): ...

    Parameters
    ----------
    params
        The method's entry of params.yaml, checked by ``Params``.
    """

    Params: ClassVar[type[MethodParams]] = MethodParams
    needs: ClassVar[Needs] = Needs()
    # Whether F and R are means over rows or tokens: a step taken in parts weighs each part by its share.
    forget_mean: ClassVar[Mean] = "rows"
    retain_mean: ClassVar[Mean] = "tokens"

    def second_answers(self, row: Row) -> Sequence[str]:
        """The second answers to a row of the dataset, at least one; called if ``needs`` requests them."""
        raise NotImplementedError(
            f"{type(self).__module__} requests second answers but does not define them"
        )

    def all_second_answers(self, rows: Sequence[Row], before: Before) -> list[Sequence[str]]:
        """The second answers to all rows; override for answers that the model before unlearning writes."""
        return [self.second_answers(row) for row in rows]

    def prepare(self, run: UnlearningRun) -> None:
        """Called before the first step."""

    @property
    def uses_retain(self) -> bool:
        """Whether each step needs retain rows for R; the entropy terms may request them independently."""
        return self.params.retain_weight > 0

    @property
    def retain_weight(self) -> float:
        """The weight w of the retain term at this step."""
        return self.params.retain_weight

    def forget_share(self, rows: StepRows) -> float:
        """The weight of ``rows`` in the step's F; 1 if the step is not divided into parts."""
        return rows.share(self.forget_mean)

    def forget_loss(self, rows: StepRows) -> torch.Tensor:
        """F, a scalar to minimise."""
        raise NotImplementedError(
            f"{type(self).__module__} does not define the method `forget_loss`"
        )

    def retain_loss(self, rows: StepRows) -> torch.Tensor:
        """R: the token mean of the retain rows' NLL, or of KL(reference || model), according to ``retain_loss``."""
        if self.params.retain_loss == "kl":
            return kl_from_reference(rows)
        return rows.forward.nll

    def loss(self, step: Step) -> dict[str, torch.Tensor]:
        """Named scalars for the history; "loss" is minimised. Prefer overriding `forget_loss`."""
        values = {"forget_loss": self.forget_loss(step.forget) * self.forget_share(step.forget)}
        total = self.params.gamma * values["forget_loss"]
        if step.retain is not None:  # also at weight 0, for the history
            share = step.retain.share(self.retain_mean)
            values["retain_loss"] = self.retain_loss(step.retain) * share
            total = total + self.retain_weight * values["retain_loss"]
        return {"loss": total, **values}

    def state(self) -> dict[str, object]:
        """The attributes that change between steps, for a run that resumes: tensors and plain values."""
        return {name: value for name, value in vars(self).items() if name != "params"}

    def restore(self, state: Mapping[str, object]) -> None:
        """Restore what `state` returned."""
        vars(self).update(state)

    def after_step(self, step: Done, values: Mapping[str, float]) -> None:
        """Called after each update of the weights; ``values`` are the scalars of `loss`, as numbers."""

    def reference_block(self, model: PreTrainedModel) -> int | None:
        """The block of the model before unlearning whose states the method reads; None if it reads logits."""
        return None

    def after_epoch(self, epoch: int, retain: Iterable[StepRows]) -> None:
        """Called after each epoch; ``retain`` has all retain rows in batches, in evaluation mode, without a gradient."""


def kl_from_reference(rows: StepRows) -> torch.Tensor:
    """KL(reference || model): the token mean over answer positions of sum_v ref_v (ln ref_v - ln cur_v)."""
    current = rows.forward.logits.float().log_softmax(-1)
    reference = rows.reference.logits.float().log_softmax(-1)
    divergence = (reference.exp() * (reference - current)).sum(-1)
    return token_mean(divergence, answered(rows.forward))


def answered(forward: Forward) -> torch.Tensor:
    """(B, T-1) whether a position predicts an answer token; prompt and padding are excluded."""
    return forward.labels != IGNORED


def token_mean(values: torch.Tensor, counted: torch.Tensor) -> torch.Tensor:
    """The mean of ``values`` (B, T-1) over ``counted``; 0 with a gradient of 0 where none counts. Others may be infinite."""
    picked = values[counted]
    return picked.sum() / max(1, picked.numel())


def cross_entropy(target: torch.Tensor, forward: Forward) -> torch.Tensor:
    """(B, T-1) -sum_v q_v log softmax(z)_v of each position, for target logits whose softmax is q, without a gradient."""
    return -(target.detach().softmax(-1) * forward.logits.float().log_softmax(-1)).sum(-1)


def preference(margins: torch.Tensor, beta: float) -> torch.Tensor:
    """-(2/beta) log sigmoid(beta m), the mean over rows, for one margin m per row; plain DPO has no factor 2/beta. A stable
    routine takes the logarithm: the naive one of minus some hundreds is minus infinity in float32."""
    from torch.nn.functional import logsigmoid

    return -(2 / beta) * logsigmoid(beta * margins).mean()


def weighted_ascent(weights: torch.Tensor, forward: Forward) -> torch.Tensor:
    """Minus the token mean of w NLL; the weights (B, T-1) carry no gradient."""
    return token_mean(weights.detach() * forward.token_log_probs, answered(forward))
