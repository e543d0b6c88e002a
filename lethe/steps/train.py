"""Stage `train@NAME`: the base model on everything, or Retrain on all but the forget set."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from lethe.errors import plural
from lethe.io.artifacts import read_split

if TYPE_CHECKING:
    from lethe.config.schema import TrainRecipe


def run(name: str, recipe: TrainRecipe, rows_of: str, root: Path = Path("data")) -> None:
    """Train a model on the splits that ``rows_of`` names and on the recipe's knowledge; write ``root/models/name``."""
    from lethe.models import checkpoints
    from lethe.models.team import Team
    from lethe.models.training import ROWS, SHARED, learn

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
