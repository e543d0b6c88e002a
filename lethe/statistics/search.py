"""The fewest answers, attacks or labels that are enough, or the smallest number, where more of them are enough too."""

import math
from collections.abc import Callable


def fewest(is_enough: Callable[[int], bool], too_few: int = 0) -> int:
    """Return the smallest number above ``too_few`` that is enough. Some number must be.

    >>> fewest(lambda n: n * n >= 200)
    15
    """
    enough = too_few + 1
    while not is_enough(enough):
        too_few = enough
        enough *= 2
    return fewest_between(is_enough, too_few, enough)


def fewest_between(is_enough: Callable[[int], bool], too_few: int, enough: int) -> int:
    """Return the smallest number that is enough, where it is known of both ends; neither is asked.

    >>> fewest_between(lambda n: n * n >= 200, 0, 1_000)
    15
    """
    while enough - too_few > 1:
        middle = (too_few + enough) // 2
        if is_enough(middle):
            enough = middle
        else:
            too_few = middle
    return enough


def halved(
    is_enough: Callable[[float], bool],
    low: float,
    high: float,
    steps: float = math.inf,
    width: float = 0.0,
) -> tuple[float, float]:
    """Return the ends of the interval around the smallest number that is enough, neither of which
    is asked.

    It is halved ``steps`` times at most, until it is at most ``width`` wide or holds no double.

    >>> low, high = halved(lambda x: x * x >= 2, 0.0, 2.0)
    >>> low * low < 2 <= high * high
    True
    """
    while steps > 0 and high - low > width:
        middle = (low + high) / 2
        if not low < middle < high:
            break
        if is_enough(middle):
            high = middle
        else:
            low = middle
        steps -= 1
    return low, high
