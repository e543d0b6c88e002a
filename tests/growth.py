"""How the work of a function grows with its input, by processor time: a busy machine slows both sizes alike."""

import time
from collections.abc import Callable

LEAST = 0.002  # seconds; below, the clock measures itself


def growth(work: Callable[[int], object], size: int, factor: int = 8) -> float:
    """How many times as long `work` takes at ``factor`` times the size; about ``factor`` where it is linear.

    A quadratic algorithm takes the square of ``factor``.
    """
    small = min(_seconds(work, size) for _ in range(3))
    large = min(_seconds(work, factor * size) for _ in range(3))
    return large / max(small, LEAST)


def _seconds(work: Callable[[int], object], size: int) -> float:
    start = time.process_time()
    work(size)
    return time.process_time() - start
