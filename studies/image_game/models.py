"""One image model of the game: learned, or unlearned from a learned one, with its logits on the whole data set.

This module imports all code that decides a model. A model's key therefore holds the code of this module, and not the
code of the game's rounds and attacks.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lethe.io.atomic import atomic_folder
from studies.image_game.networks import ResNet, build
from studies.image_game.training import Points, device, learn, logits, points
from studies.image_game.unlearning import Task, defender

if TYPE_CHECKING:
    from lethe.audits.unlearning_game.rounds import Job
    from lethe.data.images import Images
    from studies.image_game.kinds.images import Params

WEIGHTS, LOGITS = "model.safetensors", "logits.npy"


def make(images: Images, settings: Params, job: Job, start: Path | None, place: Path) -> None:
    """Write the model of a job into a folder."""
    import torch
    from safetensors.torch import load_file, save_file

    torch.set_num_threads(1)
    recipe, privacy = settings.learning, settings.privacy

    def learned(data: Points) -> ResNet:
        return learn(data, images.classes, recipe, privacy, job.seed)

    retain = points(images, job.retain, job.labels)
    if job.method is None:
        network = learned(retain)
    else:
        given, entry = None, settings.methods[job.method]
        if start is not None:
            given = build(recipe.network, retain.images.shape[1], images.classes, 0, privacy is not None)
            given.load_state_dict(load_file(start / WEIGHTS))
            given.to(device())
        forget = points(images, job.forget, job.labels)
        network = defender(entry.method).unlearn(Task(given, retain, forget, learned, entry, job.seed))
    with atomic_folder(place) as folder:
        save_file(network.state_dict(), folder / WEIGHTS)
        np.save(folder / LOGITS, logits(network.eval(), images))
