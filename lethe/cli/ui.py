"""`lethe ui`: look at the runs in MLflow."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

# A process that waits for the server, opens the page and ends; the server replaces the process of the command.
OPEN = """
import sys, time, urllib.request, webbrowser
port, url = sys.argv[1:]
for _ in range(240):
    try:
        urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).close()
    except OSError:
        time.sleep(0.25)
    else:
        webbrowser.open(url)
        break
"""


def command(
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port on 127.0.0.1.")] = 5000,
    browser: Annotated[bool, typer.Option(help="Open the page where there is a screen.")] = True,
) -> None:
    """Serve the runs of this folder with MLflow's pages on 127.0.0.1 until Ctrl-C; nothing else can connect.

    Prints the addresses of the models' and the pipelines' page and opens the first in the browser. If
    MLFLOW_TRACKING_URI names a server, that server has the runs, except those logged while the server was down.

    Example: `lethe ui --port 5001`
    """
    from lethe import tracking
    from lethe.errors import BadValue, MissingArtifact
    from lethe.process import no_telemetry

    root = Path.cwd()
    if not (root / "mlflow.db").exists():
        raise MissingArtifact("mlflow.db", "the first pipeline")
    if not _free(port):
        raise BadValue("--port", port, "a port of 127.0.0.1 that nothing listens on", "Choose another.")
    no_telemetry()
    os.environ["MLFLOW_SERVER_ENABLE_JOB_EXECUTION"] = "false"  # eight idle processes that only traces need
    urls = [f"http://127.0.0.1:{port}{page}" for page in tracking.pages(root)]
    for what, url in zip(("Models by leakage", "Pipelines and what changed"), urls, strict=False):
        typer.echo(f"{what}: {url}")
    typer.echo("Ctrl-C ends it.")
    sys.stdout.flush()
    if browser and _screen():
        nothing = subprocess.DEVNULL
        subprocess.Popen(
            [sys.executable, "-c", OPEN, str(port), urls[0]], stdin=nothing, stdout=nothing, stderr=nothing
        )
    arguments = [
        "--backend-store-uri",
        tracking.store(root),
        "--default-artifact-root",
        (root / ".lethe/mlruns").as_uri(),
    ]
    arguments += ["--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    os.execv(sys.executable, [sys.executable, "-m", "mlflow", "server", *arguments])


def _screen() -> bool:
    """Whether a person at a terminal looks at a screen that can show a page."""
    shows = sys.platform in ("darwin", "win32") or bool(
        os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    )
    return shows and sys.stdout.isatty()


def _free(port: int) -> bool:
    import socket

    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True
