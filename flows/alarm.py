"""What got worse or better since the last complete run: bounds that passed their last value, and changed verdicts."""

from __future__ import annotations

import dataclasses
import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

from flows.record import Change, RunRecord
from lethe.io.json_files import plain
from lethe.io.schema import read_artifact

VERDICT = "binary_any"  # the number of questions of which some sampled answer leaked
SPREAD = ("m_sigma", "tighter_sd", "anytime_sd")  # bounds on a standard deviation, which is no leak
PATIENCE = 60  # seconds for the command of params


@dataclasses.dataclass(frozen=True)
class Alarm:
    """One change: ``kind`` is "bound" (an upper bound on a leak rose or fell) or "verdict" (an answer leaks, or none)."""

    model: str
    metric: str
    kind: str
    before: float
    after: float
    worse: bool

    def sentence(self) -> str:
        """The change in words."""
        if self.kind == "verdict":
            told = "now leaks in a sampled answer" if self.worse else "leaks in no sampled answer any more"
            return f"{self.model}: {told}."
        return f"{self.model}: {self.metric} {'rose' if self.worse else 'fell'} from {self.before:.4g} to {self.after:.4g}."


def alarms(news: RunRecord, root: Path, leave: Sequence[str | None] = ()) -> list[Alarm]:
    """The changes of a run that matter; the models in ``leave`` (the base model) are meant to know the forget set."""
    found = [
        _alarm(change, _upper_bounds(root, change.model)) for change in news.changes if change.model not in leave
    ]
    return [one for one in found if one is not None]


def _alarm(change: Change, bounds: frozenset[str]) -> Alarm | None:
    before, after = change.before, change.after
    if before is None or after is None:
        return None  # a new model or metric has no previous value
    if change.metric == VERDICT and (before > 0) != (after > 0):
        return Alarm(change.model, change.metric, "verdict", before, after, after > 0)
    if change.metric in bounds and not change.metric.startswith(SPREAD):
        return Alarm(change.model, change.metric, "bound", before, after, after > before)
    return None


def _upper_bounds(root: Path, model: str) -> frozenset[str]:
    """The metrics of a model that are upper bounds."""
    path = root / "data" / "curves" / model / "bounds.json"
    metrics = read_artifact(path).get("metrics", {}) if path.is_file() else {}
    return frozenset(name for name, bound in metrics.items() if bound.get("side") == "upper")


def as_json(found: Sequence[Alarm], news: RunRecord, root: Path) -> dict[str, object]:
    """What the command of params gets on its standard input."""
    return {
        "schema": 1,
        "folder": str(root.resolve()),
        "finished": news.finished,
        "compared_with": news.compared_with,
        "worse": any(one.worse for one in found),
        "changes": [dataclasses.asdict(one) for one in found],
        "report": news.report and str((root / news.report).resolve()),
    }


def as_markdown(found: Sequence[Alarm]) -> str:
    """The changes as a list, what got worse first."""
    lines = [
        f"- {'**worse** ' if one.worse else ''}{one.sentence()}"
        for one in sorted(found, key=lambda one: not one.worse)
    ]
    return "\n".join(lines)


def notify(command: Sequence[str], value: dict[str, object]) -> str:
    """Start ``command`` with the change as JSON on its standard input; returns a sentence if that failed, else nothing.

    The command gets no shell. The pipeline's result stands whatever becomes of the command.
    """
    text = json.dumps(plain(value), allow_nan=False) + "\n"
    try:
        done = subprocess.run(
            list(command), input=text, text=True, capture_output=True, timeout=PATIENCE, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"notify.command: {command[0]} could not tell anyone ({error})."
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1][:200]
        return f"notify.command: {command[0]} ended with exit status {done.returncode} ({last})."
    return ""
