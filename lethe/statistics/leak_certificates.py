"""The answer trees of a model's questions as one result, for files, tables and pages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from lethe.errors import plural
from lethe.statistics.answer_tree import Rounding, TreeVerdict, verdict
from lethe.statistics.bound import Bound
from lethe.statistics.leak_trees import AnswerTree, ModelTree, model_tree

FOR_THE_PIPELINE = ("masses", "curve")  # keys that other stages read and people do not


@dataclass(frozen=True)
class How:
    """The settings under which a model was queried, and the definition of a leak."""

    leak: str
    temperature: float
    top_k: int
    top_p: float
    adaptive_threshold: float | None
    max_new_tokens: int
    dtype: str
    logit_allowance: float
    note: str = ""


@dataclass(frozen=True)
class Certificates:
    """The trees of one model, in the order of the questions; ``skipped`` names questions that the scorer cannot judge."""

    name: str
    trees: tuple[AnswerTree, ...]
    how: How
    tau: float
    skipped: tuple[str, ...] = ()

    @property
    def rounding(self) -> Rounding:
        """The rounding error of the masses under these settings."""
        return Rounding(self.how.logit_allowance, self.how.max_new_tokens, self.how.temperature)

    @property
    def model(self) -> ModelTree:
        """The summary over the questions."""
        return model_tree(self.trees, self.rounding, self.tau)

    @property
    def verdicts(self) -> dict[str, TreeVerdict]:
        """The verdict on each question at ``tau``."""
        return {tree.id: verdict(tree.lower, tree.upper, self.tau) for tree in self.trees}

    def sentences(self) -> list[str]:
        """The summary in sentences, with every guarantee."""
        model, of = self.model, f"the {plural(len(self.trees), 'question')}"
        bounds: dict[str, Bound] = model.bounds
        counts = ", ".join(f"{count} {word}" for word, count in model.verdicts.items())
        said = [
            bounds["tree_lower_worst"].sentence("P(leak) per query", of),
            bounds["tree_upper_worst"].sentence("P(leak) per query", of),
            bounds["tree_upper_mean"].sentence("P(leak) per query", of),
            f"At a threshold of {self.tau:g} per query: {counts}.",
            *(
                f"{count} of {of} leak with a probability above {tau:g}, with certainty."
                for tau, count in model.certain_leaks.items()
            ),
        ]
        if self.how.note:
            said.append(self.how.note)
        if self.skipped:
            said.append(f"{plural(len(self.skipped), 'question')} left out, which {self.how.leak} cannot judge.")
        notes = list(dict.fromkeys(tree.note for tree in self.trees if tree.note))
        return said + notes

    def as_json(self, whole: bool = True) -> dict[str, object]:
        """Plain values under ``per_question`` and ``model``; without ``whole``, only the keys for people."""
        hidden = () if whole else FOR_THE_PIPELINE
        rows = [{key: value for key, value in tree.as_json().items() if key not in hidden} for tree in self.trees]
        return {
            "per_question": rows,
            "model": {"name": self.name, **self.model.as_json(), **asdict(self.how)},
            "skipped": list(self.skipped),
        }

    @classmethod
    def of_json(cls, values: Mapping[str, object]) -> Certificates:
        """Read the result that `as_json` wrote with ``whole``."""
        known: dict[str, Any] = dict(values)
        model = known["model"]
        return cls(
            name=model["name"],
            trees=tuple(AnswerTree.of_json(row) for row in known["per_question"]),
            how=How(**{name: model[name] for name in How.__dataclass_fields__}),
            tau=model["tau"],
            skipped=tuple(known["skipped"]),
        )
