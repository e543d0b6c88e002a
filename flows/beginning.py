"""What precedes the stages of a run: settings that hold, a server that answers, results of other machines, DVC's graph."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from flows import remote, server, settings, workspace
from flows.overview import standard
from lethe import config
from lethe.results import table


def current_graph(root: Path, pull: bool) -> workspace.Graph:
    """The graph of a folder whose lock the caller holds; with ``pull``, after the DVC remote's results came.

    The run uses params.yaml as it is now. Raises `BadInput` for a wrong value of params.yaml, before DVC, whose messages
    name neither key nor line, and `Unreachable` where Prefect's server is named and does not answer.
    """
    params = config.load()
    settings.check(params, root)
    workspace.keep_params(root)
    remove_unmeasured(root, params.utility.models)
    if server.named():
        server.require()
    if pull:
        standard().print(remote.pull(root))
    return workspace.read_graph(root)


def remove_unmeasured(root: Path, measured: Collection[str]) -> None:
    """Delete the tables of general utility of models whose entry is gone: no stage is left that would."""
    folder = table.place(root / "data", "utility", "").parent
    for place in folder.glob("*.parquet"):
        if place.stem not in measured:
            place.unlink()
