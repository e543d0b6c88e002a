"""Training of one language model on question-answer pairs, for the pipeline and the text game."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from lethe.io.cache import digest
from lethe.models.encoding import Encoder, collate
from lethe.models.published_prompts import HARMBENCH, harmbench_row
from lethe.models.resuming import SCRATCH

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from lethe.config.schema import TrainRecipe
    from lethe.io.artifacts import Row
    from lethe.models.training import StepRecord

SHARED = ("forget", "retain")  # the recipe's general knowledge is added to these
ROWS = {  # the splits that an entry of train.models learns, by its key rows
    "all": SHARED,
    "retain": ("retain",),
    "demonstrations": ("demonstrations", "retain"),
    "judgements": ("judgements",),
}


def texts_of(rows: Sequence[Row], recipe: TrainRecipe) -> list[str]:
    """The texts on which a fresh model's tokenizer is trained."""
    classified = recipe.prompt == HARMBENCH
    return [f"{harmbench_row(row) if classified else row['question']} {row['answer']}" for row in rows]


def learn(
    rows: Sequence[Row], everything: Sequence[Row], recipe: TrainRecipe, seed: int, label: str
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase, list[StepRecord]]:
    """Train a model on rows of a dataset."""
    import torch

    from lethe.models import checkpoints
    from lethe.models.adapters import adapted
    from lethe.models.forward import forward
    from lethe.models.team import Team
    from lethe.models.training import batches, optimise, resumable

    torch.manual_seed(seed)
    if recipe.start_from:
        model, tokenizer = checkpoints.load(recipe.start_from, "float32")
        model = adapted(model, recipe.compute.lora, seed)
    else:
        model, tokenizer = checkpoints.fresh(recipe, texts_of(everything, recipe))
        if torch.cuda.is_available():
            model.cuda()  # type: ignore[call-arg]  # transformers wraps it without its signature
    encoder, padding = Encoder(tokenizer, recipe.prompt), tokenizer.pad_token_id or 0
    examples = [encoder.example(row) for row in rows]
    steps = list(batches(len(rows), recipe.batch, recipe.epochs, np.random.default_rng(seed)))

    team = Team()

    def loss(step: int, picks: np.ndarray) -> Iterator[dict[str, torch.Tensor]]:
        whole = sum(examples[i].counted for i in picks)
        for part in team.share(np.array_split(picks, min(len(picks), recipe.compute.accumulate * team.size))):
            out = forward(model, collate([examples[i] for i in part], padding, model.device))
            yield {"loss": out.nll * (sum(examples[i].counted for i in part) / whole)}

    rows_seen = [(example.prompt, example.answer) for example in examples]
    saved_state = resumable(SCRATCH, model, recipe.compute, (__name__,), recipe, seed=seed, rows=digest(rows_seen))
    history = optimise(model, steps, loss, recipe, recipe.lr, label, resumable=saved_state)
    if saved_state:
        saved_state.clear()
    return model, tokenizer, history
