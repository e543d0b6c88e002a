"""The processes that train one model together, connected by accelerate: each takes some parts of every step.

Every process holds the whole model and draws the same rows. The gradients and the losses of a step are summed over the
processes, so every process takes the same optimiser step, and each part has the same weight as in a single process.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from lethe.errors import LetheError

if TYPE_CHECKING:
    import torch
    from accelerate import Accelerator

    from lethe.config.schema import Compute

T = TypeVar("T")


class Team:
    """This process among ``size`` processes; a single process has rank 0 and does not communicate."""

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

        has = torch.tensor([float(one.grad is not None) for one in parameters], device=self.accelerator.device)
        for parameter, count in zip(parameters, self._summed(has).tolist(), strict=True):
            if count:
                grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
                parameter.grad = self._summed(grad)

    def sum_values(self, values: Mapping[str, float]) -> dict[str, float]:
        """Sum named numbers over the processes; a process may lack some."""
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
    """Run ``python -m module name`` in several processes, each with the GPU of its number, and wait; False if this
    process does the work."""
    import torch

    if Team.started():
        if torch.cuda.is_available():
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        return False
    if compute.processes == 1:
        return False
    gpus = torch.cuda.device_count()
    if 0 < gpus < compute.processes:
        raise LetheError(f"compute.processes is {compute.processes}, but this machine has {gpus} GPUs.")
    # `accelerate launch` starts the same command, but asks questions and reads a file of settings.
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    options = ["--nproc_per_node", str(compute.processes)]
    ended = subprocess.run([*launcher, *options, "--module", module, name], check=False)
    if ended.returncode:
        raise LetheError(f"{module} {name}: one of the {compute.processes} processes failed.")
    return True
