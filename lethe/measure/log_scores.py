"""One score of a log of another tool as prompts: of every planned answer, with the reasons of those that have none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lethe.errors import BadFile, BadInput, plural, shortened
from lethe.io.logs._log import OPEN_UNLEARNING, Log
from lethe.measure.scores import Missing, PromptScores, split

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class LogScores:
    """One score of a log, as prompts; ``reasons`` counts the planned answers without it, which are left out if ``dropped``,
    and otherwise NaN, so that they count against each bound.
    """

    log: Log
    score: str
    prompts: list[PromptScores]
    reasons: Mapping[str, int]
    dropped: bool

    @property
    def missing(self) -> int:
        """The number of planned answers without the score."""
        return sum(self.reasons.values())

    def facts(self) -> dict[str, object]:
        """What is recorded of the log among the settings of its bounds."""
        log = self.log
        missing_counts = "dropped" if self.dropped else "worst"
        return {
            "format": log.format,
            "tool": log.tool,
            "task": log.task,
            "model": log.model,
            "draws": log.draws,
            "stopping": log.stopping,
            "scores": list(log.scores),
            "warnings": list(log.warnings),
            "notes": list(log.notes),
            "sampling": dict(log.sampling),
            "answers": len(log.answers),
            "prompts": {"scored": len(self.prompts), "of": len(log.prompts)},
            "missing": self.missing,
            "missing_by_reason": dict(self.reasons),
            "missing_counts": missing_counts,
            "score": self.score,
        }

    def sentences(self) -> list[str]:
        """How the log was read, for people."""
        log = self.log
        prompts = plural(len(log.prompts), "prompt")
        score = self.score
        others = [name for name in log.scores if name != self.score]
        if others:
            score += f" (others, by --score: {', '.join(others)})"
        missing = "nothing"
        if self.reasons:
            counted = "count against each bound"
            if self.dropped:
                counted = "are left out, as if missing at random"
            counts = [f"{count} {reason}" for reason, count in self.reasons.items()]
            missing = f"{', '.join(counts)}; these {counted}"
        note = None
        if self.score in log.judges:
            of_prompts = f"{len(self.prompts)} of {prompts}"
            note = f"{self.score} is a score of {of_prompts}; the bounds are those of these prompts"
        return log.lines(
            ("answers", f"{len(log.answers)} to {prompts}"),
            ("score", score),
            ("missing", missing),
            ("note", note),
        )


def scores_of(log: Log, score: str | None = None, missing: Missing | None = None) -> LogScores:
    """Return one score of a log as prompts, in the log's order.

    Raises a sentence where no bound holds for the answers, where there is no such score, or where a score is out of [0, 1].
    """
    import pandas as pd

    if log.refusal is not None:
        problem = f"no bound holds for its answers ({log.refusal})"
        raise BadFile(log.path, problem, "Draw the answers again by sampling.")
    if score is None and not log.scores:
        remedy = "Score its texts with `lethe score LOG --data ROWS`."
        raise BadFile(log.path, "holds answers without scores", remedy)
    name = log.scores[0] if score is None else score
    table = _rows_of_score(log, name)
    values = table["score"].to_numpy(dtype=np.float64)
    _check_range(log, name, table, values)
    reasons = Counter([reason for reason in table["reason"] if reason is not None])
    drop = missing == "drop" and bool(reasons)
    codes, labels = pd.factorize(table["prompt_id"])
    prompts = split(labels, codes, values, "drop" if drop else None)
    for prompt in prompts:
        if not prompt.n:
            name_of_prompt = shortened(prompt.prompt_id)
            raise BadInput(
                f"{log.path}: prompt {name_of_prompt} has no score left. Use --missing worst."
            )
    return LogScores(log, name, prompts, reasons, dropped=drop)


def _rows_of_score(log: Log, name: str) -> pd.DataFrame:
    """The rows of a score; of a log of several tasks, which names prompts TASK/INDEX and scores TASK.METRIC, its task's."""
    table = log.scored(name)
    tasks: list[str] = []
    if log.format == OPEN_UNLEARNING:
        tasks = (log.task or "").split(", ")
    if len(tasks) < 2:
        return table
    of_score = tuple(f"{task}/" for task in tasks if name.startswith(f"{task}."))
    is_of_score = table["prompt_id"].str.startswith(of_score)
    return table[is_of_score].reset_index(drop=True)


def _check_range(log: Log, name: str, table: pd.DataFrame, values: np.ndarray) -> None:
    """Raises `BadFile` for a score out of [0, 1]."""
    is_legal = (values >= 0) & (values <= 1)
    outside = ~np.isnan(values) & ~is_legal
    if not outside.any():
        return
    row = table.iloc[int(np.argmax(outside))]
    others = [score for score in log.scores if score != name]
    remedy = "Score the texts with `lethe score`."
    if others:
        remedy = f"Name another score with --score: {', '.join(others)}."
    place = (
        f"score {shortened(name)} of answer {row['sample']} to prompt {shortened(row['prompt_id'])}"
    )
    problem = f"{place}: got {row['score']:g}; must be a number in [0, 1]"
    raise BadFile(log.path, problem, remedy)
