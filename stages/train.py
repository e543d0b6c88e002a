"""Stage `train@NAME`: the base model on everything, or Retrain on all but the forget set."""

from pathlib import Path

from lethe.config import Params
from lethe.config.schema import TrainRecipe
from lethe.errors import plural
from lethe.io.artifacts import Row, read_split
from lethe.models import checkpoints
from lethe.models.training import ROWS, SHARED, Team, in_processes, learn, recipe_of
from stages import entry


def run(settings: Params, root: Path, name: str) -> None:
    """Train one entry of ``train.models``; write ``root/models/name``."""
    recipe = recipe_of(settings.train, name)
    if not in_processes(recipe.compute, "stages.train", name):
        rows = settings.train.models[name].rows
        train(name, recipe, rows, root, settings.secrets_are_drawn)


def train(
    name: str,
    recipe: TrainRecipe,
    rows_of: str,
    root: Path,
    secrets_are_drawn: bool = False,
) -> None:
    """Train in this process, one of several under distributed training.

    ``rows_of`` names the splits that the model learns (`ROWS`). With ``secrets_are_drawn`` the tokenizer never reads the
    forget rows.
    """
    dataset = root / "dataset"
    checkpoints.prepare_torch()
    knowledge = [split for split in recipe.knowledge if (dataset / f"{split}.jsonl").is_file()]
    learned = ROWS[rows_of]
    # Models that learn the same questions share one tokenizer.
    of_tokenizer = SHARED if set(learned) <= set(SHARED) else learned
    if secrets_are_drawn:
        # Merges learned from the forget rows would tell the draws to every model, Retrain among them.
        of_tokenizer = tuple(split for split in of_tokenizer if split != "forget")
    everything = _rows(dataset, *of_tokenizer, *knowledge)
    rows = _rows(dataset, *learned, *knowledge)
    model, tokenizer, history = learn(rows, everything, recipe, recipe.seed, f"train {name}")
    if Team().rank:
        return
    checkpoints.save_trained(root, name, model, tokenizer, history)
    print(
        f"{name}: {plural(len(rows), 'row')}, {plural(len(history), 'step')}, last loss {history[-1]['loss']:.4f}"
    )


def _rows(dataset: Path, *splits: str) -> list[Row]:
    rows: list[Row] = []
    for split in splits:
        rows += read_split(split, dataset)
    return rows


main = entry(run, __name__)
