"""Stage `unlearn@METHOD`: make the base model forget the forget set."""

import importlib
from pathlib import Path

from lethe.config import Params
from lethe.config.schema import Along, MethodParams, UnlearnRecipe
from lethe.errors import plural
from lethe.io.artifacts import read_split
from lethe.models import checkpoints
from lethe.models.checkpoints import adapted
from lethe.models.encoding import Encoder
from lethe.models.training import Team, in_processes
from lethe.unlearning import ALONG
from lethe.unlearning.loop import Watch, Watching, second_answers, unlearn
from lethe.unlearning.protocol import Before
from stages import entry


def run(settings: Params, root: Path, name: str) -> None:
    """Unlearn by one entry of ``unlearn.methods``; write ``root/models/name``."""
    recipe = settings.unlearn.recipe
    method = settings.unlearn.methods[name]
    prompt = settings.train.recipe.prompt
    if not in_processes(recipe.compute, "stages.unlearn", name):
        forget(name, recipe, method, prompt, root, settings.along)


def forget(
    name: str,
    recipe: UnlearnRecipe,
    method: MethodParams,
    prompt: str,
    root: Path,
    along: Along | None = None,
) -> None:
    """Unlearn in this process, one of several under distributed training.

    Parameters
    ----------
    prompt : The prompt of the questions.
    along : How points along unlearning are measured; none are without it.
    """
    import torch

    seed = recipe.seed if method.seed is None else method.seed
    checkpoints.prepare_torch()
    torch.manual_seed(seed)
    # The weights and the optimiser stay float32, whatever the format of the passes.
    model, tokenizer = checkpoints.load(recipe.start_from, "float32")
    encoder = Encoder(tokenizer, prompt)
    padding = tokenizer.pad_token_id or 0
    forget_rows = read_split("forget", root / "dataset")
    retain_rows = read_split("retain", root / "dataset")
    learned = [encoder.example(row) for row in forget_rows]
    retain = [encoder.example(row) for row in retain_rows]
    second = second_answers(method, forget_rows, Before(model, encoder, seed))
    model = adapted(model, recipe.compute.lora, seed)
    more: dict[str, object] = {}
    watches: list[Watching] = []
    if recipe.watch:
        watched = {"forget": learned[: recipe.watch], "retain": retain[: recipe.watch]}
        watch = Watch(watched, padding)
        more["epochs"] = watch.records
        watches.append(watch)
    trajectory = None
    if along is not None:
        measuring = importlib.import_module(ALONG)
        trajectory = measuring.Trajectory(
            name, along, recipe.measure_every, method.epochs, tokenizer, root / "dataset"
        )
        watches.append(trajectory)
    history = unlearn(
        model,
        learned,
        retain,
        recipe,
        method,
        padding,
        f"unlearn {name}",
        second,
        watches,
    )
    if Team().rank:
        return
    if trajectory is not None:
        more["trajectory"] = trajectory.as_json()
    checkpoints.save_trained(
        root,
        name,
        model,
        tokenizer,
        history,
        more,
    )
    print(f"{name}: {plural(len(history), 'step')}, last loss {history[-1]['loss']:.4f}")


main = entry(run, __name__)
