"""Starts the processes that train one model together, connected by accelerate."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

from lethe.errors import LetheError
from lethe.models.team import Team

if TYPE_CHECKING:
    from lethe.config.computing import Compute


def in_processes(compute: Compute, module: str, name: str) -> bool:
    """Run ``python -m module name`` in several processes and wait; False if this process does the work.

    Each process uses the GPU with its own number. Without a GPU the processes share the CPU.
    """
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
