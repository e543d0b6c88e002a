"""Stage `train@NAME`: the base model on everything, or Retrain on all but the forget set."""

from pathlib import Path

from lethe.config import Params
from lethe.config.schema import TrainRecipe
from lethe.errors import plural
from lethe.io.artifacts import read_split
from lethe.models import checkpoints
from lethe.models.training import ROWS, SHARED, Team, in_processes, learn, recipe_of
from stages import entry


def run(settings: Params, root: Path, name: str) -> None:
    recipe = recipe_of(settings.train, name)
    if not in_processes(recipe.compute, "stages.train", name):
        train(name, recipe, settings.train.models[name].rows, root)


def train(name: str, recipe: TrainRecipe, rows_of: str, root: Path) -> None:
    dataset = root / "dataset"
    checkpoints.prepare_torch()
    knowledge = [split for split in recipe.knowledge if (dataset / f"{split}.jsonl").is_file()]
    own = ROWS[rows_of]
    # Models that learn the same questions share one tokenizer.
    everything = [
        row
        for split in (*(SHARED if set(own) <= set(SHARED) else own), *knowledge)
        for row in read_split(split, dataset)
    ]
    rows = [row for split in (*own, *knowledge) for row in read_split(split, dataset)]
    model, tokenizer, history = learn(rows, everything, recipe, recipe.seed, f"train {name}")
    if Team().rank:
        return
    checkpoints.save_trained(root, name, model, tokenizer, history)
    print(
        f"{name}: {plural(len(rows), 'row')}, {plural(len(history), 'step')}, last loss {history[-1]['loss']:.4f}"
    )


main = entry(run, __name__)
