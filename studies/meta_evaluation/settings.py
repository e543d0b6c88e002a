"""The schema of a meta-evaluation: its pools of models, its attacks and its rules, all fixed before the first run."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from lethe import config
from lethe.config import Params
from lethe.config.fields import (
    Alpha,
    Count,
    Draws,
    Integer,
    Name,
    NameIn,
    Place,
    Positive,
    Real,
    Section,
    Seed,
    Share,
)
from lethe.config.schema import Method
from lethe.errors import BadInput
from lethe.registry import SCORERS

Knows = Literal["all", "paraphrased", "part", "other_form"]
Lacks = Literal["retain", "wrong"]
Number = Annotated[str, Field(min_length=1)]  # the name of a number, such as mean@1024


class Recipe(Section):
    """The keys of ``train.recipe`` in which the models of a pool differ."""

    epochs: Count
    lr: Positive


class Pool(Section):
    """Models whose knowledge is known: counts by what they learned, or the folders of given checkpoints.

    ``all``: the forget set as it is; ``paraphrased``: its paraphrased answers only; ``part``: a random share ``part`` of
    its questions; ``other_form``: the facts under another question. ``retain``: nothing of it; ``wrong``: its questions
    with a wrong answer. Model number i takes recipe i mod the number of recipes, and a seed of its own. A model whose utility
    is below ``utility`` times that of the first model that knows counts in no AUC, so that the pools do not differ by the
    quality of training.
    """

    knows: dict[Knows, Count] = Field(default_factory=dict)
    lacks: dict[Lacks, Count] = Field(default_factory=dict)
    recipes: tuple[Recipe, ...] = ()
    part: Annotated[Real, Field(gt=0, lt=1)] = 0.5
    utility: Share = 0.8
    knows_paths: tuple[Place, ...] = ()
    lacks_paths: tuple[Place, ...] = ()

    @model_validator(mode="after")
    def _both_sides_are_there(self) -> Pool:
        for side, trained, given in (
            ("knows", self.knows, self.knows_paths),
            ("lacks", self.lacks, self.lacks_paths),
        ):
            if bool(trained) == bool(given):
                raise ValueError(f"the pool needs either {side} or {side}_paths, with two models at least")
            if (sum(trained.values()) or len(given)) < 2:
                raise ValueError(f"{side} has one model; an AUC over models needs two models at least")
        if (self.knows or self.lacks) and not self.recipes:
            raise ValueError("recipes is empty; models that are trained need one recipe at least")
        if self.knows and next(iter(self.knows)) != "all":
            raise ValueError("knows must begin with all: its first model is the one that is unlearned")
        if self.lacks and next(iter(self.lacks)) != "retain":
            raise ValueError("lacks must begin with retain: its first model is the Retrain of every comparison")
        return self


class Unlearned(Section):
    """The unlearned models: every entry of ``methods`` of params.yaml's kind, or the folders of given checkpoints.

    ``methods`` has entries as ``unlearn.methods``; each is trained with its learning rate times every one of
    ``strengths`` and with ``seeds`` seeds. A model whose utility is below ``utility`` times that of the model before
    unlearning counts in no average of R and Q, as in OpenUnlearning.
    """

    methods: dict[Name, Method] = Field(default_factory=dict)
    strengths: Annotated[tuple[Positive, ...], Field(min_length=1)] = (0.5, 1.0, 2.0)
    seeds: Count = 2
    paths: tuple[Place, ...] = ()
    utility: Share = 0.8

    @model_validator(mode="after")
    def _one_source(self) -> Unlearned:
        if self.methods and self.paths:
            raise ValueError("got methods and paths; the unlearned models are either trained here or given")
        return self


class RelearnAll(Section):
    """Relearning of the whole forget set, after which R compares the model with Retrain."""

    epochs: Count
    batch: Count
    lr: Positive


class Quantise(Section):
    bits: Literal[8, 4, 3, 2] = 4
    group: Count = 64


class RelearnFew(Section):
    """Relearning on a few forget rows, after which the other questions are asked: what comes back.

    ``draws`` times ``count`` rows are drawn for every model, each time from the model before the attack; what comes back is
    the mean over the draws.
    """

    count: Count
    steps: Count
    batch: Count = 8
    lr: Positive = 5.0e-4
    n: Draws = 128
    draws: Count = 1


class Claim(Section):
    text: Annotated[str, Field(min_length=1)]
    better: Number
    than: Number


class MetaEvaluation(Section):
    seed: Seed
    alpha: Alpha
    pool: Pool
    unlearned: Unlearned
    relearn: RelearnAll
    quantise: Quantise
    predict: RelearnFew
    answers: Annotated[tuple[Draws, ...], Field(min_length=1)] = (16, 128, 1024)
    leak_at: Annotated[tuple[Count, ...], Field(min_length=1)] = (1, 16, 128, 1024)
    utility_questions: Count = 30
    utility_scorer: Annotated[str, NameIn((SCORERS,))] = "rouge_l"
    bootstrap: Annotated[Integer, Field(ge=10)] = 1000
    headline: Annotated[tuple[Number, ...], Field(min_length=2)]
    claims: tuple[Claim, ...] = ()

    @model_validator(mode="after")
    def _rules_are_consistent(self) -> MetaEvaluation:
        if list(self.answers) != sorted(set(self.answers)):
            raise ValueError(f"answers is {list(self.answers)}; the numbers must increase")
        if doubled := sorted({name for name in self.headline if self.headline.count(name) > 1}):
            raise ValueError(f"headline lists {', '.join(doubled)} twice")
        for claim in self.claims:
            for name in (claim.better, claim.than):
                if name not in self.headline:
                    raise ValueError(f"the claim {claim.text!r} is about {name}, which headline does not list")
        return self

    @property
    def n(self) -> int:
        """The answers drawn per question; smaller numbers are prefixes of the same draws."""
        return self.answers[-1]


class MetaParams(Params):
    meta_evaluation: MetaEvaluation


def validate(document: dict[str, object], source: str) -> MetaParams:
    """Return the checked params; refuse a document without the section."""
    if "meta_evaluation" not in document:
        raise BadInput(
            f"{source} has no section meta_evaluation; name a preset that has one (--preset meta-authors)."
        )
    return config.validate(document, source, MetaParams)
