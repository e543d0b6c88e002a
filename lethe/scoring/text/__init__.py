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
    values = np.append(np.asarray(measure(distinct), dtype=np.float64), np.nan)
    place_of = {text: place for place, text in enumerate(distinct)}
    missing = len(distinct)
    places = [place_of.get(text, missing) for text in generations]
    return values[np.array(places, dtype=np.intp)]
