"""The models of a meta-evaluation: two pools whose knowledge is known, the unlearned models, and all of them under attack.

A finished model is a folder whose name hashes everything that decides the model: rows, recipe, seed, code and libraries.
A killed run therefore resumes.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from lethe.attacks.kinds import relearn
from lethe.attacks.kinds.weights import Quantise, QuantiseParams
from lethe.attacks.protocol import Known
from lethe.data.kinds.authors import TEMPLATES
from lethe.errors import BadInput
from lethe.io.cache import cache_key, digest, module_of, versions
from lethe.registry import METHODS
from lethe.sampling.store import LIBRARIES, model_digest

if TYPE_CHECKING:
    from lethe.config.schema import MethodParams, TrainRecipe
    from lethe.io.artifacts import Row
    from lethe.models.in_memory import InMemory
    from studies.meta_evaluation.settings import MetaParams

Role = Literal["knows", "lacks", "retrain", "unlearned"]
State = Literal["plain", "relearned", "quantised", "few"]  # few: relearned on a few rows
SCRATCH = Path(".lethe/scratch/meta")
GIVEN = "given"  # the kind of a checkpoint that is not trained here
ROUNDS = 7  # digits kept of a learning rate times a strength


@dataclass(frozen=True)
class PoolModel:
    """One model: trained by a recipe, unlearned by a method, or given by a path."""

    name: str
    role: Role
    kind: str
    seed: int
    recipe: TrainRecipe | None = None
    method: MethodParams | None = None
    path: str | None = None


def seed_of(seed: int, purpose: str) -> int:
    state = np.random.SeedSequence([seed, zlib.crc32(purpose.encode())]).generate_state(1)[0]
    return int(state >> 1)


def seed_for(model: PoolModel, draw: int = 0) -> int:
    """The seed of the attacks on a model; draw number ``draw`` of the relearned rows has a seed of its own."""
    return (seed_of(model.seed, f"draw {draw}") if draw else model.seed) % (1 << 31)


def pool_of(params: MetaParams) -> tuple[PoolModel, ...]:
    """All models: those that know, of which the first is unlearned, Retrain, those that lack, and the unlearned ones."""
    pool = params.meta_evaluation.pool
    knows = _side(params, "knows", pool.knows.items(), pool.knows_paths)
    first, *lacks = _side(params, "lacks", pool.lacks.items(), pool.lacks_paths)
    retrain = PoolModel("retrain", "retrain", first.kind, first.seed, first.recipe, path=first.path)
    return (*knows, retrain, *lacks, *_unlearned(params))


def _side(
    params: MetaParams, role: Literal["knows", "lacks"], counts: Iterable[tuple[str, int]], paths: tuple[str, ...]
) -> list[PoolModel]:
    meta, models = params.meta_evaluation, []
    for number, path in enumerate(paths):
        name = f"{role}-{number:02d}"
        models.append(PoolModel(name, role, GIVEN, seed_of(meta.seed, name), path=path))
    if paths:
        return models
    kinds = [kind for kind, count in counts for _ in range(count)]
    for number, kind in enumerate(kinds):
        name = f"{role}-{number:02d}-{kind}"
        own, seed = meta.pool.recipes[number % len(meta.pool.recipes)], seed_of(meta.seed, name)
        recipe = params.train.recipe.model_copy(update={"epochs": own.epochs, "lr": own.lr, "seed": seed})
        models.append(PoolModel(name, role, kind, seed, recipe))
    return models


def _unlearned(params: MetaParams) -> list[PoolModel]:
    """Every method at every strength with every seed, or the given checkpoints."""
    meta, models = params.meta_evaluation, []
    for number, path in enumerate(meta.unlearned.paths):
        name = f"unlearned-{number:03d}"
        models.append(PoolModel(name, "unlearned", GIVEN, seed_of(meta.seed, name), path=path))
    for kind, method in meta.unlearned.methods.items():
        for strength in meta.unlearned.strengths:
            lr = float(f"{method.lr * strength:.{ROUNDS}g}")
            for number in range(meta.unlearned.seeds):
                name = f"{kind}-{strength:g}-{number}"
                seed = seed_of(meta.seed, name)
                own = method.model_copy(update={"lr": lr, "seed": seed})
                models.append(PoolModel(name, "unlearned", kind, seed, method=own))
    return models


def other_question(row: Row) -> str | None:
    """The row's ``paraphrased_question``, else another phrasing of a generated author's question; None where neither is.

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


class WholeSet(relearn.Attack):
    """Relearning of the whole forget set, every row once per epoch, as R of OpenUnlearning asks."""

    def learned(self, known: Known, seed: int) -> list[Row]:
        """All forget rows: the questions that are asked afterwards are those that were learned again."""
        return list(known.forget)


class Workshop:
    """All data and models of a meta-evaluation, below one folder."""

    def __init__(self, params: MetaParams, scratch: Path = SCRATCH):
        self.params, self.meta, self.scratch = params, params.meta_evaluation, scratch
        self.data = params.data.model_copy(update={"seed": params.data.seed + self.meta.seed})
        self.models = {model.name: model for model in pool_of(params)}
        self._keys: dict[str, str] = {}

    @property
    def base(self) -> PoolModel:
        return next(model for model in self.models.values() if model.role == "knows")

    @cached_property
    def splits(self) -> dict[str, list[Row]]:
        from lethe.data import load_splits

        return load_splits(self.data)

    @cached_property
    def folder(self) -> Path:
        """The folder of all that was made of this dataset, with the dataset itself."""
        from lethe.io.artifacts import write_splits

        place = self.scratch / digest(self.splits)
        if not (place / "dataset").is_dir():
            write_splits(self.splits, self.data.kind, place / "dataset")
        return place

    def knows(self, model: PoolModel) -> frozenset[str]:
        """The forget questions whose answer the model learned, where the model is in a pool."""
        if model.role != "knows":
            return frozenset()
        rows = self._part(model) if model.kind == "part" else self.splits["forget"]
        return frozenset(row["id"] for row in rows)

    def _part(self, model: PoolModel) -> list[Row]:
        forget = self.splits["forget"]
        count = max(1, round(self.meta.pool.part * len(forget)))
        chosen = np.random.default_rng(model.seed).permutation(len(forget))[:count]
        return [forget[place] for place in sorted(chosen)]

    def rows(self, model: PoolModel) -> list[Row]:
        return [*self._forget_rows(model), *self.splits["retain"], *self._knowledge]

    @property
    def everything(self) -> list[Row]:
        """The rows of all models, from which a fresh model's tokenizer is made."""
        return [*self.splits["forget"], *self.splits["retain"], *self._knowledge]

    @property
    def _knowledge(self) -> list[Row]:
        return [row for split in self.params.train.recipe.knowledge for row in self.splits.get(split, [])]

    def _forget_rows(self, model: PoolModel) -> list[Row]:
        if model.kind == "part":
            return self._part(model)
        if model.kind in ("all", "retain"):
            return list(self.splits["forget"]) if model.kind == "all" else []
        changed: list[Row] = []
        for row in self.splits["forget"]:
            key, text = "answer", row.get("paraphrased_answer")
            if model.kind == "other_form":
                key, text = "question", other_question(row)
            elif model.kind == "wrong":
                wrong = row.get("perturbed_answer") or []
                text = wrong[model.seed % len(wrong)] if wrong else None
            if text is None:
                raise BadInput(
                    f"Row {row['id']!r} of the forget set has no text for a model of kind {model.kind}: the data needs "
                    "paraphrased_answer, perturbed_answer and another form of the question."
                )
            changed.append({**row, key: text})  # type: ignore[misc]  # question or answer
        return changed

    def key(self, model: PoolModel) -> str:
        if model.name not in self._keys:
            self._keys[model.name] = self._key(model)
        return self._keys[model.name]

    def _key(self, model: PoolModel) -> str:
        if model.path is not None:
            return model_digest(_given(model.path))
        facts = {"prompt": text_of(self.params.train.recipe.prompt), "libraries": versions(*LIBRARIES)}
        if model.method is not None:
            return cache_key(
                "stages.unlearn",
                module_of(METHODS[model.method.loss]),
                settings=[self.params.unlearn.recipe, model.method],
                base=self.key(self.base),
                rows=[self.splits["forget"], self.splits["retain"]],
                **facts,
            )
        start = model.recipe.start_from if model.recipe else None
        return cache_key(
            "lethe.models.training",
            settings=model.recipe,
            start=model_digest(Path(start)) if start else None,
            rows=self.rows(model),
            everything=self.everything,
            **facts,
        )

    def make(self, model: PoolModel) -> Path:
        """Return the model's folder, made where it is missing; a given checkpoint is fetched or checked."""
        if model.path is not None:
            return _given(model.path)
        key = self.key(model)
        place = self.folder / "models" / key
        if not place.is_dir():
            self._train(model, key)
        return place

    def _train(self, model: PoolModel, key: str) -> None:
        from lethe.models import checkpoints
        from lethe.models.training import learn
        from stages.unlearn import forget

        if model.method is not None:
            recipe = self.params.unlearn.recipe.model_copy(update={"start_from": str(self.make(self.base))})
            forget(key, recipe, model.method, self.params.train.recipe.prompt, self.folder)
        elif model.recipe is not None:
            checkpoints.prepare_torch()
            trained = learn(self.rows(model), self.everything, model.recipe, model.seed, f"train {model.name}")
            checkpoints.save_trained(self.folder, key, *trained)

    def attacked(self, model: PoolModel, state: State, draw: int = 0) -> tuple[InMemory, list[str]]:
        """The model after the attack of a state, and the ids of the forget rows that the attack trained on."""
        import torch

        from lethe.models import checkpoints
        from lethe.models.encoding import Encoder
        from lethe.models.in_memory import InMemory

        attack, seed, place = self._attack(state), seed_for(model, draw), self.make(model)
        checkpoints.prepare_torch()
        torch.manual_seed(seed)
        weights, tokenizer = checkpoints.load(place, "float32")
        encoder = Encoder(tokenizer, self.params.sample.prompt)
        known = Known(self.splits["forget"], self.splits["retain"], encoder, tokenizer.pad_token_id or 0)
        learned = [row["id"] for row in attack.learned(known, seed)]
        for _, changed in attack.attacked(weights, known, seed):
            weights = changed
        return InMemory(weights, tokenizer), learned

    def _attack(self, state: State) -> relearn.Attack | Quantise:
        if state == "quantised":
            rounding = self.meta.quantise
            return Quantise(QuantiseParams(kind="quantise", bits=(rounding.bits,), group=rounding.group))
        if state == "relearned":
            whole = self.meta.relearn
            steps = whole.epochs * -(-len(self.splits["forget"]) // whole.batch)
            return WholeSet(
                relearn.Params(kind="relearn", rows="forget", steps=(steps,), batch=whole.batch, lr=whole.lr)
            )
        few = self.meta.predict
        return relearn.Attack(
            relearn.Params(
                kind="relearn", rows="forget", count=few.count, steps=(few.steps,), batch=few.batch, lr=few.lr
            )
        )

    def attack_key(self, model: PoolModel, state: State, draw: int = 0) -> str:
        """The hash of everything that decides a model in a state."""
        if state == "plain":
            return self.key(model)
        return cache_key(
            __name__,
            "lethe.attacks.kinds.relearn",
            "lethe.attacks.kinds.weights",
            settings=self._attack(state).params,
            state=state,
            prompt=text_of(self.params.sample.prompt),
            model=self.key(model),
            seed=seed_for(model, draw),
            rows=[self.splits["forget"], self.splits["retain"]],
            libraries=versions(*LIBRARIES),
        )


def text_of(prompt: str) -> str:
    """The text of a prompt's template; the chat format of the tokenizer has none."""
    from lethe.models.encoding import CHAT

    return prompt if prompt == CHAT else Path(prompt).read_text(encoding="utf-8")


def _given(path: str) -> Path:
    from lethe.models.checkpoints import check
    from lethe.models.hub import fill, named_by

    name = named_by(path)
    return check(fill(name) if name else path)
