"""The state of a training run on disk, so that a killed run resumes and gives the same bytes as an uninterrupted run."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lethe.io.atomic import atomic_file

if TYPE_CHECKING:
    import torch

SCRATCH = Path(".lethe/scratch/training")
STATE = "state.pt"


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
    """The last saved state of one run.

    Parameters
    ----------
    folder
        The folder of the state. Its name is a hash of everything that determines the run.
    every
        The number of steps between two saved states.
    """

    def __init__(self, folder: Path, every: int):
        self.place, self.every = folder / STATE, every

    def due(self, step: int) -> bool:
        """Whether to save the state after step ``step``, counted from 0."""
        return (step + 1) % self.every == 0

    def save(self, state: Saved) -> None:
        """Write the state atomically."""
        import torch

        self.place.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(self.place) as temporary:
            torch.save(vars(state), temporary)

    def load(self, device: torch.device) -> Saved | None:
        """The last state; None before the first. Only tensors and plain values are read, never code."""
        import torch

        if not self.place.is_file():
            return None
        state = torch.load(self.place, map_location=device, weights_only=True)
        state["torch"] = [one.cpu() for one in state["torch"]]
        return Saved(**state)

    def clear(self) -> None:
        """Remove the state of a finished run."""
        shutil.rmtree(self.place.parent, ignore_errors=True)


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
