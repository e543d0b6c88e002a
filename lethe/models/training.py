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
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

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
        return "WORLD_SIZE" in os.environ and "LOCAL_RANK" in os.environ

    @cached_property
    def accelerator(self) -> Accelerator:
        import torch
        from accelerate import Accelerator

        return Accelerator(cpu=not torch.cuda.is_available())

    def share(self, parts: Sequence[T]) -> Sequence[T]:
        return parts[self.rank :: self.size]

    def sum_gradients(self, parameters: Sequence[torch.nn.Parameter]) -> None:
        """Sum every gradient over the processes; a parameter without a gradient in any process keeps none."""
        if self.size == 1:
            return
        import torch

        has = torch.tensor(
            [float(one.grad is not None) for one in parameters], device=self.accelerator.device
        )
        for parameter, count in zip(parameters, self._summed(has).tolist(), strict=True):
            if count:
                grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
                parameter.grad = self._summed(grad)

    def sum_values(self, values: Mapping[str, float]) -> dict[str, float]:
        if self.size == 1:
            return dict(values)
        from accelerate.utils import gather_object

        _ = self.accelerator  # connect first: otherwise the gathering finds no other process
        gathered: list[dict[str, float]] = gather_object([dict(values)])
        names = dict.fromkeys(name for one in gathered for name in one)
        return {name: sum(one.get(name, 0.0) for one in gathered) for name in names}

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


class Own(Protocol):
    """The state of a loss between steps, plain values and tensors, for a run that resumes."""

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
    own: Own | None = None,
) -> list[StepRecord]:
    """Take one AdamW step for each entry of ``steps`` and return the history, one entry per step."""
    import torch

    team, (first, second) = Team(), recipe.betas
    optimizer = torch.optim.AdamW(
        model.parameters(),
        lr=lr,
        betas=(first, second),
        weight_decay=recipe.weight_decay,
        fused=True,
    )
    rate = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: schedule(step, len(steps), recipe.warmup)
    )
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
        torch.set_rng_state(saved.torch[0])
        if len(saved.torch) > 1:
            torch.cuda.set_rng_state_all(saved.torch[1:])
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
            history.append(
                {"step": step, "epoch": epoch, "lr": float(rate.get_last_lr()[0]), **record}
            )
            rate.step()
            if after is not None:
                after(step, record)
            due = resumable if resumable and (step + 1) % resumable.every == 0 else None
            if due or step == len(steps) - 1:
                losses.check(
                    trained.values()
                )  # a run that resumed from such weights could only fail
            if due and team.rank == 0:
                now = {name: one.detach() for name, one in trained.items()}
                states = optimizer.state_dict(), rate.state_dict(), history
                generators = [torch.get_rng_state(), *torch.cuda.get_rng_state_all()]
                due.save(Saved(step, now, *states, generators, own.state() if own else {}))
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
    """Where a run saves its state; None if it saves none."""
    if compute.checkpoint_every is None:
        return None
    import torch

    start = hashlib.blake2b(digest_size=16)
    for name, weights in model.state_dict().items():
        start.update(
            name.encode() + weights.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes()
        )
    libraries = versions("torch", "transformers", "peft")
    facts |= {
        "start": start.hexdigest(),
        "libraries": libraries,
        "device": checkpoints.default_device(),
    }
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
    if compute.gradient_checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    try:
        yield
    finally:
        if compute.gradient_checkpointing:
            model.gradient_checkpointing_disable()


class Taken(NamedTuple):
    step: int
    loss: float


class TrainingFailed(LetheError):
    """The step ``failed`` has a loss that is not finite, or leaves such weights; ``last`` is the last finite one."""

    def __init__(self, run: str, steps: int, lr: float, failed: Taken, last: Taken | None):
        self.run, self.steps, self.failed, self.last = run, steps, failed, last
        if failed == last:
            problem = f"weights of {run} are not finite after step {failed.step}"
        else:
            problem = f"loss of {run} is {failed.loss} at step {failed.step}"
        before = (
            f"the last finite loss is {last.loss:.6g}, at step {last.step}"
            if last
            else "no loss was finite"
        )
        remedy = f"Set a smaller lr (it is {lr:g}), or a smaller clip where the settings have one."
        if last is None:
            remedy = "Check the model that training starts from, and the loss: no step changed the weights before."
        super().__init__(
            f"The {problem} (of steps 0 to {steps - 1}); {before}. The model is not kept. {remedy}"
        )


class Losses:
    """The losses of a run, of which the first that is not finite ends it, in every process of a team at the same step."""

    def __init__(self, run: str, steps: int, lr: float, last: Taken | None = None):
        self.run, self.steps, self.lr, self.last = run, steps, lr, last

    def add(self, step: int, loss: float) -> None:
        """Note the loss of a step; call it before the step changes the weights, where that costs nothing."""
        if not math.isfinite(loss):
            raise TrainingFailed(self.run, self.steps, self.lr, Taken(step, loss), self.last)
        self.last = Taken(step, loss)

    def check(self, weights: Iterable[torch.Tensor]) -> None:
        """Check the weights after the last noted step: a finite loss can have a gradient that is not finite."""
        import torch

        finite = torch.stack([one.detach().isfinite().all() for one in weights])
        if not bool(finite.all()):
            failed = self.last or Taken(0, math.nan)  # no step had rows
            raise TrainingFailed(self.run, self.steps, self.lr, failed, self.last)


@dataclass(frozen=True)
class Saved:
    """Everything that the next step depends on; ``own`` is the state of the caller's loss, such as its generators."""

    step: int
    weights: Mapping[str, torch.Tensor]
    optimizer: Mapping[str, object]
    rate: Mapping[str, object]
    history: list[dict]
    torch: list[torch.Tensor]
    own: Mapping[str, object]


class Resumable:
    def __init__(self, folder: Path, every: int):
        self.folder, self.every = folder, every

    def save(self, state: Saved) -> None:
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
        state = max(states, key=lambda one: one["step"])
        state["torch"] = [one.cpu() for one in state["torch"]]
        return Saved(**state)

    def clear(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def _states(self) -> list[Path]:
        return sorted(path for path in self.folder.glob("*.pt") if path.name != STATE)


def learn(
    rows: Sequence[Row], everything: Sequence[Row], recipe: TrainRecipe, seed: int, label: str
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase, list[StepRecord]]:
    import torch

    torch.manual_seed(seed)
    if recipe.start_from:
        model, tokenizer = checkpoints.load(recipe.start_from, "float32")
        model = checkpoints.adapted(model, recipe.compute.lora, seed)
    else:
        asked = harmbench_row if recipe.prompt == HARMBENCH else itemgetter("question")
        texts = [
            f"{asked(row)} {row['answer']}" for row in everything
        ]  # on which the tokenizer is trained
        model, tokenizer = checkpoints.fresh(recipe, texts)
        if torch.cuda.is_available():
            model.cuda()  # type: ignore[call-arg]  # transformers wraps it without its signature
    encoder, padding = Encoder(tokenizer, recipe.prompt), tokenizer.pad_token_id or 0
    examples = [encoder.example(row) for row in rows]
    steps = list(batches(len(rows), recipe.batch, recipe.epochs, np.random.default_rng(seed)))

    team = Team()

    def loss(step: int, picks: np.ndarray) -> Iterator[dict[str, torch.Tensor]]:
        whole = sum(examples[i].counted for i in picks)
        for part in team.share(
            np.array_split(picks, min(len(picks), recipe.compute.accumulate * team.size))
        ):
            out = forward(model, collate([examples[i] for i in part], padding, model.device))
            yield {"loss": out.nll * (sum(examples[i].counted for i in part) / whole)}

    rows_seen = [(example.prompt, example.answer) for example in examples]
    saved_state = resumable(
        SCRATCH, model, recipe.compute, (__name__,), recipe, seed=seed, rows=digest(rows_seen)
    )
    history = optimise(model, steps, loss, recipe, recipe.lr, label, resumable=saved_state)
    if saved_state:
        saved_state.clear()
    return model, tokenizer, history
