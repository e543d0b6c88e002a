"""The pipeline as a Prefect flow over the DVC stages: one task per stage, as many at once as there are cores.

Only DVC decides what is stale and does the work. The flow reads DVC's graph once, starts a process for each stage that
may be stale, and keeps the record. If a stage fails, the stages that read its outputs do not run, and the others finish.
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import json
import os
import signal
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeAlias, cast

from prefect import flow, get_client, tags, task
from prefect.artifacts import create_markdown_artifact, create_table_artifact
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas import filters
from prefect.client.schemas.objects import StateType
from prefect.context import TagsContext, TaskRunContext
from prefect.futures import PrefectFuture, wait
from prefect.runtime import flow_run
from prefect.states import (
    AwaitingConcurrencySlot,
    Cancelled,
    Completed,
    Crashed,
    Failed,
    Running,
    State,
)
from prefect.utilities.annotations import allow_failure, quote
from prefect.utilities.engine import emit_task_run_state_change_event

from flows import ending, record, unasked, workspace
from flows.beginning import current_graph
from flows.overview import Overview, standard
from flows.server import page, require
from flows.stage import ENDS, Stage, stages_of
from flows.workers import Workers
from lethe import config
from lethe.config.schema import Params
from lethe.errors import LetheError, StageFailed, behind, of_the_machine, plural
from lethe.process import watch
from lethe.verdict.deciding import doubt

GONE = "The Prefect server stopped answering ({reason}): the run goes on, and Prefect's record of it stays incomplete."
BUSY = (408, 429)  # a server with too much to do
TASKS = 250  # each takes Prefect and its server about a twentieth of a second
# Brings stages up to date, here or elsewhere.
Runner: TypeAlias = "workspace.Processes | Workers | unasked.Asked"


class Stopped(LetheError):
    """A signal ended the run; the exit status is 128 plus its number, as shells have it."""

    def __init__(self, number: int):
        self.exit_status = 128 + number
        super().__init__(
            f"Stopped by {signal.Signals(number).name}; `lethe run` continues with what is left."
        )


@dataclasses.dataclass
class PipelineRun:
    """What `run` and the flow tell each other: the graph, the flow's last state or error, whether the server has gone."""

    graph: workspace.Graph | None = None
    state: State | None = None
    gone: bool = False
    error: Exception | None = None
    scheduler: str | None = None


SCHEDULE = "LETHE_SCHEDULE"
RUN: contextvars.ContextVar[PipelineRun | None] = contextvars.ContextVar("RUN", default=None)


def this_run() -> PipelineRun:
    """Return the run of this context; the flow names no context variable, because Prefect pickles its function."""
    return RUN.get() or PipelineRun()


def to_prefect(what: Callable[[], object], tell: Callable[[str], None]) -> None:
    """Write to Prefect's record, unless its server has gone; ``tell`` gets one sentence the first time."""
    this = this_run()
    if this.gone:
        return
    try:
        what()
    except Exception as error:
        reason = lost(error)
        if reason is None:
            raise
        this.gone = True
        tell(GONE.format(reason=reason))


def lost(error: BaseException | None) -> str | None:
    """Return why the server did not take a request, if ``error`` comes of a server that is gone or busy; otherwise None."""
    import httpx

    while error is not None:
        if isinstance(error, httpx.HTTPStatusError):
            # Any other status is the answer of a server that lives, about a request that is wrong.
            status = error.response.status_code
            if status >= 500 or status in BUSY:
                return f"status {status}"
        elif isinstance(error, httpx.HTTPError):
            return " ".join(str(error).split()) or type(error).__name__
        error = behind(error)
    return None


@flow(name="lethe")
def pipeline(jobs: int | None = None, pull: bool = False, push: bool = False) -> State:
    """Bring every stage up to date, ``jobs`` at once.

    The address of a Dask scheduler is no parameter: whoever starts a flow run on Prefect's server sets the parameters,
    and Lethe would unpickle what answers at that address.
    """
    return _recorded(Schedule(jobs, pull, push, this_run().scheduler), scheduled=False)


@flow(name="lethe-schedule")
def scheduled_pipeline() -> State:
    """Bring every stage up to date in a process of `lethe serve`, with which it ends; it takes no parameters at all."""
    return _recorded(Schedule(**json.loads(os.environ[SCHEDULE])), scheduled=True)


@dataclasses.dataclass(frozen=True)
class Schedule:
    """The options of `lethe serve` and of one run."""

    jobs: int | None = None
    pull: bool = False
    push: bool = False
    scheduler: str | None = None


def _recorded(how: Schedule, scheduled: bool) -> State:
    this = this_run()
    try:
        this.state = _bring_all(how, scheduled)
    except Exception as error:
        this.error = error
        raise
    return this.state


def _bring_all(how: Schedule, scheduled: bool) -> State:
    root = Path.cwd()
    if scheduled:
        watch(os.getppid())
    with locked_graph(root, how.pull) as graph:
        params = config.load()  # with which the run begins
        to_prefect(close_abandoned_runs, standard().print)
        stages = stages_of(graph)
        overview = Overview(len(stages), root / workspace.PROGRESS, standard())
        outdated = graph.behind()
        overview.tell(page(flow_run.id))
        processes: workspace.Processes | Workers
        if how.scheduler is None:
            processes = workspace.Processes(
                overview.notes if overview.console.is_terminal else None, how.pull
            )
        else:
            processes = Workers(root, how.scheduler, how.pull)
        at_once = how.jobs or processes.threads
        if outdated:
            tell_ahead(
                outdated, len(stages), params, overview, record.expected(root, outdated, at_once)
            )
        # Only the flow run has the tag: before each tagged task Prefect would ask the server for a limit of the tag.
        untagged = TagsContext(current_tags=set())
        with (
            contextlib.closing(processes),
            overview.live(),
            signals_stop(processes) as signals,
            untagged,
        ):
            run_stages(stages, at_once, overview, unasked.Asked(processes, params))
        news = ending.conclude(root, graph, stages, params)
        to_prefect(lambda: publish(news), overview.tell)
        if signals:
            return Cancelled(message="stopped by a signal", data=Stopped(signals[0]))
        ending.log_and_push(root, stages, how.push, overview.tell)
        if news.alarms:
            to_prefect(lambda: publish_alarm(news), overview.tell)
            ending.notify(news, root, params.notify, overview.tell)
        if scheduled:
            overview.tell(record.summary(news))
    return _state(stages, news)


def tell_ahead(
    outdated: Sequence[str],
    total: int,
    params: Params,
    overview: Overview,
    time: str,
) -> None:
    """Say before the first stage starts what the run will take."""
    groups = Counter(name.partition("@")[0] for name in outdated)
    counts = ", ".join(f"{count} {group}" for group, count in groups.items())
    overview.tell(f"{plural(total, 'stage')}, of which at most {len(outdated)} run: {counts}")
    if "sample" in groups:
        from lethe.steps.costs import drawing  # takes a second

        overview.tell(doubt(params))
        time = drawing(params, outdated) + time
    overview.tell(time)


def _state(stages: Sequence[Stage], news: record.RunRecord) -> State:
    failed = [stage for stage in stages if stage.end == "failed"]
    if failed:
        blocked = sum(stage.end == "blocked" for stage in stages)
        # Bad input comes first: the user can mend it.
        first = max(failed, key=lambda stage: stage.status == 2)
        error = StageFailed(first.name, first.status, first.tail)
        return Failed(
            message=f"{plural(len(failed), 'stage')} failed, {blocked} not run", data=error
        )
    worse = [alarm for alarm in news.alarms if alarm.worse]
    if worse:
        return Completed(name="Worse", message=f"{len(worse)} got worse: {worse[0].sentence()}")
    ran = sum(stage.end == "ran" for stage in stages)
    return Completed(message=f"{plural(ran, 'stage')} ran, {len(stages) - ran} up to date")


def run(order: workspace.Order, graph: workspace.Graph) -> LetheError | None:
    """Bring ``graph`` up to date in this process, under the folder's lock; return the error."""
    require()
    this = PipelineRun(graph, scheduler=order.scheduler)
    token = RUN.set(this)
    try:
        with tags(folder_tag()):
            state = pipeline(order.jobs, order.pull, order.push, return_state=True)
    except Exception as error:
        # Where Prefect's server goes before the record is whole, the flow's own last state counts.
        reason = lost(error)
        if reason is None:
            raise
        if this.error is not None and lost(this.error) is None:
            raise this.error from None  # Prefect could not record this error, which is the one that counts
        if this.state is None:
            raise LetheError(
                f"The Prefect server stopped answering before the run began ({reason}). Run the command again."
            ) from None
        if not this.gone:
            standard().print(GONE.format(reason=reason))
        state = this.state
    finally:
        RUN.reset(token)
    if state.is_completed():
        return None
    problem = state.result(raise_on_failure=False)
    if isinstance(problem, (StageFailed, Stopped)):
        return problem
    raise cast(BaseException, problem)  # any other failed state holds the exception itself


@contextlib.contextmanager
def locked_graph(root: Path, pull: bool = False) -> Iterator[workspace.Graph]:
    """Hold the folder's lock and yield its graph; the caller of `run` has done both already."""
    this = RUN.get()
    if this is not None and this.graph:
        yield this.graph
        return
    with workspace.only_run(root):
        yield current_graph(root, pull)


def run_stages(stages: list[Stage], jobs: int, overview: Overview, processes: Runner) -> None:
    """Give all stages to Prefect, which starts each as soon as those that it reads have ended; ``jobs`` run at once.

    ``stages``: each behind those that it reads. Of more than `TASKS` stages, those that are clean become no tasks.
    """
    places = threading.Semaphore(jobs)
    futures: dict[str, PrefectFuture] = {}
    for stage in stages:
        if len(stages) > TASKS and stage.foregone() == "clean":
            stage.end = "clean"
            overview.passed(stage.name, stage.end)
            continue
        named = bring_up_to_date.with_options(name=stage.name, task_run_name=stage.name)
        futures[stage.name] = named.submit(
            quote(stage),
            quote(places),
            quote(overview),
            quote(processes),
            wait_for=[
                allow_failure(futures[before.name])
                for before in stage.upstream
                if before.name in futures
            ],  # type: ignore[call-overload]  # unwrapped
        )
    wait(list(futures.values()))
    for stage in stages:
        if stage.end:
            continue
        # Prefect starts no task behind one that a signal stopped; otherwise it lost the task.
        stage.end = "not started" if processes.stopped else "failed"


@task(cache_policy=NO_CACHE)  # only DVC knows what is up to date
def bring_up_to_date(
    stage: Stage, places: threading.Semaphore, overview: Overview, processes: Runner
) -> State:
    """Run a stage that needs to run once a place is free; every stage that it reads has ended."""
    stage.end = "not started" if processes.stopped else stage.foregone()
    if not stage.end:
        with _place(places):
            if processes.stopped:
                stage.end = "not started"
            else:
                _run(stage, overview, processes)
                return _state_of(stage)
    overview.passed(stage.name, stage.end)
    return _state_of(stage)


@contextlib.contextmanager
def _place(places: threading.Semaphore) -> Iterator[None]:
    """Hold a place; while none is free, Prefect's page shows the task as one that waits and not as one that runs."""
    if not places.acquire(blocking=False):
        _show(AwaitingConcurrencySlot())
        places.acquire()
        _show(Running())
    try:
        yield
    finally:
        places.release()


def _show(state: State) -> None:
    """Add a state to Prefect's record of the task of this thread."""
    context = TaskRunContext.get()
    if context is not None:
        task_run = context.task_run
        emit_task_run_state_change_event(task_run, task_run.state, state)


def _run(stage: Stage, overview: Overview, processes: Runner) -> None:
    overview.started(stage.name, stage.stale)
    try:
        result = processes.reproduce(stage.name, overview.say)
    except Exception as error:  # Prefect would keep it to itself
        sentence = of_the_machine(error) or f"{type(error).__name__}: {error}"
        result = workspace.Reproduced("failed", 1, str(sentence))
    stage.status, stage.tail = result.status, result.tail
    stage.seconds = overview.ended(stage.name, result.state)
    stage.end = result.state


def _state_of(stage: Stage) -> State:
    """The state of a stage's task, for Prefect's record."""
    name, message = ENDS[stage.end]
    kind = Failed
    if stage.up_to_date:
        kind = Completed
    elif name == "Cancelled":
        kind = Cancelled
    return kind(name=name, message=message or f"{stage.end} in {stage.seconds:.1f} s")


@contextlib.contextmanager
def signals_stop(processes: workspace.Processes | Workers) -> Iterator[list[int]]:
    """Yield the list of signals received. The first SIGINT, SIGTERM or SIGHUP ends all stages; a second acts as usual."""
    received: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield received
        return

    def restore() -> None:
        for number, handler in former.items():
            signal.signal(number, handler)

    def handle(number: int, _frame: object) -> None:
        received.append(number)
        restore()
        processes.stop()

    former = {
        number: signal.getsignal(number)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    }
    for number in former:
        signal.signal(number, handle)
    try:
        yield received
    finally:
        restore()


def folder_tag() -> str:
    """The tag of Prefect under which the runs of this folder on this machine are found."""
    return f"{socket.gethostname()}:{Path.cwd()}"


def close_abandoned_runs() -> None:
    """Mark the folder's runs that still count as running as crashed: this process holds the lock, so they were killed."""
    of_this_folder = filters.FlowRunFilter(
        tags=filters.FlowRunFilterTags(all_=[folder_tag()]),
        state=filters.FlowRunFilterState(
            type=filters.FlowRunFilterStateType(any_=[StateType.RUNNING])
        ),
    )
    with get_client(sync_client=True) as client:
        for run in client.read_flow_runs(flow_run_filter=of_this_folder):
            if str(run.id) != flow_run.id:
                client.set_flow_run_state(
                    run.id, Crashed(message="killed before it ended"), force=True
                )


def publish(news: record.RunRecord) -> None:
    """Keep the table of stages and the changes as artifacts of Prefect's run."""
    rows = [{"stage": name, **dataclasses.asdict(end)} for name, end in news.stages.items()]
    create_table_artifact(key="stages", table=rows, description="How each stage ended.")
    changes = f"```\n{record.summary(news, 200)}\n```"
    create_markdown_artifact(key="changes", markdown=changes, description="What changed.")


def publish_alarm(news: record.RunRecord) -> None:
    """Keep what got worse or better as an artifact of Prefect's run."""
    direction, lines = ending.alarm_text(news)
    create_markdown_artifact(key="alarm", markdown=lines, description=f"The run: {direction}.")
