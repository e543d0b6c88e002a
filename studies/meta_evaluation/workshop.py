"""The models of a meta-evaluation and the schema of its rules: two pools whose knowledge is known, unlearned models, attacks.

All rules are fixed before the first run. A finished model is a folder whose name hashes everything that decides the model:
rows, recipe, seed, code and libraries. A killed run therefore resumes.
"""

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from itertools import chain, product
from pathlib import Path
from typing import Annotated, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from lethe import config
from lethe.attacks.kinds import weights
from lethe.attacks.protocol import Knowledge
from lethe.config import Params, fields
from lethe.config.schema import Method, MethodParams, TrainRecipe
from lethe.data.kinds.authors import TEMPLATES
from lethe.data.rows import load_splits
from lethe.errors import BadInput
from lethe.io.artifacts import Row, write_splits
from lethe.io.cache import cache_key, digest, module_of, versions
from lethe.models import checkpoints
from lethe.models.checkpoints import InMemory, check
from lethe.models.encoding import CHAT, Encoder
from lethe.models.hub import fill, named_by
from lethe.models.training import learn
from lethe.registry import METHODS, SCORERS
from lethe.sampling.engine import LIBRARIES, model_digest
from stages.unlearn import forget

Knows = Literal["all", "paraphrased", "part", "other_form"]
Lacks = Literal["retain", "wrong"]
Number = Annotated[str, Field(min_length=1)]  # the name of a number, such as mean@1024


class Recipe(fields.Section):
    epochs: fields.Count
    lr: fields.Positive


class Pool(fields.Section):
    """Models whose knowledge is known: counts by what they learned, or the folders of given checkpoints.

    ``part``: a random share of the forget set; ``other_form``: the facts under another question; ``wrong``: its questions
    with a wrong answer. Model number i takes recipe i mod the number of recipes. A model whose utility is below ``utility``
    times that of the first model that knows counts in no AUC.
    """

    knows: dict[Knows, fields.Count] = Field(default_factory=dict)
    lacks: dict[Lacks, fields.Count] = Field(default_factory=dict)
    recipes: tuple[Recipe, ...] = ()
    part: Annotated[fields.Real, Field(gt=0, lt=1)] = 0.5
    utility: fields.Share = 0.8
    knows_paths: tuple[fields.Place, ...] = ()
    lacks_paths: tuple[fields.Place, ...] = ()

    @model_validator(mode="after")
    def _both_sides_are_there(self) -> Self:
        sides = (("knows", self.knows, self.knows_paths), ("lacks", self.lacks, self.lacks_paths))
        for side, trained, given in sides:
            if bool(trained) == bool(given):
                raise ValueError(
                    f"the pool needs either {side} or {side}_paths, with two models at least"
                )
            if (sum(trained.values()) or len(given)) < 2:
                raise ValueError(
                    f"{side} has one model; an AUC over models needs two models at least"
                )
        if (self.knows or self.lacks) and not self.recipes:
            raise ValueError("recipes is empty; models that are trained need one recipe at least")
        if self.knows and next(iter(self.knows)) != "all":
            raise ValueError(
                "knows must begin with all: its first model is the one that is unlearned"
            )
        if self.lacks and next(iter(self.lacks)) != "retain":
            raise ValueError(
                "lacks must begin with retain: its first model is the Retrain of every comparison"
            )
        return self


class Unlearned(fields.Section):
    """The unlearned models: ``methods`` at learning rates times ``strengths`` with ``seeds`` seeds, or given ``paths``.

    A model below ``utility`` times the utility before unlearning counts in no average of R and Q, as in OpenUnlearning.
    """

    methods: dict[fields.Name, Method] = Field(default_factory=dict)
    strengths: Annotated[tuple[fields.Positive, ...], Field(min_length=1)] = (0.5, 1.0, 2.0)
    seeds: fields.Count = 2
    paths: tuple[fields.Place, ...] = ()
    utility: fields.Share = 0.8

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if self.methods and self.paths:
            raise ValueError(
                "got methods and paths; the unlearned models are either trained here or given"
            )
        return self


class RelearnAll(fields.Section):
    epochs: fields.Count
    batch: fields.Count
    lr: fields.Positive


class Quantise(fields.Section):
    bits: Literal[8, 4, 3, 2] = 4
    group: fields.Count = 64


class RelearnFew(fields.Section):
    """Relearning on a few forget rows, after which the other questions are asked; the mean over ``draws`` sets of rows."""

    count: fields.Count
    steps: fields.Count
    batch: fields.Count = 8
    lr: fields.Positive = 5.0e-4
    n: fields.Draws = 128
    draws: fields.Count = 1


class Claim(fields.Section):
    text: Annotated[str, Field(min_length=1)]
    better: Number
    than: Number


class MetaEvaluation(fields.Section):
    seed: fields.Seed
    alpha: fields.Alpha
    pool: Pool
    unlearned: Unlearned
    relearn: RelearnAll
    quantise: Quantise
    predict: RelearnFew
    answers: Annotated[tuple[fields.Draws, ...], Field(min_length=1)] = (16, 128, 1024)
    leak_at: Annotated[tuple[fields.Count, ...], Field(min_length=1)] = (1, 16, 128, 1024)
    utility_questions: fields.Count = 30
    utility_scorer: Annotated[str, fields.NameIn((SCORERS,))] = "rouge_l"
    bootstrap: Annotated[fields.Integer, Field(ge=10)] = 1000
    headline: Annotated[tuple[Number, ...], Field(min_length=2)]
    claims: tuple[Claim, ...] = ()

    @model_validator(mode="after")
    def _rules_are_consistent(self) -> Self:
        if list(self.answers) != sorted(set(self.answers)):
            raise ValueError(f"answers is {list(self.answers)}; the numbers must increase")
        if doubled := sorted({name for name in self.headline if self.headline.count(name) > 1}):
            raise ValueError(f"headline lists {', '.join(doubled)} twice")
        for claim in self.claims:
            for name in (claim.better, claim.than):
                if name not in self.headline:
                    raise ValueError(
                        f"the claim {claim.text!r} is about {name}, which headline does not list"
                    )
        return self

    @property
    def n(self) -> int:
        """The answers drawn per question; smaller numbers are prefixes of the same draws."""
        return self.answers[-1]


class MetaParams(Params):
    meta_evaluation: MetaEvaluation


def validate(document: dict[str, object], source: str) -> MetaParams:
    if "meta_evaluation" not in document:
        raise BadInput(
            f"{source} has no section meta_evaluation; name a preset that has one (--preset meta-authors)."
        )
    return config.validate(document, source, MetaParams)


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
    meta = params.meta_evaluation

    def given(role: Role, paths: Sequence[str], digits: int = 2) -> list[PoolModel]:
        names = [f"{role}-{number:0{digits}d}" for number in range(len(paths))]
        return [
            PoolModel(name, role, GIVEN, seed_of(meta.seed, name), path=path)
            for name, path in zip(names, paths, strict=True)
        ]

    def trained(
        role: Role, counts: Mapping[Knows, int] | Mapping[Lacks, int]
    ) -> Iterator[PoolModel]:
        for number, kind in enumerate(kind for kind, count in counts.items() for _ in range(count)):
            name = f"{role}-{number:02d}-{kind}"
            seed, own = seed_of(meta.seed, name), meta.pool.recipes[number % len(meta.pool.recipes)]
            recipe = params.train.recipe.model_copy(
                update={"epochs": own.epochs, "lr": own.lr, "seed": seed}
            )
            yield PoolModel(name, role, kind, seed, recipe)

    def unlearned() -> Iterator[PoolModel]:
        own = meta.unlearned
        for (kind, method), strength, number in product(
            own.methods.items(), own.strengths, range(own.seeds)
        ):
            name = f"{kind}-{strength:g}-{number}"
            seed, lr = seed_of(meta.seed, name), float(f"{method.lr * strength:.{ROUNDS}g}")
            changed = method.model_copy(update={"lr": lr, "seed": seed})
            yield PoolModel(name, "unlearned", kind, seed, method=changed)

    pool = meta.pool
    knows = [*given("knows", pool.knows_paths), *trained("knows", pool.knows)]
    first, *lacks = [*given("lacks", pool.lacks_paths), *trained("lacks", pool.lacks)]
    retrain = replace(first, name="retrain", role="retrain")
    return (*knows, retrain, *lacks, *given("unlearned", meta.unlearned.paths, 3), *unlearned())


def other_question(row: Row) -> str | None:
    """The row's ``paraphrased_question``, else another phrasing of a generated author's question; None where neither is."""
    if written := row.get("paraphrased_question"):
        return written
    for questions, _ in TEMPLATES.values():
        asked = [question.format(name=row.get("author")) for question in questions]
        if row["question"] in asked:
            return asked[(asked.index(row["question"]) + 1) % len(asked)]
    return None


class WholeSet(weights.Relearn):
    """Relearning of the whole forget set, every row once per epoch, as R of OpenUnlearning asks."""

    def learned(self, knowledge: Knowledge, seed: int) -> list[Row]:
        """All forget rows: the questions that are asked afterwards are those that were learned again."""
        return list(knowledge.forget)


class Workshop:
    def __init__(self, params: MetaParams, scratch: Path = SCRATCH):
        self.params, self.meta, self.scratch = params, params.meta_evaluation, scratch
        self.data = params.data.model_copy(update={"seed": params.data.seed + self.meta.seed})
        self.models = {model.name: model for model in pool_of(params)}
        self.base = next(model for model in self.models.values() if model.role == "knows")

    @cached_property
    def splits(self) -> dict[str, list[Row]]:
        return load_splits(self.data)

    @cached_property
    def folder(self) -> Path:
        place = self.scratch / digest(self.splits)
        if not (place / "dataset").is_dir():
            write_splits(self.splits, self.data.kind, place / "dataset")
        return place

    @property
    def taught(self) -> list[list[Row]]:
        return [self.splits["forget"], self.splits["retain"]]

    def knows(self, model: PoolModel) -> frozenset[str]:
        if model.role != "knows":
            return frozenset()
        rows = self._part(model) if model.kind == "part" else self.splits["forget"]
        return frozenset(row["id"] for row in rows)

    def rows(self, model: PoolModel | None = None) -> list[Row]:
        """The rows that a model learns; without one those of all models, of which a fresh tokenizer is made."""
        forget = self._forget_rows(model) if model else self.splits["forget"]
        knowledge = (self.splits.get(split, []) for split in self.params.train.recipe.knowledge)
        return [*forget, *self.splits["retain"], *chain(*knowledge)]

    def _part(self, model: PoolModel) -> list[Row]:
        forget = self.splits["forget"]
        count = max(1, round(self.meta.pool.part * len(forget)))
        chosen = np.random.default_rng(model.seed).permutation(len(forget))[:count]
        return [forget[place] for place in sorted(chosen)]

    def _forget_rows(self, model: PoolModel) -> list[Row]:
        if model.kind in ("all", "part", "retain"):
            return {"all": self.splits["forget"], "part": self._part(model)}.get(model.kind, [])
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
        if model.path is not None:
            return content_of(_given(model.path))
        facts = {
            "prompt": text_of(self.params.train.recipe.prompt),
            "libraries": versions(*LIBRARIES),
        }
        if model.method is not None:
            settings = [self.params.unlearn.recipe, model.method]
            modules = ("stages.unlearn", module_of(METHODS[model.method.loss]))
            return cache_key(
                *modules, settings=settings, base=self.key(self.base), rows=self.taught, **facts
            )
        start = model.recipe.start_from if model.recipe else None
        return cache_key(
            "lethe.models.training",
            settings=model.recipe,
            start=content_of(Path(start)) if start else None,
            rows=self.rows(model),
            everything=self.rows(),
            **facts,
        )

    def make(self, model: PoolModel) -> Path:
        if model.path is not None:
            return _given(model.path)
        key = self.key(model)
        place = self.folder / "models" / key
        if not place.is_dir():
            self._train(model, key)
        return place

    def _train(self, model: PoolModel, key: str) -> None:
        if model.method is not None:
            recipe = self.params.unlearn.recipe.model_copy(
                update={"start_from": str(self.make(self.base))}
            )
            forget(key, recipe, model.method, self.params.train.recipe.prompt, self.folder)
        elif model.recipe is not None:
            checkpoints.prepare_torch()
            trained = learn(
                self.rows(model), self.rows(), model.recipe, model.seed, f"train {model.name}"
            )
            checkpoints.save_trained(self.folder, key, *trained)

    def attacked(self, model: PoolModel, state: State, draw: int = 0) -> tuple[InMemory, list[str]]:
        """The model after the attack of a state, and the ids of the forget rows that the attack trained on."""
        import torch

        attack, seed, place = self.attack(state), seed_for(model, draw), self.make(model)
        checkpoints.prepare_torch()
        torch.manual_seed(seed)
        weights, tokenizer = checkpoints.load(place, "float32")
        encoder = Encoder(tokenizer, self.params.sample.prompt)
        knowledge = Knowledge(
            self.splits["forget"], self.splits["retain"], encoder, tokenizer.pad_token_id or 0
        )
        learned = [row["id"] for row in attack.learned(knowledge, seed)]
        for _, changed in attack.attacked(weights, knowledge, seed):
            weights = changed
        return InMemory(weights, tokenizer), learned

    def attack(self, state: State) -> weights.Relearn | weights.Quantise:
        if state == "quantised":
            bits, group = (self.meta.quantise.bits,), self.meta.quantise.group
            return weights.Quantise(weights.QuantiseParams(kind="quantise", bits=bits, group=group))
        relearn = partial(weights.RelearnParams, kind="relearn", rows="forget")
        if state == "relearned":
            whole = self.meta.relearn
            steps = whole.epochs * -(-len(self.splits["forget"]) // whole.batch)
            return WholeSet(relearn(steps=(steps,), batch=whole.batch, lr=whole.lr))
        few = self.meta.predict
        return weights.Relearn(
            relearn(count=few.count, steps=(few.steps,), batch=few.batch, lr=few.lr)
        )


def text_of(prompt: str) -> str:
    """The text of a prompt's template; the chat format of the tokenizer has none."""
    return prompt if prompt == CHAT else Path(prompt).read_text(encoding="utf-8")


content_of = lru_cache(maxsize=None)(model_digest)  # of a checkpoint of gigabytes


def _given(path: str) -> Path:
    name = named_by(path)
    return check(fill(name) if name else path)
