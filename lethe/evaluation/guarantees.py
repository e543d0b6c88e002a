"""The content of a file ``bounds.json`` whose guarantees are those of single values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from lethe.io.atomic import SCHEMA_VERSION

if TYPE_CHECKING:
    from lethe.statistics.bound import Bound


def guarantees(bounds: Mapping[str, Bound]) -> dict[str, object]:
    """Every field of each bound except its value, which stands under the same key beside this file."""
    return {"schema": SCHEMA_VERSION, "metrics": {key: bound.guarantee_dict() for key, bound in bounds.items()}}
