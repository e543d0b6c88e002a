"""The workshop of a meta-evaluation: data, models and attacks, each kept under the hash of what made it.

A killed run resumes: a model is a folder that moves to its place when it is complete, and the folder's name is the
`lethe.io.cache.cache_key` of rows, recipe, seed, code and libraries.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lethe.attacks.kinds import quantise, relearn
from lethe.attacks.protocol import Known
from lethe.config.evaluating import Sample
from lethe.errors import BadInput
from lethe.io.cache import cache_key, digest, module_of, versions
from lethe.registry import METHODS
from lethe.sampling.store import LIBRARIES, model_digest
from studies.meta_evaluation.pool import PoolModel, pool_of, seed_of

if TYPE_CHECKING:
    from lethe.io.artifacts import Row
    from lethe.models.encoding import Encoder
    from lethe.models.in_memory import InMemory
    from studies.meta_evaluation.settings import MetaParams

SCRATCH = Path(".lethe/scratch/meta")


class WholeSet(relearn.Attack):
    """Relearning of the whole forget set, every row once per epoch, as R of OpenUnlearning asks."""

    def learned(self, known: Known, seed: int) -> list[Row]:
        """All forget rows: the questions that are asked afterwards are those that were learned again."""
        return list(known.forget)


class Workshop:
    """Everything that a meta-evaluation makes, below one folder."""

    def __init__(self, params: MetaParams, scratch: Path = SCRATCH):
        self.params, self.meta = params, params.meta_evaluation
        data = params.data.model_copy(update={"seed": params.data.seed + self.meta.seed})
        self.data, self.scratch = data, scratch
        self._keys: dict[str, str] = {}

    @cached_property
    def splits(self) -> dict[str, list[Row]]:
        """The rows of every split."""
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

    @cached_property
    def models(self) -> dict[str, PoolModel]:
        """All models by name."""
        return {model.name: model for model in pool_of(self.params)}

    @property
    def base(self) -> PoolModel:
        """The model that is unlearned: the first that knows."""
        return next(model for model in self.models.values() if model.role == "knows")

    @cached_property
    def sample(self) -> Sample:
        """The sampling settings, whose seed `Observer` replaces by one for each model and state."""
        return self.params.sample.model_copy(update={"n": self.meta.n})

    def knows(self, model: PoolModel) -> frozenset[str]:
        """The forget questions whose answer the model learned, where the model is in a pool."""
        if model.role != "knows":
            return frozenset()
        everything = frozenset(row["id"] for row in self.splits["forget"])
        return frozenset(row["id"] for row in self._part(model)) if model.kind == "part" else everything

    def _part(self, model: PoolModel) -> list[Row]:
        forget = self.splits["forget"]
        count = max(1, round(self.meta.pool.part * len(forget)))
        chosen = np.random.default_rng(model.seed).permutation(len(forget))[:count]
        return [forget[place] for place in sorted(chosen)]

    def rows(self, model: PoolModel) -> list[Row]:
        """The rows that a trained model learns."""
        return [*self._forget_rows(model), *self.splits["retain"], *self._knowledge]

    @property
    def _knowledge(self) -> list[Row]:
        return [row for split in self.params.train.recipe.knowledge for row in self.splits.get(split, [])]

    def _forget_rows(self, model: PoolModel) -> list[Row]:
        from studies.meta_evaluation.pool import other_question

        forget = self.splits["forget"]
        if model.kind in ("all", "retain"):
            return list(forget) if model.kind == "all" else []
        if model.kind == "part":
            return self._part(model)
        changed: list[Row] = []
        for row in forget:
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

    @cached_property
    def everything(self) -> list[Row]:
        """The rows of all models, from which a fresh model's tokenizer is made."""
        return [*self.splits["forget"], *self.splits["retain"], *self._knowledge]

    def key(self, model: PoolModel) -> str:
        """The hash of everything that decides the model."""
        if model.name not in self._keys:
            self._keys[model.name] = self._key(model)
        return self._keys[model.name]

    def _key(self, model: PoolModel) -> str:
        if model.path is not None:
            return model_digest(self._given(model.path))
        libraries = versions(*LIBRARIES)
        if model.method is not None:
            return cache_key(
                "lethe.steps.unlearn",
                module_of(METHODS[model.method.loss]),
                settings=[self.params.unlearn.recipe, model.method],
                base=self.key(self.base),
                rows=[self.splits["forget"], self.splits["retain"]],
                prompt=self._prompt(),
                libraries=libraries,
            )
        return cache_key(
            "lethe.models.training",
            settings=model.recipe,
            start=model_digest(Path(model.recipe.start_from))
            if model.recipe and model.recipe.start_from
            else None,
            rows=self.rows(model),
            everything=self.everything,
            prompt=self._prompt(),
            libraries=libraries,
        )

    def _prompt(self) -> str:
        return self.text_of(self.params.train.recipe.prompt)

    @staticmethod
    def text_of(prompt: str) -> str:
        """The text of a prompt's template; the chat format of the tokenizer has none."""
        from lethe.models.encoding import CHAT

        return prompt if prompt == CHAT else Path(prompt).read_text(encoding="utf-8")

    @staticmethod
    def _given(path: str) -> Path:
        from lethe.models.checkpoints import check
        from lethe.models.hub import fill, named_by

        name = named_by(path)
        return check(fill(name) if name else path)

    def make(self, model: PoolModel) -> Path:
        """Return the model's folder, made where it is missing; a given checkpoint is fetched or checked."""
        if model.path is not None:
            return self._given(model.path)
        key = self.key(model)
        place = self.folder / "models" / key
        if place.is_dir():
            return place
        if model.method is not None:
            from lethe.steps import unlearn

            recipe = self.params.unlearn.recipe.model_copy(update={"start_from": str(self.make(self.base))})
            unlearn.run(key, recipe, model.method, self.params.train.recipe.prompt, self.folder)
        else:
            self._train(model, key)
        return place

    def _train(self, model: PoolModel, key: str) -> None:
        from lethe.models import checkpoints
        from lethe.models.training import learn

        if model.recipe is None:
            raise BadInput(f"The model {model.name} has neither a recipe nor a path.")
        checkpoints.prepare_torch()
        found = learn(self.rows(model), self.everything, model.recipe, model.seed, f"train {model.name}")
        checkpoints.save_trained(self.folder, key, *found)

    def relearned(self, place: Path, seed: int) -> InMemory:
        """The model after relearning the whole forget set."""
        own = self.meta.relearn
        steps = own.epochs * -(-len(self.splits["forget"]) // own.batch)
        settings = relearn.Params(kind="relearn", rows="forget", steps=(steps,), batch=own.batch, lr=own.lr)
        return self._attacked(WholeSet(settings), place, seed)

    def relearned_few(self, place: Path, seed: int) -> tuple[InMemory, list[str]]:
        """The model after relearning a few forget rows, which ``seed`` draws, and the ids of these rows."""
        own = self.meta.predict
        settings = relearn.Params(
            kind="relearn", rows="forget", count=own.count, steps=(own.steps,), batch=own.batch, lr=own.lr
        )
        attack = relearn.Attack(settings)
        known = Known(self.splits["forget"], self.splits["retain"], self._encoder(place), 0)
        return self._attacked(attack, place, seed), [row["id"] for row in attack.learned(known, seed)]

    def quantised(self, place: Path, seed: int) -> InMemory:
        """The model with rounded weights."""
        own = self.meta.quantise
        return self._attacked(
            quantise.Attack(quantise.Params(kind="quantise", bits=(own.bits,), group=own.group)), place, seed
        )

    def _encoder(self, place: Path) -> Encoder:
        from lethe.models.checkpoints import load_tokenizer
        from lethe.models.encoding import Encoder

        return Encoder(load_tokenizer(place), self.params.sample.prompt)

    def _attacked(self, attack: relearn.Attack | quantise.Attack, place: Path, seed: int) -> InMemory:
        import torch

        from lethe.models import checkpoints
        from lethe.models.encoding import Encoder
        from lethe.models.in_memory import InMemory

        checkpoints.prepare_torch()
        torch.manual_seed(seed)
        model, tokenizer = checkpoints.load(place, "float32")
        encoder = Encoder(tokenizer, self.params.sample.prompt)
        known = Known(self.splits["forget"], self.splits["retain"], encoder, tokenizer.pad_token_id or 0)
        for _, changed in attack.attacked(model, known, seed):
            model = changed
        return InMemory(model, tokenizer)

    def attack_key(self, model: PoolModel, kind: str, settings: object, *modules: str) -> str:
        """The hash of everything that decides an attacked model."""
        return cache_key(
            __name__,
            "lethe.attacks.kinds.relearn",
            "lethe.attacks.kinds.quantise",
            *modules,
            settings=settings,
            kind=kind,
            prompt=self.text_of(self.params.sample.prompt),
            model=self.key(model),
            seed=seed_for(model),
            rows=[self.splits["forget"], self.splits["retain"]],
            libraries=versions(*LIBRARIES),
        )


def seed_for(model: PoolModel, draw: int = 0) -> int:
    """The seed of the attacks on a model; draw number ``draw`` of the relearned rows has a seed of its own."""
    return (seed_of(model.seed, f"draw {draw}") if draw else model.seed) % (1 << 31)
