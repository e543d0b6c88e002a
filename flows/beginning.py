"""What precedes the stages of a run: settings that hold, a server that answers, results of other machines, DVC's graph."""

from __future__ import annotations

from pathlib import Path

from flows import remote, server, settings, workspace
from flows.overview import standard
from lethe import config


def current_graph(root: Path, pull: bool) -> workspace.Graph:
    """The graph of a folder whose lock the caller holds; with ``pull``, after the DVC remote's results came.

    The run uses params.yaml as it is now. Raises `BadInput` for a wrong value of params.yaml, before DVC, whose messages
    name neither key nor line, and `Unreachable` where Prefect's server is named and does not answer.
    """
    settings.check(config.load(), root)
    workspace.keep_params(root)
    if server.named():
        server.require()
    if pull:
        standard().print(remote.pull(root))
    return workspace.read_graph(root)
