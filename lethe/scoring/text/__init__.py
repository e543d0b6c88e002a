"""Text scorers, and their shared parts: which texts count as present, and each distinct one scored once."""

from collections.abc import Callable, Sequence

import numpy as np


def is_text(value: object) -> bool:
    """Whether ``value`` is a string that is not blank, as a reference or a keyword must be."""
    return isinstance(value, str) and not value.isspace() and value != ""


def score_distinct(
    generations: Sequence[str], measure: Callable[[list[str]], Sequence[float]]
) -> np.ndarray:
    """Apply ``measure`` once to the distinct texts; NaN for a missing answer. Low-temperature samples repeat. An empty text
    is an answer: a model that stops at once has leaked nothing."""
    distinct = [text for text in dict.fromkeys(generations) if isinstance(text, str)]
    measured = np.asarray(measure(distinct), dtype=np.float64)
    missing = len(distinct)  # the place of NaN, behind the measured values
    values = np.append(measured, np.nan)
    place_of_text = dict(zip(distinct, range(missing), strict=True))
    places = [place_of_text.get(text, missing) for text in generations]
    return values[np.array(places, dtype=np.intp)]
