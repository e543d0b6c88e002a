"""The schema of params.yaml. Only params.yaml holds defaults of the pipeline, so that DVC sees every value."""

import copy
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Literal, Self, TypeVar

from pydantic import BeforeValidator, Field, SerializeAsAny, ValidationError, model_validator

from lethe.config import fields, measuring, seeds
from lethe.config.twins import Twins
from lethe.io.files import Json
from lethe.io.label_places import ANSWERS, CALIBRATION, LABELS, PLACES
from lethe.registry import AUDITS, DATASETS, GAMES, METHODS, MODEL_ATTACKS, SCORERS

if TYPE_CHECKING:
    import numpy as np

FILE = "params.yaml"
SHARES = {
    "forget01": 0.01,
    "forget05": 0.05,
    "forget10": 0.10,
}  # shares of the learned authors, as in TOFU


OfKind = TypeVar("OfKind", bound=fields.Section)


class Data(fields.Section, extra="allow"):
    """The dataset. The parameters of one kind are in a section with the name of the kind: ``data.authors``."""

    kind: Annotated[str, fields.NameIn((DATASETS,), quoted=True)]
    source: fields.Place
    forget: Literal["forget01", "forget05", "forget10"]
    seed: fields.Seed

    @model_validator(mode="before")
    @classmethod
    def _kinds_check_their_sections(cls, value: object) -> object:
        if not isinstance(value, dict):
            return value
        checked = dict(value)
        for key in value:
            if key in cls.model_fields:
                continue
            model = cls.section(key)
            if model is None:
                raise fields.problem("extra_forbidden", key, value[key])
            checked[key] = fields.checked_under(key, model, value[key])
        return checked

    @model_validator(mode="after")
    def _its_kind_agrees(self) -> Self:
        member = DATASETS[self.kind]
        if hasattr(member, "Params") and self.kind not in (self.model_extra or {}):
            raise fields.problem("missing", self.kind, None)
        if hasattr(member, "check"):
            member.check(self)
        return self

    def of_kind(self, model: type[OfKind]) -> OfKind:
        """Return the section of the kind's own parameters, whose class must be ``model``."""
        section = (self.model_extra or {})[self.kind]
        if not isinstance(section, model):
            raise TypeError(
                f"data.{self.kind} is a {type(section).__name__}, not a {model.__name__}"
            )
        return section

    @staticmethod
    def section(kind: str) -> type[fields.Section] | None:
        """Return the model of ``data.KIND``; None where there is no such kind or the kind has no parameters."""
        if kind not in DATASETS:
            return None
        return getattr(DATASETS[kind], "Params", None)

    @staticmethod
    def sections() -> dict[str, type[fields.Section]]:
        """Return the model of ``data.KIND`` of each kind that has parameters."""
        models: dict[str, type[fields.Section]] = {}
        for kind in DATASETS:
            model = Data.section(kind)
            if model is not None:
                models[kind] = model
        return models


class Lora(fields.Section):
    """Low-rank adaptation (Hu et al. 2021): the adapter alone is trained, and is the artifact."""

    rank: fields.Count = 8
    alpha: fields.Positive = 16.0  # the adapter's output is scaled by alpha / rank
    dropout: Annotated[fields.Real, Field(ge=0, lt=1)] = 0.0
    targets: fields.Place | list[fields.Place] = "all-linear"  # names of the adapted layers


class Compute(fields.Section):
    """How training uses the machine. The default is one process in float32 that takes each batch at once."""

    precision: Literal["float32", "bfloat16"] = "float32"  # of the passes; the weights stay float32
    accumulate: fields.Count = (
        1  # a step's batch is taken in this number of parts, weighted as one batch
    )
    gradient_checkpointing: bool = False  # activations are computed again in the backward pass
    processes: fields.Count = 1  # one per GPU, connected by accelerate
    # steps between two saved states; a killed run resumes from the last
    checkpoint_every: fields.Count | None = None
    lora: Lora | None = None


class Recipe(fields.Section):
    """What training and unlearning have in common: AdamW, its schedule, the seed, and the use of the machine."""

    betas: fields.Betas
    weight_decay: fields.Weight
    warmup: fields.Share
    clip: fields.Positive
    seed: fields.Seed
    compute: Compute = Compute()


class TrainRecipe(Recipe):
    """The recipe of training: start, data, architecture of a fresh model, optimiser, seed."""

    start_from: fields.Place | None
    knowledge: list[Literal["world", "real_authors"]]
    prompt: fields.Place
    vocabulary: Annotated[fields.Integer, Field(ge=300)]
    hidden: fields.Count
    layers: fields.Count
    heads: fields.Count
    kv_heads: fields.Count
    feed_forward: fields.Count
    context: Annotated[fields.Integer, Field(ge=16)] = 512
    epochs: fields.Count
    batch: fields.Count
    lr: fields.Positive

    @model_validator(mode="after")
    def _a_model_can_be_built(self) -> Self:
        if self.compute.lora and not self.start_from:
            raise ValueError(
                "compute.lora adapts the model of start_from, which is null; name one or drop lora"
            )
        if self.hidden % self.heads:
            raise ValueError(f"hidden must be a multiple of heads ({self.heads})")
        if self.heads % self.kv_heads:
            raise ValueError(f"heads must be a multiple of kv_heads ({self.kv_heads})")
        if self.hidden // self.heads % 2:
            why = "rotary positions rotate pairs"
            raise ValueError(f"hidden must be an even multiple of heads ({self.heads}): {why}")
        return self


class TrainModel(fields.Section):
    """One trained model: its rows, and the keys of ``train.recipe`` in which it differs.

    ``demonstrations`` are answers to the forget questions for a model under test, ``judgements`` classified ones for a judge.
    """

    rows: Literal["all", "retain", "demonstrations", "judgements"]
    recipe: dict[str, object] = Field(default_factory=dict)
    same_as: fields.Name | None = None  # the entry with `seeds` that this seed belongs to


class Train(fields.Section):
    """The models to train from scratch or to fine-tune, and their common recipe."""

    recipe: TrainRecipe
    models: dict[fields.Name, TrainModel]

    @model_validator(mode="after")
    def _own_recipes_are_legal(self) -> Self:
        for name in self.models:
            try:
                TrainRecipe.model_validate(self.recipe.model_dump() | self.models[name].recipe)
            except ValidationError as error:
                first = error.errors()[0]
                key = ".".join(map(str, first["loc"]))
                raise ValueError(
                    f"models.{name}.recipe: {key or 'recipe'}: {first['msg']}"
                ) from None
        return self


class UnlearnRecipe(Recipe):
    """What all unlearning methods share: the model to start from, batches, optimiser and computation."""

    start_from: fields.Place
    forget_batch: fields.Count
    retain_batch: fields.Count
    # the source of logits and states before unlearning: a second model, or stored values
    reference: Literal["frozen", "cached"] = "frozen"
    # rows per split whose confidence and entropy are measured after each epoch
    watch: fields.Count | None = None
    # epochs between two points at which the model is sampled and scored
    measure_every: fields.Count | None = None


# YAML's ``true``, which people write without quotes, is the word.
Prefix = Annotated[
    Literal["true", "greedy", "sampled"],
    BeforeValidator(lambda value: "true" if value is True else value),
]


Positions = Literal["answer", "all"]  # of the tokens whose entropy counts


class Entropy(fields.Section):
    """Entropy optimisation on top of any unlearning loss.

    Source: "A Probabilistic Perspective on Unlearning and Alignment for Large Language Models", section 5: the entropy given
    the true tokens of the answer (``prefix`` true). ``greedy`` and ``sampled`` are this project's variants: the forget
    entropy is conditioned on the model's own tokens. The retain entropy is as published. ``positions`` all takes the tokens
    of the question too, as the authors' code does, which also counts padding up to 256 tokens.
    """

    forget: fields.Weight
    retain: Annotated[fields.Real, Field(le=0)]
    ramp: fields.Share = 0.0
    prefix: Prefix = "true"
    positions: Positions = "answer"


class MethodParams(fields.Section):
    """The keys of every unlearning method: L = gamma F(forget) + retain_weight R(retain), with entropy terms on top.

    The ``Params`` of a method derives from this class and adds keys; see `lethe.unlearning.protocol`.
    """

    loss: str
    lr: fields.Positive
    epochs: fields.Count
    gamma: fields.Weight = 1.0
    retain_weight: fields.Weight = 0.0
    retain_loss: Literal["nll", "kl"] = "nll"
    entropy: Entropy | None = None
    seed: fields.Seed | None = None  # null: the recipe's
    same_as: fields.Name | None = None  # the entry with `seeds` that this seed belongs to


Method = Annotated[MethodParams, fields.MemberOf(METHODS, "loss", MethodParams, needs=True)]


class Unlearn(fields.Section):
    """The unlearning methods by name, each with its own parameters, and their common recipe."""

    recipe: UnlearnRecipe
    methods: dict[fields.Name, Method]


class Along(fields.Section):
    """How a model is measured at points along unlearning: the scorer of forget answers and that of retain answers.

    ``n`` answers to each question; ``questions`` of the retain set, and the whole forget set.
    """

    drawing: measuring.Drawing
    prompt: fields.Place
    seed: fields.Seed
    n: fields.Draws
    questions: fields.Count
    leak: str
    utility: str
    scorers: dict[str, SerializeAsAny[measuring.ScorerParams]]
    alpha: fields.Alpha


class EpsilonStarSettings(fields.Section):
    """How Epsilon* is estimated and bounded; without ``delta`` it follows from the number of members."""

    method: Literal["parametric", "empirical"]
    delta: Annotated[fields.Real, Field(ge=0, lt=1)] | None
    cut: Annotated[fields.Real, Field(gt=0, lt=0.5)] | None
    alpha: fields.Alpha


class Kind(fields.Section):
    """What the entry of a registry's member has: its kind, whose module defines the other keys."""

    kind: str


class AuditParams(Kind):
    """The keys of every audit: the kind, and the file or folder that the audit reads and DVC tracks."""

    source: fields.Place


AttackParams = Kind  # attacks on models, and games, have no other common key
GameParams = Kind
After = Annotated[AttackParams, fields.MemberOf(MODEL_ATTACKS, "kind", AttackParams)]


class Attack(fields.Section):
    """One model under one attack: ``n`` answers per forget question for each budget and seed."""

    path: fields.Place
    after: After
    n: fields.Draws = 256
    seeds: Annotated[tuple[fields.Seed, ...], Field(min_length=1)] = (0, 1)
    scorer: measuring.ScorerName = "keyword_leak"
    alpha: fields.Alpha = 0.05


class Ranges(fields.Section):
    """The ranges from which a population draws attacks of one kind, and how often it draws this kind.

    The ``Ranges`` of an attack derives from this class; see `lethe.attacks.protocol`.
    """

    weight: fields.Positive = 1.0  # kinds are drawn in proportion to their weights

    def drawn(self, rng: "np.random.Generator") -> dict[str, object]:
        """Return the parameters of an attack with a single budget, but for its kind."""
        raise NotImplementedError(f"{type(self).__module__} does not define drawn")


class AttackRecipe(fields.Section, extra="allow"):
    """The kinds of attacks of a population, each with its ranges: ``population.noise``."""

    @model_validator(mode="before")
    @classmethod
    def _kinds_check_their_ranges(cls, value: object) -> object:
        if not isinstance(value, dict):
            return value
        models = cls.sections()
        checked = {}
        for kind, ranges in value.items():
            if kind not in models:
                raise fields.problem("extra_forbidden", kind, ranges)
            checked[kind] = fields.checked_under(kind, models[kind], ranges)
        if not checked:
            raise ValueError(f"at least one of the kinds {', '.join(models)}")
        return checked

    @property
    def kinds(self) -> dict[str, Ranges]:
        """The ranges by kind, in the order of the alphabet, on which a draw depends."""
        return dict(sorted((self.model_extra or {}).items()))

    @staticmethod
    def sections() -> dict[str, type[Ranges]]:
        """The models of the ranges by the kinds that can be drawn."""
        models = {}
        for kind in MODEL_ATTACKS:
            ranges = getattr(MODEL_ATTACKS[kind], "Ranges", None)
            if ranges is not None:
                models[kind] = ranges
        return models


Within = Annotated[fields.Real, Field(gt=0, lt=1)]  # a share that is neither 0 nor 1


class Population(fields.Section):
    """One model under attacks that are drawn from a recipe, until it is known whether more than ``goal`` of them succeed.

    An attack succeeds if it brings a question above ``tau``. Each end of the share fails with probability ``alpha``.
    """

    path: fields.Place
    population: AttackRecipe
    draws: Annotated[fields.Draws | Literal["auto"], fields.OrAuto()] = "auto"  # at most
    goal: Within = 0.01
    tau: Within = 0.01
    alpha: fields.Alpha = 0.05
    n: fields.Draws = 4096  # at most so many answers to a question of an attacked model
    rows: fields.Natural = (
        0  # tokens of an answer tree for each question, whose certain ends decide before any draw
    )
    seed: fields.Seed = 0
    scorer: measuring.ScorerName = "keyword_leak"


Attacks = Annotated[
    Attack | Population, fields.WithKey("population", has=Population, has_not=Attack)
]
Audit = Annotated[AuditParams, fields.MemberOf(AUDITS, "kind", AuditParams)]
Game = Annotated[GameParams, fields.MemberOf(GAMES, "kind", GameParams)]


class ReportSettings(fields.Section):
    """The models with which the report compares the others (null: none), and the settings of the verdict (docs/verdict.md).

    ``tau_graded`` is of the mean score, where no scorer gives 0 or 1. More truncated answers in a question than the share
    ``most_truncated`` prevent *forgot*, unless they count as leaks and the question still passes.
    """

    base: fields.Name | None
    retrain: fields.Name | Annotated[list[fields.Name], Field(min_length=1)] | None
    tau: Annotated[fields.Real, Field(gt=0, lt=1)] = 0.01
    tau_graded: Annotated[fields.Real, Field(gt=0, lt=1)] = 0.1
    most_truncated: fields.Share = 0.05
    # those that share alpha, fixed before answers are read; null: the models under test
    models: fields.Count | None = None
    # whether equal seeds of two methods are pairs when the methods are compared over seeds
    paired_seeds: bool = False

    @property
    def retrains(self) -> list[str]:
        """The models that never saw the forget set; the first is the Retrain that others are compared with."""
        if self.retrain is None:
            return []
        if isinstance(self.retrain, str):
            return [self.retrain]
        return [*self.retrain]


class Notify(fields.Section):
    """The program that a run notifies of a change: a command whose standard input receives the change as JSON."""

    command: Annotated[list[Annotated[str, Field(min_length=1)]], Field(min_length=1)]


# What params.yaml names where there is no model, language or label: DVC tracks each of these places, and a null has none.
FRESH = "lethe/models/fresh"
PLAIN = "flows/languages/plain.yaml"
CHAT_FILE = "lethe/models/prompts/chat.txt"
NEUTRAL = {
    "train.recipe.start_from": FRESH,
    "sample.language": PLAIN,
    # Whether somebody put labels there is for the stages to see (`lethe.io.label_places.filled`): it is no setting.
    "metrics.calibration": CALIBRATION,
    "metrics.labels.folder": LABELS,
    "judges.*.labelled": ANSWERS,
}
PROMPTS = ("train.recipe.prompt", "sample.prompt")


def _sections(values: Json, key: str) -> Iterator[tuple[str, dict[str, Json], str]]:
    """Yield each dotted key that matches ``key``, the section that holds it and its last part; ``*`` means every entry."""
    yield from _below(values, key.split("."), "")


def _below(
    section: Json, parts: Sequence[str], path: str
) -> Iterator[tuple[str, dict[str, Json], str]]:
    """Yield what `_sections` does for the rest of a key below ``section``, whose own key with a dot is ``path``."""
    if not isinstance(section, dict):
        return
    part, *rest = parts
    if not rest:
        if part in section:
            yield f"{path}{part}", section, part
        return
    names = [*section] if part == "*" else [part]
    for name in names:
        if name in section:
            yield from _below(section[name], rest, f"{path}{name}.")


class Params(fields.Section):
    """The whole of params.yaml, in the order in which a researcher edits it."""

    data: Data
    train: Train
    unlearn: Unlearn
    models: Annotated[dict[fields.Name, measuring.ModelEntry], Field(min_length=1)]
    sample: Annotated[measuring.SampleSettings, fields.Complete(but=("language", "truncated"))]
    score: measuring.ScoreSettings
    judges: dict[fields.Name, measuring.JudgeEntry]
    metrics: Annotated[
        measuring.Metrics, fields.Complete(but=("together", "calibration", "labels", "utility"))
    ]
    exact: Annotated[measuring.Exact, fields.Complete()] | None
    extract: measuring.Extract | None
    epsilon_star: EpsilonStarSettings
    twins: Annotated[Twins, fields.Complete()] | None
    utility: Annotated[measuring.Utility, fields.Complete()]
    attacks: dict[fields.Name, Attacks]
    audits: dict[fields.Name, Audit]
    games: dict[fields.Name, Game]
    report: ReportSettings
    # These do not change artifacts, so they are optional in params.yaml.
    notify: Notify | None = None

    @property
    def subjects(self) -> list[str]:
        """The names of the models under test: all but Base and Retrain."""
        references = {self.report.base, *self.report.retrains}
        return [name for name in self.models if name not in references]

    @property
    def sharing(self) -> int:
        """The number of models that share alpha: those under test, or more where `report.models` says so."""
        return max(1, len(self.subjects), self.report.models or 1)

    def asked(self, name: str) -> measuring.SampleSettings:
        """The settings of sampling of one model, with what its entry puts in their place."""
        return self.models[name].asked(self.sample)

    @property
    def along(self) -> Along | None:
        """How points along unlearning are measured; None where `unlearn.recipe.measure_every` is null."""
        if self.unlearn.recipe.measure_every is None:
            return None
        sample = self.sample
        leak = self.metrics.binary or self.metrics.leak
        utility = self.metrics.utility_scorer
        params = self.score.params
        return Along(
            drawing=measuring.Drawing(
                temperature=sample.temperature,
                top_p=sample.top_p,
                top_k=sample.top_k,
                max_new_tokens=sample.max_new_tokens,
            ),
            prompt=sample.prompt,
            seed=sample.seed,
            n=sample.utility_n,
            questions=sample.utility_questions,
            leak=leak,
            utility=utility,
            scorers={name: params[name] for name in params if name in (leak, utility)},
            alpha=self.metrics.alpha,
        )

    @property
    def secrets_are_drawn(self) -> bool:
        """Whether the forget set's secrets are tested: then no model may read them but by training on them."""
        return self.twins is not None

    @model_validator(mode="before")
    @classmethod
    def _neutral_places_are_none(cls, values: Json) -> Json:
        values = copy.deepcopy(values)
        for key, place in NEUTRAL.items():
            for path, section, last in _sections(values, key):
                if section[last] is None:
                    raise ValueError(
                        f"{path} is null, which DVC cannot track; write {path}: {place}"
                    )
                if section[last] == place and place not in PLACES:
                    section[last] = None
        for key in PROMPTS:
            for path, section, last in _sections(values, key):
                if section[last] == "chat":
                    raise ValueError(
                        f"{path} is 'chat', which DVC cannot track; write {path}: {CHAT_FILE}"
                    )
                if section[last] == CHAT_FILE:
                    section[last] = "chat"
        return values

    @model_validator(mode="before")
    @classmethod
    def _seeds_are_entries(cls, values: Json) -> Json:
        if not isinstance(values, dict):
            return values
        return seeds.resolved(copy.deepcopy(values))

    @model_validator(mode="after")
    def _names_meet(self) -> Self:
        measuring.check_together(self.score, self.metrics, self.sample, self.judges)
        if self.report.base is not None:
            self._check_listed("base", self.report.base)
        for name in self.report.retrains:
            self._check_listed("retrain", name)
        for name, attack in self.attacks.items():
            self._check_attacked(name, attack.path)
            if isinstance(attack, Population):
                self._check_population(name, attack)
        if self.report.base is not None and self.report.base in self.report.retrains:
            both = f"report.base and report.retrain are both {self.report.base!r}"
            raise ValueError(f"{both}; they must be two models, or one of them null")
        for name in self.report.retrains:
            model = self.models[name]
            inside = os.path.normpath(model.path).startswith("data/models/")
            if self.sample.stop == "word" and model.served is None and not inside:
                stated = f"report.retrain is {name!r}, whose path is {model.path}"
                needed = "its path must lie below data/models, where DVC sees its change, or use stop: fixed"
                raise ValueError(f"{stated}; with sample.stop 'word' {needed}")
        self._check_deciding_judge()
        self._check_asked()
        self._check_measured_along()
        paths = {os.path.normpath(model.path) for model in self.models.values()}
        for name in self.unlearn.methods:
            if f"data/models/{name}" not in paths:
                line = f"`{name}: {{path: data/models/{name}}}`"
                raise ValueError(
                    f"unlearn.methods.{name} has no entry under models; add the line {line} there"
                )
        doubled = ", ".join(sorted(set(self.train.models) & set(self.unlearn.methods)))
        if doubled:
            raise ValueError(f"{doubled} is in both train.models and unlearn.methods: rename one")
        return self

    @property
    def deciding_weights(self) -> str | None:
        """The folder of weights that decides what a leak is; None where no judge with weights here does."""
        binary = self.metrics.binary or ""
        params = self.score.params.get(binary)
        if binary in self.judges:
            params = self.judges[binary].params
        if hasattr(params, "endpoint"):
            return None
        return getattr(params, "model", None)

    def _check_deciding_judge(self) -> None:
        """Refuse weights that decide when draws end and that somebody may replace without DVC's knowledge."""
        folder = self.deciding_weights
        if self.sample.stop == "fixed" or folder is None:
            return
        if not os.path.normpath(folder).startswith(("data/models/", "data/source/")):
            raise ValueError(
                f"metrics.binary is {self.metrics.binary!r}, whose weights lie at {folder}; with sample.stop 'word' they "
                f"must lie below data/models or data/source, where DVC sees their change, or use stop: fixed"
            )

    def _check_asked(self) -> None:
        """Refuse a model that is asked differently where the draws follow the comparison with Retrain, asked as it is."""
        for name, model in self.models.items():
            if self.sample.stop == "word" and model.is_asked_differently:
                raise ValueError(
                    f"models.{name} has prompt, chat or max_new_tokens, so it is not asked as its Retrain; "
                    f"with sample.stop 'word' remove these keys, or use stop: fixed"
                )

    def _check_measured_along(self) -> None:
        """Refuse points along unlearning that no text scorer of whole answers can measure."""
        along = self.along
        if along is None:
            return
        stated = "unlearn.recipe.measure_every is set, and points along unlearning are scored by text scorers"
        for key, scorer in (("leak", along.leak), ("utility", along.utility)):
            if scorer not in SCORERS:
                raise ValueError(
                    f"{stated}, but the scorer of {key} is {scorer!r}, a model judge; set measure_every: null"
                )
        if self.score.parts is not None:
            raise ValueError(f"{stated} of whole answers; score.parts must be null")

    def _check_attacked(self, attack: str, path: str) -> None:
        """Refuse an attack on a model that is asked differently: attacks ask as ``sample`` says."""
        for name, model in self.models.items():
            is_attacked = os.path.normpath(model.path) == os.path.normpath(path)
            if is_attacked and model.is_asked_differently:
                raise ValueError(
                    f"attacks.{attack}.path is that of models.{name}, which has prompt, chat or max_new_tokens, "
                    f"and attacks ask as sample says; write these values under sample instead"
                )

    def _check_population(self, name: str, attack: Population) -> None:
        """Refuse a scorer that is not 0 or 1, or whose parameters an answer tree does not know."""
        scorer = attack.scorer
        if scorer not in measuring.binary_scorers():
            legal = ", ".join(measuring.binary_scorers())
            stated = f"attacks.{name}.scorer is {scorer!r}, whose scores are not 0 or 1"
            raise ValueError(f"{stated}; of a population it must be one of {legal}")
        of_trees = measuring.scorer_params(scorer).model_dump()
        of_draws = of_trees
        if scorer in self.score.params:
            of_draws = self.score.params[scorer].model_dump()
        if scorer == "keyword_leak":
            of_trees = {"keyword_match": self.score.keyword_match}
        if attack.rows > 0 and of_draws != of_trees:
            raise ValueError(
                f"attacks.{name}.rows is {attack.rows}, and an answer tree judges by {scorer} without the parameters "
                f"that its draws have; list {scorer} by its name alone in score.scorers, or set rows: 0"
            )

    def _check_listed(self, key: str, name: str) -> None:
        """Refuse a name of the report that is no model."""
        if name not in self.models:
            listed = ", ".join(self.models)
            raise ValueError(
                f"report.{key} is {name!r}, which models does not list ({listed}), nor null"
            )


class EvaluationParams(fields.Section):
    """The params of an evaluation outside the pipeline: no training, no comparison, no DVC."""

    models: Annotated[dict[fields.DottedName, measuring.ModelEntry], Field(min_length=1)]
    sample: measuring.SampleSettings
    score: measuring.ScoreSettings
    metrics: measuring.Metrics
    report: ReportSettings = ReportSettings(base=None, retrain=None)

    @model_validator(mode="after")
    def _names_meet(self) -> Self:
        measuring.check_together(self.score, self.metrics, self.sample)
        return self
