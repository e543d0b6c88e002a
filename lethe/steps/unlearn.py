"""Stage `unlearn@METHOD`: make the base model forget the forget set."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from lethe.errors import plural
from lethe.io.artifacts import read_split

if TYPE_CHECKING:
    from lethe.config.schema import MethodParams, UnlearnRecipe


def run(name: str, recipe: UnlearnRecipe, method: MethodParams, prompt: str, root: Path = Path("data")) -> None:
    """Unlearn the model ``recipe.start_from`` by ``method``; write ``root/models/name``."""
    import torch

    from lethe.models import checkpoints
    from lethe.models.checkpoints import adapted
    from lethe.models.encoding import Encoder
    from lethe.models.team import Team
    from lethe.unlearning.loop import Watch, unlearn
    from lethe.unlearning.protocol import Before
    from lethe.unlearning.second_answers import second_answers

    seed = recipe.seed if method.seed is None else method.seed
    checkpoints.prepare_torch()
    torch.manual_seed(seed)
    # The weights and the optimiser stay float32, whatever the format of the passes.
    model, tokenizer = checkpoints.load(recipe.start_from, "float32")
    encoder, padding = Encoder(tokenizer, prompt), tokenizer.pad_token_id or 0
    rows = [read_split(split, root / "dataset") for split in ("forget", "retain")]
    forget, retain = ([encoder.example(row) for row in split] for split in rows)
    second = second_answers(method, rows[0], Before(model, encoder, seed))
    model = adapted(model, recipe.compute.lora, seed)
    watched = {"forget": forget[: recipe.watch], "retain": retain[: recipe.watch]}
    watch = Watch(watched, padding) if recipe.watch else None
    history = unlearn(model, forget, retain, recipe, method, padding, f"unlearn {name}", second, watch)
    if Team().rank:
        return
    checkpoints.save_trained(root, name, model, tokenizer, history, watch.records if watch else None)
    print(f"{name}: {plural(len(history), 'step')}, last loss {history[-1]['loss']:.4f}")
