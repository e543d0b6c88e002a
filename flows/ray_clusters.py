"""Addresses of Ray clusters, and what a user without the extra ``ray`` is told."""

from __future__ import annotations

import os
import time
from typing import Any, TypeGuard

from flows import workspace
from lethe.errors import BadInput, LetheError

TRIES = 5  # to join a cluster that answers
PAUSE = 2  # seconds between two tries
UNBORN = "Starting Ray client server failed"


def is_ray(address: str | None) -> TypeGuard[str]:
    """Whether an address is that of a Ray cluster; any other is that of a Dask scheduler."""
    return address is not None and address.startswith("ray://")


def not_installed(address: str, what: str) -> BadInput:
    """Return the error about a missing package of the extra; ``what``: the package's name for readers."""
    return BadInput(
        f"--scheduler {address}: {what} is not installed. Install the extra ray: `.venv/bin/python -m pip install "
        "'prefect-ray>=0.6,<0.7' 'ray[client]'`, on every machine in the same version."
    )


def join(address: str, **how: Any) -> None:
    """Make this process a client of a Ray cluster, unless it is a client already.

    Ray's server of clients forks a process for each client out of its threads, and now and then this process dies at once;
    the client that asks again gets another.
    """
    import ray

    # A client that loses its cluster would otherwise start a cluster of its own here at the next call.
    os.environ["RAY_ENABLE_AUTO_CONNECT"] = "0"
    if ray.is_initialized():
        return
    for left in reversed(range(TRIES)):
        try:
            ray.init(address, **how)
            return
        except Exception as error:  # Ray's client raises errors of gRPC, of its own and of Python
            told = workspace.sentence(error) or type(error).__name__
            if not left or UNBORN not in str(error):
                raise LetheError(f"--scheduler {address}: no Ray cluster answers there ({told}).") from error
        time.sleep(PAUSE)
