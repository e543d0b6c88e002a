"""Logs finished stages to MLflow: the stages in dvc.lock become runs that can be browsed and compared.

Each pipeline becomes a parent run with one child run per model; the stages are tags and artifacts of the model's run. A
run is identified by its fingerprint, the digest of the params and outputs of its stages. Only a fingerprint that the store
lacks makes a new run, so a cache hit makes none. A file in .lethe records what was logged, so that MLflow is imported only
when there is something to log.

The server is MLFLOW_TRACKING_URI, or else a database in the repository. If the server does not answer within seconds, the
runs go to the repository's database, and to the server the next time it answers. LETHE_TRACKING=off logs nothing.
"""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from lethe.tracking import notes
from lethe.tracking.entries import Entry, Pipeline, read_entries, read_pipeline

__all__ = [
    "Entry",
    "Pipeline",
    "log_new",
    "pages",
    "read_entries",
    "read_pipeline",
    "store",
    "without_password",
]


def log_new(workspace: Path | None = None, home: Path | None = None) -> str:
    """Log the models that were not logged before; returns a sentence that says how many and where, or "".

    ``home`` is the repository that keeps the runs, if ``workspace`` is a copy of it.

    Never raises, because the artifacts matter more; what could not be logged is logged the next time.
    """
    if os.environ.get("LETHE_TRACKING") == "off":
        return ""
    workspace = workspace or Path.cwd()
    # DVC_ROOT is the repository itself, even where DVC runs an experiment in a copy of it.
    home = Path(home or os.environ.get("DVC_ROOT") or workspace).resolve()
    try:
        with notes.in_turn(home):
            return _log_new(workspace, home)
    except Exception as error:  # whatever MLflow raises, the pipeline's work is done
        return f"MLflow: nothing logged, the next run tries again ({type(error).__name__}: {_first_line(error)})"


def store(home: Path) -> str:
    """The tracking address of a repository for which no server is configured."""
    return f"sqlite:///{home / 'mlflow.db'}"


def pages(home: Path) -> list[str]:
    """The paths, after the port, of MLflow's pages for the repository's models and pipelines."""
    from lethe.tracking import view

    return view.pages(store(home))


def without_password(uri: str) -> str:
    """An address that is safe to show or keep: without any user name and password."""
    address = urlsplit(uri)
    return urlunsplit(address._replace(netloc=address.netloc.rpartition("@")[2])) if "@" in address.netloc else uri


def _log_new(workspace: Path, home: Path) -> str:
    pipeline = read_pipeline(workspace)
    wanted = os.environ.get("MLFLOW_TRACKING_URI") or store(home)
    named = without_password(wanted)
    sentence = ""
    if not pipeline.entries or not _new(pipeline, wanted, home):
        return ""
    if not notes.answers(wanted):
        sentence = f"MLflow: {named} does not answer; logged locally (`lethe ui`), and there once it answers. "
        wanted = store(home)
    try:
        count = _log(pipeline, wanted, workspace, home)
    except Exception as error:
        if wanted == store(home):
            raise
        said = _first_line(error).replace(wanted, named)
        sentence = f"MLflow: {named} failed ({said}); logged locally (`lethe ui`), and there the next time. "
        count = _log(pipeline, store(home), workspace, home)
    return sentence + (f"MLflow: {count} new run{'s' if count > 1 else ''}." if count else "")


def _log(pipeline: Pipeline, uri: str, workspace: Path, home: Path) -> int:
    """Log what ``uri`` does not have yet; returns the number of new runs, not counting the parent."""
    if not _new(pipeline, uri, home):
        return 0
    from lethe.tracking import runs

    place = (home / "mlruns").as_uri() if uri == store(home) else None
    count = runs.log(pipeline, uri, place, workspace, home)
    notes.remember(without_password(uri), pipeline.states, home)
    return count


def _new(pipeline: Pipeline, uri: str, home: Path) -> bool:
    """Whether anything is not yet recorded as logged at ``uri``; everything is new if the database is gone."""
    gone = uri == store(home) and not (home / "mlflow.db").exists()
    known = set() if gone else notes.known(without_password(uri), home)
    return not set(pipeline.states) <= known


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or ["no message"])[0][:200]
