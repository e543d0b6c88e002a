"""The state of a training run on disk, so that a killed run resumes and gives the same bytes as an uninterrupted run."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lethe.io.atomic import atomic_file

if TYPE_CHECKING:
    import torch

SCRATCH = Path(".lethe/scratch/training")
STATE = "state.pt"  # while its digest is not known; a finished state has its digest as its name


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
    """The last saved state of one run."""

    def __init__(self, folder: Path, every: int):
        self.folder, self.every = folder, every

    def due(self, step: int) -> bool:
        """Whether to save the state after step ``step``, counted from 0."""
        return (step + 1) % self.every == 0

    def save(self, state: Saved) -> None:
        """Write the state atomically, then remove the one before."""
        import torch

        self.folder.mkdir(parents=True, exist_ok=True)
        before = self._states()
        with atomic_file(self.folder / STATE) as temporary:
            torch.save(vars(state), temporary)
        place = self.folder / f"{_digest(self.folder / STATE)}.pt"
        os.replace(self.folder / STATE, place)
        for path in before:
            if path != place:
                path.unlink(missing_ok=True)

    def load(self, device: torch.device) -> Saved | None:
        """The last state; None before the first, and where the file is damaged: the run then begins again.

        Only tensors and plain values are read, never code.
        """
        import torch

        whole = [path for path in self._states() if path.stem == _digest(path)]
        if not whole:
            return None
        # A kill between the two steps of `save` leaves two states.
        states = [torch.load(path, map_location=device, weights_only=True) for path in whole]
        state = max(states, key=lambda one: one["step"])
        state["torch"] = [one.cpu() for one in state["torch"]]
        return Saved(**state)

    def clear(self) -> None:
        """Remove the state of a finished run."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _states(self) -> list[Path]:
        return sorted(path for path in self.folder.glob("*.pt") if path.name != STATE)


def _digest(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def generator_states() -> list[torch.Tensor]:
    """The states of torch's own generators: the CPU's, then each GPU's."""
    import torch

    return [torch.get_rng_state(), *torch.cuda.get_rng_state_all()]


def restore_generators(states: list[torch.Tensor]) -> None:
    """Restore what `generator_states` returned."""
    import torch

    torch.set_rng_state(states[0])
    if len(states) > 1:
        torch.cuda.set_rng_state_all(states[1:])
