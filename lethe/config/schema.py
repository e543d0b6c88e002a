"""The schema of params.yaml. Only params.yaml holds defaults of the pipeline, so that DVC sees every value."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BeforeValidator, Field, ValidationError, model_validator

from lethe.config.evaluating import (
    Exact,
    Extract,
    JudgeEntry,
    Metrics,
    Model,
    Sample,
    Score,
    ScorerName,
    check_together,
)
from lethe.config.fields import (
    Alpha,
    Betas,
    Complete,
    Count,
    DottedName,
    Draws,
    Integer,
    MemberOf,
    Name,
    NameIn,
    Place,
    Positive,
    Real,
    Section,
    Seed,
    Share,
    Weight,
    checked_under,
    problem,
)
from lethe.registry import AUDITS, DATASETS, GAMES, METHODS, MODEL_ATTACKS

FILE = "params.yaml"
SHARES = {"forget01": 0.01, "forget05": 0.05, "forget10": 0.10}  # shares of the learned authors, as in TOFU


Own = TypeVar("Own", bound=Section)


class Data(Section, extra="allow"):
    """The dataset. The parameters of one kind are in a section with the name of the kind: ``data.authors``."""

    kind: Annotated[str, NameIn((DATASETS,), quoted=True)]
    source: Place
    forget: Literal["forget01", "forget05", "forget10"]
    seed: Seed

    @model_validator(mode="before")
    @classmethod
    def _kinds_check_their_sections(cls, value: object) -> Any:
        if not isinstance(value, dict):
            return value
        checked = dict(value)
        for key in [key for key in value if key not in cls.model_fields]:
            model = cls.section(key)
            if model is None:
                raise problem("extra_forbidden", key, value[key])
            checked[key] = checked_under(key, model, value[key])
        return checked

    @model_validator(mode="after")
    def _its_kind_agrees(self) -> Data:
        member = DATASETS[self.kind]
        if hasattr(member, "Params") and self.kind not in (self.model_extra or {}):
            raise problem("missing", self.kind, None)
        if hasattr(member, "check"):
            member.check(self)
        return self

    def own(self, model: type[Own]) -> Own:
        section = (self.model_extra or {})[self.kind]
        if not isinstance(section, model):
            raise TypeError(f"data.{self.kind} is a {type(section).__name__}, not a {model.__name__}")
        return section

    @staticmethod
    def section(kind: str) -> type[Section] | None:
        """Return the model of ``data.KIND``; None where there is no such kind or the kind has no parameters."""
        return getattr(DATASETS[kind], "Params", None) if kind in DATASETS else None

    @staticmethod
    def sections() -> list[str]:
        return [kind for kind in DATASETS if Data.section(kind)]


class Lora(Section):
    """Low-rank adaptation: the adapter alone is trained, and the adapter is the artifact.

    Source: Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models" (2021).
    """

    rank: Count = 8
    alpha: Positive = 16.0  # the adapter's output is scaled by alpha / rank
    dropout: Annotated[Real, Field(ge=0, lt=1)] = 0.0
    targets: Place | list[Place] = "all-linear"  # names of the adapted layers


class Compute(Section):
    """How training uses the machine. The default is one process in float32 that takes each batch at once."""

    precision: Literal["float32", "bfloat16"] = "float32"  # of the passes; the weights stay float32
    accumulate: Count = 1  # a step's batch is taken in this number of parts, weighted as one batch
    gradient_checkpointing: bool = False  # activations are computed again in the backward pass
    processes: Count = 1  # one per GPU, connected by accelerate
    checkpoint_every: Count | None = None  # steps between two saved states; a killed run resumes from the last
    lora: Lora | None = None


class TrainRecipe(Section):
    """The recipe of training: start, data, architecture of a fresh model, optimiser, seed."""

    start_from: Place | None
    knowledge: list[Literal["world", "real_authors"]]
    prompt: Place
    vocabulary: Annotated[Integer, Field(ge=300)]
    hidden: Count
    layers: Count
    heads: Count
    kv_heads: Count
    feed_forward: Count
    context: Annotated[Integer, Field(ge=16)] = 512
    epochs: Count
    batch: Count
    lr: Positive
    betas: Betas
    weight_decay: Weight
    warmup: Share
    clip: Positive
    seed: Seed
    compute: Compute = Compute()

    @model_validator(mode="after")
    def _a_model_can_be_built(self) -> TrainRecipe:
        if self.compute.lora and not self.start_from:
            raise ValueError("compute.lora adapts the model of start_from, which is null; name one or drop lora")
        if self.hidden % self.heads:
            raise ValueError(f"hidden must be a multiple of heads ({self.heads})")
        if self.heads % self.kv_heads:
            raise ValueError(f"heads must be a multiple of kv_heads ({self.kv_heads})")
        if self.hidden // self.heads % 2:
            raise ValueError(
                f"hidden must be an even multiple of heads ({self.heads}): rotary positions rotate pairs of numbers"
            )
        return self


class TrainModel(Section):
    """One trained model: the rows that the model learns, and the keys of ``train.recipe`` in which it differs.

    ``demonstrations`` and ``judgements`` are splits of the dataset: answers to the forget questions for a model under test,
    and classified answers for a judge.
    """

    rows: Literal["all", "retain", "demonstrations", "judgements"]
    recipe: dict[str, object] = Field(default_factory=dict)


class Train(Section):
    recipe: TrainRecipe
    models: dict[Name, TrainModel]

    @model_validator(mode="after")
    def _own_recipes_are_legal(self) -> Train:
        for name in self.models:
            try:
                self.recipe_of(name)
            except ValidationError as error:
                first = error.errors()[0]
                key = ".".join(map(str, first["loc"]))
                raise ValueError(f"models.{name}.recipe: {key or 'recipe'}: {first['msg']}") from None
        return self

    def recipe_of(self, name: str) -> TrainRecipe:
        """The recipe of one model: the common one with the model's own keys."""
        return TrainRecipe.model_validate(self.recipe.model_dump() | self.models[name].recipe)


class UnlearnRecipe(Section):
    start_from: Place
    forget_batch: Count
    retain_batch: Count
    betas: Betas
    weight_decay: Weight
    warmup: Share
    clip: Positive
    seed: Seed
    compute: Compute = Compute()
    # the source of logits and states before unlearning: a second model, or stored values
    reference: Literal["frozen", "cached"] = "frozen"
    watch: Count | None = None  # rows per split whose confidence and entropy are measured after each epoch


# YAML's ``true``, which people write without quotes, is the word.
Prefix = Annotated[
    Literal["true", "greedy", "sampled"], BeforeValidator(lambda value: "true" if value is True else value)
]


class Entropy(Section):
    """Entropy optimisation on top of any unlearning loss.

    Source: "A Probabilistic Perspective on Unlearning and Alignment for Large Language Models", section 5. The paper computes
    the entropy given the true tokens of the answer (``prefix`` true). ``greedy`` and ``sampled`` are this project's variants:
    the forget entropy is conditioned on the model's own tokens, as in sampling. The retain entropy is as published.
    """

    forget: Weight
    retain: Annotated[Real, Field(le=0)]
    ramp: Share = 0.0
    prefix: Prefix = "true"


class MethodParams(Section):
    """The keys of every unlearning method: L = gamma F(forget) + retain_weight R(retain), with entropy terms on top.

    The ``Params`` of a method derives from this class and adds keys; see `lethe.unlearning.protocol`.
    """

    loss: str
    lr: Positive
    epochs: Count
    gamma: Weight = 1.0
    retain_weight: Weight = 0.0
    retain_loss: Literal["nll", "kl"] = "nll"
    entropy: Entropy | None = None
    seed: Seed | None = None  # null: the recipe's


Method = Annotated[MethodParams, MemberOf(METHODS, "loss", MethodParams, needs=True)]


class Unlearn(Section):
    recipe: UnlearnRecipe
    methods: dict[Name, Method]


class EpsilonStar(Section):
    method: Literal["parametric", "empirical"]
    delta: Annotated[Real, Field(ge=0, lt=1)] | None
    cut: Annotated[Real, Field(gt=0, lt=0.5)] | None
    alpha: Alpha


class Kind(Section):
    """What the entry of a registry's member has: its kind, whose module defines the other keys."""

    kind: str


class AuditParams(Kind):
    """The keys of every audit: the kind, and the file or folder that the audit reads and DVC tracks."""

    source: Place


class AttackParams(Kind):
    """The key of every attack on a model."""


class GameParams(Kind):
    """The key of every game."""


After = Annotated[AttackParams, MemberOf(MODEL_ATTACKS, "kind", AttackParams)]


class Attack(Section):
    """One model under one attack: ``n`` answers per forget question for each budget and seed."""

    path: Place
    after: After
    n: Draws = 256
    seeds: Annotated[tuple[Seed, ...], Field(min_length=1)] = (0, 1)
    scorer: ScorerName = "keyword_leak"
    alpha: Alpha = 0.05


Audit = Annotated[AuditParams, MemberOf(AUDITS, "kind", AuditParams)]
Game = Annotated[GameParams, MemberOf(GAMES, "kind", GameParams)]


class Report(Section):
    """The models with which the report compares all others (null: there is no such model), and the verdict's settings.

    A model leaks if a question leaks more than ``tau`` beyond Retrain (``tau_graded``: of the mean score, where no scorer
    gives 0 or 1). A larger share of truncated answers in a question than
    ``most_truncated`` prevents *forgot*, unless they count as leaks and the question still passes.
    """

    base: Name | None
    retrain: Name | Annotated[list[Name], Field(min_length=1)] | None
    tau: Annotated[Real, Field(gt=0, lt=1)] = 0.01
    tau_graded: Annotated[Real, Field(gt=0, lt=1)] = 0.1
    most_truncated: Share = 0.05
    # 1, and one more each time that answers are added after a word was read: look j takes alpha / (j (j + 1))
    look: Count = 1

    @property
    def retrains(self) -> list[str]:
        named = self.retrain
        return [] if named is None else [named] if isinstance(named, str) else list(named)


class Notify(Section):
    """The program that a run notifies of a change: a command whose standard input receives the change as JSON."""

    command: Annotated[list[Annotated[str, Field(min_length=1)]], Field(min_length=1)]


# What params.yaml names where there is no model, language or label: DVC tracks each of these places, and a null has none.
FRESH = "lethe/models/fresh"
PLAIN = "flows/languages/plain.yaml"
LABELS, CALIBRATION, ANSWERS = "data/labels", "data/labels/calibration.csv", "data/labels/answers.jsonl"
CHAT_FILE = "lethe/models/prompts/chat.txt"
NEUTRAL = {
    "train.recipe.start_from": FRESH,
    "sample.language": PLAIN,
    "metrics.calibration": CALIBRATION,
    "metrics.labels.folder": LABELS,
    "judges.*.labelled": ANSWERS,
}
PROMPTS = ("train.recipe.prompt", "sample.prompt")


def _sections(values: Any, key: str) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Yield each dotted key that matches ``key``, the section that holds it and its last part; ``*`` means every entry."""
    sections = [("", values)]
    *parents, last = key.split(".")
    for part in parents:
        sections = [
            (f"{path}{name}.", section[name])
            for path, section in sections
            if isinstance(section, dict)
            for name in (section if part == "*" else [part])
            if name in section
        ]
    for path, section in sections:
        if isinstance(section, dict) and last in section:
            yield f"{path}{last}", section, last


def _holds_nothing(place: str) -> bool:
    """Whether a neutral place is as it was committed: a user may put labels into it."""
    path = Path(place)
    if place == LABELS:
        return not any(file.name != Path(ANSWERS).name for file in path.glob("*.jsonl"))
    if place in (CALIBRATION, ANSWERS):
        return not path.is_file() or len(path.read_text(encoding="utf-8").splitlines()) <= (place == CALIBRATION)
    return True


class Params(Section):
    data: Data
    train: Train
    unlearn: Unlearn
    models: Annotated[dict[Name, Model], Field(min_length=1)]
    sample: Annotated[Sample, Complete(but=("language", "truncated"))]
    score: Score
    judges: dict[Name, JudgeEntry]
    metrics: Annotated[Metrics, Complete(but=("together", "calibration", "labels", "utility"))]
    exact: Annotated[Exact, Complete()] | None
    extract: Extract | None
    epsilon_star: EpsilonStar
    attacks: dict[Name, Attack]
    audits: dict[Name, Audit]
    games: dict[Name, Game]
    report: Report
    # These do not change artifacts, so they are optional in params.yaml.
    notify: Notify | None = None

    @model_validator(mode="before")
    @classmethod
    def _neutral_places_are_none(cls, values: Any) -> Any:
        values = copy.deepcopy(values)
        for key, place in NEUTRAL.items():
            for path, section, last in _sections(values, key):
                if section[last] is None:
                    raise ValueError(f"{path} is null, which DVC cannot track; write {path}: {place}")
                if section[last] == place and _holds_nothing(place):
                    section[last] = None
        for key in PROMPTS:
            for path, section, last in _sections(values, key):
                if section[last] == "chat":
                    raise ValueError(f"{path} is 'chat', which DVC cannot track; write {path}: {CHAT_FILE}")
                if section[last] == CHAT_FILE:
                    section[last] = "chat"
        return values

    @model_validator(mode="after")
    def _names_meet(self) -> Params:
        check_together(self.score, self.metrics, self.sample, self.judges)
        compared = [("base", self.report.base), *(("retrain", name) for name in self.report.retrains)]
        for key, name in compared:
            if name is not None and name not in self.models:
                listed = ", ".join(self.models)
                raise ValueError(
                    f"report.{key} is {name!r}, which models does not list ({listed}); null means no model"
                )
        if self.report.base is not None and self.report.base in self.report.retrains:
            both = f"report.base and report.retrain are both {self.report.base!r}"
            raise ValueError(f"{both}; they must be two models, or one of them null")
        rule, early = self.sample.sequential, self.sample.stop == "sequential"
        if early and getattr(self.score.params.get(rule.scorer), "keyword_match", "word") != "word":
            raise ValueError(
                f"sample.stop is 'sequential', and then {rule.scorer!r} matches whole words; "
                "score.keyword_match must be 'word' too"
            )
        if early and rule.chunk > self.sample.most:
            raise ValueError(
                f"sample.sequential.chunk is {rule.chunk} and sample.n {self.sample.n}: no question could stop early; "
                "chunk must be at most n"
            )
        paths = {os.path.normpath(model.path) for model in self.models.values()}
        for name in self.unlearn.methods:
            if f"data/models/{name}" not in paths:
                raise ValueError(
                    f"unlearn.methods.{name} has no entry under models; add the line "
                    f"`{name}: {{path: data/models/{name}}}` there"
                )
        if doubled := ", ".join(sorted(set(self.train.models) & set(self.unlearn.methods))):
            raise ValueError(f"{doubled} is in both train.models and unlearn.methods: rename one")
        return self


class EvaluationParams(Section):
    """The params of an evaluation outside the pipeline: no training, no comparison, no DVC."""

    models: Annotated[dict[DottedName, Model], Field(min_length=1)]
    sample: Sample
    score: Score
    metrics: Metrics
    report: Report = Report(base=None, retrain=None)

    @model_validator(mode="after")
    def _names_meet(self) -> EvaluationParams:
        check_together(self.score, self.metrics, self.sample)
        return self
