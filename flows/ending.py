"""What follows when the stages of a run have ended: its record, MLflow, the DVC remote, and word of what got worse.

Nothing here needs Prefect, so that a run with nothing to do takes no longer than DVC needs to find that out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from flows import notice, record, remote, workspace
from flows.overview import Overview, standard
from flows.since import since_last
from flows.stage import ENDS, Stage, stages_of
from flows.tries import tries_of_words
from lethe import tracking
from lethe.config.schema import Notify, Params
from lethe.tracking import mark_newest

Tell = Callable[[str], None]


def conclude(
    root: Path, graph: workspace.Graph, stages: Sequence[Stage], params: Params
) -> record.RunRecord:
    """Compare a complete run with the one before it, and write and return its record."""
    complete = graph.whole and all(stage.up_to_date for stage in stages)
    ends: dict[str, record.StageEnd] = {}
    for stage in stages:
        state, _ = ENDS[stage.end]
        ends[stage.name] = record.StageEnd(state, stage.end, round(stage.seconds, 2))
    tries = tries_of_words(root, ends, params)
    since = None
    if complete:
        since = since_last(root, ends, params)
    return record.write(root, ends, complete, since, tries)


def log_and_push(root: Path, stages: Sequence[Stage], push: bool, tell: Tell) -> None:
    """Log the finished stages to MLflow and, where asked, send all results to the DVC remote."""
    unfinished = {stage.name: stage.end for stage in stages if not stage.up_to_date}
    tell(tracking.log_new(root, unfinished=unfinished))
    if push:
        tell(remote.push(root))


def alarm_text(news: record.RunRecord) -> tuple[str, str]:
    """The direction of all changes (worse, better, changed) and a line of Markdown for each."""
    lines = []
    for alarm in news.alarms:
        mark = "**worse** " if alarm.worse else ""
        lines.append(f"- {mark}{alarm.sentence()}")
    direction = "changed"
    if any(alarm.worse for alarm in news.alarms):
        direction = "worse"
    elif all(alarm.better for alarm in news.alarms):
        direction = "better"
    return direction, "\n".join(lines)


def notify(news: record.RunRecord, root: Path, how: Notify | None, tell: Tell) -> None:
    """Mark the newest run of MLflow with what changed, and give it to the command of ``notify`` in params.yaml."""
    direction, lines = alarm_text(news)
    tell(mark_newest(direction, lines, root))
    if how is not None:
        tell(notice.notify(how.command, notice.notice(news, root)))


def nothing_to_do(root: Path, graph: workspace.Graph, params: Params, push: bool) -> None:
    """End a run whose stages are all up to date, with its record and without a flow of Prefect."""
    stages = stages_of(graph)
    for stage in stages:
        stage.end = "clean"
    overview = Overview(len(stages), root / workspace.PROGRESS, standard())
    news = conclude(root, graph, stages, params)
    log_and_push(root, stages, push, overview.tell)
    if news.alarms:
        notify(news, root, params.notify, overview.tell)
