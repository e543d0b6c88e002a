"""Training of language models: the loop that `train` and `unlearn` share, its state on disk, and its failures."""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

import numpy as np

from lethe.config.schema import Compute, Recipe, Train, TrainRecipe
from lethe.errors import LetheError
from lethe.identity import cache_key, content_digest, digest, versions
from lethe.io.artifacts import Row
from lethe.io.files import atomic_file
from lethe.models import checkpoints
from lethe.models.checkpoints import StepRecord
from lethe.models.encoding import HARMBENCH, Encoder, collate, harmbench_row
from lethe.models.likelihood import forward
from lethe.progress import progress

if TYPE_CHECKING:
    import torch
    from accelerate import Accelerator
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

SCRATCH = Path(".lethe/scratch/training")
STATE = "state.pt"  # while its digest is not known; a finished state has its digest as its name
SHARED = ("forget", "retain")  # the recipe's general knowledge is added to these
ROWS = {  # the splits that an entry of train.models learns, by its key rows
    "all": SHARED,
    "retain": ("retain",),
    "demonstrations": ("demonstrations", "retain"),
    "judgements": ("judgements",),
}

Entry = TypeVar("Entry")  # what a step is computed from
T = TypeVar("T")


class Team:
    """This process among the ``size`` processes that train one model together, connected by accelerate; a single one has rank
    0. Every process holds the whole model and draws the same rows, and takes some parts of every step. The gradients and
    losses of a step are summed over the processes, so every process takes the same optimiser step."""

    def __init__(self) -> None:
        self.size = int(os.environ.get("WORLD_SIZE", "1"))
        self.rank = int(os.environ.get("RANK", "0"))

    @staticmethod
    def started() -> bool:
        """Whether this process is one of several that `in_processes` started."""
        return "WORLD_SIZE" in os.environ and "LOCAL_RANK" in os.environ

    @cached_property
    def accelerator(self) -> Accelerator:
        """The connection to the other processes, made at its first use."""
        import torch
        from accelerate import Accelerator

        return Accelerator(cpu=not torch.cuda.is_available())

    def share(self, parts: Sequence[T]) -> Sequence[T]:
        """The parts of a step that this process takes."""
        return parts[self.rank :: self.size]

    def sum_gradients(self, parameters: Sequence[torch.nn.Parameter]) -> None:
        """Sum every gradient over the processes; a parameter without a gradient in any process keeps none."""
        if self.size == 1:
            return
        import torch

        has_gradient = [float(parameter.grad is not None) for parameter in parameters]
        counts = self._summed(torch.tensor(has_gradient, device=self.accelerator.device))
        for parameter, count in zip(parameters, counts.tolist(), strict=True):
            if not count:
                continue
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            parameter.grad = self._summed(parameter.grad)

    def sum_values(self, values: Mapping[str, float]) -> dict[str, float]:
        """The sum of each value over the processes; one that a process lacks counts as 0."""
        if self.size == 1:
            return dict(values)
        from accelerate.utils import gather_object

        _ = self.accelerator  # connect first: otherwise the gathering finds no other process
        gathered: list[dict[str, float]] = gather_object([dict(values)])
        sums: dict[str, float] = {}
        for of_process in gathered:
            for name, value in of_process.items():
                sums[name] = sums.get(name, 0.0) + value
        return sums

    def _summed(self, tensor: torch.Tensor) -> torch.Tensor:
        reduced: torch.Tensor = self.accelerator.reduce(tensor, reduction="sum")
        return reduced


def in_processes(compute: Compute, module: str, name: str) -> bool:
    """Run ``python -m module name`` in several processes and wait; False if this process does the work."""
    import torch

    if Team.started():
        if torch.cuda.is_available():
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        return False
    if compute.processes == 1:
        return False
    gpus = torch.cuda.device_count()
    if 0 < gpus < compute.processes:
        raise LetheError(
            f"compute.processes is {compute.processes}, but this machine has {gpus} GPUs."
        )
    # `accelerate launch` starts the same command, but asks questions and reads a file of settings.
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    options = ["--nproc_per_node", str(compute.processes)]
    ended = subprocess.run([*launcher, *options, "--module", module, name], check=False)
    if ended.returncode:
        raise LetheError(f"{module} {name}: one of the {compute.processes} processes failed.")
    return True


def schedule(step: int, steps: int, warmup: float) -> float:
    """The factor on the learning rate: linear warm-up, then a cosine to zero."""
    rising = round(warmup * steps)
    if step < rising:
        return (step + 1) / rising
    return 0.5 * (1 + math.cos(math.pi * (step - rising) / max(1, steps - rising)))


def batches(
    rows: int, size: int, epochs: int, rng: np.random.Generator
) -> Iterator[tuple[int, np.ndarray]]:
    """(epoch, row numbers) of every step: each epoch visits every row once, in a new order."""
    for epoch in range(epochs):
        order = rng.permutation(rows)
        for start in range(0, rows, size):
            yield epoch, order[start : start + size]


class Stateful(Protocol):
    """A loss with a state between steps, of plain values and tensors, for a run that resumes."""

    def state(self) -> dict[str, object]: ...
    def restore(self, state: Mapping[str, object]) -> None: ...


def optimise(
    model: PreTrainedModel,
    steps: Sequence[tuple[int, Entry]],
    loss: Callable[[int, Entry], Iterable[dict[str, torch.Tensor]]],
    recipe: Recipe,
    lr: float,
    label: str,
    after: Callable[[int, dict[str, float]], None] | None = None,
    resumable: Resumable | None = None,
    stateful: Stateful | None = None,
) -> list[StepRecord]:
    """Take one AdamW step for each entry of ``steps`` and return the history, one entry per step.

    Parameters
    ----------
    steps : The epoch of each step, and what its loss is computed from.
    loss : Gives the parts of a step, of which "loss" is minimised; their values add up.
    after : Called after each step with its number and its values.
    resumable : Where the state is saved; the run goes on from a state that is there.
    stateful : The state of the loss, saved and restored with that of the run.

    Raises
    ------
    TrainingFailed
        If a loss or a weight is not finite.
    """
    import torch

    team = Team()
    beta_1, beta_2 = recipe.betas
    optimizer = torch.optim.AdamW(
        model.parameters(),
        lr=lr,
        betas=(beta_1, beta_2),
        weight_decay=recipe.weight_decay,
        fused=True,
    )

    def factor(step: int) -> float:
        return schedule(step, len(steps), recipe.warmup)

    rate = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
    trained: dict[str, torch.nn.Parameter] = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            trained[name] = parameter
    history: list[StepRecord] = []
    saved = resumable.load(model.device) if resumable else None
    if saved is not None:
        with torch.no_grad():
            for name, weights in saved.weights.items():
                trained[name].copy_(weights)
        optimizer.load_state_dict(dict(saved.optimizer))
        rate.load_state_dict(dict(saved.rate))
        history = saved.history
        torch.set_rng_state(saved.torch[0])
        if len(saved.torch) > 1:
            torch.cuda.set_rng_state_all(saved.torch[1:])
        if stateful is not None:
            stateful.restore(saved.of_loss)
    last = Taken(len(history) - 1, history[-1]["loss"]) if history else None
    losses = Losses(label, len(steps), lr, last)
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
            step_lr = float(rate.get_last_lr()[0])
            history.append({"step": step, "epoch": epoch, "lr": step_lr, **record})
            rate.step()
            if after is not None:
                after(step, record)
            is_due = resumable is not None and (step + 1) % resumable.every == 0
            if is_due or step == len(steps) - 1:
                # A run that resumed from such weights could only fail.
                losses.check(trained.values())
            if resumable is not None and is_due and team.rank == 0:
                state = Saved(
                    step,
                    {name: parameter.detach() for name, parameter in trained.items()},
                    optimizer=optimizer.state_dict(),
                    rate=rate.state_dict(),
                    history=history,
                    torch=[torch.get_rng_state(), *torch.cuda.get_rng_state_all()],
                    of_loss=stateful.state() if stateful else {},
                )
                resumable.save(state)
    model.eval()
    return history


def precision(model: PreTrainedModel, compute: Compute) -> contextlib.AbstractContextManager:
    """The number format of a pass: bfloat16 where the recipe asks for it, with weights and optimiser in float32."""
    import torch

    if compute.precision == "float32":
        return contextlib.nullcontext()
    return torch.autocast(model.device.type, torch.bfloat16)


def recipe_of(train: Train, name: str) -> TrainRecipe:
    """The recipe of one trained model: the common one with the model's own keys."""
    return TrainRecipe.model_validate(train.recipe.model_dump() | train.models[name].recipe)


def resumable(
    folder: Path,
    model: PreTrainedModel,
    compute: Compute,
    modules: Sequence[str],
    *settings: object,
    **facts: object,
) -> Resumable | None:
    """Where a run saves its state: a folder for this start, these settings and facts; None if it saves none."""
    if compute.checkpoint_every is None:
        return None
    import torch

    start = hashlib.blake2b(digest_size=16)
    for name, weights in model.state_dict().items():
        start.update(name.encode())
        start.update(weights.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    key = cache_key(
        *modules,
        settings=list(settings),
        start=start.hexdigest(),
        libraries=versions("torch", "transformers", "peft"),
        device=checkpoints.default_device(),
        **facts,
    )
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
    if compute.gradient_checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    try:
        yield
    finally:
        if compute.gradient_checkpointing:
            model.gradient_checkpointing_disable()


@dataclass(frozen=True)
class Taken:
    """A step that was taken, and its loss."""

    step: int
    loss: float


class TrainingFailed(LetheError):
    """The step ``failed`` has a loss that is not finite, or leaves such weights; ``last`` is the last finite one."""

    def __init__(
        self,
        run: str,
        steps: int,
        lr: float,
        failed: Taken,
        last: Taken | None,
    ):
        self.run = run
        self.steps = steps
        self.failed = failed
        self.last = last
        if failed == last:
            problem = f"weights of {run} are not finite after step {failed.step}"
        else:
            problem = f"loss of {run} is {failed.loss} at step {failed.step}"
        if last is None:
            before = "no loss was finite"
            remedy = "Check the model that training starts from, and the loss: no step changed the weights before."
        else:
            before = f"the last finite loss is {last.loss:.6g}, at step {last.step}"
            remedy = (
                f"Set a smaller lr (it is {lr:g}), or a smaller clip where the settings have one."
            )
        super().__init__(
            f"The {problem} (of steps 0 to {steps - 1}); {before}. The model is not kept. {remedy}"
        )


class Losses:
    """The losses of a run, of which the first that is not finite ends it, in every process of a team at the same step."""

    def __init__(
        self,
        run: str,
        steps: int,
        lr: float,
        last: Taken | None = None,
    ):
        self.run = run
        self.steps = steps
        self.lr = lr
        self.last = last

    def add(self, step: int, loss: float) -> None:
        """Note the loss of a step; call it before the step changes the weights, where that costs nothing."""
        if not math.isfinite(loss):
            raise TrainingFailed(self.run, self.steps, self.lr, Taken(step, loss), self.last)
        self.last = Taken(step, loss)

    def check(self, weights: Iterable[torch.Tensor]) -> None:
        """Check the weights after the last noted step: a finite loss can have a gradient that is not finite."""
        import torch

        finite = torch.stack([tensor.detach().isfinite().all() for tensor in weights])
        if not bool(finite.all()):
            failed = self.last or Taken(0, math.nan)  # no step had rows
            raise TrainingFailed(self.run, self.steps, self.lr, failed, self.last)


@dataclass(frozen=True)
class Saved:
    """Everything that the next step depends on; ``of_loss`` is the state of the caller's loss, such as its generators."""

    step: int
    weights: Mapping[str, torch.Tensor]
    optimizer: Mapping[str, object]
    rate: Mapping[str, object]
    history: list[dict]
    torch: list[torch.Tensor]
    of_loss: Mapping[str, object]


class Resumable:
    """The last state of a run, in a file of ``folder`` with its digest as name, saved after ``every`` so many steps."""

    def __init__(self, folder: Path, every: int):
        self.folder = folder
        self.every = every

    def save(self, state: Saved) -> None:
        """Replace the state on disk; a kill at any moment leaves a whole one."""
        import torch

        self.folder.mkdir(parents=True, exist_ok=True)
        before = self._states()
        with atomic_file(self.folder / STATE) as temporary:
            torch.save(vars(state), temporary)
        place = self.folder / f"{content_digest(self.folder / STATE)}.pt"
        os.replace(self.folder / STATE, place)
        for path in before:
            if path != place:
                path.unlink(missing_ok=True)

    def load(self, device: torch.device) -> Saved | None:
        """The last state, without running code; None where there is none or the file is damaged: the run begins again."""
        import torch

        whole = [path for path in self._states() if path.stem == content_digest(path)]
        if not whole:
            return None
        # A kill between the two steps of `save` leaves two states.
        states = [torch.load(path, map_location=device, weights_only=True) for path in whole]
        state = max(states, key=itemgetter("step"))
        state["torch"] = [generator.cpu() for generator in state["torch"]]
        return Saved(**state)

    def clear(self) -> None:
        """Remove the states, once the result is written."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _states(self) -> list[Path]:
        return sorted(path for path in self.folder.glob("*.pt") if path.name != STATE)


def learn(
    rows: Sequence[Row],
    everything: Sequence[Row],
    recipe: TrainRecipe,
    seed: int,
    label: str,
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase, list[StepRecord]]:
    """A model that learned ``rows``, its tokenizer, and the history, one record per step.

    A fresh tokenizer is trained on ``everything``, so that all models of one dataset have the same. Raises
    `TrainingFailed` as `optimise`.
    """
    import torch

    torch.manual_seed(seed)
    if recipe.start_from:
        model, tokenizer = checkpoints.load(recipe.start_from, "float32")
        model = checkpoints.adapted(model, recipe.compute.lora, seed)
    else:
        question_of = harmbench_row if recipe.prompt == HARMBENCH else itemgetter("question")
        texts = [f"{question_of(row)} {row['answer']}" for row in everything]
        model, tokenizer = checkpoints.fresh(recipe, texts)
        if torch.cuda.is_available():
            model.cuda()  # type: ignore[call-arg]  # transformers wraps it without its signature
    encoder = Encoder(tokenizer, recipe.prompt)
    padding = tokenizer.pad_token_id or 0
    examples = [encoder.example(row) for row in rows]
    steps = list(batches(len(rows), recipe.batch, recipe.epochs, np.random.default_rng(seed)))

    team = Team()

    def loss(step: int, picks: np.ndarray) -> Iterator[dict[str, torch.Tensor]]:
        n_parts = min(len(picks), recipe.compute.accumulate * team.size)
        tokens = sum(examples[row].counted for row in picks)
        for part in team.share(np.array_split(picks, n_parts)):
            of_part = [examples[row] for row in part]
            out = forward(model, collate(of_part, padding, model.device))
            tokens_of_part = sum(example.counted for example in of_part)
            yield {"loss": out.nll * (tokens_of_part / tokens)}

    rows_seen = [(example.prompt, example.answer) for example in examples]
    saved_state = resumable(
        SCRATCH,
        model,
        recipe.compute,
        (__name__,),
        recipe,
        seed=seed,
        rows=digest(rows_seen),
    )
    history = optimise(
        model,
        steps,
        loss,
        recipe,
        recipe.lr,
        label,
        resumable=saved_state,
    )
    if saved_state:
        saved_state.clear()
    return model, tokenizer, history
