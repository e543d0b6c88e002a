"""Logs finished stages to MLflow: the stages in dvc.lock become runs that can be browsed and compared.

Each pipeline becomes a parent run with one child run per model. A run is identified by its fingerprint, the digest of the
params and outputs of its stages; only one that the store lacks makes a new run. A file in .lethe records what was logged, so
that MLflow is imported only when there is something to log.

The server is MLFLOW_TRACKING_URI, or else a database in the repository. If the server does not answer within seconds, the
runs go to the repository's database, and to the server the next time it answers. LETHE_TRACKING=off logs nothing.
"""

import contextlib
import dataclasses
import fcntl
import os
import socket
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from lethe.errors import BadInput, LetheError, plural
from lethe.io.files import read_json, write_json
from lethe.tracking.entries import (
    TRAINING,
    FromFile,
    Pipeline,
    RunEntry,
    read_before,
    read_pipeline,
)

PATIENCE = 2.0  # seconds a server may take to accept a connection
CHANGE_TAG = "lethe.change"  # of the newest pipeline: whether something got worse, or better
# The stages whose results are a model's; `read_entries` takes what they left behind, from whichever run.
MEASURING = (
    "sample",
    "likelihood",
    "score",
    "exact",
    "extract",
    "metrics",
    "epsilon_star",
    "twins",
)


def log_new(
    workspace: Path | None = None,
    home: Path | None = None,
    unfinished: Mapping[str, str] | None = None,
) -> str:
    """Log the models that were not logged before; returns a line about it, or "". Never raises: the artifacts matter more."""
    if os.environ.get("LETHE_TRACKING") == "off":
        return ""
    workspace = workspace or Path.cwd()
    # DVC_ROOT is the repository itself, even where DVC runs an experiment in a copy of it.
    home = Path(home or os.environ.get("DVC_ROOT") or workspace).resolve()
    try:
        with in_turn(home):
            pipeline, left = _finished(read_pipeline(workspace, unfinished or {}), unfinished or {})
            sentence = _log_new(pipeline, workspace, home)
        if not left:
            return sentence
        return f"{sentence or 'MLflow: no new run.'} Not logged: {', '.join(left)}."
    except Exception as error:  # whatever MLflow raises, the pipeline's work is done
        return f"MLflow: nothing logged, the next run tries again ({type(error).__name__}: {_first_line(error)})"


def mark_newest(change: str, text: str, home: Path) -> str:
    """Tag the newest pipeline run; return a sentence if that failed. Never raises."""
    if os.environ.get("LETHE_TRACKING") == "off":
        return ""
    home = Path(os.environ.get("DVC_ROOT") or home).resolve()
    uri = os.environ.get("MLFLOW_TRACKING_URI") or store(home)
    if not answers(uri):
        uri = store(home)
    try:
        from lethe.tracking import runs

        client = runs.client_of(uri)
        run = runs.newest_pipeline(client, runs.experiment_of(client, None))
        if run is not None:
            client.set_tag(run.info.run_id, CHANGE_TAG, change)
            client.set_tag(run.info.run_id, f"{CHANGE_TAG}.text", text[: runs.MAX_TAG])
    except Exception as error:  # whatever MLflow raises
        return (
            f"MLflow: the change is not marked at {without_password(uri)} ({type(error).__name__})."
        )
    return ""


def log_file(results: FromFile) -> str:
    """Log results to MLFLOW_TRACKING_URI, or to a local database; return a sentence that says where."""
    home = Path.cwd()
    uri = os.environ.get("MLFLOW_TRACKING_URI") or store(home)
    address = without_password(uri)
    if not answers(uri):
        raise LetheError(
            f"MLflow: {address} does not answer. Start the server, or unset MLFLOW_TRACKING_URI."
        )
    from lethe.tracking import runs

    place = None
    if uri.startswith("sqlite:"):
        place = _artifacts(home)
    return f"{runs.log_file(uri, place, results)} at {address}"


def store(home: Path) -> str:
    """The address of the repository's own database."""
    return f"sqlite:///{home / 'mlflow.db'}"


def _artifacts(home: Path) -> str:
    return (home / ".lethe/mlruns").as_uri()


def pages(home: Path) -> list[str]:
    """The paths, after the port, of MLflow's pages for the repository's models and pipelines."""
    from lethe.tracking import runs

    return runs.pages(store(home))


def without_password(uri: str) -> str:
    """An address that is safe to show or keep: without any user name and password."""
    address = urlsplit(uri)
    if "@" not in address.netloc:
        return uri
    place = address.netloc.rpartition("@")[2]
    return urlunsplit(address._replace(netloc=place))


def _finished(pipeline: Pipeline, unfinished: Mapping[str, str]) -> tuple[Pipeline, list[str]]:
    """The pipeline with the entries whose stages are done, and the names of the others with the reason."""
    entries = []
    left = []
    for entry in pipeline.entries:
        reason = _outdated(entry, unfinished)
        if reason:
            left.append(f"{entry.name} ({reason})")
        else:
            entries.append(entry)
    if "report" in unfinished:
        pipeline = dataclasses.replace(pipeline, report=None, report_digest="")
    return dataclasses.replace(pipeline, entries=entries), left


def _outdated(entry: RunEntry, unfinished: Mapping[str, str]) -> str:
    """Why an entry is of an earlier run, in words; empty where it is of the last one."""
    groups: tuple[str, ...] = (entry.kind,)
    if entry.kind == "model":
        groups = (*TRAINING, *MEASURING, "utility")
    stages = [f"{group}@{entry.name}" for group in groups]
    waiting = [name for name in stages if name in unfinished]
    for name in waiting:
        if unfinished[name] == "failed":
            return f"{name} failed"
    if waiting:
        return f"{waiting[0]} did not run"
    # A run of some stages may train a model and leave its measuring for later.
    for name, stage in entry.stages.items():
        path = read_before(stage, entry.stages.values())
        if path:
            return f"{name} read an earlier {path}"
    return ""


def _log_new(pipeline: Pipeline, workspace: Path, home: Path) -> str:
    wanted = os.environ.get("MLFLOW_TRACKING_URI") or store(home)
    named = without_password(wanted)
    sentence = ""
    file = home / "mlflow.db"
    if wanted == store(home) and file.is_file():
        with open(file, "rb") as database:
            if database.read(16) not in (b"", b"SQLite format 3\0"):
                return f"MLflow: {file} is no database, so no run is recorded. Move it away: the next run makes a new one."
    if not pipeline.entries or not _new(pipeline, wanted, home):
        return ""
    if not answers(wanted):
        sentence = f"MLflow: {named} does not answer; logged locally (`lethe ui`), and there once it answers. "
        wanted = store(home)
    try:
        count = _log(pipeline, wanted, workspace, home)
    except Exception as error:
        if wanted == store(home):
            raise
        problem = _first_line(error).replace(wanted, named)
        sentence = f"MLflow: {named} failed ({problem}); logged locally (`lethe ui`), and there the next time. "
        count = _log(pipeline, store(home), workspace, home)
    if count:
        sentence += f"MLflow: {plural(count, 'new run')}."
    return sentence


def _log(pipeline: Pipeline, uri: str, workspace: Path, home: Path) -> int:
    if not _new(pipeline, uri, home):
        return 0
    from lethe.tracking import runs

    place = None
    if uri == store(home):
        place = _artifacts(home)
    count = runs.log(pipeline, uri, place, workspace, home)
    remember(without_password(uri), pipeline.states, home)
    return count


def _new(pipeline: Pipeline, uri: str, home: Path) -> bool:
    """Whether anything is not yet recorded as logged at ``uri``; everything is new if the database is gone."""
    if uri == store(home) and not (home / "mlflow.db").exists():
        return bool(pipeline.states)
    return not logged_states(without_password(uri), home).issuperset(pipeline.states)


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or ["no message"])[0][:200]


def logged_states(server: str, home: Path) -> set[str]:
    """The states of runs and pipelines that were logged to a server."""
    return set(_tracked(home).get(server, []))


def remember(server: str, states: Iterable[str], home: Path) -> None:
    """Record that a server has these states of runs and pipelines."""
    tracked = _tracked(home)
    tracked[server] = sorted({*tracked.get(server, []), *states})
    write_json(home / ".lethe" / "tracked.json", tracked)


def _tracked(home: Path) -> dict[str, list[str]]:
    """The record; a damaged record is empty, because the store itself knows which runs it has."""
    path = home / ".lethe" / "tracked.json"
    try:
        tracked = read_json(path) if path.exists() else {}
    except BadInput:
        return {}
    if not isinstance(tracked, dict):
        return {}
    if not all(isinstance(states, list) for states in tracked.values()):
        return {}
    return tracked


def answers(uri: str) -> bool:
    """Whether a server accepts a connection within `PATIENCE`; a database always does."""
    address = urlsplit(uri)
    if address.scheme not in ("http", "https"):
        return True
    port = address.port or (443 if address.scheme == "https" else 80)
    try:
        socket.create_connection((address.hostname or "", port), timeout=PATIENCE).close()
    except OSError:
        return False
    return True


@contextlib.contextmanager
def in_turn(home: Path) -> Iterator[None]:
    """Hold the lock under which a process logs to the repository's store; wait for other processes."""
    path = home / ".lethe" / "tracking.lock"
    path.parent.mkdir(exist_ok=True)
    with open(path, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
