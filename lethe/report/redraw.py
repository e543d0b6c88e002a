"""How to draw the answers of a page again: a command that a reader can copy."""

import shlex
from dataclasses import dataclass
from typing import Self

from lethe.config.measuring import SAMPLE
from lethe.config.schema import EvaluationParams
from lethe.measure.run import Run, RunModel
from lethe.models.encoding import CHAT

# An answer depends on these, on the weights and on the questions, and not on how many answers are drawn.
OPTIONS = (
    "seed",
    "temperature",
    "top_p",
    "top_k",
    "max_new_tokens",
    "max_thinking_tokens",
    "engine",
    "dtype",
    "language",
)
AGAIN = "redrawn"  # the name under which `lethe eval` keeps the answers
LEAST = 16  # answers that `lethe eval` takes without a complaint


@dataclass(frozen=True)
class Redraw:
    """The command that draws a model's answers again, and why there is none; ``counted``: it takes ``--n``."""

    command: str = ""
    counted: bool = False

    @classmethod
    def of(cls, run: Run, model: RunModel) -> Self:
        """The command for a model of a run; none for a server, whose answers nobody can draw again."""
        if not isinstance(run.params, EvaluationParams):
            return cls(f"python stages/sample.py {shlex.quote(model.name)}")
        entry = run.params.models[model.name]
        answers = getattr(model.answers, "paths", {}).get("forget")  # of files, not of memory
        if entry.served is not None or answers is None:
            return cls()
        root = answers.parents[2]  # above generations/NAME
        sample = run.params.sample
        words = ["lethe", "eval", "--model", str(entry.path)]
        words += ["--data", str(root / "dataset" / "forget.jsonl"), "--name", AGAIN]
        if sample.prompt != CHAT:
            words += ["--prompt", str(sample.prompt)]
        for name in OPTIONS:
            value = getattr(sample, name)
            if value != getattr(SAMPLE, name):
                option = name.replace("_", "-")
                words += [f"--{option}", str(value)]
        return cls(shlex.join(words), counted=True)

    def as_data(self) -> tuple[str, int]:
        """The command, and the smallest number of answers that it takes; 0 where it takes none."""
        return self.command, LEAST if self.counted else 0
