"""Stage `train@NAME`: the base model on everything, or Retrain on all but the forget set."""

from __future__ import annotations

from pathlib import Path

from lethe import config
from lethe.config import Params
from lethe.errors import plural
from lethe.io.artifacts import read_split
from lethe.process import run_stage


def run(settings: Params, root: Path, name: str) -> None:
    """Train one entry of ``train.models`` on ``root/dataset``; write ``root/models/name``."""
    from lethe.models import checkpoints
    from lethe.models.launching import in_processes
    from lethe.models.learning import ROWS, SHARED, learn
    from lethe.models.team import Team

    recipe, dataset = settings.train.recipe_of(name), root / "dataset"
    if in_processes(recipe.compute, "stages.train", name):
        return
    checkpoints.prepare_torch()
    knowledge = [split for split in recipe.knowledge if (dataset / f"{split}.jsonl").is_file()]
    own = ROWS[settings.train.models[name].rows]
    # Models that learn the same questions share one tokenizer.
    everything = [
        row
        for split in (*(SHARED if set(own) <= set(SHARED) else own), *knowledge)
        for row in read_split(split, dataset)
    ]
    splits = (*own, *knowledge)
    rows = [row for split in splits for row in read_split(split, dataset)]
    model, tokenizer, history = learn(rows, everything, recipe, recipe.seed, f"train {name}")
    if Team().rank:
        return
    checkpoints.save_trained(root, name, model, tokenizer, history)
    print(
        f"{name}: {plural(len(rows), 'row')}, {plural(len(history), 'step')}, last loss {history[-1]['loss']:.4f}"
    )


def main(name: str) -> None:
    """Run the stage with params.yaml, as DVC does."""
    run(config.load(), Path("data"), name)


if __name__ == "__main__":
    run_stage(main)
