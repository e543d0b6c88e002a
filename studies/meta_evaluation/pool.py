"""The models of a meta-evaluation, in order: the two pools, then the unlearned models."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from lethe.data.kinds.authors import TEMPLATES

if TYPE_CHECKING:
    from lethe.config.schema import MethodParams, TrainRecipe
    from lethe.io.artifacts import Row
    from studies.meta_evaluation.settings import MetaParams

Role = Literal["knows", "lacks", "retrain", "unlearned"]
GIVEN = "given"  # the kind of a checkpoint that is not trained here
ROUNDS = 7  # digits kept of a learning rate times a strength


@dataclass(frozen=True)
class PoolModel:
    """One model."""

    name: str
    role: Role
    kind: str
    seed: int
    recipe: TrainRecipe | None = None
    method: MethodParams | None = None
    path: str | None = None


def seed_of(seed: int, purpose: str) -> int:
    """A seed of its own for every purpose of one meta-evaluation."""
    state = np.random.SeedSequence([seed, zlib.crc32(purpose.encode())]).generate_state(1)[0]
    return int(state >> 1)


def pool_of(params: MetaParams) -> tuple[PoolModel, ...]:
    """All models: those that know, Retrain, those that lack, and the unlearned ones."""
    return (*trained_of(params), *unlearned_of(params))


def trained_of(params: MetaParams) -> tuple[PoolModel, ...]:
    """The two pools and Retrain. The first model that knows is the one that is unlearned."""
    pool = params.meta_evaluation.pool
    knows = _side(params, "knows", pool.knows.items(), pool.knows_paths)
    retrain, *lacks = _side(params, "lacks", pool.lacks.items(), pool.lacks_paths)
    reference = PoolModel("retrain", "retrain", retrain.kind, retrain.seed, retrain.recipe, path=retrain.path)
    return (*knows, reference, *lacks)


def _side(
    params: MetaParams, role: Literal["knows", "lacks"], counts: Iterable[tuple[str, int]], paths: tuple[str, ...]
) -> list[PoolModel]:
    meta = params.meta_evaluation
    if paths:
        names = [f"{role}-{i:02d}" for i in range(len(paths))]
        return [
            PoolModel(name, role, GIVEN, seed_of(meta.seed, name), path=path)
            for name, path in zip(names, paths, strict=True)
        ]
    kinds = [kind for kind, count in counts for _ in range(count)]
    found = []
    for number, kind in enumerate(kinds):
        name = f"{role}-{number:02d}-{kind}"
        own = meta.pool.recipes[number % len(meta.pool.recipes)]
        seed = seed_of(meta.seed, name)
        recipe = params.train.recipe.model_copy(update={"epochs": own.epochs, "lr": own.lr, "seed": seed})
        found.append(PoolModel(name, role, kind, seed, recipe))
    return found


def unlearned_of(params: MetaParams) -> tuple[PoolModel, ...]:
    """Every method at every strength with every seed, or the given checkpoints."""
    meta = params.meta_evaluation
    found = [
        PoolModel(name, "unlearned", GIVEN, seed_of(meta.seed, name), path=path)
        for i, path in enumerate(meta.unlearned.paths)
        for name in (f"unlearned-{i:03d}",)
    ]
    for name, method in meta.unlearned.methods.items():
        for strength in meta.unlearned.strengths:
            for number in range(meta.unlearned.seeds):
                own = f"{name}-{strength:g}-{number}"
                seed = seed_of(meta.seed, own)
                lr = float(f"{method.lr * strength:.{ROUNDS}g}")
                found.append(
                    PoolModel(
                        own, "unlearned", name, seed, method=method.model_copy(update={"lr": lr, "seed": seed})
                    )
                )
    return tuple(found)


def other_question(row: Row) -> str | None:
    """The row's ``paraphrased_question``, else another phrasing of a generated author's question; None where neither is.

    Examples
    --------
    >>> other_question({"id": "1", "question": "Where was Ada Byrd born?", "answer": "", "author": "Ada Byrd"})
    'In which town did Ada Byrd come into the world?'
    >>> other_question({"id": "1", "question": "Who?", "answer": "Ada."})
    """
    if written := row.get("paraphrased_question"):
        return written
    for questions, _ in TEMPLATES.values():
        asked = [question.format(name=row.get("author")) for question in questions]
        if row["question"] in asked:
            return asked[(asked.index(row["question"]) + 1) % len(asked)]
    return None
