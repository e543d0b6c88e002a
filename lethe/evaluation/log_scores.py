"""The scores of another tool's log as prompts: the chosen score, the missing answers, and whether bounds are valid at all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lethe.errors import BadFile, BadInput, BadValue, plural, shortened
from lethe.evaluation.prompt_scores import Missing, PromptScores
from lethe.evaluation.score_files import read_scores
from lethe.io.logs import is_log, read_log
from lethe.io.logs._log import Log
from lethe.io.logs.open_unlearning import NAME as OPEN_UNLEARNING

if TYPE_CHECKING:
    import pandas as pd

EARLY = "early"


@dataclass(frozen=True)
class LogScores:
    """One score of a log, as prompts.

    ``reasons`` counts the planned answers without this score, by reason. If ``dropped``, the prompts omit these answers;
    otherwise each of them is NaN and counts against each bound.
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

    @property
    def stopped_early(self) -> bool:
        """Whether a stopping rule looked at the answers during the run, so that only anytime-valid values hold."""
        return self.log.stopping == EARLY

    def as_json(self) -> dict[str, object]:
        """The key ``log`` of `lethe bounds --json`."""
        log = self.log
        return {
            "format": log.format,
            "tool": log.tool,
            "task": log.task,
            "model": log.model,
            "sampling": dict(log.sampling),
            "answers": len(log.answers),
            "prompts": {"scored": len(self.prompts), "of": len(log.prompts)},
            "missing": self.missing,
            "missing_by_reason": dict(self.reasons),
            "missing_counts": "dropped" if self.dropped else "worst",
            "score": self.score,
            "scores": list(log.scores),
            "draws": log.draws,
            "stopping": log.stopping,
            "warnings": list(log.warnings),
            "notes": list(log.notes),
        }

    def sentences(self) -> list[str]:
        """A description of the log for people: one line per fact."""
        log = self.log
        others = [name for name in log.scores if name != self.score]
        reasons = ", ".join(f"{count} {reason}" for reason, count in self.reasons.items())
        counted = "are left out, as if missing at random" if self.dropped else "count against each bound"
        facts = {
            "tool": f"{log.tool} (format {log.format})",
            "task": log.task or "not stated",
            "model": log.model or "not stated",
            "sampling": ", ".join(f"{name} {value}" for name, value in log.sampling.items()) or "not stated",
            "answers": f"{len(log.answers)} to {plural(len(log.prompts), 'prompt')}",
            "score": self.score + (f" (others, by --score: {', '.join(others)})" if others else ""),
            "missing": f"{reasons}; these {counted}" if reasons else "nothing",
        }
        if self.score in log.judges:
            scored = f"{self.score} is a score of {len(self.prompts)} of {plural(len(log.prompts), 'prompt')}"
            facts["note"] = f"{scored}; the bounds are those of these prompts"
        lines = [
            *facts.items(),
            *(("warning", one) for one in log.warnings),
            *(("note", one) for one in log.notes),
        ]
        return [f"{name:<9} {text}" for name, text in lines]


@dataclass(frozen=True)
class Scores:
    """The prompts of a table of scores or of a ``log``; ``missing`` is the treatment of a missing score."""

    prompts: list[PromptScores]
    missing: Missing | None
    log: LogScores | None = None


def read_any_scores(
    path: Path,
    missing: Missing | None,
    score: str | None = None,
    filter: str | None = None,
    by: str | None = None,
) -> Scores:
    """Read a table of scores, whose column ``by`` names the prompt, or a log of another tool; the content decides which."""
    if not is_log(path):
        if filter is not None:
            raise BadValue("--filter", filter, "left out: the file is a table of scores, not an lm-eval log")
        return Scores(read_scores(path, missing, score or "score", by), missing)
    if by is not None:
        raise BadValue("by", by, "left out: the file is a log, which names its prompts")
    found = scores_of(read_log(path, filter), score, missing)
    return Scores(found.prompts, missing or ("worst" if found.missing else None), found)


def scores_of(log: Log, score: str | None = None, missing: Missing | None = None) -> LogScores:
    """Return one score of a log as prompts, in the log's order."""
    if log.refusal is not None:
        raise BadFile(
            log.path, f"no bound holds for its answers ({log.refusal})", "Draw the answers again by sampling."
        )
    if score is None and not log.scores:
        raise BadFile(
            log.path, "holds answers without scores", "Score its texts with `lethe score LOG --data ROWS`."
        )
    name = log.scores[0] if score is None else score
    table = _of_its_task(log, name)
    values = table["score"].to_numpy(dtype=np.float64)
    outside = ~np.isnan(values) & ~((values >= 0) & (values <= 1))
    if outside.any():
        row = table.iloc[int(np.argmax(outside))]
        others = ", ".join(one for one in log.scores if one != name)
        raise BadFile(
            log.path,
            f"score {shortened(name)} of answer {row['sample']} to prompt {shortened(row['prompt_id'])}: got "
            f"{row['score']:g}; must be a number in [0, 1]",
            f"Name another score with --score: {others}." if others else "Score the texts with `lethe score`.",
        )
    prompts = []
    for prompt_id, rows in table.groupby("prompt_id", sort=False).indices.items():
        own = values[np.sort(rows)]
        prompts.append(PromptScores(str(prompt_id), own, int(np.isnan(own).sum())))
    reasons = Counter(reason for reason in table["reason"] if reason is not None)
    return _counted(LogScores(log, name, prompts, reasons, dropped=False), missing)


def _of_its_task(log: Log, name: str) -> pd.DataFrame:
    """The planned answers with a score; of a log of several tasks, the answers of the task that has the score.

    Such a log of open-unlearning calls its prompts TASK/INDEX and its scores TASK.METRIC.
    """
    table = log.scored(name)
    tasks = (log.task or "").split(", ") if log.format == OPEN_UNLEARNING else []
    if len(tasks) < 2:
        return table
    own = table["prompt_id"].str.startswith(tuple(f"{task}/" for task in tasks if name.startswith(f"{task}.")))
    return table[own].reset_index(drop=True)


def _counted(found: LogScores, missing: Missing | None) -> LogScores:
    if missing != "drop" or not found.missing:
        return found
    prompts = [replace(prompt, scores=prompt.scores[~np.isnan(prompt.scores)]) for prompt in found.prompts]
    for prompt in prompts:
        if not len(prompt.scores):
            raise BadInput(
                f"{found.log.path}: prompt {shortened(prompt.prompt_id)} has no score left. Use --missing worst."
            )
    return replace(found, prompts=prompts, dropped=True)
