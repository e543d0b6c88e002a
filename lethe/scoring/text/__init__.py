"""Text scorers, and their shared parts: which texts count as present, and how two texts are compared."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence

import numpy as np


def is_text(value: object) -> bool:
    """Whether ``value`` is a string that is not blank, as a reference or a keyword must be."""
    return isinstance(value, str) and not value.isspace() and value != ""


def is_answer(value: object) -> bool:
    """Whether ``value`` is an answer: any string, including an empty one; None and NaN are missing.

    A model that stops at once has answered and leaked nothing.
    """
    return isinstance(value, str)


def score_distinct(generations: Sequence[str], measure: Callable[[list[str]], Sequence[float]]) -> np.ndarray:
    """Apply ``measure`` once to the distinct texts among ``generations``; NaN for a missing answer.

    Low-temperature samples repeat, so scoring each distinct text once saves most of the work.
    """
    distinct = [text for text in dict.fromkeys(generations) if is_answer(text)]
    values = np.append(np.asarray(measure(distinct) if distinct else [], dtype=np.float64), np.nan)
    place = {text: number for number, text in enumerate(distinct)}
    missing = len(distinct)
    return values[np.array([place.get(text, missing) for text in generations], dtype=np.intp)]


def normalise(text: str) -> str:
    """The form in which words are compared: Unicode NFKC, case folded, each run of white space becomes one blank."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())
