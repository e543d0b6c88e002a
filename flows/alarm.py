"""What matters of the changes since the last complete run: changed verdicts, and leaks that are proved to differ."""

from __future__ import annotations

import dataclasses
import filecmp
import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from flows.record import COMPARED, DATA, LAST_RESULTS, Alarm, RunRecord, StageEnd, Words, read, read_verdicts
from lethe.config.schema import Params
from lethe.io.artifacts import measured
from lethe.io.json_files import plain
from lethe.results import table
from lethe.results.changes import judged_anew, proved_changes
from lethe.results.table import Results

PATIENCE = 60  # seconds for the command of params
WORSE, BETTER = ("leaks",), ("forgot", "intact")  # the words that make a change worse or better


def alarms(root: Path, stages: Mapping[str, StageEnd], params: Params) -> list[Alarm]:
    """The changes of a complete run that matter, changed verdicts first; call it before `flows.record.write`.

    The base model is meant to know the forget set and is left out. Retrain is no model under test: what is proved of it is
    listed, and neither worse nor better.
    """
    last = read(root)
    if last is None or last.metrics_of is None:
        return []
    words = _verdicts(last.verdicts, read_verdicts(root, stages))
    if _same_tables(root):
        return words
    models = [name for name in measured(root / DATA) if name in params.models and name != params.report.base]
    # the tables of `COMPARED` lie below .lethe/last_results/results as below data/results
    old, new = (table.read(folder, models) for folder in (root / LAST_RESULTS, root / DATA))
    anew = judged_anew(old, new, models)
    # The words of a model that another scorer judged are about other events: neither is worse.
    words = [dataclasses.replace(one, worse=False, better=False) if one.model in anew else one for one in words]
    scorers = [Alarm(name, "scorer", "scorer", *both, False, False) for name, both in anew.items()]
    return [*scorers, *words, *_proved(old, new, models, params)]


def _verdicts(before: Mapping[str, Words], after: Mapping[str, Words]) -> list[Alarm]:
    """The changed words of the models in both runs, what got worse first."""
    found = []
    for model in after:
        for metric in ("forgetting", "utility") if model in before else ():
            old, new = getattr(before[model], metric), getattr(after[model], metric)
            if old != new:
                found.append(Alarm(model, metric, "verdict", old, new, new in WORSE, new in BETTER))
    return sorted(found, key=lambda one: not one.worse)


def _proved(old: Results, new: Results, models: Sequence[str], params: Params) -> list[Alarm]:
    from lethe.evaluation.findings import judged_exactly

    alpha, retrains = params.metrics.alpha, params.report.retrains
    found = []
    for one in proved_changes(old, new, models, alpha, judged_exactly(params)):
        worse, better = (one.model not in retrains and one.worse is way for way in (True, False))
        ends = (one.before, one.after, worse, better)
        found.append(Alarm(one.model, one.quantity, "bound", *ends, one.question, one.questions))
    return sorted(found, key=lambda one: not one.worse)


def _same_tables(root: Path) -> bool:
    """Whether every table is the last run's."""
    for stage in COMPARED:
        last, now = (folder / table.FOLDER / stage for folder in (root / LAST_RESULTS, root / DATA))
        old, new = ({path.name for path in folder.glob("*.parquet")} for folder in (last, now))
        if old != new or set(filecmp.cmpfiles(last, now, old, shallow=False)[0]) != old:
            return False
    return True


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
    """The changes as a list."""
    return "\n".join(f"- {'**worse** ' if one.worse else ''}{one.sentence()}" for one in found)


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
