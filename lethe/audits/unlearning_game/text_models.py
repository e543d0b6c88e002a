"""One language model of the game: learned, or unlearned from a learned one, with the likelihood of
every row's answer.

This module imports all code that decides a model. A model's key therefore holds the code of this
module, and not the code of the game's rounds and attacks.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from lethe.config.schema import Method, TrainRecipe, UnlearnRecipe
from lethe.io.artifacts import Row
from lethe.io.files import atomic_folder
from lethe.models import checkpoints
from lethe.models.encoding import Encoder
from lethe.models.likelihood import TOKENS, AnswerTokens, answer_tokens
from lethe.models.training import learn
from lethe.unlearning.loop import second_answers, unlearn
from lethe.unlearning.protocol import Before

MODEL = "model"
ANSWERS = "answers.npz"


def make(
    rows: Sequence[Row],
    retain: Sequence[int] | np.ndarray,
    forget: Sequence[int] | np.ndarray,
    learning: TrainRecipe,
    unlearning: UnlearnRecipe,
    entry: Method | None,
    label: str,
    seed: int,
    start: Path | None,
    place: Path,
) -> None:
    """Learn a model on the rows ``retain``, or load it from ``start``; unlearn the rows ``forget``
    by ``entry``; and save it with the likelihood of every row's answer in the folder ``place``.
    """
    import torch

    checkpoints.prepare_torch()
    retain_rows = [rows[number] for number in retain]
    forget_rows = [rows[number] for number in forget]
    if start is None:
        model, tokenizer, _ = learn(retain_rows, rows, learning, seed, "learn")
    else:
        torch.manual_seed(seed)
        model, tokenizer = checkpoints.load(start / MODEL)
    encoder = Encoder(tokenizer, learning.prompt)
    padding = tokenizer.pad_token_id or 0
    if entry is not None:
        forgotten = list(map(encoder.example, forget_rows))
        retained = list(map(encoder.example, retain_rows))
        seeded = unlearning.model_copy(update={"seed": seed})
        second = second_answers(entry, forget_rows, Before(model, encoder, seed))
        unlearn(
            model,
            forgotten,
            retained,
            seeded,
            entry,
            padding,
            label,
            second,
        )
    answers = answer_tokens(model.eval(), list(map(encoder.example, rows)), padding)
    with atomic_folder(place) as folder:
        checkpoints.save(folder / MODEL, model, tokenizer)
        arrays = {}
        for name in TOKENS:
            arrays[name] = np.concatenate([getattr(answer, name) for answer in answers])
        lengths = [len(answer.log_probs) for answer in answers]
        np.savez(folder / ANSWERS, lengths=lengths, **arrays)


def observe(place: Path) -> list[AnswerTokens]:
    """The likelihood of every row's answer under the finished model in ``place``."""
    with np.load(place / ANSWERS) as stored:
        ends = np.cumsum(stored["lengths"])[:-1]
        columns = [np.split(stored[name], ends) for name in TOKENS]
    return list(map(AnswerTokens, *columns))
