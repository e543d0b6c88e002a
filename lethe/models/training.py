"""The training loop that `train` and `unlearn` share."""

from __future__ import annotations

import contextlib
import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

import numpy as np

from lethe.io.cache import cache_key, versions
from lethe.models.checkpoints import default_device
from lethe.models.divergence import Losses, Taken
from lethe.models.resuming import Resumable, Saved, generator_states, restore_generators
from lethe.models.team import Team
from lethe.progress import progress

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

    from lethe.config.schema import Compute, TrainRecipe, UnlearnRecipe


Entry = TypeVar("Entry")  # what a step is computed from
StepRecord = dict[
    str, float
]  # step, epoch and lr (whole numbers the first two), then the method's scalars by name


def schedule(step: int, steps: int, warmup: float) -> float:
    """The factor on the learning rate: linear warm-up, then a cosine to zero."""
    rising = round(warmup * steps)
    if step < rising:
        return (step + 1) / rising
    return 0.5 * (1 + math.cos(math.pi * (step - rising) / max(1, steps - rising)))


def batches(rows: int, size: int, epochs: int, rng: np.random.Generator) -> Iterator[tuple[int, np.ndarray]]:
    """(epoch, row numbers) of every step: each epoch visits every row once, in a new order."""
    for epoch in range(epochs):
        order = rng.permutation(rows)
        for start in range(0, rows, size):
            yield epoch, order[start : start + size]


class Own(Protocol):
    """The state of a loss between steps, for a run that resumes."""

    def state(self) -> dict[str, object]:
        """Plain values and tensors."""

    def restore(self, state: Mapping[str, object]) -> None:
        """Restore what `state` returned."""


def optimise(
    model: PreTrainedModel,
    steps: Sequence[tuple[int, Entry]],
    loss: Callable[[int, Entry], Iterable[dict[str, torch.Tensor]]],
    recipe: TrainRecipe | UnlearnRecipe,
    lr: float,
    label: str,
    after: Callable[[int, dict[str, float]], None] | None = None,
    resumable: Resumable | None = None,
    own: Own | None = None,
) -> list[StepRecord]:
    """Take one AdamW step for each entry of ``steps`` and return the history, one entry per step."""
    import torch

    team, (first, second) = Team(), recipe.betas
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=lr, betas=(first, second), weight_decay=recipe.weight_decay, fused=True
    )
    rate = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: schedule(step, len(steps), recipe.warmup))
    trained = {name: one for name, one in model.named_parameters() if one.requires_grad}
    history: list[StepRecord] = []
    saved = resumable.load(model.device) if resumable else None
    if saved is not None:
        with torch.no_grad():
            for name, weights in saved.weights.items():
                trained[name].copy_(weights)
        optimizer.load_state_dict(dict(saved.optimizer))
        rate.load_state_dict(dict(saved.rate))
        history = saved.history
        restore_generators(saved.torch)
        if own is not None:
            own.restore(saved.own)
    before = Taken(len(history) - 1, history[-1]["loss"]) if history else None
    losses = Losses(label, len(steps), lr, before)
    model.train()
    with _little_memory(model, recipe.compute):
        for step in progress(range(len(history), len(steps)), label, unit="steps"):
            epoch, entry = steps[step]
            optimizer.zero_grad(set_to_none=True)
            record = team.sum_values(_backward(loss(step, entry), model, recipe.compute))
            losses.add(step, record["loss"])
            team.sum_gradients(list(trained.values()))
            torch.nn.utils.clip_grad_norm_(model.parameters(), recipe.clip)
            optimizer.step()
            history.append({"step": step, "epoch": epoch, "lr": float(rate.get_last_lr()[0]), **record})
            rate.step()
            if after is not None:
                after(step, record)
            due = resumable if resumable and resumable.due(step) else None
            if due or step == len(steps) - 1:
                losses.check(trained.values())  # a run that resumed from such weights could only fail
            if due and team.rank == 0:
                state = {name: one.detach() for name, one in trained.items()}
                own_state = own.state() if own else {}
                due.save(
                    Saved(
                        step,
                        state,
                        optimizer.state_dict(),
                        rate.state_dict(),
                        history,
                        generator_states(),
                        own_state,
                    )
                )
    model.eval()
    return history


def precision(model: PreTrainedModel, compute: Compute) -> contextlib.AbstractContextManager:
    """The number format of a pass: bfloat16 where the recipe asks for it, with weights and optimiser in float32."""
    import torch

    if compute.precision == "float32":
        return contextlib.nullcontext()
    return torch.autocast(model.device.type, torch.bfloat16)


def resumable(
    folder: Path,
    model: PreTrainedModel,
    compute: Compute,
    modules: Sequence[str],
    *settings: object,
    **facts: object,
) -> Resumable | None:
    """Where a run saves its state; None if it saves none."""
    if compute.checkpoint_every is None:
        return None
    import torch

    start = hashlib.blake2b(digest_size=16)
    for name, weights in model.state_dict().items():
        start.update(name.encode() + weights.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    libraries = versions("torch", "transformers", "peft")
    facts |= {"start": start.hexdigest(), "libraries": libraries, "device": default_device()}
    key = cache_key(*modules, settings=list(settings), **facts)
    return Resumable(folder / key, compute.checkpoint_every)


def _backward(
    parts: Iterable[dict[str, torch.Tensor]], model: PreTrainedModel, compute: Compute
) -> dict[str, float]:
    """Add up the gradients of the parts of one step; return the sums of their scalars."""
    totals: dict[str, float] = {}
    remaining = iter(parts)
    while True:
        with precision(model, compute):
            values = next(remaining, None)
        if values is None:
            return totals
        values["loss"].backward()
        for name, value in values.items():
            totals[name] = totals.get(name, 0.0) + float(value.detach())


@contextlib.contextmanager
def _little_memory(model: PreTrainedModel, compute: Compute) -> Iterator[None]:
    """Use gradient checkpointing during the run if the recipe asks for it."""
    if not compute.gradient_checkpointing:
        yield
        return
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    try:
        yield
    finally:
        model.gradient_checkpointing_disable()
