"""What `lethe twins check` and `lethe twins open` add: the exit status."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from lethe.cli.outcome import Arguments, Outcome

if TYPE_CHECKING:
    from lethe.api import twins


def check_file(call: Callable[..., twins.TwinCheck], arguments: Arguments) -> Outcome:
    """Exit with status 1 where a score without a model tells the true candidates."""
    result = call(**arguments)
    return Outcome(result, status=int(result.is_refused))


def open_file(call: Callable[..., twins.TwinSeal], arguments: Arguments) -> Outcome:
    """Exit with status 1 where rows, record and key do not belong together."""
    result = call(**arguments)
    return Outcome(result, status=int(bool(result.opened.problems)))
