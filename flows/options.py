"""Options that `lethe run` and `lethe serve` share."""

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
