"""The rule that ends the draws of a model, as stage references writes it: what a word needs, and beside which Retrains."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from lethe.config.measuring import ModelEntry, SampleSettings, ScorerParams, scorer_params
from lethe.errors import MissingArtifact
from lethe.io.files import read_artifact
from lethe.statistics.policy import Policy

RULE = "rule.json"  # in the folder of stage references; a Retrain has a file of its name


@dataclass(frozen=True)
class Rule:
    """When the draws of a model end: once a word is certain at the tolerance ``tau``, where ln e has reached ``goal``.

    ``scorer``, a column of scores, with ``params`` says which answer leaks; ``judge`` is the kind of a judge that has a stage
    of its own, None where the column has its scorer's name. ``retrains`` are the Retrains of the run by name, in their order.
    On these and on ``base``, the model before unlearning, there is no word: they get the first answers alone.
    """

    tau: float
    goal: float
    scorer: str
    params: ScorerParams | None = None
    retrains: Mapping[str, ModelEntry] = field(default_factory=dict)
    judge: str | None = None
    base: str | None = None

    def decides(self, name: str) -> bool:
        """Whether there is a word on the model of this name."""
        return name != self.base and name not in self.retrains

    @property
    def scores_by(self) -> str:
        """The name of the scorer or judge in its registry."""
        return self.judge or self.scorer

    def policy(self, sample: SampleSettings) -> Policy:
        """The policy of a model beside the Retrains."""
        return Policy(
            first=sample.at_first,
            batch=sample.batch,
            cap=sample.most,
            tolerance=self.tau,
            goal=self.goal,
            retrains=len(self.retrains),
        )


def read_rule(folder: Path) -> Rule:
    """The rule that stage references wrote, with the Retrains; raises `MissingArtifact` where it did not."""
    if not (folder / RULE).is_file():
        raise MissingArtifact(folder / RULE, "stage references")
    stated = read_artifact(folder / RULE)
    if stated["stop"] != "word" or "base" not in stated:  # of other settings or earlier code
        raise MissingArtifact(folder / RULE, "stage references")
    retrains = {}
    for name in stated["retrains"]:
        facts = read_artifact(folder / f"{name}.json")
        retrains[name] = ModelEntry(**{key: facts[key] for key in ModelEntry.model_fields})
    scorer = stated["scorer"]
    judge = stated.get("judge")
    params = None
    if stated["params"] is not None:
        params = scorer_params(judge or scorer, stated["params"])
    goal = math.log(stated["models"] / stated["alpha"])
    return Rule(stated["tau"], goal, scorer, params, retrains, judge, stated["base"])
