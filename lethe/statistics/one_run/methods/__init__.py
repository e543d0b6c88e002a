"""The methods of a one-run audit: a module is a `Method` (``METHOD``), or several by name (``MEMBERS``).

``log_p_value(counts, channel)`` is ln of the p-value of one null; of a ``FAMILY_FREE`` method it is
``log_p_value(counts, epsilon, delta)`` for the null (epsilon, delta)-DP, which is searched up to ``STRONGEST``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from lethe.errors import BadValue
from lethe.statistics.one_run.channel import Channel
from lethe.statistics.one_run.counts import Counts

DEFAULT = "exact"


def _applies(counts: Counts) -> None:
    return None


@dataclass(frozen=True)
class Method:
    """One method: its assumptions (`audit.ASSUMPTIONS` explains the flags), one line about it, and its p-value.

    ``CONSERVATIVE``: whether its level holds whenever its assumptions do. ``refusal(counts)`` is the error where the method
    does not apply. ``rejects(counts, channel, log_alpha)`` is a decision cheaper than a p-value.
    """

    ASSUMES: tuple[str, ...]
    NOTE: str
    log_p_value: Callable[..., float]
    FAMILY_FREE: bool = False
    CONSERVATIVE: bool = True
    STRONGEST: float = 600.0
    refusal: Callable[[Counts], BadValue | None] = _applies
    rejects: Callable[[Counts, Channel, float], bool] | None = None
