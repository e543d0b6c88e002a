"""Stage `unlearn@METHOD`: make the base model forget the forget set."""

from pathlib import Path

from lethe.config import Params
from lethe.config.schema import MethodParams, UnlearnRecipe
from lethe.errors import plural
from lethe.io.artifacts import read_split
from lethe.models import checkpoints
from lethe.models.checkpoints import adapted
from lethe.models.encoding import Encoder
from lethe.models.training import Team, in_processes
from lethe.unlearning.loop import Watch, second_answers, unlearn
from lethe.unlearning.protocol import Before
from stages import entry


def run(settings: Params, root: Path, name: str) -> None:
    """Unlearn by one entry of ``unlearn.methods``; write ``root/models/name``."""
    recipe = settings.unlearn.recipe
    method = settings.unlearn.methods[name]
    if not in_processes(recipe.compute, "stages.unlearn", name):
        forget(name, recipe, method, settings.train.recipe.prompt, root)


def forget(
    name: str,
    recipe: UnlearnRecipe,
    method: MethodParams,
    prompt: str,
    root: Path,
) -> None:
    """Unlearn in this process, one of several under distributed training; ``prompt`` is that of the questions."""
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
    watch = None
    if recipe.watch:
        watched = {"forget": learned[: recipe.watch], "retain": retain[: recipe.watch]}
        watch = Watch(watched, padding)
    history = unlearn(
        model,
        learned,
        retain,
        recipe,
        method,
        padding,
        f"unlearn {name}",
        second,
        watch,
    )
    if Team().rank:
        return
    records = watch.records if watch else None
    checkpoints.save_trained(
        root,
        name,
        model,
        tokenizer,
        history,
        records,
    )
    print(f"{name}: {plural(len(history), 'step')}, last loss {history[-1]['loss']:.4f}")


main = entry(run, __name__)
