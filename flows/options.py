"""Options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

PullFlag = Annotated[
    bool, typer.Option("--pull", help="Fetch from the DVC remote what other machines made, and run only the rest.")
]
PushFlag = Annotated[bool, typer.Option("--push", help="Send the results to the DVC remote.")]
Scheduler = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="Run the stages on the workers of this Dask scheduler. They share this folder or DVC's default remote.",
    ),
]
SharingScheduler = Annotated[
    str | None,
    typer.Option(help="Address of a Dask scheduler whose workers see this folder and PREFECT_API_URL's server."),
]
