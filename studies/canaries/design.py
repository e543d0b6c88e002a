"""What `lethe study twins-canaries` does: its design, fixed beforehand in a preset, and its steps in their order.

The trace of every model comes first. The certain ends of each canary, which take longer, come after all traces.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from lethe import config
from lethe.attacks.protocol import AttackParams
from lethe.config.fields import Alpha, Count, Section, Share
from lethe.config.load import changed_document, read_preset
from lethe.config.schema import Params
from lethe.io.artifacts import Row
from lethe.io.files import read_jsonl
from studies.tofu_table.design import PRESETS, ROOT

NAME = "twins-canaries"
DATA = Path(__file__).with_name("data")
PROMPT = str(DATA / "prompt.txt")
BASE = "base"
RETRAIN = "retrain"
UNTOUCHED = "untouched"
CONTROLS = (UNTOUCHED, RETRAIN)
Kind = Literal["trace", "exact"]


class Design(Section):
    """The preset: levels, how many models share them, methods, attacks, and changes to params.yaml."""

    alpha: Alpha
    tau: Share
    models: Count
    methods: Annotated[dict[str, dict[str, object]], Field(min_length=1)]
    attacks: dict[str, dict[str, object]]
    attacked_controls: list[str]
    settings: dict[str, object]

    @property
    def params(self) -> Params:
        """The settings: params.yaml with the changes of the design."""
        made = (BASE, RETRAIN, *self.methods)
        changes = {
            **self.settings,
            "sample.prompt": PROMPT,
            "train.recipe.prompt": PROMPT,
            "unlearn.methods": self.methods,
            "models": {name: {"path": f"data/models/{name}"} for name in made},
        }
        document = changed_document(changes.items(), ROOT / config.FILE)
        return config.validate(document, "the design of the study")

    def attack(self, name: str) -> AttackParams:
        """The checked settings of an attack."""
        from lethe.registry import MODEL_ATTACKS

        kind = MODEL_ATTACKS[str(self.attacks[name]["kind"])]
        return TypeAdapter(kind.Params).validate_python(self.attacks[name])


@dataclass(frozen=True)
class Step:
    """A model that is made and measured: ``model`` as it is, or after an ``attack``, by its ranks or by exact ends."""

    model: str
    attack: str = ""
    kind: Kind = "trace"

    @property
    def of(self) -> str:
        """The model with its attack."""
        return f"{self.model}-{self.attack}" if self.attack else self.model

    @property
    def name(self) -> str:
        """The name of its outcome file, without its ending."""
        return f"{self.kind}-{self.of}"


def read_design() -> Design:
    """The committed design."""
    return config.validate(read_preset(PRESETS, NAME), f"{NAME}.yaml", Design)


def steps(design: Design) -> list[Step]:
    """Every step in its order: those from which a reader learns most come first."""
    traces = models(design)
    return [*traces, *(replace(step, kind="exact") for step in traces)]


def models(design: Design) -> list[Step]:
    """The step of the trace of each model."""
    ordered = [Step(BASE), Step(RETRAIN), Step(UNTOUCHED)]
    ordered += [Step(method) for method in design.methods]
    for attack in design.attacks:
        ordered += [Step(method, attack) for method in design.methods]
    ordered += [Step(RETRAIN, attack) for attack in design.attacked_controls]
    return ordered


def is_control(step: Step) -> bool:
    """Whether a model cannot know the draws."""
    return step.model in CONTROLS


def canaries() -> list[Row]:
    """The rows that `lethe twins draw` wrote."""
    return _rows("drawn.jsonl")


def kept() -> list[Row]:
    """The rows of other people, which stay."""
    return _rows("retain.jsonl")


def _rows(file: str) -> list[Row]:
    return [row for _, row in read_jsonl(DATA / file)]  # type: ignore[misc]
