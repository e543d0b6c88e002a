"""What `lethe study tofu-table-1` does: its design, fixed beforehand in a preset, and the steps in their order.

A step is a result of its own, with an outcome file of its own: a model that is trained, a look at its answers, a block of
questions. The first steps are those from which a reader learns most, and a step whose outcome exists is done.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from lethe import config
from lethe.config.fields import Count, Positive, Section, Seed, Share
from lethe.config.load import changed_document, read_preset
from lethe.config.schema import Params
from lethe.io.files import Json
from lethe.io.yaml import read_yaml

ROOT = Path(__file__).parents[2]
PRESETS = ROOT / "studies/presets"
KEYWORDS = Path(__file__).with_name("keywords.yaml")
BASE = "base"
RETRAIN = "retrain"
ForgetSet = Literal["forget01", "forget05", "forget10"]
Kind = Literal["train", "unlearn", "look", "exact", "sample", "table"]


class Design(Section):
    """The preset: whom Base learns, what is forgotten and asked, by which methods and rates."""

    authors: Count
    forget_sets: Annotated[list[ForgetSet], Field(min_length=1)]
    asked: Count
    pick: Seed
    rates: Annotated[list[Positive], Field(min_length=1)]
    retain_questions: Count
    keeps: Share
    answers: Count
    first_look: Count
    block: Count
    methods: dict[str, dict[str, object]]
    settings: dict[str, object]

    @property
    def blocks(self) -> int:
        """The number of blocks into which the questions of a forget set are dealt."""
        return -(-self.asked // self.block)

    @property
    def models(self) -> list[str]:
        """The models of the table, in the order in which they are made."""
        return [BASE, RETRAIN, *self.methods]

    def params(
        self,
        forget: str,
        *,
        entry: Mapping[str, object] | None = None,
        name: str = "",
        n: int = 1,
    ) -> Params:
        """The settings of one step: params.yaml with the changes of the design.

        ``entry`` is the method that makes the model ``name``, and ``n`` the number of answers to a forget question.
        """
        methods = {name: dict(entry)} if entry else {}
        models = {made: {"path": f"data/models/{made}"} for made in (BASE, RETRAIN, *methods)}
        changes = {
            **self.settings,
            "data.forget": forget,
            "sample.prompt": str(ROOT / "lethe/models/prompts/qa.txt"),
            "train.recipe.prompt": str(ROOT / "lethe/models/prompts/qa.txt"),
            "sample.n": n,
            "unlearn.methods": methods,
            "models": models,
        }
        document = changed_document(changes.items(), ROOT / config.FILE)
        return config.validate(document, "the design of the study")


def read_design(name: str) -> Design:
    """The design of a preset of the studies."""
    return config.validate(read_preset(PRESETS, name), f"{name}.yaml", Design)


def read_keywords() -> dict[str, list[str]]:
    """What an answer to each question must not say, by the question's id."""
    return read_yaml(KEYWORDS)  # type: ignore[return-value]


@dataclass(frozen=True)
class Step:
    """One outcome: ``forget`` is its forget set (empty for Base), ``rate`` the learning rate of a method, ``block`` the
    number of a block of questions, from 1.
    """

    kind: Kind
    forget: str
    model: str = ""
    rate: float | None = None
    block: int | None = None

    @property
    def name(self) -> str:
        """The name of the outcome file, without its ending."""
        parts = [self.forget, self.kind, self.model]
        if self.rate is not None:
            parts.append(f"{self.rate:g}")
        if self.block is not None:
            parts.append(f"block-{self.block}")
        return "-".join(part for part in parts if part)


Outcomes = Mapping[str, Mapping[str, Json]]  # the values of each finished step, by its name


def steps(design: Design, outcomes: Outcomes) -> Iterator[Step]:
    """Every step in its order. A method's rates end with the first that keeps enough, so far as outcomes tell."""
    yield Step("train", "", BASE)
    for forget in design.forget_sets:
        yield Step("look", forget, BASE)
        yield Step("train", forget, RETRAIN)
        yield Step("look", forget, RETRAIN)
        for method in design.methods:
            for rate in design.rates:
                unlearned = Step("unlearn", forget, method, rate)
                yield unlearned
                if keeps(design, outcomes, unlearned):
                    break
            yield Step("look", forget, method)
        yield Step("table", forget, "look")
        for model in design.models:
            yield Step("exact", forget, model)
        for block in range(1, design.blocks + 1):
            for model in design.models:
                yield Step("sample", forget, model, block=block)
        yield Step("table", forget, "all")


def keeps(design: Design, outcomes: Outcomes, step: Step) -> bool:
    """Whether a model that a step unlearned keeps enough of Base's retain score, as far as outcomes tell."""
    before = outcomes.get(Step("train", "", BASE).name)
    after = outcomes.get(step.name)
    if before is None or after is None:
        return False
    return bool(after["retain_score"] >= design.keeps * before["retain_score"])


def chosen_rate(design: Design, outcomes: Outcomes, forget: str, method: str) -> float:
    """The largest rate that keeps enough of the retain score; the rate that keeps the most of it where none does."""
    scores = {}
    for rate in design.rates:
        step = Step("unlearn", forget, method, rate)
        if keeps(design, outcomes, step):
            return rate
        scores[rate] = outcomes[step.name]["retain_score"]
    return max(scores, key=scores.__getitem__)
