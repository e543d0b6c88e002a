"""Addresses of Ray clusters, and what a user without the extra ``ray`` is told."""

from __future__ import annotations

from typing import TypeGuard

from lethe.errors import BadInput


def is_ray(address: str | None) -> TypeGuard[str]:
    """Whether an address is that of a Ray cluster; any other is that of a Dask scheduler."""
    return address is not None and address.startswith("ray://")


def not_installed(address: str, what: str) -> BadInput:
    """Return the error about a missing package of the extra; ``what``: the package's name for readers."""
    return BadInput(
        f"--scheduler {address}: {what} is not installed. Install the extra ray: `.venv/bin/python -m pip install "
        "'prefect-ray>=0.6,<0.7' 'ray[client]'`, on every machine in the same version."
    )
